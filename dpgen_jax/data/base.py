"""The `Dataset`, the checks of images and class names, and the helpers that all loaders share.

Arrays of `LARGE_ARRAY` bytes or more are mapped into memory and not read. A page is loaded when it
is used, and the system may drop it again: a process that deals a part of the records to its units
needs memory for that part only. The file must stay as it is while it is in use.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import DTypeLike
from PIL import Image, ImageOps

from dpgen_jax.core import arrays, files, hosts
from dpgen_jax.core.errors import option
from dpgen_jax.core.files import exists, read_bytes, require_memory
from dpgen_jax.core.terms import Unit
from dpgen_jax.core.types import ImageSpec, Spec, Subjects, UserError

LARGE_ARRAY = 2**26
"""Arrays of this many bytes or more are mapped; smaller ones are read, and their files may change
then."""


def require_mapped_memory(what: str, size: float, beside: float = 0) -> None:
    """Refuses records that need too much memory; large ones (`LARGE_ARRAY`) are in a mapped file.

    A machine needs memory for the mapped records that it deals to its own units: each of several
    machines has a share of them.

    Args:
        what: What an error calls them.
        size: Their bytes.
        beside: The bytes of what else is in memory at that time.
    """
    files.require_memory(what, size / (hosts.machines() if size >= LARGE_ARRAY else 1) + beside)


def mapped_array(file: Path | IO[bytes], dtype: np.dtype, offset: int, shape: tuple[int, ...],
                 by_column: bool = False) -> np.ndarray:
    """Maps an array, read-only.

    The file may be open, and closed afterwards. `offset` are the bytes before the array, and
    `by_column` says that it lies there in the order of Fortran.
    """
    return np.memmap(file, dtype, "r", offset, shape, "F" if by_column else "C")


Arrays = tuple[np.ndarray, np.ndarray]
MIN_SIDE, MAX_SIDE = 4, 4096
MAX_CLASSES = 100_000
Resize = Literal["crop", "stretch"]
"""How an image becomes a square: its centre is cut out, or all of it is stretched."""
Background = Literal["white", "black"]
"""The colour that transparent pixels of an image file show."""
SQUARES: dict[Resize, Callable[..., Image.Image]] = {
    "crop": ImageOps.fit, "stretch": Image.Image.resize}


@dataclasses.dataclass(frozen=True)
class Uncovered:
    """A field of the public schema that was read from private records: no epsilon covers it.

    Attributes:
        what: One line for the statement, as in "the number of channels, 1, is read from the files".
        declare: The option that declares it instead, as in "--channels 1".
    """

    what: str
    declare: str


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Labelled records. Arrays are read-only; of a mapped file x may be a `core.arrays.Picked`.

    n counts the records that are listed: one that was left out for its content or label is an empty
    slot, with y = `types.EMPTY` and x = 0. The held-out part has no empty slots. Of a data set with
    subjects n is private; their number is public.

    Attributes:
        name: Short and safe for a folder name.
        spec: The declared, public schema.
        x_train: uint8 [n, H, W, ch] for images, float32 [n, F] in [0, 1] for a table
            (`transform.decode` inverts the encoding).
        y_train: Labels int32 [n].
        x_test: The held-out part, [m, ...] like `x_train`; or None.
        y_test: Its labels [m], like `y_train`; or None.
        notes: Public lines on how the data were read; published. None of them is a function of the
            content or the label of a record.
        private_notes: Lines for the data holder's terminal. NEVER write them to a file.
        bought: The purchases made under differential privacy on these records, such as entries of
            the schema, as rows of `accountant.events.to_json`; each run on them charges them.
        held_out: How many records `parts.hold_out` moved out of the training part; public, and 0
            of a data set with subjects.
        bought_unit: Whom the purchases protect: "record" or "client".
        clients: int32 [n], the client 0..U-1 of each training record; None where the source does
            not name clients: a federated run then deals the records to simulated clients by its
            secret key. No other run reads it.
        uncovered: The parts of the spec, or of n, that were read from private records. A run
            refuses them; where the user accepts them, its statement says "not covered".
        subjects: Who has which row, where `--unit` names a column; None: each record is its own.
        simulated: Why no bound for a record is proven where `clients.split` simulated the clients.
        options: The kind of data set and the public options by which it was loaded, if it was.
        content: A private digest of the file or folder, by which a journal recognises the records.
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
    bought_unit: Unit = Unit.RECORD
    held_out: int = 0
    clients: np.ndarray | None = None
    subjects: Subjects | None = None
    uncovered: tuple[Uncovered, ...] = ()
    simulated: str = ""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    content: str = ""

    @property
    def count(self) -> int:
        """The public number of those who have training records: subjects, or the records."""
        return len(self.y_train) if self.subjects is None else self.subjects.count

    def __repr__(self) -> str:  # in a notebook: no record, and no number that is a client's own
        count = "clients" if self.clients is not None else f"{self.count:,} training " + (
            "records" if self.subjects is None else "subjects")
        part = "no held-out part" if self.x_test is None else "a held-out part"
        return f"Dataset({self.name}: {count}, {part}, {self.spec.classes} classes)"


def assemble(name: str, classes: int, train: Arrays, test: Arrays | None,
             notes: Iterable[str] = (), image_size: int | None = None) -> Dataset:
    """Makes a data set of images; both parts are checked against one schema.

    Args:
        name: The name of the data set.
        classes: The declared number of classes.
        train: Images uint8 [n, H, W] or [n, H, W, ch], and integer labels [n].
        test: The held-out part, alike; or None.
        notes: Public lines on how the data were read.
        image_size: Pixels to which other images are cropped and resized; None for their own shape.

    Raises:
        UserError: Naming the row if a single record is at fault.
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
    height, width, channels = x_train.shape[1:]
    return Dataset(safe_name(name), ImageSpec(height, width, channels, classes),
                   x_train, y_train, x_test, y_test, tuple(notes))


def _checked(part: str, x: np.ndarray, y: np.ndarray, classes: int,
             image_size: int | None) -> Arrays:
    """Checks one part, resizes and freezes it."""
    if x.dtype != np.uint8:
        raise UserError(f"{part}: images are {x.dtype}, expected uint8 or floats in [0, 1]")
    x = arrays.check_images(part, x)
    if not len(x):
        raise UserError(f"{part}: no records; at least 1 is needed")
    arrays.check_labels(part, y, len(x), classes)
    if image_size is not None and x.shape[1:3] != (image_size, image_size) and x.size:
        require_memory(f"{part}: {len(x):,} images of {image_size} x {image_size} pixels",
                       len(x) * image_size**2 * x.shape[3])
        resized = np.empty((len(x), image_size, image_size, x.shape[3]), np.uint8)
        for i, row in enumerate(x):
            resized[i] = fit(row, image_size)
        x = resized
    if min(x.shape[1:3]) < MIN_SIDE:
        raise UserError(f"{part}: images are {x.shape[1]} x {x.shape[2]} pixels, expected at least "
                        f"{MIN_SIDE} x {MIN_SIDE} in the order [n, H, W, ch]")
    return frozen(x, np.uint8), frozen(y, np.int32)


def frozen(array: np.ndarray, dtype: DTypeLike) -> np.ndarray:
    """Returns an array contiguous and read-only; the given one may become read-only itself."""
    array = np.ascontiguousarray(array, dtype)
    # A view is copied: it could still be written through its base.
    if array.base is not None and array.flags.writeable:
        array = array.copy()
    array.flags.writeable = False
    return array


def fit(image: np.ndarray | Image.Image, size: int, resize: Resize = "crop") -> np.ndarray:
    """Makes an image a square of another size, with antialiasing (bicubic): uint8 [size, size, ch].

    It is uint8 [H, W, ch], or an image of Pillow; an array of another shape or type is a UserError.
    """
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] not in (1, 3):
            raise UserError(f"cannot resize {image.dtype} images of shape {image.shape}, expected "
                            "uint8 [H, W, ch] with 1 or 3 channels")
        image = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
    resized = SQUARES[resize](image, (size, size), Image.Resampling.BICUBIC)
    return np.asarray(resized).reshape(size, size, -1)


def same_shape(name: str, shape: tuple[int, ...], first: tuple[int, ...] | None
               ) -> tuple[int, ...]:
    """Returns the shape of an image, which must be that of the first one, if there is one."""
    if first not in (None, shape):
        raise UserError(f"{name} has shape {shape}, the first image {first}; pass "
                        f"{option('image_size', 'N')} to resize all")
    return shape


def locate(path_text: str) -> Path:
    """Returns where a path exists: as it is, or else under the folder that DPGEN_DATA names."""
    try:
        here = Path(path_text).expanduser()
        fallback = Path(os.environ.get("DPGEN_DATA", "../shared/data")) / path_text
        for path in (here, fallback):
            if path.exists():
                return path
    except (OSError, ValueError, RuntimeError) as error:  # a zero byte, a name too long, ~nobody
        raise UserError(f"{shown(path_text)} is not a path that can be read "
                        f"({getattr(error, 'strerror', None) or error}); correct "
                        "the path") from error
    is_set = "DPGEN_DATA" in os.environ  # else no user knows of the fallback
    also = f" and {shown(fallback.absolute())}" if is_set else ""
    raise UserError(f"{shown(path_text)} not found; looked at {shown(here.absolute())}{also}; "
                    "correct the path, or set DPGEN_DATA to the folder of your data sets")


def shown(name: object) -> str:
    """Returns a name in one printable line, with what a terminal cannot show escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode()
                   for c in str(name))


def safe_name(name: str) -> str:
    """Returns a name of letters, digits, dots, dashes and underscores, for a folder.

    Args:
        name: Any text.
    """
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip(".-") or "data"


FASHION_CLASSES = ("T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker",
                   "Bag",
                   "Ankle boot")
"""The classes of Fashion-MNIST, as its authors name them; the first also stands for tops."""
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship",
                   "truck")


def official_classes(data: Dataset, names: Sequence[str]) -> Dataset:
    """Returns a public data set of images with the names that its classes have in public.

    Names that are plain numbers, and another number of names than of classes, change nothing.
    """
    if len(names) != data.spec.classes or all(name.isdecimal() for name in names):
        return data
    return with_names(data, tuple(names))


def declared_classes(names: str | Sequence[str] | None) -> tuple[str, ...]:
    """Returns the names of classes that the user declares.

    They are a list, a text with commas between them, or the path of a text file with one name a
    line.
    """
    if names is None:
        return ()
    if isinstance(names, str):
        names = _lines(Path(names)) if _is_path(names) else names.split(",")
    return checked_classes([str(name).strip() for name in names], option("class_names"))


def checked_classes(names: Sequence[str], source: str) -> tuple[str, ...]:
    """Returns the names of classes, unchanged.

    A UserError names their source, where a name is empty, not printable or there twice.
    """
    if not names:
        raise UserError(f"{source} does not name a class; name 1 or more")
    earlier: set[str] = set()
    for name in names:
        if not name or not name.isprintable():
            raise UserError(f"{source}: '{shown(name)}' cannot be the name of a class; use "
                            "printable text")
        if name in earlier:
            raise UserError(f"{source}: {name!r} is named twice; remove one")
        earlier.add(name)
    return tuple(names)


def fixed_classes(name: str, actual: int, declared: int | None) -> int:
    """Returns the number of classes of a source that publishes it; another one is refused."""
    if declared not in (None, actual):
        raise UserError(f"{name} has {actual} classes, {option('classes', declared)} was given; "
                        "drop the option")
    return actual


def with_names(data: Dataset, names: tuple[str, ...]) -> Dataset:
    """Returns a data set of images whose schema has these class names.

    Where there are no names, and for tables, nothing changes.
    """
    if not names or not isinstance(data.spec, ImageSpec):
        return data
    if len(names) != data.spec.classes:
        raise UserError(f"{option('class_names')} has {len(names)} names, {data.name} "
                        f"{data.spec.classes} classes; name each once")
    return dataclasses.replace(data, spec=dataclasses.replace(data.spec, class_names=names))


def _is_path(text: str) -> bool:
    """Returns whether a text is the path of a file rather than names."""
    return "," not in text and exists(text) and not Path(text).is_dir()


def _lines(path: Path) -> list[str]:
    """Returns the lines of a text file, without empty ones at its end."""
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not text in UTF-8 "
                        f"({error}); write one name per line") from error
    return text.rstrip().splitlines()
