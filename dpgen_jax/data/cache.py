"""The cache of decoded images, in a folder that only the data holder can read.

They are private records, so they lie under DPGEN_CACHE (default ~/.cache/dpgen_jax), closed to
other users, and never in a run or a release. An entry is a folder `KEY/` of `pixels.npy` and
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

from dpgen_jax.core.types import UserError
from dpgen_jax.data.base import Resize

DEFAULT_FOLDER = "~/.cache/dpgen_jax"
PIXELS, META = "pixels.npy", "meta.json"


@dataclasses.dataclass(frozen=True)
class Decoded:
    """The images of n files.

    Attributes:
        pixels: uint8 [n, H, W, ch], read-only.
        bad: The positions of the files that were left out, where the pixels are 0.
    """

    pixels: np.ndarray
    bad: tuple[int, ...] = ()


def entry(files: Sequence[Path | None], mode: str | None, size: int | None,
          resize: Resize = "crop") -> Path:
    """Returns the folder of an entry, named by the files' paths, sizes and times and the options.

    Args:
        files: The files; None for one that is left out whatever its content.
        mode: The mode to which they are converted; None for that of the files.
        size: The pixels to which they are resized; None for their own shape.
        resize: How they are made squares.

    Raises:
        UserError: The cache folder is open to other users or cannot be made.
    """
    # Entries of earlier versions, which were all cropped, keep their names.
    stretched = () if resize == "crop" else (resize,)
    digest = hashlib.sha256(repr((PIL.__version__, mode, size, *stretched)).encode())
    for path in files:
        key = b""
        if path is not None:
            key = os.fsencode(path.absolute())
            with contextlib.suppress(OSError):  # a missing file is named by the decoder
                status = path.stat()
                key += f"\0{status.st_size}\0{status.st_mtime_ns}".encode()
        digest.update(b"\n" + key)
    return _folder() / digest.hexdigest()[:32]


def location() -> Path:
    """Returns the cache folder, which need not exist."""
    return Path(os.environ.get("DPGEN_CACHE") or DEFAULT_FOLDER).expanduser()


def _folder() -> Path:
    """Returns the cache folder, made if need be; a UserError where other users can read it."""
    folder = location()
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
    """Maps an entry into memory.

    Args:
        entry: The folder of the entry.
        count: The number of its files.

    Returns:
        The images; None where the entry is absent or damaged.
    """
    try:
        pixels = np.load(entry / PIXELS, mmap_mode="r", allow_pickle=False)
        meta = json.loads((entry / META).read_text())
        bad = tuple(meta["bad"])
        if (pixels.dtype, pixels.ndim, len(pixels)) == (np.uint8, 4, count) and (
                meta["crc32"] == _sum(zlib.crc32(pixels.data), pixels.shape, bad)):
            return Decoded(pixels, bad)
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        pass
    return None


def _sum(crc: int, shape: Sequence[int], bad: Sequence[int]) -> int:
    """Extends the checksum of the pixels over their shape and the files that were left out."""
    return zlib.crc32(repr((list(shape), list(bad))).encode(), crc)


def store(entry: Path, blocks: Iterable[tuple[np.ndarray, list[int]]]) -> None:
    """Writes an entry, in place of a damaged one.

    Errors of the blocks pass through; nothing is left behind after any error.

    Args:
        entry: The folder of the entry.
        blocks: Pairs of pixels uint8 [m, H, W, ch], m >= 1 for the first, and the positions of the
            files that were left out.

    Raises:
        UserError: The folder cannot be written.
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
    """Returns the error of a cache folder that cannot be written."""
    return UserError(f"the cache folder {folder} cannot be written ({error.strerror or error}); "
                     "make room, or set DPGEN_CACHE to another folder")


def _create(path: Path) -> BinaryIO:
    """Opens a new file that only its owner can read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _write(file: BinaryIO, blocks: Iterable[tuple[np.ndarray, list[int]]]
           ) -> tuple[tuple[int, ...], list[int], int]:
    """Writes an .npy file; returns its shape, the positions left out and the pixels' checksum.

    It is written, not mapped: on a full disk a write is an error, a mapped page kills the process.
    """
    bad: list[int] = []
    shape: tuple[int, ...] = ()
    crc = rows = 0
    for pixels, left_out in blocks:
        bad += left_out
        if not rows:
            shape = pixels.shape[1:]
            _header(file, (0, *shape))
        file.write(pixels.data)
        crc, rows = zlib.crc32(pixels.data, crc), rows + len(pixels)
    file.seek(0)
    _header(file, (rows, *shape))  # of the same length: numpy leaves room for a first axis to grow
    return (rows, *shape), bad, crc


def _header(file: BinaryIO, shape: tuple[int, ...]) -> None:
    """Writes the header of an .npy file of bytes."""
    np.lib.format.write_array_header_1_0(
        file, {"descr": "|u1", "fortran_order": False, "shape": shape})
