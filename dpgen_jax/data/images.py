"""Image sources that hold real records: `digits` and `idx:DIR`."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np

from dpgen_jax.data.base import Arrays, Dataset, assemble, fixed_classes, locate
from dpgen_jax.reading import CHUNK, require_memory, require_regular
from dpgen_jax.types import UserError

DIGITS_TRAIN = 1437
IDX_CLASSES = 10
IDX_MAGIC = {3: b"\0\0\x08\x03", 1: b"\0\0\x08\x01"}  # unsigned bytes, by number of dimensions


def digits(classes: int | None, image_size: int | None) -> Dataset:
    """scikit-learn's 8 x 8 digits: 1,437 train and 360 test images, by a fixed random split."""
    from sklearn.datasets import load_digits  # slow to import

    held = load_digits()
    x = np.rint(held.images * (255 / 16)).astype(np.uint8)
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:DIGITS_TRAIN], order[DIGITS_TRAIN:]
    return assemble("digits", fixed_classes("digits", 10, classes), (x[train], held.target[train]),
                    (x[test], held.target[test]), ["public data"], image_size)


def idx(given: str, classes: int | None, image_size: int | None) -> Dataset:
    """The MNIST layout: {train,t10k}-{images-idx3,labels-idx1}-ubyte, plain or .gz.

    The t10k pair may be absent. classes defaults to 10. Errors: UserError naming the file.
    """
    folder = locate(given)
    train = _idx_part(folder, "train")
    test = _idx_part(folder, "t10k") if any(folder.glob("t10k-*-ubyte*")) else None
    return assemble(folder.resolve().name, IDX_CLASSES if classes is None else classes, train, test,
                    ["image height and width are read from the file headers"], image_size)


def _idx_part(folder: Path, part: str) -> Arrays:
    images_path = _idx_file(folder, f"{part}-images-idx3-ubyte")
    labels_path = _idx_file(folder, f"{part}-labels-idx1-ubyte")
    images, labels = _read_idx(images_path, 3), _read_idx(labels_path, 1)
    if len(images) != len(labels):
        raise UserError(f"{images_path} holds {len(images)} images, {labels_path.name} "
                        f"{len(labels)} labels; fetch both files of one release")
    return images, labels


def _idx_file(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise UserError(f"{folder / name}[.gz] is missing; put it there or mend the folder")


def _read_idx(path: Path, dims: int) -> np.ndarray:
    """uint8 array of the dimensions that the header states, which must match the length: of a .gz
    file no more is unpacked than it states."""
    size, header = require_regular(path).st_size, 4 * (1 + dims)
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            shape = _idx_shape(path, file.read(header), dims)
            promised = math.prod(shape)
            if path.suffix != ".gz":
                _require_length(path, shape, size - header)
            if not promised:
                raise UserError(f"{path} holds {shape[0]} images and no pixels" if shape[0] else
                                f"{path} holds 0 {'images' if dims > 1 else 'labels'}; at least 1 "
                                "is needed")
            require_memory(f"{path}, by its header {shape},", promised)
            data = np.empty(promised, np.uint8)
            read = _fill(file, memoryview(data))
            _require_length(path, shape, read if read < promised else
                            promised + len(file.read(CHUNK)))
    except (OSError, EOFError, MemoryError, zlib.error) as error:
        raise UserError(f"{path} cannot be read ({error}); fetch it again") from error
    return data.reshape(shape)


def _idx_shape(path: Path, head: bytes, dims: int) -> tuple[int, ...]:
    if not IDX_MAGIC[dims].startswith(head[:4]):
        raise UserError(f"{path} starts with bytes {head[:4].hex()}, an idx{dims} file with "
                        f"{IDX_MAGIC[dims].hex()}; is it another file under this name?")
    if len(head) < 4 * (1 + dims):
        raise UserError(f"{path} is truncated: {len(head)} bytes, the header alone takes "
                        f"{4 * (1 + dims)}; fetch it again")
    return struct.unpack(f">{dims}I", head[4:])


def _require_length(path: Path, shape: tuple[int, ...], there: int) -> None:
    missing = math.prod(shape) - there
    if missing:
        fault = f"truncated by {missing}" if missing > 0 else f"too long by {-missing}"
        raise UserError(f"{path} is {fault} bytes against its header {shape}; fetch it again")


def _fill(file: BinaryIO, view: memoryview) -> int:
    """Reads into the view until it is full or the file ends; the bytes that were read."""
    done = 0
    while done < len(view) and (got := file.readinto(view[done:done + CHUNK])):
        done += got
    return done


def to_bytes(name: str, x: np.ndarray) -> np.ndarray:
    """uint8 images as they are; floats in [0, 1] as round(255 x)."""
    if not np.issubdtype(x.dtype, np.floating):
        return x
    bad = ~((x >= 0) & (x <= 1))  # true for NaN
    rows = np.flatnonzero(bad.any(tuple(range(1, x.ndim))))
    if rows.size:
        raise UserError(f"{name}: row {rows[0]} has values outside [0, 1] or NaN; "
                        "scale float images to [0, 1] or store uint8")
    return np.rint(x * x.dtype.type(255)).astype(np.uint8)
