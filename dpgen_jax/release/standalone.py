"""An exported folder: its records, block by block, and the program that writes them to a file.

The module needs NumPy only, and so does all that it imports.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import secrets
import sys
from pathlib import Path
from typing import Any

import numpy as np

from dpgen_jax.core.errors import UserError, nearest, one_line
from dpgen_jax.core.schema import Column, Identifier, ImageSpec, Spec, TableSpec
from dpgen_jax.release import files, numpy_samplers, sampling
from dpgen_jax.release.sampling import CHUNK, SEEDS, Sampler, Source, finished, key_at

OPENERS = {".csv": files.csv_file, ".npz": files.npz_file}


@dataclasses.dataclass(frozen=True)
class Generator:
    """A generator as a folder stores it.

    Attributes:
        spec: The schema of the records.
        method: The name of the method, by which `numpy_samplers` has its sampler.
        arrays: The arrays [...] that the sampler reads, by name.
        prior: The share of each class, [C]; None: equal shares, in turn.
        guarantee: The line that states it.
    """

    spec: Spec
    method: str
    arrays: dict[str, np.ndarray]
    prior: np.ndarray | None
    guarantee: str

    def sampler(self, n: int, labels: np.ndarray | None = None, seed: int | None = None,
                where: Any = None) -> Sampler:
        """Returns n records in blocks, as `Release.stream` of the library does.

        Args:
            n: How many.
            labels: Classes int [k] to draw from in equal shares; None: all.
            seed: To repeat a draw.
            where: Conditions, as texts or as a dict.

        Raises:
            UserError: As `Sampler`, and for conditions that cannot be met.
        """
        seed = secrets.randbits(31) if seed is None else seed % SEEDS
        source = Source(functools.partial(self._draw, numpy_samplers.key_of(seed)),
                        functools.partial(finished, self.spec), self.prior)
        return Sampler(source, sampling.parse_conditions(where, self.spec), n, labels, seed)

    def _draw(self, key: np.ndarray, start: int, labels: np.ndarray) -> np.ndarray:
        # A block of fixed length, as the library draws: its random numbers depend on the length.
        padded = np.zeros(CHUNK, np.int32)
        padded[:len(labels)] = labels
        sample = numpy_samplers.SAMPLERS[self.method]
        return sample(self.arrays, key_at(numpy_samplers.fold_in, key, start),
                      padded)[:len(labels)]


def load(folder: Path) -> Generator:
    """Reads an exported folder."""
    described = json.loads((folder / "generator.json").read_text(encoding="utf-8"))
    with np.load(folder / "arrays.npz") as arrays:
        values = dict(arrays)
    prior = described["class_shares"]
    return Generator(schema(described["spec"]), described["method"], values,
                     None if prior is None else np.array(prior), described["guarantee"])


def schema(value: dict[str, Any]) -> Spec:
    """Returns the schema that JSON describes.

    Args:
        value: The fields of `TableSpec` or of `ImageSpec`.
    """
    def fields(part: dict[str, Any]) -> dict[str, Any]:
        return {name: tuple(entry) if isinstance(entry, list) else entry
                for name, entry in part.items()}

    if "columns" not in value:
        return ImageSpec(**fields(value))
    return TableSpec(**fields(value) | {
        "columns": tuple(Column(**fields(column)) for column in value["columns"]),
        "gaps": tuple(map(tuple, value.get("gaps", ()))),
        "label": Column(**fields(value["label"])),
        "identifiers": tuple(Identifier(**fields(column))
                             for column in value.get("identifiers", ()))})


def numbers(spec: Spec, names: list[str]) -> np.ndarray | None:
    """Returns the numbers of classes that are named; None for none.

    Args:
        spec: The schema.
        names: Names of classes, or their numbers where they have no names.

    Raises:
        UserError: For an unknown one.
    """
    known = [*(spec.class_names or map(str, range(spec.classes)))]
    for name in names:
        if name not in known:
            raise UserError(f"label {name!r} is not one of {', '.join(known[:20])}"
                            f"{nearest(name, known)}")
    return np.array([known.index(name) for name in names]) if names else None


def command(folder: Path, argv: list[str]) -> None:
    """Draws records from an exported folder, and writes them to a file.

    Args:
        folder: The folder.
        argv: The arguments of the command line, without the program.

    Raises:
        UserError: For what cannot be drawn or written.
    """
    parser = argparse.ArgumentParser(
        prog="python sample.py", description="Draws synthetic records; costs no privacy.")
    parser.add_argument("--n", type=int, default=1000, help="how many")
    parser.add_argument("--out", type=Path, required=True, help="FILE.csv (tables) or FILE.npz")
    parser.add_argument("--label", nargs="+", default=[], help="classes, in equal shares")
    parser.add_argument("--where", action="append", help='a condition, as "age>=60"')
    parser.add_argument("--seed", type=int, help="repeats a draw")
    args = parser.parse_args(argv)
    generator = load(folder)
    endings = [".csv", ".npz"] if isinstance(generator.spec, TableSpec) else [".npz"]
    if args.out.suffix not in endings:
        raise UserError(f"{args.out}: the ending must be one of {', '.join(endings)}")
    if args.out.exists():
        raise UserError(f"{args.out} exists; name another --out")
    sampler = generator.sampler(args.n, numbers(generator.spec, args.label), args.seed, args.where)
    files.write(args.out, OPENERS[args.out.suffix], generator.spec, args.n, sampler)
    print(f"guarantee: {generator.guarantee}")
    print(*sampler.report(), f"{args.n:,} synthetic records: {args.out}", sep="\n")


def main(folder: Path) -> None:
    """Runs `command` on the arguments of the process; an error is one line.

    Args:
        folder: The folder.
    """
    try:
        command(folder, sys.argv[1:])
    except (UserError, OSError) as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        sys.exit(2)
