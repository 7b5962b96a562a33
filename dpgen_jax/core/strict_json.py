"""JSON objects as files of a run hold them: finite numbers, each field once, few levels."""

from __future__ import annotations

import json
import math
from typing import Any

Json = dict[str, Any]
"""An object of JSON: its values, by name."""
MAX_DEPTH = 50


def parse_json(data: bytes) -> Json:
    """Reads a JSON object, of finite numbers and at most `MAX_DEPTH` levels.

    Args:
        data: The bytes.

    Raises:
        ValueError: They are no such object.
    """
    try:
        value = json.loads(data, parse_constant=_number, parse_float=_number, parse_int=_whole,
                           object_pairs_hook=_each_once)
    except RecursionError:
        raise ValueError(f"more than {MAX_DEPTH} levels of nesting") from None
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    _check_depth(value)
    return value


def _number(text: str) -> float:
    """Parses a number, and refuses NaN and infinities, also as 1e400."""
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text[:40]} is no finite number")
    return value


def _whole(text: str) -> int:
    if len(text) > 20:  # more than any 64 bits
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _each_once(pairs: list[tuple[str, Any]]) -> Json:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a field is given twice")
    return made


def _check_depth(value: object) -> None:
    parts = [value]
    for _ in range(MAX_DEPTH):
        parts = [part for one in parts for part in (
            one.values() if isinstance(one, dict) else one if isinstance(one, list) else ())]
    if parts:
        raise ValueError(f"more than {MAX_DEPTH} levels of nesting")
