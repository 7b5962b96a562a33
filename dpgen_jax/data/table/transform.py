"""The values of a column as texts, codes and features, by the declared schema only.

A code is a float64, NaN for null. The code of a date is the number of days since 1970-01-01; of a
date with a time, the seconds since then, of UTC where the column has a zone; of a time, the seconds
since midnight; of a duration, its seconds. The code of any other number is the number itself,
without its unit and marks. The code of a category or an ordinal is its index. Codes of a table are
float64 [n, columns].

Features lie in [0, 1], and nothing is fitted: the layout is that of `Column` and `TableSpec`.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import functools
import math
import re
import zoneinfo
from collections.abc import Callable

import numpy as np

from dpgen_jax.core.types import Column, TableSpec, UserError

DIGITS = 6  # significant digits of a number that is written
EPOCH = datetime.datetime(1970, 1, 1)
DAY = 86_400
DEFAULTS = {"date": "%Y-%m-%d", "datetime": "%Y-%m-%d %H:%M:%S", "time": "%H:%M:%S",
            "duration": "H:MM:SS"}
"""The format of each kind of dates and times where none is declared."""
UNITS = {"H": 3600, "M": 60, "S": 1}
ZONE = "%z"
"""The offset of a zone, the last part of a format: it reads Z, UTC, +01, +0100 and +01:00, or none,
and writes +01:00."""
_OFFSET = re.compile(r"\s*(?:(Z|UTC|GMT)|([+-])(\d\d)(?::?(\d\d))?(?::?(\d\d))?)$")
LONGEST_OFFSET = 12
FRACTION = re.compile(r"(?<=:\d\d)\.(\d+)")
UNPADDED = {"%-d": "day", "%-m": "month", "%-H": "hour"}
"""The fields that strftime writes without a zero in front on some systems only."""


def number(text: object) -> float | None:
    """Returns the finite number that a text is; None for another text, and for what is no text."""
    with contextlib.suppress(ValueError):
        if isinstance(text, str) and "_" not in text and math.isfinite(value := float(text)):
            return value
    return None


def is_plain(column: Column) -> bool:
    """Returns whether the cells of a column of numbers are numbers as Python writes them."""
    return (column.written, column.unit, column.marks) == ("plain", "", ".")


def reader(column: Column) -> Callable[[str], float | None]:
    """Returns the function from a text to its code, or None for a text that has none."""
    if column.written in ("date", "datetime", "time"):
        return lambda text: _moment(column, text)
    if column.written == "duration":
        return lambda text: _duration(column.format, text)
    return number if is_plain(column) else _marked(column)


def what(column: Column) -> str:
    """Returns what a cell of a column of numbers, dates or times must be, for errors."""
    if column.written != "plain":
        return f"{column.written} of the form {column.format}"
    if is_plain(column):
        return "finite number"
    return f"number of the form {placed(column.unit, written(column, np.array([1234.5]))[0])}"


def step(column: Column) -> float | None:
    """Returns the distance of neighbouring codes; None where it is not declared."""
    if column.written == "duration":
        return float(UNITS[column.format[-1]])
    if column.written in ("datetime", "time"):
        sizes = {"%f": 1e-6, "%S": 1.0, "%M": 60.0, "%H": 3600.0, "%-H": 3600.0, "%I": 3600.0}
        return next((size for mark, size in sizes.items() if mark in column.format), float(DAY))
    return 10.0**-column.decimals if column.decimals >= 0 else None


def ends_of_day(column: Column) -> tuple[float, float]:
    """Returns the first and last code of a day, of a column of times."""
    return 0.0, DAY - (step(column) or 0.0)


def bounds_texts(column: Column, low: float, high: float) -> list[str]:
    """Writes bounds of dates, times and durations, moved to the next codes that can be written.

    The bounds of the column itself do not count.
    """
    size = DAY if column.written == "date" else 1
    first, last = -719_162 * DAY, 2_932_896 * DAY + DAY - 1  # the years 1 to 9999
    if column.written == "time":
        first, last = map(round, ends_of_day(column))
    elif column.written == "duration":
        first, last = -10**15, 10**15
    elif column.zone:  # times of which are those of another day
        first, last = first + DAY, last - DAY
    unit = (step(column) or 1) if column.written != "date" else 1
    ends = np.array([math.floor(low / unit) * unit, math.ceil(high / unit) * unit], np.float64)
    return texts(column, np.clip(ends, first / size, last / size))


def texts(column: Column, codes: np.ndarray) -> list[str]:
    """Writes codes float64 [n] as texts, null as an empty one; `parsing.parse` reads them back."""
    null = np.isnan(codes)
    values = np.where(null, column.special[0] if column.special else column.low, codes)
    if column.categories:
        names = [column.categories[int(value)] for value in values.tolist()]
    elif column.written == "plain":
        names = [placed(column.unit, text) for text in written(column, values)]
    else:
        known = {value: _timed(column, value) for value in np.unique(values).tolist()}
        names = [known[value] for value in values.tolist()]
    return ["" if missing else name for missing, name in zip(null, names, strict=True)]


def rounded(column: Column, values: np.ndarray) -> np.ndarray:
    """Rounds numbers float64 [n] to the digits that are written, within their bounds.

    Null stays null, and dates and times stay as they are.
    """
    if column.written != "plain":
        return values
    near = (np.round(values, column.decimals) if column.decimals >= 0 else
            np.array([float(f"{value:.{DIGITS}g}") for value in values.tolist()]))
    near = np.clip(near, column.low, column.high) + 0.0  # no negative zero
    return np.where(np.isin(values, column.special), values, near) if column.special else near


def written(column: Column, values: np.ndarray) -> list[str]:
    """Writes numbers float64 [n], none null, with their digits and marks and without the unit."""
    comma = "," if len(column.marks) > 1 else ""
    if column.kind == "integer":
        plain = [f"{value:{comma}d}" for value in np.rint(values).astype(np.int64).tolist()]
    else:
        form = comma + (f".{column.decimals}f" if column.decimals >= 0 else "")
        near = rounded(column, values).tolist()
        plain = [format(value, form) for value in near] if form else [repr(v) for v in near]
    if column.marks == ".":
        return plain
    table = str.maketrans({".": column.marks[0], ",": column.marks[1:]})
    return [text.translate(table) for text in plain]


def placed(unit: str, text: str) -> str:
    """Puts a number that is written without its unit into it, with the sign in front of all.

    The unit is a text with {} in the place of the number, or empty.
    """
    if not unit:
        return text
    return "-" * text.startswith("-") + unit.replace("{}", text.removeprefix("-"))


def _marked(column: Column) -> Callable[[str], float | None]:
    """Returns the reader of numbers with a unit, or with other marks."""
    mark, comma = re.escape(column.marks[0]), re.escape(column.marks[1:])
    hard = str.maketrans("\u00a0\u202f", "  ")
    before, _, after = column.unit.translate(hard).partition("{}")
    whole = rf"\d{{1,3}}(?:{comma}\d{{3}})+|\d+" if comma else r"\d+"
    form = re.compile(
        rf"([+-]?)\s*{re.escape(before.strip())}\s*([+-]?)((?:{whole})?(?:{mark}\d*)?"
        rf"(?:[eE][+-]?\d+)?)\s*{re.escape(after.strip())}", re.ASCII)

    def read(text: str) -> float | None:
        match = form.fullmatch(text.translate(hard))
        if match is None or (match[1] and match[2]):
            return None
        digits = match[3].replace(column.marks[1:] or "\0", "").replace(column.marks[0], ".")
        return number(match[1] + match[2] + digits)

    return read


@functools.lru_cache(1000)
def zone_of(name: str) -> datetime.tzinfo | None:
    """Returns the zone of a name such as Europe/Berlin, UTC or +01:00; None if it is unknown."""
    if _OFFSET.fullmatch(name) and (offset := offset_of(name)) is not None:
        return datetime.timezone(offset)
    try:
        return zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # no such name, no key of a file, or a folder
        return None


def offset_of(text: str) -> datetime.timedelta | None:
    """Returns the offset from UTC at the end of a text, below a day; None where there is none."""
    match = _OFFSET.search(text[-LONGEST_OFFSET:])
    hours, minutes, seconds = map(int, match.groups("0")[2:]) if match else (24, 0, 0)
    if match is None or hours > 23 or max(minutes, seconds) > 59:
        return None
    size = datetime.timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return -size if match[2] == "-" else size


def zone_name(offset: datetime.timedelta) -> str:
    """Returns the name of the zone of an offset, as +01:00."""
    return str(datetime.timezone(offset)).removeprefix("UTC") or "+00:00"


COMPACT, LONGER = "%Y%m%d%H%M%S", "%Y%m%d%H%M%S%f"
"""The formats of stamps of digits alone."""


def compact_format(text: str) -> str:
    """Returns the format of a stamp of 14, 17 or 20 digits of the years from 1900 to 2099.

    It is empty for any other text.
    """
    if len(text) not in (14, 17, 20) or not re.fullmatch("(19|20)[0-9]+", text):
        return ""
    try:  # fields of one digit are read too
        moment = datetime.datetime.strptime(text[:14], COMPACT)
    except ValueError:
        return ""
    return (COMPACT if len(text) == 14 else LONGER) if moment.strftime(COMPACT) == text[:14] else ""


def without_offset(text: str) -> str:
    """Returns a text without the offset from UTC at its end."""
    end = text[-LONGEST_OFFSET:]
    return text if offset_of(text) is None else text.removesuffix(end) + _OFFSET.sub("", end)


def _moment(column: Column, text: str) -> float | None:
    form, offset = column.format.replace("%-", "%"), None
    if form.endswith(ZONE):
        form, offset = form.removesuffix(ZONE).rstrip(), offset_of(text)
        text = without_offset(text)
    part = 0
    if "%S" in form and (found := FRACTION.search(text)):  # of a second
        part = int(f"{found[1]:0<6.6}") if "%f" in form else 0
        text = FRACTION.sub("", text, 1)
    try:  # strptime reads %d with and without a zero in front
        moment = datetime.datetime.strptime(text, form.replace(".%f", ""))
    except ValueError:
        return None
    moment = moment.replace(microsecond=moment.microsecond or part)
    if column.written == "time":
        moment = EPOCH.replace(hour=moment.hour, minute=moment.minute, second=moment.second,
                               microsecond=moment.microsecond)
    if column.written == "date":
        return float((moment - EPOCH).days)
    return seconds_of(column, moment if offset is None else moment.replace(
        tzinfo=datetime.timezone(offset)))


def seconds_of(column: Column, moment: datetime.datetime) -> float | None:
    """Returns the code of a moment of a column of times; None beyond the years that Python has.

    Without an offset of its own, it is a time of the zone of the column.
    """
    zone = zone_of(column.zone) if column.zone else None
    if zone is not None:
        try:
            moment = (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(
                datetime.UTC)
        except OverflowError:
            return None
    return (moment.replace(tzinfo=None) - EPOCH).total_seconds()


def _duration(form: str, text: str) -> float | None:
    parts = form.split(":")
    match = re.fullmatch("(-?)" + ":".join([r"(\d+)", r"([0-5]\d)", r"([0-5]\d)"][:len(parts)]),
                         text, re.ASCII)
    if match is None or len(text) > 18:  # more digits than a float64 keeps
        return None
    seconds = sum(int(digits) * UNITS[part[0]]
                  for part, digits in zip(parts, match.groups()[1:], strict=True))
    return float(-seconds if match[1] else seconds)


def _timed(column: Column, code: float) -> str:
    if column.written == "duration":
        return _clock(column.format, round(code))
    days = code if column.written == "date" else 0.0
    moment = EPOCH + datetime.timedelta(days=days, microseconds=round((code - days) * 1e6))
    form = column.format
    if column.zone:
        moment = moment.replace(tzinfo=datetime.UTC).astimezone(zone_of(column.zone))
        offset = moment.strftime("%z")
        form = form.replace(ZONE, f"{offset[:3]}:{offset[3:]}")
    for mark, field in UNPADDED.items():
        form = form.replace(mark, str(getattr(moment, field)))
    return moment.strftime(form.replace("%Y", f"{moment.year:04d}"))


def duration_text(value: datetime.timedelta) -> str:
    """Returns the text of a duration whose column nobody declared: H:MM:SS, or its seconds.

    It has three digits of hours or more, as no time of a day has.
    """
    seconds = value.total_seconds()
    return _clock("HHH:MM:SS", int(seconds)) if seconds.is_integer() else str(seconds)


def _clock(form: str, seconds: int) -> str:
    left, parts = abs(seconds), []
    for part in form.split(":"):
        count, left = divmod(left, UNITS[part[0]])
        parts.append(f"{count:0{len(part)}d}")
    return "-" * (seconds < 0) + ":".join(parts)


EXACT = 2**53
"""The whole number up to which a float of 64 bits holds all of them."""


def python_reader(column: Column | None, exact: float = EXACT) -> Callable[[object], str]:
    """Returns the function from a value of a typed column, null as an empty text, to its text.

    Type inference reads all rows: the cells 001 and 1.0 are numbers in one table, and texts in
    another one that differs in one record. So a cell has the category that is the same number or
    truth value, whether it is a text or not. A value that may be of several texts, since its type
    has lost the difference, is a UserError without the name of the cell.

    Args:
        column: The column; None for one whose texts distinguish rows, as identifiers do.
        exact: The whole number from which on its floats do not hold all of them.
    """
    names = column.categories if column else ()
    alike = _alike(names)
    if column and column.written == "boolean":
        alike = {"False": (names[0],), "True": (names[1],)} | alike

    @functools.cache
    def category(found: str, is_text: bool) -> str:
        same = alike.get(_same(found), ())
        if is_text and found in same:
            return found
        if len(same) > 1 and not is_text:
            raise UserError(f"{found} may be any of the categories {', '.join(same)}")
        return same[0] if len(same) == 1 else found

    def read(value: object) -> str:
        value = value.item() if isinstance(value, np.generic) else value
        found = python_text(value, column)
        if isinstance(value, float) and (names or column is None) and (
                value.is_integer() and abs(value) >= exact):
            raise UserError(f"{value:.0f} may be another whole number, which a float does not hold")
        if names:
            if isinstance(value, datetime.date | datetime.time | datetime.timedelta) and (
                    found not in alike):
                raise UserError(f"{found!r} is of a type of dates and times, and the categories "
                                "are texts")
            return category(found, isinstance(value, str | bytes))
        if column and not isinstance(value, str):
            _require_kept(value, found, column)
        return found

    return read


@functools.lru_cache(1000)
def _alike(names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Returns the categories by the number or truth value that they are, else by their text."""
    alike: dict[str, tuple[str, ...]] = {}
    for name in names:
        alike[_same(name)] = (*alike.get(_same(name), ()), name)
    return alike


def _require_kept(value: object, found: str, column: Column) -> None:
    """Refuses a number whose text may have had other digits or marks than a number holds."""
    if column.written in ("date", "datetime", "time") and isinstance(value, int | float):
        code = reader(column)(found)
        if code is not None and texts(column, np.array([code])) != [found]:
            raise UserError(f"{found} may lack zeros in front, which a number does not hold")
    if isinstance(value, float) and not (column.unit or column.dtype) and column.marks[1:] == ".":
        raise UserError(f"{value!r} may have had a point between thousands (where it had none, "
                        "declare dtype: float64 for the column)")


def _same(text: str) -> str:
    """Returns the text of the number or truth value that a text is; of other texts themselves."""
    if text.casefold() in ("true", "false"):
        return text.capitalize()
    value = number(text)
    if value is None:
        infinite = re.fullmatch(r"[+-]?inf(inity)?", text, re.IGNORECASE)
        return str(float(text)) if infinite else text
    if value.is_integer() and abs(value) < EXACT:
        return str(int(value))
    exact = decimal.Decimal(text)
    return str(int(exact)) if exact == exact.to_integral_value() else str(value)


def python_text(value: object, column: Column | None) -> str:
    """Returns the text of a value of a frame, of a Parquet file or of a condition that is not null.

    A number is a number, whatever unit and marks the texts of its column have; a text is taken as
    it is. Dates and booleans become texts by the column; without one, texts as of Python.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():  # of integers where there is a null
        value = int(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").strip()
    if isinstance(value, datetime.timedelta) and column and not column.categories and (
            column.written == "plain"):
        value = value.total_seconds()
    if column is None or isinstance(value, str):
        return str(value).strip()
    if isinstance(value, bool) and column.written == "boolean":
        return column.categories[value]
    if isinstance(value, int | float | decimal.Decimal) and not column.categories:
        return placed(column.unit, str(value).replace(".", column.marks[0]))
    code = None if column.written == "plain" else _code(value, column)
    return str(value).strip() if code is None else texts(column, np.array([code]))[0]


def _code(value: object, column: Column) -> float | None:
    """Returns the code of a date or time of Python's or pandas' types; None for anything else."""
    if isinstance(value, datetime.timedelta) and column.written == "duration":
        return value.total_seconds()
    if isinstance(value, datetime.time) and column.written == "time" and value.tzinfo is None:
        value = datetime.datetime.combine(EPOCH, value)
    elif isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        value = datetime.datetime.combine(value, datetime.time())
    if not isinstance(value, datetime.datetime) or (value.tzinfo and not column.zone):
        return None
    seconds = seconds_of(column, value)
    if column.written == "date" and seconds is not None:
        return seconds // DAY
    return seconds if column.written in ("datetime", "time") else None


PLACEHOLDER = 0.5  # the value of a null number; its flag is 1


def encode(spec: TableSpec, codes: np.ndarray) -> np.ndarray:
    """Encodes codes [n, columns] as features float64 [n, F] in [0, 1].

    Numbers outside their declared bounds are clipped to them. Else the codes are valid: indices of
    declared categories, and nulls in nullable columns only.
    """
    return np.concatenate([_encode(column, values) for column, values
                           in zip(spec.columns, codes.T, strict=True)], axis=1)


def decode(spec: TableSpec, encoded: np.ndarray) -> np.ndarray:
    """Decodes features [n, F], any values at all, as codes; inverts `encode` on valid codes.

    A category is the largest entry of its one-hot, null if that is the entry for null, and so is
    which special value a number has; another number or an ordinal is null if its flag is above 0.5;
    integers are rounded, numbers with declared decimals and times to those, and everything lies
    within its declared bounds. The inverse is exact for integers, categories, special values and
    nulls, also if the features were stored as float32, and up to rounding for continuous numbers
    (in float32, 1e-6 of their range). Constraints between columns are not applied here: synthetic
    rows go through `constraints.finished`, which calls it.
    """
    encoded = np.nan_to_num(np.asarray(encoded, np.float64))  # NaN becomes 0, infinities finite
    ends = np.cumsum([column.width for column in spec.columns])
    return np.stack([_decode(column, features) for column, features
                     in zip(spec.columns, np.split(encoded, ends[:-1], axis=1), strict=True)], 1)


def bounds(column: Column) -> tuple[float, float]:
    """Returns the lowest and highest code of a column, null and special values apart."""
    if column.categories:
        return 0.0, len(column.categories) - 1.0
    return column.low, column.high


def unit(column: Column, values: np.ndarray) -> np.ndarray:
    """Maps codes [n] to [0, 1] by the bounds and the scale of a number or an ordinal.

    On a log scale, equal parts of [0, 1] are equal parts of log x where the lower bound is above 0,
    and elsewhere of sign(x) log(1 + |x|), which is linear around 0. Values outside the bounds count
    as the nearest bound, and NaN is null.
    """
    ends = bounds(column)
    values = np.clip(values, *ends)
    low, high = ends if column.scale == "linear" else _log(column, np.array(ends)).tolist()
    if column.scale == "log":
        values = _log(column, values)
    return (values - low) / ((high - low) or 1.0)


def from_unit(column: Column, values: np.ndarray) -> np.ndarray:
    """Inverts `unit`, and rounds to the codes that the column has."""
    first, last = bounds(column)
    if column.scale == "log":
        low, high = _log(column, np.array([first, last])).tolist()
        values = _exp(column, low + values * (high - low)) - first
    else:
        values = values * (last - first)
    size = step(column)
    if column.kind != "continuous":
        values = np.rint(values)
    elif size is not None:
        values = np.rint(values / size) * size
    codes = np.asarray(first + values)
    if column.decimals >= 0:
        codes = np.round(codes, column.decimals)
    return np.clip(codes, first, last)


def _log(column: Column, values: np.ndarray) -> np.ndarray:
    return np.log(values) if column.low > 0 else np.sign(values) * np.log1p(np.abs(values))


def _exp(column: Column, values: np.ndarray) -> np.ndarray:
    return np.exp(values) if column.low > 0 else np.sign(values) * np.expm1(np.abs(values))


def _encode(column: Column, values: np.ndarray) -> np.ndarray:
    """Encodes the codes [n] of a column as features [n, width]."""
    null = np.isnan(values)
    if column.kind == "categorical":
        return _onehot(np.where(null, column.width - 1, values), column.width)
    which = np.zeros(len(values))
    for place, apart in enumerate(column.special, 1):
        which[values == apart] = place
    value = np.where(null | (which > 0), PLACEHOLDER, unit(column, values))
    if column.special:
        places = column.width - 1
        return np.column_stack([value, _onehot(np.where(null, places - 1, which), places)])
    return np.stack([value, null] if column.nullable else [value], axis=1)


def _onehot(index: np.ndarray, places: int) -> np.ndarray:
    return (index[:, None] == np.arange(places)).astype(np.float64)


def _decode(column: Column, features: np.ndarray) -> np.ndarray:
    """Decodes the features [n, width] of a column as codes [n]."""
    if column.kind == "categorical":
        index = features.argmax(1).astype(np.float64)
        return np.where(index == len(column.categories), np.nan, index)
    value = from_unit(column, np.clip(features[:, 0], 0.0, 1.0))
    if column.special:
        codes = np.array([0.0, *column.special, np.nan])
        which = features[:, 1:].argmax(1)
        return np.where(which == 0, value, codes[which])
    return np.where(features[:, 1] > 0.5, np.nan, value) if column.nullable else value
