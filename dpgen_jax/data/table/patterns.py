"""Columns of a schema that are declared together: `f1..f617`, `lab_*`, and `default`.

A key under `columns` may be a range of numbered names or a name with `*` for any letters. `default`
has the entries of all columns that nothing else declares. A column that has a key of its own is
declared by that key. All of it is written out by the names of the columns of the table, which are
public; then the columns come in the order of the table.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from dpgen_jax.core.errors import UserError, listed, quoted
from dpgen_jax.core.files import Json
from dpgen_jax.data.table import transform
from dpgen_jax.data.table.columns import UNDECIDED

DEFAULT = "default"
RANGE = re.compile(r"(?P<start>.*?)(?P<first>\d{1,9})(?P<end>\D*)\.\.(?P=start)(?P<last>\d{1,9})"
                   r"(?P=end)")
FEWEST = 10
"""The fewest columns that a draft declares by one range."""
ALIKE = 4
"""The range of each of these columns is at least the range of all of them, divided by this."""
MOST_SPECIAL = 3
"""The special values that such columns have together, at most."""


def is_pattern(name: str) -> bool:
    """Returns whether a key of a schema stands for several columns, if no column has that name."""
    return "*" in name or RANGE.fullmatch(name) is not None


def has_patterns(document: object) -> bool:
    """Returns whether a document declares columns together."""
    columns = document.get("columns") if isinstance(document, dict) else None
    return isinstance(document, dict) and (DEFAULT in document or (
        isinstance(columns, dict) and any(map(is_pattern, columns))))


def expanded(document: Json, names: Sequence[str], apart: Collection[str | None] = ()) -> Json:
    """Returns a document in which each column stands by itself, in the order of the table.

    Args:
        document: The document of a schema.
        names: The names of the columns of the table.
        apart: Names that `default` does not declare, as the label and the unit.

    Raises:
        UserError: A pattern matches no column, or two patterns match the same one.
    """
    columns = document.get("columns", {})
    if not has_patterns(document) or not isinstance(columns, dict):
        return document
    members = {key: _members(key, names) for key in columns
               if is_pattern(key) and key not in names}
    owner: dict[str, str] = {}
    for pattern, matched in members.items():
        for name in matched:
            if name in columns:
                continue
            if name in owner:
                raise UserError(f"columns: {quoted(name)} is declared by both {owner[name]} and "
                                f"{pattern}; narrow one of them, or declare {quoted(name)} by "
                                "itself")
            owner[name] = pattern
    made = {name: columns[owner.get(name, name)] for name in names
            if name in columns or name in owner}
    made |= {key: entries for key, entries in columns.items()
             if key not in made and key not in members}  # no columns of the table: an error later
    if DEFAULT in document:
        apart = {document.get("label"), *apart}
        made = {name: made.get(name, document[DEFAULT]) for name in (
            *names, *(name for name in made if name not in names))
            if name in made or name not in apart}
    rest = {key: value for key, value in document.items() if key != DEFAULT}
    if isinstance(rest.get("read_from_data"), list):
        rest["read_from_data"] = list(_entries(rest["read_from_data"], members, owner))
    return rest | {"columns": made}


def _members(pattern: str, names: Sequence[str]) -> list[str]:
    """Returns the columns that a pattern stands for."""
    span = RANGE.fullmatch(pattern)
    if span is None:
        expression = re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
        matched = [name for name in names if expression.fullmatch(name)]
        if not matched:
            raise UserError(f"columns: {pattern} matches no column; the "
                            f"table has: {listed(names)}")
        return matched
    first, last = int(span["first"]), int(span["last"])
    if last < first or last - first >= len(names):
        raise UserError(f"columns: {pattern} is {max(0, last - first + 1):,} columns, and the "
                        f"table has {len(names):,}: {listed(names)}; correct the range")
    width, known = len(span["first"]), set(names)
    matched = [f"{span['start']}{number:0{width}}{span['end']}"
               for number in range(first, last + 1)]
    if absent := [name for name in matched if name not in known]:
        raise UserError(f"columns: {pattern} has {listed(absent)}, which the table does not have; "
                        f"it has: {listed(names)}")
    return matched


def _entries(entries: list[Any], members: Mapping[str, list[str]], owner: Mapping[str, str]
             ) -> Iterator[Any]:
    """Yields the entries of a list, as `f1..f9.min`, once for each column of a pattern."""
    for entry in entries:
        pattern, _, what = str(entry).rpartition(".")
        if pattern in members:
            yield from (f"{name}.{what}" for name in members[pattern]
                        if owner.get(name) == pattern)
        else:
            yield entry


# The ranges of a draft.

@dataclasses.dataclass(frozen=True)
class _Drafted:
    """The entries of one column of a draft, or of several, and those that were read from rows."""

    entries: Json
    read: frozenset[str]


def condensed(document: Json) -> Json:
    """Returns a draft in which many numbered columns that are alike are declared by one range.

    Their bounds become those of all of them, which may be wider than those of each, and their
    special values those of all.
    """
    read = document.get("read_from_data", [])
    columns = {name: _Drafted(entries, frozenset(
        key for key in entries if f"{name}.{key}" in set(read)))
        for name, entries in document["columns"].items()}
    spared = {document.get("label"), *document.get("targets", ()), *(
        name for name, drafted in columns.items() if drafted.entries["kind"] == UNDECIDED)}
    made: dict[str, _Drafted] = {}
    for names in _runs(list(columns), spared):
        while names:
            count, merged = _alike([columns[name] for name in names])
            if count < FEWEST:
                count, merged = 1, columns[names[0]]
            made[f"{names[0]}..{names[count - 1]}" if count > 1 else names[0]] = merged
            names = names[count:]
    others = [entry for entry in read if str(entry).rpartition(".")[0] not in columns]
    return document | {
        "columns": {name: drafted.entries for name, drafted in made.items()},
        "read_from_data": others + [f"{name}.{key}" for name, drafted in made.items()
                                    for key in drafted.entries if key in drafted.read]}


def _runs(names: list[str], spared: Collection[object]) -> Iterator[list[str]]:
    """Yields consecutive names whose numbers follow each other; others by themselves."""
    run: list[str] = []
    for name in names:
        joined = f"{run[0]}..{name}" if run else ""
        span = None if name in spared else RANGE.fullmatch(joined)
        if span and int(span["last"]) == int(span["first"]) + len(run) and (
                name == f"{span['start']}{int(span['last']):0{len(span['first'])}}{span['end']}"):
            run.append(name)
            continue
        if run:
            yield run
        run = [name]
    if run:
        yield run


def _alike(columns: Sequence[_Drafted]) -> tuple[int, _Drafted]:
    """Returns how many columns, from the first one on, are alike, and what they have together."""
    merged, count = columns[0], 1
    narrowest = _span(merged.entries)
    for drafted in itertools.islice(columns, 1, None):
        both, least = _merged(merged, drafted), _span(drafted.entries)
        if both is None:
            break
        narrowest = min((span for span in (narrowest, least) if span), default=0.0)
        if _span(both.entries) > ALIKE * narrowest > 0:
            break
        merged, count = both, count + 1
    return count, merged


def _span(entries: Json) -> float:
    """Returns the range of a column of numbers, its special values among them; 0 of others."""
    ends = [value for text in (entries.get("min"), entries.get("max"), *entries.get("special", ()))
            if (value := transform.number(text)) is not None]
    return max(ends) - min(ends) if ends else 0.0


def _merged(a: _Drafted, b: _Drafted) -> _Drafted | None:
    """Returns the entries that two columns have together; None where they are not alike."""
    first, second = a.entries, b.entries
    kinds = {first["kind"], second["kind"]}
    if first == second and a.read == b.read:
        return a
    if not kinds <= {"integer", "continuous"}:
        return None
    plain = {"kind", "min", "max", "nullable", "special", "scale", "decimals"}
    if {**first, **second}.keys() - plain and (
            {key: first.get(key) for key in {*first, *second} - plain}
            != {key: second.get(key) for key in {*first, *second} - plain}):
        return None
    low, high = (pick((first[key], second[key]), key=float)
                 for pick, key in ((min, "min"), (max, "max")))
    made = first | {"kind": "continuous" if "continuous" in kinds else "integer", "min": low,
                    "max": high}
    special = list(dict.fromkeys([*first.get("special", ()), *second.get("special", ())]))
    if len(special) > MOST_SPECIAL:
        return None
    made |= {"special": special} if special else {}
    for key in ("scale", "decimals"):
        if first.get(key) != second.get(key):
            made.pop(key, None)
    if "true" in (first.get("nullable"), second.get("nullable")):
        made["nullable"] = "true"
    return _Drafted(made, a.read | b.read)
