"""Encoded rows that come in blocks, and whose number is known at their end.

A table of less than `mapped.LARGE` bytes is in memory. Of a larger one the rows are written as they
come, to a file without a name in the cache folder, and mapped: a process then needs memory for a
block, and for what it deals to its units. What comes in one block, as a frame does, is in memory as
a whole anyway, and stays there: it is never written to a disk.
"""

from __future__ import annotations

from types import TracebackType
from typing import IO

import numpy as np

from dpgen_jax.data import cache, mapped


class Rows:
    """Rows float32 [n, F] that grow; left by `with`, they leave no file open."""

    def __init__(self, width: int):
        """Begins without a row.

        Args:
            width: F.
        """
        self._rows = np.empty((0, width), np.float32)
        self._count = 0
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Rows:
        """Returns the rows."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """Closes the file, which is gone then unless `all` mapped it."""
        if self._file is not None:
            self._file.close()

    def add(self, rows: np.ndarray) -> None:
        """Adds a block.

        Args:
            rows: Float [m, F].

        Raises:
            UserError: The rows are large, and the cache folder cannot be written.
        """
        first, self._count = self._count, self._count + len(rows)
        width = self._rows.shape[1]
        if self._file is None and first and (
                self._count * width * self._rows.itemsize >= mapped.LARGE):
            self._file = cache.nameless()
            self._write(self._rows[:first])
            self._rows = np.empty((0, width), np.float32)
        if self._file is not None:
            self._write(np.ascontiguousarray(rows, np.float32))
            return
        if self._count > len(self._rows):  # in place: no second copy
            self._rows.resize((self._count + first // 8, width), refcheck=False)
        self._rows[first:self._count] = rows

    def all(self) -> np.ndarray:
        """Returns all rows, float32 [n, F], read-only if they are mapped; none is added after."""
        shape = self._count, self._rows.shape[1]
        if self._file is not None:
            return mapped.array(self._file, self._rows.dtype, 0, shape)
        self._rows.resize(shape, refcheck=False)
        return self._rows

    def _write(self, rows: np.ndarray) -> None:
        """Writes rows behind those that are in the file."""
        left = rows.reshape(-1).view(np.uint8).data
        try:
            while left and self._file:  # one call may write a part
                left = left[self._file.write(left):]
        except OSError as error:
            raise cache.unusable(cache.location(), error) from error


def notes(*parts: np.ndarray | None) -> tuple[str, ...]:
    """Returns the line for the data holder on where rows lie, where that is on a disk.

    Args:
        parts: Rows as `Rows.all` returned them, or None.
    """
    if not any(isinstance(rows, np.memmap) for rows in parts):
        return ()
    return (f"encoded rows lie in a file without a name under {cache.location()}, until this "
            "process ends",)
