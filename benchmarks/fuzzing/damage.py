"""Damages valid bytes and valid JSON."""

from __future__ import annotations

import copy
import json
import math
import struct
from random import Random
from typing import Any

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
