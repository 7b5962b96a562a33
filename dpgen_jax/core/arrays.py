"""Arrays of records: rows of mapped files read in blocks, checks, and digests.

The arrays of a large data set stay in mapped files. Their rows are read a block at a time and are
never copied as a whole. A file must not change while it is in use.

All code that takes arrays from outside uses the checks. An error names the part of the data at
fault, such as "train" or "synthetic", and the remedy. A message may quote a label or a row number,
so it is for the data holder only.

The digests of many records are one array of bytes, 16 for each record. As Python objects they would
take six times as much memory, and sorting them would take longer than computing them.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterable, Iterator
from typing import Any, cast

import numpy as np

from dpgen_jax.core.errors import UserError

BLOCK = 2**26
"""Bytes of rows read at a time."""


class Picked:
    """Some rows of an array in a file, read on use.

    It has the part of an array's interface for reading by rows; `np.asarray` reads all.

    Attributes:
        base: The array [n, ...].
        rows: int [m], the indices of these rows, in order.
        dtype: Likewise.
        ndim: Likewise.
        nbytes: Likewise.
    """

    def __init__(self, base: np.ndarray, rows: np.ndarray):
        self.base, self.rows = base, rows
        self.shape = (len(rows), *base.shape[1:])
        self.dtype, self.ndim = base.dtype, base.ndim
        self.nbytes = len(rows) * base[:1].nbytes

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def __getitem__(self, rows: Any) -> np.ndarray:
        """Reads some rows: by a number, a slice, or an array of numbers or of bool."""
        read: np.ndarray = self.base[self.rows[rows]]
        return read

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Reads all rows into a new array."""
        return np.asarray(self[:], dtype)


def pick(array: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns rows of an array [n, ...], selected by bool [n], as a `Picked`, without reading them.

    The array must not change; it may be a `Picked`.
    """
    base, known = ((array.base, array.rows) if isinstance(array, Picked)
                   else (array, np.arange(len(array))))
    return cast(np.ndarray, Picked(base, known[rows]))


def readable(array: Any) -> np.ndarray:
    """Returns a NumPy array; a `Picked` is returned unread."""
    return cast(np.ndarray, array) if isinstance(array, Picked) else np.asarray(array)


def mapping(array: Any) -> mmap.mmap | None:
    """Returns the mapped file of an array if it is read-only; else None."""
    read_only = False
    while isinstance(array, np.ndarray | Picked):
        read_only |= isinstance(array, np.memmap) and array.mode == "r"
        array = array.base
    return array if read_only and isinstance(array, mmap.mmap) else None


def forget(array: Any) -> None:
    """Frees the memory into which a mapped file was read; the file can be read again.

    It has no effect on an array that is not in a file.
    """
    lies_in = mapping(array)
    if lies_in is not None and hasattr(mmap, "MADV_DONTNEED"):
        lies_in.madvise(mmap.MADV_DONTNEED)


def blocks(array: np.ndarray, rows: int | None = None) -> Iterator[slice]:
    """Yields the indices of rows in blocks of `BLOCK` bytes; frees the previous block.

    `rows` is the total number to read; by default each row once.
    """
    step = max(1, BLOCK * len(array) // max(1, array.nbytes))
    for first in range(0, len(array) if rows is None else rows, step):
        yield slice(first, first + step)
        forget(array)


def check_images(part: str, x: np.ndarray) -> np.ndarray:
    """Returns images [n, H, W] or [n, H, W, ch] as [n, H, W, ch] of 1 or 3 channels.

    Raises:
        UserError: For any other shape.
    """
    if x.ndim == 3:
        x = x[..., None]
    if x.ndim != 4 or x.shape[3] not in (1, 3):
        raise UserError(f"{part}: images have shape {x.shape}, expected [n, H, W] or [n, H, W, ch] "
                        "with 1 or 3 channels")
    return x


def check_labels(part: str, y: np.ndarray, n: int, classes: int | None = None, *,
                 empty: np.ndarray | None = None) -> None:
    """Checks that labels [n] are integers of the declared classes; None: from 0 on.

    `empty`, bool [n], marks empty slots, whose labels are ignored.

    Raises:
        UserError: For another shape or type, and for a label outside the declared classes.
    """
    expected = "integers from 0" if classes is None else f"integers 0..{classes - 1}"
    if y.shape != (n,):
        raise UserError(f"{part}: {n} records but labels of shape {y.shape}; one label per record "
                        "is needed")
    if not np.issubdtype(y.dtype, np.integer):
        raise UserError(f"{part}: labels are {y.dtype}, expected {expected}")
    outside = y < 0 if classes is None else (y < 0) | (y >= classes)
    rows = np.flatnonzero(outside if empty is None else outside & ~empty)
    if rows.size:
        raise UserError(f"{part}: label {y[rows[0]]} in row {rows[0]} is outside the declared "
                        f"{expected.removeprefix('integers ')}; correct the row or declare more "
                        "classes")


def check_unit_range(part: str, x: np.ndarray, tolerance: float = 0.0) -> None:
    """Checks that all values [n, ...] are numbers in [0, 1], or at most `tolerance` beyond.

    Rows of a mapped file are read in blocks.

    Raises:
        UserError: Naming the first row with another value; NaN is one.
    """
    for some in blocks(x):
        rows = x[some]
        if not rows.size or (rows.min() >= -tolerance and rows.max() <= 1 + tolerance):
            continue  # NaN fails both
        bad = ~((rows >= -tolerance) & (rows <= 1 + tolerance))
        row = some.start + np.flatnonzero(bad.reshape(len(rows), -1).any(1))[0]
        raise UserError(f"{part}: row {row} has values outside [0, 1] or NaN; scale images to "
                        "[0, 1] or store them as uint8, and encode rows with their schema")


AT_ONCE = 2**22
"""Bytes of rows copied at once."""


def digests_of(messages: Iterable[Any], size: int, *, key: bytes = b"",
               person: bytes = b"") -> np.ndarray:
    """Returns the BLAKE2b digests of messages: uint8 [n, size], size a multiple of 8.

    `person` separates digests for different purposes of the same messages.
    """
    made = b"".join(hashlib.blake2b(message, digest_size=size, key=key, person=person).digest()
                    for message in messages)
    return np.frombuffer(made, np.uint8).reshape(-1, size)


def digest_rows(*columns: np.ndarray) -> Iterator[memoryview]:
    """Yields the bytes of each row of columns [n, ...]: all its values in order."""
    n = len(columns[0])
    step = max(1, AT_ONCE * n // max(1, sum(column.nbytes for column in columns)))
    for start in range(0, n, step):
        parts = [np.ascontiguousarray(column[start:start + step]) for column in columns]
        whole = np.concatenate([part.view(np.uint8).reshape(len(part), -1) for part in parts], 1)
        content, width = memoryview(whole.tobytes()), whole.shape[1]
        for i in range(len(whole)):
            yield content[i * width:(i + 1) * width]
        for column in columns:
            forget(column)


def order_of_digests(digests: np.ndarray, last: np.ndarray | None = None) -> np.ndarray:
    """Returns the indices that sort digests uint8 [n, m] by their bytes: int64 [n].

    The sort is stable. m is a multiple of 8. `last`, bool [n], marks digests that come after all
    others, in the same order.
    """
    words = np.ascontiguousarray(digests).view(">u8").T[::-1]
    return np.lexsort(words if last is None else (*words, last))


def counted_before(digests: np.ndarray) -> np.ndarray:
    """Returns how many equal digests precede each, of uint8 [n, m]: int64 [n]."""
    at = order_of_digests(digests)
    new = np.ones(len(at), bool)
    new[1:] = (digests[at[1:]] != digests[at[:-1]]).any(1)
    start = np.flatnonzero(new)
    result = np.empty(len(at), np.int64)
    result[at] = np.arange(len(at)) - start[np.cumsum(new) - 1]
    return result
