"""Image files as one data set, decoded in parallel and cached where they are many: `folder:DIR`."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image, ImageOps
from tqdm import tqdm

from dpgen_jax.core.errors import MAX_LISTED, option
from dpgen_jax.core.errors import listed as named
from dpgen_jax.core.files import read_bytes, require_memory
from dpgen_jax.core.types import EMPTY, UserError
from dpgen_jax.data import base, cache
from dpgen_jax.data.base import (
    Background,
    Dataset,
    Resize,
    Uncovered,
    assemble,
    checked_classes,
    fit,
    fixed_classes,
    frozen,
    locate,
    same_shape,
    shown,
    with_names,
)
from dpgen_jax.data.cache import Decoded

STRETCHED = "every image is stretched to a square: nothing is cropped, and proportions change"


@dataclasses.dataclass(frozen=True)
class Form:
    """The form that image files are brought to.

    Attributes:
        channels: 1 or 3, to which images are converted; None for 1 if all files are grey, else 3,
            which is then `uncovered`.
        image_size: Pixels on a side of the square that each is made; None if all share one shape,
            which is then `uncovered`.
        skip_bad: Makes files that cannot be used as images empty slots, and leaves them out of the
            test part; `private_notes` lists them.
        resize: How images are made squares; by default the centre is cropped.
        background: The colour that transparent pixels show; white by default.
    """

    channels: int | None
    image_size: int | None
    skip_bad: bool = False
    resize: Resize | None = None
    background: Background | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Public lines on how files become images, whatever is in them."""
        return (*[STRETCHED] * (self.resize == "stretch"),
                f"transparent pixels are {self.background or 'white'}, and of a channel of 16 bits "
                "the high byte counts")

    def undeclared(self, shape: tuple[int, ...]) -> Iterator[Uncovered]:
        """Yields the parts of the shape [H, W, ch] that are not declared."""
        height, width, actual = shape
        if self.channels is None:
            yield Uncovered(f"the number of channels, {actual}, is read from the files",
                            f"--channels {actual}")
        if self.image_size is None:
            yield Uncovered(f"the height and width, {height} x {width}, are read from the "
                            "files", f"--image-size {min(height, width)}")


DEEP = ("I;16", "I;16B", "I;16L", "I;16N")  # grey of 12 or 16 bits
GREY = ("1", "L", "LA", *DEEP)
FORMATS = ("PNG", "JPEG", "WEBP", "TIFF")
"""The formats that are read, whatever the name of a file ends with: others may start programs."""
MODES_READ = {*GREY, "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr"}
"""The modes of Pillow that become grey or RGB by a fixed rule; of floats and of whole numbers of 32
bits none is known, since they have no fixed range."""
TIFF_BITS, TIFF_ZERO = 258, 262
"""The tags of TIFF for the bits of a channel, and for what 0 means: 0 where it is white."""
MAX_PIXELS = 89_478_485  # of one image: from there on Pillow warns of decompression bombs
CHANNELS = {"L": 1, "RGB": 3}
MODES: dict[int | None, str] = {channels: mode for mode, channels in CHANNELS.items()}


class Unreadable(UserError):
    """A file that cannot be used as an image, which --skip-bad leaves out.

    Args:
        path: The file.
        fault: What is wrong with it, after its name.
    """

    def __init__(self, path: Path, fault: str = "cannot be read as an image") -> None:
        self.line = f"{shown(path)} {fault}"
        super().__init__(f"{self.line}; replace it, or leave out such files with "
                         f"{option('skip_bad', True)}")


def decoded_pixels(path: Path, mode: str, form: Form, shape: tuple[int, ...] | None = None
                   ) -> np.ndarray:
    """Decodes a file as an upright image uint8 [H, W, ch], by the same rules for all files.

    A channel of 16 bits keeps its high 8, in grey as in colour; what is transparent is laid over
    the background.

    Args:
        path: The file.
        mode: "L" or "RGB", to which it is converted.
        form: The rest of what it is made.
        shape: The shape that it must have where it is not resized, [H, W, ch]; None for any.

    Raises:
        Unreadable: It cannot be decoded, or no fixed rule makes it one image of 8 bits a channel.
        UserError: It has another shape, which is seen before it is decoded.
    """
    size, expected = form.image_size, None if form.image_size else shape

    def check() -> None:
        same_shape(shown(path), (image.height, image.width, CHANNELS[mode]), expected)

    with _opened(path) as image:
        if expected and {*image.size} != {*expected[:2]}:
            check()
        ImageOps.exif_transpose(image, in_place=True)  # decodes some kinds
        check()
        image = _opaque(image, form.background or "white").convert(mode)
    array = fit(image, size, form.resize or "crop") if size else np.asarray(image)
    return array.reshape(*array.shape[:2], -1)


def is_grey(path: Path) -> bool:
    """Returns whether an image is grey, by its header only; `Unreadable` where it is no image."""
    with _opened(path) as image:
        return image.mode in GREY


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """Opens an image; all that fails while it is open is `Unreadable`."""
    if not path.is_file():  # a pipe never ends
        raise Unreadable(path, "cannot be read as an image: it is missing or not a regular file")
    try:
        with Image.open(path, formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise Image.DecompressionBombError
            if fault := _fault(image):
                raise Unreadable(path, fault)
            yield image
    except UserError:
        raise
    except Image.DecompressionBombError as error:
        raise Unreadable(path, f"unpacks to more than {MAX_PIXELS:,} pixels") from error
    except Exception as error:  # each decoder raises exceptions of its own
        raise Unreadable(path) from error


def _fault(image: Image.Image) -> str:
    """Returns why no fixed rule makes one image of 8 bits of a file; empty where one does."""
    if image.mode not in MODES_READ:
        return (f"has pixels of the mode {image.mode}, which no fixed rule brings to 8 bits: save "
                "it as grey or RGB with 8 or 16 bits a channel")
    if getattr(image, "is_animated", False) and image.format != "MPO":  # a photo with its preview
        return "contains several images: save one of them as a separate file"
    if (image.format == "PNG" and image.mode in ("L", "RGB") and "transparency" in image.info
            and any(tile[3] != image.mode for tile in getattr(image, "tile", ()))):
        return ("has a transparent colour, which is read only for channels of 8 bits: save it with "
                "an alpha channel")
    return ""


def _opaque(image: Image.Image, background: Background) -> Image.Image:
    """Returns an image of 8 bits a channel, in which nothing is transparent."""
    if image.mode in DEEP:
        return _of_high_bits(image, background)
    if not image.has_transparency_data:
        return image
    image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, background), image)


def _of_high_bits(image: Image.Image, background: Background) -> Image.Image:
    """Returns the high 8 bits of grey pixels, as Pillow reads channels of 16 bits in colour."""
    values, tags = np.asarray(image), getattr(image, "tag_v2", {})
    grey = (values >> (4 if tags.get(TIFF_BITS) == (12,) else 8)).astype(np.uint8)
    if tags.get(TIFF_ZERO) == 0:  # which Pillow minds in images of 8 bits only
        grey = 255 - grey
    if "transparency" in image.info:
        grey[values == image.info["transparency"]] = 255 if background == "white" else 0
    return Image.fromarray(grey)


SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff")
ENDINGS = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
MANY = 5000  # images, from which the cache is used and progress is shown
BLOCK = 512  # images that are decoded before they enter the array
RULES = "16 bits, transparency"  # by which files become images, as named in the cache
SKIPPED = ("a file that cannot be used as an image is an empty slot: it keeps its place, and "
           "nobody sees it")

T = TypeVar("T")
Labelled = list[tuple[Path, int | None]]
"""Files and their classes; None: an empty slot, whatever the content of the file."""


def labelled(name: str, names: Sequence[str], train: Labelled, test: Labelled,
             notes: Iterable[str], form: Form) -> Dataset:
    """Makes the data set of image files with labels.

    Args:
        name: The name of the data set.
        names: The names of the classes.
        train: The files and their labels.
        test: The held-out part, alike; where it is empty there is none.
        notes: Public lines on how the data were read.
        form: The form of all images.
    """
    n_files, test = len(test), [(path, label) for path, label in test if label is not None]
    pairs, n = train + test, len(train)
    files = [path if label is not None else None for path, label in pairs]
    decoded = read(files, form)
    empty = np.isin(np.arange(len(pairs)), decoded.bad)
    if empty[:n].all():
        raise UserError(f"{name}: none of {n} training images can be used; replace them")
    y = np.array([label or 0 for _, label in pairs])
    x_test, y_test = decoded.pixels[n:], y[n:]
    if empty[n:].any():
        x_test, y_test = x_test[~empty[n:]], y_test[~empty[n:]]
    if n_files and not len(y_test):  # else these records would decide whether others are held out
        raise UserError(f"{name}: none of {n_files} test images can be used; replace them, or "
                        "leave the folder test out")
    data = assemble(name, len(names), (decoded.pixels[:n], y[:n]),
                    (x_test, y_test) if len(y_test) else None, [*notes, *form.notes])
    return dataclasses.replace(
        with_names(data, tuple(names)),
        y_train=frozen(np.where(empty[:n], EMPTY, data.y_train), np.int32),
        uncovered=tuple(form.undeclared(data.spec.shape)),
        private_notes=(*_seen([path for i in decoded.bad if (path := files[i])], names,
                              y[:n][~empty[:n]]), *where_kept(len(pairs))))


def _seen(bad: list[Path], names: Sequence[str], y: np.ndarray) -> Iterator[str]:
    """Yields lines for the data holder on skipped files, and on classes that no label is of."""
    if bad:
        yield (f"skipped, since they cannot be used as images: {len(bad)} "
               f"({named(map(shown, bad))})")
    present = set(np.unique(y).tolist())
    absent = [name for label, name in enumerate(names) if label not in present]
    if absent:
        yield f"no training images of the class {named(absent)}"


def where_kept(count: int) -> list[str]:
    """Returns the line for the data holder on where decoded images are kept, if they are."""
    if count < MANY:
        return []
    return [f"decoded images are kept under {cache.location()}; delete them when you are done"]


def read(files: Sequence[Path | None], form: Form) -> Decoded:
    """Decodes files in their order, of which None is an empty slot.

    Pixels are 0 for an empty slot and a skipped file. A UserError names all files that cannot be
    used, or the first of another shape.
    """
    with warnings.catch_warnings(action="ignore"):  # of Pillow, on the content of single files
        if len(files) < MANY:
            return together(_blocks(files, form))
        return _cached(files, form)


def together(blocks: Iterable[Decoded]) -> Decoded:
    """Returns the images of all blocks, of which there is one at least, in memory."""
    parts = list(blocks)
    pixels = np.concatenate([part.pixels for part in parts])
    pixels.flags.writeable = False
    return Decoded(pixels, tuple(i for part in parts for i in part.bad),
                   tuple(label for part in parts for label in part.labels))


def _cached(files: Sequence[Path | None], form: Form) -> Decoded:
    entry = cache.entry(files, MODES.get(form.channels), form.image_size,
                        form.resize or "crop", (RULES, form.background or "white"))
    decoded = cache.kept(entry, len(files), _blocks(files, form))
    unused = [path for i in decoded.bad if (path := files[i])]
    if unused and not form.skip_bad:
        found = (_tried(partial(decoded_pixels, mode="RGB", form=form), path) for path in unused)
        raise _unused(files, form, [
            fault if isinstance(fault, Unreadable) else Unreadable(path)
            for path, fault in zip(unused, found, strict=True)])
    return decoded


def _blocks(files: Sequence[Path | None], form: Form) -> Iterator[Decoded]:
    """Yields the images in blocks, with the positions that were left out, where they are 0.

    Pillow decodes and resizes outside the interpreter's lock, so that threads run side by side.
    """
    mode, faults, left_out = MODES.get(form.channels), [], 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        if mode is None:
            look = partial(_tried, is_grey)
            mode = "RGB" if False in list(pool.map(look, files)) else "L"  # looks at every file
        shape = _shape(files, form, mode)
        needs = base.require_mapped_memory if len(files) >= MANY else require_memory
        needs(f"an array of {len(files):,} images of {shape[0]} x {shape[1]} pixels",
              len(files) * math.prod(shape))
        decode = partial(_tried, partial(decoded_pixels, mode=mode, form=form, shape=shape))
        zeros = np.zeros(shape, np.uint8)
        with _bar(len(files)) as bar:
            for start in range(0, len(files), BLOCK):
                tried = list(pool.map(decode, files[start:start + BLOCK]))
                faults += [fault for fault in tried if isinstance(fault, Unreadable)]
                images = [zeros if not isinstance(image, np.ndarray) else image for image in tried]
                bad = tuple(start + i for i, image in enumerate(images) if image is zeros)
                yield Decoded(np.stack(images), bad)
                left_out += len(bad)
                bar.update(len(images))
    if left_out == len(files) or (faults and not form.skip_bad):
        raise _unused(files, form, faults)


def _shape(files: Sequence[Path | None], form: Form, mode: str) -> tuple[int, int, int]:
    """Returns the shape of all images: resized, or that of the first one that can be read."""
    if form.image_size:
        return form.image_size, form.image_size, CHANNELS[mode]
    faults = []
    for path in files:
        image = _tried(partial(decoded_pixels, mode=mode, form=form), path)
        if isinstance(image, np.ndarray):
            height, width, channels = image.shape
            return height, width, channels
        faults += [] if image is None else [image]
    raise _unused(files, form, faults)


def _unused(files: Sequence[Path | None], form: Form, faults: list[Unreadable]
            ) -> UserError:
    """Returns the one error of files that cannot be used, of which none is skipped, or all are."""
    if form.skip_bad or not faults:
        return UserError(f"none of {len(files)} files can be used as an image; replace them")
    if len(faults) == 1:
        return faults[0]
    return UserError(f"{len(faults):,} of {len(files):,} images cannot be used: "
                     f"{named(fault.line for fault in faults)}; replace them, or leave out such "
                     f"files with {option('skip_bad', True)}")


def _bar(total: int) -> tqdm:
    """Returns a bar on a terminal, a line every ten seconds elsewhere; nothing for few files."""
    live = sys.stderr.isatty()
    return tqdm(total=total, unit="image", desc="decoding", dynamic_ncols=live,
                mininterval=0.2 if live else 10, ascii=not live, disable=total < MANY,
                bar_format=None if live else "{desc}: {n_fmt}/{total_fmt} {unit}s, {rate_fmt}, "
                "{elapsed} gone, {remaining} left\n")


def _tried(decode: Callable[[Path], T], path: Path | None) -> T | Unreadable | None:
    """Decodes a file; None for an empty slot, and the error of a file that cannot be used."""
    try:
        return None if path is None else decode(path)
    except Unreadable as error:
        return error


def listed(folder: Path) -> list[Path]:
    """Returns the visible image files in a folder, if it exists, sorted by name."""
    return sorted(path for path in folder.glob("*")
                  if path.suffix.lower() in SUFFIXES and not path.name.startswith("."))


def subfolders(path: Path) -> list[str]:
    """Returns the sorted names of the visible folders in a folder, if it exists."""
    if not path.is_dir():
        return []
    return sorted(child.name for child in path.iterdir()
                  if child.is_dir() and not child.name.startswith("."))


def folder_file(folder: Path, *names: str) -> Path:
    """Returns the first of some paths within a folder that exists."""
    for name in names:
        if (folder / name).exists():
            return folder / name
    raise UserError(f"{folder / names[0]} is missing; put it there or correct the folder")


def lines(path: Path) -> list[list[str]]:
    """Returns the words of each line of a text file, without empty lines at its end.

    A line ends with LF: other signs that may end one are spaces, and part no record in two.
    """
    content = text(path).rstrip()
    return [line.split() for line in content.split("\n")] if content else []


def text(path: Path, encoding: str = "utf-8") -> str:
    """Returns the content of a text file."""
    try:
        return read_bytes(path).decode(encoding)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} cannot be read ({error}); download it again") from error


# Images in class folders.

Part = list[tuple[Path, str]]
"""Files and their categories, in an order that no category decides."""
OTHERS = "*"
"""A last name of a class, which stands for all class folders that are not named."""
NAMED = "the class names are declared or bought; none is read off the folders"
NOT_NAMED = "an image of a class that is not named is an empty slot: it keeps its place"


def folder(path: str, classes: int | None, image_size: int | None, channels: int | None,
           class_names: tuple[str, ...], skip_bad: bool, resize: Resize | None,
           background: Background | None) -> Dataset:
    """Loads train/CLASS/* of `SUFFIXES` and, if there, test/CLASS/...; or CLASS/* alone.

    Records are in the order of their files' names, which are public: a file that is moved to
    another class folder leaves the order of all records as it was. Only among files of one name do
    the classes decide; that a partition hides even that order rests on its secret key.

    Without declared names the classes are the sorted names of the folders, which are `uncovered`.
    With names, in the order of their labels, another class folder is refused, unless the last name
    is `OTHERS`: its images are then empty slots, and left out of the test part. One may be absent.
    The other options are those of `load` and of `Form`.
    """
    if resize and image_size is None:
        raise UserError(f"{option('resize', resize)} needs {option('image_size', 'N')}, the side "
                        "of the squares")
    root = locate(path)
    place, parts = _training(root)
    declared = tuple(name for name in class_names if name != OTHERS)
    others = len(declared) < len(class_names)
    names, train = class_folders(place, declared, others)
    test = class_folders(root / "test", names, others)[1] if parts else []
    if not train:
        raise UserError(f"{place} contains no image files ({ENDINGS}) in its class folders")
    fixed_classes(shown(root), len(names), classes)
    notes = {NAMED: others, "the class names are declared": bool(declared) and not others,
             "every image is converted to the declared number of channels": channels,
             "every image is resized to the declared size": image_size, SKIPPED: skip_bad,
             NOT_NAMED: others}
    data = labelled(root.resolve().name, names, pairs(train, names), pairs(test, names),
                    [note for note, applies in notes.items() if applies],
                    Form(channels, image_size, skip_bad, resize, background))
    data = dataclasses.replace(data, private_notes=(*data.private_notes, *_unread(place)))
    return data if class_names else with_uncovered(data, read_names(names))


def _training(root: Path) -> tuple[Path, bool]:
    """The folder of the training classes, and whether there may be one for tests next to it."""
    parts = (root / "train").is_dir() or (root / "test").is_dir() or not subfolders(root)
    return (root / "train" if parts else root), parts


def categories(path: str) -> list[str | None]:
    """Returns the class folder of each training image. It is as private as the images."""
    place, _ = _training(locate(path))
    return [name for name in subfolders(place) for _ in listed(place / name)]


def has_tests(path: str) -> bool:
    """Returns whether a folder of classes for tests lies next to that of the training."""
    root = locate(path)
    return _training(root)[1] and any(
        listed(root / "test" / name) for name in subfolders(root / "test"))


def content(path: str) -> str:
    """Returns a digest of the names and sizes of all training images, in hex."""
    place, _ = _training(locate(path))
    digest = hashlib.sha256()
    for name in subfolders(place):
        for image in listed(place / name):
            status = image.stat() if image.exists() else image.lstat()  # of a link to nothing
            digest.update(repr((name, image.name, status.st_size)).encode())
    return digest.hexdigest()


def _unread(place: Path) -> tuple[str, ...]:
    """Returns the line for the data holder on what lies next to the images and is not read."""
    classes = subfolders(place)
    inside = [child for name in classes for child in (place / name).iterdir()
              if child.suffix.lower() not in SUFFIXES]
    others = sorted(str(child.relative_to(place)) for child in
                    [*inside, *(child for child in place.iterdir() if child.name not in classes)]
                    if not child.name.startswith("."))
    if not others:
        return ()
    return (f"{shown(place)}: not read, as images are CLASS/IMAGE with {ENDINGS} and no "
            f"deeper: {named(others)}",)


def read_names(names: Sequence[str]) -> Uncovered:
    """Returns the entry for class names that are read from the folders."""
    short = len(names) <= MAX_LISTED and not any("," in name for name in names)
    option = ",".join(names) if short else "FILE"
    return Uncovered(f"the names and the number of the classes, {len(names)}, are those of the "
                     "folders", f"--class-names {option}")


def with_uncovered(data: Dataset, *more: Uncovered) -> Dataset:
    """Returns the data set with more entries in `uncovered`."""
    return dataclasses.replace(data, uncovered=(*more, *data.uncovered))


def class_folders(path: Path, names: Sequence[str], others: bool = False
                  ) -> tuple[tuple[str, ...], Part]:
    """Returns the names of the classes and the files of their folders, of which any may be absent.

    Without names they are those of the folders. A folder of another name is a UserError, or with
    `others` a place among the files.
    """
    present = subfolders(path)
    if not names:
        if not present:
            raise UserError(f"{shown(path)} contains no class folders; expected CLASS/IMAGE with "
                            f"{ENDINGS}")
        names = checked_classes(present, shown(path))
    unknown = sorted(set(present) - set(names))
    if unknown and not others:
        raise UserError(f"{shown(path / unknown[0])} is not a class; known: {', '.join(names)}; "
                        f"declare it with {option('class_names')}, leave its images out with a "
                        "last name *, or remove it")
    order = {name: i for i, name in enumerate((*names, *unknown))}
    part = [(file, name) for name in present for file in listed(path / name)]
    return tuple(names), sorted(part, key=lambda pair: (pair[0].name, order[pair[1]]))


def pairs(part: Part, names: Sequence[str]) -> Labelled:
    """Returns the files with the labels of their classes; None for a class that is not named."""
    labels = {name: label for label, name in enumerate(names)}
    return [(path, labels.get(name)) for path, name in part]
