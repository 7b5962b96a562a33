"""Reports to try pages on: plausible numbers, in the shapes that the commands write."""

import functools

import numpy as np

from dpgen_jax.core.types import Column, TableSpec
from dpgen_jax.evaluation import figures
from dpgen_jax.evaluation.assessment import read
from dpgen_jax.evaluation.report import Report
from dpgen_jax.evaluation.results import summary

HOSTILE = "<script>alert(1)</script>"
IMAGE_CLASSIFIERS = ("cnn", "mlp", "adaboost", "bagging", "bernoulli_nb", "gaussian_nb",
                     "decision_tree", "gradient_boosting", "lda", "linear_svc",
                     "logistic_regression", "random_forest", "xgboost")


def leaf(mean, floor=None, spread=0.01, **more):
    return summary([mean - spread, mean, mean + 1.4 * spread]) | {"floor": floor} | more


def privacy(**changes):
    return {
        "epsilon": 10.0, "delta": 1e-5, "relation": "replace-one", "unit": "record",
        "accountant": "exact Gaussian differential privacy; basic composition with pure releases",
        "events": [{"mechanism": "rounded-gaussian", "sigma": 5429.76, "sensitivity": 768.0,
                    "count": 200}],
        "steps": 200, "method": "gswgan", "preset": "mnist-eps10", "records": 60000,
        "noise_source": "os-entropy",
        "not_accounted": ["hyper-parameter tuning",
                          "other runs on the same records (budgets add up)",
                          "side channels (timing, memory, power)",
                          "the generator of the operating system, whose strength is computational"],
        "data_notes": ["image height and width are read from the file headers"],
        "data_dependent_epsilon": None, "package_version": "0.1.0"} | changes


def config(**changes):
    return {
        "method": "gswgan", "preset": "mnist-eps10", "dataset": "idx:mnist", "records": 60000,
        "spec": {"height": 28, "width": 28, "channels": 1, "classes": 10},
        "config": {"critics": 1000, "batch": 32, "clip": 1.0, "sigma": 28.28, "steps": 200,
                   "schedule": "rotation", "generator": {"latent": 10, "width": 64},
                   "d_optimiser": {"learning_rate": 1e-4, "beta1": 0.5}},
        "budget": {"epsilon": 10.0, "delta": 1e-5, "class_epsilon": 0.0}, "seed": None,
        "versions": {"dpgen_jax": "0.1.0", "python": "3.11.7", "jax": "0.10.2"},
        "git": "9018e1878c248c3ea79139140b51e46a2f66d746"} | changes


def steps(n=60, epsilon=10.0):
    return [{"step": s, "epsilon": epsilon * (s / n) ** 0.5, "seconds": 1.5 * s,
             "generator_gradient": 20 / s, "released_rms": 0.2 + 0.01 * np.sin(s)}
            for s in range(1, n + 1)]


def membership(**changes):
    return {"attacks": {name: {"auroc": leaf(0.5 + i / 100), "advantage": leaf(0.02 + i / 100),
                               "tpr_at_1_percent_fpr": leaf(0.011 + i / 1000, spread=0.001)}
                        for i, name in enumerate(("closest_record", "density", "density_ratio"))},
            "allowed": {"auroc": 0.99998, "advantage": 0.99991, "tpr_at_1_percent_fpr": 1.0},
            "chance": {"auroc": 0.5, "advantage": 0.0, "tpr_at_1_percent_fpr": 0.01},
            "strongest": "density_ratio", "sentence": "An attack reached an AUROC of "
            "0.521; the guarantee allows at most 0.99998. An attack that fails proves nothing.",
            "n_members": 2000, "n_non_members": 2000, "n_reference": 4000} | changes


def image_metrics(**changes):
    real2real = {name: {"accuracy": leaf(0.95 - 0.01 * i)}
                 for i, name in enumerate(IMAGE_CLASSIFIERS)}
    gen2real = {name: {"accuracy": leaf(0.82 - 0.02 * i), "validation_accuracy": leaf(0.9),
                       "calibrated_accuracy": leaf(0.86 - 0.02 * i)}
                for i, name in enumerate(IMAGE_CLASSIFIERS)}
    average = {"gen2real": {"accuracy": leaf(0.7), "calibrated_accuracy": leaf(0.78),
                            "classifiers": list(IMAGE_CLASSIFIERS)},
               "real2real": {"accuracy": leaf(0.89), "classifiers": list(IMAGE_CLASSIFIERS)}}
    return {
        "dataset": "mnist", "kind": "images", "date": "2026-11-21",
        "versions": {"dpgen_jax": "0.1.0", "numpy": "2.4.6"},
        "release": {"method": "gswgan", "preset": "mnist-eps10", "epsilon": 10.0},
        "setting": {"name": "full", "schedule": {"epochs": 30, "batch": 128},
                    "text": "Classifiers were trained for 30 epochs; the last one counts."},
        "n_samples": 10000, "n_test": 10000, "n_real": 10000, "seeds": 3,
        "gen2real": gen2real, "real2gen": {n: {"accuracy": leaf(0.91)} for n in ("cnn", "mlp")},
        "real2real": real2real, "average": average,
        "fidelity": {"inception_score": leaf(8.61, 9.83), "fid_features": leaf(41.37, 1.83),
                     "precision": leaf(0.53, 0.8), "recall": leaf(0.31, 0.79),
                     "density": leaf(0.42, 1.01), "coverage": leaf(0.37, 0.97),
                     "judge": {"net": "cnn", "test_accuracy": 0.991, "features": 64, "epochs": 10}},
        "membership": membership(),
        "notes": ["Classes are drawn in equal shares."],
        "not_covered_by_epsilon": ["gen2real.cnn.accuracy", *(
            f"gen2real.{n}.{m}" for n in IMAGE_CLASSIFIERS for m in (
                "accuracy", "calibrated_accuracy")), "real2gen", "real2real", "average",
            "fidelity", "membership"],
        "seconds": {"gen2real": 120.5, "fidelity": 33.25}} | changes


def images(classes=10, each=12, side=28, channels=1):
    """Blobs that differ between classes."""
    rng = np.random.default_rng(0)
    x = np.linspace(-1, 1, side)
    place = rng.uniform(-0.6, 0.6, (classes, 1, 1, 1, channels, 2))
    place = place + rng.normal(0, 0.1, (classes, each, 1, 1, channels, 2))
    distance = ((x[None, None, :, None, None] - place[..., 0]) ** 2
                + (x[None, None, None, :, None] - place[..., 1]) ** 2)
    pixels = np.exp(-8 * distance) + rng.normal(0, 0.05, distance.shape)
    pixels = (255 * np.clip(pixels, 0, 1)).astype(np.uint8)
    return pixels.reshape(-1, side, side, channels), np.repeat(np.arange(classes), each)


def spec(columns=12, hostile=False):
    kinds = ({"kind": "continuous", "low": 0.0, "high": 250.0},
             {"kind": "integer", "low": 0.0, "high": 110.0, "nullable": True},
             {"kind": "categorical", "categories": ("surgery", "medicine", "other"),
              "nullable": True},
             {"kind": "ordinal", "categories": ("low", "middle", "high")})
    names = ["blood pressure", "age", "ward", "stage"]
    synthetic = [Column(f"{names[i % 4]} {i // 4}", **kinds[i % 4]) for i in range(columns)]
    if hostile:
        synthetic[0] = Column(f"{HOSTILE} $x_", **kinds[0])
    return TableSpec(
        tuple(synthetic), Column("outcome", "categorical", categories=("home", "back")), columns
    )


def cells(table, n, shift, seed=0):
    """float64 [n, K] within the schema."""
    rng = np.random.default_rng(seed)
    common, synthetic = rng.normal(0, 1, n), []
    for column in (*table.columns, table.label):
        value = 1 / (1 + np.exp(-(0.6 * common + rng.normal(shift, 1, n))))
        top = len(column.categories) or 1
        value = np.minimum(np.floor(value * top), top - 1) if column.categories else (
            column.low + value * (column.high - column.low))
        if column.kind == "integer":
            value = np.round(value)
        synthetic.append(np.where(rng.random(n) < 0.1, np.nan, value) if column.nullable else value)
    return np.stack(synthetic, 1)


def table_metrics(table, **changes):
    names = [column.name for column in (*table.columns, table.label)]
    scores = {task: {name: {metric: leaf(top - 0.03 * i - 0.1 * j) for j, metric in enumerate(
                ("auroc", "auprc", "accuracy", "balanced_accuracy"))}
                     for i, name in enumerate(("lr", "adaboost", "bagging", "mlp"))}
              for task, top in (("gen2real", 0.84), ("real2gen", 0.8), ("real2real", 0.93))}
    return {**image_metrics(), "dataset": "people.csv", "kind": "table",
            "setting": {"name": "fast", "schedule": {}, "text": "Small classifiers, for laptops."},
            **scores, "average": {},
            "fidelity": {
                "one_way_tvd": leaf(0.24, 0.012, columns={
                    name: {"mean": 0.1 + i / 1000, "floor": 0.01} for i, name in enumerate(names)}),
                "two_way_tvd": leaf(0.38, 0.03, pairs=1000, all_pairs=4950),
                "correlation_difference": leaf(0.09, 0.008), "pmse": leaf(0.121, 0.001),
                "detection_auroc": leaf(0.93, 0.503),
                "far_off": [f"{names[0]}: 31 % of the rows would have to move."]},
            "targets": {names[1]: {task: {"ridge_regression": {"r2": leaf(top)}} for task, top in (
                ("gen2real", -1.3), ("real2real", 0.61))}},
            "label_shares": [{"class": name, "synthetic": 0.5, "real": share, "wrong": True}
                             for name, share in (("home", 0.8), ("back", 0.2))],
            "subgroups": [
                {"by": names[2], "group": "surgery", "n_test": 412, "n_synthetic": 388,
                 "synthetic_share": leaf(0.4), "real_share": 0.41, "metric": "auroc",
                 "n_rarest": 57,
                 "gen2real": leaf(0.71), "real2real": leaf(0.9),
                 "one_way_tvd": leaf(0.2, 0.03), "two_way_tvd": leaf(0.31, 0.11)},
                {"by": names[2], "group": "other", "n_test": 12, "n_synthetic": 3,
                 "note": "too few held-out rows to say anything: 30 are needed"}],
            "losses": [{"kind": kind, "columns": of, "synthetic": 0.1, "real": 0.7, "noise": 0.02,
                        "size": size, "of_kind": 2, "text": f"{kind}: {' and '.join(of)} is off",
                        "advice": "train again"} for kind, of, size in (
                            ("tails", names[:1], 9.0), ("correlation", names[:2], 6.0),
                            ("correlation", names[1:3], 5.0))],
            "schema_violations": leaf(0.0, None, 0.0),
            "not_covered_by_epsilon": ["gen2real", "real2gen", "real2real", "fidelity", "targets",
                                       "label_shares", "subgroups", "membership",
                                       "losses"]} | changes


@functools.cache
def image_report():
    return Report(read(image_metrics()), privacy(), config(), steps(), images())


@functools.cache
def table_report(columns=12, hostile=False, epsilon=1.0):
    table = spec(columns, hostile)
    synthetic, test = cells(table, 800, 0.5, 1), cells(table, 800, 0.0, 2)
    header = [column.name for column in (*table.columns, table.label)]
    rows = [
        [f"{value:.4g}" if np.isfinite(value) else "" for value in row] for row in synthetic[:50]
    ]
    note = [f"not covered: bounds of {HOSTILE} read from private data"] if hostile else [
        "not covered by epsilon: age 0.max, read from private data",
        "bought under differential privacy on the same records: ward 0.categories"]
    settings = config(dataset="csv:people.csv", preset="table", method="gpate", spec={
        "columns": [vars(column) for column in table.columns], "label": vars(table.label),
        "label_position": columns})
    return Report(
        read(table_metrics(table, release={"epsilon": epsilon, "method": "gpate"})),
        privacy(
            epsilon=epsilon,
            method="gpate",
            preset="table",
            records=5000,
            data_notes=note,
            events=[
                {"mechanism": "class-counts", "epsilon": 0.01, "delta": 0.0, "count": 1},
                *privacy()["events"],
            ],
        ),
        settings,
        steps(20, epsilon),
        (header, rows),
        (
            figures.marginals(table, synthetic, test),
            figures.correlations(table, synthetic, test),
            figures.distances(table, synthetic, test, test),
        ),
    )


def bare_report():
    """A release that nobody evaluated."""
    settings = config()
    return Report(None, privacy(epsilon=1.0), {name: settings[name] for name in (
        "method", "config", "spec")} | {"generator_sha256": "ab" * 32, "package_version": "0.1.0"})


def seeded_report():
    test = image_report()
    found = read(image_metrics(membership=membership(allowed=None)))
    return Report(found, privacy(noise_source="seeded: no privacy claim"), config(seed=0),
                  test.rows, test.samples)


def federated_report():
    return Report(read({"dataset": "glyphs", "kind": "images", "gen2real": {
        "cnn": {"accuracy": leaf(0.88)}}}), privacy(
            unit="client", clients=866, delta=1 / 866, epsilon=8.0, data_notes=[
                "866 clients, each of which adds the noise itself and keeps its own ledger"],
            records=None), config(dataset="federation", records=None), steps(10), images(4, 5, 12))


def published_report():
    return Report(None, privacy(epsilon="inf", method="dpac", guarantee="no valid guarantee",
                              as_published={"epsilon": 9.99, "steps": 20000, "formula":
                                            "RDP of a subsampled Gaussian (Wang et al., 2019)"},
                              events=[{"mechanism": "published draw: no valid guarantee",
                                       "sigma": 0.0, "sensitivity": None, "count": 20000}]),
                  config(method="dpac"), [], images(10, 3))


ALL = {"images": image_report, "table": table_report, "bare": bare_report, "seeded": seeded_report,
       "federated": federated_report, "published": published_report}
