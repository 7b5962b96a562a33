"""`femnist:FILE.h5`: handwriting by writer, in the HDF5 layout of TensorFlow Federated."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from dpgen_jax.core.reading import require_memory, require_regular
from dpgen_jax.core.types import UserError
from dpgen_jax.data.base import Dataset, assemble, frozen, locate, shown
from dpgen_jax.data.class_names import fixed_classes

CLASSES = {"fed_emnist_digitsonly": 10, "fed_emnist": 62}  # by how the file's name starts
MERGED = 36  # digits and letters, whatever their case
SMALL_LETTERS, LETTERS = 36, 26  # the first label of the 62, and how many there are
SIDE = 28


def femnist(path_text: str, classes: int | None, image_size: int | None) -> Dataset:
    """Loads handwriting by writer, of LEAF (Caldas et al. 2018).

    The file is fed_emnist_train.h5 (62 classes: digits, capitals, small letters) or
    fed_emnist_digitsonly_train.h5 (10): a group `examples` with a group per client, of `pixels`
    float [n, 28, 28] in [0, 1] and `label` int [n]. Pixels become round(255 x) and are not
    inverted: ink is dark on white paper, unlike MNIST. `clients` ranks the sorted names of the
    groups. The held-out part is the file of the same name with `test` for `train` where it lies
    beside; it has the same writers.

    With 36 declared classes the 62 of fed_emnist_train.h5 are merged: a capital and a small letter
    are one class, as Augenstein et al. 2020 and GS-WGAN (Chen et al. 2020, appendix C.2) have it.

    Args:
        path_text: The file of the training records.
        classes: The declared number of classes; needed where the file's name does not state it,
            since it is never read off the labels. 36 merges the letters' cases.
        image_size: Pixels to which images are resized, or None.

    Returns:
        The data set, with `clients`.

    Raises:
        UserError: Naming the file and the client.
    """
    path = locate(path_text)
    stated = next((count for start, count in CLASSES.items() if path.name.startswith(start)), None)
    merged = (stated, classes) == (CLASSES["fed_emnist"], MERGED)
    if stated is not None:
        classes = MERGED if merged else fixed_classes(path.name, stated, classes)
    elif classes is None:
        raise UserError(f"{path.name} does not say its number of classes, as fed_emnist_train.h5 "
                        "and fed_emnist_digitsonly_train.h5 do; pass --classes N")
    beside = path.with_name(path.name.replace("train", "test"))
    x, y, clients = _read(path, stated or classes)
    test = (_read(beside, stated or classes)[:2] if beside != path and beside.is_file() else None)
    notes = ["the number of classes is that of the data set's variant, the clients are its writers",
             "dark ink on white, as in the file"]
    if merged:
        notes.append("a capital and a small letter are one class")
        y, test = _without_case(y), test and (test[0], _without_case(test[1]))
    data = assemble(path.stem, classes, (x, y), test, notes, image_size)
    return dataclasses.replace(data, clients=frozen(clients, np.int32))


def _without_case(y: np.ndarray) -> np.ndarray:
    """Returns the labels 0..35 of labels 0..61: a small letter gets that of the capital."""
    return np.where(y < SMALL_LETTERS, y, y - LETTERS)


def _read(path: Path, classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reads images uint8 [n, 28, 28], labels [n] and the rank of each one's client [n]."""
    try:
        import h5py
    except ImportError as error:
        raise UserError("femnist needs h5py; pip install 'dpgen_jax[femnist]'") from error
    require_regular(path)
    try:
        with h5py.File(path, "r") as file:
            clients = _member(file, "examples", h5py.Group)
            if clients is None or not len(clients):
                raise UserError(f"{path} holds {shown(sorted(file) or 'nothing')}, expected a "
                                "group `examples` with a group per client")
            parts = {name: _checked(f"{path}, client {shown(name)}", clients, name)
                     for name in sorted(clients)}
            require_memory(f"{path}, by its {len(parts):,} clients,", sum(
                x.size * x.dtype.itemsize for x, _ in parts.values()))
            arrays = [_client(f"{path}, client {shown(name)}", *part, classes)
                      for name, part in parts.items()]
    except UserError:
        raise
    except Exception as error:  # h5py raises exceptions of many kinds
        reason = shown((str(error).splitlines() or [type(error).__name__])[0])
        raise UserError(f"{path} cannot be read as HDF5 ({reason}); fetch it again") from error
    sizes = [len(y) for _, y in arrays]
    x, y = (np.concatenate([part[i] for part in arrays]) for i in (0, 1))
    return x, y, np.repeat(np.arange(len(arrays)), sizes)


def _member(group: Any, name: str, kind: type) -> Any:
    """Returns a member of a group by its name; None where it is of another kind.

    A link to another file is None too: it could name any file of the machine.
    """
    import h5py

    link = group.get(name, getlink=True) if name in group else None
    return group.get(name) if isinstance(link, h5py.HardLink) and isinstance(
        group.get(name), kind) else None


def _checked(name: str, clients: Any, key: str) -> tuple[Any, Any]:
    """Returns the arrays `pixels` and `label` of a client, checked by their headers, unread."""
    import h5py

    group = _member(clients, key, h5py.Group)
    x, y = (None if group is None else _member(group, part, h5py.Dataset)
            for part in ("pixels", "label"))
    if x is None or y is None or any(part.external or part.is_virtual for part in (x, y)):
        raise UserError(f"{name}: no `pixels` and `label`; fetch the file again")
    if not x.shape or x.shape[1:] != (SIDE, SIDE) or x.dtype.kind != "f":
        raise UserError(f"{name}: pixels are {x.dtype} of shape {x.shape}, expected floats "
                        f"[n, {SIDE}, {SIDE}]")
    if y.shape != x.shape[:1] or y.dtype.kind not in "iu" or not len(y):
        raise UserError(f"{name}: {len(x)} images but label is {y.dtype} of shape {y.shape}; one "
                        "integer an image is needed, and 1 image or more")
    return x, y


def _client(name: str, pixels: Any, label: object, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Reads the images and labels of a client, and checks their values."""
    x, y = np.asarray(pixels), np.asarray(label)
    if not ((x >= 0) & (x <= 1)).all():  # NaN too
        raise UserError(f"{name}: pixels outside [0, 1] or NaN; fetch the file again")
    if not ((y >= 0) & (y < classes)).all():
        raise UserError(f"{name}: a label lies outside 0..{classes - 1}; fetch the file again, or "
                        "name its number of classes")
    return np.rint(x * x.dtype.type(255)).astype(np.uint8), y
