"""Synthetic records to a file, block by block: the file gets its name when it is whole.

If writing fails, nothing is left under that name. The module needs NumPy only.
"""

from __future__ import annotations

import contextlib
import csv
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

import numpy as np

from dpgen_jax.core.types import Spec, TableSpec, UserError
from dpgen_jax.data.table import constraints

Blocks = Iterable[tuple[np.ndarray, np.ndarray]]
"""Records as `Release.sample` returns them, with their labels."""
Write = Callable[[np.ndarray, np.ndarray], object]
"""The function that writes one block."""
Opener = Callable[[Path, Spec, int], contextlib.AbstractContextManager[Write]]
"""From a path, the schema and the number of records to what takes the blocks."""
JUDGED = 10_000
"""The records after which the size of the file is first foretold."""


def write(out: Path, opener: Opener, spec: Spec, n: int, blocks: Blocks,
          progress: Callable[[int], object] = lambda written: None) -> None:
    """Writes n records to a file or folder, which is there when all of them are in it.

    Args:
        out: The file or folder. It is replaced if it is there.
        opener: Opens it.
        spec: The schema of the records.
        n: How many there are.
        blocks: The records.
        progress: Called with the number of records after each block.

    Raises:
        UserError: From the blocks, and where the disk has no room.
        OSError: Where it cannot be written.
    """
    with whole(out) as unfinished, opener(unfinished, spec, n) as take:
        written, judged = 0, JUDGED
        for x, y in blocks:
            take(x, y)
            progress(len(y))
            written += len(y)
            if written >= judged:
                judged = 2 * written
                _require_room(out, unfinished, written, n)


@contextlib.contextmanager
def whole(out: Path) -> Iterator[Path]:
    """Gives the path to write a file or folder under, which gets its name if no error comes.

    Args:
        out: The name that it gets. A file, or an empty folder, that has it is replaced.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as place:
        yield Path(place, out.name)
        if out.is_dir():
            out.rmdir()
        os.replace(Path(place, out.name), out)


def _require_room(out: Path, unfinished: Path, written: int, n: int) -> None:
    """Refuses a file that by its first records would not fit on the disk."""
    if not unfinished.is_file():  # a folder, or nothing as yet
        return
    needed = unfinished.stat().st_size / written * (n - written)
    free = shutil.disk_usage(unfinished).free
    if needed > free:
        raise UserError(f"{out}: {n:,} records would take about {needed / 1e9:.3g} GB, and "
                        f"{free / 1e9:.3g} GB are free; ask for fewer, or name another disk")


@contextlib.contextmanager
def csv_file(out: Path, spec: Spec, n: int) -> Iterator[Write]:
    """A line of column names, then a line for each row."""
    assert isinstance(spec, TableSpec)
    table = spec
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        written = 0

        def take(x: np.ndarray, y: np.ndarray) -> None:
            nonlocal written
            names, rows = constraints.written_cells(table, x, y, written)
            if not written:
                writer.writerow(names)
            writer.writerows(rows)
            written += len(rows)

        yield take


@contextlib.contextmanager
def npz_file(out: Path, spec: Spec, n: int) -> Iterator[Write]:
    """x_train, y_train, classes: what `--dataset npz:` reads back."""
    with contextlib.ExitStack() as stack:
        archive = stack.enter_context(zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED))
        # An archive takes one array after the other, so the labels wait in a file.
        labels = stack.enter_context(tempfile.TemporaryFile(dir=out.parent))
        members = contextlib.ExitStack()
        records: list[IO[bytes]] = []

        def take(x: np.ndarray, y: np.ndarray) -> None:
            if not records:
                records.append(members.enter_context(_member(archive, "x_train", (n, *x.shape[1:]),
                                                             x.dtype)))
            records[0].write(np.ascontiguousarray(x).tobytes())
            labels.write(y.astype(np.int32).tobytes())

        with members:
            yield take
        labels.seek(0)
        with _member(archive, "y_train", (n,), np.dtype(np.int32)) as member:
            shutil.copyfileobj(labels, member)
        with _member(archive, "classes", (), np.dtype(np.int64)) as member:
            member.write(np.int64(spec.classes).tobytes())


def _member(archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], dtype: np.dtype
            ) -> IO[bytes]:
    """Opens an array of an archive, with its header written and its values to come."""
    member = archive.open(f"{name}.npy", "w", force_zip64=True)
    np.lib.format.write_array_header_1_0(member, {
        "descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape})
    return member
