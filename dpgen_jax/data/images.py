"""Image sources of handwritten digits: `digits` and `idx:DIR`."""

from __future__ import annotations

import gzip
import math
import re
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from dpgen_jax.core import checks
from dpgen_jax.core.reading import CHUNK, content_of, require_memory, require_regular
from dpgen_jax.core.types import UserError
from dpgen_jax.data import mapped
from dpgen_jax.data.base import Arrays, Dataset, assemble, locate
from dpgen_jax.data.class_names import FASHION, fixed_classes, official

DIGITS_TRAIN = 1437
IDX_CLASSES = 10
IDX_MAGIC = {3: b"\0\0\x08\x03", 1: b"\0\0\x08\x01"}  # unsigned bytes, by number of dimensions


def digits(classes: int | None, image_size: int | None) -> Dataset:
    """Loads scikit-learn's 8 x 8 digits: 1,437 train and 360 test images, by a fixed random split.

    Args:
        classes: The number of classes that the user declares, or None.
        image_size: Pixels to which images are resized, or None.

    Raises:
        UserError: The user declares another number of classes.
    """
    from sklearn.datasets import load_digits  # slow to import

    source = load_digits()
    x = np.rint(source.images * (255 / 16)).astype(np.uint8)
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:DIGITS_TRAIN], order[DIGITS_TRAIN:]
    y = source.target
    return assemble("digits", fixed_classes("digits", 10, classes), (x[train], y[train]),
                    (x[test], y[test]), ["public data"], image_size)


def idx(path: str, classes: int | None, image_size: int | None) -> Dataset:
    """Loads the MNIST layout: {train,t10k}-{images-idx3,labels-idx1}-ubyte, plain or .gz.

    Args:
        path: The folder; the t10k pair may be absent.
        classes: The declared number of classes; 10 by default.
        image_size: Pixels to which images are resized, or None.

    Returns:
        The data set.

    Raises:
        UserError: Naming the file.
    """
    folder = locate(path)
    train = _idx_part(folder, "train")
    test = _idx_part(folder, "t10k") if any(folder.glob("t10k-*-ubyte*")) else None
    data = assemble(folder.resolve().name, IDX_CLASSES if classes is None else classes, train, test,
                    ["image height and width are read from the file headers"], image_size)
    called = {re.sub("[^a-z]", "", part.lower()) for part in folder.resolve().parts[-2:]}
    return official(data, FASHION if called & {"fashion", "fashionmnist"} else ())


def content(path: str) -> str:
    """Returns a digest of the training images and labels, in hex. It is as private as these.

    Args:
        path: The folder, as `idx` takes it.

    Raises:
        UserError: Naming the file that is missing.
    """
    names = (f"train-{part}-ubyte" for part in ("images-idx3", "labels-idx1"))
    return "".join(content_of(_idx_file(locate(path), name)) for name in names)


def _idx_part(folder: Path, part: str) -> Arrays:
    """Reads the images and labels of one part."""
    images_path = _idx_file(folder, f"{part}-images-idx3-ubyte")
    labels_path = _idx_file(folder, f"{part}-labels-idx1-ubyte")
    images, labels = _read_idx(images_path, 3), _read_idx(labels_path, 1)
    if len(images) != len(labels):
        raise UserError(f"{images_path} holds {len(images)} images, {labels_path.name} "
                        f"{len(labels)} labels; fetch both files of one release")
    return images, labels


def _idx_file(folder: Path, name: str) -> Path:
    """Returns the path of a file, plain or .gz."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise UserError(f"{folder / name}[.gz] is missing; put it there or mend the folder")


def _read_idx(path: Path, dims: int) -> np.ndarray:
    """Reads an array uint8 of the dimensions that the header states.

    The length must match: of a .gz file no more is unpacked than the header states.
    """
    size, header = require_regular(path).st_size, 4 * (1 + dims)
    try:
        with _open(path) as file:
            shape = _idx_shape(path, file.read(header), dims)
            promised = math.prod(shape)
            if path.suffix != ".gz":
                _require_length(path, shape, size - header)
            if not promised:
                raise UserError(f"{path} holds {shape[0]} images and no pixels" if shape[0] else
                                f"{path} holds 0 {'images' if dims > 1 else 'labels'}; at least 1 "
                                "is needed")
            if path.suffix != ".gz" and promised >= mapped.LARGE:
                return mapped.array(path, np.dtype(np.uint8), header, shape)
            require_memory(f"{path}, by its header {shape},", promised)
            data = np.empty(promised, np.uint8)
            read = _fill(file, data.data)
            _require_length(path, shape, read if read < promised else
                            promised + len(file.read(CHUNK)))
    except (OSError, EOFError, MemoryError, zlib.error) as error:
        raise UserError(f"{path} cannot be read ({error}); fetch it again") from error
    return data.reshape(shape)


def _open(path: Path) -> BinaryIO:
    """Opens a file, plain or .gz."""
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _idx_shape(path: Path, head: bytes, dims: int) -> tuple[int, ...]:
    """Returns the shape that a header states."""
    if not IDX_MAGIC[dims].startswith(head[:4]):
        raise UserError(f"{path} starts with bytes {head[:4].hex()}, an idx{dims} file with "
                        f"{IDX_MAGIC[dims].hex()}; is it another file under this name?")
    if len(head) < 4 * (1 + dims):
        raise UserError(f"{path} is truncated: {len(head)} bytes, the header alone takes "
                        f"{4 * (1 + dims)}; fetch it again")
    return struct.unpack(f">{dims}I", head[4:])


def _require_length(path: Path, shape: tuple[int, ...], present: int) -> None:
    """Compares the bytes that are present with the header."""
    missing = math.prod(shape) - present
    if missing:
        fault = f"truncated by {missing}" if missing > 0 else f"too long by {-missing}"
        raise UserError(f"{path} is {fault} bytes against its header {shape}; fetch it again")


def _fill(file: BinaryIO, view: memoryview) -> int:
    """Reads into the view until it is full or the file ends; returns the bytes that were read."""
    done = 0
    while chunk := file.read(min(CHUNK, len(view) - done)):
        view[done:done + len(chunk)] = chunk
        done += len(chunk)
    return done


def to_bytes(name: str, x: np.ndarray) -> np.ndarray:
    """Returns images as bytes: uint8 unchanged, floats in [0, 1] as round(255 x).

    Args:
        name: The name of the array, for errors.
        x: Images of any shape; other types than floats are returned as they are.

    Raises:
        UserError: Naming the first image with a value outside of [0, 1].
    """
    if not np.issubdtype(x.dtype, np.floating):
        return x
    checks.unit_range(name, x)
    return np.rint(x * x.dtype.type(255)).astype(np.uint8)
