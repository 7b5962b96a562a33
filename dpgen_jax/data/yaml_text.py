"""YAML files as dicts, lists and texts, in time and memory linear in the file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import yaml

from dpgen_jax import reading
from dpgen_jax.data.base import locate, quoted
from dpgen_jax.types import UserError

MAX_BYTES, MAX_DEPTH = 2**26, 20
LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # the same, and ten times as fast


def document(given: str) -> Any:
    """What a YAML file holds, all scalars as text. Errors: UserError; a key given twice is one."""
    try:
        text = reading.read_bytes(locate(given), MAX_BYTES).decode("utf-8-sig")
        return _built(yaml.parse(text, LOADER))
    except UnicodeDecodeError as error:
        raise UserError(f"{given} cannot be read ({error}); give a YAML file") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "no text of YAML"
        raise UserError(f"{given}{line}: {problem}; mend the YAML") from error


def _built(events: Iterable[yaml.Event]) -> Any:
    """Dicts, lists and texts of a stream of YAML events, in time and memory linear in the file:
    every scalar as the text that the user typed, less the spaces around it. Aliases, by which a
    short file could stand for an endless one, are refused, and nesting beyond `MAX_DEPTH`.
    Errors: yaml.MarkedYAMLError."""
    open_parts: list[list[tuple[Any, yaml.Mark]]] = [[]]
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


def _mapping(parts: list[tuple[Any, yaml.Mark]]) -> dict[str, Any]:
    """Of keys and values in turn."""
    made: dict[str, Any] = {}
    for (key, mark), (value, _) in zip(parts[::2], parts[1::2], strict=True):
        if not isinstance(key, str):
            raise yaml.MarkedYAMLError(problem="found unhashable key", problem_mark=mark)
        if key in made:
            raise yaml.MarkedYAMLError(problem=f"{quoted(key)} is given twice", problem_mark=mark)
        made[key] = value
    return made


def _fault(problem: str, event: yaml.Event) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
