"""One change after the other to a JSON document: of an editor, an attacker or a bad disk."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator
from typing import Any

VALUES = {
    "null": None, "true": True, "text": "abc", "number in text": "5", "empty": "", "list": [],
    "dict": {}, "negative": -1, "fraction": 0.5, "huge": 10**30, "large": 1e308, "inf": "inf",
    "nested": [[{"a": [1]}]], "dicts": [{"mean": {}}], "leaf": {"mean": "x", "std": []},
    "bytes": "\x00\u202e</script>$x^"}
DEEP = "[" * 10_000


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """The path of every part, the whole first; of a list only its first part."""
    yield path
    parts = (value.items() if isinstance(value, dict) else
             itertools.islice(enumerate(value), 1) if isinstance(value, list) else ())
    for key, part in parts:
        yield from places(part, (*path, key))


def put(value: Any, path: tuple, new: Any) -> Any:
    """A copy with `new` at the path."""
    if not path:
        return new
    made = copy.copy(value)
    made[path[0]] = put(value[path[0]], path[1:], new)
    return made


def without(value: dict, path: tuple) -> dict:
    """A copy without the field at the path."""
    made = copy.deepcopy(value)
    part = made
    for key in path[:-1]:
        part = part[key]
    del part[path[-1]]
    return made


def documents(value: dict) -> Iterator[tuple[str, str]]:
    """(what was changed, the text of the file)."""
    for path in places(value):
        name = ".".join(map(str, path)) or "the whole"
        for what, new in VALUES.items():
            yield f"{name}: {what}", json.dumps(put(value, path, new))
        if path:
            yield f"{name}: missing", json.dumps(without(value, path))
            yield f"{name}: deep", json.dumps(put(value, path, "DEEP")).replace('"DEEP"', DEEP)
    text = json.dumps(value)
    yield from {
        "deep": DEEP, "deep objects": '{"a":' * 10_000, "empty": "", "cut": text[:len(text) // 2],
        "not a number": text.replace("1", "NaN", 1), "infinite": text.replace("1", "1e400", 1),
        "half a pair": text.replace('"', '"\\ud800', 1), "a key twice": "{" + text[1:-1] + "," +
        text[1:], "many digits": text.replace("1", "1" * 5000, 1), "long": text + " " * 10**6,
        "zero byte": text + "\x00"}.items()
