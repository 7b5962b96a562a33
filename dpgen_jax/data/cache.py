"""Decoded images, kept for the next run in a folder of the data holder's own.

They are private records, so they lie under DPGEN_CACHE (default ~/.cache/dpgen_jax), which only its
owner may read, and never in a run or a release. An entry is a folder `KEY/` of `pixels.npy` and
`meta.json`; it appears whole, by one rename, or not at all. Entries may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import PIL

from dpgen_jax.types import UserError

DEFAULT_FOLDER = "~/.cache/dpgen_jax"
PIXELS, META = "pixels.npy", "meta.json"


@dataclasses.dataclass(frozen=True)
class Decoded:
    """pixels: uint8 [n, H, W, ch], read-only; bad: the places, in the list of n files, of those
    that were left out, where the pixels are 0."""

    pixels: np.ndarray
    bad: tuple[int, ...] = ()


def entry(files: Sequence[Path | None], mode: str | None, size: int | None) -> Path:
    """Where the decoded files belong: named by their paths, sizes and times, and the options; None
    for one that is left out whatever it holds."""
    digest = hashlib.sha256(repr((PIL.__version__, mode, size)).encode())
    for path in files:
        held = b"" if path is None else os.fsencode(path.absolute())
        with contextlib.suppress(OSError, AttributeError):  # missing, or none at all
            status = path.stat()
            held += f"\0{status.st_size}\0{status.st_mtime_ns}".encode()
        digest.update(b"\n" + held)
    return _folder() / digest.hexdigest()[:32]


def place() -> Path:
    """The cache folder, which need not exist."""
    return Path(os.environ.get("DPGEN_CACHE") or DEFAULT_FOLDER).expanduser()


def _folder() -> Path:
    """The cache folder, made if need be. Errors: UserError where others may look into it."""
    folder = place()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = folder.stat().st_mode
    except OSError as error:
        raise _unusable(folder, error) from error
    if mode & 0o077:
        raise UserError(f"the cache folder {folder} is open to other users, and private records "
                        "would lie in it; chmod 700 it, or set DPGEN_CACHE to another folder")
    return folder


def load(entry: Path, count: int) -> Decoded | None:
    """The memory-mapped entry of `count` files; None where it is absent or damaged."""
    try:
        pixels = np.load(entry / PIXELS, mmap_mode="r", allow_pickle=False)
        meta = json.loads((entry / META).read_text())
        bad = tuple(meta["bad"])
        if (pixels.dtype, pixels.ndim, len(pixels)) == (np.uint8, 4, count) and (
                meta["crc32"] == _sum(zlib.crc32(pixels), pixels.shape, bad)):
            return Decoded(pixels, bad)
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        pass
    return None


def _sum(crc: int, shape: Sequence[int], bad: Sequence[int]) -> int:
    return zlib.crc32(repr((list(shape), list(bad))).encode(), crc)


def store(entry: Path, blocks: Iterable[tuple[np.ndarray, list[int]]]) -> None:
    """Writes blocks (pixels uint8 [m, H, W, ch], places left out), m >= 1 for the first.

    Replaces a damaged entry. Errors: UserError where the folder cannot be written; errors of the
    blocks pass through. Nothing is left behind after either.
    """
    part = None
    try:
        shutil.rmtree(entry, ignore_errors=True)
        part = Path(tempfile.mkdtemp(prefix="part-", dir=entry.parent))  # mode 0700
        with _create(part / PIXELS) as file:
            shape, bad, crc = _write(file, blocks)
        with _create(part / META) as file:
            file.write(json.dumps({"bad": bad, "crc32": _sum(crc, shape, bad)}).encode())
        if not entry.is_dir():  # else another run was faster
            part.rename(entry)
    except OSError as error:
        raise _unusable(entry.parent, error) from error
    finally:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)


def _unusable(folder: Path, error: OSError) -> UserError:
    return UserError(f"the cache folder {folder} cannot be written ({error.strerror or error}); "
                     "make room, or set DPGEN_CACHE to another folder")


def _create(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _write(file: BinaryIO, blocks: Iterable[tuple[np.ndarray, list[int]]]
           ) -> tuple[tuple[int, ...], list[int], int]:
    """An .npy file; returns its shape, the places left out and the checksum of the pixels.

    Written, not mapped: on a full disk a write is an error, a mapped page kills the process.
    """
    bad, crc, rows, shape = [], 0, 0, ()
    for pixels, places in blocks:
        bad += places
        if not rows:
            shape = pixels.shape[1:]
            _header(file, (0, *shape))
        file.write(pixels.data)
        crc, rows = zlib.crc32(pixels, crc), rows + len(pixels)
    file.seek(0)
    _header(file, (rows, *shape))  # of the same length: numpy leaves room for a first axis to grow
    return (rows, *shape), bad, crc


def _header(file: BinaryIO, shape: tuple[int, ...]) -> None:
    np.lib.format.write_array_header_1_0(
        file, {"descr": "|u1", "fortran_order": False, "shape": shape})
