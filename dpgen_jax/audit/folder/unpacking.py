"""Everything that a file says: its bytes, and those that are packed inside of it."""

from __future__ import annotations

import contextlib
import gzip
import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from dpgen_jax.core import reading

MOST = 2**30
"""Bytes of one packed part that are looked at"""
SIGNATURE = b"\x89PNG\r\n\x1a\n"
PICTURE_CHUNKS = {b"IHDR", b"PLTE", b"IDAT", b"IEND", b"pHYs", b"tRNS", b"gAMA", b"sRGB", b"cHRM",
                  b"sBIT", b"bKGD"}
"""PNG chunks that hold numbers alone"""


def parts(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yields the name and the bytes of a file, and of every part that is packed in it.

    Args:
        path: The file.

    Raises:
        UserError: It is no regular file.
    """
    yield from _inside(path.name, reading.read_bytes(path, MOST))


def _inside(name: str, data: bytes, depth: int = 0) -> Iterator[tuple[str, bytes]]:
    yield name, data
    if depth == 4:
        return
    packed: Iterator[tuple[str, bytes]] = iter(())
    if data.startswith(b"PK\x03\x04"):
        packed = _of_zip(data)
    elif data.startswith(b"\x1f\x8b"):
        packed = iter([("unpacked", _bounded(data, gzip_wrapped=True))])
    elif data.startswith(SIGNATURE):
        packed = _of_png(data)
    elif name.endswith(".safetensors"):
        packed = iter([("header", data[8:8 + int.from_bytes(data[:8], "little")])])
    for part, inner in packed:
        yield from _inside(f"{name}, {part}", inner, depth + 1)


def _of_zip(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The members of a zip, as npz files are, their names and their comments."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except zipfile.BadZipFile:
        return
    yield "comment", archive.comment
    for member in archive.infolist():
        yield f"comment on {member.filename[:60]}", member.comment + member.extra
        with contextlib.suppress(zipfile.BadZipFile, RuntimeError, NotImplementedError,
                                 zlib.error), archive.open(member) as file:
            yield member.filename[:60], file.read(MOST)


def _of_png(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The chunks of a PNG that hold words, unpacked, and what lies behind its end."""
    for kind, body in chunks(data):
        if kind in PICTURE_CHUNKS:
            continue
        yield f"{kind.decode('latin-1')} chunk", body
        if kind in (b"zTXt", b"iTXt", b"iCCP"):
            for at in (match.end() for match in re.finditer(b"\0+", body[:2000])):
                if unpacked := _bounded(body[at:]):
                    yield f"{kind.decode()} chunk, unpacked", unpacked


def chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the kind and the bytes of each chunk of a PNG; b"rest" is what lies behind them.

    Args:
        data: The file.
    """
    at = len(SIGNATURE)
    while at + 8 <= len(data):
        length, kind = int.from_bytes(data[at:at + 4], "big"), data[at + 4:at + 8]
        yield kind, data[at + 8:at + 8 + length]
        at += 12 + length
        if kind == b"IEND":
            break
    if at < len(data):
        yield b"rest", data[at:]


def _bounded(data: bytes, gzip_wrapped: bool = False) -> bytes:
    """Unpacks at most `MOST` bytes of a stream; nothing of what is no such stream."""
    with contextlib.suppress(zlib.error, EOFError, OSError):
        if gzip_wrapped:
            return gzip.GzipFile(fileobj=io.BytesIO(data)).read(MOST)
        return zlib.decompressobj().decompress(data, MOST)
    return b""
