"""Writes a folder that draws the records of a release with NumPy only.

    python -m dpgen_jax.export RUN_OR_RELEASE --out DIR

Whoever gets it needs neither this library nor JAX: `python DIR/sample.py --n 1000 --out FILE`. It
is there for methods whose generator is a few arrays: marginals, mixture and prototypes.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from dpgen_jax.cli import parser, terminal
from dpgen_jax.core import storage
from dpgen_jax.core.errors import UserError


@dataclasses.dataclass(frozen=True)
class Export:
    """The flags."""

    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_OR_RELEASE")]
    """a run folder or a release folder"""
    out: Path
    """the new folder"""


def command(argv: list[str]) -> None:
    """Runs the command. Raises: UserError."""
    args = parser.parse(Export, argv, "python -m dpgen_jax.export",
                     "Writes a folder that draws the records of a release with NumPy only, after "
                     "comparing it with the release; costs no privacy. Works for marginals, "
                     "mixture and prototypes; other generators need JAX.")
    from dpgen_jax.release import bundle, guarantee, standalone

    storage.require_local(args.out)
    if args.out.exists() and not (args.out.is_dir() and not any(args.out.iterdir())):
        raise UserError(f"{args.out} exists; name another --out")
    release = bundle.load(args.source)
    standalone.write(release, args.out)
    print(f"guarantee: {guarantee.line(release.privacy)}")
    print(f"to draw records with NumPy only: python {args.out / 'sample.py'} --n 1000 --out "
          f"{'synthetic.csv' if hasattr(release.spec, 'columns') else 'synthetic.npz'}")


if __name__ == "__main__":
    terminal.main(command)
