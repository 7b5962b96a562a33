"""YAML files as dicts, lists and texts, in time and memory linear in the file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import yaml

from dpgen_jax.core import reading
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import UserError
from dpgen_jax.data.base import locate, quoted

MAX_BYTES, MAX_DEPTH = 2**26, 20
LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # the same, and ten times as fast

Mark = Any
"""A position in a file: yaml's own, or that of its C library, which share no type."""


def document(path: str) -> Any:
    """Reads a YAML file, all scalars as text.

    Args:
        path: The file.

    Returns:
        Dicts, lists and texts; None for an empty file.

    Raises:
        UserError: It is not YAML, or has a key twice, an alias, or too many levels.
    """
    try:
        text = reading.read_bytes(locate(path), MAX_BYTES).decode("utf-8-sig")
        return _built(yaml.parse(text, LOADER))
    except UnicodeDecodeError as error:
        raise UserError(f"{path} cannot be read ({error}); give a YAML file") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "no text of YAML"
        raise UserError(f"{path}{line}: {problem}; mend the YAML") from error


def _built(events: Iterable[yaml.Event]) -> Any:
    """Returns the dicts, lists and texts of a stream of YAML events.

    Time and memory are linear in the file. Every scalar is the text that the user typed, less the
    spaces around it. Aliases, by which a short file could stand for an endless one, are refused,
    and nesting beyond `MAX_DEPTH`; both are a yaml.MarkedYAMLError.
    """
    open_parts: list[list[tuple[Any, Mark]]] = [[]]
    for event in events:
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _fault("anchors (&) and aliases (*) are not read; write the value out", event)
        if isinstance(event, yaml.CollectionStartEvent):
            if len(open_parts) > MAX_DEPTH:
                raise _fault(f"more than {MAX_DEPTH} levels of nesting", event)
            open_parts.append([])
        elif isinstance(event, yaml.CollectionEndEvent):
            parts = open_parts.pop()
            value = (_mapping(parts) if isinstance(event, yaml.MappingEndEvent)
                     else [part for part, _ in parts])
            open_parts[-1].append((value, event.start_mark))
        elif isinstance(event, yaml.ScalarEvent):
            if re.search(r"[\ud800-\udfff]", event.value):
                raise _fault("half a surrogate pair is no text", event)
            open_parts[-1].append((event.value.strip(), event.start_mark))
        elif isinstance(event, yaml.DocumentStartEvent) and open_parts[0]:
            raise _fault("a second document; a schema is one", event)
    return open_parts[0][0][0] if open_parts[0] else None


def _mapping(parts: list[tuple[Any, Mark]]) -> Json:
    """Returns the dict of alternating keys and values."""
    mapping: Json = {}
    for (key, mark), (value, _) in zip(parts[::2], parts[1::2], strict=True):
        if not isinstance(key, str):
            raise yaml.MarkedYAMLError(problem="found unhashable key", problem_mark=mark)
        if key in mapping:
            raise yaml.MarkedYAMLError(problem=f"{quoted(key)} is given twice", problem_mark=mark)
        mapping[key] = value
    return mapping


def _fault(problem: str, event: yaml.Event) -> yaml.MarkedYAMLError:
    """Returns the error of a document that cannot be read, at an event."""
    mark: Mark = event.start_mark
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
