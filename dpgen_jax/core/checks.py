"""Checks of arrays of records, shared by everything that takes them from outside.

Each names the part of the data at fault, such as "train" or "synthetic", and the mend. A message
may quote a label or a row number, so it is for the data holder only.
"""

from __future__ import annotations

import numpy as np

from dpgen_jax.core import picked
from dpgen_jax.core.errors import UserError


def images(part: str, x: np.ndarray) -> np.ndarray:
    """Checks the shape of images.

    Args:
        part: What an error calls them.
        x: Images [n, H, W] or [n, H, W, ch].

    Returns:
        Images [n, H, W, ch] of 1 or 3 channels.

    Raises:
        UserError: For any other shape.
    """
    if x.ndim == 3:
        x = x[..., None]
    if x.ndim != 4 or x.shape[3] not in (1, 3):
        raise UserError(f"{part}: images have shape {x.shape}, expected [n, H, W] or [n, H, W, ch] "
                        "with 1 or 3 channels")
    return x


def labels(part: str, y: np.ndarray, n: int, classes: int | None = None, *,
           empty: np.ndarray | None = None) -> None:
    """Checks labels.

    Args:
        part: What an error calls them.
        y: Labels [n], integers.
        n: The number of records.
        classes: The number of declared classes; None: any label from 0 on.
        empty: bool [n], the records that are empty slots, whose labels are not looked at.

    Raises:
        UserError: For another shape or type, and for a label outside the declared classes.
    """
    expected = "integers from 0" if classes is None else f"integers 0..{classes - 1}"
    if y.shape != (n,):
        raise UserError(f"{part}: {n} records but labels of shape {y.shape}; one label a record is "
                        "needed")
    if not np.issubdtype(y.dtype, np.integer):
        raise UserError(f"{part}: labels are {y.dtype}, expected {expected}")
    outside = y < 0 if classes is None else (y < 0) | (y >= classes)
    rows = np.flatnonzero(outside if empty is None else outside & ~empty)
    if rows.size:
        raise UserError(f"{part}: label {y[rows[0]]} in row {rows[0]} is outside the declared "
                        f"{expected.removeprefix('integers ')}; mend the row or declare more "
                        "classes")


def unit_range(part: str, x: np.ndarray, tolerance: float = 0.0) -> None:
    """Checks that all values are numbers in [0, 1].

    Args:
        part: What an error calls the records.
        x: Records [n, ...], float, which are read in blocks where they lie in a mapped file.
        tolerance: How far beyond 0 and 1 a value may lie.

    Raises:
        UserError: Naming the first row with another value; NaN is one.
    """
    for some in picked.blocks(x):
        rows = x[some]
        if not rows.size or (rows.min() >= -tolerance and rows.max() <= 1 + tolerance):
            continue  # NaN fails both
        bad = ~((rows >= -tolerance) & (rows <= 1 + tolerance))
        row = some.start + np.flatnonzero(bad.reshape(len(rows), -1).any(1))[0]
        raise UserError(f"{part}: row {row} has values outside [0, 1] or NaN; scale images to "
                        "[0, 1] or store them as uint8, and encode rows with their schema")
