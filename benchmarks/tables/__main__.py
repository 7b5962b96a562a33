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

from pathlib import Path

from benchmarks import common
from benchmarks.tables import cells, data, methods
from benchmarks.tables.cells import Cell, Places
from dpgen_jax.cli import terminal
from dpgen_jax.core.console import tell
from dpgen_jax.core.errors import UserError


def step(cell: Cell, index: int, places: Places, again: bool) -> str | None:
    """Make run `index`, from 0 on, of a cell if it is missing; return a line on it, or None."""
    runs = cells.known(cell, places)["runs"]
    if again:
        runs = [made for made in runs if "error" not in made]
    if len(runs) > index or any("error" in made for made in runs):
        return None
    where = common.machine()
    made = cells.run(cell, len(runs), places)
    cells.write(cell, [*runs, made], places, where)
    text = made.get("error") or ", ".join(f"{k} {v:.3f}" for k, v in made["scores"].items())
    return f"{cell.name}, run {len(runs) + 1}: {text} ({made.get('cpu_seconds', 0):.0f} CPU s)"


def main(argv: list[str]) -> None:
    script = common.Script("tables", __doc__, record=None)
    script.add_argument("--tables", nargs="+", default=data.COMPARED, choices=data.SOURCES)
    script.add_argument("--methods", nargs="+", default=["real", *methods.OURS, *methods.PEERS],
                        help="names, those of this library with flags of train behind them")
    script.add_argument("--epsilon", nargs="+", type=float, default=[1.0])
    script.add_argument("--runs", "--repeats", type=int, default=5)
    script.add_argument("--part", choices=("test", "validation"), default="test")
    script.add_argument("--again", action="store_true", help="try again what failed")
    script.add_argument("--limit", type=int, default=1800, help="CPU seconds of one run")
    script.add_argument("--results", type=Path, help="the folder of the results files")
    script.add_argument("--work", type=Path, default=Path("runs/tables"),
                        help="the folder of tables and run folders")
    args = script.begin(argv)
    if args.runs < 1:
        raise UserError(f"--runs {args.runs} measures nothing; give 1 or more")
    folder = "tables" if args.part == "test" else "tables-validation"
    places = Places((args.results or common.RESULTS / folder).resolve(), args.work.resolve(),
                    args.limit)
    found = [methods.find(text) for text in args.methods]
    wanted = [Cell(table, method, epsilon, args.part)
              for i, epsilon in enumerate(args.epsilon) for method in found for table in args.tables
              if not (i and method.name == "real")]  # which need no epsilon and are there once
    for index in range(args.runs):
        for cell in wanted:
            if line := step(cell, index, places, args.again and index == 0):
                tell(line)


if __name__ == "__main__":
    terminal.main(main)
