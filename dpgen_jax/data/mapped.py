"""Large arrays of files, mapped into memory rather than read.

A page is loaded when it is used, and the system may drop it again: a process that deals a part of
the records to its units needs memory for these. The file must stay as it is while it is in use.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

LARGE = 2**26
"""Bytes from which an array is mapped: what is smaller is read, and its file may change then."""


def array(path: Path, dtype: np.dtype, offset: int, shape: tuple[int, ...], by_column: bool = False
          ) -> np.ndarray:
    """Maps an array, read-only.

    Args:
        path: The file, in which it lies as it is.
        dtype: The type of its elements.
        offset: The bytes before it.
        shape: Its shape.
        by_column: Whether it lies there in the order of Fortran.
    """
    return np.memmap(path, dtype, "r", offset, shape, "F" if by_column else "C")
