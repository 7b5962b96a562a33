"""Writes the pages of figures and the README's table from benchmarks/results/*.json.

    python -m benchmarks.results_page            # writes them
    python -m benchmarks.results_page --check    # exit code 1 if a page is not what it would write

So no figure is typed twice: the words stand in docs/*.jinja, the figures in the results, the
tables in `results_tables`.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jinja2

from benchmarks import (
    accelerator,
    audits,
    distances,
    reached,
    results_systems,
    results_tables,
    scenes,
    systems,
    systems_curves,
)
from benchmarks.papers import page as papers
from benchmarks.papers import ran, stale
from benchmarks.results_tables import ROOT, load, pm_of, results
from benchmarks.sweep import jobs
from benchmarks.sweep.published import SWEEPS
from benchmarks.tables import page as comparison

# Each template, and the way from its folder to the root.
TEMPLATES = {"docs/results.md.jinja": "..", "docs/papers.md.jinja": "..",
             "docs/tables.md.jinja": "..",
             "docs/explanation/claimed-and-proven.md.jinja": "../..",
             "docs/explanation/certified.md.jinja": "../.."}
README = ROOT / "README.md"
BEGIN, END = "<!-- written by python -m benchmarks.results_page -->", "<!-- end -->"
SHOWN_IN_README = ("mixture", "dpgan", "dpmerf", "prototypes-gradients", "prototypes-votes",
                   "prototypes-signs", "dpcgan", "datalens", "gswgan", "dpac", "gpate", "pategan")


def accuracy(stem: str, task: str = "gen2real", classifier: str = "cnn") -> dict[str, Any]:
    """Returns mean, std and values of a classifier's accuracy over its seeds."""
    return results(stem)["evaluation"][task][classifier]["accuracy"]


def embedded_row(stem: str, method: str) -> dict[str, Any]:
    """Returns what one method reached on glyphs."""
    return next(row for row in results(stem)["rows"] if row["method"] == method)


def system(method: str, dataset: str, epsilon: float | str) -> str:
    """Returns the accuracy of a CNN trained on what one system made."""
    row = results_systems.system_row(method, dataset, epsilon)
    return f"{row['gen2real']['cnn']['accuracy']['mean']:.3f}"


def opacus_ratio(network: str) -> float:
    """Returns the time of Opacus's clipped gradients over that of its plain ones."""
    seconds = results("gradients")["opacus"][network]
    return seconds["records"]["median"] / seconds["plain"]["median"]


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
        job = jobs.job(SWEEPS[sweep], cell)
        steps[cell.label] = 0 if jobs.refusal(job) else job.planned().steps
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
        "sweeps": results_tables.sweep_files(),
        "sweep_title": results_tables.sweep_title,
        "sweep_command": results_tables.sweep_command, "planned_steps": planned_steps,
        "systems_table": results_systems.systems_table, "system": system,
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
        "ran": ran, "stale": stale,
        "comparison": comparison, "audits": audits,
        "curves_table": systems_curves.curves_table,
        "accelerator": accelerator, "cifar": systems.FACTS["cifar"], "scenes": tuple(scenes.SETS),
        "quarter": {row["row"]: row for row in results("accelerator-two-devices")["rows"]},
        **results_tables.TABLES, **distances.TABLES}


def page(template: str) -> str:
    """Returns the text of a page. A name that no file holds is an error."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    text = (ROOT / template).read_text(encoding="utf-8")
    return environment.from_string(text).render(figures(TEMPLATES[template]))


def readme() -> str:
    """Returns the README with its one table of results renewed."""
    before, begin, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"README.md has no lines {BEGIN} and {END} around its table")
    return f"{before}{begin}\n{results_systems.systems_table(SHOWN_IN_README)}\n{end}{after}"


def pages() -> Iterable[tuple[Path, Callable[[], str]]]:
    """Yields each file that this script writes, with what makes its text."""
    for template in TEMPLATES:
        yield ROOT / template.removesuffix(".jinja"), functools.partial(page, template)
    yield README, readme
    yield reached.PATH, reached.text


def main() -> None:
    """Writes the pages, or names those that differ."""
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
