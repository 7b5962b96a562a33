"""Rows of arrays that lie in mapped files: they are read some at a time, and not copied as a whole.

A file must stay as it is while it is in use.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

BLOCK = 2**26
"""Bytes of rows that are read at a time."""


class Picked:
    """Some rows of an array in a file, which are read when they are asked for.

    It has of an array what those need that read it row by row, and `np.asarray` reads all.

    Attributes:
        base: The array [n, ...].
        rows: int [m], which of its rows these are, in their order.
        shape: As of an array of these rows.
        dtype: Likewise.
        ndim: Likewise.
        nbytes: Likewise.
    """

    def __init__(self, base: np.ndarray, rows: np.ndarray):
        """Picks rows.

        Args:
            base: The array [n, ...], which nobody changes.
            rows: int [m], which of its rows.
        """
        self.base, self.rows = base, rows
        self.shape = (len(rows), *base.shape[1:])
        self.dtype, self.ndim = base.dtype, base.ndim
        self.nbytes = len(rows) * base[:1].nbytes

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def __getitem__(self, rows: Any) -> np.ndarray:
        """Reads some rows.

        Args:
            rows: Which: a number, a slice, or an array of numbers or of bool.
        """
        read: np.ndarray = self.base[self.rows[rows]]
        return read

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Reads all rows into a new array."""
        return np.asarray(self[:], dtype)


def pick(array: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns rows of an array, which stay where they lie.

    Args:
        array: [n, ...], which nobody changes, or rows that were picked before.
        rows: bool [n], which of them.

    Returns:
        A `Picked`, which has of an array what reads it row by row.
    """
    base, known = ((array.base, array.rows) if isinstance(array, Picked)
                   else (array, np.arange(len(array))))
    return cast(np.ndarray, Picked(base, known[rows]))


def readable(array: Any) -> np.ndarray:
    """Returns an array as NumPy has it; rows that were picked stay in their file."""
    return cast(np.ndarray, array) if isinstance(array, Picked) else np.asarray(array)


def mapping(array: Any) -> mmap.mmap | None:
    """Returns the mapped file that an array lies in, if it is read only; None for any other.

    Args:
        array: An array, or rows that were picked.
    """
    read_only = False
    while isinstance(array, np.ndarray | Picked):
        read_only |= isinstance(array, np.memmap) and array.mode == "r"
        array = array.base
    return array if read_only and isinstance(array, mmap.mmap) else None


def forget(array: Any) -> None:
    """Lets go of the memory into which a mapped file was read; what is read again is the same.

    Args:
        array: Any array; one that lies in no file stays as it is.
    """
    lies_in = mapping(array)
    if lies_in is not None and hasattr(mmap, "MADV_DONTNEED"):
        lies_in.madvise(mmap.MADV_DONTNEED)


def blocks(array: np.ndarray, rows: int | None = None) -> Iterator[slice]:
    """Yields the places of rows, as many at a time as `BLOCK` has; what was read is let go of.

    Args:
        array: [n, ...], or rows that were picked.
        rows: How many are read in all; by default each once.
    """
    step = max(1, BLOCK * len(array) // max(1, array.nbytes))
    for first in range(0, len(array) if rows is None else rows, step):
        yield slice(first, first + step)
        forget(array)
