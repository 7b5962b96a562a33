"""Readings of a cell of a CSV file: a fixed, public list, and public places of its values.

Each cell has one reading and one place, which depend on its own text only. So a noisy histogram of
places describes the content of a column (`run.purchase`), however fine they are: a cell lies in one
place, so that finer ones cost no more.

A number is read by its shape, which is its marks and decimals, and by the unit around it. The lists
of shapes and of units are fixed and public too. A number without marks and unit also has a place
for its magnitude, and a text for its length.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpgen_jax.core.types import Column
from dpgen_jax.data.table import transform
from dpgen_jax.data.table.columns import KINDS, NULLS, SPACE, format_fields, has_value
from dpgen_jax.data.table.draft import FORMATS

DECIMALS = "2"
"""The number of decimals that has shapes of its own between thousands, as amounts of money have it.
"""
MOST_DECIMALS = 6
"""The most decimals that a column of numbers without other marks is found to have."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """A shape of the digits of a number.

    Attributes:
        example: A number of this shape, and of none before it.
        form: What all numbers of this shape match.
        entries: The entries of a schema for a column of them.
    """

    example: str
    form: re.Pattern[str]
    entries: dict[str, str]


def _shape_of_marks(example: str, form: str, kind: str, **entries: str) -> Shape:
    return Shape(example, re.compile(form, re.ASCII), {"kind": kind, **entries})


def _grouped(thousands: str, mark: str) -> list[Shape]:
    """The shapes with a mark between thousands: whole, with two decimals, and with others."""
    named = {"thousands": thousands.replace(" ", SPACE)}
    named |= {"decimal_mark": mark} if mark != "." else {}
    between, point = re.escape(thousands), re.escape(mark)
    groups, least = rf"\d{{1,3}}(?:{between}\d{{3}})+", "1" if thousands in " '" else "2"
    whole = rf"\d{{1,3}}(?:{between}\d{{3}}){{{least},}}"  # one group may be three decimals
    return [_shape_of_marks(f"1{thousands}234{thousands}567", whole, "integer", **named),
            _shape_of_marks(f"1{thousands}234{mark}50", rf"{groups}{point}\d\d", "continuous",
                            **named,
                            decimals=DECIMALS),
            _shape_of_marks(f"1{thousands}234{mark}5", rf"{groups}{point}\d*", "continuous",
                            **named)]


def _with_decimals(example: str, form: str, digits: int, mark: str = ".") -> Shape:
    named = {"decimal_mark": mark} if mark != "." else {}
    return _shape_of_marks(example, form, "continuous", **named, decimals=str(digits))


SHAPES = (
    _shape_of_marks("1234", r"\d+", "integer"),
    _shape_of_marks("1234.0", r"\d+\.0", "integer"),  # as floats of whole numbers are written
    _with_decimals("1.234", r"\d{1,3}\.\d{3}", 3),
    *(_with_decimals(f"{1234 * (digits == 3)}.{'5' * digits}", rf"\d*\.\d{{{digits}}}", digits)
      for digits in range(1, MOST_DECIMALS + 1)),
    _shape_of_marks("0.1234567", r"\d+\.\d*|\.\d+", "continuous"),
    _shape_of_marks("1,234", r"\d{1,3},\d{3}", "integer", thousands=","),
    *(_with_decimals(f"0,{'5' * digits}", rf"\d*,\d{{{digits}}}", digits, ",")
      for digits in (1, 2)),
    _shape_of_marks("0,1234", r"\d+,\d*|,\d+", "continuous", decimal_mark=","),
    *_grouped(",", "."), *_grouped(".", ","), *_grouped(" ", ","), *_grouped("'", "."))
"""All shapes of digits; a number has the first that matches. Three digits after one point or comma
may be decimals or a thousand: the other cells of the column decide which."""
WHOLE, POINTED, POINT = ([shape.example for shape in SHAPES].index(plain)
                         for plain in ("1234", "1234.0", "0.1234567"))
SIGNS = ("$", "€", "£", "¥", "₹")
CODES = ("USD", "EUR", "GBP", "CHF", "JPY")
UNITS = ("", *(unit for sign in SIGNS for unit in (f"{sign}{{}}", f"{sign} {{}}", f"{{}}{sign}",
                                                    f"{{}} {sign}")),
         *(unit for code in CODES for unit in (f"{code} {{}}", f"{{}} {code}")), "{}%", "{} %")
"""All units; other texts around numbers are to be declared."""
LONGEST_NUMBER = 100
"""The letters of a number with marks, of which there are fewer."""
_SPACES = str.maketrans("\u00a0\u202f", "  ")
_AROUND = "|".join(map(re.escape, (*SIGNS, *CODES, "%")))
_CELL = re.compile(rf"([+-]?)((?:(?:{_AROUND}) ?)?)([+-]?)([\d.,' ]*\d[\d.,']*)"
                   rf"((?: ?(?:{_AROUND}))?)", re.ASCII)


def places_of_marks(text: str) -> tuple[int, int] | None:
    """Returns the places in UNITS and in SHAPES of a number; None for any other text."""
    match = _CELL.fullmatch(text.translate(_SPACES)) if len(text) < LONGEST_NUMBER else None
    if match is None or (match[1] and match[3]) or (match[2] and match[5]):
        return None
    unit = f"{match[2]}{{}}{match[5]}" if match[2] or match[5] else ""
    shape = next((i for i, one in enumerate(SHAPES) if one.form.fullmatch(match[4])), None)
    return None if shape is None or unit not in UNITS else (UNITS.index(unit), shape)


SAMPLE = datetime.datetime(2003, 11, 22, 13, 45, 59, 123456)
EITHER = SAMPLE.replace(month=3, day=4)
"""Moments whose texts show the shape of a format; the latter reads with the month before the day
and after it."""
LARGEST = 2.0**53
"""Doubles do not distinguish whole numbers beyond it, so these are texts."""


def _signed(edges: np.ndarray) -> np.ndarray:
    """Edges on both sides of zero, which has the bin between the smallest ones."""
    return np.concatenate([-edges[::-1], edges])


SIGNED = _signed(2.0 ** (np.arange(-40, 129) / 2))
"""Edges of the bins of numbers: two an octave from 2^-20 to 2^64, on both sides of zero."""
OCTAVES = _signed(2.0 ** np.array([-1022, -500, -200, -100, -60, -40, -30, *range(-20, 65), 80,
                                   100, 200, 500, 1023]))
"""Edges of the magnitudes of numbers: one an octave, and coarser where numbers are no 64-bit
integers."""
YEARS = np.array([(datetime.datetime(year, 1, 1) - transform.EPOCH).days
                  for year in (1, 1000, 1500, 1600, 1700, 1750, 1800, 1850, *range(1900, 2101),
                               2200, 2500, 3000, 5000, 9999)] + [2_932_897], np.float64)
"""Edges of the bins of dates, in days: one a year from 1900 to 2100; the last is the year 9999."""


@dataclasses.dataclass(frozen=True)
class Reading:
    """A way to read a cell, and the cells that are counted for it.

    Attributes:
        family: Readings of one family may read each other's cells.
        entries: The entries of a schema for a column that is read so.
        example: A cell that is counted for it.
    """

    family: str
    entries: dict[str, str | list[str]]
    example: str

    @property
    def column(self) -> Column:
        """A column that is read so; of numbers, dates or times without bounds."""
        kind = str(self.entries["kind"])
        categories = tuple(self.entries.get("categories", ()))
        if categories:
            return Column("", "categorical", categories=categories, written="boolean")
        written: Any = {key: self.entries[key] for key in self.entries if key != "kind"}
        return Column("", KINDS[kind].coded, **format_fields("", kind, written))

    def reads(self, other: Reading) -> bool:
        """Returns whether a column of this reading also reads the cells of another.

        One with decimals reads those with as many or fewer, and whole numbers.
        """
        if self is other or self.family != other.family:
            return self is other
        digits, column = self.entries.get("decimals"), self.column
        fewer = digits is None or int(str(other.entries.get("decimals", 99))) <= int(str(digits))
        return has_value(column, other.example) and (
            fewer or (transform.reader(column)(other.example) or 0.0).is_integer())


MISSING = Reading("missing", {"kind": "missing"}, "")
TEXT = Reading("categorical", {"kind": "categorical"}, "text")
NUMBERS = tuple(Reading(f"number {unit}", {**shape.entries, **({"unit": unit} if unit else {})},
                        unit.replace("{}", shape.example) or shape.example)
                for unit in UNITS for shape in SHAPES)
BOOLEANS = tuple(Reading("boolean", {"kind": "boolean", "categories": list(pair)}, pair[0])
                 for pair in (("false", "true"), ("False", "True"), ("FALSE", "TRUE")))
CLOCKS = {"H:MM:SS": "time %H:%M:%S", "H:MM": "time %H:%M"}
"""The family of each form of durations: those below a day look as times do."""


def _family(kind: str, form: str) -> str:
    """The family of a format; a fraction of a second and the offset of a zone make no other one."""
    if form in CLOCKS:
        return CLOCKS[form]
    return f"{kind} {form.replace('%m/%d', '%d/%m').replace('.%f', '').removesuffix('Z')}"


MOMENTS = tuple(
    Reading(_family(kind, form),
            {"kind": kind, "format": form},
            (form.replace("H", "123").replace("MM", "45").replace("SS", "59") if form in CLOCKS
             else (SAMPLE if "%d/%m" in form else EITHER).strftime(form)))
    for kind, form in FORMATS)
OFFSETS = ("+00:00", *(f"-{hour:02}:00" for hour in range(1, 13)), "-02:30", "-03:30", "-09:30",
           *(f"+{hour:02}:00" for hour in range(1, 15)), "+03:30", "+04:30", "+05:30", "+05:45",
           "+06:30", "+08:45", "+09:30", "+10:30", "+12:45", "+13:45")
"""The offsets of the time zones; a stamp of another one is counted for the first."""
STAMPS = {(form, offset): Reading(
    _family("datetime", form), {"kind": "datetime", "format": form + transform.ZONE,
                                "zone": offset}, SAMPLE.strftime(form) + offset)
    for kind, form in FORMATS if kind == "datetime" and form.startswith("%Y-%m-%d")
    and form.endswith(("%M", "%S", "%f")) for offset in OFFSETS} | {(form, ""): Reading(
        f"compact {form}", {"kind": "datetime", "format": form}, SAMPLE.strftime(form))
        for form in (transform.COMPACT, transform.LONGER)}
"""Readings of stamps with an offset, by the format of what stands before it and the offset, and of
stamps of digits alone."""
READINGS = (MISSING, *NUMBERS, *BOOLEANS, *MOMENTS, *STAMPS.values(), TEXT)
"""All readings; a cell is counted for the first that fits."""


def chosen(counts: np.ndarray, least: float) -> tuple[Reading, float, float]:
    """Returns the reading that reads most of the cells of a column, by their noisy counts.

    A reading counts if its cells stand out of the noise, by `least`; otherwise they are taken as
    none. Of readings that read equally many cells, the first one that has cells of its own is
    returned, of time zones the commonest one.

    Args:
        counts: Noisy counts int [len(READINGS)].
        least: The count that stands out.

    Returns:
        The reading; the noisy number of cells that it reads; and of those that it does not, apart
        from missing ones and texts, which are there even where they do not stand out.
    """
    seen = [place for place in range(1, len(READINGS)) if counts[place] >= least]
    families = {READINGS[place].family for place in seen}
    best, most, cells = TEXT, 0.0, 0.0
    for place, reading in enumerate(READINGS):
        if reading.family in families:
            score = float(sum(counts[i] for i in seen if reading.reads(READINGS[i])))
            here = float(counts[place]) if place in seen else 0.0
            more = here > cells if "zone" in reading.entries else here > cells == 0
            if score > most or (score == most and more):
                best, most, cells = reading, score, here
    if not most:
        return TEXT, float(counts[-1]), 0.0
    rest = sum(counts[i] for i in seen if READINGS[i] is not TEXT)
    return best, most, float(rest) - most * (best is not TEXT)


def code(text: str) -> int:
    """Returns the place in READINGS of the reading that a stripped cell is counted for."""
    if text in NULLS:
        return 0
    if form := transform.compact_format(text):
        return _stamp_places()[form, ""]
    value, formed = transform.number(text), places_of_marks(text)
    if re.fullmatch("0[0-9]+", text) or (text.isascii() and text.isdigit()
                                         and int(text[:400]) > LARGEST):
        return len(READINGS) - 1  # numerals that are no numbers, as post codes and accounts
    if value is not None:
        return 1 + _plain(value, formed)
    if formed is not None:
        return 1 + formed[0] * len(SHAPES) + formed[1]
    for place, reading in enumerate(BOOLEANS, 1 + len(NUMBERS)):
        if text in reading.entries["categories"]:
            return place
    for place, read in _by_shape().get(_shape(text), ()):
        if read(text) is not None:
            return place
    zoned = _zoned(text)
    return len(READINGS) - 1 if zoned is None else _stamp_places()[zoned]


def _zoned(text: str) -> tuple[str, str] | None:
    """The key of a stamp with an offset; None for any other text."""
    offset, before = transform.offset_of(text), transform.without_offset(text)
    if offset is None or before == text or not _shape(text):
        return None
    form = str(READINGS[code(before)].entries.get("format", ""))
    keys = (form, transform.zone_name(offset)), (form, OFFSETS[0])
    return next((key for key in keys if key in STAMPS), None)


@functools.cache
def _stamp_places() -> dict[tuple[str, str], int]:
    """The places in READINGS of stamps, by their keys."""
    return {key: READINGS.index(reading) for key, reading in STAMPS.items()}


def _plain(value: float, formed: tuple[int, int] | None) -> int:
    """Returns the shape of a number that Python reads."""
    shape = POINT if formed is None or formed[0] else formed[1]
    if shape in (WHOLE, POINTED, POINT):  # 12. is a whole number, as 1e3 is
        whole = value.is_integer() and abs(value) <= LARGEST
        shape = (POINTED if shape == POINTED else WHOLE) if whole else POINT
    return shape


DETAILED = frozenset(1 + place for place in range(POINT + 1))
"""The places in READINGS of the numbers that have a magnitude: those without marks and unit."""
LONGEST = 24
"""The digits of numerals that are texts, at most."""
LENGTHS = (1, 2, 3, 4, 5, 6, 8, 12, 20, 40)
"""Lengths of other texts: a text counts for the first that it does not exceed."""
NUMERALS = tuple(f"{'0' * zero}{digits}" for zero in (0, 1) for digits in range(1, LONGEST + 1))
TEXTS: tuple[str | float, ...] = (*NUMERALS, *LENGTHS, math.inf)
"""The sorts of texts: numerals by their digits, with a zero in front or too long for a number; and
other texts by their lengths."""


def _starts() -> np.ndarray:
    sizes = [len(OCTAVES) - 1 if place in DETAILED else 1 for place in range(len(READINGS))]
    return np.cumsum([0, *sizes[:-1], len(TEXTS)])


STARTS = _starts()
"""The first place of each reading, and behind them the number of all places."""
PLACES = int(STARTS[-1])


def place(text: str) -> int:
    """Returns the place of a stripped cell: of its reading, and within it of its value."""
    found = code(text)
    within = 0
    if found in DETAILED:
        value = transform.number(text) or 0.0
        within = int(binned(OCTAVES, np.array([abs(value)]))[0])
        within = len(OCTAVES) - 2 - within if value < 0 else within  # -1 mirrors 1
    elif READINGS[found] is TEXT:
        within = sort_of_text(text)
    return int(STARTS[found]) + within


def sort_of_text(text: str) -> int:
    """Returns the place in TEXTS of a text."""
    if re.fullmatch("[0-9]+", text) and len(text) <= LONGEST:
        return LONGEST * (text[0] == "0") + len(text) - 1
    return len(NUMERALS) + next(i for i, most in enumerate(TEXTS[len(NUMERALS):])
                                if len(text) <= float(most))


def places(texts: Sequence[str]) -> np.ndarray:
    """Returns the places of n cells: int32 [n]."""
    known = {text: place(text) for text in dict.fromkeys(texts)}
    return np.array([known[text] for text in texts], np.int32)


def binned(edges: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Returns the bins of numbers or dates; the outer ones hold what lies beyond.

    Args:
        edges: SIGNED or YEARS.
        values: float64 [n], NaN for null; dates in days.

    Returns:
        int64 [n], 0..len(edges) - 2, and -1 for null.
    """
    inside = np.clip(np.searchsorted(edges, np.nan_to_num(values), "right") - 1, 0, len(edges) - 2)
    return np.where(np.isnan(values), -1, inside)


def _shape(text: str) -> str:
    """Returns a text with 9 for each run of digits and A for each run of letters."""
    return re.sub(r"[A-Za-z]+", "A", re.sub(r"[0-9]+", "9", text)) if len(text) < 40 else ""


@functools.cache
def _by_shape() -> dict[str, list[tuple[int, Callable[[str], float | None]]]]:
    """The readings of dates and times, with their places, by the shapes of their texts."""
    made: dict[str, list[tuple[int, Callable[[str], float | None]]]] = {}
    for place, reading in enumerate(READINGS):
        if reading in MOMENTS:
            shapes = [_shape(reading.example)]
            shapes += [f"-{shape}" for shape in shapes if reading.entries["kind"] == "duration"]
            for shape in shapes:
                made.setdefault(shape, []).append((place, transform.reader(reading.column)))
    return made
