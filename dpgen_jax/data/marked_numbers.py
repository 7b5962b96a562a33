"""The shapes of a number in a cell: its marks, its decimals, and the unit around it.

Both lists are fixed and public, and the text of a cell alone decides its shape.
"""

from __future__ import annotations

import dataclasses
import re

from dpgen_jax.data.schema_forms import SPACE

DECIMALS = "2"
"""The number of decimals that has shapes of its own, as amounts of money have it."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """A shape of the digits of a number.

    Attributes:
        example: A number of this shape, and of none before it.
        form: What all numbers of this shape match.
        entries: What a schema says of a column of them.
    """

    example: str
    form: re.Pattern[str]
    entries: dict[str, str]


def _shape(example: str, form: str, kind: str, **entries: str) -> Shape:
    return Shape(example, re.compile(form, re.ASCII), {"kind": kind, **entries})


def _grouped(thousands: str, mark: str) -> list[Shape]:
    """The shapes with a mark between thousands: whole, with two decimals, and with others."""
    named = {"thousands": thousands.replace(" ", SPACE)}
    named |= {"decimal_mark": mark} if mark != "." else {}
    between, point = re.escape(thousands), re.escape(mark)
    groups, least = rf"\d{{1,3}}(?:{between}\d{{3}})+", "1" if thousands in " '" else "2"
    whole = rf"\d{{1,3}}(?:{between}\d{{3}}){{{least},}}"  # one group may be three decimals
    return [_shape(f"1{thousands}234{thousands}567", whole, "integer", **named),
            _shape(f"1{thousands}234{mark}50", rf"{groups}{point}\d\d", "continuous", **named,
                   decimals=DECIMALS),
            _shape(f"1{thousands}234{mark}5", rf"{groups}{point}\d*", "continuous", **named)]


SHAPES = (
    _shape("1234", r"\d+", "integer"),
    _shape("1.234", r"\d{1,3}\.\d{3}", "continuous"),
    _shape("0.25", r"\d*\.\d\d", "continuous", decimals=DECIMALS),
    _shape("0.5", r"\d+\.\d*|\.\d+", "continuous"),
    _shape("1,234", r"\d{1,3},\d{3}", "integer", thousands=","),
    _shape("0,25", r"\d*,\d\d", "continuous", decimal_mark=",", decimals=DECIMALS),
    _shape("0,5", r"\d+,\d*|,\d+", "continuous", decimal_mark=","),
    *_grouped(",", "."), *_grouped(".", ","), *_grouped(" ", ","), *_grouped("'", "."))
"""All shapes of digits; a number has the first that matches. Three digits after one point or comma
may be decimals or a thousand: which of them is told by what else the column holds."""
SIGNS = ("$", "€", "£", "¥", "₹")
CODES = ("USD", "EUR", "GBP", "CHF", "JPY")
UNITS = ("", *(unit for sign in SIGNS for unit in (f"{sign}{{}}", f"{sign} {{}}", f"{{}}{sign}",
                                                    f"{{}} {sign}")),
         *(unit for code in CODES for unit in (f"{code} {{}}", f"{{}} {code}")), "{}%", "{} %")
"""All units; other texts around numbers are to be declared."""
_SPACES = str.maketrans("\u00a0\u202f", "  ")
_AROUND = "|".join(map(re.escape, (*SIGNS, *CODES, "%")))
_CELL = re.compile(rf"([+-]?)((?:(?:{_AROUND}) ?)?)([+-]?)([\d.,' ]*\d[\d.,']*)"
                   rf"((?: ?(?:{_AROUND}))?)", re.ASCII)


def places(text: str) -> tuple[int, int] | None:
    """Returns the places in UNITS and in SHAPES of a number.

    Args:
        text: A cell.

    Returns:
        None of a text that is no number of such a unit and shape.
    """
    match = _CELL.fullmatch(text.translate(_SPACES))
    if match is None or (match[1] and match[3]) or (match[2] and match[5]):
        return None
    unit = f"{match[2]}{{}}{match[5]}" if match[2] or match[5] else ""
    shape = next((i for i, one in enumerate(SHAPES) if one.form.fullmatch(match[4])), None)
    return None if shape is None or unit not in UNITS else (UNITS.index(unit), shape)
