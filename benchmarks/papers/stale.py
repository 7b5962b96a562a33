"""Rows whose results are of another configuration than that of their preset today.

Results of rows that this runner trains have a digest of the configuration in their names, so that
they are never those of an earlier one. Those of other benchmarks have the configuration in the
results, and their names stay; of what has none there, as the times of `benchmarks.steps`, nothing
is known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks import norms
from benchmarks.papers import chosen
from benchmarks.papers.registry import ROWS
from benchmarks.papers.rows import Command, Row, Training
from benchmarks.sweep import jobs
from benchmarks.sweep.published import SWEEPS
from dpgen_jax import presets, train
from dpgen_jax.core.config import to_json

Pair = tuple[Mapping[str, Any], Any]
"""A configuration as the results have it, and today's."""
BEFORE = "measured before its preset changed"


def changed(ran: Mapping[str, Any], config: Any) -> dict[str, tuple[Any, Any]]:
    """Return the fields that are not as they ran; those that came later ran with their defaults.

    Args:
      ran: The configuration that ran, as JSON.
      config: Today's.

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
    """Yield those of a sweep's cells."""
    cells = {cell.label: cell for cell in SWEEPS[name].cells} if name in SWEEPS else {}
    for entry in record["rows"]:
        if "config" in entry and entry["label"] in cells:
            yield entry["config"], jobs.job(SWEEPS[name], cells[entry["label"]]).args.config


def _of_norms(argv: tuple[str, ...], record: Mapping[str, Any]) -> Iterator[Pair]:
    """Yield those of the systems of a study of norms."""
    args = norms.arguments(list(argv))
    wanted = {"steps": args.steps, "critics": args.critics, "warm_steps": args.warm_steps}
    for title, variant in record["variants"].items():
        if "config" not in variant["settings"]:
            continue
        system, fields = norms.SYSTEMS[title.rpartition(", ")[0]]
        config = presets.get(system, getattr(args, system))[1].config
        yield variant["settings"]["config"], dataclasses.replace(config, **fields, **{
            key: value for key, value in wanted.items()
            if value is not None and hasattr(config, key)})


def configurations(row: Row) -> Iterator[Pair]:
    """Yield each configuration in the results of a row, beside that of its command today.

    Args:
      row: A row that is measured.
    """
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
        yield record["config"], train.parse("datalens", list(work.argv)).config
    elif named := chosen.preset_of(work):
        config = presets.get(*named)[1].config
        if module == "aggregation" and "teachers" in record:
            yield {**to_json(config), "teachers": record["teachers"], "batch": record["samples"],
                   "bins": record["bins"], "projection": record["projections"]}, config
        elif module == "table_presets" and "preset" in record:
            yield record["preset"]["config"], config
        elif "run" in record:
            yield record["run"]["config"], config


def changes(row: Row) -> dict[str, tuple[Any, Any]]:
    """Return the fields of a row's presets that have changed since it was measured.

    Args:
      row: Any row.

    Returns:
      As `changed`; nothing for a row that is not measured, or whose name has a digest.
    """
    found: dict[str, tuple[Any, Any]] = {}
    if isinstance(row.work, Command) and row.measured():
        for ran, now in configurations(row):
            found |= changed(ran, now)
    return found


def sentence() -> str:
    """Return the rows that were measured before their presets changed, in words."""
    rows = {row.name: changes(row) for row in ROWS.values()}
    named = "; ".join(f"`{name}` ({', '.join(fields)})" for name, fields in rows.items() if fields)
    known = (f"These were {BEFORE}, in the fields named: {named}." if named else
             "All results that name a configuration name the one that their preset has today.")
    silent = {path.name for row in ROWS.values() if row.measured()
              and (path := row.work.result()) and not any(configurations(row))}
    files = ", ".join(f"`{name}`" for name in sorted(silent))
    return f"{known} Nothing is known of {files}, which name none." if silent else known
