"""Readers of data sets: `data.load` as `dpgen_jax.train` calls it, on a small machine."""

from pathlib import Path
from typing import Any

from benchmarks.fuzzing.readers import MACHINE, inside, shapes
from dpgen_jax import data
from dpgen_jax.core import files
from dpgen_jax.data.table import schema as schemas


def prepare() -> None:
    """Readers are told of a small machine."""
    files.machine_bytes = lambda: MACHINE


def data_set(root: Path, spec: str, **options: Any) -> dict[str, str]:
    """Shapes of what is loaded. Files that options name lie in the case's folder."""
    for name in ("schema", "test_csv"):
        if name in options:
            options[name] = str(root / options[name])
    found = data.load(inside(root, spec), **options)
    "\n".join(found.notes + found.private_notes).encode()  # a run prints them
    return shapes({"x": found.x_train, "y": found.y_train, "x_test": found.x_test,
                   "clients": found.clients}) | {"spec": repr(found.spec)[:200]}


def schema(root: Path, name: str) -> dict[str, Any]:
    found = schemas.read(str(root / name))
    return {"columns": len(found.spec.columns), "width": found.spec.shape[0]}
