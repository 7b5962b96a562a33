"""What the sources share: the `Dataset`, the checks of images, and small helpers for loaders."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from dpgen_jax.reading import require_memory
from dpgen_jax.types import EMPTY, ImageSpec, Spec, UserError

Arrays = tuple[np.ndarray, np.ndarray]
MIN_SIDE, MAX_SIDE = 4, 4096
MAX_CLASSES = 100_000
COMPARED, NAMED = 1000, 20
"""names that a wrong one is compared with, and that a message lists"""


@dataclasses.dataclass(frozen=True)
class Uncovered:
    """A field of the public schema that was read from private records: no epsilon covers it.

    what: one line for the statement, as in "the number of channels, 1, is read from the files";
    declare: the option that declares it instead, as in "--channels 1".
    """

    what: str
    declare: str


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Labelled records. Arrays are read-only.

    name: short and safe for a folder name.
    spec: the declared, public schema.
    x_train, y_train int32 [n]; x_test, y_test alike, or None. x is uint8 [n, H, W, ch] for images,
      float32 [n, F] in [0, 1] for a table (`transform.decode` turns it back). n counts the records
      that are listed: one that was left out for its content or label is an empty slot, with
      y = `types.EMPTY` and x = 0. The held-out part has no empty slots.
    notes: what is public of how the data were read, one line each; published. None of them is a
      function of the content or the label of a record.
    uncovered: what of the spec, or of n, was read from private records. A run refuses it, or is
      told to accept it, and then its statement says "not covered".
    private_notes: what the data holder may see on a terminal, one line each. NEVER write them to a
      file: they tell about the records.
    bought: the purchases of the schema made under differential privacy on these records, as rows
      of `accountant.events.to_json`; whoever trains on them charges them.
    clients: int32 [n], who holds each training record, 0..U-1; None where nobody said: a federated
      run then deals the records to simulated clients by its secret key. No other run reads it.
    simulated: why no bound for a record is proven where `clients.split` made the clients up.
    """

    name: str
    spec: Spec
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray | None = None
    y_test: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    private_notes: tuple[str, ...] = ()
    bought: tuple[dict[str, Any], ...] = ()
    clients: np.ndarray | None = None
    uncovered: tuple[Uncovered, ...] = ()
    simulated: str = ""


def without_empty_slots(data: Dataset) -> Dataset:
    """The records alone, to be looked at: no more the places that a run deals."""
    there = data.y_train != EMPTY
    if there.all():
        return data
    clients = None if data.clients is None else frozen(data.clients[there], np.int32)
    return dataclasses.replace(data, x_train=frozen(data.x_train[there], data.x_train.dtype),
                               y_train=frozen(data.y_train[there], np.int32), clients=clients)


def assemble(name: str, classes: int, train: Arrays, test: Arrays | None,
             notes: Iterable[str] = (), image_size: int | None = None) -> Dataset:
    """A data set of images: checks both parts against one schema, resizes if asked, freezes.

    train, test: (images uint8 [n, H, W] or [n, H, W, ch], integer labels [n]).
    Errors: UserError, naming the row if a single record is at fault.
    """
    if not 1 <= classes <= MAX_CLASSES:
        raise UserError(f"{name}: {classes} classes declared; declare 1 to {MAX_CLASSES:,}")
    x_train, y_train = _checked(f"{name}, train", *train, classes, image_size)
    x_test = y_test = None
    if test is not None:
        x_test, y_test = _checked(f"{name}, test", *test, classes, image_size)
        if x_test.shape[1:] != x_train.shape[1:]:
            raise UserError(f"{name}: test images are {x_test.shape[1:]}, train images "
                            f"{x_train.shape[1:]}; both need the same height, width and channels")
    return Dataset(safe_name(name), ImageSpec(*x_train.shape[1:], classes),
                   x_train, y_train, x_test, y_test, tuple(notes))


def _checked(part: str, x: np.ndarray, y: np.ndarray, classes: int,
             image_size: int | None) -> Arrays:
    if x.dtype != np.uint8:
        raise UserError(f"{part}: images are {x.dtype}, expected uint8 in 0..255")
    if x.ndim == 3:
        x = x[..., None]
    if x.ndim != 4 or x.shape[3] not in (1, 3):
        raise UserError(f"{part}: images have shape {x.shape}, expected [n, H, W] or [n, H, W, ch] "
                        "with 1 or 3 channels")
    if not len(x):
        raise UserError(f"{part}: no records; at least 1 is needed")
    if y.shape != x.shape[:1]:
        raise UserError(f"{part}: {len(x)} images but labels of shape {y.shape}; "
                        "one label an image is needed")
    if not np.issubdtype(y.dtype, np.integer):
        raise UserError(f"{part}: labels are {y.dtype}, expected integers 0..{classes - 1}")
    outside = np.flatnonzero((y < 0) | (y >= classes))
    if outside.size:
        raise UserError(f"{part}: label {y[outside[0]]} in row {outside[0]} is outside the "
                        f"declared 0..{classes - 1}; mend the row or declare more classes")
    if image_size is not None and x.shape[1:3] != (image_size, image_size) and x.size:
        require_memory(f"{part}: {len(x):,} images of {image_size} x {image_size} pixels",
                       len(x) * image_size**2 * x.shape[3])
        x = stack(((f"row {i}", fit(row, image_size)) for i, row in enumerate(x)), len(x))
    if min(x.shape[1:3]) < MIN_SIDE:
        raise UserError(f"{part}: images are {x.shape[1]} x {x.shape[2]} pixels, expected at least "
                        f"{MIN_SIDE} x {MIN_SIDE} in the order [n, H, W, ch]")
    return frozen(x, np.uint8), frozen(y, np.int32)


def frozen(array: np.ndarray, dtype) -> np.ndarray:
    """A contiguous, read-only array; copied if a view, since its base could still be written."""
    array = np.ascontiguousarray(array, dtype)
    if array.base is not None and array.flags.writeable:
        array = array.copy()
    array.flags.writeable = False
    return array


def fit(image: np.ndarray | Image.Image, size: int) -> np.ndarray:
    """Centre-crops to a square and resizes with antialiasing: uint8 [size, size, ch]."""
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] not in (1, 3):
            raise UserError(f"cannot resize {image.dtype} images of shape {image.shape}, expected "
                            "uint8 [H, W, ch] with 1 or 3 channels")
        image = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
    resized = ImageOps.fit(image, (size, size), Image.Resampling.BICUBIC)
    return np.asarray(resized).reshape(size, size, -1)


def stack(images: Iterable[tuple[str, np.ndarray]], count: int) -> np.ndarray:
    """Fills one array [count, H, W, ch] from (name, image [H, W, ch]) pairs of one shape.

    Errors: UserError naming the first image whose shape differs from that of image 0.
    """
    out = None
    for i, (name, image) in enumerate(images):
        shape = same_shape(name, image.shape, None if out is None else out.shape[1:])
        if out is None:
            require_memory(f"an array of {count:,} images like {name}", count * image.nbytes)
            out = np.empty((count, *shape), image.dtype)
        out[i] = image
    if out is None:
        raise UserError("no images; at least 1 is needed")
    return out


def same_shape(name: str, shape: tuple[int, ...], first: tuple[int, ...] | None
               ) -> tuple[int, ...]:
    """The shape of an image, which must be that of the first one if there was one."""
    if first not in (None, shape):
        raise UserError(f"{name} has shape {shape}, the first image {first}; "
                        "pass --image-size N to resize all")
    return shape


def fixed_classes(name: str, actual: int, declared: int | None) -> int:
    """The class count of a source that publishes its own; a different declaration is an error."""
    if declared not in (None, actual):
        raise UserError(f"{name} has {actual} classes, --classes {declared} was given; "
                        "drop the option")
    return actual


def locate(given: str) -> Path:
    """The path as given, or under the folder DPGEN_DATA (default ../shared/data) if only there."""
    try:
        here = Path(given).expanduser()
        fallback = Path(os.environ.get("DPGEN_DATA", "../shared/data")) / given
        for path in (here, fallback):
            if path.exists():
                return path
    except (OSError, ValueError, RuntimeError) as error:  # a zero byte, a name too long, ~nobody
        raise UserError(f"{shown(given)} is no path that can be read "
                        f"({getattr(error, 'strerror', None) or error}); mend the path") from error
    raise UserError(f"{shown(given)} not found: looked at {shown(here.absolute())} and "
                    f"{shown(fallback.absolute())}; mend the path or set DPGEN_DATA")


def shown(name: object) -> str:
    """A file's or a class's name in one printable line: what a terminal cannot show is escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode()
                   for c in str(name))


def safe_name(name: str) -> str:
    """Letters, digits, dot, dash and underscore only, with no leading dot or dash."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip(".-") or "data"


def nearest(name: str, known: Iterable[str]) -> str:
    """", did you mean 'X'?" or nothing; of the first `COMPARED` names, and for a short one."""
    some = itertools.islice(known, COMPARED) if len(name) <= 100 else ()
    close = difflib.get_close_matches(name, list(some), n=1)
    return f", did you mean {close[0]!r}?" if close else ""


def listed(names: Iterable[str]) -> str:
    """The names with commas between them; of many the first, and how many more there are."""
    names = [name if name.isprintable() else repr(name) for name in names]
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def quoted(text: str) -> str:
    """In quotes, control characters escaped; of a long text its beginning."""
    return repr(text) if len(text) <= 100 else f"{text[:100]!r}... ({len(text):,} letters)"
