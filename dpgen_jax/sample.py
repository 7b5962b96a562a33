"""Writes synthetic records of a release to a file.

    python -m dpgen_jax.sample RUN_OR_RELEASE --n N [--label L ...] [--where CONDITION]... --out OUT

The ending of the file's name decides its form.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from dpgen_jax.cli import parser, terminal
from dpgen_jax.core import storage
from dpgen_jax.core.errors import UserError
from dpgen_jax.release import guarantee


@dataclasses.dataclass(frozen=True)
class Sample:
    """The flags."""

    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_OR_RELEASE")]
    """a run folder or a release folder"""
    out: Path
    """FILE.npz, FILE.csv, of tables FILE.parquet, and of images FILE.png (a grid) or a folder (one
    PNG an image)"""
    n: int = 1000
    """number of records; they are written as they are made, so any number fits into memory"""
    label: tuple[str, ...] = ()
    """classes to draw from in equal shares; by default all, according to their released counts"""
    where: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """a condition on a column that every record meets: "age>=60", "age=18..65", "city=Rome|Oslo",
    "city!=Rome", "pay=null"; several are joined by `and`, or by several --where"""
    max_tries: int | None = None
    """records that may be drawn to find those that meet --where; by default 1,000 for each, and at
    least a million"""
    seed: int | None = None
    """repeats a draw; sampling costs no privacy"""


def command(argv: list[str]) -> None:
    """Runs the command. Raises: UserError."""
    args = parser.parse(Sample, argv, "python -m dpgen_jax.sample",
                     "Draws synthetic records from a release; costs no privacy.")
    from tqdm import tqdm

    from dpgen_jax.release import bundle, files

    storage.require_local(args.out)
    if args.out.exists() and not (args.out.is_dir() and not any(args.out.iterdir())):
        raise UserError(f"{args.out} exists; name another --out")
    release = bundle.load(args.source)
    opener = files.opener(args.out, release.spec, args.n)
    sampler = release.stream(args.n, args.label or None, args.seed, args.where or None,
                             args.max_tries)
    with tqdm(total=args.n, unit=" records", disable=None, leave=False) as bar:  # on a terminal
        files.write(args.out, opener, release.spec, args.n, sampler, bar.update)
    print(f"guarantee: {guarantee.line(release.privacy)}")
    for line in sampler.report():
        print(line)
    print(f"{args.n:,} synthetic records: {args.out}")


if __name__ == "__main__":
    terminal.main(command)
