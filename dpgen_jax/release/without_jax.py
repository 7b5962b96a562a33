"""A folder that draws the records of a release with NumPy only: arrays, a sampler, a reader.

It is there for the methods in `numpy_samplers`; the generators of others are networks, which need
JAX. The program consists of files of this library that need NumPy only. The folder is written only
after the program has drawn the same records as the library.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import dpgen_jax
from dpgen_jax import methods
from dpgen_jax.core.config import to_json
from dpgen_jax.core.files import json_bytes
from dpgen_jax.core.types import UserError
from dpgen_jax.release import documents, files, guarantee
from dpgen_jax.release.bundle import Release
from dpgen_jax.release.numpy_samplers import SAMPLERS
from dpgen_jax.release.sampling import CHUNK
from dpgen_jax.release.standalone import Generator
from dpgen_jax.version import __version__

SOURCES = (
    "version", "core/__init__", "core/errors", "core/schema", "data/table/__init__",
    "data/table/forms", "data/table/transform", "data/table/constraints",
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
    if release.classifies:
        raise UserError(f"{release.method} releases a classifier, which makes no records to export")
    if release.method not in SAMPLERS:
        raise UserError(
            f"records of {release.method} are drawn with JAX, so no folder can draw them with "
            f"NumPy alone, as it can those of {', '.join(SAMPLERS)}; share release/ itself, for "
            "someone who installs dpgen_jax and JAX with it, or share files of samples")
    arrays = methods.get(release.method).for_numpy(release.config, release.spec, release.model)
    made = Generator(release.spec, release.method, arrays, release.class_shares,
                     guarantee.line(release.privacy))
    _require_equal(release, made)
    return made


def _require_equal(release: Release, made: Generator) -> None:
    """Compares records of a release with those of an exported folder."""
    ours, labels = next(iter(release.stream(CHUNK, seed=SEED).encoded()))
    theirs, others = next(iter(made.sampler(CHUNK, seed=SEED).encoded()))
    near = np.isclose(ours, theirs, atol=CLOSE).reshape(CHUNK, -1).all(1)
    if near.mean() < ALIKE or not np.array_equal(labels, others):
        raise UserError(f"{CHUNK - near.sum()} of {CHUNK} records that NumPy drew are not those of "
                        "the library; share release/ itself, and report this")


def write(release: Release, out: Path) -> None:
    """Writes a folder that draws the records of a release with NumPy only.

    Args:
        release: The release of a generator.
        out: The folder, which must be new or empty.

    Raises:
        UserError: As `generator`.
        OSError: Where it cannot be written.
    """
    made = generator(release)
    described = {"spec": to_json(made.spec), "guarantee": made.guarantee, "method": made.method,
                 "class_shares": None if made.prior is None else made.prior.tolist(),
                 "package_version": __version__}
    root = Path(dpgen_jax.__file__).parent
    sources = STAND_INS | {name: (root / f"{name}.py").read_text(encoding="utf-8")
                           for name in SOURCES}
    with files.whole(out) as folder:
        for name, text in sources.items():
            path = folder / "dpgen_jax" / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        (folder / "sample.py").write_text(PROGRAM, encoding="utf-8")
        (folder / "generator.json").write_bytes(json_bytes(described))
        np.savez_compressed(folder / "arrays.npz", **made.arrays)  # type: ignore[arg-type]
        written = documents.files(release.privacy, made.spec, _use(hasattr(made.spec, "columns")))
        for name, data in written.items():
            (folder / name).write_bytes(data)


def _use(table: bool) -> documents.Use:
    """How such a folder is used."""
    return documents.Use(
        "Python 3.11 or later with NumPy 2, and nothing else",
        (f"python sample.py --n 1000 --out {'FILE.csv' if table else 'FILE.npz'}",
         "python sample.py --help"), (),
        (("statement.html, README.txt", "the promise, for people"),
         ("privacy.json", "the same for programs, with each event that was charged"),
         ("generator.json, arrays.npz", "the generator"),
         ("sample.py, dpgen_jax/", "the program, and the parts of the library that it needs "
          "(Apache-2.0)")))
