r"""Methods on tables side by side: this library's and its peers, at one epsilon each.

    python -m benchmarks.tables                                  # all cells at epsilon 1, five runs
    python -m benchmarks.tables --tables adult loans --methods marginals dpmm-mst --epsilon 10
    python -m benchmarks.tables --methods "marginals --model=tree" --part validation --runs 3
    python -m benchmarks.tables --tables scale --methods marginals mbi-mst --runs 1      # timings

A cell is a table, a method and an epsilon; its results are results/tables/CELL.json, written after
every run. The first run of all cells comes before the second of any; the script can be stopped at
any time, and goes on where it stopped. A cell whose settings were changed begins anew; one that
failed is shown with the reason, and is tried again with --again.

Each run trains on the training rows alone, by the commands of a user or by a peer's program in an
environment that is made for it (in the folder that DPGEN_PEERS names), and draws as many rows as
there are, at most 10,000. Classifiers learn from those and are tested once on held-out rows.
Nothing is chosen on test rows: --part validation trains on three quarters of the training rows and
tests on the others, and its results lie in a folder beside.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import common
from benchmarks.tables import cells, data, methods
from benchmarks.tables.cells import Cell, Places
from benchmarks.tables.methods import PEERS
from dpgen_jax.cli import terminal
from dpgen_jax.core.console import tell
from dpgen_jax.core.errors import UserError


def arguments(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tables", nargs="+", default=data.COMPARED, choices=data.SOURCES)
    parser.add_argument("--methods", nargs="+", default=["real", *methods.OURS, *PEERS],
                        help="names, those of this library with flags of train behind them")
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0])
    parser.add_argument("--runs", "--repeats", type=int, default=5)
    parser.add_argument("--part", choices=("test", "validation"), default="test")
    parser.add_argument("--again", action="store_true", help="try again what failed")
    parser.add_argument("--limit", type=int, default=1800, help="CPU seconds of one run")
    parser.add_argument("--results", type=Path, help="the folder of the results files")
    parser.add_argument("--work", type=Path, default=Path("runs/tables"),
                        help="the folder of tables and run folders")
    return parser.parse_args(argv)


def selected(args: argparse.Namespace) -> list[Cell]:
    """Return the cells of the command line; real rows need no epsilon and are there once."""
    found = [methods.find(text) for text in args.methods]
    return [Cell(table, method, epsilon, args.part)
            for i, epsilon in enumerate(args.epsilon) for method in found for table in args.tables
            if not (i and method.name == "real")]


def step(cell: Cell, index: int, places: Places, again: bool) -> str | None:
    """Make one run of a cell if it is missing; return a line on it, or None."""
    runs = cells.known(cell, places)["runs"]
    failed = [made for made in runs if "error" in made]
    if failed and again:
        runs = [made for made in runs if "error" not in made]
    elif failed or len(runs) > index:
        return None
    if len(runs) > index:
        return None
    where = common.machine()
    runs.append(cells.run(cell, len(runs), places))
    cells.write(cell, runs, places, where)
    made = runs[-1]
    text = made.get("error") or ", ".join(f"{k} {v:.3f}" for k, v in made["scores"].items())
    return f"{cell.name}, run {len(runs)}: {text} ({made.get('cpu_seconds', 0):.0f} CPU s)"


def main(argv: list[str]) -> None:
    """Run what is missing, the first run of all cells before the second of any."""
    args = arguments(argv)
    if args.runs < 1:
        raise UserError(f"--runs {args.runs} measures nothing; give 1 or more")
    folder = "tables" if args.part == "test" else "tables-validation"
    places = Places((args.results or common.RESULTS / folder).resolve(), args.work.resolve(),
                    args.limit)
    wanted = selected(args)
    for index in range(args.runs):
        for cell in wanted:
            line = step(cell, index, places, args.again and index == 0)
            if line:
                tell(line)


if __name__ == "__main__":
    terminal.main(main)
