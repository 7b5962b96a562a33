"""Writes the pages of figures and the README's tables from benchmarks/results/*.json.

    python -m benchmarks.results_page            # writes them
    python -m benchmarks.results_page --check    # exit code 1 if a page is not what it would write

So no figure is typed twice: the words stand in docs/*.jinja, the figures in the results.
"""

import argparse
import contextlib
import functools
import io
import json
import math
import re
import statistics
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jinja2

from benchmarks import accelerator, audits, scenes, summary, systems
from benchmarks.common import DATA_NAMES, ROOT, load, markdown, pm_of, results
from benchmarks.papers import page as papers
from benchmarks.papers import registry, rows
from benchmarks.sweep import cells
from benchmarks.sweep.published import SWEEPS
from benchmarks.systems import shown_name, system_row, system_rows
from benchmarks.tables import page as comparison
from benchmarks.tables.cells import CLASSIFIERS
from dpgen_jax import account, methods

# The tables, in Markdown.

def sweep_files() -> list[str]:
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


TABLES: dict[str, Callable[..., str]] = {table.__name__: table for table in (
    sweep_table, budget_table)}


# How far the systems on images are from what is published.

CELLS = tuple((data, epsilon) for data in systems.DATA for epsilon in systems.EPSILONS)
PUBLISHED: dict[str, tuple[float, ...]] = {
    "FETA-Pro": (0.971, 0.986, 0.823, 0.883),
    "DP-FETA": (0.956, 0.981, 0.817, 0.873),
    "DP-Kernel": (0.940, 0.936, 0.684, 0.700),
    "DP-GAN": (0.924, 0.927, 0.718, 0.703),
    "DPDM": (0.892, 0.977, 0.764, 0.856),
    "DPDM, by its authors": (0.953, 0.981, 0.794, 0.862),
    "DP-MERF": (0.803, 0.813, 0.622, 0.622),
    "GS-WGAN": (0.724, 0.753, 0.527, 0.567)}
"""Accuracies without public data, in the order of `CELLS`. The page names their sources."""

AIMS = (0.975, 0.985, 0.82, 0.875)
"""Accuracies that `mixture` was to reach in full under zero-out, in the order of `CELLS`."""

IMAGES = {("datalens", "mnist", 1.0): "images-mnist-mnist-eps1-mean",
          ("datalens", "mnist", 10.0): "images-mnist-mnist-eps10-mean",
          ("gpate", "mnist", 1.0): "gpate-mnist-mnist-eps1-topk",
          ("gpate", "fashion", 1.0): "gpate-fashion_mnist-fashion-eps1-full",
          ("gswgan", "mnist", 10.0): "gswgan-mnist-50000-mnist-eps10-long",
          ("gswgan", "fashion", 10.0): "gswgan-fashion_mnist-fashion-eps10-long",
          ("dpac", "mnist", 10.0): "dpac-mnist-mnist-eps10-long",
          ("dpac", "fashion", 10.0): "dpac-fashion_mnist-fashion-eps10-long"}
"""Results of `benchmarks.images`, of the best of presets that were compared."""
_OF_TEACHERS = {"datalens": "datalens:table1:{data}-eps{epsilon:g}",
                "gpate": "gpate:table1c:{data}-eps{epsilon:g}",
                "pategan": "gpate:table1c:{data}-eps{epsilon:g}-pategan"}
_ANSWERS = {"datalens": "signs", "gpate": "gradients", "pategan": "votes"}
ROWS = {**_OF_TEACHERS, **{f"prototypes-{_ANSWERS[method]}": row
                           for method, row in _OF_TEACHERS.items()},
        "gswgan": "gswgan:table1:{data}", "dpac": "dpac:table2:{data}"}
"""Each system's row of its paper, PATE-GAN's of G-PATE's, and of prototypes that of the paper whose
answers they have; of the last two there is one for each
data set, at epsilon 10."""
CNN = "gen2real.cnn.accuracy"


def _head(*before: str) -> tuple[str, ...]:
    return (*before, *(f"{DATA_NAMES[data]}, epsilon {epsilon:g}" for data, epsilon in CELLS))


def distance_table() -> str:
    """Returns the best of each column, our aims and how far `mixture` is from the best."""
    best = [max(scores) for scores in zip(*PUBLISHED.values(), strict=True)]
    lines = [["best published", *(f"{score:.3f}" for score in best)],
             ["aim: full, zero-out", *(f"{score:.3f}" for score in AIMS)]]
    for full, setting in ((True, "full"), (False, "fast")):
        for relation in ("zero-out", systems.REPLACE_ONE):
            rows = {(row["dataset"], row["epsilon"]): row for row in system_rows(
                full=full, relation=relation) if row["method"] == "mixture"}
            lines.append([f"{setting}, {relation}", *(
                _difference(_cnn(rows[cell]), above) if cell in rows else ""
                for cell, above in zip(CELLS, best, strict=True))])
    return markdown(_head("evaluation, relation"), lines)


def _cnn(row: dict[str, Any]) -> float:
    return row["gen2real"]["cnn"]["accuracy"]["mean"]


def _difference(ours: float, theirs: float) -> str:
    return f"{ours:.3f} ({ours - theirs:+.3f})"


def lost_within() -> str:
    """Returns the least and the largest share of the gap that lies in the released directions."""
    each = [row["accuracy"] for row in results("headroom")["rows"]]
    shares = [(row["directions"] - row["mixture"]) / (row["records"] - row["mixture"])
              for row in each]
    return f"{min(shares):.0%} to {max(shares):.0%}"


def own_papers_table() -> str:
    yardstick = {(row["dataset"], row["epsilon"]): row["accuracy"]["mean"]
                 for row in results("nearest_mean")["rows"]}
    lines = [["ten noisy class means", *(f"{yardstick[cell]:.3f}" for cell in CELLS)]]
    for method, template in ROWS.items():
        cells = []
        for data, epsilon in CELLS:
            row = template.format(data=data, epsilon=epsilon)
            ours, fewer = _ours(method, data, epsilon)
            printed = epsilon == 10 or "eps" in template
            cells.append((_difference(ours, float(registry.ROWS[row].paper[CNN])) if printed
                          else f"{ours:.3f}") + "\\*" * fewer)
        name = registry.TITLES.get(method, "PATE-GAN")
        lines.append([shown_name(method) if "-" in method else name, *cells])
    return markdown(_head("system"), lines)


def _ours(method: str, data: str, epsilon: float) -> tuple[float, bool]:
    """The accuracy of a CNN by the best preset that was run, and whether in fewer steps."""
    row = system_row(method, data, epsilon)
    found = [(_cnn(row), row["steps"] < (row["preset_steps"] or 0))]
    if stem := IMAGES.get((method, data, epsilon)):
        found.append((_cnn(results(stem)["evaluation"]), False))
    return max(found)


DISTANCES: dict[str, Callable[[], str]] = {table.__name__: table for table in (
    distance_table, lost_within, own_papers_table)}


# The scores of methods on public data, by the results files, for `train --dry-run` to quote.

N_IMAGES = {"mnist": 60_000, "fashion": 60_000}
"""Training records of data sets of images, all of 28 x 28 x 1."""
REACHED = ROOT / "dpgen_jax" / "presets" / "reached.json"


def reached() -> str:
    """Returns the file, a line for each row: what a method reached, on what, in what time."""
    return "[\n" + ",\n".join(f" {json.dumps(row)}" for row in (
        *_reached_images(), *_reached_tables())) + "\n]\n"


def _reached_images() -> list[dict[str, Any]]:
    return [{"method": row["method"].removesuffix("-gradients"), "kind": "images",
             "data": f"{row['dataset']} ({N_IMAGES[row['dataset']]:,} images of 28 x 28 x 1)",
             "records": N_IMAGES[row["dataset"]], "flags": _fewer(row),
             "epsilon": float(row["epsilon"]), "measure": "accuracy of a CNN",
             "score": round(row["gen2real"]["cnn"]["accuracy"]["mean"], 3),
             "seconds": math.ceil(row["training_seconds"]), "file": row["file"]}
            for row in system_rows() if math.isfinite(float(row["epsilon"]))
            and row["method"].removesuffix("-gradients") in methods.NAMES]


def _fewer(row: dict[str, Any]) -> str:
    return f"--steps {row['steps']}" * (row["steps"] < (row["preset_steps"] or 0))


def _reached_tables() -> list[dict[str, Any]]:
    """Rows of this library's methods; a measure that a table does not have is left out."""
    rows = []
    for path in sorted((ROOT / "benchmarks/results/tables").glob("*-eps*.json")):
        cell = json.loads(path.read_text())["results"]
        scores = [cell.get("scores", {}).get(name, {}).get("mean") for name in CLASSIFIERS]
        if cell.get("method") in methods.NAMES and None not in scores:
            seconds = statistics.median(run["wall_seconds"] for run in cell["runs"])
            rows.append({"method": cell["method"], "kind": "table",
                         "data": f"{cell['table']} ({cell['rows']:,} rows)",
                         "records": cell["rows"], "flags": " ".join(cell["flags"]),
                         "epsilon": float(cell["epsilon"]), "measure": "mean AUROC of classifiers",
                         "score": round(math.fsum(scores) / len(scores), 3),
                         "seconds": math.ceil(seconds), "file": f"tables/{path.name}"})
    return rows


TEMPLATES = {str(path.relative_to(ROOT)): "/".join([".."] * (len(path.relative_to(ROOT).parts) - 1))
             for path in sorted((ROOT / "docs").rglob("*.md.jinja"))}
"""The templates of pages, with the way from their folder to the root."""
README = ROOT / "README.md"
BEGIN, END = "<!-- written by python -m benchmarks.results_page -->", "<!-- end -->"
README_TABLES = (summary.twin_table, summary.choice_table)
"""The tables between the marks of the README, in their order."""


def accuracy(stem: str, task: str = "gen2real", classifier: str = "cnn") -> dict[str, Any]:
    """Returns mean, std and values of a classifier's accuracy over its seeds."""
    return results(stem)["evaluation"][task][classifier]["accuracy"]


def embedded_row(stem: str, method: str) -> dict[str, Any]:
    """Returns what one method reached on glyphs."""
    return next(row for row in results(stem)["rows"] if row["method"] == method)


def system(method: str, dataset: str, epsilon: float | str) -> str:
    """Returns the accuracy of a CNN trained on what one system made."""
    row = systems.system_row(method, dataset, epsilon)
    return f"{row['gen2real']['cnn']['accuracy']['mean']:.3f}"


def opacus_ratio(network: str) -> float:
    """Returns the time of Opacus's clipped gradients over that of its plain ones."""
    seconds = results("gradients")["opacus"][network]
    return seconds["records"]["median"] / seconds["plain"]["median"]


def spread(stem: str, label: str) -> str:
    """Returns the accuracy of a CNN for a row of a sweep, with its deviation."""
    score = next(row for row in results(stem)["rows"] if row["label"] == label)["metrics"][CNN]
    return f"{score['mean']:.3f} ± {score['std']:.3f}"


def brief(value: float, small: float = 100) -> str:
    """Returns a number with two digits below `small`, and three below 1 of large limits."""
    if value < 1 and small > 100:
        return f"{value:.3f}"
    return f"{value:,.2f}" if value < small else f"{value:,.0f}"


def swept(stem: str, label: str, metric: str = "gen2real.cnn.accuracy") -> str:
    """Returns a metric, of a CNN if none is named, in one row of a sweep."""
    row = next(row for row in results(stem)["rows"] if row["label"] == label)
    return f"{row['metrics'][metric]['mean']:.3f}"


def both(stem: str, label: str) -> str:
    """Return the accuracies of a CNN and an MLP for a row of a sweep, as `CNN / MLP`."""
    return " / ".join(swept(stem, label, f"gen2real.{name}.accuracy") for name in ("cnn", "mlp"))


def answered(stem: str) -> str:
    """Returns how many of 100 queries Confident-GNMax answered: its second event for its first."""
    queries, answers = results(stem)["privacy"]["events"]
    return f"{100 * answers['count'] / queries['count']:.0f}"


def table_aurocs() -> list[float]:
    """Returns the AUROC of every run and classifier on the credit card sample."""
    return [value for stem in ("tables-train-credit-sample", "tables-train-table")
            for scores in results(stem)["evaluation"]["gen2real"].values()
            for value in scores["auroc"]["values"]]


def variation(stem: str) -> dict[str, Any]:
    """Returns the mean total variation distance of single columns from held-out rows."""
    return results(stem)["evaluation"]["fidelity"]["one_way_tvd"]


def planned_steps(sweep: str) -> dict[str, int]:
    """Returns the steps that the budget allows each cell of a published sweep; 0 for none."""
    steps = {}
    for cell in SWEEPS[sweep].cells:
        job = cells.job(SWEEPS[sweep], cell)
        steps[cell.label] = 0 if cells.refusal(job) else job.planned().steps
    return steps


def span(stem: str) -> str:
    """Returns the shortest and the longest training of a file, in seconds."""
    seconds = results(stem)["training_seconds"]
    return f"{min(seconds):.0f} to {max(seconds):.0f}"


def debugging_task() -> dict[str, Any]:
    """Returns the record of both federations, with the run of each by its name.

    The record of an earlier version of the benchmark has them by name itself.
    """
    record = results("federated-mnist")
    runs = {run["federation"]: run for run in record.get("runs", ())}
    sizes = {"bytes_of_a_step": runs["sound"]["bytes_of_a_step"]} if runs else {}
    return record | runs | sizes


def deeper(text: str) -> str:
    """Returns Markdown of a page in docs/ for a page in a folder there: its links lead from it."""
    return re.sub(r"\]\((?![a-z]+:|#)", "](../", text)


def figures(up: str) -> dict[str, Any]:
    """Returns everything that a template may name; `up` leads from its folder to the root."""
    def link(stem: str) -> str:
        return f"{up}/benchmarks/results/{stem}.json"

    evaluations = {name: results(f"evaluation-mnist-{name}") for name in ("full", "fast")}
    gradients = results("gradients")
    steps_file = results("steps")
    return {
        "results": results, "link": link, "source": lambda stem: f"[{stem}.json]({link(stem)})",
        "seeds": lambda stem: len(load(stem)["seeds"]), "words": {1: "one", 2: "two",
                                                                3: "three"}.get,
        "acc": lambda *which: f"{accuracy(*which)['mean']:.3f}",
        "pm": lambda *which: pm_of(accuracy(*which)), "pm_of": pm_of,
        "steps": lambda stem: results(stem)["privacy"]["steps"],
        "answered": answered, "load": load, "swept": swept, "both": both,
        "sweeps": sweep_files(),
        "sweep_title": sweep_title,
        "sweep_command": sweep_command, "planned_steps": planned_steps,
        "systems_table": systems.systems_table, "system": system,
        "embedded_row": embedded_row, "opacus_ratio": opacus_ratio,
        "lowest_auroc": lambda: f"{min(table_aurocs()):.2f}",
        "highest_auroc": lambda: f"{max(table_aurocs()):.2f}", "span": span,
        "tvd": lambda stem: f"{variation(stem)['mean']:.2f}",
        "tvd_floor": lambda stem: f"{variation(stem)['floor']:.2f}",
        "gigabytes": lambda count: f"{count / 1e9:.1f}",
        **evaluations, "fidelity": evaluations["full"]["metrics"]["fidelity"],
        "membership": evaluations["full"]["metrics"]["membership"],
        "fashion_judge": results("evaluation-fashion_mnist-full-fidelity")["metrics"]["fidelity"][
            "judge"],
        "federated": debugging_task(), "federated_cost": {
            (row["method"], row["noise"]): row for row in results("federated_cost")["rows"]},
        "fuzz": results("fuzz"), "credit": results("credit"),
        "kills": results("kills"), "steps_file": steps_file,
        "step_on": {case["devices"]: case for case in steps_file["cases"]
                    if case["teachers"] == 4000},
        "large": results("large_table"), "images": results("large_images"),
        "many_columns": results("wide_table")["cases"][0],
        "hosts": results("hosts"),
        "between": {row["method"]: row for row in results("between_blocks")["rows"]},
        "convolutions": results("convolutions"),
        "places": {case["place"]: case for case in sorted(
            results("state_places")["cases"], key=lambda case: -case["seconds_per_teacher"])},
        "slower_places": {case["place"]: case["seconds_per_teacher"] for case in sorted(
            results("state_places")["cases"], key=lambda case: case["seconds_per_teacher"])},
        "large_state": results("state_places-8000")["cases"][0],
        "narrow": results("critics-8"), "wide": results("critics-64"),
        "conv": gradients["conv-16-32"], "conv_wide": gradients["conv-32-64"],
        "mlp": gradients["mlp-128"], "opacus": gradients["opacus"],
        "aggregation": results("aggregation"),
        "pate": results("pate_accounting")["composition"][-1], "papers": papers,
        "comparison": comparison, "audits": audits, "summary": summary,
        "curves_table": systems.curves_table,
        "accelerator": accelerator, "cifar": systems.FACTS["cifar"], "scenes": tuple(scenes.SETS),
        "quarter": {row["row"]: row for row in results("accelerator-two-devices")["rows"]},
        "embedded": {row["method"]: row for stem in ("", "-changed", "-prototypes")
                     for row in results(f"embedded-glyphs{stem}")["rows"]}.values(),
        "head": lambda *before: markdown(_head(*before), ()), "columns": CELLS,
        "published": PUBLISHED, "rows_of_papers": registry.ROWS,
        "data_name": lambda name: DATA_NAMES.get(name, name), "spread": spread, "brief": brief,
        "shown_name": shown_name, "deeper": deeper,
        **TABLES, **DISTANCES}


def page(template: str) -> str:
    """Returns the text of a page. A name that no file holds is an error."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    text = (ROOT / template).read_text(encoding="utf-8")
    with rows.remembered():
        return environment.from_string(text).render(figures(TEMPLATES[template]))


def readme() -> str:
    """Returns the README with its tables renewed."""
    before, *blocks = README.read_text(encoding="utf-8").split(BEGIN)
    if len(blocks) != len(README_TABLES) or not all(END in block for block in blocks):
        raise SystemExit(f"README.md has other than {len(README_TABLES)} pairs of lines {BEGIN} "
                         f"and {END}")
    return before + "".join(f"{BEGIN}\n{table()}\n{END}{block.partition(END)[2]}"
                            for table, block in zip(README_TABLES, blocks, strict=True))


def pages() -> Iterable[tuple[Path, Callable[[], str]]]:
    """Yields each file that this script writes, with what makes its text."""
    for template in TEMPLATES:
        yield ROOT / template.removesuffix(".jinja"), functools.partial(page, template)
    yield README, readme
    yield REACHED, reached


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; compare")
    check = parser.parse_args().check
    differ = [path for path, text in pages() if path.read_text(encoding="utf-8") != text()]
    for path, text in () if check else pages():
        if path in differ:
            path.write_text(text(), encoding="utf-8")
    for path in differ:
        print(f"{path.relative_to(ROOT)} {'differs' if check else 'written'}")
    sys.exit(1 if check and differ else 0)


if __name__ == "__main__":
    main()
