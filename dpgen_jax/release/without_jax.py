"""A folder that draws the records of a release with NumPy only: its arrays, its program, a reader.

The program is traced from the method's own `sample`. The reader consists of files of this library
that need NumPy only. The folder is written only after the program has drawn the same records as the
library.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

import dpgen_jax
from dpgen_jax.core.config import to_json
from dpgen_jax.core.files import json_bytes
from dpgen_jax.core.types import UserError
from dpgen_jax.release import bundle, documents, files, guarantee, tracing
from dpgen_jax.release.bundle import Release
from dpgen_jax.release.sampling import CHUNK
from dpgen_jax.release.standalone import records
from dpgen_jax.version import __version__

SOURCES = (
    "version", "core/__init__", "core/errors", "core/schema", "data/table/__init__",
    "data/table/transform", "data/table/constraints",
    "release/__init__", "release/files", "release/sampling", "release/standalone/__init__",
    "release/standalone/program", "release/standalone/records")
"""The files of this library that a folder holds."""
STAND_INS = {
    "__init__": '"""The parts of dpgen_jax that need NumPy alone."""\n',
    "data/__init__": '"""Tables, as codes and as the cells of a file."""\n',
    "core/types": '"""The schema and the errors."""\n\nfrom dpgen_jax.core.errors import *\n'
                  "from dpgen_jax.core.schema import *\n"}
"""Files in place of those that need more."""
PROGRAM = '''"""Draws synthetic records: python sample.py --n 1000 --out FILE, see --help."""

from pathlib import Path

from dpgen_jax.release.standalone.records import main

if __name__ == "__main__":
    main(Path(__file__).parent)
'''
SEED, CLOSE, ALIKE = 1, 1e-3, 0.99
"""The seed of the records that are compared, how close entries must be, and in how many records."""


def generator(release: Release) -> records.Generator:
    """Traces a release.

    Args:
        release: The release of a generator.

    Returns:
        What an exported folder holds.

    Raises:
        UserError: For a classifier, for an operation that a folder does not have, and where it does
            not draw the library's records.
    """
    if release.classifies:
        raise UserError(f"{release.method} releases a classifier, which makes no records to export")
    sample = bundle.built_model(release.method, release.config, release.spec).sample
    assert sample is not None
    leaves, tree = jax.tree.flatten(release.model)

    def draw(leaves: list[Any], key: Any, labels: Any) -> Any:
        return sample(jax.tree.unflatten(tree, leaves), jax.random.wrap_key_data(key), labels)

    program, constants = tracing.traced(
        draw, leaves, np.zeros(2, np.uint32), np.zeros(CHUNK, np.int32))
    # The arrays come first, then the key and the labels.
    inputs, many = program["inputs"], len(leaves)
    program["inputs"] = inputs[:many] + inputs[many + 2:] + inputs[many:many + 2]
    arrays = tuple(map(np.asarray, (*leaves, *constants)))
    shares = release.class_shares
    made = records.Generator(release.spec, program, arrays, shares, guarantee.line(release.privacy))
    _require_equal(release, made)
    return made


def _require_equal(release: Release, made: records.Generator) -> None:
    """Compares records of a release with those of its program."""
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
    names = [jax.tree_util.keystr(path, simple=True, separator="/")
             for path, _ in jax.tree_util.tree_leaves_with_path(release.model)]
    names += [f"constant{i}" for i in range(len(made.arrays) - len(names))]
    described = {"spec": to_json(made.spec), "guarantee": made.guarantee, "arrays": names,
                 "class_shares": None if made.prior is None else made.prior.tolist(),
                 "package_version": __version__, "program": made.program}
    with files.whole(out) as folder:
        for name, text in _sources().items():
            path = folder / "dpgen_jax" / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        (folder / "sample.py").write_text(PROGRAM, encoding="utf-8")
        (folder / "program.json").write_bytes(json_bytes(described))
        arrays: dict[str, Any] = dict(zip(names, made.arrays, strict=True))
        np.savez_compressed(folder / "arrays.npz", **arrays)
        written = documents.files(release.privacy, made.spec, _use(hasattr(made.spec, "columns")))
        for name, data in written.items():
            (folder / name).write_bytes(data)


def _sources() -> dict[str, str]:
    """The text of each file of the library in a folder, by its name."""
    root = Path(dpgen_jax.__file__).parent
    return STAND_INS | {name: (root / f"{name}.py").read_text(encoding="utf-8")
                        for name in SOURCES}


def _use(table: bool) -> documents.Use:
    """How such a folder is used."""
    return documents.Use(
        "Python 3.11 or later with NumPy 2, and nothing else",
        (f"python sample.py --n 1000 --out {'FILE.csv' if table else 'FILE.npz'}",
         "python sample.py --help"), (),
        (("statement.html, README.txt", "the promise, for people"),
         ("privacy.json", "the same for programs, with each event that was charged"),
         ("program.json, arrays.npz", "the generator, as steps that read arrays"),
         ("sample.py, dpgen_jax/", "the program, and the parts of the library that it needs "
          "(Apache-2.0)")))
