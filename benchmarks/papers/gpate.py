"""Rows of G-PATE: Long et al., NeurIPS 2021, with its appendix (arXiv 1906.09338)."""

from __future__ import annotations

from benchmarks.papers import trainings
from benchmarks.papers.rows import Command, Nothing, Row, Training
from benchmarks.papers.trainings import CNN, FID, SCORE, by_code, grid, hours, training

OURS = "gpate"
ALL = ("dpgan", "pategan", "gswgan", "gpate")
TABLE_1B = """
mnist 1 1.00 1.19 1.00 3.60
mnist 10 1.00 1.46 8.59 5.16
fashion 1 1.03 1.69 1.00 3.41
fashion 10 1.05 2.35 5.87 4.33
gender-l 1 1.00 1.15 1.00 1.17
gender-l 10 1.00 1.16 1.00 1.37
"""
TABLE_1C = """
mnist 1 0.4036 0.4168 0.1432 0.5880
mnist 10 0.8011 0.6667 0.8066 0.8092
fashion 1 0.1053 0.4222 0.1661 0.5812
fashion 10 0.6098 0.6218 0.6579 0.6934
gender-s 1 0.5201 0.4448 0.6293 0.7016
gender-s 10 0.5409 0.5870 0.6326 0.7072
gender-l 1 0.5330 0.6068 0.5901 0.6702
gender-l 10 0.5211 0.6535 0.6136 0.6897
hair 1 0.3447 0.3789 0.3375 0.4985
hair 10 0.3920 0.3900 0.3725 0.6217
"""
WITHOUT_PRIVACY = """
mnist 0.9653
fashion 0.8032
gender-s 0.8002
gender-l 0.8149
hair 0.7678
"""
TABLE_2 = """
mnist 0.2 0.1104 0.2176 0.0972
mnist 0.4 0.1524 0.2399 0.1029
mnist 0.6 0.1022 0.3484 0.1044
mnist 0.8 0.3732 0.3571 0.1170
mnist 1.0 0.4046 0.4168 0.1432
fashion 0.2 0.1021 0.1605 0.1000
fashion 0.4 0.1302 0.2977 0.1001
fashion 0.6 0.0998 0.3698 0.1144
fashion 0.8 0.1210 0.3659 0.1242
fashion 1.0 0.1053 0.4222 0.1661
"""
TABLE_8 = """
mnist 1 1.00 1.19 1.00 3.60 470.20 231.54 489.75 153.38
mnist 10 1.00 1.46 8.59 5.16 304.86 253.55 58.77 150.62
fashion 1 1.03 1.69 1.00 3.41 472.03 253.19 587.31 214.78
fashion 10 1.05 2.35 5.87 4.33 433.38 229.25 135.47 171.90
gender-l 1 1.00 1.15 1.00 1.17 485.92 434.47 437.33 293.24
gender-l 10 1.00 1.16 1.00 1.37 485.41 424.60 432.58 305.92
"""
CLASSIFIERS = ("lr", "adaboost", "bagging", "mlp")
CREDIT = {  # logistic regression, AdaBoost, bagging, MLP; Tables 1a, 5, 6 and 7
    ("table1a", "auroc"): {
        "dcgan": "0.9430 0.9416 0.9379 0.9444", "pategan": "0.8728 0.8959 0.8877 0.8925",
        "dpgan": "0.8720 0.8809 0.8657 0.8787", "gpate": "0.9251 0.8981 0.8964 0.9093"},
    ("table5", "auprc"): {
        "dcgan": "0.4069 0.4530 0.3303 0.4790", "pategan": "0.3907 0.4366 0.3221 0.4693",
        "dpgan": "0.3923 0.4234 0.3073 0.4600", "gpate": "0.4476 0.4481 0.3503 0.5109"},
    ("table7", "auroc"): {"dcgan": "0.9430 0.9416 0.9379 0.9444",
                          "gpate": "0.9455 0.9165 0.9456 0.9219"}}
REAL = {"auroc": "0.9330 0.9802 0.9699 0.9754", "auprc": "0.6184 0.7103 0.6707 0.8223"}
PRESETS = {"dcgan": "credit", "pategan": "table-published", "gpate": "credit"}
SAMPLE = ("--method", "gpate", "--preset", "credit-sample", "--schema", "creditcard",
          "--dataset", "csv:creditcard_20pct/train.csv.gz",
          "--test-csv", "creditcard_20pct/test.csv.gz")


def _printed(task: str, score: str, values: str) -> dict[str, str]:
    return {f"{task}.{name}.{score}": value
            for name, value in zip(CLASSIFIERS, values.split(), strict=True)}


def _table(method: str, preset: str) -> Command:
    """Return the command of a table's preset on the whole credit card data, 29 features."""
    stem = f"tables-creditcard-{preset}" if method == "gpate" else (
        f"tables-creditcard-{method}-{preset}")
    return Command("table_presets", (
        "--method", method, "--preset", preset, "--dataset", "csv:creditcard.csv", "--schema",
        "creditcard_kaggle", "--leave-out", "Time", "--delta", "1e-6", "--test-fraction", "0.2"),
        stem, "credit")


def _credit() -> list[Row]:
    """Return Tables 1a, 5, 6 and 7."""
    rows = []
    for (place, score), systems in CREDIT.items():
        for system, values in systems.items():
            nonprivate = (place, system) == ("table7", "gpate")
            preset = "credit-nonprivate" if nonprivate else PRESETS.get(system)
            work = _table(system, preset) if preset else Nothing(
                "the paper quotes it from PATE-GAN's, Jordon et al., ICLR 2019; dpgan here is for "
                "images")
            rows.append(Row(f"gpate:{place}:credit-{system}", work,
                            _printed("gen2real", score, values), 1.0 if preset else 0.0,
                            "the number of steps is this library's" if system == "dcgan" else ""))
    rows.append(Row("gpate:table6:credit-real", _table("gpate", "credit"), {
        name: value for score, values in REAL.items()
        for name, value in _printed("real2real", score, values).items()}, 1.0))
    rows.append(Row("gpate:table1a:sample", Command(
        "table_presets", SAMPLE, "tables-train-credit-sample", "credit-sample"),
        _printed("gen2real", "auroc", CREDIT["table1a", "auroc"]["gpate"]), 0.5,
        "a fifth of the paper's data, 78 frauds; a preset of this library"))
    rows.append(Row("gpate:table1a:why", Command("credit", (), "credit", "credit-sample"), {}, 1.0,
                    "why the sample gives less than the paper, by 13 settings and what chance "
                    "gives: [what was found](results.md#frauds)"))
    return rows


def _without_privacy() -> list[Row]:
    """Return the GAN of Table 1c, which has the networks of the paper's G-PATE (appendix E)."""
    rows = []
    for line in WITHOUT_PRIVACY.strip().splitlines():
        data, value = line.split()
        preset = f"{data}-{'paper' if data in ('mnist', 'fashion') else 'published'}"
        rows.append(Row(f"gpate:table1c:{data}-dcgan", Training("dcgan", preset, data),
                        {CNN: value}, hours("dcgan", data), trainings.WITHOUT_PRIVACY))
    return rows


def _pictures(place: str) -> list[Row]:
    """Return Table 3 or Figure 3: samples of Table 1c's runs."""
    return [Row(f"gpate:{place}:{data}-eps{epsilon}", training(OURS, data, epsilon), {},
                hours(OURS, data, epsilon),
                "a picture of samples, written beside the results of Table 1c")
            for data in ("mnist", "fashion") for epsilon in (1, 10)]


def _texts() -> list[Row]:
    """Return what the text reports of MNIST."""
    mnist, took = training(OURS, "mnist", 1), hours(OURS, "mnist", 1)
    printed = {"votes.most agreed bin": "60.35 %", "votes.second": "39.11 %"}
    private = "shares of votes are private to the holder of private data, and shown of public data"
    code = Training(OURS, "mnist-eps1-code", "mnist")
    return [
        Row("gpate:agreement:mnist-eps1", mnist, printed, took, private),
        Row("gpate:agreement:mnist-eps1-code", code, printed, hours(OURS, "mnist", 1, code=True),
            f"the command line in the authors' README; {private}"),
        Row("gpate:data-independent:mnist-eps1", mnist, {CNN: "0.5483"}, took,
            "every epsilon here is data-independent"),
        *(Row(f"gpate:without-pate:mnist-eps{epsilon}",
              Training("projected_dpgan", f"mnist-eps{epsilon}", "mnist"), {CNN: value}, 2.0,
              "DP-GAN with random projection and discretised gradients")
          for epsilon, value in ((1, "0.2026"), (10, "0.5602")))]


ROWS = [
    Row("gpate:figure1:overview", Nothing("a drawing of the system; dpgen_jax/methods/gpate.py is "
                                          "what it shows")),
    *_credit(),
    *grid("gpate:table1b", OURS, ALL, (SCORE,), TABLE_1B),
    *grid("gpate:table1c", OURS, ALL, (CNN,), TABLE_1C),
    *by_code("gpate:table1c", OURS, CNN, TABLE_1C),
    *_without_privacy(),
    *grid("gpate:table2", OURS, ALL[:-1], (CNN,), TABLE_2), *trainings.sweep_rows("gpate:table2"),
    *_pictures("table3"), *trainings.sweep_rows("gpate:table4"),
    *(Row(f"gpate:figure2:{data}", trainings.sweep_command(f"gpate:table2:{data}"), {},
          trainings.sweep_hours(f"gpate:table2:{data}"),
          "the curve of G-PATE, drawn beside the results of Table 2; its other rows are points of "
          "the baselines' curves") for data in ("mnist", "fashion")),
    *_texts(), *_pictures("figure3"),
    *grid("gpate:table8", OURS, ALL, (SCORE, FID), TABLE_8),
    trainings.epoch("gpate:appendix-g:epoch", "gpate-mnist", "256.74",
                 "the paper: one Tesla T4, of it 43.18 s for aggregation and generator"),
    Row("gpate:appendix-g:aggregation", Command(
        "aggregation", ("--preset", "mnist-eps1-code"), "aggregation"),
        {"wall.seconds.chunk 1": "43.18"}, 0.5, "seconds of the aggregation of one step of the "
        "authors' code; in the paper with the step of the generator, on one Tesla T4"),
]
