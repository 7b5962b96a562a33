"""`npz:FILE`: arrays of images or features, whose headers are checked before anything is read."""

from __future__ import annotations

import dataclasses
import math
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dpgen_jax.core.reading import CHUNK, require_memory, require_regular
from dpgen_jax.core.types import UserError
from dpgen_jax.data import features, mapped
from dpgen_jax.data.base import Arrays, Dataset, assemble, frozen, listed, locate, shown
from dpgen_jax.data.images import to_bytes

MEMBERS = ("x_train", "y_train", "x_test", "y_test", "classes", "client_id", *features.MEMBERS)
KINDS = "biufcSU"
"""The kinds of arrays that are read without executing anything; what fits is checked after."""
MEMBER_HEADER = 30
"""The bytes of the header of a member of a zip file that come before its two fields of any length,
whose lengths are the last four of them."""
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def npz(path_text: str, classes: int | None, image_size: int | None) -> Dataset:
    """Loads images, or features, and labels from arrays.

    The file has x_train [n, H, W] or [n, H, W, ch] (uint8, or float in [0, 1]) and y_train int [n];
    x_test and y_test alike, both or none; and client_id [n], integers or strings, the client of
    each training record, or none. Arrays float [n, F] in [0, 1] are features, which make a table
    (`features`).

    Args:
        path_text: The file.
        classes: The number of classes; None for an integer `classes` in the file. It is never read
            off the labels, which are private.
        image_size: Pixels to which images are resized, or None.

    Returns:
        The data set.

    Raises:
        UserError: Naming the file and the array.
    """
    path = locate(path_text)
    arrays = _read_npz(path)
    missing = [name for name in ("x_train", "y_train") if name not in arrays]
    if missing or ("x_test" in arrays) != ("y_test" in arrays):
        raise UserError(f"{path} holds {_named(path) or 'no arrays'}; x_train and y_train are "
                        "needed, x_test and y_test may come together")
    if classes is None:
        classes = _stored_classes(path, arrays)
    if arrays["x_train"].ndim == 2:
        if image_size is not None:
            raise UserError(f"{path} holds features, no images; drop --image-size")
        data = features.from_arrays(path, arrays, classes)
    else:
        train = _part(path, arrays, "train")
        test = _part(path, arrays, "test") if "x_test" in arrays else None
        data = assemble(path.stem, classes, train, test,
                        ["image height, width and channels are read from the array shapes"],
                        image_size)
    clients = _ranked(path, arrays.get("client_id"), len(data.y_train))
    return dataclasses.replace(data, clients=clients)


def _part(path: Path, arrays: dict[str, np.ndarray], part: str) -> Arrays:
    """Returns the images, as bytes, and the labels of one part."""
    return to_bytes(f"{path}, x_{part}", arrays[f"x_{part}"]), arrays[f"y_{part}"]


def _ranked(path: Path, clients: np.ndarray | None, count: int) -> np.ndarray | None:
    """Returns the rank 0..U-1 of each record's client among the sorted names: int32 [n]."""
    if clients is None:
        return None
    if clients.shape != (count,):
        raise UserError(f"{path}: {count} training images but client_id of shape {clients.shape}; "
                        "one client an image is needed")
    if clients.dtype.kind not in "iuUS":
        raise UserError(f"{path}: client_id is {clients.dtype}; store integers or strings")
    return frozen(np.unique(clients, return_inverse=True)[1], np.int32)


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    """Reads the arrays of `MEMBERS` that the file has."""
    require_regular(path)
    with path.open("rb") as file:
        if file.read(6) == b"\x93NUMPY":
            raise UserError(f"{path} is a single .npy array; save x_train and y_train with "
                            "np.savez")
    try:
        with zipfile.ZipFile(path) as archive:
            members = dict(_members(path, archive))
            total = sum(member.file_size for member in members.values() if not _is_mapped(member))
            require_memory(f"{path}, whose arrays unpack to that,", total)
            return {name: _array(path, name, archive, member) for name, member in members.items()}
    except UserError:
        raise
    except Exception as error:  # zip, its compressions and numpy raise their own
        reason = shown(str(error).splitlines()[0]) if str(error) else type(error).__name__
        raise UserError(f"{path} cannot be read as npz without pickles ({reason}); save it again "
                        "with np.savez and plain arrays") from error


def _named(path: Path) -> str:
    """Returns the names of all arrays of a file that has been read."""
    with zipfile.ZipFile(path) as archive:
        return listed(sorted(shown(name.removesuffix(".npy"))[:80] for name in archive.namelist()))


def _members(path: Path, archive: zipfile.ZipFile) -> Iterator[tuple[str, zipfile.ZipInfo]]:
    """Yields the members of the archive that are read, with their names."""
    names: set[str] = set()
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if name in MEMBERS:
            if name in names:
                raise UserError(f"{path} holds {name} twice; save it again with np.savez")
            names.add(name)
            yield name, member


def _is_mapped(member: zipfile.ZipInfo) -> bool:
    """Whether the array of a member lies in the file as it is, and is large."""
    return member.compress_type == zipfile.ZIP_STORED and member.file_size >= mapped.LARGE


def _array(path: Path, array: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo
           ) -> np.ndarray:
    """Reads the array of a member, once its header is that of a plain one of the member's size."""
    name = f"{path}, {array}"
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version not in HEADERS:
            raise UserError(f"{name} is no plain array (npy version {version}); save numbers or "
                            "texts")
        shape, by_column, dtype = HEADERS[version](file)
        if dtype.kind not in KINDS or dtype.subdtype or not dtype.itemsize:
            raise UserError(f"{name} is {shown(dtype)[:80]}, which is not read without pickles; "
                            "save numbers or texts")
        if not all(type(size) is int and size >= 0 for size in shape):
            raise UserError(f"{name} has shape {shown(shape)[:80]}; save it again")
        stated = math.prod(shape) * dtype.itemsize
        header = file.tell()
        present = member.file_size - header
        if stated != present:
            raise UserError(f"{name} is {shown(dtype)} of shape {shown(shape)[:80]} by its header, "
                            f"{stated:,} bytes, and holds {present:,}; save it again")
        if 0 in shape:  # other sizes may be larger than an array can be
            raise UserError(f"{name} has shape {shown(shape)[:80]}: no records, or no pixels; at "
                            "least 1 is needed")
    with archive.open(member) as file:
        if not _is_mapped(member):
            return np.lib.format.read_array(file, allow_pickle=False)
        while file.read(CHUNK):  # to its end, where its checksum is compared
            pass
    return mapped.array(path, dtype, _start(path, member) + header, shape, by_column)


def _start(path: Path, member: zipfile.ZipInfo) -> int:
    """Returns where a member begins: behind its own header, which has two fields of any length."""
    with path.open("rb") as file:
        file.seek(member.header_offset + MEMBER_HEADER - 4)
        return member.header_offset + MEMBER_HEADER + sum(struct.unpack("<2H", file.read(4)))


def _stored_classes(path: Path, arrays: dict[str, np.ndarray]) -> int:
    """Returns the number of classes that the file states."""
    stored = arrays.get("classes")
    if stored is None or stored.size != 1 or not np.issubdtype(stored.dtype, np.integer):
        raise UserError(f"{path} does not state its number of classes; pass --classes N or store "
                        "an integer `classes` (reading it off the labels would release private "
                        "information)")
    return int(stored.item())
