"""Image files as one data set: decoded in parallel, and kept in the cache where they are many."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image, ImageOps
from tqdm import tqdm

from dpgen_jax.data import cache
from dpgen_jax.data.base import Dataset, assemble, fit, same_shape
from dpgen_jax.data.cache import Decoded
from dpgen_jax.types import UserError

SUFFIXES = {".png", ".jpg", ".jpeg"}
DEEP_MODES = ("I", "F")  # 'I;16' and its kin too: more than 8 bits a channel
MANY = 5000  # images, from which the cache is used and progress is shown
BLOCK = 512  # decoded images held beside the array
NAMED = 20  # skipped files that a note names

T = TypeVar("T")
Labelled = list[tuple[Path, int]]


class Unreadable(UserError):
    """A file that cannot be decoded, which --skip-bad leaves out."""


def labelled(name: str, classes: int, train: Labelled, test: Labelled, notes: Iterable[str], *,
             mode: str | None, image_size: int | None, skip_bad: bool) -> Dataset:
    """The data set of (file, label) pairs; no test part where `test` is empty.

    mode: "L" or "RGB"; None for gray if all files are gray, else RGB. Transparency is dropped.
    image_size: each is centre-cropped to a square and resized; None if all share one shape.
    skip_bad: leaves out what cannot be decoded, with its label; private_notes names it.
    Errors: UserError naming the file.
    """
    pairs = train + test
    found = read([path for path, _ in pairs], mode, image_size, skip_bad)
    y = np.delete(np.array([label for _, label in pairs]), found.bad)
    held = len(train) - sum(place < len(train) for place in found.bad)
    parts = [(found.pixels[rows], y[rows]) for rows in (slice(held), slice(held, None))]
    data = assemble(name, classes, parts[0], parts[1] if len(y) > held else None, notes)
    return dataclasses.replace(data, private_notes=(
        *_skipped([pairs[place][0] for place in found.bad]), *_where(len(pairs))))


def _skipped(bad: list[Path]) -> list[str]:
    if not bad:
        return []
    more = f" and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
    return [f"skipped, since they cannot be read as images: {len(bad)} "
            f"({', '.join(map(str, bad[:NAMED]))}{more})"]


def _where(count: int) -> list[str]:
    if count < MANY:
        return []
    return [f"decoded images are kept under {cache.place()}; delete them when you are done"]


def read(files: Sequence[Path], mode: str | None, size: int | None, skip_bad: bool) -> Decoded:
    """The images of files in their order; mode, size, skip_bad and errors: as `labelled`."""
    if len(files) < MANY:
        blocks = list(_blocks(files, mode, size, skip_bad))
        pixels = np.concatenate([pixels for pixels, _ in blocks if len(pixels)])
        pixels.flags.writeable = False
        return Decoded(pixels, tuple(place for _, places in blocks for place in places))
    entry = cache.entry(files, mode, size)
    held = cache.load(entry, len(files))
    if held is None:
        cache.store(entry, _blocks(files, mode, size, skip_bad))
        held = cache.load(entry, len(files))
    if held is None:
        raise UserError(f"the cache folder {entry.parent} does not keep what is written to it; set "
                        "DPGEN_CACHE to another folder")
    if held.bad and not skip_bad:
        raise _unreadable(files[held.bad[0]])
    return held


def _blocks(files: Sequence[Path], mode: str | None, size: int | None,
            skip_bad: bool) -> Iterator[tuple[np.ndarray, list[int]]]:
    """(images uint8 [m, H, W, ch], places of files left out), block by block; Pillow decodes
    and resizes outside the interpreter's lock, so that threads run side by side."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        if mode is None:
            look = partial(_or_none, _is_gray, skip_bad=skip_bad)
            mode = "RGB" if False in list(pool.map(look, files)) else "L"  # looks at every file
        decode = partial(_or_none, partial(_pixels, mode=mode, size=size), skip_bad=skip_bad)
        shape = None
        with _bar(len(files)) as bar:
            for start in range(0, len(files), BLOCK):
                paths = files[start:start + BLOCK]
                images = list(pool.map(decode, paths))
                good = [i for i, image in enumerate(images) if image is not None]
                for i in good:
                    shape = same_shape(str(paths[i]), images[i], shape)
                yield (np.stack([images[i] for i in good]) if good else np.empty(0, np.uint8),
                       [start + i for i, image in enumerate(images) if image is None])
                bar.update(len(paths))
    if shape is None:
        raise UserError(f"none of {len(files)} files can be read as an image; replace them")


def _bar(total: int) -> tqdm:
    """A bar on a terminal, a line every ten seconds elsewhere; nothing for few files."""
    live = sys.stderr.isatty()
    return tqdm(total=total, unit="image", desc="decoding", dynamic_ncols=live,
                mininterval=0.2 if live else 10, ascii=not live, disable=total < MANY,
                bar_format=None if live else "{desc}: {n_fmt}/{total_fmt} {unit}s, {rate_fmt}, "
                "{elapsed} gone, {remaining} left\n")


def _or_none(decode: Callable[[Path], T], path: Path, skip_bad: bool) -> T | None:
    """What `decode` makes of the path; None for an unreadable file that is to be skipped."""
    try:
        return decode(path)
    except Unreadable:
        if not skip_bad:
            raise
    return None


def _pixels(path: Path, mode: str, size: int | None) -> np.ndarray:
    """The file upright, decoded and converted: uint8 [H, W, ch]."""
    try:
        with Image.open(path) as image:
            ImageOps.exif_transpose(image, in_place=True)
            image = image.convert(mode)
    except Exception as error:  # each decoder raises kinds of its own
        raise _unreadable(path) from error
    pixels = fit(image, size) if size else np.asarray(image)
    return pixels.reshape(*pixels.shape[:2], -1)


def _is_gray(path: Path) -> bool:
    """By the header alone."""
    try:
        with Image.open(path) as image:
            mode = image.mode
    except Exception as error:
        raise _unreadable(path) from error
    if mode.startswith(DEEP_MODES):
        raise UserError(f"{path} has more than 8 bits a channel; convert it to 8 bits")
    return mode in ("1", "L", "LA")


def _unreadable(path: Path) -> Unreadable:
    return Unreadable(f"{path} cannot be read as an image; replace it, or leave out such files "
                      "with --skip-bad")


def listed(folder: Path) -> list[Path]:
    """The visible image files in a folder, sorted by name."""
    return sorted(path for path in folder.glob("*")
                  if path.suffix.lower() in SUFFIXES and not path.name.startswith("."))


def subfolders(path: Path) -> list[str]:
    """Sorted names of the visible folders in path, none if path is no folder."""
    if not path.is_dir():
        return []
    return sorted(child.name for child in path.iterdir()
                  if child.is_dir() and not child.name.startswith("."))


def folder_file(folder: Path, *names: str) -> Path:
    """The first of `names`, paths within the folder, that exists. Errors: UserError."""
    for name in names:
        if (folder / name).exists():
            return folder / name
    raise UserError(f"{folder / names[0]} is missing; put it there or mend the folder")


def lines(path: Path) -> list[list[str]]:
    """The words of each line of a text file, without empty lines at its end. Errors: UserError."""
    try:
        return [line.split() for line in path.read_text("utf-8").rstrip().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}); fetch it again") from error
