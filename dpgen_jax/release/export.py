"""Synthetic records to files: npz, csv, a png grid, an image folder."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from dpgen_jax.core.types import Spec, TableSpec, UserError
from dpgen_jax.data import tables
from dpgen_jax.release.plots import samples_grid

Writer = Callable[[Path, np.ndarray, np.ndarray, Spec], None]


def writer(out: Path, spec: Spec) -> Writer:
    """The writer for a path, by its ending.

    Raises:
        UserError: For an ending that is not known, or not for these records.
    """
    images: dict[str, Writer] = {".npz": _npz, ".csv": _pixels, ".png": _png, "": _folder}
    known = images
    if isinstance(spec, TableSpec):
        table = spec
        known = {".npz": _npz, ".csv": lambda out, x, y, _: write_csv(out, x, y, table)}
    if out.suffix not in known:
        endings = ", ".join(ending or "none (a folder)" for ending in known)
        raise UserError(f"{out}: the ending must be one of {endings}")
    out.parent.mkdir(parents=True, exist_ok=True)
    return known[out.suffix]


def write_csv(out: Path, x: np.ndarray, y: np.ndarray, spec: TableSpec) -> None:
    """The columns of the schema in its order, as `--dataset csv:` reads them."""
    header, rows = tables.cells(spec, x, y)
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def _npz(out: Path, x: np.ndarray, y: np.ndarray, spec: Spec) -> None:
    """x_train, y_train, classes: what `--dataset npz:` reads back."""
    np.savez_compressed(out, x_train=x, y_train=y, classes=np.int64(spec.classes))


def _pixels(out: Path, x: np.ndarray, y: np.ndarray, spec: Spec) -> None:
    """label, then the pixels in rows, top left first."""
    flat = x.reshape(len(x), -1)
    header = ",".join(["label", *(f"pixel{i}" for i in range(flat.shape[1]))])
    np.savetxt(out, np.column_stack([y, flat]), fmt="%d", delimiter=",", header=header, comments="")


def _png(out: Path, x: np.ndarray, y: np.ndarray, spec: Spec) -> None:
    """A row for each class, as many columns as every class fills."""
    present = np.unique(y)
    columns = min(int((y == label).sum()) for label in present)
    picked = np.concatenate([x[y == label][:columns] for label in present])
    samples_grid(picked, out, rows=len(present), labels=[str(label) for label in present])


def _folder(out: Path, x: np.ndarray, y: np.ndarray, spec: Spec) -> None:
    """out/train/CLASS/NUMBER.png, which `--dataset folder:` reads back."""
    for label in np.unique(y):
        (out / "train" / str(label)).mkdir(parents=True, exist_ok=True)
    for i, (image, label) in enumerate(zip(x, y, strict=True)):
        Image.fromarray(image.squeeze(-1) if image.shape[-1] == 1 else image).save(
            out / "train" / str(label) / f"{i:06d}.png")
