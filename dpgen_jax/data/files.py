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
from dpgen_jax.data.base import Dataset, assemble, frozen, shown
from dpgen_jax.data.base import listed as named
from dpgen_jax.data.cache import Decoded
from dpgen_jax.data.class_names import with_names
from dpgen_jax.data.image_form import Form

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff")
ENDINGS = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
MANY = 5000  # images, from which the cache is used and progress is shown
BLOCK = 512  # images that are decoded before they enter the array
RULES = "16 bits, transparency"  # by which files become images, as the cache knows them
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

    Returns:
        The data set.

    Raises:
        UserError: Naming the files.
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
    if n_files and not len(y_test):  # else it would depend on them whether others are held out
        raise UserError(f"{name}: none of {n_files} test images can be used; replace them, or "
                        "leave the folder test out")
    data = assemble(name, len(names), (decoded.pixels[:n], y[:n]),
                    (x_test, y_test) if len(y_test) else None, [*notes, *form.notes])
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
    return [f"skipped, since they cannot be used as images: {len(bad)} ({named(map(shown, bad))})"]


def _absent(names: Sequence[str], y: np.ndarray) -> list[str]:
    """Returns a line on the classes without training images, if any."""
    present = set(np.unique(y).tolist())
    absent = [name for label, name in enumerate(names) if label not in present]
    return [f"no training images of the class {named(absent)}"] if absent else []


def where_kept(count: int) -> list[str]:
    """Returns the line for the data holder on where decoded images are kept, if they are.

    Args:
        count: The number of images.
    """
    if count < MANY:
        return []
    return [f"decoded images are kept under {cache.location()}; delete them when you are done"]


def read(files: Sequence[Path | None], form: Form) -> Decoded:
    """Decodes files.

    Args:
        files: The files in their order; None for an empty slot.
        form: What they are made.

    Returns:
        The images, 0 for an empty slot and a skipped file.

    Raises:
        UserError: Naming all files that cannot be used, or the first of another shape.
    """
    with warnings.catch_warnings():  # `decoding` names the file
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        if len(files) < MANY:
            return together(_blocks(files, form))
        return _cached(files, form)


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


def _cached(files: Sequence[Path | None], form: Form) -> Decoded:
    """Reads the images from the cache, where they are decoded to first if need be."""
    entry = cache.entry(files, decoding.MODES.get(form.channels), form.image_size,
                        form.resize or "crop", (RULES, form.background or "white"))
    decoded = cache.kept(entry, len(files), _blocks(files, form))
    unused = [path for i in decoded.bad if (path := files[i])]
    if unused and not form.skip_bad:
        found = (_tried(_decoder(form, "RGB", None), path) for path in unused)
        raise decoding.unreadable([
            fault if isinstance(fault, decoding.Unreadable) else decoding.Unreadable(path)
            for path, fault in zip(unused, found, strict=True)], len(files))
    return decoded


def _blocks(files: Sequence[Path | None], form: Form) -> Iterator[Decoded]:
    """Yields the images in blocks, with the positions that were left out, where they are 0.

    Pillow decodes and resizes outside the interpreter's lock, so that threads run side by side.
    """
    mode, faults, left_out = decoding.MODES.get(form.channels), [], 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        if mode is None:
            look = partial(_tried, decoding.is_gray)
            mode = "RGB" if False in list(pool.map(look, files)) else "L"  # looks at every file
        shape = _shape(files, form, mode)
        needs = mapped.require_memory if len(files) >= MANY else require_memory
        needs(f"an array of {len(files):,} images of {shape[0]} x {shape[1]} pixels",
              len(files) * math.prod(shape))
        decode = partial(_tried, _decoder(form, mode, shape))
        zeros = np.zeros(shape, np.uint8)
        with _bar(len(files)) as bar:
            for start in range(0, len(files), BLOCK):
                tried = list(pool.map(decode, files[start:start + BLOCK]))
                faults += [fault for fault in tried if isinstance(fault, decoding.Unreadable)]
                images = [zeros if not isinstance(image, np.ndarray) else image for image in tried]
                bad = tuple(start + i for i, image in enumerate(images) if image is zeros)
                yield Decoded(np.stack(images), bad)
                left_out += len(bad)
                bar.update(len(images))
    if left_out == len(files) or (faults and not form.skip_bad):
        raise _unused(files, form, faults)


def _decoder(form: Form, mode: str, shape: tuple[int, ...] | None) -> Callable[[Path], np.ndarray]:
    """Returns the function that decodes a file; of a shape that is no matter where all get one."""
    return partial(decoding.pixels, mode=mode, size=form.image_size,
                   shape=None if form.image_size else shape, resize=form.resize or "crop",
                   background=form.background or "white")


def _shape(files: Sequence[Path | None], form: Form, mode: str) -> tuple[int, int, int]:
    """Returns the shape of all images: resized, or that of the first one that can be read."""
    if form.image_size:
        return form.image_size, form.image_size, decoding.CHANNELS[mode]
    faults = []
    for path in files:
        image = _tried(_decoder(form, mode, None), path)
        if isinstance(image, np.ndarray):
            height, width, channels = image.shape
            return height, width, channels
        faults += [] if image is None else [image]
    raise _unused(files, form, faults)


def _unused(files: Sequence[Path | None], form: Form, faults: list[decoding.Unreadable]
            ) -> UserError:
    """Returns the error of files that cannot be used, of which none is skipped, or all are."""
    if faults and not form.skip_bad:
        return decoding.unreadable(faults, len(files))
    return UserError(f"none of {len(files)} files can be used as an image; replace them")


def _bar(total: int) -> tqdm:
    """Returns a bar on a terminal, a line every ten seconds elsewhere; nothing for few files."""
    live = sys.stderr.isatty()
    return tqdm(total=total, unit="image", desc="decoding", dynamic_ncols=live,
                mininterval=0.2 if live else 10, ascii=not live, disable=total < MANY,
                bar_format=None if live else "{desc}: {n_fmt}/{total_fmt} {unit}s, {rate_fmt}, "
                "{elapsed} gone, {remaining} left\n")


def _tried(decode: Callable[[Path], T], path: Path | None) -> T | decoding.Unreadable | None:
    """Decodes a file; None for an empty slot, and the error of a file that cannot be used."""
    try:
        return None if path is None else decode(path)
    except decoding.Unreadable as error:
        return error


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
