"""Seconds per epoch beside the papers': `python -m benchmarks.steps --epochs [ROW ...]`.

An epoch of DataLens and G-PATE is one pass of every teacher over its records: their codes take
floor(records of a teacher / batch) steps, each with one step of the generator. With the published
teachers that is a single step (15 records, batch 15), which agrees with the text: G-PATE reaches
epsilon 1 "at epoch 232", and one query of a batch each time costs as much. Timed is a step of the
library with the published networks and settings on random records, not the first one, in a process
of its own. With `--share` below 1 fewer teachers are timed and the time of all is extrapolated,
which the record marks: a step is linear in the teachers (`benchmarks.steps`). The papers' times are
quoted, and were measured on other machines. Rows that were measured with the same flags are kept.
The record is results/epochs.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks import common

TABLE_6 = "DataLens (Wang et al. 2021), Table 6: Tesla T4, epsilon 1"
RUNTIME = "DataLens (Wang et al. 2021), section 5.3, runtime analysis: RTX 2080 Ti, epsilon 1"
APPENDIX_G = "G-PATE (Long et al. 2021), appendix G: Tesla T4, epsilon 1"
MODULE = "benchmarks.epoch_case"


@dataclasses.dataclass(frozen=True)
class Row:
    """A time that a paper reports.

    Attributes:
      method: The method.
      preset: The preset whose step is timed.
      quoted: Seconds per epoch in the paper.
      source: Where, and on what machine.
      fields: Fields of the configuration that differ from the preset.
    """

    method: str
    preset: str
    quoted: float
    source: str
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)


_TABLE_6 = {"mnist": (338.34, 492.43, 785.34), "fashion": (340.84, 471.02, 775.35),
            "gender": (1196.60, 3683.22, 2622.40), "hair": (1120.59, 8092.50, 2620.63)}
_COMPRESSIONS = {"topk": {}, "d2p": {"aggregate": "d2p"}, "fetchsgd": {"aggregate": "fetchsgd"}}

ROWS = {
    **{f"datalens-{data}-{name}": Row("datalens", f"{data}-eps1", seconds, TABLE_6, fields)
       for data, times in _TABLE_6.items()
       for (name, fields), seconds in zip(_COMPRESSIONS.items(), times, strict=True)},
    "datalens-mnist-4000": Row("datalens", "mnist-eps1", 322.17, RUNTIME),
    "datalens-mnist-2000": Row("datalens", "mnist-eps1", 149.92, RUNTIME,
                               {"teachers": 2000, "batch": 30}),
    "gpate-mnist": Row("gpate", "mnist-eps1", 256.74, APPENDIX_G),
}


def steps_of_an_epoch(row: Row) -> int:
    """Return how many steps the published code takes in an epoch."""
    from dpgen_jax import presets

    preset = presets.get(row.method, row.preset)[1]
    config = dataclasses.replace(preset.config, **row.fields)
    return max(1, preset.records // config.teachers // config.batch)


def main(args: argparse.Namespace) -> int:
    """Time the rows that are missing, write the record after each, and print the table.

    Args:
      args: The flags of `benchmarks.steps`.

    Returns:
      The exit code: 1 where a row could not be timed.
    """
    path = Path(args.out) if args.out else common.RESULTS / "epochs.json"
    rows = json.loads(path.read_text())["results"]["rows"] if path.exists() else {}
    for name in args.epochs or ROWS:
        row = ROWS[name]
        case = {"method": row.method, "preset": row.preset, "fields": row.fields,
                "share": args.share, "chunk": args.chunk[0], "devices": args.devices[0],
                "moments": args.moments, "repeats": args.repeats, "seed": args.seed}
        if rows.get(name, {}).get("case") == case and "error" not in rows[name]:
            continue
        where = common.machine()
        measured = common.apart(MODULE, case, {"JAX_NUM_CPU_DEVICES": str(args.devices[0]),
                                               "JAX_ENABLE_COMPILATION_CACHE": "false"})
        rows[name] = {"case": case, "quoted_seconds": row.quoted, "source": row.source,
                      "machine": where, **epoch(row, measured)}
        flags = ["--epochs", *rows]
        record = common.record("steps", flags, [args.seed], {"rows": rows}, where)
        common.write(record, path)
        print(line(name, rows[name]), file=sys.stderr, flush=True)
    print(json.dumps(rows, indent=1) if args.json else "\n".join(
        line(name, row) for name, row in rows.items()))
    return int(any("error" in row for row in rows.values()))


def epoch(row: Row, measured: dict[str, Any]) -> dict[str, Any]:
    """Return what was measured with the time of an epoch of all teachers."""
    if "error" in measured:
        return measured
    from dpgen_jax import presets

    config = presets.get(row.method, row.preset)[1].config
    teachers, steps = dataclasses.replace(config, **row.fields).teachers, steps_of_an_epoch(row)
    seconds = steps * measured["seconds_per_step"]["median"] * teachers / measured["teachers"]
    return {**measured, "steps_of_an_epoch": steps, "teachers_of_the_paper": teachers,
            "extrapolated": measured["teachers"] != teachers, "seconds_per_epoch": seconds}


def line(name: str, row: dict[str, Any]) -> str:
    """Return a row for people."""
    if "error" in row:
        return f"{name}: {row['error']}"
    extrapolated = f", from {row['teachers']} teachers" if row["extrapolated"] else ""
    return (f"{name}: {row['seconds_per_epoch']:.2f} s per epoch{extrapolated}; paper "
            f"{row['quoted_seconds']:.2f} s ({row['source']})")
