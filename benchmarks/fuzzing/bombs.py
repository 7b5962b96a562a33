"""Small files that unpack to large ones, made without unpacking them, and valid small images."""

from __future__ import annotations

import functools
import gzip
import io
import struct
import zipfile
import zlib
from random import Random

import numpy as np
from PIL import Image

MEMBER = 2**24
MODES = ("L", "RGB", "RGBA", "LA", "P", "1", "I;16", "I", "F", "CMYK", "YCbCr")
FORMATS = {"png": "PNG", "jpg": "JPEG", "jpeg": "JPEG"}


@functools.cache
def member(pattern: bytes) -> bytes:
    """A gzip member of MEMBER bytes: a pattern again and again."""
    return gzip.compress(pattern * (MEMBER // len(pattern)), 9)


def gz_bomb(draw: Random, front: bytes, pattern: bytes) -> bytes:
    """`front`, then up to 4 GB of a pattern, as one .gz of many members."""
    return gzip.compress(front) + member(pattern) * draw.choice((2, 16, 60, 250))


@functools.cache
def _zeros() -> bytes:
    """A piece of a deflate stream, of MEMBER zeros, that can be repeated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(bytes(MEMBER)) + packer.flush(zlib.Z_FULL_FLUSH)


def zip_bomb(name: str, front: bytes, pieces: int) -> bytes:
    """A zip archive of one file: `front` and `pieces` * MEMBER zeros. Its checksum is wrong."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(front) + packer.flush(zlib.Z_FULL_FLUSH)
    end = zlib.compressobj(9, zlib.DEFLATED, -15).flush()
    packed += _zeros() * pieces + end
    size = min(len(front) + pieces * MEMBER, 2**32 - 1)
    fields = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 0, 0, len(packed), size, len(name), 0)
    local = b"PK\3\4" + fields + name.encode() + packed
    central = (b"PK\1\2" + struct.pack("<H", 20) + fields + struct.pack("<HHHII", 0, 0, 0, 0, 0)
               + name.encode())
    return local + central + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central),
                                                     len(local), 0)


def stored(arrays: dict[str, bytes]) -> bytes:
    """A zip archive of these files, as np.savez writes it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in arrays.items():
            archive.writestr(name, data)
    return out.getvalue()


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, allow_pickle=True)
    return out.getvalue()


@functools.cache
def picture(mode: str, suffix: str, height: int = 8, width: int = 8) -> bytes:
    """An image file; of a mode that the format lacks, the nearest it has."""
    rng = np.random.default_rng(height)
    pixels = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
    out = io.BytesIO()
    image = pixels.convert("I").convert("I;16") if mode == "I;16" else pixels.convert(mode)
    try:
        image.save(out, FORMATS.get(suffix, "PNG"))
    except OSError:
        image.convert("RGB").save(out, FORMATS.get(suffix, "PNG"))
    return out.getvalue()


def wide_png(height: int, width: int) -> bytes:
    """A PNG whose header promises this size; it holds almost nothing."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = b"IDAT" + zlib.compress(bytes(1000))
    chunks = [header, data, b"IEND"]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in chunks)
