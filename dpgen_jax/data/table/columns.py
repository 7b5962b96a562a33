"""One column of a schema: its kind, type and format, checked, and its cells that have no value.

The `dtype` of a column is its type in pandas frames and Parquet files. Types are named as in
pandas; `date` and `time` are the values of Python's `datetime`. A type says how values are stored,
and changes nothing that is learned.

The entry `odd` of a schema says how cells are read that have no value of their column. Where a
schema was bought, no cell may be an error: an error would reveal something that no epsilon covers.

All errors are a UserError that names the column, the entry and the mend.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from dpgen_jax.core.errors import listed, nearest, option, quoted
from dpgen_jax.core.files import Json
from dpgen_jax.core.types import Column, Identifier, TableSpec, UserError, Written
from dpgen_jax.data.table import transform

MARKS = ("unit", "decimal_mark", "thousands")
NUMBER, CATEGORY = ("min", "max"), ("categories",)


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of column, as a schema describes it.

    Attributes:
        coded: The kind of `Column` that it is.
        needed: The entries that it must have.
        optional: The others that it may have, in addition to `nullable`, `odd` and `dtype`.
        written: What its texts are.
    """

    coded: Literal["continuous", "integer", "categorical", "ordinal"]
    needed: tuple[str, ...] = NUMBER
    optional: tuple[str, ...] = ()
    written: Written = "plain"

    @property
    def entries(self) -> tuple[str, ...]:
        """All entries that a column of this kind may have."""
        return ("kind", "nullable", *self.needed, *self.optional, "odd", "dtype")


KINDS: dict[str, Kind] = {
    "continuous": Kind("continuous", optional=("special", "scale", "decimals", *MARKS)),
    "integer": Kind("integer", optional=("special", "scale", *MARKS)),
    "categorical": Kind("categorical", CATEGORY, ("other",)),
    "ordinal": Kind("ordinal", CATEGORY),
    "codes": Kind("ordinal", CATEGORY, ("other",), "codes"),
    "boolean": Kind("categorical", (), CATEGORY, "boolean"),
    "date": Kind("integer", NUMBER, ("special", "format"), "date"),
    "datetime": Kind("continuous", NUMBER, ("special", "format", "zone"), "datetime"),
    "time": Kind("continuous", (), ("special", "format", *NUMBER), "time"),
    "duration": Kind("continuous", NUMBER, ("special", "scale", "format"), "duration")}
IDENTIFIER, TEXT, LEFT_OUT = "identifier", "text", "left_out"
UNREAD = (IDENTIFIER, TEXT, LEFT_OUT)
"""The kinds of columns whose cells are never read."""
KNOWN = (*KINDS, *UNREAD)
UNDECIDED = "?"
"""The kind, in a draft, of a column for which nothing was found."""
TEXT_ENTRIES = ("other", "format", "zone", "scale", "decimals", *MARKS, "odd", "dtype")
ENTRIES = ("kind", "nullable", *NUMBER, *CATEGORY, *TEXT_ENTRIES, "special", "pattern",
           "placeholder")
MAX_RANGE = 2**23  # whole numbers that a float32 in [0, 1] keeps apart
PRIVATE = "private"  # in place of an entry: to be bought
NULLS = frozenset({"", "NA", "NaN", "nan", "null", "NULL", "?"})
TRUTH = {"true": True, "yes": True, "false": False, "no": False}
BOOLEAN = ["false", "true"]
SPACE = "space"
"""The name of a space between thousands, which a schema's texts do not end in."""
DIRECTIVES = frozenset("YymdjbBHIMSpfz")
"""The letters after % that a format of dates and times may have."""
DURATIONS = ("H:MM:SS", "HH:MM:SS", "H:MM", "HH:MM", "M:SS", "MM:SS")


def column(name: str, entries: Any) -> Column:
    """Returns a column, whose cells are read, of its entries: texts and lists of texts."""
    kind = kind_of(name, entries)
    _check_keys(name, kind, entries)
    nullable = TRUTH.get(str(entries.get("nullable", "false")).lower())
    if nullable is None:
        raise UserError(f"column {name}: nullable is {entries['nullable']!r}; write true or false")
    made = Column(name, KINDS[kind].coded, nullable=nullable, written=KINDS[kind].written)
    if made.kind in ("categorical", "ordinal"):
        texts = _categories(name, {"categories": BOOLEAN} | entries, nullable)
        if kind == "boolean" and len({text.casefold() for text in texts}) != 2:
            raise UserError(f"column {name}: categories are {', '.join(texts)}; a boolean has two, "
                            "false first")
        made = dataclasses.replace(made, categories=texts)
    else:
        made = dataclasses.replace(made, **format_fields(name, kind, entries))
        low, high = _bounds(made, kind, entries)
        made = dataclasses.replace(made, low=low, high=high, special=_special(made, entries))
        _check_scale(made)
    if "dtype" in entries:
        made = dataclasses.replace(made, dtype=entries["dtype"])
        check_type(made)
    return made


def is_partial(entries: object) -> bool:
    """Returns whether the entries of a column leave the rest to be bought."""
    return isinstance(entries, dict) and "kind" not in entries and entries.keys() <= {
        "zone", "dtype"}


def check_partial(name: str, entries: Mapping[str, Any]) -> None:
    """Checks the entries of a column whose other ones are to be bought."""
    if "zone" in entries:
        _check_zone(name, entries["zone"])
    if entries.get("dtype", "str") not in TYPES:
        raise UserError(f"column {name}: dtype is {entries['dtype']!r}; known: {listed(TYPES)}")


def with_partial(name: str, bought: Json, entries: Mapping[str, Any]) -> Json:
    """Returns the bought entries of a column, with the declared ones that it can have."""
    made, zone = dict(bought), entries.get("zone", "")
    if made["kind"] not in KINDS:  # whose cells are never read
        return made
    if zone and made["kind"] == "datetime":
        made |= {"zone": zone, "format": re.sub("Z$", transform.ZONE, made["format"])}
    made.pop("dtype", None)
    dtype = declared_type(column(name, made), entries.get("dtype", ""))
    return made | ({"dtype": dtype} if dtype else {})


def unread(name: str, entries: Mapping[str, Any], position: int) -> Identifier | None:
    """Returns the column of its entries, whose cells are never read; None where it is left out.

    Args:
        name: The name of the column.
        entries: Its entries, of a kind of `UNREAD`.
        position: Its place among all columns of a release.
    """
    kind = kind_of(name, entries)
    allowed = {IDENTIFIER: ("pattern", "dtype"), TEXT: ("placeholder", "dtype"), LEFT_OUT: ()}[kind]
    for key in entries:
        if key not in ("kind", *allowed):
            raise UserError(f"column {name}: {key} does not belong to a column of kind {kind}, "
                            "whose cells are never read; remove it or change the kind")
    if kind == LEFT_OUT:
        return None
    text = entries.get(allowed[0], "")
    if kind == TEXT and (not isinstance(text, str) or not text or re.search("[#@]", text)):
        raise UserError(f"column {name}: placeholder is {text!r}; write the text that stands in "
                        "every synthetic row, without # and @, as (note)")
    if kind == IDENTIFIER and (not isinstance(text, str) or not re.search("[#@]", text)):
        raise UserError(f"column {name}: pattern is {text!r}; write one with # for each digit and "
                        "@ for each capital letter, as P-#####")
    return Identifier(name, text, position,
                      type_of_identifier(name, text, entries.get("dtype", "")))


def kind_of(name: str, entries: object) -> str:
    """Returns the kind that the entries of a column declare, which need not be well formed."""
    if not isinstance(entries, dict):
        raise UserError(f"column {name}: give its entries, as in {{kind: integer, min: 0, max: 9}}")
    kind = str(entries.get("kind", ""))
    if kind not in KNOWN:
        problem = f"unknown kind {kind!r}{nearest(kind, KNOWN)}" if kind else "kind is missing"
        raise UserError(f"column {name}: {problem}; known: {', '.join(KNOWN)}")
    return kind


def _check_keys(name: str, kind: str, entries: Json) -> None:
    allowed = KINDS[kind].entries
    for key, value in entries.items():
        if key not in ENTRIES:
            raise UserError(f"column {name}: unknown key {key!r}{nearest(key, allowed)}; known: "
                            f"{', '.join(allowed)}")
        if key not in allowed:
            raise UserError(f"column {name}: {key} does not belong to a column of kind {kind}; "
                            "remove it or change the kind")
        if value == PRIVATE and key in (*NUMBER, *CATEGORY):
            raise UserError(f"column {name}: {key} is still `private`; declare it, or buy it with "
                            f"`python -m dpgen_jax.schema DATA {option('schema', 'DRAFT')} "
                            f"{option('schema_epsilon', 'E')} {option('out', 'NEW')}`")
        if key in TEXT_ENTRIES and not isinstance(value, str):
            raise UserError(f"column {name}: {key} is {value!r}; write a text or a number")
    for key in KINDS[kind].needed:
        if key not in entries:
            raise UserError(f"column {name}: {key} is missing; declare it from public knowledge")


def format_fields(name: str, kind: str, entries: dict[str, str]) -> Json:
    """Returns the fields of a `Column` of numbers, dates or times that say how it is written."""
    scale = entries.get("scale", "linear")
    if scale not in ("linear", "log"):
        raise UserError(f"column {name}: scale is {scale!r}; write linear or log")
    if kind in transform.DEFAULTS:
        form = entries.get("format", transform.DEFAULTS[kind])
        _check_format(name, kind, form)
        zone = entries.get("zone", "UTC" if form.endswith(transform.ZONE) else "")
        if "zone" in entries:
            _check_zone(name, zone)
        return {"written": kind, "format": form, "scale": scale, "zone": zone}
    decimals = transform.number(entries.get("decimals", "-1"))
    if decimals not in range(16) and "decimals" in entries:
        raise UserError(f"column {name}: decimals is {entries['decimals']!r}; give 0 to 15")
    mark, unit = entries.get("decimal_mark", "."), entries.get("unit", "")
    thousands = entries.get("thousands", "")
    thousands = " " if thousands == SPACE else thousands
    if len(mark) != 1 or len(thousands) > 1 or mark == thousands or re.search(
            r"[\d+\-eE]", mark + thousands):
        raise UserError(f"column {name}: decimal_mark is {mark!r} and thousands {thousands!r}; "
                        "each is one sign, as . and , or the word space, and they differ")
    if unit and (unit.count("{}") != 1 or re.search(r"[\d+\-]", unit) or unit == "{}"):
        raise UserError(f"column {name}: unit is {unit!r}; write the text around the number, with "
                        "{} in its place and without digits or signs, as \"EUR {}\"")
    return {"scale": scale, "decimals": int(decimals or 0), "marks": mark + thousands, "unit": unit}


def _check_zone(name: str, zone: object) -> None:
    if not isinstance(zone, str) or transform.zone_of(zone) is None:
        raise UserError(f"column {name}: zone is {zone!r}; write a zone of the tz database, as "
                        "Europe/Berlin, or an offset, as +01:00")


def _check_format(name: str, kind: str, form: str) -> None:
    if kind == "duration":
        if form not in DURATIONS:
            raise UserError(f"column {name}: format is {form!r}; known: H:MM:SS, H:MM, M:SS, and "
                            "HH or MM in front; a plain number of seconds or days is continuous")
        return
    letters = re.findall(r"%-?(.?)", form)
    is_known = DIRECTIVES.issuperset(letters) and len({*letters}) == len(letters) and (
        {*re.findall(r"%-.?", form)} <= {*transform.UNPADDED})
    day = {"Y", "y"} & {*letters} and {"m", "b", "B", "j"} & {*letters}
    hour = {"H", "I"} & {*letters}
    lacks = (kind != "time" and not day) or (kind != "date" and not hour) or (
        "z" in letters and (kind != "datetime" or not form.endswith(transform.ZONE)))
    if not is_known or lacks or ("I" in letters) != ("p" in letters) or (kind == "date" and hour):
        parts = {"date": "a year and a month, and no hour", "time": "an hour",
                 "datetime": "a year, a month and an hour"}[kind]
        raise UserError(f"column {name}: format is {form!r}; it is made of %Y %m %d %H %M %S, and "
                        f"of %y %b %B %j %I %p %f %-d %-m %-H, and a {kind} has {parts}; %z, "
                        "the offset of a time zone, is the end of a datetime")


def distinguishable(low: float, high: float) -> bool:
    """Returns whether the integers low..high survive their encoding as float32 in [0, 1]."""
    return high - low <= MAX_RANGE and max(-low, high) <= 2**53


def _bounds(shaped: Column, kind: str, entries: dict[str, str]) -> tuple[float, float]:
    name, values = shaped.name, []
    ends = dict(zip(NUMBER, transform.ends_of_day(shaped), strict=True)) if kind == "time" else {}
    for key in NUMBER:
        value = _value(shaped, entries[key]) if key in entries else ends[key]
        if value is None:
            expected = "finite number" if shaped.written == "plain" else transform.what(shaped)
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
                        f"the {MAX_RANGE} that can be distinguished; declare it continuous, or "
                        "narrow it")
    if not math.isfinite(high - low):
        raise UserError(f"column {name}: the range from {entries['min']} to {entries['max']} is "
                        "too large; narrow it")
    return low, high


def _value(shaped: Column, text: object) -> float | None:
    """Returns the code of a value in a schema: a plain number, or a date or time as in the file."""
    if shaped.written == "plain" or not isinstance(text, str):
        return transform.number(text)
    return transform.reader(shaped)(text)


def _special(shaped: Column, entries: Json) -> tuple[float, ...]:
    texts = entries.get("special", [])
    if not isinstance(texts, list):
        raise UserError(f"column {shaped.name}: special is not a list; write [0, 99]")
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


def _check_scale(made: Column) -> None:
    """Checks that a log scale keeps neighbouring whole numbers apart."""
    if made.scale == "log" and made.kind == "integer":
        top = max(abs(made.low), abs(made.high))
        near = transform.unit(made, np.sign(made.high or -1) * np.array([top - 1, top]))
        if top >= 1 and abs(near[1] - near[0]) < 2 / MAX_RANGE:
            raise UserError(f"column {made.name}: whole numbers up to {top:.0f} are not "
                            "distinguished on a log scale; declare it continuous with decimals: 0")


def _categories(name: str, entries: Json, nullable: bool) -> tuple[str, ...]:
    texts = entries["categories"]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UserError(f'column {name}: categories is not a list of texts; write ["a", "b"]')
    if not texts:
        raise UserError(f"column {name}: no categories; declare at least 1")
    earlier: set[str] = set()
    for text in texts:
        if not text or (nullable and text in NULLS):
            raise UserError(f"column {name}: the category {text!r} means null; remove it" + (
                "" if nullable else " and declare nullable: true"))
        if text in earlier:
            raise UserError(f"column {name}: category {quoted(text)} is given twice; remove one")
        earlier.add(text)
    if "other" in entries and entries["other"] not in earlier:
        raise UserError(f"column {name}: other is {entries['other']!r}; name one of its categories")
    return tuple(texts)


def placeholders(name: str, entries: Any) -> dict[str, str]:
    """Returns bounds that a column could have, to try a draft whose bounds are not bought yet."""
    kind = kind_of(name, entries)
    if kind not in transform.DEFAULTS:
        return {"min": "0", "max": "1"}
    shaped = Column(name, "continuous", **format_fields(name, kind, entries))
    return dict(zip(NUMBER, transform.bounds_texts(shaped, 0.0, 1.0), strict=True))


def is_declarable(made: Column) -> bool:
    """Returns whether a schema can declare a column, which a release holds."""
    kinds = [name for name, kind in KINDS.items()
             if (kind.coded, kind.written) == (made.kind, made.written)]
    plain = made.written == "plain"
    try:
        ends = [repr(value) if plain else transform.texts(made, np.array([value]))[0]
                for value in (made.low, made.high, *made.special)]
        entries = {"kind": kinds[0], "nullable": str(made.nullable), "min": ends[0],
                   "max": ends[1], "special": ends[2:], "categories": list(made.categories),
                   "scale": made.scale, "format": made.format, "zone": made.zone,
                   "unit": made.unit,
                   "decimals": str(made.decimals), "decimal_mark": made.marks[:1],
                   "thousands": made.marks[1:], "dtype": made.dtype}
        empty = {"decimals": "-1", "dtype": "", "zone": ""}
        return column(made.name, {
            key: entries[key] for key in KINDS[kinds[0]].entries
            if key in entries and entries[key] != empty.get(key)}) == made
    except (UserError, IndexError, ValueError, OverflowError, KeyError):
        return False


# The types of columns.

WHOLE = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
FLOATS = ("float16", "float32", "float64")
WITH_NULLS = {name: name.replace("uint", "UInt").replace("int", "Int") for name in WHOLE} | {
    "float32": "Float32", "float64": "Float64", "bool": "boolean"}
"""Types of NumPy, and the types of pandas with a null that stand for them (a float has NaN)."""
WITHOUT_NULLS = (*WHOLE, "bool")
PLAIN = {masked: name for name, masked in WITH_NULLS.items()}
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Parts of a second."""
TEXTS = ("str", "string")
TYPES = (*TEXTS, "category", *WHOLE, *FLOATS, *WITH_NULLS.values(), "bool", "date", "time",
         *(f"{name}64[{part}]" for name in ("datetime", "timedelta") for part in TICKS))
"""All types, but for those of categories that are numbers."""
FEWEST = 256
"""The fewest values of a float type between the bounds of a column."""
LAST_NANOSECOND = 2**63 / 10**9  # seconds since 1970


def default_type(column: Column) -> str:
    """Returns the type of a column whose schema declares none."""
    if column.written == "boolean":
        return "boolean" if column.nullable else "bool"
    if column.categories:
        return "category"
    if column.written in ("date", "datetime", "duration"):
        return f"{_moments(column)}[us]"
    if column.written == "time" or not transform.is_plain(column):
        return "str"
    if column.kind == "continuous":
        return "float64"
    return "Int64" if column.nullable else "int64"


def is_whole_type(dtype: str) -> bool:
    """Returns whether the values of a type are whole numbers."""
    return PLAIN.get(dtype, dtype) in WHOLE


def check_type_name(column: Column) -> None:
    """Checks that a column of its kind can have its declared type, whatever its values are."""
    known = _known_types(column)
    if column.dtype not in known:
        raise UserError(f"column {column.name}: dtype is {column.dtype!r}; known for such a "
                        f"column: {listed(known)}")


def check_type(column: Column) -> None:
    """Checks that all values of a column are values of its declared type, and are kept by it.

    Floats of fewer bits round what is neither whole nor special.
    """
    check_type_name(column)
    if column.nullable and column.dtype in WITHOUT_NULLS:
        raise UserError(f"column {column.name}: {column.dtype} has no null; write dtype: "
                        f"{WITH_NULLS[column.dtype]}")
    if not _is_kept(column, numbers_of(column.dtype)):
        raise UserError(f"column {column.name}: {column.dtype} does not hold all of its values; "
                        f"write a larger one, or leave dtype out for {default_type(column)}")


def clipped_to_type(dtype: str, low: float, high: float) -> tuple[float, float]:
    """Returns the part of a range that is of a type of whole numbers; of other types all of it."""
    if not is_whole_type(dtype):
        return low, high
    limits = np.iinfo(PLAIN.get(dtype, dtype))
    return min(max(low, limits.min), limits.max), min(max(high, limits.min), limits.max)


def type_of_identifier(name: str, pattern: str, dtype: str) -> str:
    """Checks the type of an identifier, empty where none is declared, and returns it."""
    whole = WHOLE if set(pattern) == {"#"} else ()
    if dtype != "" and dtype not in (*TEXTS, *whole):
        raise UserError(f"column {name}: dtype is {dtype!r}; known for such a column: "
                        f"{listed((*TEXTS, *whole))}")
    if dtype in whole and 10**len(pattern) - 1 > np.iinfo(dtype).max:
        raise UserError(f"column {name}: {dtype} does not hold all of its identifiers; write a "
                        "larger one")
    return dtype


def declared_type(column: Column, came: str) -> str:
    """Returns the type that a schema declares, so that columns come out in the type they came in.

    It has a null where the column has one. It is empty for the default, and for a type that no
    schema declares.
    """
    for dtype in (came, WITH_NULLS.get(came, "")):
        try:
            check_type(dataclasses.replace(column, dtype=dtype))
        except UserError:
            continue
        return "" if dtype == default_type(column) else dtype
    return ""


def _moments(column: Column) -> str:
    return "timedelta64" if column.written == "duration" else "datetime64"


def _known_types(column: Column) -> tuple[str, ...]:
    """Returns the types that a column of its kind can have, whatever its values are."""
    numbers = (*WHOLE, *FLOATS)
    if column.categories:
        simple = (*numbers, "bool")
        return (*TEXTS, "category", *(f"category[{name}]" for name in simple), *simple, *PLAIN)
    if column.written == "time":
        return (*TEXTS, "time")
    if column.written != "plain":
        return (*TEXTS, *(f"{_moments(column)}[{part}]" for part in TICKS),
                *(["date"] * (column.written == "date")))
    plain = numbers if column.kind == "integer" or column.decimals == 0 else FLOATS
    return (*TEXTS, *plain, *(WITH_NULLS[name] for name in plain if name in WITH_NULLS))


def numbers_of(dtype: str) -> str:
    """Returns the type of NumPy of a type whose values are numbers or truth values, else ""."""
    name = dtype.removeprefix("category").strip("[]")
    name = PLAIN.get(name, name)
    return name if name in (*WHOLE, *FLOATS, "bool") else ""


def _is_kept(column: Column, dtype: str) -> bool:
    """Returns whether all values of a column are values of a type, and are read back from it."""
    if column.categories:
        return not dtype or type_choices(column, dtype) is not None
    ends = (column.low, column.high, *column.special)
    if dtype in WHOLE:
        return all(np.iinfo(dtype).min <= end <= np.iinfo(dtype).max for end in ends)
    if dtype:
        return _is_kept_by_floats(column, dtype)
    part = column.dtype.partition("[")[2].strip("]")
    if not part:
        return True
    ends = tuple(end * (transform.DAY if column.written == "date" else 1) for end in ends)
    return all(float(end * TICKS[part]).is_integer() for end in ends) and (
        part != "ns" or max(map(abs, ends)) < LAST_NANOSECOND)


def _is_kept_by_floats(column: Column, dtype: str) -> bool:
    """Returns whether a float keeps whole numbers and special values, and tells others apart."""
    if dtype == "float64":  # as codes are
        return True
    most = max(abs(column.low), abs(column.high))
    if most > float(np.finfo(dtype).max):
        return False
    with np.errstate(over="ignore"):
        special = all(float(np.dtype(dtype).type(value)) == value for value in column.special)
    if column.kind == "integer" or column.decimals == 0:
        largest = max([most, *map(abs, column.special)])
        return special and largest <= 2.0**(np.finfo(dtype).nmant + 1)
    steps = (column.high - column.low) / float(np.spacing(np.dtype(dtype).type(most)))
    return special and steps >= FEWEST


def type_choices(column: Column, dtype: str) -> Any:
    """Returns the categories in a type of NumPy, or as texts if it is empty.

    It is None where one of them would be read as another text.
    """
    texts = column.categories
    if not dtype:
        return list(texts)
    if dtype == "bool":
        values: list[Any] = [text.casefold() == "true" for text in texts]
        if column.written == "boolean":
            return np.array([False, True])
    else:
        values = [int(text) if dtype in WHOLE and re.fullmatch("-?[0-9]{1,20}", text) else
                  transform.number(text) for text in texts]
    if None in values or (dtype in WHOLE and not all(
            isinstance(value, int) and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max
            for value in values)):
        return None
    with np.errstate(over="ignore"):
        made = np.array(values, dtype)
    same = all(transform.python_text(value, None) == text
               for value, text in zip(made, texts, strict=True))
    return made if same else None


# Cells that have no value of their column.

def odd_texts(columns: Sequence[Column], entries: Mapping[str, Mapping[str, Any]], label: str
              ) -> dict[str, str]:
    """Returns the text by which cells without a value are read, by column, where it is declared.

    It is a value of its column, or null: at the label, a row with such a cell is left out.
    """
    odd = {made.name: entries[made.name]["odd"] for made in columns if "odd" in entries[made.name]}
    for made in columns:
        text = odd.get(made.name, "")
        null = text in NULLS and (made.nullable or made.name == label)
        if made.name in odd and not (null or has_value(made, text)):
            raise UserError(f"column {made.name}: odd is {text!r}, which is not one of its values; "
                            "write one, or null where the column is nullable or the label")
    return odd


def has_value(made: Column, text: str) -> bool:
    """Returns whether a cell has a value of a column, null where that is one."""
    if text in NULLS and made.nullable:
        return True
    if made.categories:
        folded = made.written == "boolean"
        return text in made.categories or (folded and text.casefold() in map(
            str.casefold, made.categories))
    value = transform.reader(made)(text)
    whole = made.kind != "integer" or made.written == "date"
    return value is not None and (whole or value.is_integer())


def tamed(spec: TableSpec, odd: Mapping[str, str], others: Mapping[str, str],
          columns: Mapping[str, list[str]]
          ) -> tuple[dict[str, list[str]], dict[str, int], np.ndarray]:
    """Replaces the cells that have no value by what the schema declares for them.

    Args:
        spec: The columns.
        odd: The text that takes them, by column; null for a label whose row is left out.
        others: The category that takes undeclared texts, by column.
        columns: The n cells of each column.

    Returns:
        The cells; the number of those that were replaced, by column; and bool [n]: the rows that
        are left out for their label.
    """
    texts, counts = dict(columns), {}
    left_out = np.zeros(len(next(iter(columns.values()), [])), bool)
    for column in spec.all_columns:
        if column.name not in odd:
            continue
        known = {text: has_value(column, text) or (column.name in others and text not in NULLS)
                 for text in dict.fromkeys(texts[column.name])}
        replaced = np.array([not known[text] for text in texts[column.name]], bool)
        counts[column.name], value = int(replaced.sum()), odd[column.name]
        if value in NULLS and not column.nullable:  # of the label
            left_out, value = replaced, column.categories[0]
        texts[column.name] = [text if known[text] else value for text in texts[column.name]]
    return texts, counts, left_out
