"""Files of synthetic records: npz, csv, parquet, a png grid, an image folder.

Records are written block by block. A file gets its name when it is whole: if writing fails, nothing
is left under that name. The forms npz and csv need NumPy only.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import math
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from dpgen_jax.core.types import Spec, TableSpec, UserError
from dpgen_jax.data.table import constraints

Blocks = Iterable[tuple[np.ndarray, np.ndarray]]
"""Records as `Release.arrays` returns them, with their labels."""
Write = Callable[[np.ndarray, np.ndarray], object]
"""The function that writes one block."""
Opener = Callable[[Path, Spec, int], contextlib.AbstractContextManager[Write]]
"""From a path, the schema and the number of records to what takes the blocks."""
JUDGED = 10_000
"""The records after which the size of the file is first foretold."""
GRID_IMAGES = 10_000
"""The most images of one grid, which is drawn as a whole."""
GROUP_CELLS = 2**21
"""The cells of a row group of a Parquet file, at most; they are in memory together."""
FOLDER = r"[^\W_][\w (),+-]{0,99}(?<! )"
"""Names of classes that are folders on every system."""


def opener(out: Path, spec: Spec, n: int) -> Opener:
    """Returns what opens a file for n records, by the ending of its name.

    Raises:
        UserError: For an ending that is not known or not for these records, for a grid of too many,
            for more rows than there are identifiers, and without the packages of a Parquet file.
    """
    known = TABLES if isinstance(spec, TableSpec) else IMAGES
    if out.suffix not in known:
        endings = ", ".join(ending or "none (a folder)" for ending in known)
        raise UserError(f"{out}: the ending must be one of {endings}")
    if known[out.suffix] is _png and n > GRID_IMAGES:
        raise UserError(f"{out}: {n:,} images are too many for one grid; ask for {GRID_IMAGES:,} "
                        "or fewer, or name a folder or an .npz file")
    if isinstance(spec, TableSpec) and out.suffix != ".npz":
        for identifier in spec.identifiers:
            constraints.require_identifiers(identifier, n)
    if known[out.suffix] is _parquet:
        from dpgen_jax.core.files import require_parquet

        require_parquet()
    return known[out.suffix]


def write(out: Path, opener: Opener, spec: Spec, n: int, blocks: Blocks,
          progress: Callable[[int], object] = lambda written: None) -> None:
    """Writes n records to a file or folder, which is there when all of them are in it.

    What is there is replaced. `progress` is called with the number of records of each block.

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

    A file, or an empty folder, that has this name is replaced.
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
                        f"{free / 1e9:.3g} GB are free; draw fewer, or name another disk")


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


def write_csv(out: Path, x: np.ndarray, y: np.ndarray, spec: TableSpec) -> None:
    """Writes the columns of the schema in its order, as `--dataset csv:` reads them."""
    with csv_file(out, spec, len(y)) as take:
        take(x, y)


@contextlib.contextmanager
def _parquet(out: Path, spec: Spec, n: int) -> Iterator[Write]:
    """The types of `Release.frame`, which pandas gives back; a row group holds many blocks."""
    import pyarrow
    import pyarrow.parquet

    from dpgen_jax.release import frames

    assert isinstance(spec, TableSpec)
    table, most = dataclasses.replace(spec, numbered=()), max(
        1, GROUP_CELLS // (1 + len(spec.columns)))  # a file has texts as names
    # From a row without nulls, since a first group of only nulls has no type.
    codes = np.array([[column.low for column in spec.columns]])
    types = pyarrow.Table.from_pandas(frames.to_frame(table, codes, np.zeros(1, int)),
                                      preserve_index=False).schema
    blocks: list[tuple[np.ndarray, np.ndarray]] = []
    writers: list[Any] = []
    written = 0

    def flush() -> None:
        nonlocal written
        if not blocks:
            return
        x, y = (np.concatenate(part) for part in zip(*blocks, strict=True))
        blocks.clear()
        group = pyarrow.Table.from_pandas(frames.to_frame(table, x, y, written), types,
                                          preserve_index=False)
        written += len(y)
        if not writers:
            writers.append(stack.enter_context(pyarrow.parquet.ParquetWriter(out, types)))
        writers[0].write_table(group)

    def take(x: np.ndarray, y: np.ndarray) -> None:
        blocks.append((x, y))
        if sum(len(labels) for _, labels in blocks) >= most:
            flush()

    with contextlib.ExitStack() as stack:
        yield take
        flush()


@contextlib.contextmanager
def _pixels(out: Path, spec: Spec, n: int) -> Iterator[Write]:
    """label, then the pixels in rows, top left first."""
    with out.open("w", encoding="utf-8") as file:
        names = ("label", *(f"pixel{i}" for i in range(math.prod(spec.shape))))
        file.write(",".join(names) + "\n")
        yield lambda x, y: np.savetxt(file, np.column_stack([y, x.reshape(len(x), -1)]), fmt="%d",
                                      delimiter=",")


@contextlib.contextmanager
def _png(out: Path, spec: Spec, n: int) -> Iterator[Write]:
    """A row for each class, as many columns as every class fills."""
    from dpgen_jax.release.plots import samples_grid

    blocks: list[tuple[np.ndarray, np.ndarray]] = []
    yield lambda x, y: blocks.append((x, y))
    x, y = (np.concatenate(part) for part in zip(*blocks, strict=True))
    present = np.unique(y)
    columns = min(int((y == label).sum()) for label in present)
    picked = np.concatenate([x[y == label][:columns] for label in present])
    names = spec.class_names or [str(label) for label in range(spec.classes)]
    samples_grid(picked, out, rows=len(present), labels=[names[label] for label in present])


def folder_names(spec: Spec) -> list[str]:
    """Returns the names of the classes' folders: class names, or numbers if one is unusable."""
    names = list(spec.class_names)
    sound = all(re.fullmatch(FOLDER, name) for name in names)
    distinct = len({name.casefold() for name in names}) == spec.classes
    return names if names and sound and distinct else [str(i) for i in range(spec.classes)]


@contextlib.contextmanager
def _folder(out: Path, spec: Spec, n: int) -> Iterator[Write]:
    """out/train/CLASS/NUMBER.png, which `--dataset folder:` reads back."""
    from PIL import Image

    digits, written, names = max(6, len(str(n - 1))), 0, folder_names(spec)

    def take(x: np.ndarray, y: np.ndarray) -> None:
        nonlocal written
        for label in np.unique(y):
            (out / "train" / names[label]).mkdir(parents=True, exist_ok=True)
        for i, (image, label) in enumerate(zip(x, y, strict=True), written):
            Image.fromarray(image.squeeze(-1) if image.shape[-1] == 1 else image).save(
                out / "train" / names[label] / f"{i:0{digits}d}.png")
        written += len(y)

    yield take


TABLES: dict[str, Opener] = {".npz": npz_file, ".csv": csv_file, ".parquet": _parquet}
IMAGES: dict[str, Opener] = {".npz": npz_file, ".csv": _pixels, ".png": _png, "": _folder}
