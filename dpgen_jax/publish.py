"""Publishes an upper bound on the data-dependent epsilon: python -m dpgen_jax.publish RUN.

It goes through smooth sensitivity, once, at a cost that the run's claim has from then on;
`--dry-run` says what the claim would be.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from dpgen_jax.cli import parser, terminal
from dpgen_jax.cli.terminal import print_record
from dpgen_jax.run import costs

LAST = ("no vote was read, and nothing was drawn, charged or written; to publish the bound, leave "
        "out --dry-run")


@dataclasses.dataclass(frozen=True)
class Publish:
    """The arguments of `publish`."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """the folder of a finished run of Confident-GNMax"""
    dry_run: bool = False
    """show the run's epsilon now and after publishing, without publishing or spending anything"""
    json: bool = False
    """print JSON"""


def command(argv: list[str]) -> None:
    """Publishes the bound and prints it, with the run's new claim; or says what that would be.

    Args:
        argv: The arguments after the command's name.

    Raises:
        UserError: Bad arguments, a run without such a bound, or one that has published its own.
    """
    args = parser.parse(Publish, argv, "python -m dpgen_jax.publish",
                     "Publishes an upper bound on the data-dependent epsilon of a run, once and at "
                     "a cost: the epsilon of the run rises; --dry-run shows by how much.")
    if not args.dry_run:
        print_record(costs.publish(args.run), args.json)
        return
    print_record(costs.publication_price(args.run), args.json)
    if not args.json:
        print(LAST)


if __name__ == "__main__":
    terminal.main(command)
