"""`cifar10:DIR`: the official batches of CIFAR-10, binary or for Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from dpgen_jax.data.base import Arrays, Dataset, assemble, fixed_classes, locate
from dpgen_jax.data.batches import read_batch
from dpgen_jax.reading import read_bytes, require_memory, require_regular
from dpgen_jax.types import UserError

CLASSES = 10
SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32
BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")


def cifar10(given: str, classes: int | None, image_size: int | None) -> Dataset:
    """cifar-10-batches-bin (records of a label and 3,072 bytes) or cifar-10-batches-py (pickles,
    which are read, never executed); DIR is that folder or the one it lies in. RGB, 32 x 32.

    Errors: UserError naming the file and the record.
    """
    root = locate(given)
    classes = fixed_classes("cifar10", CLASSES, classes)
    read, paths = _layout(root)
    require_memory(f"the batches in {root}", sum(require_regular(path).st_size for path in paths))
    parts = [read(path) for path in paths]
    train = tuple(np.concatenate(arrays) for arrays in zip(*parts[:-1], strict=True))
    return assemble("cifar10", classes, train, parts[-1], ["public data"], image_size)


def _layout(root: Path) -> tuple[Callable[[Path], Arrays], list[Path]]:
    """How to read the batches that are there, and the five of training and one of testing."""
    for folder, suffix, read in (("cifar-10-batches-bin", ".bin", _binary),
                                 ("cifar-10-batches-py", "", _pickled)):
        for place in (root, root / folder):
            paths = [place / f"{name}{suffix}" for name in BATCHES]
            missing = [path for path in paths if not path.is_file()]
            if not missing:
                return read, paths
            if len(missing) < len(paths):
                raise UserError(f"{missing[0]} is missing; unpack the archive again")
    raise UserError(f"{root} holds neither data_batch_1.bin nor data_batch_1; give the folder "
                    "cifar-10-batches-bin or cifar-10-batches-py")


def _binary(path: Path) -> Arrays:
    data = read_bytes(path)
    if not data or len(data) % (1 + PIXELS):
        raise UserError(f"{path} has {len(data)} bytes, no multiple of {1 + PIXELS}: truncated, or "
                        "another file; unpack the archive again")
    records = np.frombuffer(data, np.uint8).reshape(-1, 1 + PIXELS)
    return _arrays(path, records[:, 1:], records[:, 0])


def _pickled(path: Path) -> Arrays:
    return _arrays(path, *read_batch(str(path), read_bytes(path), PIXELS))


def _arrays(path: Path, pixels: np.ndarray, labels: np.ndarray) -> Arrays:
    """[n, 3072], channel after channel, to [n, 32, 32, 3]; labels int64 [n]."""
    outside = np.flatnonzero((labels < 0) | (labels >= CLASSES))
    if outside.size:
        raise UserError(f"{path}: label {labels[outside[0]]} in record {outside[0]} is outside "
                        f"0..{CLASSES - 1}; unpack the archive again")
    return pixels.reshape(-1, *SHAPE).transpose(0, 2, 3, 1), labels.astype(np.int64)
