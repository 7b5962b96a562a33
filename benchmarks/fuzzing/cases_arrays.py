"""Damaged idx files, npz files and image folders."""

from __future__ import annotations

import gzip
import math
import struct
from random import Random
from typing import Any

import numpy as np

from benchmarks.fuzzing import bombs
from benchmarks.fuzzing.case import Case, misplaced
from benchmarks.fuzzing.damage import WORDS, damaged, junk

SIZES = (None, None, None, 8, 4, 3, 0, -1, 1000, 100_000, 10**9, 2**31, 2**63)
CLASSES = (None, 3, 3, 3, 1, 0, -1, 10**9, 2**63)
IDX = {"images": "train-images-idx3-ubyte", "labels": "train-labels-idx1-ubyte"}


def _options(draw: Random, spec: str, **more: Any) -> dict[str, Any]:
    """With an odd size, or number of classes, now and then."""
    arrays = {"spec": spec, **more}
    if draw.randrange(4) == 0:
        arrays["image_size"] = draw.choice(SIZES)
    if draw.randrange(6) == 0:
        arrays["classes"] = draw.choice(CLASSES)
    return arrays


def idx(draw: Random) -> Case:
    """One of the two files is odd: its header, its bytes, what it unpacks to."""
    n, side = draw.choice((1, 3, 7)), draw.choice((4, 8))
    files: dict[str, bytes | str] = {}
    target = draw.choice(("images", "labels"))
    for part, shape in {"images": [n, side, side], "labels": [n]}.items():
        pixels = bytes(i % 3 for i in range(math.prod(shape)))
        kind = draw.randrange(10) if part == target else 9
        if kind < 3:
            shape[draw.randrange(len(shape))] = draw.choice(WORDS)
        head = b"\0\0\x08" + bytes([len(shape)]) + struct.pack(f">{len(shape)}I", *shape)
        data, name = head + pixels, IDX[part]
        if kind in (2, 3, 4):
            data = damaged(draw, data)
        if kind in (4, 5, 6):
            data, name = gzip.compress(data), name + ".gz"
            data = damaged(draw, data) if kind == 5 else data
        elif kind == 7:
            data, name = bombs.gz_bomb(draw, data, b"\0"), name + ".gz"
        files[name] = data
    if draw.randrange(12) == 0:
        misplaced(draw, files)
    return Case({f"set/{name}": data for name, data in files.items()}, _options(draw, "idx:set"))


DTYPES = ("u1", "u1", "i4", ">i8", "i1", "f4", "f2", ">f8", "g", "c16", "?", "S3", "U2", "M8[s]",
          "m8[D]", "O", "V4", [("a", "u1"), ("b", "f4")])
SHAPES = ((), (0,), (6,), (6, 1), (6, 8), (6, 8, 8), (6, 8, 8, 1), (6, 8, 8, 3), (6, 8, 8, 4),
          (6, 0, 8), (0, 8, 8), (6, 8, 8, 0), (6, 8, 8, 1, 1), (6, 2, 2), (1,) * 32, (6, 3, 5))
TREE = {"x_train": (6, 8, 8), "y_train": (6,), "x_test": (6, 8, 8), "y_test": (6,),
        "classes": (), "client_id": (6,)}


def _array(draw: Random, shape: tuple[int, ...]) -> np.ndarray:
    """Few values, in any order of memory."""
    kind = draw.choice(DTYPES)
    values = np.arange(math.prod(shape)) % 3
    if kind == "O":
        array = np.array([draw.choice((None, "a", 1, {})) for _ in values], object)
    elif isinstance(kind, str) and kind[0] in "SU":
        array = np.array([draw.choice(("a", "", "\0b")) for _ in values], kind)
    elif isinstance(kind, list) or kind[0] in "VmM":
        array = np.zeros(len(values), kind)
    else:
        array = values.astype(kind)
        if array.dtype.kind in "fc" and draw.randrange(2):
            array[:1] = draw.choice((np.nan, np.inf, -1, 0.5))
        elif array.dtype.kind == "i" and draw.randrange(3) == 0:
            array[:1] = draw.choice((-1, 100, np.iinfo(array.dtype).max, np.iinfo(array.dtype).min))
    return np.asarray(array.reshape(shape), order=draw.choice("CF"))


def _header(draw: Random) -> bytes:
    """A .npy whose header says what its bytes do not bear out."""
    shape = draw.choice(("(6, 8, 8)", "(1000000000, 1000000000)", "(-1, 8, 8)", "()",
                         "(6.0,)", "(2147483648, 8, 8)", "(True,)", "(" * 9000, "6", "None",
                         "(9999999999999999999999,)"))
    kind = draw.choice(("'|u1'", "'|O'", "'<U1000000000'", "'|V0'", "'|S0'", "3", "'<f4, <f4'",
                        "[('a', '|u1', (9, 9))]", "'(1000000,)u1'", "'|u1'\0",
                        "'<M8[1000000000Y]'"))
    text = f"{{'descr': {kind}, 'fortran_order': {draw.choice(('False', 'True', '1'))}, " \
           f"'shape': {shape}, }}".encode()
    version = draw.choice((1, 1, 2, 3, 9))
    length = draw.choice((len(text), len(text), 65535, 0))
    size = struct.pack("<H" if version == 1 else "<I", length)
    return b"\x93NUMPY" + bytes([version, 0]) + size + text + bytes(384)


def npz(draw: Random) -> Case:
    """One or two arrays are odd or missing, or the archive is."""
    targets = [draw.choice(tuple(TREE)) for _ in range(1 + draw.randrange(2))]
    parts = ("x_train", "y_train", "classes", *draw.choice(((), ("client_id",), (
        "x_test", "y_test"), ("x_test",))))
    arrays = {}
    for name in dict.fromkeys((*parts, *targets)):
        shape, kind = TREE[name], draw.randrange(8) if name in targets else 7
        if kind == 0:
            continue
        if kind == 1:
            arrays[f"{name}.npy"] = _header(draw)
        elif kind < 6:
            arrays[f"{name}.npy"] = bombs.npy(_array(
                draw, draw.choice(SHAPES) if kind == 2 else shape))
        else:
            plain = np.arange(math.prod(shape)).reshape(shape) % 3 + 3 * (name == "classes")
            arrays[f"{name}.npy"] = bombs.npy(plain.astype("u1" if name[0] == "x" else "i4"))
    data: bytes | str = bombs.stored(arrays)
    kind = draw.randrange(16)
    if kind == 0:
        shape = f"({2**20 * draw.choice((1, 64, 4096))}, 16)"
        front = bombs.npy(np.zeros((1, 16), "u1"))[:-16].replace(b"(1, 16)", shape.encode())
        data = bombs.zip_bomb("x_train.npy", front, draw.choice((1, 16, 60)))
    elif kind == 1:
        data = bombs.npy(_array(draw, draw.choice(SHAPES)))
    elif kind < 5:
        data = damaged(draw, data)
    files = {"a.npz": data}
    if kind == 5:
        misplaced(draw, files)
    return Case(files, _options(draw, "npz:a.npz"))


NAMES = ("a", "b", "c", "$x$", "a\nb", ".hidden", " ", "\udcff", "x" * 200, "train", "<b>", "%s{0}")


def folder(draw: Random) -> Case:
    files: dict[str, bytes | str] = {}
    names = [draw.choice(NAMES) for _ in range(1 + draw.randrange(3))]
    for part in ("train", "test")[:1 + draw.randrange(2)]:
        for name in names:
            for i in range(1 + draw.randrange(2)):
                suffix = draw.choice(("png", "png", "jpg", "jpeg", "PNG", "gif"))
                files[f"set/{part}/{name}/{i}.{suffix}"] = _picture(draw, suffix)
    kind = draw.randrange(8)
    if kind == 0:
        misplaced(draw, files)
    elif kind == 1:
        files[f"set/{draw.choice(('train', 'test'))}/{draw.choice(NAMES)}/0.png"] = junk(draw)
    elif kind == 2:
        files[f"set/train/{draw.choice(names)}/9.png"] = draw.choice(("fifo", "device", "folder"))
    options = _options(draw, "folder:set")
    if draw.randrange(3) == 0:
        options["skip_bad"] = True
    return Case(files, options)


def _picture(draw: Random, suffix: str) -> bytes:
    kind = draw.randrange(8)
    if kind == 0:
        return bombs.wide_png(draw.choice((0, 1, 20_000, 2**31 - 1)), draw.choice((1, 8, 20_000)))
    side = draw.choice((8, 8, 8, 4, 1, 300))
    mode = draw.choice(bombs.MODES) if kind < 4 else "L"
    data = bombs.picture(mode, suffix.lower(), 8, side)
    return damaged(draw, data) if kind == 1 else data
