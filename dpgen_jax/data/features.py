"""Features of a public network as a table: the arrays [n, F] of an npz file.

Feature i is the column `fi`, a number from 0 to a public bound. A row is a function of its own
record alone, so that replacing a record replaces one row. Beside the arrays that `npz` reads, the
file may have `features_bound` (1 by default), `features_empty` bool [n] (the empty slots),
`features_class_names`, `features_notes`, and `features_uncovered` [k, 2], the pairs of `Uncovered`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dpgen_jax.core import checks
from dpgen_jax.core.reading import require_memory
from dpgen_jax.core.types import EMPTY, Column, TableSpec, UserError
from dpgen_jax.data.base import Arrays, Dataset, Uncovered, frozen, safe_name, shown
from dpgen_jax.data.schema_label import MAX_CLASSES

MEMBERS = tuple(f"features_{name}" for name in ("bound", "empty", "class_names", "notes",
                                                "uncovered"))


def spec(count: int, bound: float, class_names: tuple[str, ...]) -> TableSpec:
    """Returns the schema of features.

    Args:
        count: F, the number of features.
        bound: The public bound of a feature.
        class_names: The names of the classes.
    """
    digits = len(str(count - 1))
    columns = tuple(Column(f"f{i:0{digits}}", "continuous", 0.0, bound) for i in range(count))
    return TableSpec(columns, Column("class", "categorical", categories=class_names), count)


def encode(features: np.ndarray, bound: float) -> np.ndarray:
    """Clips features to [0, bound] and divides them by it: each entry by itself.

    Args:
        features: float [n, F].
        bound: A constant that no private record decided.

    Returns:
        float32 [n, F] in [0, 1]; what is no number becomes 0.
    """
    return np.clip(np.nan_to_num(features / np.float32(bound), nan=0.0), 0, 1).astype(np.float32)


def arrays(data: Dataset, train: np.ndarray, test: np.ndarray | None, bound: float,
           notes: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Returns the arrays of a file of features, by name.

    Args:
        data: The data set of images whose features they are.
        train: Encoded features of its training records, [n, F]; an empty slot's are not kept.
        test: Likewise of the held-out part, or None.
        bound: What they were divided by.
        notes: Public lines on how they were made, of which no record decides anything.
    """
    empty = data.y_train == EMPTY
    stored: dict[str, np.ndarray] = {
        "x_train": np.where(empty[:, None], np.float32(0), train),
        "y_train": np.where(empty, 0, data.y_train), "classes": np.array(data.spec.classes),
        "features_bound": np.array(bound), "features_empty": empty,
        "features_class_names": np.array(data.spec.class_names, str),
        "features_notes": np.array([*data.notes, *notes], str),
        "features_uncovered": np.array(
            [(part.what, part.declare) for part in data.uncovered], str).reshape(-1, 2)}
    if test is not None and data.y_test is not None:
        stored |= {"x_test": test, "y_test": data.y_test}
    if data.clients is not None:
        stored["client_id"] = data.clients
    return {name: array for name, array in stored.items() if array.size}


def from_arrays(path: Path, stored: dict[str, np.ndarray], classes: int) -> Dataset:
    """Makes a data set of the arrays of a file.

    Args:
        path: The file, for its name and for errors.
        stored: Its arrays, by name.
        classes: The number of classes.

    Returns:
        The data set: a table, without clients.

    Raises:
        UserError: Naming the array and the row.
    """
    if not 1 <= classes <= MAX_CLASSES:
        raise UserError(f"{path}: {classes} classes declared; declare 1 to {MAX_CLASSES:,}")
    bound = _bound(path, stored.get("features_bound", np.array(1.0)))
    count = len(stored["x_train"])
    empty = stored.get("features_empty", np.zeros(count, bool))
    if empty.shape != (count,) or empty.dtype != bool:
        raise UserError(f"{path}: features_empty is {empty.dtype} of shape {empty.shape}; one bool "
                        "a training record is needed")
    x, y = _part(path, stored, "train", classes, empty)
    x_test = y_test = None
    if "x_test" in stored:
        x_test, y_test = _part(path, stored, "test", classes)
        if x_test.shape[1] != x.shape[1]:
            raise UserError(f"{path}: {x.shape[1]} features of training records and "
                            f"{x_test.shape[1]} of test records; compute both by one network")
    names = tuple(_texts(path, stored, "class_names")) or tuple(map(str, range(classes)))
    if len(names) != classes or len({*names}) != classes:
        raise UserError(f"{path}: {len(names)} class names for {classes} classes; name each once")
    uncovered = tuple(Uncovered(*pair) for pair in _texts(path, stored, "uncovered", 2))
    notes = tuple(_texts(path, stored, "notes")) or (
        "the number of features is read from the array shapes; features are the user's own",)
    return Dataset(safe_name(path.stem), spec(x.shape[1], bound, names), x, y, x_test, y_test,
                   notes, uncovered=uncovered)


def _bound(path: Path, stored: np.ndarray) -> float:
    """Returns the bound that a file states."""
    if stored.size == 1 and stored.dtype.kind in "fiu" and 0 < stored.item() < np.inf:
        return float(stored.item())
    raise UserError(f"{path}: features_bound is no number above 0; save the bound that features "
                    "were divided by")


def _part(path: Path, stored: dict[str, np.ndarray], part: str, classes: int,
          empty: np.ndarray | None = None) -> Arrays:
    """Returns the features and labels of one part, checked and read-only."""
    x, y = stored[f"x_{part}"], stored[f"y_{part}"]
    name = f"{path}, x_{part}"
    if x.ndim != 2 or not np.issubdtype(x.dtype, np.floating):
        raise UserError(f"{name} is {x.dtype} of shape {x.shape}; features are floats [n, F] in "
                        "[0, 1]")
    require_memory(f"{name} as float32", 4 * x.size)
    checks.unit_range(name, x)
    checks.labels(f"{path}, y_{part}", y, len(x), classes, empty=empty)
    y = y.astype(np.int32)  # of an unsigned type EMPTY would be a class
    if empty is not None and empty.any():
        if x[empty].any():
            raise UserError(f"{name}: an empty slot has features; make the file again")
        y = np.where(empty, EMPTY, y)
    return frozen(x, np.float32), frozen(y, np.int32)


def _texts(path: Path, stored: dict[str, np.ndarray], name: str, width: int = 0) -> list[Any]:
    """Returns a list of texts, or of tuples of `width` texts; none where the file has none."""
    texts = stored.get(f"features_{name}", np.zeros((0, width) if width else 0, str))
    if texts.dtype.kind != "U" or texts.shape[1:] != ((width,) if width else ()):
        raise UserError(f"{path}: features_{name} is {shown(texts.dtype)} of shape {texts.shape}; "
                        "make the file again")
    return [tuple(map(str, row)) if width else str(row) for row in texts]
