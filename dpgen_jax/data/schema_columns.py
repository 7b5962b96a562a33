"""One column of a schema: its entries, checked, as a `Column` or an `Identifier`."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from dpgen_jax.core.errors import nearest
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import Column, Identifier, UserError, Written
from dpgen_jax.data import column_types, forms, transform
from dpgen_jax.data.base import quoted
from dpgen_jax.data.schema_forms import MARKS, fields

NUMBER, CATEGORY = ("min", "max"), ("categories",)
MAX_RANGE = 2**23  # whole numbers that a float32 in [0, 1] keeps apart
PRIVATE = "private"  # in place of an entry: to be bought
NULLS = frozenset({"", "NA", "NaN", "nan", "null", "NULL", "?"})
TRUTH = {"true": True, "yes": True, "false": False, "no": False}
BOOLEAN = ("false", "true")


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of column, as a schema describes it.

    Attributes:
        coded: The kind of `Column` that it is.
        needed: The entries without which it says too little.
        optional: The others that it may have, beside `nullable`.
        written: What its texts are.
    """

    coded: Literal["continuous", "integer", "categorical", "ordinal"]
    needed: tuple[str, ...] = NUMBER
    optional: tuple[str, ...] = ()
    written: Written = "plain"


KINDS: dict[str, Kind] = {
    "continuous": Kind("continuous", optional=("special", "scale", "decimals", *MARKS)),
    "integer": Kind("integer", optional=("special", "scale", *MARKS)),
    "categorical": Kind("categorical", CATEGORY, ("other",)),
    "ordinal": Kind("ordinal", CATEGORY),
    "codes": Kind("ordinal", CATEGORY, ("other",), "codes"),
    "boolean": Kind("categorical", (), CATEGORY, "boolean"),
    "date": Kind("integer", NUMBER, ("special", "format"), "date"),
    "datetime": Kind("continuous", NUMBER, ("special", "format"), "datetime"),
    "time": Kind("continuous", (), ("special", "format", *NUMBER), "time"),
    "duration": Kind("continuous", NUMBER, ("special", "scale", "format"), "duration")}
IDENTIFIER = "identifier"
KNOWN = (*KINDS, IDENTIFIER)
ENTRIES = ("kind", "nullable", *NUMBER, *CATEGORY, "other", "format", "special", "scale",
           "decimals", *MARKS, "pattern", "odd", "dtype")
TEXTS = ("other", "format", "scale", "decimals", *MARKS, "odd", "dtype")


def column(name: str, entries: Any) -> Column:
    """Checks the entries of a column, whose kind is no `identifier`.

    Args:
        name: Its name.
        entries: A dict of texts and lists of texts.

    Raises:
        UserError: Naming the column, the entry and the mend.
    """
    kind = kind_of(name, entries)
    _check_keys(name, kind, entries)
    nullable = TRUTH.get(str(entries.get("nullable", "false")).lower())
    if nullable is None:
        raise UserError(f"column {name}: nullable is {entries['nullable']!r}; write true or false")
    made = _made(name, kind, entries, nullable)
    if "dtype" in entries:
        made = dataclasses.replace(made, dtype=entries["dtype"])
        column_types.check(made)
    return made


def _made(name: str, kind: str, entries: Any, nullable: bool) -> Column:
    """Returns the column, without its type."""
    coded = KINDS[kind].coded
    if coded in ("categorical", "ordinal"):
        texts = _categories(name, {"categories": list(BOOLEAN)} | entries, nullable)
        if kind == "boolean" and len({text.casefold() for text in texts}) != 2:
            raise UserError(f"column {name}: categories are {', '.join(texts)}; a boolean has two, "
                            "false first")
        return Column(name, coded, categories=texts, nullable=nullable,
                      written=KINDS[kind].written)
    shaped = Column(name, coded, nullable=nullable, **fields(name, kind, entries))
    low, high = _bounds(shaped, kind, entries)
    return _checked_scale(dataclasses.replace(
        shaped, low=low, high=high, special=_special(shaped, entries)))


def identifier(name: str, entries: Mapping[str, Any], position: int) -> Identifier:
    """Checks the entries of an identifier.

    Args:
        name: The name of the column.
        entries: Its entries.
        position: Its place among all columns.

    Raises:
        UserError: As `column`.
    """
    for key in entries:
        if key not in ("kind", "pattern", "dtype"):
            raise UserError(f"column {name}: {key} does not belong to a column of kind identifier, "
                            "whose cells are never read; remove it or change the kind")
    text = entries.get("pattern", "")
    if not isinstance(text, str) or not re.search("[#@]", text):
        raise UserError(f"column {name}: pattern is {text!r}; write one with # for each digit and "
                        "@ for each capital letter, as P-#####")
    return Identifier(name, text, position,
                      column_types.of_identifier(name, text, entries.get("dtype", "")))


def kind_of(name: str, entries: object) -> str:
    """Returns the kind that the entries of a column declare.

    Args:
        name: The name of the column.
        entries: Its entries.

    Raises:
        UserError: For entries that are none, and a kind that is not known.
    """
    if not isinstance(entries, dict):
        raise UserError(f"column {name}: give its entries, as in {{kind: integer, min: 0, max: 9}}")
    kind = str(entries.get("kind", ""))
    if kind not in KNOWN:
        problem = f"unknown kind {kind!r}{nearest(kind, KNOWN)}" if kind else "kind is missing"
        raise UserError(f"column {name}: {problem}; known: {', '.join(KNOWN)}")
    return kind


def _check_keys(name: str, kind: str, entries: Json) -> None:
    """Checks that a column has the keys of its kind and no other."""
    needed = KINDS[kind].needed
    allowed = ("kind", "nullable", *needed, *KINDS[kind].optional, "odd", "dtype")
    for key, value in entries.items():
        if key not in ENTRIES:
            raise UserError(f"column {name}: unknown key {key!r}{nearest(key, allowed)}; known: "
                            f"{', '.join(allowed)}")
        if key not in allowed:
            raise UserError(f"column {name}: {key} does not belong to a column of kind {kind}; "
                            "remove it or change the kind")
        if value == PRIVATE and key in (*NUMBER, *CATEGORY):
            raise UserError(f"column {name}: {key} is still `private`; declare it, or buy it with "
                            "`python -m dpgen_jax.schema DATA --schema DRAFT --schema-epsilon E "
                            "--out NEW`")
        if key in TEXTS and not isinstance(value, str):
            raise UserError(f"column {name}: {key} is {value!r}; write a text or a number")
    for key in needed:
        if key not in entries:
            raise UserError(f"column {name}: {key} is missing; declare it from public knowledge")


def distinguishable(low: float, high: float) -> bool:
    """Returns whether the integers low..high survive their encoding as float32 in [0, 1].

    Args:
        low: The lowest of them.
        high: The highest of them.
    """
    return high - low <= MAX_RANGE and max(-low, high) <= 2**53


def _bounds(shaped: Column, kind: str, entries: dict[str, str]) -> tuple[float, float]:
    """Returns the bounds of a column of numbers."""
    name, values = shaped.name, []
    ends = dict(zip(NUMBER, forms.ends_of_day(shaped), strict=True)) if kind == "time" else {}
    for key in NUMBER:
        value = _value(shaped, entries[key]) if key in entries else ends[key]
        if value is None:
            expected = ("finite number" if shaped.written == "plain" else forms.what(shaped))
            raise UserError(f"column {name}: {key} is {entries[key]!r}; give a {expected}")
        if kind == "integer" and not value.is_integer():
            raise UserError(f"column {name}: {key} is {entries[key]}; an integer column has whole "
                            "bounds, or declare it continuous")
        if shaped.decimals >= 0 and value != round(value, shaped.decimals):
            raise UserError(f"column {name}: {key} is {entries[key]}, with more digits than the "
                            f"{shaped.decimals} decimals that are declared; declare more, or round")
        values.append(value)
    low, high = values
    if low > high:
        raise UserError(f"column {name}: min {entries['min']} is above max {entries['max']}; "
                        "swap them")
    if kind == "integer" and not distinguishable(low, high):
        raise UserError(f"column {name}: the integers {entries['min']}..{entries['max']} exceed "
                        f"the {MAX_RANGE} that are told apart; declare it continuous, or narrow it")
    if not math.isfinite(high - low):
        raise UserError(f"column {name}: the range from {entries['min']} to {entries['max']} is "
                        "too large; narrow it")
    return low, high


def _value(shaped: Column, text: object) -> float | None:
    """Returns the code of a value in a schema: a plain number, or a date or time as in the file."""
    if shaped.written == "plain" or not isinstance(text, str):
        return forms.number(text)
    return forms.reader(shaped)(text)


def _special(shaped: Column, entries: Json) -> tuple[float, ...]:
    """Returns the declared special values of a column of numbers."""
    texts = entries.get("special", [])
    if not isinstance(texts, list):
        raise UserError(f"column {shaped.name}: special is no list; write [0, 99]")
    values: list[float] = []
    for text in texts:
        value = _value(shaped, text)
        exact = value is not None and (
            round(value, shaped.decimals) == value if shaped.decimals >= 0 else
            shaped.kind != "integer" or (value.is_integer() and abs(value) <= 2**53))
        if value is None or not exact or value in values:
            raise UserError(f"column {shaped.name}: special value {text!r}; each is given once, "
                            "and is such a value as the column holds")
        values.append(value + 0.0)
    return tuple(values)


def _checked_scale(made: Column) -> Column:
    """Checks that a log scale keeps neighbouring whole numbers apart."""
    if made.scale == "log" and made.kind == "integer":
        top = max(abs(made.low), abs(made.high))
        near = transform.unit(made, np.sign(made.high or -1) * np.array([top - 1, top]))
        if top >= 1 and abs(near[1] - near[0]) < 2 / MAX_RANGE:
            raise UserError(f"column {made.name}: whole numbers up to {top:.0f} are not told apart "
                            "on a log scale; declare it continuous with decimals: 0")
    return made


def _categories(name: str, entries: Json, nullable: bool) -> tuple[str, ...]:
    """Returns the categories of a column."""
    texts = entries["categories"]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UserError(f'column {name}: categories is no list of texts; write ["a", "b"]')
    categories = tuple(texts)
    if not categories:
        raise UserError(f"column {name}: no categories; declare at least 1")
    earlier: set[str] = set()
    for text in categories:
        if not text or (nullable and text in NULLS):
            raise UserError(f"column {name}: the category {text!r} means null; remove it" + (
                "" if nullable else " and declare nullable: true"))
        if text in earlier:
            raise UserError(f"column {name}: category {quoted(text)} is given twice; remove one")
        earlier.add(text)
    if "other" in entries and entries["other"] not in earlier:
        raise UserError(f"column {name}: other is {entries['other']!r}; name one of its categories")
    return categories


def placeholders(name: str, entries: Any) -> dict[str, str]:
    """Returns bounds that a column could have, to try a draft whose bounds are not bought yet.

    Args:
        name: The name of the column.
        entries: Its entries.

    Raises:
        UserError: For a kind or form that is not known.
    """
    kind = kind_of(name, entries)
    if kind not in forms.DEFAULTS:
        return {"min": "0", "max": "1"}
    shaped = Column(name, "continuous", **fields(name, kind, entries))
    return dict(zip(NUMBER, forms.bounds_texts(shaped, 0.0, 1.0), strict=True))


def is_declarable(made: Column) -> bool:
    """Returns whether a schema can declare a column.

    Args:
        made: The column, as a release holds it.
    """
    kinds = [name for name, kind in KINDS.items()
             if (kind.coded, kind.written) == (made.kind, made.written)]
    plain = made.written == "plain"
    try:
        ends = [repr(value) if plain else forms.texts(made, np.array([value]))[0]
                for value in (made.low, made.high, *made.special)]
        entries = {"kind": kinds[0], "nullable": str(made.nullable), "min": ends[0],
                   "max": ends[1], "special": ends[2:], "categories": list(made.categories),
                   "scale": made.scale, "format": made.format, "unit": made.unit,
                   "decimals": str(made.decimals), "decimal_mark": made.marks[:1],
                   "thousands": made.marks[1:], "dtype": made.dtype}
        allowed = ("kind", "nullable", *KINDS[kinds[0]].needed, *KINDS[kinds[0]].optional, "dtype")
        return column(made.name, {key: entries[key] for key in allowed if key in entries and (
            key, entries[key]) not in (("decimals", "-1"), ("dtype", ""))}) == made
    except (UserError, IndexError, ValueError, OverflowError, KeyError):
        return False
