"""The forms of files of synthetic records: npz, csv, parquet, a png grid, an image folder."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from dpgen_jax.core import files
from dpgen_jax.core.types import Spec, TableSpec, UserError
from dpgen_jax.data.table import constraints, frames
from dpgen_jax.release.files import Opener, Write, csv_file, npz_file
from dpgen_jax.release.plots import samples_grid

GRID_IMAGES = 10_000
"""The most images of one grid, which is drawn as a whole."""
GROUP_CELLS = 2**21
"""The cells of a row group of a Parquet file, at most; they are in memory together."""
FOLDER = r"[^\W_][\w (),+-]{0,99}(?<! )"
"""Names of classes that are folders on every system."""


def opener(out: Path, spec: Spec, n: int) -> Opener:
    """Returns what opens a file, by the ending of its name.

    Args:
        out: The file or folder.
        spec: The schema of the records.
        n: How many there will be.

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
        files.require_parquet()
    return known[out.suffix]


def write_csv(out: Path, x: np.ndarray, y: np.ndarray, spec: TableSpec) -> None:
    """Writes the columns of the schema in its order, as `--dataset csv:` reads them."""
    with csv_file(out, spec, len(y)) as take:
        take(x, y)


@contextlib.contextmanager
def _parquet(out: Path, spec: Spec, n: int) -> Iterator[Write]:
    """The types of `Release.frame`, which pandas gives back; a row group holds many blocks."""
    import pyarrow
    import pyarrow.parquet

    assert isinstance(spec, TableSpec)
    table, most = spec, max(1, GROUP_CELLS // (1 + len(spec.columns)))
    # Of a row without nulls, since a first group of nulls alone tells no type.
    codes = np.array([[column.low for column in spec.columns]])
    types = pyarrow.Table.from_pandas(frames.frame(spec, codes, np.zeros(1, int)),
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
        group = pyarrow.Table.from_pandas(frames.frame(table, x, y, written), types,
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
    blocks: list[tuple[np.ndarray, np.ndarray]] = []
    yield lambda x, y: blocks.append((x, y))
    x, y = (np.concatenate(part) for part in zip(*blocks, strict=True))
    present = np.unique(y)
    columns = min(int((y == label).sum()) for label in present)
    picked = np.concatenate([x[y == label][:columns] for label in present])
    names = spec.class_names or [str(label) for label in range(spec.classes)]
    samples_grid(picked, out, rows=len(present), labels=[names[label] for label in present])


def folder_names(spec: Spec) -> list[str]:
    """Returns the name of each class's folder: its own, or its number where one cannot be a folder.

    Args:
        spec: The schema of images.
    """
    names = list(spec.class_names)
    sound = all(re.fullmatch(FOLDER, name) for name in names)
    distinct = len({name.casefold() for name in names}) == spec.classes
    return names if names and sound and distinct else [str(i) for i in range(spec.classes)]


@contextlib.contextmanager
def _folder(out: Path, spec: Spec, n: int) -> Iterator[Write]:
    """out/train/CLASS/NUMBER.png, which `--dataset folder:` reads back."""
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
