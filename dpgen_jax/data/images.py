"""Image sources that hold real records: `digits`, `idx:DIR`, `npz:FILE`."""

from __future__ import annotations

import dataclasses
import gzip
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from dpgen_jax.data.base import Arrays, Dataset, assemble, fixed_classes, frozen, locate
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
    """uint8 array of the dimensions that the header states, which must match the length."""
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read ({error}); fetch it again") from error
    header = 4 * (1 + dims)
    if not IDX_MAGIC[dims].startswith(data[:4]):
        raise UserError(f"{path} starts with bytes {data[:4].hex()}, an idx{dims} file with "
                        f"{IDX_MAGIC[dims].hex()}; is it another file under this name?")
    if len(data) < header:
        raise UserError(f"{path} is truncated: {len(data)} bytes, the header alone takes {header}; "
                        "fetch it again")
    shape = struct.unpack(f">{dims}I", data[4:header])
    missing = int(np.prod(shape, dtype=object)) - (len(data) - header)
    if missing:
        fault = f"truncated by {missing}" if missing > 0 else f"too long by {-missing}"
        raise UserError(f"{path} is {fault} bytes against its header {shape}; fetch it again")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def npz(given: str, classes: int | None, image_size: int | None) -> Dataset:
    """Arrays x_train [n, H, W] or [n, H, W, ch] (uint8, or float in [0, 1]), y_train int [n].

    x_test and y_test alike, both or none. The number of classes is the argument or else an
    integer `classes` in the file; it is never read off the labels, which are private.
    client_id [n], integers or strings, names the holder of each training record and may be absent.
    """
    path = locate(given)
    held = _read_npz(path)
    missing = [name for name in ("x_train", "y_train") if name not in held]
    if missing or ("x_test" in held) != ("y_test" in held):
        raise UserError(f"{path} holds {sorted(held) or 'no arrays'}; x_train and y_train are "
                        "needed, x_test and y_test may come together")
    if classes is None:
        classes = _stored_classes(path, held)
    train, test = (
        (to_bytes(f"{path}, x_{part}", held[f"x_{part}"]), held[f"y_{part}"])
        if f"x_{part}" in held else None for part in ("train", "test"))
    data = assemble(path.stem, classes, train, test,
                    ["image height, width and channels are read from the array shapes"], image_size)
    clients = _ranked(path, held.get("client_id"), len(data.y_train))
    return dataclasses.replace(data, clients=clients)


def _ranked(path: Path, named: np.ndarray | None, count: int) -> np.ndarray | None:
    """int32 [n]: the rank 0..U-1 of each record's client among the sorted names."""
    if named is None:
        return None
    if named.shape != (count,):
        raise UserError(f"{path}: {count} training images but client_id of shape {named.shape}; "
                        "one client an image is needed")
    if named.dtype.kind not in "iuUS":
        raise UserError(f"{path}: client_id is {named.dtype}; store integers or strings")
    return frozen(np.unique(named, return_inverse=True)[1], np.int32)


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        opened = np.load(path, allow_pickle=False)
        if isinstance(opened, np.ndarray):
            raise UserError(f"{path} is a single .npy array; save x_train and y_train "
                            "with np.savez")
        with opened:
            wanted = {"x_train", "y_train", "x_test", "y_test", "classes", "client_id"}
            return {name: opened[name] for name in opened.files if name in wanted}
    except UserError:
        raise
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path} cannot be read as npz without pickles ({reason}); save it again "
                        "with np.savez and plain arrays") from error


def _stored_classes(path: Path, held: dict[str, np.ndarray]) -> int:
    stored = held.get("classes")
    if stored is None or stored.size != 1 or not np.issubdtype(stored.dtype, np.integer):
        raise UserError(f"{path} does not state its number of classes; pass --classes N or store "
                        "an integer `classes` (reading it off the labels would release private "
                        "information)")
    return int(stored.item())


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
