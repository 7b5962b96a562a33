"""python -m dpgen_jax.sample RUN_OR_RELEASE --n N [--label L ...] --out FILE.npz|.csv|.png|DIR"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from dpgen_jax import cli, guarantee
from dpgen_jax.errors import UserError


@dataclasses.dataclass(frozen=True)
class Sample:
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
    given = cli.parse(Sample, argv, "python -m dpgen_jax.sample",
                      "Draws synthetic records from a release; costs no privacy.")
    from dpgen_jax.run import bundle, export

    if given.out.exists() and not (given.out.is_dir() and not any(given.out.iterdir())):
        raise UserError(f"{given.out} exists; name another --out")
    release = bundle.load(given.source)
    write = export.writer(given.out, release.spec)
    x, y = release.sample(given.n, release.classes(given.label) or None, given.seed)
    write(given.out, x, y, release.spec)
    print(f"guarantee: {guarantee.line(release.privacy)}")
    print(f"{len(y):,} synthetic records: {given.out}")


if __name__ == "__main__":
    cli.main(command)
