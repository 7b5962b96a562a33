"""Image files as one data set: decoded in parallel, and cached where they are many."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image
from tqdm import tqdm

from dpgen_jax.core.reading import read_bytes, require_memory
from dpgen_jax.core.types import EMPTY, UserError
from dpgen_jax.data import cache, decoding, mapped
from dpgen_jax.data.base import Dataset, Resize, assemble, frozen, shown
from dpgen_jax.data.cache import Decoded
from dpgen_jax.data.class_names import with_names
from dpgen_jax.data.image_form import Form

SUFFIXES = {".png", ".jpg", ".jpeg"}
MANY = 5000  # images, from which the cache is used and progress is shown
BLOCK = 512  # images that are decoded before they enter the array
MAX_LISTED = 20  # skipped files, or classes without images, that a note names
SKIPPED = "a file that cannot be decoded is an empty slot: it keeps its place, and nobody sees it"

STRETCHED = "every image is stretched to a square: nothing is cropped, and proportions change"

T = TypeVar("T")
Labelled = list[tuple[Path, int | None]]
"""Files and their classes; None: an empty slot, whatever the content of the file."""


def labelled(name: str, names: Sequence[str], train: Labelled, test: Labelled,
             notes: Iterable[str], form: Form) -> Dataset:
    """Makes the data set of image files with labels. Transparency is dropped.

    Args:
        name: The name of the data set.
        names: The names of the classes.
        train: The files and their labels.
        test: The held-out part, alike; where it is empty there is none.
        notes: Public lines on how the data were read.
        form: The form of all images.

    Returns:
        The data set.

    Raises:
        UserError: Naming the file.
    """
    n_files, test = len(test), [(path, label) for path, label in test if label is not None]
    pairs, n = train + test, len(train)
    files = [path if label is not None else None for path, label in pairs]
    decoded = read(files, decoding.MODES.get(form.channels), form.image_size, form.skip_bad,
                   form.resize or "crop")
    notes = [*notes, *[STRETCHED] * (form.resize == "stretch")]
    empty = np.isin(np.arange(len(pairs)), decoded.bad)
    if empty[:n].all():
        raise UserError(f"{name}: none of {n} training images can be used; replace them")
    y = np.array([label or 0 for _, label in pairs])
    x_test, y_test = decoded.pixels[n:], y[n:]
    if empty[n:].any():
        x_test, y_test = x_test[~empty[n:]], y_test[~empty[n:]]
    if n_files and not len(y_test):  # else it would depend on them whether others are held out
        raise UserError(f"{name}: none of {n_files} test images can be used; replace them, or "
                        "leave the folder test out")
    data = assemble(name, len(names), (decoded.pixels[:n], y[:n]),
                    (x_test, y_test) if len(y_test) else None, notes)
    return dataclasses.replace(
        with_names(data, tuple(names)),
        y_train=frozen(np.where(empty[:n], EMPTY, data.y_train), np.int32),
        uncovered=tuple(form.undeclared(data.spec.shape)),
        private_notes=(*_skipped([path for i in decoded.bad if (path := files[i])]),
                       *_absent(names, y[:n][~empty[:n]]), *where_kept(len(pairs))))


def _skipped(bad: list[Path]) -> list[str]:
    """Returns a line on the files that were skipped, if any."""
    if not bad:
        return []
    more = f" and {len(bad) - MAX_LISTED} more" if len(bad) > MAX_LISTED else ""
    return [f"skipped, since they cannot be read as images: {len(bad)} "
            f"({', '.join(map(shown, bad[:MAX_LISTED]))}{more})"]


def _absent(names: Sequence[str], y: np.ndarray) -> list[str]:
    """Returns a line on the classes without training images, if any."""
    present = set(np.unique(y).tolist())
    absent = [name for label, name in enumerate(names) if label not in present]
    if not absent:
        return []
    more = f" and {len(absent) - MAX_LISTED} more" if len(absent) > MAX_LISTED else ""
    return [f"no training images of the class {', '.join(absent[:MAX_LISTED])}{more}"]


def where_kept(count: int) -> list[str]:
    """Returns the line for the data holder on where decoded images are kept, if they are.

    Args:
        count: The number of images.
    """
    if count < MANY:
        return []
    return [f"decoded images are kept under {cache.location()}; delete them when you are done"]


def read(files: Sequence[Path | None], mode: str | None, size: int | None, skip_bad: bool,
         resize: Resize) -> Decoded:
    """Decodes files.

    Args:
        files: The files in their order; None for an empty slot.
        mode: "L" or "RGB"; None for gray if all files are gray, else RGB.
        size: Pixels on a side of the square that each is made; None if all share one shape.
        skip_bad: Skips files that cannot be decoded.
        resize: How images are made squares.

    Returns:
        The images, 0 for an empty slot and a skipped file.

    Raises:
        UserError: Naming the file.
    """
    with warnings.catch_warnings():  # `decoding` names the file
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        if len(files) < MANY:
            return together(_blocks(files, mode, size, skip_bad, resize))
        return _cached(files, mode, size, skip_bad, resize)


def together(blocks: Iterable[Decoded]) -> Decoded:
    """Returns the images of all blocks in memory.

    Args:
        blocks: Some images at a time, in one block at least.
    """
    parts = list(blocks)
    pixels = np.concatenate([part.pixels for part in parts])
    pixels.flags.writeable = False
    return Decoded(pixels, tuple(i for part in parts for i in part.bad),
                   tuple(label for part in parts for label in part.labels))


def _cached(files: Sequence[Path | None], mode: str | None, size: int | None, skip_bad: bool,
            resize: Resize) -> Decoded:
    """Reads the images from the cache, where they are decoded to first if need be."""
    entry = cache.entry(files, mode, size, resize)
    decoded = cache.kept(entry, len(files), _blocks(files, mode, size, skip_bad, resize))
    unreadable = [path for i in decoded.bad if (path := files[i])]
    if unreadable and not skip_bad:
        raise decoding.unreadable(unreadable[0])
    return decoded


def _blocks(files: Sequence[Path | None], mode: str | None, size: int | None, skip_bad: bool,
            resize: Resize) -> Iterator[Decoded]:
    """Yields the images in blocks, with the positions that were left out, where they are 0.

    Pillow decodes and resizes outside the interpreter's lock, so that threads run side by side.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        if mode is None:
            look = partial(_or_none, decoding.is_gray, skip_bad=skip_bad)
            mode = "RGB" if False in list(pool.map(look, files)) else "L"  # looks at every file
        shape = _shape(files, mode, size, skip_bad)
        needs = mapped.require_memory if len(files) >= MANY else require_memory
        needs(f"an array of {len(files):,} images of {shape[0]} x {shape[1]} pixels",
              len(files) * math.prod(shape))
        decode = partial(_or_none, partial(decoding.pixels, mode=mode, size=size, resize=resize,
                                           shape=None if size else shape), skip_bad=skip_bad)
        left_out = 0
        with _bar(len(files)) as bar:
            for start in range(0, len(files), BLOCK):
                images = list(pool.map(decode, files[start:start + BLOCK]))
                bad = tuple(start + i for i, image in enumerate(images) if image is None)
                zeros = np.zeros(shape, np.uint8)
                yield Decoded(np.stack([zeros if image is None else image for image in images]),
                              bad)
                left_out += len(bad)
                bar.update(len(images))
    if left_out == len(files):
        raise _none_of(files)


def _shape(files: Sequence[Path | None], mode: str, size: int | None, skip_bad: bool
           ) -> tuple[int, int, int]:
    """Returns the shape of all images: resized, or that of the first one that can be read."""
    if size:
        return size, size, decoding.CHANNELS[mode]
    decode = partial(decoding.pixels, mode=mode, size=None)
    images = (_or_none(decode, path, skip_bad) for path in files)
    first = next((image for image in images if image is not None), None)
    if first is None:
        raise _none_of(files)
    height, width, channels = first.shape
    return height, width, channels


def _none_of(files: Sequence[Path | None]) -> UserError:
    """Returns the error of files of which none can be read."""
    return UserError(f"none of {len(files)} files can be read as an image; replace them")


def _bar(total: int) -> tqdm:
    """Returns a bar on a terminal, a line every ten seconds elsewhere; nothing for few files."""
    live = sys.stderr.isatty()
    return tqdm(total=total, unit="image", desc="decoding", dynamic_ncols=live,
                mininterval=0.2 if live else 10, ascii=not live, disable=total < MANY,
                bar_format=None if live else "{desc}: {n_fmt}/{total_fmt} {unit}s, {rate_fmt}, "
                "{elapsed} gone, {remaining} left\n")


def _or_none(decode: Callable[[Path], T], path: Path | None, skip_bad: bool) -> T | None:
    """Decodes a file; None for an empty slot and for an unreadable file that is to be skipped."""
    try:
        return None if path is None else decode(path)
    except decoding.Unreadable:
        if not skip_bad:
            raise
    return None


def listed(folder: Path) -> list[Path]:
    """Returns the visible image files in a folder, sorted by name.

    Args:
        folder: The folder; where it does not exist there are none.
    """
    return sorted(path for path in folder.glob("*")
                  if path.suffix.lower() in SUFFIXES and not path.name.startswith("."))


def subfolders(path: Path) -> list[str]:
    """Returns the sorted names of the visible folders in a folder.

    Args:
        path: The folder; where it is none there are none.
    """
    if not path.is_dir():
        return []
    return sorted(child.name for child in path.iterdir()
                  if child.is_dir() and not child.name.startswith("."))


def folder_file(folder: Path, *names: str) -> Path:
    """Returns the first of some files that exists.

    Args:
        folder: The folder.
        names: Paths within it.

    Raises:
        UserError: None of them exists.
    """
    for name in names:
        if (folder / name).exists():
            return folder / name
    raise UserError(f"{folder / names[0]} is missing; put it there or mend the folder")


def lines(path: Path) -> list[list[str]]:
    """Returns the words of each line of a text file, without empty lines at its end.

    A line ends with LF: other signs that may end one are spaces, and part no record in two.

    Args:
        path: The file.

    Raises:
        UserError: It cannot be read.
    """
    content = text(path).rstrip()
    return [line.split() for line in content.split("\n")] if content else []


def text(path: Path, encoding: str = "utf-8") -> str:
    """Returns the content of a text file.

    Args:
        path: The file.
        encoding: Of the text.

    Raises:
        UserError: It cannot be read.
    """
    try:
        return read_bytes(path).decode(encoding)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} cannot be read ({error}); fetch it again") from error
