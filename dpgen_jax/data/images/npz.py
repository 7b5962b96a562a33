"""`npz:FILE`: arrays of images or features, whose headers are checked before anything is read.

Features [n, F] of a public network make a table. Feature i is the column `fi`, a number from 0 to a
public bound. A row is a function of its own record only, so that replacing a record replaces one
row. In addition to the arrays that `npz` reads, a file of features may have `features_bound` (1 by
default), `features_empty` bool [n] (the empty slots), `features_class_names`, `features_notes`, and
`features_uncovered` [k, 2], the pairs of `Uncovered`.
"""

from __future__ import annotations

import dataclasses
import math
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dpgen_jax.core import arrays
from dpgen_jax.core.errors import listed, option
from dpgen_jax.core.files import CHUNK, require_memory, require_regular
from dpgen_jax.core.types import EMPTY, Column, TableSpec, UserError
from dpgen_jax.data import base
from dpgen_jax.data.base import (
    Arrays,
    Dataset,
    Uncovered,
    assemble,
    frozen,
    locate,
    safe_name,
    shown,
)
from dpgen_jax.data.images.digits import to_bytes
from dpgen_jax.data.table.schema import MAX_CLASSES

FEATURE_MEMBERS = tuple(f"features_{name}" for name in ("bound", "empty", "class_names", "notes",
                                                        "uncovered"))


def feature_spec(count: int, bound: float, class_names: tuple[str, ...]) -> TableSpec:
    """Returns the schema of F features between 0 and a public bound."""
    digits = len(str(count - 1))
    columns = tuple(Column(f"f{i:0{digits}}", "continuous", 0.0, bound) for i in range(count))
    return TableSpec(columns, Column("class", "categorical", categories=class_names), count)


def encode_features(features: np.ndarray, bound: float) -> np.ndarray:
    """Clips features [n, F] to [0, bound] and divides them by it: each entry by itself.

    No private record decided the bound. What is no number becomes 0.
    """
    return np.clip(np.nan_to_num(features / np.float32(bound), nan=0.0), 0, 1).astype(np.float32)


def feature_arrays(data: Dataset, train: np.ndarray, test: np.ndarray | None, bound: float,
                   notes: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Returns the arrays of a file of features, by name.

    Args:
        data: The data set of images whose features they are.
        train: Encoded features of its training records, [n, F]; an empty slot's are not kept.
        test: Likewise of the held-out part, or None.
        bound: What they were divided by.
        notes: Public lines on how they were made, of which no record decides anything.
    """
    empty = data.y_train == EMPTY
    stored: dict[str, np.ndarray] = {
        "x_train": np.where(empty[:, None], np.float32(0), train),
        "y_train": np.where(empty, 0, data.y_train), "classes": np.array(data.spec.classes),
        "features_bound": np.array(bound), "features_empty": empty,
        "features_class_names": np.array(data.spec.class_names, str),
        "features_notes": np.array([*data.notes, *notes], str),
        "features_uncovered": np.array(
            [(part.what, part.declare) for part in data.uncovered], str).reshape(-1, 2)}
    if test is not None and data.y_test is not None:
        stored |= {"x_test": test, "y_test": data.y_test}
    if data.clients is not None:
        stored["client_id"] = data.clients
    return {name: array for name, array in stored.items() if array.size}


def features_from_arrays(path: Path, stored: dict[str, np.ndarray], classes: int) -> Dataset:
    """Makes a table, without clients, of the arrays of a file."""
    if not 1 <= classes <= MAX_CLASSES:
        raise UserError(f"{path}: {classes} classes declared; declare 1 to {MAX_CLASSES:,}")
    bound = _bound(path, stored.get("features_bound", np.array(1.0)))
    count = len(stored["x_train"])
    empty = stored.get("features_empty", np.zeros(count, bool))
    if empty.shape != (count,) or empty.dtype != bool:
        raise UserError(f"{path}: features_empty is {empty.dtype} of shape {empty.shape}; one bool "
                        "per training record is needed")
    x, y = _feature_part(path, stored, "train", classes, empty)
    x_test = y_test = None
    if "x_test" in stored:
        x_test, y_test = _feature_part(path, stored, "test", classes)
        if x_test.shape[1] != x.shape[1]:
            raise UserError(f"{path}: {x.shape[1]} features of training records and "
                            f"{x_test.shape[1]} of test records; compute both with one network")
    names = tuple(_texts(path, stored, "class_names")) or tuple(map(str, range(classes)))
    if len(names) != classes or len({*names}) != classes:
        raise UserError(f"{path}: {len(names)} class names for {classes} classes; name each once")
    uncovered = tuple(Uncovered(*pair) for pair in _texts(path, stored, "uncovered", 2))
    notes = tuple(_texts(path, stored, "notes")) or (
        "the number of features is read from the array shapes; features are the user's own",)
    return Dataset(safe_name(path.stem), feature_spec(x.shape[1], bound, names), x, y, x_test,
                   y_test,
                   notes, uncovered=uncovered)


def _bound(path: Path, stored: np.ndarray) -> float:
    if stored.size == 1 and stored.dtype.kind in "fiu" and 0 < stored.item() < np.inf:
        return float(stored.item())
    raise UserError(f"{path}: features_bound is not a number above 0; save the bound by which "
                    "features were divided")


def _feature_part(path: Path, stored: dict[str, np.ndarray], part: str, classes: int,
                  empty: np.ndarray | None = None) -> Arrays:
    """Returns the features and labels of one part, checked and read-only."""
    x, y = stored[f"x_{part}"], stored[f"y_{part}"]
    name = f"{path}, x_{part}"
    if x.ndim != 2 or not np.issubdtype(x.dtype, np.floating):
        raise UserError(f"{name} is {x.dtype} of shape {x.shape}; features are floats [n, F] in "
                        "[0, 1]")
    require_memory(f"{name} as float32", 4 * x.size)
    arrays.check_unit_range(name, x)
    arrays.check_labels(f"{path}, y_{part}", y, len(x), classes, empty=empty)
    y = y.astype(np.int32)  # of an unsigned type EMPTY would be a class
    if empty is not None and empty.any():
        if x[empty].any():
            raise UserError(f"{name}: an empty slot has features; make the file again")
        y = np.where(empty, EMPTY, y)
    return frozen(x, np.float32), frozen(y, np.int32)


def _texts(path: Path, stored: dict[str, np.ndarray], name: str, width: int = 0) -> list[Any]:
    """Returns a list of texts, or of tuples of `width` texts; none where the file has none."""
    texts = stored.get(f"features_{name}", np.zeros((0, width) if width else 0, str))
    if texts.dtype.kind != "U" or texts.shape[1:] != ((width,) if width else ()):
        raise UserError(f"{path}: features_{name} is {shown(texts.dtype)} of shape {texts.shape}; "
                        "make the file again")
    return [tuple(map(str, row)) if width else str(row) for row in texts]


MEMBERS = ("x_train", "y_train", "x_test", "y_test", "classes", "client_id", *FEATURE_MEMBERS)
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
    (`features_from_arrays`). Where the number of classes is not declared, it is an integer
    `classes` in the file; it is never read off the labels, which are private.
    """
    path = locate(path_text)
    arrays = _read_npz(path)
    missing = [name for name in ("x_train", "y_train") if name not in arrays]
    if missing or ("x_test" in arrays) != ("y_test" in arrays):
        with zipfile.ZipFile(path) as archive:
            stored = sorted(shown(name.removesuffix(".npy"))[:80] for name in archive.namelist())
        raise UserError(f"{path} holds {listed(stored) or 'no arrays'}; x_train and y_train are "
                        "needed, x_test and y_test may come together")
    if classes is None:
        classes = _stored_classes(path, arrays)
    if arrays["x_train"].ndim == 2:
        if image_size is not None:
            raise UserError(f"{path} contains features and no images; drop {option('image_size')}")
        data = features_from_arrays(path, arrays, classes)
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
                        "one client per image is needed")
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
    return member.compress_type == zipfile.ZIP_STORED and member.file_size >= base.LARGE_ARRAY


def _array(path: Path, array: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo
           ) -> np.ndarray:
    """Reads the array of a member, once its header is that of a plain one of the member's size."""
    name = f"{path}, {array}"
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version not in HEADERS:
            raise UserError(f"{name} is not a plain array (npy version {version}); save numbers or "
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
    return base.mapped_array(path, dtype, _start(path, member) + header, shape, by_column)


def _start(path: Path, member: zipfile.ZipInfo) -> int:
    """Returns where a member begins: behind its own header, which has two fields of any length."""
    with path.open("rb") as file:
        file.seek(member.header_offset + MEMBER_HEADER - 4)
        return member.header_offset + MEMBER_HEADER + sum(struct.unpack("<2H", file.read(4)))


def _stored_classes(path: Path, arrays: dict[str, np.ndarray]) -> int:
    stored = arrays.get("classes")
    if stored is None or stored.size != 1 or not np.issubdtype(stored.dtype, np.integer):
        raise UserError(f"{path} does not state its number of classes; pass "
                        f"{option('classes', 'N')} or store an integer `classes` (reading it off "
                        "the labels would release private information)")
    return int(stored.item())
