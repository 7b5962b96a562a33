"""dpgen COMMAND, or python -m dpgen_jax COMMAND: lists the commands, and runs one of them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from dpgen_jax.cli import terminal
from dpgen_jax.core.errors import UserError, nearest
from dpgen_jax.methods import about
from dpgen_jax.version import __version__

COMMANDS = {
    "train": "trains a generator under differential privacy",
    "sample": "draws synthetic records from a release",
    "export": "writes a folder that draws a release's records with NumPy only",
    "evaluate": "evaluates a release on held-out records",
    "compare": "writes one page that compares evaluated runs",
    "account": "computes what a configuration costs, or what a run has spent",
    "audit": "attacks the promise of a mechanism, a training or a run, or planted faults",
    "publish": "publishes an upper bound on the cost of a run's votes, once and at a cost",
    "features": "turns images into features by a network whose weights you have",
    "schema": "drafts the schema of a CSV file, or buys its private entries",
    "federate": "writes the Flower app of a federation",
    "join": "runs one client of a federation, with its records",
}


def command(argv: list[str]) -> int | None:
    """Runs the command that the first argument names; without one, lists them all.

    Args:
        argv: The arguments of the command line, without the program.

    Returns:
        The exit code of the command, None for 0.

    Raises:
        UserError: For an unknown command, and from the command.
    """
    if not argv or argv[0] in ("-h", "--help"):
        width = max(map(len, COMMANDS))
        lines = [f"  {name:{width}}  {summary}" for name, summary in COMMANDS.items()]
        program = "dpgen" if Path(sys.argv[0]).stem == "dpgen" else "python -m dpgen_jax"
        print(f"usage: {program} COMMAND ...\n", *lines,
              f"  {'methods':{width}}  lists the methods: for which data, who is protected, how "
              "long they take",
              f"\n{program} COMMAND --help shows its flags, {program} --version the version",
              sep="\n")
        return None
    if argv[0] == "--version":
        print(f"dpgen_jax {__version__}")
        return None
    name, *rest = argv
    if name == "methods":
        if rest:
            raise UserError(f"`methods` takes no argument; for one method: dpgen train {rest[0]} "
                            "--help")
        print(*about.lines(), sep="\n")
        return None
    if name not in COMMANDS:
        raise UserError(f"unknown command {name!r}{nearest(name, COMMANDS)}; known: "
                        f"{', '.join(COMMANDS)}, methods")
    code: int | None = importlib.import_module(f"dpgen_jax.{name}").command(rest)
    return code


def main() -> None:
    """Runs the console script `dpgen`."""
    terminal.main(command)


if __name__ == "__main__":
    main()
