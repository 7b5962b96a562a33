"""The tables of docs/tables.md, in Markdown, from benchmarks/results/tables/*.json."""

import functools
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks import common
from benchmarks.common import markdown
from benchmarks.tables.cells import CLASSIFIERS
from benchmarks.tables.methods import OURS as OF_THIS_LIBRARY
from benchmarks.tables.methods import PEERS, UNTRIED

FOLDER = common.RESULTS / "tables"
OURS = "marginals"
SHOWN = dict(zip((*CLASSIFIERS, "pairs"), ("LR", "RF", "GB", "pairs"), strict=True))
LATER = {"f1": "F1", "queries": "queries"}
ALL = (*SHOWN, *LATER)
DISTANCES = ("pairs", "queries")
"""Scores of which less is better."""
Results = dict[str, Any]
SIGNALLED = "ended with exit code -24"
"""A run that its limit stopped, as records of an earlier version say (SIGXCPU of Linux)."""


@functools.cache
def cells() -> tuple[Results, ...]:
    """Return the results of all cells, each with `stem`, the name of its file."""
    return tuple(common.results(f"tables/{path.stem}") | {"stem": path.stem}
                 for path in sorted(FOLDER.glob("*.json")) if not path.stem.startswith("scale-"))


def epsilons() -> list[float]:
    """Return the epsilons that were measured."""
    return sorted({cell["epsilon"] for cell in cells() if "epsilon" in cell})


def of(table: str, epsilon: float) -> list[Results]:
    """Return the cells of a table that have scores, the real rows first, then by mean AUROC."""
    chosen = [cell for cell in cells() if cell["table"] == table and cell["scores"]
              and cell.get("epsilon", epsilon) == epsilon]
    return sorted(chosen, key=lambda cell: ("epsilon" in cell, -mean_auroc(cell)))


def mean_auroc(cell: Results) -> float:
    """Return the mean AUROC of the classifiers and runs."""
    return sum(cell["scores"][name]["mean"] for name in CLASSIFIERS) / len(
        CLASSIFIERS)


def tables() -> list[str]:
    """Return the tables that were measured, those with more rows first."""
    rows = {cell["table"]: cell["rows"] for cell in cells()}
    return sorted(rows, key=lambda table: -rows[table])


def relation(cell: Results) -> str:
    """Return the neighbouring relation that the epsilon of a cell is for."""
    if "relation" in cell:
        return str(cell["relation"])
    proven = [run["privacy"]["relation"] for run in cell["runs"] if "privacy" in run]
    return proven[0] if proven else ""


def with_range(score: Results, digits: int) -> str:
    """Return the mean over runs, and the lowest and the highest of them."""
    text = f"{score['mean']:.{digits}f}"
    if len(score["values"]) == 1:
        return text
    return f"{text} ({min(score['values']):.{digits}f} to {max(score['values']):.{digits}f})"


def table(name: str, epsilon: float, up: str) -> str:
    def row(cell: Results) -> list[object]:
        seconds = [run["cpu_seconds"] for run in cell["runs"] if "cpu_seconds" in run]
        link = f"[{cell['method']}]({up}/benchmarks/results/tables/{cell['stem']}.json)"
        return [link, *(with_range(cell["scores"][key], 3 if key == "pairs" else 2)
                        for key in SHOWN), *(later(cell, key) for key in LATER),
                len(cell["scores"]["pairs"]["values"]),
                f"{sum(seconds) / len(seconds):.0f}" if seconds else "", relation(cell),
                cell.get("reads", "")]

    head = ("method", *SHOWN.values(), *LATER.values(), "runs", "CPU s", "epsilon is for",
            "not paid for")
    return markdown(head, map(row, of(name, epsilon)))


def later(cell: Results, key: str) -> str:
    """Return the mean of a score that early runs lack, and over how many runs it is."""
    score = cell["scores"].get(key)
    return f"{score['mean']:.3f} ({len(score['values'])})" if score else ""


def about(name: str) -> str:
    """Return what a table is, in words."""
    cell = next(cell for cell in cells() if cell["table"] == name)
    return (f"{cell['about']}: {cell['rows']:,} training rows, {cell['test_rows']:,} test rows, "
            f"{cell['columns']} columns and the label, {cell['classes']} classes")


def failures() -> str:
    reasons: dict[tuple[str, str], list[str]] = {}
    for cell in cells():
        for run in cell["runs"]:
            if "error" in run:
                where = f"{cell['table']} at epsilon {cell['epsilon']:g}"
                reason = run["error"].replace(SIGNALLED, "stopped at its limit of CPU seconds")
                reasons.setdefault((cell["method"], reason), []).append(where)
    every = len(tables())
    lines = [(f"`{method}`", "all" if len(where) >= every else ", ".join(where), reason)
             for (method, reason), where in sorted(reasons.items())]
    return markdown(("method", "tables", "reason"),
                    [*lines, *((name, "all", why) for name, why in UNTRIED.items())])


def behind(epsilon: float) -> str:
    """Return where `marginals` is not ahead: measures in which another method's mean is better."""
    rows: list[Sequence[object]] = []
    measured = []
    for name in tables():
        chosen = {cell["method"]: cell for cell in of(name, epsilon) if "epsilon" in cell}
        ours = chosen.pop(OURS, None)
        if ours is None or not chosen:
            continue
        measured.append(name)
        rows += [(name, shown, *line) for key, shown in (SHOWN | LATER).items()
                 if key in ours["scores"] and (line := _behind(key, ours, chosen.values()))]
    if not measured:
        return f"`{OURS}` and another method are not measured on one table at this epsilon yet."
    head = ("table", "measure", OURS, "the best other", "which", "its epsilon is for", "runs apart")
    where = f"Measured on {', '.join(measured)}, {len(SHOWN | LATER)} measures each."
    return f"{where}\n\n{markdown(head, rows)}" if rows else f"{where} There is none."


def _behind(key: str, ours: Results, others: Iterable[Results]) -> tuple[str, ...]:
    """Return the cells of a row of `behind`, or nothing where no other is better."""
    ahead = [other for other in others if key in other["scores"] and better(key, other, ours)]
    if not ahead:
        return ()
    best = (min if key in DISTANCES else max)(ahead, key=lambda cell: cell["scores"][key]["mean"])
    means = (f"{cell['scores'][key]['mean']:.3f}" for cell in (ours, best))
    return *means, best["method"], relation(best), apart(key, best, ours)


def better(key: str, one: Results, other: Results) -> bool:
    """Return whether the mean of one cell is better than another's, to the digits shown."""
    a, b = (round(cell["scores"][key]["mean"], 3) for cell in (one, other))
    return a < b if key in DISTANCES else a > b


def apart(key: str, one: Results, other: Results) -> str:
    """Return whether all runs of one cell are better than all runs of another."""
    a, b = (cell["scores"][key]["values"] for cell in (one, other))
    if len(a) == 1 or len(b) == 1:
        return "single runs"
    return "yes" if (max(a) < min(b) if key in DISTANCES else min(a) > max(b)) else "no"


def overview(epsilon: float) -> str:
    """Return the mean AUROC over the three classifiers, methods against tables."""
    chosen = {(cell["method"], cell["table"]): cell for name in tables()
              for cell in of(name, epsilon)}
    names = dict.fromkeys(method for method, _ in chosen)
    none = [f"`{name}`" for name in (*OF_THIS_LIBRARY, *PEERS) if name not in names]

    def rank(method: str) -> tuple[bool, float]:
        values = [mean_auroc(chosen[method, name]) for name in tables() if (method, name) in chosen]
        return method != "real", -sum(values) / (len(values) or 1)

    lines = markdown(("method", *tables()), (
        (f"`{method}`", *(f"{mean_auroc(chosen[method, name]):.2f}" if (method, name) in chosen
                          else "" for name in tables())) for method in sorted(names, key=rank)))
    return f"{lines}\n\nNot run at this epsilon: {', '.join(none)}." if none else lines


def runs_made() -> str:
    """Return how many runs a cell has: the fewest and the most."""
    made = [len(cell["scores"]["pairs"]["values"]) for cell in cells() if cell["scores"]]
    return f"{min(made)}" if min(made) == max(made) else f"{min(made)} to {max(made)}"


def mean_of(runs: Sequence[dict[str, float]], *keys: str) -> float:
    """Return the mean of scores over runs, of the AUROC of all classifiers if none is named."""
    return statistics.fmean(statistics.fmean(run[key] for run in runs)
                            for key in keys or CLASSIFIERS)


def setting(runs: Sequence[dict[str, float]] | None) -> str:
    """Return what a setting came to, or nothing where it was not run."""
    return f"{mean_of(runs):.3f}, pairs {mean_of(runs, 'pairs'):.3f}" if runs else ""


def heading(*cells: str) -> str:
    return markdown(cells, ())


def scale(up: str) -> str:
    """Return the time and memory that a million rows take, or nothing if that is not measured."""
    def row(stem: str, cell: Results) -> list[object]:
        made = [run for run in cell["runs"] if "cpu_seconds" in run]
        link = f"[{cell['method']}]({up}/benchmarks/results/tables/{stem}.json)"
        if not made:
            return [link, "", "", "", cell["runs"][0]["error"]]
        return [link, *(f"{sum(run[key] for run in made) / len(made):.0f}"
                        for key in ("cpu_seconds", "wall_seconds")),
                f"{max(run['peak_bytes'] for run in made) / 1e9:.1f}", ""]

    found = {path.stem: common.results(f"tables/{path.stem}")
             for path in sorted(FOLDER.glob("scale-*.json"))}
    return "" if not found else markdown(
        ("method", "CPU s", "wall s", "GB", "why not"),
        (row(*item) for item in found.items() if item[1]["method"] != "real"))
