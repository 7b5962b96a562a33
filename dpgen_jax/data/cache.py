"""The cache of decoded images, in a folder that only the data holder can read.

They are private records, so they lie under DPGEN_CACHE (default ~/.cache/dpgen_jax), closed to
other users, and never in a run or a release. An entry is a folder `KEY/` of `pixels.npy` and
`meta.json`; it appears whole, by one rename, or not at all. Entries may be deleted at any time.
Other records, read for a single process, are kept there in files without a name.
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
from typing import IO, BinaryIO

import numpy as np
import PIL

from dpgen_jax.core.types import UserError
from dpgen_jax.data.base import Resize

DEFAULT_FOLDER = "~/.cache/dpgen_jax"
PIXELS, META = "pixels.npy", "meta.json"


@dataclasses.dataclass(frozen=True)
class Decoded:
    """The images of n files, or of n records of a few files.

    Attributes:
        pixels: uint8 [n, H, W, ch], read-only.
        bad: The positions of the files that were left out, where the pixels are 0.
        labels: The labels [n] of records, which lie in the same files; of n files none.
    """

    pixels: np.ndarray
    bad: tuple[int, ...] = ()
    labels: tuple[int, ...] = ()


def entry(files: Sequence[Path | None], mode: str | None, size: int | None,
          resize: Resize = "crop", reader: tuple[str, ...] = ()) -> Path:
    """Returns the folder of an entry, named by the files' paths, sizes and times and the options.

    Args:
        files: The files; None for one that is left out whatever its content.
        mode: The mode to which they are converted; None for that of the files.
        size: The pixels to which they are resized; None for their own shape.
        resize: How they are made squares.
        reader: What else decides the images, where the files are none: who reads them, and which
            of their records.
    """
    # Entries of earlier versions, which were all cropped, keep their names.
    stretched = () if resize == "crop" else (resize,)
    digest = hashlib.sha256(repr((PIL.__version__, mode, size, *stretched, *reader)).encode())
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
        raise unusable(folder, error) from error
    if mode & 0o077:
        raise UserError(f"the cache folder {folder} is open to other users, and private records "
                        "would be stored in it; run chmod 700 on it, or set DPGEN_CACHE to another "
                        "folder")
    return folder


def load(entry: Path, count: int) -> Decoded | None:
    """Maps an entry of so many files into memory; None where it is absent or damaged."""
    try:
        pixels = np.load(entry / PIXELS, mmap_mode="r", allow_pickle=False)
        meta = json.loads((entry / META).read_text())
        bad, labels = tuple(meta["bad"]), tuple(meta.get("labels", ()))
        if (pixels.dtype, pixels.ndim, len(pixels)) == (np.uint8, 4, count) and (
                meta["crc32"] == _sum(zlib.crc32(pixels.data), pixels.shape, bad, labels)):
            return Decoded(pixels, bad, labels)
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        pass
    return None


def _sum(crc: int, shape: Sequence[int], bad: Sequence[int], labels: Sequence[int]) -> int:
    """Extends the checksum of the pixels over all else that an entry holds."""
    more = [list(labels)] if labels else []  # entries without labels keep their checksums
    return zlib.crc32(repr((list(shape), list(bad), *more)).encode(), crc)


def kept(entry: Path, count: int, blocks: Iterable[Decoded]) -> Decoded:
    """Returns the images of an entry, mapped into memory; what is not there is decoded to it first.

    Args:
        entry: The folder of the entry.
        count: The number of its images.
        blocks: As `store` takes them; they are not begun where the entry is there.
    """
    decoded = load(entry, count)
    if decoded is None:
        store(entry, blocks)
        decoded = load(entry, count)
    if decoded is None:
        raise UserError(f"the cache folder {entry.parent} does not keep what is written to it; set "
                        "DPGEN_CACHE to another folder")
    return decoded


def store(entry: Path, blocks: Iterable[Decoded]) -> None:
    """Writes an entry, in place of a damaged one.

    Errors of the blocks pass through, but for those of the system; nothing is left behind after
    any error.

    Args:
        entry: The folder of the entry.
        blocks: Some images at a time, at least one in the first; the positions of those that were
            left out are among all.
    """
    part = None
    try:
        shutil.rmtree(entry, ignore_errors=True)
        part = Path(tempfile.mkdtemp(prefix="part-", dir=entry.parent))  # mode 0700
        with _create(part / PIXELS) as file:
            shape, crc, bad, labels = _write(file, blocks)
        with _create(part / META) as file:
            file.write(json.dumps({"bad": bad, "crc32": _sum(crc, shape, bad, labels)}
                                  | ({"labels": labels} if labels else {})).encode())
        if not entry.is_dir():  # else another run was faster
            part.rename(entry)
    except OSError as error:
        raise unusable(entry.parent, error) from error
    finally:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)


def nameless() -> IO[bytes]:
    """Returns a new file in the cache folder that only this process can open: it has no name.

    It is gone when the process is, however that ends. It is written by calls, which tell of a full
    disk, and without a buffer.
    """
    folder = _folder()
    try:
        return tempfile.TemporaryFile(dir=folder, buffering=0)  # 0600; Windows removes it on close
    except OSError as error:
        raise unusable(folder, error) from error


def unusable(folder: Path, error: OSError) -> UserError:
    """Returns the error of a cache folder that cannot be written."""
    return UserError(f"the cache folder {folder} cannot be written ({error.strerror or error}); "
                     "free some space, or set DPGEN_CACHE to another folder")


def _create(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _write(file: BinaryIO, blocks: Iterable[Decoded]
           ) -> tuple[tuple[int, ...], int, list[int], list[int]]:
    """Writes an .npy file; returns its shape and checksum, what was left out, and the labels.

    It is written, not mapped: on a full disk a write is an error, a mapped page kills the process.
    """
    bad: list[int] = []
    labels: list[int] = []
    shape: tuple[int, ...] = ()
    crc = rows = 0
    for block in blocks:
        bad += block.bad
        labels += block.labels
        if not rows:
            shape = block.pixels.shape[1:]
            _header(file, (0, *shape))
        file.write(block.pixels.data)
        crc, rows = zlib.crc32(block.pixels.data, crc), rows + len(block.pixels)
    file.seek(0)
    _header(file, (rows, *shape))  # of the same length: numpy leaves room for a first axis to grow
    return (rows, *shape), crc, bad, labels


def _header(file: BinaryIO, shape: tuple[int, ...]) -> None:
    np.lib.format.write_array_header_1_0(
        file, {"descr": "|u1", "fortran_order": False, "shape": shape})
