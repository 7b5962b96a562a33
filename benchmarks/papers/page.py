"""The tables of docs/papers.md, in Markdown: the papers, others who ran them, and this library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks.papers import needs, quoted
from benchmarks.papers.chosen import preset_of
from benchmarks.papers.registry import ROWS, TITLES
from benchmarks.papers.rows import VARIANTS, Command, Nothing, Row, Training
from benchmarks.papers.trainings import CNN, FID, MLP, SCORE
from benchmarks.sweep.published import SWEEPS
from dpgen_jax import presets
from dpgen_jax.evaluation import utility

OURS = {f"as_systems.{CNN}": "CNN", f"as_systems.{MLP}": "MLP"}
"""The protocol of `benchmarks.systems`: fewer images, and a shorter schedule."""
VOTES = {"votes.most agreed bin": "votes in the first bin", "votes.second": "in the second",
         "votes.answered": "answered queries", "votes.mean lead of an entry": "mean lead",
         "votes.entries that pass without noise": "entries that pass without noise"}
APART = {"IS": {SCORE: ""}, "in our protocol": OURS, "teachers": VOTES}
"""Columns of some metrics alone, and what these are called there."""
SHORT = {CNN: "CNN", "gen2real_cnn.accuracy": "CNN", MLP: "MLP", SCORE: "IS", FID: "FID", **VOTES,
         **{metric: f"{name} in our protocol" for metric, name in OURS.items()},
         "real2gen.mlp.accuracy": "real2gen MLP", "real2gen.cnn.accuracy": "real2gen CNN",
         "average.gen2real.accuracy": "average",
         "average.gen2real.calibrated_accuracy": "calibrated",
         "claimed": "as published (dp-accounting)",
         "claimed_classic": "claimed (classic conversion)",
         "proven_rotation": "proven, public rotation",
         "proven_rotation_as_the_paper_says": "with one gradient of 32 fakes, as the paper says",
         "proven_draws_revealed": "proven, published draws if they become known",
         "cost.as_published.epsilon": "epsilon as published",
         "cost.as_published.epsilon_classic": "by the classic conversion",
         "cost.epsilon_of_ideal_noise": "proven, of ideal noise",
         "bytes_of_a_step.to_a_client": "bytes to a client",
         "bytes_of_a_step.from_a_client": "from a client"}
ALWAYS = (CNN, *OURS, SCORE, *VOTES)
"""Metrics that are shown of every training that has them."""
PICTURES = ("figure2", "figure3", "figure4", "figure5", "figureA1", "figureA2")
"""Figures of which a picture is written beside the results."""
HEAD = ("row", "paper", "others", "here", *APART, "epsilon", "steps", "memory", "hours", "results",
        "note")


def short(metric: str) -> str:
    """Return what a table calls a metric."""
    cell, _, name = metric.rpartition(": ")
    plain = SHORT.get(name) or name.replace("gen2real.", "").replace(".accuracy", "")
    return f"{cell}: {plain}" if cell else plain


def cell_text(values: dict[str, str]) -> str:
    """Return metrics and values as one cell of a table."""
    return "; ".join(f"{short(metric)} {value}" for metric, value in values.items())


def leaf(record: dict[str, Any], metric: str) -> str | None:
    """Return the value at a path of results, with its spread over seeds, or None."""
    value: Any = record.get("evaluation", {}) | record
    for word in metric.split("."):
        value = value.get(word) if isinstance(value, dict) else None
    if isinstance(value, dict) and "mean" in value:
        spread = f" ± {value['std']:.3f}" if len(value.get("values", ())) > 1 else ""
        real = f" (real {value['floor']:.3f})" if metric in (SCORE, FID) and (
            value.get("floor") is not None) else ""
        return f"{value['mean']:.3f}{spread}{real}"
    if isinstance(value, dict) and "median" in value:
        value = value["median"]
    if not isinstance(value, int | float):
        return None
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def swept(record: dict[str, Any]) -> dict[str, str]:
    """Return the values of a sweep's cells, under the names of `sweeps.printed`."""
    cells = {}
    for entry in record["rows"]:
        if "error" in entry:
            cells[entry["label"]] = "not affordable"
        for metric, score in entry.get("metrics", {}).items():
            cells[": ".join(filter(None, (entry["label"], metric)))] = f"{score['mean']:.3f}"
    return cells


def unswept(row: Row) -> list[str]:
    """Return the cells of a published sweep that its results do not have; none of another row."""
    record, argv = row.results(), getattr(row.work, "argv", ())
    sweep = SWEEPS.get(argv[0]) if argv else None
    if sweep is None or record is None:
        return []
    done = {entry["label"] for entry in record["rows"]}
    return [cell.label for cell in sweep.cells if cell.label not in done]


def norms(record: dict[str, Any]) -> dict[str, str]:
    """Return what a study of gradient norms found in the last step of each of its systems."""
    found = {}
    for title, variant in record["variants"].items():
        last, clip = variant["rows"][-1], variant["settings"]["clip"]
        median = last["quantiles"]["0.5"]
        found[f"{title}:"] = (f"median {median:.2f}, {min(median, clip):.2f} behind a clip of "
                              f"{clip:g}, {100 * last['share_above_clip']:.3g} % above it")
    return found


def here(row: Row) -> dict[str, str]:
    """Return what was measured of a row, by metric; nothing where nothing was.

    The papers' averages are over all classifiers: one over fewer is not shown beside them.
    """
    record = row.results()
    if record is None:
        return {}
    if isinstance(row.work, Command) and row.work.module == "sweep":
        return swept(record)
    if isinstance(row.work, Command) and row.work.module == "norms":
        return norms(record)
    wanted = dict.fromkeys((*row.paper, *row.also, *ALWAYS))
    by_all = record.get("evaluation", {}).get("gen2real", {}).keys() >= {*utility.ALL_CLASSIFIERS}
    values = {metric: leaf(record, metric) for metric in wanted
              if by_all or not metric.startswith("average.")}
    return {metric: value for metric, value in values.items() if value is not None}


def missing(row: Row) -> list[str]:
    """Return the metrics that the paper prints and the results of a row do not have.

    Of a sweep also its own cells that are not there yet, each once.
    """
    values, cells = here(row), unswept(row)  # of a cell that is not affordable, its label alone
    return cells + [short(metric) for metric in row.paper
                    if not {metric, metric.partition(": ")[0]} & {*values, *cells}]


def others(row: Row) -> str:
    """Return what others report of a row's system."""
    if not isinstance(row.work, Training) or not row.work.known():
        return ""
    work, epsilon = row.work, row.work.epsilon
    epsilon = presets.get(work.method, work.preset)[1].epsilon if epsilon is None else epsilon
    by_source: dict[str, list[str]] = {}
    for metric in row.paper:
        for quote in quoted.of(work.method, work.data, epsilon, metric):
            by_source.setdefault(quote.source, []).append(f"{short(quote.metric)} {quote.value}")
    return "; ".join(f"{', '.join(found)} ({source})" for source, found in by_source.items())


def spent(row: Row) -> tuple[str, str, str]:
    """Return epsilon, as proven or why it is not, steps, and hours, with the device if no CPU."""
    record = row.results()
    privacy = (record or {}).get("privacy")
    if not record or not privacy or "training_seconds" not in record:
        return "", "", f"~{row.hours:g}" if row.hours and record is None else ""
    epsilon = privacy["epsilon"]
    published = (privacy.get("as_published") or {}).get("epsilon")
    text = f"{epsilon:g}" if isinstance(epsilon, int | float) else f"{epsilon} (no guarantee)"
    if published:
        text += f", as published {published:g}"
    steps = f"{privacy['steps']:,}"
    if record.get("stopped"):
        steps += " (stopped)"
        text += f", of which {record['charged_epsilon']:.3f} is spent"
    return text, steps, hours_text(row.trained_seconds() or 0.0) + device(row)


def device(row: Row) -> str:
    """Return the accelerator that a row was trained on, in words; nothing for a CPU."""
    named = (row.results() or {}).get("trained_on")
    return f" on one {named[0]}" if named else ""


def memory(name: str) -> str:
    """Return the memory that the row of a name needs, in words."""
    return needs.text(ROWS[name])


def hours_text(seconds: float) -> str:
    """Return hours to a tenth; fewer are no zero."""
    return f"{seconds / 3600:.1f}" if seconds >= 180 else "<0.1"


def noted(row: Row) -> str:
    """Return the note on a row, which says so where its settings are this library's."""
    chosen = preset_of(row.work)
    source = presets.get(*chosen)[1].source if chosen else ""
    ours = source.startswith("this library") and "this library" not in row.note
    return "; ".join(part for part in (row.note, f"settings of {source}" * ours) if part)


def line(row: Row) -> tuple[str, ...]:
    """Return the cells of a row in the table of its paper."""
    path = row.work.result() if row.measured() else None
    picture = row.name.split(":")[1] in PICTURES
    link = f"[json](../benchmarks/results/{path.name})" if path else ""
    if path and picture:
        link += f", [picture](../benchmarks/results/{path.stem}.png)"
    values = here(row)
    apart = ["; ".join(f"{name} {values.pop(metric)}".strip()
                       for metric, name in names.items() if metric in values)
             for names in APART.values()]
    ours = cell_text(values) or ("measured" if path and not any(apart) else "")
    if cells := unswept(row):
        ours += f"; not yet: {'; '.join(cells)}"
    if isinstance(row.work, Nothing):
        ours = f"({row.work.why})"
    epsilon, steps, hours = spent(row)
    return (f"`{row.name}`", cell_text(dict(row.paper)), others(row), ours, *apart, epsilon, steps,
            needs.text(row), hours, link, noted(row))


def with_variants(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield rows, each followed by its variants that are measured."""
    for row in rows:
        yield row
        if isinstance(row.work, Training) and row.work.known():
            applicable = [name for name in VARIANTS if name != "as-published"
                          or row.work.method in ("gswgan", "dpac")]
            for variant in applicable:
                varied = row.with_variant(variant)
                if varied.measured():
                    yield varied


def markdown(lines: Iterable[tuple[str, ...]]) -> str:
    """Return a table, without the columns that are empty."""
    rows = [tuple(cell.replace("|", "/") for cell in cells) for cells in lines]
    kept = [i for i in range(len(HEAD)) if i == 0 or any(cells[i] for cells in rows)]
    table = [HEAD, ("---",) * len(HEAD), *rows]
    return "\n".join("| " + " | ".join(cells[i] for i in kept) + " |" for cells in table)


def measured() -> str:
    """Return the table of all that is measured, but for runs that other tables show again."""
    shown: set[str] = set()
    rows = []
    for row in with_variants(ROWS.values()):
        if row.measured() and str(row.work.result()) not in shown:
            shown.add(str(row.work.result()))
            rows.append(row)
    return markdown(map(line, rows)) if rows else "Nothing is measured yet."


def paper(name: str) -> str:
    """Return a table for each table and figure of a paper."""
    places: dict[str, list[Row]] = {}
    for row in with_variants(ROWS.values()):
        title, place, _ = row.name.split(":", 2)
        if title == name:
            places.setdefault(place, []).append(row)
    return "\n\n".join(f"### {TITLES[name]}, {heading(place)}\n\n{markdown(map(line, rows))}"
                       for place, rows in places.items())


def heading(place: str) -> str:
    """Return the words of a place: table1 is Table 1, figureA2 Figure A2."""
    for kind in ("table", "figure", "section", "theorem"):
        if place.startswith(kind):
            return f"{kind.title()} {place.removeprefix(kind)}"
    return {"appendix-g": "Appendix G", "runtime": "Section 5.3, running time",
            "agreement": "Section 6.2, agreement of teachers",
            "data-independent": "Section 6.2, data-independent privacy budget",
            "without-pate": "Section 6.2, without PATE"}[place]


def counts() -> dict[str, int]:
    """Return how many rows there are, and how many runs: rows with the same results are one run.

    Returns:
      {"rows", "runs", "measured"}, the last of runs; of sweeps those with all of their cells.
    """
    rows = [row for row in ROWS.values() if not isinstance(row.work, Nothing)]
    return {"rows": len(ROWS), "runs": len({row.work.result() for row in rows}),
            "measured": len({row.work.result() for row in rows if row.measured()
                             and not unswept(row)})}
