"""Large arrays of files, mapped into memory rather than read.

A page is loaded when it is used, and the system may drop it again: a process that deals a part of
the records to its units needs memory for these. The file must stay as it is while it is in use.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO

import numpy as np

from dpgen_jax.core import hosts, reading

LARGE = 2**26
"""Bytes from which an array is mapped: what is smaller is read, and its file may change then."""


def require_memory(what: str, size: float, beside: float = 0) -> None:
    """Before records are read, of which those from `LARGE` on lie in a file.

    A machine has these in memory as it deals them to the units that it has: of several machines
    each has a share of them.

    Args:
        what: What an error calls them.
        size: Their bytes.
        beside: The bytes of what is in memory meanwhile.

    Raises:
        UserError: They need more memory than is allowed.
    """
    reading.require_memory(what, size / (hosts.machines() if size >= LARGE else 1) + beside)


def array(file: Path | IO[bytes], dtype: np.dtype, offset: int, shape: tuple[int, ...],
          by_column: bool = False) -> np.ndarray:
    """Maps an array, read-only.

    Args:
        file: The file, in which it lies as it is; one that is open may be closed afterwards.
        dtype: The type of its elements.
        offset: The bytes before it.
        shape: Its shape.
        by_column: Whether it lies there in the order of Fortran.
    """
    return np.memmap(file, dtype, "r", offset, shape, "F" if by_column else "C")
