"""`npz:FILE`: arrays of images and labels, whose headers are checked before anything is read."""

from __future__ import annotations

import dataclasses
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dpgen_jax.data.base import Dataset, assemble, frozen, locate, shown
from dpgen_jax.data.images import to_bytes
from dpgen_jax.reading import require_memory, require_regular
from dpgen_jax.types import UserError

MEMBERS = ("x_train", "y_train", "x_test", "y_test", "classes", "client_id")
KINDS = "biufcSU"
"""of arrays that can be read without executing anything; which of them fit is checked after"""
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


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
    """The arrays that are wanted. Errors: UserError, one line."""
    require_regular(path)
    with path.open("rb") as file:
        if file.read(6) == b"\x93NUMPY":
            raise UserError(f"{path} is a single .npy array; save x_train and y_train with "
                            "np.savez")
    try:
        with zipfile.ZipFile(path) as archive:
            members = dict(_members(path, archive))
            total = sum(member.file_size for member in members.values())
            require_memory(f"{path}, whose arrays unpack to that,", total)
            return {name: _array(f"{path}, {name}", archive, member)
                    for name, member in members.items()}
    except UserError:
        raise
    except Exception as error:  # zip, its compressions and numpy raise kinds of their own
        reason = shown(str(error).splitlines()[0]) if str(error) else type(error).__name__
        raise UserError(f"{path} cannot be read as npz without pickles ({reason}); save it again "
                        "with np.savez and plain arrays") from error


def _members(path: Path, archive: zipfile.ZipFile) -> Iterator[tuple[str, zipfile.ZipInfo]]:
    seen = set()
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if name in MEMBERS:
            if name in seen:
                raise UserError(f"{path} holds {name} twice; save it again with np.savez")
            seen.add(name)
            yield name, member


def _array(name: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """The array of a member, once its header is that of a plain one and of what the member holds.
    """
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version not in HEADERS:
            raise UserError(f"{name} is no plain array (npy version {version}); save numbers or "
                            "texts")
        shape, _, dtype = HEADERS[version](file)
        if dtype.kind not in KINDS or dtype.subdtype or not dtype.itemsize:
            raise UserError(f"{name} is {shown(dtype)[:80]}, which is not read without pickles; "
                            "save numbers or texts")
        if not all(type(size) is int and size >= 0 for size in shape):
            raise UserError(f"{name} has shape {shown(shape)[:80]}; save it again")
        promised = math.prod(shape) * dtype.itemsize
        there = member.file_size - file.tell()
        if promised != there:
            raise UserError(f"{name} is {shown(dtype)} of shape {shown(shape)[:80]} by its header, "
                            f"{promised:,} bytes, and holds {there:,}; save it again")
        if 0 in shape:  # other sizes may be larger than an array can be
            raise UserError(f"{name} has shape {shown(shape)[:80]}: no records, or no pixels; at "
                            "least 1 is needed")
    with archive.open(member) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _stored_classes(path: Path, held: dict[str, np.ndarray]) -> int:
    stored = held.get("classes")
    if stored is None or stored.size != 1 or not np.issubdtype(stored.dtype, np.integer):
        raise UserError(f"{path} does not state its number of classes; pass --classes N or store "
                        "an integer `classes` (reading it off the labels would release private "
                        "information)")
    return int(stored.item())
