"""The tables of `benchmarks.results_page`, in Markdown, from benchmarks/results/*.json."""

from __future__ import annotations

import contextlib
import functools
import io
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.papers import registry
from benchmarks.systems_shown import shown_name
from dpgen_jax import account

ROOT = Path(__file__).resolve().parents[1]
DATA_NAMES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "fashion": "Fashion-MNIST",
              "mnist-50000": "MNIST, 50,000 records"}


@functools.cache
def load(stem: str) -> dict[str, Any]:
    """Reads a results file: what was run where, and what came out."""
    return json.loads((ROOT / "benchmarks/results" / f"{stem}.json").read_text(encoding="utf-8"))


def results(stem: str) -> Any:
    """Returns what came out."""
    return load(stem)["results"]


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def pm_of(score: dict[str, Any], digits: int = 3) -> str:
    """Returns mean and standard deviation, or the mean of a single value."""
    if len(score["values"]) == 1:
        return f"{score['mean']:.{digits}f}"
    return f"{score['mean']:.{digits}f} +- {score['std']:.{digits}f}"


def _scores(stem: str, task: str, *classifiers: str) -> list[str]:
    evaluation = results(stem)["evaluation"][task]
    return [pm_of(evaluation[name]["accuracy"]) for name in classifiers]


def embedded_table() -> str:
    """Returns every method on glyphs, those that were run again by their new rows."""
    rows = {row["method"]: row for stem in ("", "-changed", "-prototypes")
            for row in results(f"embedded-glyphs{stem}")["rows"]}
    return markdown(("method", "seconds", "accuracy (CNN)"), (
        (shown_name(row["method"]), f"{row['seconds']:.0f}", f"{row['accuracy']:.2f}")
        for row in rows.values()))


def datalens_table() -> str:
    """Returns DataLens on glyphs and MNIST."""
    def row(stem: str) -> list[str]:
        found = results(stem)
        privacy, spec = found["privacy"], found["run"]["spec"]
        data = DATA_NAMES.get(found["dataset"], found["dataset"])
        return [f"{data}, {spec['height']} x {spec['width']}",
                f"{found['run']['config']['teachers']:,}",
                f"{privacy['epsilon']:g}, {privacy['delta']:g}", f"`{privacy['preset']}`",
                *_scores(stem, "gen2real", "cnn", "mlp"), *_scores(stem, "real2real", "cnn")]

    return markdown(("data", "teachers", "epsilon, delta", "preset", "CNN", "MLP",
                     "real2real CNN"), map(row, (
        "images-glyphs-glyphs", "images-mnist-mnist-eps1-mean", "images-mnist-mnist-eps10-mean")))


def utility_table() -> str:
    """Returns DataLens's accuracy on glyphs at each budget."""
    points = results("privacy-utility-datalens-glyphs-glyphs")["points"]
    return markdown(("epsilon", "CNN", "steps", "training, s"), (
        (f"{point['epsilon']:g}", pm_of(point["gen2real"]["cnn"]["accuracy"]), point["steps"],
         f"{point['training_seconds']:.0f}") for point in points))


def sweep_files() -> list[str]:
    """Returns the names of the results of sweeps."""
    return sorted(path.stem for path in (ROOT / "benchmarks/results").glob("sweep-*.json"))


def sweep_title(stem: str) -> str:
    """Returns what a sweep is of: its source, or its method, preset and data if it has no name."""
    found = results(stem)
    if found["source"] != "the command line":
        return str(found["source"])
    first = next(row for row in found["rows"] if "error" not in row)
    part = first["dataset"].rpartition("_")[2] in ("validation", "val")
    on = "a sixth of the training images" if part else first["dataset"]
    return f"`{first['method']}`, from the preset `{first['preset']}`, tested on {on}"


def sweep_command(stem: str) -> str:
    """Returns the command of a sweep, with a comment that says how long its trainings took."""
    seconds = sum(run["training_seconds"] for row in results(stem)["rows"]
                  for run in row.get("runs", ()))
    return f"{load(stem)['command']}   # takes {max(1, round(seconds / 60))} min of training"


def sweep_table(stem: str) -> str:
    """Returns the cells of a sweep, beside what the paper prints for them."""
    found = results(stem)
    rows, names = found["rows"], found["metrics"]
    printed = [name for name in names if any(name in row["printed"] for row in rows)]

    def line(row: dict[str, Any]) -> list[str]:
        paper = [f"{row['printed'][name]:g}" if name in row["printed"] else "" for name in printed]
        if "error" in row:
            return [row["label"], f"(budget {row['epsilon']})", "none allowed",
                    *[""] * len(names), *paper, ""]
        each, privacy = row["runs"], row["runs"][0]["privacy"]
        stamp, _, why = privacy["guarantee"].partition(":")
        epsilon = stamp if why else f"{privacy['epsilon']:g}, {privacy['relation']}"
        steps = dict.fromkeys(f"{run['steps']:,}" for run in each)
        seconds = min(run["seconds_per_step"] for run in each)
        return [row["label"], epsilon, " / ".join(steps),
                *(pm_of(row["metrics"][name]) for name in names), *paper, f"{seconds:.2f}"]

    return markdown(("setting", "epsilon", "steps", *(f"`{name}`" for name in names),
                     *(f"`{name}`, the paper" for name in printed), "seconds a step"),
                    map(line, rows))


def gpate_table() -> str:
    """Returns G-PATE on MNIST, by what is released of the votes."""
    released = {"gnmax": "arg max behind a threshold (the paper)",
                "mean": "mean of the noisy histogram",
                "sum": "noisy sum of clipped projections, k 10",
                "full": "noisy sum of clipped gradients",
                "topk": "noisy sum of top-k signs, k 200"}
    return markdown(("released", "preset", "MNIST CNN", "MNIST MLP"), (
        (text, f"`mnist-eps1-{name}`",
         *_scores(f"gpate-mnist-mnist-eps1-{name}", "gen2real", "cnn", "mlp"))
        for name, text in released.items()))


def critics_table() -> str:
    """Returns GS-WGAN and DP-GAN-DPAC at a proven epsilon, beside the papers' CNN."""
    rows = {"gswgan-glyphs-glyphs": "",
            "gswgan-mnist-mnist-eps10": "gswgan:table1:mnist",
            "gswgan-mnist-50000-mnist-eps10-long": "gswgan:table1:mnist",
            "dpac-mnist-mnist-eps10": "dpac:table2:mnist",
            "dpac-mnist-mnist-eps10-long": "dpac:table2:mnist",
            "gswgan-fashion_mnist-fashion-eps10": "gswgan:table1:fashion",
            "gswgan-fashion_mnist-fashion-eps10-long": "gswgan:table1:fashion",
            "dpac-fashion_mnist-fashion-eps10-long": "dpac:table2:fashion"}

    def row(stem: str) -> list[str]:
        found = results(stem)
        run = found["run"]
        on = f" on one {found['trained_on'][0]}" if "trained_on" in found else ""
        what = (f"{run['method']}, {run['config']['critics']} critics, {run['config']['steps']} "
                f"steps ({found['training_seconds']:.0f} s{on})")
        return [DATA_NAMES.get(found["dataset"], found["dataset"]), what,
                f"{found['privacy']['epsilon']:g}", *_scores(stem, "gen2real", "cnn", "mlp"),
                *_scores(stem, "real2gen", "cnn", "mlp"),
                registry.ROWS[rows[stem]].paper["gen2real.cnn.accuracy"] if rows[stem] else ""]

    return markdown(("data", "system", "proven epsilon", "gen2real CNN", "gen2real MLP",
                     "real2gen CNN", "real2gen MLP", "paper's CNN at its claimed 10"),
                    map(row, rows))


def tables_table() -> str:
    """Returns G-PATE on tables."""
    cases = {"tables-breast_cancer-breast_cancer": ("breast_cancer, 455 rows", "breast_cancer"),
             "tables-adult-adult": ("Adult, 32,561 rows", "adult"),
             "tables-train-credit-sample": ("credit card sample, 2,100 teachers",
                                            "credit-sample"),
             "tables-train-table": ("credit card sample, 400 teachers", "table")}

    def cell(stem: str, name: str) -> str:
        evaluation = results(stem)["evaluation"]
        real = evaluation["real2real"][name]["auroc"]["mean"]
        return f"{pm_of(evaluation['gen2real'][name]['auroc'], 2)} ({real:.2f})"

    return markdown(("data", "preset", "runs", "LR", "AdaBoost", "Bagging", "MLP"), (
        (data, f"`{preset}`", len(results(stem)["training_seconds"]),
         *(cell(stem, name) for name in ("lr", "adaboost", "bagging", "mlp")))
        for stem, (data, preset) in cases.items()))


def credit_table() -> str:
    """Returns what was learnt of frauds from four fifths of the credit card sample."""
    def row(found: dict[str, Any]) -> list[object]:
        first = found.get("runs", [{}])[0]
        shares = found["auroc"] if "case" in found else {"half": found["auroc"]}
        about = found["case"]["about"] if "case" in found else found["about"]
        half = [pm_of(shares["half"][name], 2) if name in shares["half"] else ""
                for name in ("lr", "mlp")]
        released = [pm_of(shares["released"][name], 2) if "released" in shares else ""
                    for name in ("lr", "mlp")]
        return [about, first.get("epsilon", ""), first.get("steps", ""),
                len(found.get("runs", ())) or "", *half, *released]

    return markdown(("rows made by", "epsilon", "steps", "runs", "LR, half frauds",
                     "MLP, half frauds", "LR, noisy share", "MLP, noisy share"),
                    [row(found) for found in results("credit").values()
                     if "lr" in found["auroc"] or "case" in found])


def _account(method: str, preset: str) -> dict[str, Any]:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        account.command([method, "--preset", preset, "--json"])
    return json.loads(printed.getvalue())


def budget_table() -> str:
    """Returns the steps that a budget allows by the papers' formulas and by the proofs here."""
    def row(method: str, preset: str) -> list[object]:
        found = _account(method, preset)
        return [f"`{method} {preset}`", f"{found['target']['epsilon']:g}",
                f"{found['proven']['sigma']:g}", f"{found['as_published']['steps']} steps",
                f"{found['proven']['steps']} steps"]

    gpate = row("gpate", "mnist-eps1")
    gpate[3] = f"{gpate[3]}, if 55 % of the queries are answered"
    gpate[4] = f"{gpate[4]}, if all are"
    return markdown(("preset", "epsilon", "sigma", "as published (dp-accounting)",
                     "proven here (exact)"), (
        row("datalens", "mnist-eps1"), row("datalens", "mnist-eps10"), gpate))


def claimed_table() -> str:
    """Returns the epsilon that papers claim beside that of a sound count."""
    def cell(value: float | None) -> str:
        return "" if value is None else f"{value:,.2f}" if value < 100 else f"{value:,.0f}"

    def name(row: dict[str, Any]) -> str:
        as_run = ", as its code runs: two gradients, 1,000 fakes from step {:,} on"
        return row["system"] + (as_run.format(row["t_c"]) if "t_c" in row else "")

    return markdown(("system", "data", "critics", "steps", "fakes a step", "sigma",
                     "claimed (classic conversion)", "as published (dp-accounting)",
                     "public rotation", "published draws, if they become known"), (
        (name(row), row["data"], f"{row['critics']:,}", f"{row['steps']:,}", row["batch"],
         f"{row['sigma']:.3g}", cell(row["claimed_classic"]), cell(row["claimed"]),
         cell(row["proven_rotation"]), cell(row.get("proven_draws_revealed")))
        for row in results("claimed")["settings"]))


def conversions_table() -> str:
    """Returns what each paper's accounting gives by either conversion."""
    def cell(value: float) -> str:
        return f"{value:.3f}" if value < 1 else f"{value:,.2f}" if value < 1e4 else f"{value:,.0f}"

    return markdown(("setting", "steps", "the paper's conversion", "dp-accounting", "target",
                     "steps allowed, the paper's", "steps allowed, dp-accounting"), (
        (row["setting"], f"{row['steps']:,}", cell(row["claimed_classic"]), cell(row["claimed"]),
         f"{row['target']:,g}", f"{row['steps_allowed_classic']:,}", f"{row['steps_allowed']:,}")
        for row in results("claimed")["conversions"]))


def baselines_table() -> str:
    """Returns the epsilon of baselines: stated, by their own code, and proven."""
    return markdown(("system", "data", "steps", "sigma", "stated", "by its own code",
                     "proven, with one clip over all weights"), (
        (f"`{row['system']}`, {row['paper']}", row["data"], f"{row['steps']:,}",
         f"{row['sigma']:g}", f"{row['stated']:g}", f"{row['by_its_code']:.2f}",
         f"{row['proven']:.2f}")
        for row in results("claimed")["baselines"]))


def papers_table() -> str:
    """Returns the rounds that the budget of each published setting buys, by three accounts."""
    return markdown(("method", "presets", "epsilon", "delta", "sigma",
                     "steps by the paper's formula", "by dp-accounting", "proven here"), (
        (f"`{row['method']}`", ", ".join(f"`{name}`" for name in row["presets"]),
         f"{row['epsilon']:g}", f"{row['delta']:g}", f"{row['sigma']:g}", f"{row['paper']:,}",
         f"{row['dp_accounting']:,}", f"{row['proven']:,}")
        for row in results("claimed")["papers"]))


def codes_table() -> str:
    """Returns codes that people run: what they claim, what is sound, and what is wrong."""
    def sound(row: dict[str, Any]) -> str:
        if "sound" not in row:
            return f"at least {row['certified_by_others']:g}, certified by {row['how']}"
        return f"{row['sound']:,.3g} ({row['how']})"

    return markdown(("code", "claimed epsilon", "counted soundly", "what is wrong"), (
        (row["code"], f"{row['claimed']:g}", sound(row), row["wrong"])
        for row in results("claimed")["codes"]))


TABLES: dict[str, Callable[..., str]] = {table.__name__: table for table in (
    embedded_table, datalens_table, utility_table, sweep_table, gpate_table,
    critics_table, tables_table, credit_table, budget_table, claimed_table, baselines_table,
    conversions_table, papers_table, codes_table)}
