"""The runs with the settings of the papers, system by system, from the results alone."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.papers import page, stale
from benchmarks.papers.chosen import preset_of
from benchmarks.papers.registry import ROWS
from benchmarks.papers.rows import Command, Row
from dpgen_jax import presets

SYSTEMS = {
    "gpate": "G-PATE", "datalens": "DataLens", "topagg_sgd": "TopAgg-SGD (DataLens, appendix A)",
    "gswgan": "GS-WGAN", "gswgan federated": "GS-WGAN, federated", "dpac": "DP-GAN-DPAC",
    "dpgan": "DP-GAN, a baseline", "pategan": "PATE-GAN, a baseline",
    "dpcgan": "DP-CGAN, a baseline", "dpmerf": "DP-MERF, a baseline",
    "fedavg_gan": "Fed-Avg GAN, a baseline"}
"""The systems of the papers, and the baselines of which papers or codes print settings."""


def is_sweep(row: Row) -> bool:
    """Return whether a row compares several settings."""
    return isinstance(row.work, Command) and row.work.module == "sweep"


def runs(system: str) -> Iterator[Row]:
    """Yield the rows that train a system with the settings of a paper or its authors' code.

    Rows of one and the same training are one: that of the system's own paper, by accuracy, where
    there is one. Presets of this library, rows that change a field, readings of a run and timed
    steps are none of them.

    Args:
      system: A name of `SYSTEMS`.
    """
    def foreign(row: Row) -> tuple[bool, bool]:
        return not row.name.startswith(f"{system.split()[0]}:"), page.CNN not in row.paper

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
    epsilon, steps, _ = page.spent(row)
    at = f" at epsilon {epsilon}" if epsilon else ""
    at += f" after {steps} steps" if "stopped" in steps else ""
    at += f", {stale.BEFORE}" if stale.changes(row) else ""
    printed = page.cell_text(dict(row.paper))
    return (f"`{row.name}`: {page.cell_text(page.here(row)) or 'measured'}{at}"
            f"{f' (the paper: {printed})' if printed else ''}")


def table() -> str:
    """Return the table of all systems, in Markdown."""
    lines = ["| system | trainings, as published | run | sweeps | run | which have run |",
             "| --- | --- | --- | --- | --- | --- |"]
    for system, title in SYSTEMS.items():
        each = list(runs(system))
        kinds = [[row for row in each if is_sweep(row) == sweeps] for sweeps in (False, True)]
        counts = [cell for kind in kinds for cell in (
            len(kind), sum(row.measured() and not page.unswept(row) for row in kind))]
        found = ", ".join(f"`{row.name}`" for row in each if row.measured()) or "none yet"
        lines.append(" | ".join(("| " + title, *map(str, counts), found)) + " |")
    return "\n".join(lines)


def sentence(system: str) -> str:
    """Return in words how many of a system's trainings, as published, have run, and which.

    Args:
      system: A name of `SYSTEMS`.
    """
    each = [row for row in runs(system) if not is_sweep(row)]
    measured = [row for row in each if row.measured()]
    found = "; ".join(map(done, measured))
    return (f"{len(measured) or 'none'} of its {len(each)} trainings in the papers' tables "
            f"{'have' if len(measured) > 1 else 'has'} been run{': ' * bool(measured)}{found}")
