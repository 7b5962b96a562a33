"""The tables of docs/papers.md, in Markdown: the papers, others who ran them, and this library."""

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from benchmarks import common, norms, steps
from benchmarks.papers.registry import ROWS, TITLES
from benchmarks.papers.rows import (
    CNN,
    FID,
    MLP,
    SCORE,
    VARIANTS,
    Command,
    Nothing,
    Row,
    Training,
    Work,
)
from benchmarks.sweep import cells
from benchmarks.sweep.published import SWEEPS
from dpgen_jax import methods, presets
from dpgen_jax.cli import train_flags
from dpgen_jax.core.config import Runtime, to_json
from dpgen_jax.core.types import Spec
from dpgen_jax.evaluation import utility
from dpgen_jax.run import capacity

# From a row to the method and the preset that it trains.

DEFAULTS = {"images": "datalens", "topagg_bound": "datalens", "table_presets": "gpate",
            "aggregation": "gpate"}
"""The method of a benchmark that is named none."""


def preset_of(work: Work) -> tuple[str, str] | None:
    """Return the method and preset of a row or a sweep; None where it trains none or several."""
    if isinstance(work, Training):
        return (work.method, work.preset) if work.known() else None
    if not isinstance(work, Command):
        return None
    words = list(work.argv)
    if work.module == "sweep" and words[0] in SWEEPS:
        return SWEEPS[words[0]].method, SWEEPS[words[0]].settings["preset"]
    if work.module == "steps":
        timed = steps.EPOCHS[words[words.index("--epochs") + 1]]
        return timed.method, timed.preset
    if "--presets" in words:  # METHOD=PRESET
        method, _, name = words[words.index("--presets") + 1].partition("=")
        return method, name
    if "--preset" not in words or "--teachers" in words:  # which makes it another one
        return None
    method = (words[words.index("--method") + 1] if "--method" in words
              else words[0] if work.module == "sweep" else DEFAULTS[work.module])
    return method, words[words.index("--preset") + 1]


# The memory that a row needs for what its teachers, critics or clients keep, by shapes alone.

MOMENTS = "bfloat16"
"""The precision of teachers' and critics' moments; sweeps come to it where float32 is too large."""
UNITS = ("teachers", "critics")
"""Fields that say how many units there are, of methods whose units keep anything."""
LEAST = 5e8
"""The fewest bytes that are worth a word."""


def state_bytes(row: Row) -> int:
    """Return the bytes of the state of all units of a row at once, of its largest run.

    Returns:
      The bytes; 0 where units keep nothing, where the row trains no single preset or times a
      part of a step, and of federations, whose clients are chosen by the data.
    """
    work, chosen = row.work, preset_of(row.work)
    module = work.module if isinstance(work, Command) else ""
    if chosen is None or module in ("federated", "aggregation"):
        return 0
    fields, share = dict(getattr(work, "fields", {})), 1.0
    if module == "steps":
        fields |= steps.EPOCHS[work.argv[1]].fields
        share = float(work.argv[3])
    if module == "sweep":
        cells = SWEEPS[work.argv[0]].cells if work.argv[0] in SWEEPS else ()
        for field in UNITS:
            counts = [int(cell.settings[field]) for cell in cells if field in cell.settings]
            fields |= {field: max(counts)} if counts else {}
    method, name = chosen
    preset = presets.get(method, name)[1]
    config = dataclasses.replace(preset.config, **fields)
    if not any(hasattr(config, field) for field in UNITS):
        return 0  # units are records, or clients that keep nothing
    # What is found from the budget decides nothing of what units keep.
    config = dataclasses.replace(config, sigma=config.sigma or 1.0, steps=config.steps or 1)
    return int(share * _state_bytes(method, config, preset.spec))


@functools.cache
def _state_bytes(method: str, config: Any, spec: Spec) -> int:
    """Return the bytes of the state of a configuration's units, which is built and not run."""
    built = methods.get(method).build(config, spec, Runtime(moments=MOMENTS))
    return capacity.state_bytes(built) if capacity.keeps_state(built) else 0


def memory_text(row: Row, memory: float = math.inf) -> str:
    """Return what a row needs in words, as "18 GB"; "52 GB: disk" where the memory is smaller."""
    needed = state_bytes(row)
    if needed < LEAST:
        return ""
    return f"{needed / 1e9:.0f} GB" + ": disk" * (needed > memory)


def explained(memory: float) -> str:
    """Return the line below a list that says what `text` means."""
    return ("memory: what teachers or critics keep, with records and a step on top; the disk holds "
            f"up to two checkpoints of as much. disk: more than the {memory / 1e9:.0f} GB here, so "
            "run it with --state disk, which keeps it on the disk too")


Quote = tuple[str, str]
"""A figure that somebody else reports, as printed, and who does."""
_Key = tuple[str, str, float, str]


def _quotes() -> dict[_Key, list[Quote]]:
    found: dict[_Key, list[Quote]] = {}
    for line in common.read_yaml(__file__, "quotes.yaml"):
        for metric, value in line["values"].items():
            key = line["system"], line["data"], float(line["epsilon"]), metric
            found.setdefault(key, []).append((value, line["source"]))
    return found


QUOTES = _quotes()


# The runs with the settings of the papers, system by system, from the results alone.

SYSTEMS, VOTES, METRICS = common.read_yaml(__file__, "names.yaml").values()


def is_sweep(row: Row) -> bool:
    return isinstance(row.work, Command) and row.work.module == "sweep"


def runs(system: str) -> Iterator[Row]:
    """Yield the rows that train a system with the settings of a paper or its authors' code.

    Rows of one and the same training are one: that of the system's own paper, by accuracy, where
    there is one. Presets of this library, rows that change a field, readings of a run and timed
    steps are none of them.
    """
    def foreign(row: Row) -> tuple[bool, bool]:
        return not row.name.startswith(f"{system.split()[0]}:"), CNN not in row.paper

    found: dict[str, Row] = {}
    for row in sorted(ROWS.values(), key=foreign):
        chosen = preset_of(row.work)
        if chosen is None or getattr(row.work, "fields", None) or (
                getattr(row.work, "module", "") in ("topagg_bound", "steps", "aggregation")):
            continue
        method, name = chosen
        preset = presets.get(method, name)[1]
        federated = " federated" * bool(method == "gswgan" and preset.config.federated)
        if method + federated == system and not preset.source.startswith("this library"):
            found.setdefault(str(row.work.result()), row)
    yield from found.values()


def done(row: Row) -> str:
    """Return what came out of a row that has run, beside its paper, in a cell of a table."""
    epsilon, steps, _ = spent(row)
    at = f" at epsilon {epsilon}" if epsilon else ""
    at += f" after {steps} steps" if "stopped" in steps else ""
    at += f", {BEFORE}" if changes(row) else ""
    printed = cell_text(dict(row.paper))
    return (f"`{row.name}`: {cell_text(here(row)) or 'measured'}{at}"
            f"{f' (the paper: {printed})' if printed else ''}")


def runs_table() -> str:
    lines = ["| system | trainings, as published | run | sweeps | run | which have run |",
             "| --- | --- | --- | --- | --- | --- |"]
    for system, title in SYSTEMS.items():
        each = list(runs(system))
        kinds = [[row for row in each if is_sweep(row) == sweeps] for sweeps in (False, True)]
        counts = [cell for kind in kinds for cell in (
            len(kind), sum(row.measured() and not unswept(row) for row in kind))]
        found = ", ".join(f"`{row.name}`" for row in each if row.measured()) or "none yet"
        lines.append(" | ".join(("| " + title, *map(str, counts), found)) + " |")
    return "\n".join(lines)


def run_sentence(system: str) -> str:
    """Return in words how many of a system's trainings, as published, have run, and which."""
    each = [row for row in runs(system) if not is_sweep(row)]
    measured = [row for row in each if row.measured()]
    found = "; ".join(map(done, measured))
    return (f"{len(measured) or 'none'} of its {len(each)} trainings in the papers' tables "
            f"{'have' if len(measured) > 1 else 'has'} been run{': ' * bool(measured)}{found}")


# Rows whose results are of another configuration than that of their preset today.
#
# Results of rows that this runner trains have a digest of the configuration in their names, so that
# they are never those of an earlier one. Those of other benchmarks have the configuration in the
# results, and their names stay; of what has none there, as the times of `benchmarks.steps`, nothing
# is known.

Pair = tuple[Mapping[str, Any], Any]
"""A configuration as the results have it, and today's."""
BEFORE = "measured before its preset changed"


def changed(ran: Mapping[str, Any], config: Any) -> dict[str, tuple[Any, Any]]:
    """Return the fields that are not as they ran; those that came later ran with their defaults.

    Returns:
      {field: (as it ran, today's)}; noise and steps that today's leaves to the budget are equal.
    """
    found: dict[str, tuple[Any, Any]] = {}
    for field in dataclasses.fields(config):
        now = getattr(config, field.name)
        if field.name not in ran:
            default = (field.default if field.default is not dataclasses.MISSING else
                       field.default_factory() if field.default_factory is not dataclasses.MISSING
                       else None)
            found |= {field.name: ("the default", now)} if now != default else {}
        elif dataclasses.is_dataclass(now) and isinstance(ran[field.name], dict):
            inner = changed(ran[field.name], now)
            found |= {f"{field.name}.{name}": both for name, both in inner.items()}
        elif now is not None and to_json(now) != ran[field.name]:  # None: found from the budget
            found[field.name] = (ran[field.name], now)
    return found


def _of_sweep(name: str, record: Mapping[str, Any]) -> Iterator[Pair]:
    known = {cell.label: cell for cell in SWEEPS[name].cells} if name in SWEEPS else {}
    for entry in record["rows"]:
        if "config" in entry and entry["label"] in known:
            yield entry["config"], cells.job(SWEEPS[name], known[entry["label"]]).args.config


def _of_norms(argv: tuple[str, ...], record: Mapping[str, Any]) -> Iterator[Pair]:
    """Yield those of the systems of a study of norms."""
    args = norms.arguments(list(argv))
    for title, variant in record["variants"].items():
        if "config" in variant["settings"]:
            yield variant["settings"]["config"], norms.configured(
                args, title.rpartition(", ")[0])[2]


def configurations(row: Row) -> Iterator[Pair]:
    """Yield each configuration in the results of a row, beside that of its command today."""
    record, work = row.results() or {}, row.work
    module = work.module if isinstance(work, Command) else ""
    if isinstance(work, Training):
        if "run" in record:
            yield record["run"]["config"], work.request()[0]
    elif isinstance(work, Command) and module == "sweep":
        yield from _of_sweep(work.argv[0], record)
    elif isinstance(work, Command) and module == "norms":
        yield from _of_norms(work.argv, record)
    elif isinstance(work, Command) and module == "topagg_bound" and "config" in record:
        yield record["config"], train_flags.parse("datalens", list(work.argv))[0].config
    elif named := preset_of(work):
        config = presets.get(*named)[1].config
        if module == "aggregation" and "teachers" in record:
            yield {**to_json(config), "teachers": record["teachers"], "batch": record["samples"],
                   "bins": record["bins"], "projection": record["projections"]}, config
        elif module == "table_presets" and "preset" in record:
            yield record["preset"]["config"], config
        elif "run" in record:
            yield record["run"]["config"], config


def changes(row: Row) -> dict[str, tuple[Any, Any]]:
    """Return the fields of a row's presets that changed since it was measured, as `changed`."""
    found: dict[str, tuple[Any, Any]] = {}
    if isinstance(row.work, Command) and row.measured():
        for ran, now in configurations(row):
            found |= changed(ran, now)
    return found


def stale_sentence() -> str:
    """Return the rows that were measured before their presets changed, in words."""
    rows = {row.name: changes(row) for row in ROWS.values()}
    named = "; ".join(f"`{name}` ({', '.join(fields)})" for name, fields in rows.items() if fields)
    known = (f"These were {BEFORE}, in the fields named: {named}." if named else
             "All results that record a configuration have that of today's preset.")
    silent = {path.name for row in ROWS.values() if row.measured()
              and (path := row.work.result()) and not any(configurations(row))}
    files = ", ".join(f"`{name}`" for name in sorted(silent))
    return f"{known} These files record none: {files}." if silent else known


OURS = {f"as_systems.{CNN}": "CNN", f"as_systems.{MLP}": "MLP"}
"""The protocol of `benchmarks.systems`: fewer images, and a shorter schedule."""
APART = {"IS": {SCORE: ""}, "in our protocol": OURS, "teachers": VOTES}
"""Columns of some metrics alone, and what these are called there."""
SHORT = METRICS | VOTES | {metric: f"{name} in our protocol" for metric, name in OURS.items()}
ALWAYS = (CNN, *OURS, SCORE, *VOTES)
"""Metrics that are shown of every training that has them."""
PICTURES = ("figure2", "figure3", "figure4", "figure5", "figureA1", "figureA2")
"""Figures of which a picture is written beside the results."""
HEAD = ("row", "paper", "others", "here", *APART, "epsilon", "steps", "memory", "hours", "results",
        "note")


def short(metric: str) -> str:
    cell, _, name = metric.rpartition(": ")
    plain = SHORT.get(name) or name.replace("gen2real.", "").replace(".accuracy", "")
    return f"{cell}: {plain}" if cell else plain


def cell_text(values: dict[str, str]) -> str:
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
    """Return the values of a sweep's cells, under the names of `registry.sweep_printed`."""
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


def norms_cells(record: dict[str, Any]) -> dict[str, str]:
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
        return norms_cells(record)
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
    if not isinstance(row.work, Training) or not row.work.known():
        return ""
    work, epsilon = row.work, row.work.epsilon
    epsilon = presets.get(work.method, work.preset)[1].epsilon if epsilon is None else epsilon
    by_source: dict[str, list[str]] = {}
    for metric in row.paper:
        for value, source in QUOTES.get((work.method, work.data, epsilon, metric), ()):
            by_source.setdefault(source, []).append(f"{short(metric)} {value}")
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
    return memory_text(ROWS[name])


def hours_text(seconds: float) -> str:
    return f"{seconds / 3600:.1f}" if seconds >= 180 else "<0.1"


def noted(row: Row) -> str:
    chosen = preset_of(row.work)
    source = presets.get(*chosen)[1].source if chosen else ""
    ours = source.startswith("this library") and "this library" not in row.note
    return "; ".join(part for part in (row.note, f"settings of {source}" * ours) if part)


def line(row: Row) -> tuple[str, ...]:
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
            memory_text(row), hours, link, noted(row))


def with_variants(rows: Iterable[Row]) -> Iterator[Row]:
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
    return "\n\n".join(f"## {TITLES[name]}, {heading(place)}\n\n{markdown(map(line, rows))}"
                       for place, rows in places.items())


def differs(*names: str) -> str:
    """Return a table of what presets do otherwise than their sources: a row for each difference."""
    lines = ["| method | what differs from its source | in the presets |", "| --- | --- | --- |"]
    for method in names:
        published = {name: preset for name, preset in presets.all_of(method).items()
                     if not preset.source.startswith("this library")}
        for difference in dict.fromkeys(
                line for preset in published.values() for line in preset.differs):
            having, rest = ([f"`{name}`" for name, preset in published.items()
                             if (difference in preset.differs) == wanted]
                            for wanted in (True, False))
            which = (having if len(having) <= len(rest) + 1 else
                     [f"all but {', '.join(rest)}" if rest else "all"])
            lines.append(f"| `{method}` | {difference.replace('|', '/')} | {', '.join(which)} |")
    return "\n".join(lines)


def heading(place: str) -> str:
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
