"""Every table and figure of the papers: what runs it, what it needs, and whether it is measured.

    python -m benchmarks.papers                                # lists all rows
    python -m benchmarks.papers --paper datalens table1        # those with "table1" in their name
    python -m benchmarks.papers datalens:table1:mnist-eps1     # runs one, or goes on with it
    python -m benchmarks.papers datalens:table1:mnist-eps1+no-noise
    python -m benchmarks.papers --page                         # writes docs/papers.md and its pages

Figures of a paper that are missed have variants, named behind a plus: "no-noise" is the same preset
at infinite epsilon, "as-published" the published schedule and accounting of GS-WGAN and DPAC. A run
is trained from checkpoint to checkpoint and evaluated part by part, so that it may be stopped at
any moment; its folder and its results carry a digest of the complete configuration.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from benchmarks.papers import page, registry, runner
from benchmarks.papers.rows import VARIANTS, Nothing, Row
from dpgen_jax.cli import terminal
from dpgen_jax.core.config import State
from dpgen_jax.run import capacity


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.papers", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row", nargs="?", help="a row to run; or a part of names, to list those")
    parser.add_argument("--paper", choices=registry.TITLES, help="list the rows of one paper")
    parser.add_argument("--out", type=Path, default=Path("runs/papers"),
                        help="folder of the run folders")
    parser.add_argument("--state", default="device", choices=get_args(State),
                        help="where the state of teachers and critics lies, as in train: device, "
                        "or disk where memory is too small")
    parser.add_argument("--as-it-stands", action="store_true",
                        help="evaluate the last release of a training that was stopped, which goes "
                        "on when its row is run without this")
    parser.add_argument("--inception-weights", type=Path, help="for FID, as in evaluate")
    parser.add_argument("--page", action="store_true",
                        help="write docs/papers.md and docs/papers/, and run nothing")
    return parser.parse_args(argv)


def hours(row: Row) -> str:
    """Return the hours that a row took, with its accelerator, or an estimate with a ~ before it."""
    seconds = row.trained_seconds()
    if seconds is None:
        return f"~{row.hours:g}" if row.hours and not row.measured() else ""
    parts = (row.results() or {}).get("evaluation", {}).get("seconds", {})
    return page.hours_text(seconds + sum(parts.values())) + page.device(row)


def state(row: Row) -> str:
    if isinstance(row.work, Nothing):
        return "cannot be run"
    if not row.work.known():
        return "not built"
    if page.changes(row):
        return page.BEFORE
    if row.measured():
        without, stopped = page.missing(row), (row.results() or {}).get("stopped")
        return ("measured" + ", stopped" * bool(stopped)
                + f" without {', '.join(without)}" * bool(without))
    return "no data" if row.source().absent() else "not measured"


def listed(rows: Sequence[Row]) -> str:
    memory = capacity.memory()
    lines = [("row", "data", "memory", "hours", "state", "command"), *(
        (row.name, row.source().title, page.memory_text(row, memory), hours(row), state(row),
         row.work.command(row.name)) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(5)]
    return "\n".join(["  ".join([*(cell.ljust(width) for cell, width in zip(
        line, widths, strict=False)), line[5]]).rstrip() for line in lines]
        + [page.explained(memory)])


def write_pages() -> None:
    from benchmarks import results_page

    for template in results_page.TEMPLATES:
        if template.startswith("docs/papers"):
            path = results_page.ROOT / template.removesuffix(".jinja")
            path.write_text(results_page.page(template), encoding="utf-8")
            print(path)


def main(argv: list[str]) -> None:
    args = parse(argv)
    if args.page:
        return write_pages()
    named = (args.row or "").partition("+")[0]
    matching = [row for name, row in registry.ROWS.items() if named in name
                and args.paper in (None, name.partition(":")[0])]
    if named in registry.ROWS or (named and not matching):
        print(runner.run(registry.find(args.row), args.out, args.inception_weights, args.state,
                         args.as_it_stands))
        return None
    print(listed(matching))
    print("variants of rows that train a preset: " + "; ".join(
        f"ROW+{name}, {text}" for name, text in VARIANTS.items()))
    return None


if __name__ == "__main__":
    terminal.main(main)
