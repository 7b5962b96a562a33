"""Writes synthetic records of a release to a file.

    python -m dpgen_jax.sample RUN_OR_RELEASE --n N [--label L ...] --out FILE.npz|.csv|.png|DIR

The ending of the file's name decides its form.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from dpgen_jax.core import cli
from dpgen_jax.core.errors import UserError
from dpgen_jax.release import guarantee


@dataclasses.dataclass(frozen=True)
class Sample:
    """The flags."""

    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_OR_RELEASE")]
    """a run folder or a release folder"""
    out: Path
    """FILE.npz, FILE.csv, and for images FILE.png (a grid) or a folder (one PNG an image)"""
    n: int = 1000
    """how many"""
    label: tuple[str, ...] = ()
    """classes to draw from in equal shares; if left out all, as their released counts say"""
    seed: int | None = None
    """repeats a draw; sampling costs no privacy"""


def command(argv: list[str]) -> None:
    """Runs the command. Raises: UserError."""
    args = cli.parse(Sample, argv, "python -m dpgen_jax.sample",
                     "Draws synthetic records from a release; costs no privacy.")
    from dpgen_jax.release import bundle, export

    if args.out.exists() and not (args.out.is_dir() and not any(args.out.iterdir())):
        raise UserError(f"{args.out} exists; name another --out")
    release = bundle.load(args.source)
    write = export.writer(args.out, release.spec)
    x, y = release.sample(args.n, release.classes(args.label) or None, args.seed)
    write(args.out, x, y, release.spec)
    print(f"guarantee: {guarantee.line(release.privacy)}")
    print(f"{len(y):,} synthetic records: {args.out}")


if __name__ == "__main__":
    cli.main(command)
