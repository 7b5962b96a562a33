"""The entries of a schema that say how the cells of a column are written, checked."""

from __future__ import annotations

import re

from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import UserError
from dpgen_jax.data import forms

MARKS = ("unit", "decimal_mark", "thousands")
SPACE = "space"
"""The name of a space between thousands, which a schema's texts do not end in."""
DIRECTIVES = frozenset("YymdjbBHIMSpf")
"""The letters after % that a format of dates and times may have."""


def fields(name: str, kind: str, entries: dict[str, str]) -> Json:
    """Returns the fields of a `Column` of numbers, dates or times that say how it is written.

    Args:
        name: The name of the column.
        kind: Its kind.
        entries: Its entries.

    Raises:
        UserError: Naming the column, the entry and the mend.
    """
    scale = entries.get("scale", "linear")
    if scale not in ("linear", "log"):
        raise UserError(f"column {name}: scale is {scale!r}; write linear or log")
    if kind in forms.DEFAULTS:
        form = entries.get("format", forms.DEFAULTS[kind])
        _check_format(name, kind, form)
        return {"written": kind, "format": form, "scale": scale}
    decimals = forms.number(entries.get("decimals", "-1"))
    if decimals not in range(16) and "decimals" in entries:
        raise UserError(f"column {name}: decimals is {entries['decimals']!r}; give 0 to 15")
    mark, thousands, unit = (entries.get(key, default) for key, default in zip(
        ("decimal_mark", "thousands", "unit"), (".", "", ""), strict=True))
    thousands = " " if thousands == SPACE else thousands
    if len(mark) != 1 or len(thousands) > 1 or mark == thousands or re.search(
            r"[\d+\-eE]", mark + thousands):
        raise UserError(f"column {name}: decimal_mark is {mark!r} and thousands {thousands!r}; "
                        "each is one sign, as . and , or the word space, and they differ")
    if unit and (unit.count("{}") != 1 or re.search(r"[\d+\-]", unit) or unit == "{}"):
        raise UserError(f"column {name}: unit is {unit!r}; write the text around the number, with "
                        "{} in its place and without digits or signs, as \"EUR {}\"")
    return {"scale": scale, "decimals": int(decimals or 0), "marks": mark + thousands, "unit": unit}


def _check_format(name: str, kind: str, form: str) -> None:
    """Checks a format of dates, times or durations."""
    if kind == "duration":
        if form not in ("H:MM:SS", "HH:MM:SS", "H:MM", "HH:MM", "M:SS", "MM:SS"):
            raise UserError(f"column {name}: format is {form!r}; known: H:MM:SS, H:MM, M:SS, and "
                            "HH or MM in front; a plain number of seconds or days is continuous")
        return
    letters = re.findall(r"%-?(.?)", form)
    wrong = [letter for letter in letters if letter not in DIRECTIVES]
    odd = [mark for mark in re.findall(r"%-.?", form) if mark not in forms.UNPADDED]
    day = {"Y", "y"} & {*letters} and {"m", "b", "B", "j"} & {*letters}
    hour = {"H", "I"} & {*letters}
    odd += [mark for mark in letters if letters.count(mark) > 1]
    lacks = (kind != "time" and not day) or (kind != "date" and not hour)
    if (wrong or odd or lacks or ("I" in letters) != ("p" in letters)
            or (kind == "date" and hour)):
        parts = {"date": "a year and a month, and no hour", "time": "an hour",
                 "datetime": "a year, a month and an hour"}[kind]
        raise UserError(f"column {name}: format is {form!r}; it is made of %Y %m %d %H %M %S, and "
                        f"of %y %b %B %j %I %p %f %-d %-m %-H, and a {kind} has {parts}")
