"""Image files as one data set: decoded in parallel, and kept in the cache where they are many."""

from __future__ import annotations

import dataclasses
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

from dpgen_jax.data import cache
from dpgen_jax.data.base import Dataset, Uncovered, assemble, fit, frozen, same_shape, shown
from dpgen_jax.data.cache import Decoded
from dpgen_jax.data.class_names import named
from dpgen_jax.reading import read_bytes, require_memory
from dpgen_jax.types import EMPTY, ImageSpec, UserError

SUFFIXES = {".png", ".jpg", ".jpeg"}
DEEP_MODES = ("I", "F")  # 'I;16' and its kin too: more than 8 bits a channel
MANY = 5000  # images, from which the cache is used and progress is shown
BLOCK = 512  # decoded images held beside the array
NAMED = 20  # skipped files, or classes without images, that a note names
SKIPPED = "a file that cannot be decoded is an empty slot: it keeps its place, and nobody sees it"
MAX_PIXELS = 89_478_485  # of one image: from there on Pillow warns of decompression bombs

CHANNELS = {"L": 1, "RGB": 3}
MODES = {channels: mode for mode, channels in CHANNELS.items()}

T = TypeVar("T")
Labelled = list[tuple[Path, int | None]]
"""files and their classes; None: an empty slot, whatever the file holds"""


class Unreadable(UserError):
    """A file that cannot be decoded, which --skip-bad leaves out."""


def labelled(name: str, names: Sequence[str], train: Labelled, test: Labelled,
             notes: Iterable[str], *, channels: int | None, image_size: int | None,
             skip_bad: bool) -> Dataset:
    """The data set of (file, label) pairs; no test part where `test` is empty.

    names: of the classes. channels: 1 or 3, to which images are converted; None for 1 if all files
    are gray, else 3, which is then `uncovered`. Transparency is dropped.
    image_size: each is centre-cropped to a square and resized; None if all share one shape, which
    is then `uncovered`.
    skip_bad: what cannot be decoded is an empty slot, and left out of the test part; private_notes
    names it. Errors: UserError naming the file.
    """
    test = [(path, label) for path, label in test if label is not None]
    pairs, n = train + test, len(train)
    files = [path if label is not None else None for path, label in pairs]
    found = read(files, MODES.get(channels), image_size, skip_bad)
    empty = np.isin(np.arange(len(pairs)), found.bad)
    if empty[:n].all():
        raise UserError(f"{name}: none of {n} training images can be used; replace them")
    y = np.array([label or 0 for _, label in pairs])
    x_test, y_test = found.pixels[n:], y[n:]
    if empty[n:].any():
        x_test, y_test = x_test[~empty[n:]], y_test[~empty[n:]]
    data = assemble(name, len(names), (found.pixels[:n], y[:n]),
                    (x_test, y_test) if len(y_test) else None, notes)
    return dataclasses.replace(
        named(data, tuple(names)),
        y_train=frozen(np.where(empty[:n], EMPTY, data.y_train), np.int32),
        uncovered=tuple(_read_from_files(data.spec, channels, image_size)),
        private_notes=(*_skipped([files[place] for place in found.bad if files[place]]),
                       *_absent(names, y[:n][~empty[:n]]), *_where(len(pairs))))


def _read_from_files(spec: ImageSpec, channels: int | None, size: int | None
                     ) -> Iterator[Uncovered]:
    if channels is None:
        yield Uncovered(f"the number of channels, {spec.channels}, is read from the files",
                        f"--channels {spec.channels}")
    if size is None:
        yield Uncovered(f"the height and width, {spec.height} x {spec.width}, are read from the "
                        "files", f"--image-size {min(spec.height, spec.width)}")


def _skipped(bad: list[Path]) -> list[str]:
    if not bad:
        return []
    more = f" and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
    return [f"skipped, since they cannot be read as images: {len(bad)} "
            f"({', '.join(map(shown, bad[:NAMED]))}{more})"]


def _absent(names: Sequence[str], y: np.ndarray) -> list[str]:
    there = set(np.unique(y).tolist())
    absent = [name for label, name in enumerate(names) if label not in there]
    if not absent:
        return []
    more = f" and {len(absent) - NAMED} more" if len(absent) > NAMED else ""
    return [f"no training images of the class {', '.join(absent[:NAMED])}{more}"]


def _where(count: int) -> list[str]:
    if count < MANY:
        return []
    return [f"decoded images are kept under {cache.place()}; delete them when you are done"]


def read(files: Sequence[Path | None], mode: str | None, size: int | None, skip_bad: bool
         ) -> Decoded:
    """The images of files in their order, 0 where there is None or one is skipped.

    mode: "L" or "RGB"; None for gray if all files are gray, else RGB. size, skip_bad and errors: as
    `labelled`.
    """
    with warnings.catch_warnings():  # `_opened` names the file
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        if len(files) < MANY:
            blocks = list(_blocks(files, mode, size, skip_bad))
            pixels = np.concatenate([pixels for pixels, _ in blocks])
            pixels.flags.writeable = False
            return Decoded(pixels, tuple(place for _, places in blocks for place in places))
        return _cached(files, mode, size, skip_bad)


def _cached(files: Sequence[Path | None], mode: str | None, size: int | None, skip_bad: bool
            ) -> Decoded:
    entry = cache.entry(files, mode, size)
    held = cache.load(entry, len(files))
    if held is None:
        cache.store(entry, _blocks(files, mode, size, skip_bad))
        held = cache.load(entry, len(files))
    if held is None:
        raise UserError(f"the cache folder {entry.parent} does not keep what is written to it; set "
                        "DPGEN_CACHE to another folder")
    unreadable = [files[place] for place in held.bad if files[place]]
    if unreadable and not skip_bad:
        raise _unreadable(unreadable[0])
    return held


def _blocks(files: Sequence[Path | None], mode: str | None, size: int | None, skip_bad: bool
            ) -> Iterator[tuple[np.ndarray, list[int]]]:
    """(images uint8 [m, H, W, ch], places left out, where they are 0), block by block; Pillow
    decodes and resizes outside the interpreter's lock, so that threads run side by side."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        if mode is None:
            look = partial(_or_none, _is_gray, skip_bad=skip_bad)
            mode = "RGB" if False in list(pool.map(look, files)) else "L"  # looks at every file
        shape = _shape(files, mode, size, skip_bad)
        require_memory(f"an array of {len(files):,} images of {shape[0]} x {shape[1]} pixels",
                       len(files) * math.prod(shape))
        decode = partial(_or_none, partial(_pixels, mode=mode, size=size,
                                           shape=None if size else shape), skip_bad=skip_bad)
        left_out = 0
        with _bar(len(files)) as bar:
            for start in range(0, len(files), BLOCK):
                images = list(pool.map(decode, files[start:start + BLOCK]))
                bad = [start + i for i, image in enumerate(images) if image is None]
                nothing = np.zeros(shape, np.uint8) if bad else None
                yield np.stack([nothing if image is None else image for image in images]), bad
                left_out += len(bad)
                bar.update(len(images))
    if left_out == len(files):
        raise _none_of(files)


def _shape(files: Sequence[Path | None], mode: str, size: int | None, skip_bad: bool
           ) -> tuple[int, int, int]:
    """Of every image: that of the first one that can be read, unless all are resized."""
    if size:
        return size, size, CHANNELS[mode]
    images = (_or_none(partial(_pixels, mode=mode, size=None), path, skip_bad) for path in files)
    first = next((image for image in images if image is not None), None)
    if first is None:
        raise _none_of(files)
    return first.shape


def _none_of(files: Sequence[Path | None]) -> UserError:
    return UserError(f"none of {len(files)} files can be read as an image; replace them")


def _bar(total: int) -> tqdm:
    """A bar on a terminal, a line every ten seconds elsewhere; nothing for few files."""
    live = sys.stderr.isatty()
    return tqdm(total=total, unit="image", desc="decoding", dynamic_ncols=live,
                mininterval=0.2 if live else 10, ascii=not live, disable=total < MANY,
                bar_format=None if live else "{desc}: {n_fmt}/{total_fmt} {unit}s, {rate_fmt}, "
                "{elapsed} gone, {remaining} left\n")


def _or_none(decode: Callable[[Path], T], path: Path | None, skip_bad: bool) -> T | None:
    """What `decode` makes of the path; None for an unreadable file that is to be skipped."""
    try:
        return None if path is None else decode(path)
    except Unreadable:
        if not skip_bad:
            raise
    return None


def _pixels(path: Path, mode: str, size: int | None, shape: tuple[int, ...] | None = None
            ) -> np.ndarray:
    """The file upright, decoded and converted: uint8 [H, W, ch]. Errors: UserError for another
    shape than this one, before it is decoded."""
    def check() -> None:
        same_shape(shown(path), (image.height, image.width, CHANNELS[mode]), shape)

    with _opened(path) as image:
        if shape and {*image.size} != {*shape[:2]}:
            check()
        ImageOps.exif_transpose(image, in_place=True)  # decodes some kinds
        check()
        image = image.convert(mode)
    pixels = fit(image, size) if size else np.asarray(image)
    return pixels.reshape(*pixels.shape[:2], -1)


def _is_gray(path: Path) -> bool:
    """By the header alone."""
    with _opened(path) as image:
        return image.mode in ("1", "L", "LA")


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """The opened image. Errors: Unreadable, also for what fails while it is open; UserError for
    more than 8 bits a channel."""
    if not path.is_file():  # a pipe never ends
        raise Unreadable(f"{shown(path)} cannot be read as an image: it is missing, or no regular "
                         "file; replace it, or leave out such files with --skip-bad")
    try:
        with Image.open(path) as image:
            if image.width * image.height > MAX_PIXELS:
                raise Image.DecompressionBombError
            if image.mode.startswith(DEEP_MODES):
                raise UserError(f"{shown(path)} has more than 8 bits a channel; convert it to 8 "
                                "bits")
            yield image
    except UserError:
        raise
    except Image.DecompressionBombError as error:
        raise Unreadable(f"{shown(path)} unpacks to more than {MAX_PIXELS:,} pixels; make it "
                         "smaller, or leave out such files with --skip-bad") from error
    except Exception as error:  # each decoder raises kinds of its own
        raise _unreadable(path) from error


def _unreadable(path: Path) -> Unreadable:
    return Unreadable(f"{shown(path)} cannot be read as an image; replace it, or leave out such "
                      "files with --skip-bad")


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
    return [line.split() for line in text(path).rstrip().splitlines()]


def text(path: Path, encoding: str = "utf-8") -> str:
    """What a text file holds. Errors: UserError."""
    try:
        return read_bytes(path).decode(encoding)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} cannot be read ({error}); fetch it again") from error
