"""The entries of a draft for one column, from the look of its cells: all READ FROM THE DATA."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import Column, UserError
from dpgen_jax.data import forms
from dpgen_jax.data.base import listed
from dpgen_jax.data.schema_columns import NULLS, column, distinguishable
from dpgen_jax.data.schema_forms import SPACE

MAX_CATEGORIES = 100
ENOUGH = 50
"""Values from which the shape of a column of numbers is told."""
SPIKE, AMONG = 0.1, 20
"""The share of a value that stands beside a range of as many others, at least."""
TAIL = 0.02
"""Below this share of the range lies the median of a heavy tail."""
DAYS = ("%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%Y%m%d", "%d-%m-%Y",
        "%d %b %Y", "%d-%b-%Y", "%d-%b-%y", "%m/%d/%y", "%Y-%m")
HOURS = ("%H:%M:%S", "%H:%M", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p")
FORMATS = [*(("date", day) for day in DAYS if day != "%Y%m%d"),
           *(("datetime", f"{day}{between}{hour}{zone}") for day in DAYS
             for between in (" ", "T") for hour in HOURS for zone in ("", "Z")),
           *(("time", hour) for hour in HOURS),
           *(("duration", form) for form in ("H:MM:SS", "H:MM"))]
"""The kinds and formats that are tried, in this order."""
MARKS = ((".", ""), (".", ","), (",", ""), (",", "."), (",", " "), (".", " "), (".", "'"))
"""The marks that are tried: of decimals, and between thousands."""


def entries(name: str, texts: list[str], is_label: bool, dtype: str = "") -> Json:
    """Drafts the entries of a column.

    Args:
        name: Its name.
        texts: Its cells.
        is_label: Whether it is the label, which is a category whatever it looks like.
        dtype: The type in which it came, where it has one (`column_types`).

    Raises:
        UserError: It has no values, or it is a label with empty cells, or free text.
    """
    present = [text for text in texts if text not in NULLS]
    if not present or (is_label and len(present) < len(texts)):
        raise UserError(f"column {name} holds empty cells; every row needs its class" if present
                        else f"column {name} holds no values; remove it from the file")
    if is_label:
        if len(set(present)) > MAX_CATEGORIES:
            raise UserError(f"column {name} holds {len(set(present))} different texts, and a draft "
                            f"has at most {MAX_CATEGORIES} classes; leave out --label and declare "
                            f"targets: [{name}] if it is a number to predict, or write its schema")
        return {"kind": "categorical", "categories": ordered(present)}
    nullable = {"nullable": "true" if len(present) < len(texts) else "false"}
    unique = list(dict.fromkeys(present))
    if dtype.startswith("category") and len(unique) <= MAX_CATEGORIES:
        return {"kind": "categorical", "categories": ordered(unique), **nullable}
    if _padded(unique):
        return _numerals(unique, len(unique) == len(present), nullable)
    values = _values(forms.number, present)
    if values is not None:
        made = _shape(values, {})
        digits = _decimals(unique, ".") if made["kind"] == "continuous" else {}
        return {**made, **digits, **nullable}
    if len(unique) == 2 and {text.casefold() for text in unique} == {"true", "false"}:
        return {"kind": "boolean", "categories": sorted(unique, key=str.casefold), **nullable}
    formed = _dated(unique, dtype.startswith("timedelta64")) or _marked(unique, present)
    if formed is not None:
        return {**formed, **nullable}
    if len(unique) > MAX_CATEGORIES and len(unique) == len(present) and (
            pattern := _pattern(unique)):
        return {"kind": "identifier", "pattern": pattern}
    return {"kind": "categorical", "categories": _categories(name, unique), **nullable}


def _padded(texts: list[str]) -> bool:
    """Returns whether texts are numerals of one length with zeros in front, such as zip codes."""
    return (len({len(text) for text in texts}) == 1 < len(texts[0]) and any(
        text[0] == "0" for text in texts) and all(re.fullmatch("[0-9]+", text) for text in texts))


def _numerals(unique: list[str], differ: bool, nullable: dict[str, str]) -> Json:
    """Returns the entries of numerals, which are identifiers where many all differ."""
    if len(unique) <= MAX_CATEGORIES:
        return {"kind": "categorical", "categories": ordered(unique), **nullable}
    if differ:
        return {"kind": "identifier", "pattern": "#" * len(unique[0])}
    return {"kind": "codes", "categories": ordered(unique), **nullable}


def ordered(texts: Iterable[str]) -> list[str]:
    """Returns each text once, numbers by their value: 9 before 10."""
    return sorted(set(texts), key=lambda text: (forms.number(text) or 0.0, text))


def numbers(low: float, high: float, whole: bool) -> dict[str, str]:
    """Returns the kind and bounds of a column of numbers.

    Whole numbers that an integer column cannot tell apart are continuous.

    Args:
        low: The least value.
        high: The largest value.
        whole: Whether all values are whole.
    """
    if whole and distinguishable(math.floor(low), math.ceil(high)):
        return {"kind": "integer", "min": str(math.floor(low)), "max": str(math.ceil(high))}
    return {"kind": "continuous", "min": repr(float(low)), "max": repr(float(high))}


def _categories(name: str, texts: list[str]) -> list[str]:
    categories = ordered(texts)
    odd = [text for text in categories if forms.number(text) is None]
    if len(categories) > MAX_CATEGORIES and 2 * len(odd) < len(categories):
        raise UserError(f"column {name} holds {len(categories) - len(odd)} different numbers, and "
                        f"texts that are none: {listed(odd)}; empty these cells, or write its "
                        "schema, in which they are null (kind: integer or continuous, with "
                        "nullable: true and odd: null)")
    if len(categories) > MAX_CATEGORIES:
        raise UserError(f"column {name} holds {len(categories)} different texts; remove it from "
                        "the file if it is an identifier or free text, or write its schema "
                        "(kind: identifier, or codes)")
    return categories


def _values(read: Any, texts: list[str]) -> np.ndarray | None:
    """Returns the codes of texts, float64 [n]; None where one of them has none."""
    values = []
    for text in texts:
        value = read(text)
        if value is None:
            return None
        values.append(value)
    return np.array(values, np.float64)


def _shape(values: np.ndarray, written: dict[str, str]) -> Json:
    """Returns kind, bounds, special values and scale of numbers."""
    special: list[str] = []
    counts = Counter(values.tolist()) if len(values) >= ENOUGH else Counter()
    for value, count in counts.most_common(2):
        if count >= SPIKE * len(values) and len(counts) > AMONG and len(counts) > 2:
            special.append(f"{value:g}" if float(f"{value:g}") == value else repr(value))
    rest = values[~np.isin(values, [float(text) for text in special])]
    low, high = float(rest.min()), float(rest.max())
    made: Json = numbers(low, high, bool((values == np.rint(values)).all())) | written
    if special:
        made["special"] = special
    if (len(rest) >= ENOUGH and np.median(rest) - low < TAIL * (high - low)
            and len(np.unique(rest)) > AMONG):
        try:
            column("", made | {"scale": "log"})
        except UserError:  # whole numbers that a log scale would not keep apart
            return made
        made["scale"] = "log"
    return made


def _decimals(texts: list[str], mark: str) -> dict[str, str]:
    """Returns the number of decimals where all texts have as many, and some end in a zero."""
    ends = {len(text.rpartition(mark)[2]) if mark in text else 0 for text in texts}
    zeros = any(mark in text and text.endswith("0") for text in texts)
    plain = all(re.fullmatch(r"[+-]?[\d.,' ]+", text) for text in texts)
    return {"decimals": str(*ends)} if len(ends) == 1 and zeros and plain and 0 < max(
        ends) < 16 else {}


def _dated(texts: list[str], are_durations: bool) -> dict[str, str] | None:
    """Returns the entries of dates and times, by the first format that reads all texts."""
    ends = {match[0] if (match := re.search(r"(?<=:\d\d)[+-]\d\d:?\d\d$", text)) else ""
            for text in texts}
    offset = ends.pop() if len(ends) == 1 else ""
    for kind, form in FORMATS:
        if are_durations and kind != "duration":
            continue
        if kind == "datetime":
            form += offset
        shaped = Column("", "integer", written=kind, format=form)  # type: ignore[arg-type]
        read = forms.reader(shaped)
        if read(texts[0]) is not None and (values := _values(read, texts)) is not None:
            low, high = forms.texts(shaped, np.array([values.min(), values.max()]))
            return {"kind": kind, "min": low, "max": high, "format": form}
    return None


def _marked(unique: list[str], texts: list[str]) -> Json | None:
    """Returns the entries of numbers with a unit, or with other marks."""
    around = re.fullmatch(r"[+-]?([^\d+-]*?)([+-]?\d[\d.,' ]*?)([^\d+-]*)",
                          unique[0].replace("\u202f", " ").replace("\u00a0", " "))
    if around is None or (around[1][-1:].isalpha() and len(unique) == len(texts) > MAX_CATEGORIES):
        return None  # the latter are identifiers, as id7
    unit = f"{around[1]}{{}}{around[3]}" if around[1] or around[3] else ""
    cut = slice(len(around[1]), -len(around[3]) or None)
    if any(re.match(r"0\d", text.lstrip("+-")[cut]) for text in unique):
        return None  # numerals with zeros in front, which a number would lose
    for mark, thousands in MARKS:
        shaped = Column("", "continuous", unit=unit, marks=mark + thousands)
        values = _values(forms.reader(shaped), texts)
        if values is not None:
            written = {"unit": unit} if unit else {}
            written |= {"decimal_mark": mark} if mark != "." else {}
            written |= {"thousands": thousands.replace(" ", SPACE)} if thousands else {}
            made = _shape(values, written)
            digits = _decimals([text.lstrip("+-")[cut] for text in unique], mark)
            return made | (digits if made["kind"] == "continuous" else {})
    return None


def _pattern(texts: list[str]) -> str:
    """Returns the pattern of identifiers of one shape, or an empty text."""
    if len({len(text) for text in texts}) > 1:
        return ""
    signs = []
    for letters in zip(*texts, strict=True):
        options = set(letters)
        if len(options) == 1 and not letters[0].isdigit():
            signs.append(letters[0])
        elif all(letter.isascii() and letter.isdigit() for letter in options):
            signs.append("#")
        elif all(letter.isascii() and letter.isupper() for letter in options):
            signs.append("@")
        else:
            return ""
    return "".join(signs)
