"""Published steps beside what the device can do: `python -m benchmarks.accelerator`.

It needs no data. Timed is a step after the first, in the run's own block, of the published
DataLens, G-PATE and GS-WGAN presets with random records. Each row runs in a process of its own, in
which the rooflines are measured before and after: batched matrix products in float32 and bfloat16,
and a copy. Beside the seconds stand

- the operations of the products that the step asks for, counted in its jaxpr (those of the
  generator, the optimisers and the votes are not counted), as a share of the float32 products';
- the bytes that it must move at least (each queried unit's state read and written, its records
  read), as a share of the copy's.

A step near neither is limited by something else: small products, launches, or the aggregation. With
`--share` below 1 fewer teachers are timed, which the record marks. Rows with the same flags on the
same kind of device are kept, so that it goes on where it stopped. On two cores `--share .01` takes
some minutes. The record is results/accelerator.json; those of other devices, accelerator-NAME.json,
stand in the same table.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import common, results_tables

MODULE = "benchmarks.accelerator_case"
ROWS = {"datalens-mnist": ("datalens", "mnist-eps1"), "gpate-mnist": ("gpate", "mnist-eps1"),
        "gpate-celeba": ("gpate", "gender-l-eps1"), "datalens-celeba": ("datalens", "gender-eps1"),
        "gswgan-mnist": ("gswgan", "mnist-published"),
        "gswgan-celeba": ("gswgan", "gender-published")}


def table() -> str:
    """Return the rows of all records as a table in Markdown."""
    rows = [row for path in sorted(common.RESULTS.glob("accelerator*.json"))
            for row in json.loads(path.read_text())["results"]["rows"]]
    return results_tables.markdown(
        ("system, data", "devices", "units timed", "at once", "step, s", "of float32 products",
         "of copies"),
        ((row["row"].replace("-", ", "), f"{row['devices']} x {row['device']}",
          f"{row['units_queried_a_step']:,}",
          row["chunk"], f"{row['seconds_per_step']['median']:.3g}",
          f"{row['of_float32_products']:.0%}",
          f"{row['of_copies']:.1%}") for row in rows if "error" not in row))


def kinds_table() -> str:
    """Return the milliseconds of a unit by kind of instruction, from results/accelerator.json."""
    path = common.RESULTS / "accelerator.json"
    rows = [row for row in json.loads(path.read_text())["results"]["rows"]
            if "seconds_by_kind" in row]
    return results_tables.markdown(
        ("system, data", "products", "their GFLOP/s", "of float32 products", "passes over values",
         "copies and gathers", "the stack, read and written"),
        ((row["row"].replace("-", ", "), *_of_products(row),
          *(f"{1000 * row['seconds_by_kind'][kind] / row['units_queried_a_step']:.2f}"
            for kind in ("passes", "layout", "stack"))) for row in rows))


def _of_products(row: dict[str, Any]) -> tuple[str, str, str]:
    """Return the milliseconds of a unit's products, their rate, and its share of the roofline.

    Where one unit is queried the public half is among them, whose operations are not counted.
    """
    seconds, units = row["seconds_by_kind"]["products"], row["units_queried_a_step"]
    rate = row["flops_per_step"] / seconds
    return (f"{1000 * seconds / units:.2f}", *(("", "") if units == 1 else (
        f"{rate / 1e9:.0f}", f"{rate / row['rooflines']['float32_flops_per_second']:.0%}")))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and write its record."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    args = parse(arguments)
    where = common.machine()
    path = Path(args.out) if args.out else common.RESULTS / "accelerator.json"
    rows = json.loads(path.read_text())["results"]["rows"] if path.is_file() else []
    for name in args.rows:
        method, preset = ROWS[name]
        case = {"method": method, "preset": preset, "share": args.share, "moments": args.moments,
                "chunk": args.chunk, "repeats": args.repeats, "seed": args.seed,
                "matmul": args.matmul, "copy_bytes": args.copy_bytes, "compute": args.compute}
        if any(row["case"] == case and row["machine"] == where["cpu"] for row in rows
               if not args.again and "error" not in row):
            continue
        row = {"row": name, "case": case, "machine": where["cpu"],
               **common.apart(MODULE, case, {})}
        rows = [other for other in rows
                if (other["case"], other["machine"]) != (case, where["cpu"])] + [row]
        common.write(common.record("accelerator", arguments, [args.seed], {"rows": rows}, where),
                     path)
        print(line(row), flush=True)
    return int(any("error" in row for row in rows))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accelerator", description=__doc__,
                                     allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", choices=[[], *ROWS], metavar="ROW",
                        help=f"of {', '.join(ROWS)}; all if left out")
    parser.add_argument("--share", type=float, default=1.0, help="share of the units")
    parser.add_argument("--moments", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--compute", default="float32", choices=["bfloat16", "float32"],
                        help="as in Runtime")
    parser.add_argument("--chunk", type=int, default=0, help="0: as a run chooses it")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--matmul", type=int, default=2048, help="size of the roofline's matrices")
    parser.add_argument("--copy-bytes", type=int, default=2**28, help="of the roofline's array")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="measure rows anew that are there")
    parser.add_argument("--out", help="file for the record; benchmarks/results/accelerator.json")
    args = parser.parse_args(arguments)
    if not 0 < args.share <= 1:
        parser.error("--share: above 0, at most 1")
    args.rows = args.rows or list(ROWS)
    return args


def line(row: dict[str, Any]) -> str:
    """Return a row as a line for people."""
    if "error" in row:
        return f"{row['row']}: {row['error']}"
    seconds = row["seconds_per_step"]["median"]
    return (f"{row['row']} on {row['device']}: {seconds:.3f} s a step, "
            f"{row['units_queried_a_step']:,} units in chunks of {row['chunk']}; "
            f"{row['flops_per_step'] / seconds / 1e9:,.0f} GFLOP/s, "
            f"{row['of_float32_products']:.0%} of float32 products; "
            f"{row['bytes_per_step'] / seconds / 1e9:,.1f} GB/s, {row['of_copies']:.0%} of a copy; "
            f"compiled in {row['compile_seconds']:.0f} s")


if __name__ == "__main__":
    raise SystemExit(main())
