"""An exported folder, which draws the records of a release with NumPy only.

It is there for the methods in `numpy_samplers`; the generators of others are networks, which need
JAX. The folder holds the arrays, this module and the others of this library that it needs, and a
program, `sample.py`, that calls `main`. `write` makes it, and only after `numpy_samplers` has drawn
the same records as the library. Whatever it imports at its top needs NumPy only.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpgen_jax.core.errors import UserError, nearest, one_line, worded
from dpgen_jax.core.schema import Column, Identifier, ImageSpec, Spec, TableSpec
from dpgen_jax.release import files, numpy_samplers, sampling
from dpgen_jax.release.sampling import CHUNK, SEEDS, Sampler, Source, finished, key_at

if TYPE_CHECKING:
    from dpgen_jax.release.bundle import Release

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
                where: Any = None, max_tries: int | None = None) -> Sampler:
        """Returns n records in blocks, as `Release.stream` of the library does.

        Raises:
            UserError: As `Sampler`, and for conditions that cannot be met.
        """
        seed = secrets.randbits(31) if seed is None else seed % SEEDS
        source = Source(functools.partial(self._draw, numpy_samplers.key_of(seed)),
                        functools.partial(finished, self.spec), self.prior)
        return Sampler(source, sampling.parse_conditions(where, self.spec), n, labels, seed,
                       max_tries)

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
    """Returns the schema that JSON describes: the fields of `TableSpec` or of `ImageSpec`."""
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
    """Returns the numbers of classes that are named, or numbered if they have no names.

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
    """Draws records from an exported folder as a command line says, and writes them to a file.

    Raises:
        UserError: For what cannot be drawn or written.
    """
    parser = argparse.ArgumentParser(
        prog="python sample.py", description="Draws synthetic records; costs no privacy.")
    parser.add_argument("--n", type=int, default=1000, help="how many")
    parser.add_argument("--out", type=Path, required=True, help="FILE.csv (tables) or FILE.npz")
    parser.add_argument("--label", nargs="+", default=[], help="classes, in equal shares")
    parser.add_argument("--where", action="append", help='a condition, as "age>=60"')
    parser.add_argument("--max-tries", type=int, help="records that may be drawn to meet --where")
    parser.add_argument("--seed", type=int, help="repeats a draw")
    args = parser.parse_args(argv)
    generator = load(folder)
    endings = [".csv", ".npz"] if isinstance(generator.spec, TableSpec) else [".npz"]
    if args.out.suffix not in endings:
        raise UserError(f"{args.out}: the ending must be one of {', '.join(endings)}")
    if args.out.exists():
        raise UserError(f"{args.out} exists; name another --out")
    sampler = generator.sampler(args.n, numbers(generator.spec, args.label), args.seed, args.where,
                                args.max_tries)
    files.write(args.out, OPENERS[args.out.suffix], generator.spec, args.n, sampler)
    print(f"guarantee: {generator.guarantee}")
    print(*sampler.report(), f"{args.n:,} synthetic records: {args.out}", sep="\n")


def main(folder: Path) -> None:
    """Runs `command` on the arguments of the process; an error is one line."""
    try:
        with worded(on_command_line=True):
            command(folder, sys.argv[1:])
    except (UserError, OSError) as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        sys.exit(2)


SOURCES = (
    "core/__init__", "core/errors", "core/schema", "data/table/__init__",
    "data/table/transform", "data/table/rules", "data/table/constraints",
    "release/__init__", "release/files", "release/sampling", "release/numpy_samplers",
    "release/standalone")
"""The files of this library that a folder holds."""
STAND_INS = {
    "__init__": '"""The parts of dpgen_jax that need NumPy alone."""\n',
    "data/__init__": '"""Tables, as codes and as the cells of a file."""\n',
    "core/types": '"""The schema and the errors."""\n\nfrom dpgen_jax.core.errors import *\n'
                  "from dpgen_jax.core.schema import *\n"}
"""Files in place of those that need more."""
PROGRAM = '''"""Draws synthetic records: python sample.py --n 1000 --out FILE, see --help."""

from pathlib import Path

from dpgen_jax.release.standalone import main

if __name__ == "__main__":
    main(Path(__file__).parent)
'''
SEED, CLOSE, ALIKE = 1, 1e-3, 0.99
"""The seed of the records that are compared, how close entries must be, and in how many records."""


def generator(release: Release) -> Generator:
    """Returns what an exported folder of a release holds.

    Raises:
        UserError: For a method that `numpy_samplers` does not have, and where NumPy does not draw
            the library's records.
    """
    from dpgen_jax import methods
    from dpgen_jax.release import guarantee

    known = numpy_samplers.SAMPLERS
    if release.classifies:
        raise UserError(f"{release.method} releases a classifier, which does not make records")
    if release.method not in known:
        raise UserError(
            f"records of {release.method} are drawn with JAX, so they cannot be exported for "
            f"NumPy, as those of {', '.join(known)} can; share release/ itself with someone who "
            "installs dpgen_jax and JAX, or share files of samples")
    arrays = methods.get(release.method).for_numpy(release.config, release.spec, release.model)
    made = Generator(release.spec, release.method, arrays, release.class_shares,
                     guarantee.line(release.privacy))
    ours, labels = next(iter(release.stream(CHUNK, seed=SEED).encoded()))
    theirs, others = next(iter(made.sampler(CHUNK, seed=SEED).encoded()))
    near = np.isclose(ours, theirs, atol=CLOSE).reshape(CHUNK, -1).all(1)
    if near.mean() < ALIKE or not np.array_equal(labels, others):
        raise UserError(f"{CHUNK - near.sum()} of {CHUNK} records that NumPy drew differ from "
                        "those of the library; share release/ itself, and report this")
    return made


def write(release: Release, out: Path) -> None:
    """Writes a folder, new or empty, that draws the records of a release with NumPy only.

    Raises:
        UserError: As `generator`.
        OSError: Where it cannot be written.
    """
    import dpgen_jax
    from dpgen_jax.core.config import to_json
    from dpgen_jax.core.files import json_bytes
    from dpgen_jax.release import documents
    from dpgen_jax.version import __version__

    made = generator(release)
    described = {"spec": to_json(made.spec), "guarantee": made.guarantee, "method": made.method,
                 "class_shares": None if made.prior is None else made.prior.tolist(),
                 "package_version": __version__}
    root = Path(dpgen_jax.__file__).parent
    sources = STAND_INS | {name: (root / f"{name}.py").read_text(encoding="utf-8")
                           for name in SOURCES}
    ending = "csv" if isinstance(made.spec, TableSpec) else "npz"
    use = documents.Use(
        "Python 3.11 or later with NumPy 2, and nothing else",
        (f"python sample.py --n 1000 --out FILE.{ending}", "python sample.py --help"), (),
        (("statement.html, README.txt", "the promise, for people"),
         ("privacy.json", "the same for programs, with each event that was charged"),
         ("generator.json, arrays.npz", "the generator"),
         ("sample.py, dpgen_jax/", "the program, and the parts of the library that it needs "
          "(Apache-2.0)")))
    with files.whole(out) as folder:
        for name, text in sources.items():
            path = folder / "dpgen_jax" / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        (folder / "sample.py").write_text(PROGRAM, encoding="utf-8")
        (folder / "generator.json").write_bytes(json_bytes(described))
        np.savez_compressed(folder / "arrays.npz", **made.arrays)  # type: ignore[arg-type]
        for name, data in documents.files(release.privacy, made.spec, use).items():
            (folder / name).write_bytes(data)
