"""`cifar10:DIR`: the official batches of CIFAR-10, binary or for Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from dpgen_jax.core.reading import read_bytes, require_memory, require_regular
from dpgen_jax.core.types import UserError
from dpgen_jax.data.base import Arrays, Dataset, assemble, locate
from dpgen_jax.data.batches import read_batch
from dpgen_jax.data.class_names import CIFAR10, fixed_classes, official

CLASSES = 10
SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32
BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")


def cifar10(path: str, classes: int | None, image_size: int | None) -> Dataset:
    """Loads the official batches, RGB of 32 x 32 pixels.

    They are cifar-10-batches-bin (records of a label and 3,072 bytes) or cifar-10-batches-py
    (pickles, which are parsed, never executed).

    Args:
        path: That folder, or the one that contains it.
        classes: The number of classes that the user declares, or None.
        image_size: Pixels to which images are resized, or None.

    Returns:
        The data set.

    Raises:
        UserError: Naming the file and the record.
    """
    root = locate(path)
    classes = fixed_classes("cifar10", CLASSES, classes)
    read, paths = _layout(root)
    require_memory(f"the batches in {root}", sum(require_regular(batch).st_size for batch in paths))
    parts = [read(batch) for batch in paths]
    x, y = (np.concatenate(arrays) for arrays in zip(*parts[:-1], strict=True))
    data = assemble("cifar10", classes, (x, y), parts[-1], ["public data"], image_size)
    return official(data, CIFAR10)


def _layout(root: Path) -> tuple[Callable[[Path], Arrays], list[Path]]:
    """Returns the reader of the layout, and the paths of the five training batches and the test."""
    for folder, suffix, read in (("cifar-10-batches-bin", ".bin", _binary),
                                 ("cifar-10-batches-py", "", _pickled)):
        for parent in (root, root / folder):
            paths = [parent / f"{name}{suffix}" for name in BATCHES]
            missing = [path for path in paths if not path.is_file()]
            if not missing:
                return read, paths
            if len(missing) < len(paths):
                raise UserError(f"{missing[0]} is missing; unpack the archive again")
    raise UserError(f"{root} holds neither data_batch_1.bin nor data_batch_1; give the folder "
                    "cifar-10-batches-bin or cifar-10-batches-py")


def _binary(path: Path) -> Arrays:
    """Reads a batch of binary records."""
    data = read_bytes(path)
    if not data or len(data) % (1 + PIXELS):
        raise UserError(f"{path} has {len(data)} bytes, no multiple of {1 + PIXELS}: truncated, or "
                        "another file; unpack the archive again")
    records = np.frombuffer(data, np.uint8).reshape(-1, 1 + PIXELS)
    return _arrays(path, records[:, 1:], records[:, 0])


def _pickled(path: Path) -> Arrays:
    """Reads a batch for Python."""
    return _arrays(path, *read_batch(str(path), read_bytes(path), PIXELS))


def _arrays(path: Path, pixels: np.ndarray, labels: np.ndarray) -> Arrays:
    """Returns images [n, 32, 32, 3] of pixels [n, 3072], channel after channel, and the labels."""
    outside = np.flatnonzero((labels < 0) | (labels >= CLASSES))
    if outside.size:
        raise UserError(f"{path}: label {labels[outside[0]]} in record {outside[0]} is outside "
                        f"0..{CLASSES - 1}; unpack the archive again")
    return pixels.reshape(-1, *SHAPE).transpose(0, 2, 3, 1), labels.astype(np.int64)
