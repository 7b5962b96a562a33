"""`femnist:FILE.h5`: handwriting by writer, in the HDF5 layout of TensorFlow Federated."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from dpgen_jax.data.base import Dataset, assemble, fixed_classes, frozen, locate, shown
from dpgen_jax.reading import require_memory, require_regular
from dpgen_jax.types import UserError

CLASSES = {"fed_emnist_digitsonly": 10, "fed_emnist": 62}  # by how the file's name starts
SIDE = 28


def femnist(given: str, classes: int | None, image_size: int | None) -> Dataset:
    """fed_emnist_train.h5 (62 classes: digits, capitals, small letters) or
    fed_emnist_digitsonly_train.h5 (10), of LEAF (Caldas et al. 2018).

    A group `examples` with a group per client, which holds `pixels` float [n, 28, 28] in [0, 1] and
    `label` int [n]. Pixels become round(255 x) and are not inverted: ink is dark on white paper,
    unlike MNIST. `clients` ranks the sorted names of the groups. The held-out part is the file of
    the same name with `test` for `train` where it lies beside; it has the same writers.
    classes: by the file's name; needed for a file of another name. Never read off the labels.
    Errors: UserError naming the file and the client.
    """
    path = locate(given)
    known = next((count for start, count in CLASSES.items() if path.name.startswith(start)), None)
    if known is not None:
        classes = fixed_classes(path.name, known, classes)
    elif classes is None:
        raise UserError(f"{path.name} does not say its number of classes, as fed_emnist_train.h5 "
                        "and fed_emnist_digitsonly_train.h5 do; pass --classes N")
    beside = path.with_name(path.name.replace("train", "test"))
    x, y, clients = _read(path, classes)
    test = _read(beside, classes)[:2] if beside != path and beside.is_file() else None
    notes = ["the number of classes is that of the data set's variant, the clients are its writers",
             "dark ink on white, as in the file"]
    data = assemble(path.stem, classes, (x, y), test, notes, image_size)
    return dataclasses.replace(data, clients=frozen(clients, np.int32))


def _read(path: Path, classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images uint8 [n, 28, 28], labels [n] and the rank of each one's client [n]."""
    try:
        import h5py
    except ImportError as error:
        raise UserError("femnist needs h5py; pip install 'dpgen_jax[femnist]'") from error
    require_regular(path)
    try:
        with h5py.File(path, "r") as file:
            clients = _own(file, "examples", h5py.Group)
            if clients is None or not len(clients):
                raise UserError(f"{path} holds {shown(sorted(file) or 'nothing')}, expected a "
                                "group `examples` with a group per client")
            named = {name: _checked(f"{path}, client {shown(name)}", clients, name)
                     for name in sorted(clients)}
            require_memory(f"{path}, by its {len(named):,} clients,", sum(
                x.size * x.dtype.itemsize for x, _ in named.values()))
            parts = [_client(f"{path}, client {shown(name)}", *held, classes)
                     for name, held in named.items()]
    except UserError:
        raise
    except Exception as error:  # h5py raises kinds of many sorts
        reason = shown((str(error).splitlines() or [type(error).__name__])[0])
        raise UserError(f"{path} cannot be read as HDF5 ({reason}); fetch it again") from error
    sizes = [len(y) for _, y in parts]
    x, y = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    return x, y, np.repeat(np.arange(len(parts)), sizes)


def _own(group: Any, name: str, kind: type) -> Any:
    """What the group itself holds under a name; None for another kind, and for a link to another
    file, which may be anything."""
    import h5py

    link = group.get(name, getlink=True) if name in group else None
    return group.get(name) if isinstance(link, h5py.HardLink) and isinstance(
        group.get(name), kind) else None


def _checked(name: str, clients: Any, key: str) -> tuple[Any, Any]:
    """The data sets `pixels` and `label` of a client, by their headers: nothing is read."""
    import h5py

    held = _own(clients, key, h5py.Group)
    x, y = (None if held is None else _own(held, part, h5py.Dataset)
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


def _client(name: str, pixels: Any, label: Any, classes: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(pixels), np.asarray(label)
    if not ((x >= 0) & (x <= 1)).all():  # NaN too
        raise UserError(f"{name}: pixels outside [0, 1] or NaN; fetch the file again")
    if not ((y >= 0) & (y < classes)).all():
        raise UserError(f"{name}: a label lies outside 0..{classes - 1}; fetch the file again, or "
                        "name its number of classes")
    return np.rint(x * x.dtype.type(255)).astype(np.uint8), y
