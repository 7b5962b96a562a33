"""A case: files and options for one reader, made by a source of choices.

The choices come from a `random.Random`: one of a seed in long runs, hypothesis's in tests, which
then looks for a smaller case by itself (`st.randoms`).
"""

import base64
import copy
import dataclasses
import functools
import gzip
import io
import json
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from PIL import Image

# Damages valid bytes and valid JSON.

NUMBERS = (0, 1, -1, 2, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**63, -(2**63), 10**9, 10**400, 0.5,
           -0.0, 1e308, -1e308, 5e-324, math.inf, -math.inf, math.nan)
TEXTS = ("", " ", "inf", "nan", "-1", "1e400", "\ud800", "$\\frac{$", "$x$", "a\nb", "\0", "../x",
         "x" * 5000, "\u202e\u0301", "<script>", "null", "{", "\r")
DEEP = "@deep@"
"""stands for 10,000 nested lists in JSON that `dumped` writes"""
LONG = "@long@"
"""stands for a number of 5,000 digits"""
WORDS = (0, 1, 2**7, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1)


def junk(draw: Random, most: int = 40) -> bytes:
    return bytes(draw.randrange(256) for _ in range(draw.randrange(most)))


def damaged(draw: Random, data: bytes, most: int = 3) -> bytes:
    """1 to `most` changes: bytes flipped, cut, repeated, moved, put in, or overwritten."""
    for _ in range(1 + draw.randrange(most)):
        data = draw.choice((_flipped, _cut, _repeated, _moved, _filled, _overwritten))(draw, data)
    return data


def _place(draw: Random, data: bytes) -> tuple[int, int]:
    """Returns where a change begins and ends: short pieces, at the front as often as anywhere."""
    start = draw.randrange(min(len(data), 64) + 1) if draw.randrange(2) else \
        draw.randrange(len(data) + 1)
    longest = draw.choice((1, 4, 64, len(data)))
    return start, min(len(data), start + draw.randrange(longest + 1))


def _flipped(draw: Random, data: bytes) -> bytes:
    start, end = _place(draw, data)
    bit = 1 << draw.randrange(8)
    end = max(end, start + 1)
    return data[:start] + bytes(byte ^ bit for byte in data[start:end]) + data[end:]


def _cut(draw: Random, data: bytes) -> bytes:
    start, end = _place(draw, data)
    return data[:start] if draw.randrange(2) else data[:start] + data[end:]


def _repeated(draw: Random, data: bytes) -> bytes:
    start, end = _place(draw, data)
    return data[:end] + data[start:end] * draw.choice((1, 2, 50)) + data[end:]


def _moved(draw: Random, data: bytes) -> bytes:
    start, end = _place(draw, data)
    return data[end:] + data[start:end] + data[:start]


def _filled(draw: Random, data: bytes) -> bytes:
    start, _ = _place(draw, data)
    return data[:start] + junk(draw) + data[start:]


def _overwritten(draw: Random, data: bytes) -> bytes:
    """A field of 4 bytes becomes an extreme number of either order."""
    start, _ = _place(draw, data)
    word = struct.pack(draw.choice("<>") + "I", draw.choice(WORDS))
    return data[:start] + word + data[start + 4:]


def odd(draw: Random) -> Any:
    """A JSON value that nobody expects."""
    return draw.choice((*NUMBERS, *TEXTS, None, True, False, [], {}, [None], {"": 0}, [[[]]], DEEP,
                        LONG, [1] * 3000))


def changed(draw: Random, value: Any, most: int = 3) -> Any:
    """A copy of a JSON value with 1 to `most` changes somewhere in it."""
    value = copy.deepcopy(value)
    for _ in range(1 + draw.randrange(most)):
        value = _changed(draw, value)
    return value


def _changed(draw: Random, value: Any) -> Any:
    """Goes down at random; replaces, removes, renames, adds or repeats there."""
    if not isinstance(value, dict | list) or not value or draw.randrange(6) == 0:
        return _near(draw, value)
    key = draw.choice(sorted(value)) if isinstance(value, dict) else draw.randrange(len(value))
    kind = draw.randrange(10)
    if kind < 6:
        value[key] = _changed(draw, value[key])
    elif kind == 6:
        del value[key]
    elif kind == 7 and isinstance(value, dict):
        value[draw.choice(TEXTS)] = value.pop(key)
    elif kind == 8 and isinstance(value, dict):
        value[draw.choice((*TEXTS, *sorted(value)))] = odd(draw)
    else:
        part = copy.deepcopy(value[key])
        value[key] = [part] if isinstance(value, dict) else value[key]
        if isinstance(value, list):
            value.append(part)
    return value


def _near(draw: Random, value: Any) -> Any:
    """The value as another type, negated or magnified, or an odd one."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return draw.choice((odd(draw), odd(draw), str(value)[:100], [value],
                        -value if number else None, value * 10**6 if number else odd(draw)))


def dumped(value: Any, **options: Any) -> bytes:
    """JSON, with infinities and NaN as Python writes them; DEEP and LONG become what they name."""
    text = json.dumps(value, **options)
    return (text.replace(json.dumps(DEEP), "[" * 10_000 + "]" * 10_000)
            .replace(json.dumps(LONG), "9" * 5000)).encode()


# Small files that unpack to large ones, made without unpacking them, and valid small images.

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


FIFO, FOLDER, DEVICE, LOOP = "fifo", "folder", "device", "loop"
SPECIAL = (FIFO, FOLDER, DEVICE, LOOP)
"""what may lie in place of a file: a pipe that nobody writes to, a folder, /dev/zero, a
link to itself"""
SMALL = 20_000
"""bytes of a case that is recorded whole"""


@dataclasses.dataclass
class Case:
    """files: path -> bytes, or one of SPECIAL; options: keywords of the reader; known: what a check
    of the outcome needs, and the reader does not get; done: what was done to valid files.
    """

    files: dict[str, bytes | str]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    known: dict[str, Any] = dataclasses.field(default_factory=dict)
    done: list[str] = dataclasses.field(default_factory=list)

    def write(self, root: Path) -> None:
        """Lays the files out in `root`, an empty folder; but for those below what is no folder."""
        for name, content in self.files.items():
            path = root / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except (NotADirectoryError, FileExistsError):
                continue
            if content == FIFO:
                os.mkfifo(path)
            elif content == FOLDER:
                path.mkdir(exist_ok=True)
            elif content == DEVICE:
                path.symlink_to("/dev/zero")
            elif content == LOOP:
                path.symlink_to(path.name)
            else:
                path.write_bytes(content)

    def record(self) -> dict[str, Any]:
        few = sum(map(len, self.files.values())) <= SMALL
        files = {name: content if isinstance(content, str) else
                 {"base64": base64.b64encode(content).decode()} if few else {"bytes": len(content)}
                 for name, content in self.files.items()}
        return {"files": files, "options": self.options, "done": self.done}


def from_record(record: dict[str, Any]) -> Case:
    """The inverse of `Case.record` for a case that was recorded whole."""
    files = {name: content if isinstance(content, str) else base64.b64decode(content["base64"])
             for name, content in record["files"].items()}
    return Case(files, record["options"])


def misplaced(draw: Random, files: dict[str, bytes | str]) -> str:
    """One file is missing, or something that is no file lies in its place."""
    name = draw.choice(sorted(files))
    files[name] = draw.choice((*SPECIAL, b""))
    if draw.randrange(3) == 0:
        del files[name]
    return f"{name}: {files.get(name, 'missing') or 'empty'}"


def some(draw: Random, items: Sequence[Any], most: int = 3) -> list[Any]:
    """Up to `most` of the items, repetitions included; at least one."""
    return [draw.choice(items) for _ in range(1 + draw.randrange(most))]
