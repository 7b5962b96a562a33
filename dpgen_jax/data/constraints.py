"""Constraints between the columns of every row: declared, read, and restored in synthetic rows.

    constraints:
      - admitted <= discharged
      - total = price + tax - rebate
      - sex = male -> pregnant = no
      - age < 18 -> pay = null

Operators stand between spaces, and a name that holds one between double quotes. A row whose cells
of a comparison or sum are null, or special outside the bounds, fulfils it. The label stands on the
left of an implication only, and is never changed. A table is float64 [n, K]: codes, the class last.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import re
from collections.abc import Callable

import numpy as np

from dpgen_jax.core.errors import nearest
from dpgen_jax.core.types import Column, TableSpec, UserError
from dpgen_jax.data import forms, transform

TOKEN = re.compile(r'"([^"]*)"|(->|<=|>=|<|>|=|\+|-)(?=\s|$)|(\S+)')
ORDER: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt, "=": operator.eq}
SWAPPED = {">=": "<=", ">": "<"}


@dataclasses.dataclass(frozen=True)
class Field:
    """A column, and its place in a table."""

    column: Column
    at: int

    @property
    def step(self) -> float:
        """The distance of neighbouring codes; 0 for numbers that have none."""
        return 1.0 if self.column.kind != "continuous" else forms.step(self.column) or 0.0

    def values(self, table: np.ndarray) -> np.ndarray:
        """Returns the codes [n], NaN for null and for special ones outside the bounds."""
        codes = table[:, self.at]
        outside = self.column.outside
        return np.where(np.isin(codes, outside), np.nan, codes) if outside else codes


@dataclasses.dataclass(frozen=True)
class Compare:
    """low <= high, or low < high, of two columns. Broken rows swap them, and keep their bounds."""

    low: Field
    high: Field
    strict: bool

    def broken(self, table: np.ndarray) -> np.ndarray:
        """Returns which rows of a table break it: bool [n]."""
        a, b = self.low.values(table), self.high.values(table)
        return (a >= b) if self.strict else (a > b)

    def mended(self, table: np.ndarray) -> np.ndarray:
        """Returns broken rows, float64 [n, K], mended."""
        table, step = table.copy(), max(self.low.step, self.high.step)
        a, b = table[:, self.low.at], table[:, self.high.at]
        low = np.maximum(np.minimum(a, b), transform.bounds(self.low.column)[0])
        most = transform.bounds(self.high.column)[1]
        high = np.minimum(np.maximum(a, b), most)
        if self.strict:
            equal, room = low >= high, high + step <= most
            high = np.where(equal & room, high + step, high)
            low = np.where(equal & ~room, low - step, low)
        table[:, self.low.at], table[:, self.high.at] = low, high
        return table


@dataclasses.dataclass(frozen=True)
class Sum:
    """total = a + b - c. Broken rows take the sum, after its parts keep it within its bounds."""

    total: Field
    parts: tuple[tuple[int, Field], ...]

    def sum(self, table: np.ndarray) -> np.ndarray:
        """Returns what the total is of the parts: float64 [n]."""
        return np.sum([sign * part.values(table) for sign, part in self.parts], 0)

    def broken(self, table: np.ndarray) -> np.ndarray:
        """Returns which rows break it: bool [n]."""
        apart = np.abs(self.total.values(table) - self.sum(table))
        return apart > self.total.step / 2

    def mended(self, table: np.ndarray) -> np.ndarray:
        """Returns broken rows, float64 [n, K], mended."""
        table = table.copy()
        least, most = transform.bounds(self.total.column)
        for up in (1, -1):  # what is above the bounds, then what is below
            over = np.maximum(up * (self.sum(table) - (most if up > 0 else least)), 0)
            for sign, part in self.parts:
                low, high = transform.bounds(part.column)
                values = table[:, part.at]
                room = values - low if sign == up else high - values
                change = np.minimum(np.ceil(over / part.step - 1e-9) * part.step, room)
                table[:, part.at] = near(values - sign * up * change, part.column)
                over = np.maximum(over - change, 0)
        table[:, self.total.at] = near(self.sum(table), self.total.column)
        return table


@dataclasses.dataclass(frozen=True)
class Condition:
    """A column compared with a value; NaN, with =, is null."""

    field: Field
    sign: str
    value: float

    def holds(self, table: np.ndarray) -> np.ndarray:
        """Returns in which rows it holds: bool [n]. A special value is equal to itself alone."""
        if self.sign == "=":
            codes = table[:, self.field.at]
            return np.isnan(codes) if np.isnan(self.value) else codes == self.value
        return ORDER[self.sign](self.field.values(table), self.value)


@dataclasses.dataclass(frozen=True)
class Implies:
    """Where `first` holds `then` holds. Broken rows take the value of `then`."""

    first: Condition
    then: Condition

    def broken(self, table: np.ndarray) -> np.ndarray:
        """Returns which rows break it: bool [n]."""
        unknown = np.isnan(self.then.field.values(table)) & (self.then.sign != "=")
        return self.first.holds(table) & ~self.then.holds(table) & ~unknown

    def mended(self, table: np.ndarray) -> np.ndarray:
        """Returns broken rows, float64 [n, K], mended."""
        table, then = table.copy(), self.then
        beside = {"<": -then.field.step, ">": then.field.step}.get(then.sign, 0.0)
        table[:, then.field.at] = then.value + beside
        return table


Rule = Compare | Sum | Implies


def near(values: np.ndarray, column: Column) -> np.ndarray:
    """Returns numbers rounded to the decimals that the column has."""
    return np.round(values, max(column.decimals, 0)) + 0.0


@functools.lru_cache(maxsize=64)
def rules(spec: TableSpec) -> tuple[Rule, ...]:
    """Returns the constraints of a schema as rules.

    Args:
        spec: The schema.

    Raises:
        UserError: Quoting the constraint that cannot be read, and the mend.
    """
    fields = {column.name: Field(column, i) for i, column in enumerate(spec.all_columns)}
    made = []
    for text in spec.constraints:
        try:
            made.append(_rule(text, fields, spec.label.name))
        except UserError as error:
            raise UserError(f"constraint {text!r}: {error}") from error
    return tuple(made)


def _rule(text: str, fields: dict[str, Field], label: str) -> Rule:
    """Reads a constraint."""
    words = _words(text)
    if "->" in words:
        at = words.index("->")
        first, then = (_condition(part, fields) for part in (words[:at], words[at + 1:]))
        if then.field.column.name == label:
            raise UserError("the label is never changed; write it on the left of ->")
        _check_then(then)
        return Implies(first, then)
    if len(words) < 3 or words[1] not in ORDER or len(words) % 2 == 0:
        raise UserError("write a <= b, total = a + b, or a = x -> b = y, with spaces between")
    named = [_field(word, fields) for word in words[::2]]
    if any(field.column.name == label for field in named):
        raise UserError("the label stands on the left of -> only")
    if words[1] == "=":
        return _sum(named, words[3::2])
    if len(named) > 2:
        raise UserError("a comparison is of two columns")
    return _compare(named, words[1])


def _words(text: str) -> list[str]:
    """Returns names, values and operators in turn; a name may be several words."""
    words: list[str] = []
    joined = False
    for match in TOKEN.finditer(text):
        quoted, sign, word = match.groups()
        if sign is not None:
            words.append(sign)
        elif joined:
            words[-1] += f" {word if quoted is None else quoted}"
        else:
            words.append(word if quoted is None else quoted)
        joined = sign is None
    return words


def _field(word: str, fields: dict[str, Field]) -> Field:
    """Returns the column of a name."""
    if word not in fields:
        raise UserError(f"{word!r} is no column with values{nearest(word, fields)}")
    return fields[word]


def _condition(words: list[str], fields: dict[str, Field]) -> Condition:
    """Reads a column compared with a value."""
    if len(words) != 3 or words[1] not in ORDER:
        raise UserError("each side of -> is a column, an operator and a value, as a = x")
    field, (_, sign, text) = _field(words[0], fields), words
    column = field.column
    if text in column.categories:
        value: float | None = float(column.categories.index(text))
    elif text == "null" and sign == "=" and column.nullable:
        value = np.nan
    elif column.categories:
        raise UserError(f"{text!r} is no category of {column.name}"
                        f"{nearest(text, column.categories)}")
    else:
        value = forms.number(text) if column.written == "plain" else forms.reader(column)(text)
    if value is None:
        raise UserError(f"{text!r} is no {forms.what(column)}, as {column.name} has")
    if column.kind == "categorical" and sign != "=":
        raise UserError(f"the categories of {column.name} have no order; write =")
    return Condition(field, sign, value)


def _check_then(then: Condition) -> None:
    """Checks that what follows can be made to hold."""
    field, column = then.field, then.field.column
    low, high = transform.bounds(column)
    if then.sign in ("<", ">") and not field.step:
        raise UserError(f"{column.name} has no nearest number; write {then.sign}=")
    inside = low <= then.value <= high or then.value in column.special or np.isnan(then.value)
    beside = {"<": -1, ">": 1}.get(then.sign, 0) * field.step
    is_written = (column.kind != "continuous" or np.isnan(then.value)
                  or forms.rounded(column, np.array([then.value]))[0] == then.value)
    whole = column.kind == "continuous" or np.isnan(then.value) or then.value.is_integer()
    if not (inside and is_written and whole) or (beside and not low <= then.value + beside <= high):
        raise UserError(f"{column.name} has no such value within its bounds")


def _compare(named: list[Field], sign: str) -> Compare:
    """Makes a comparison of two columns."""
    if sign in SWAPPED:
        named, sign = named[::-1], SWAPPED[sign]
    low, high = named
    kinds = [(field.column.written, field.column.categories) for field in named]
    if kinds[0] != kinds[1] or "categorical" in (low.column.kind, high.column.kind) or low == high:
        raise UserError("both columns must be numbers, or both dates, both times, or both ordinal "
                        "with the same categories")
    if sign == "<" and not (low.step and high.step):
        raise UserError("numbers without declared decimals have no next one; write <=")
    step = max(low.step, high.step) if sign == "<" else 0.0
    if transform.bounds(low.column)[0] + step > transform.bounds(high.column)[1]:
        raise UserError("no values within the bounds fulfil it")
    return Compare(low, high, sign == "<")


def _sum(named: list[Field], signs: list[str]) -> Sum:
    """Makes a sum of columns."""
    total, parts = named[0], named[1:]
    if set(signs) - {"+", "-"}:
        raise UserError("columns are added by + and -")
    if len({field.at for field in named}) < len(named):
        raise UserError("a column stands in it twice")
    for field in named:
        column = field.column
        if column.categories or column.written not in ("plain", "duration"):
            raise UserError(f"{column.name} is no number, which can be added")
        if column.kind == "continuous" and column.decimals < 0 and column.written == "plain":
            raise UserError(f"{column.name} has no declared decimals, without which a sum is not "
                            "exact; add decimals: 2, or as many as it has")
    if total.step > min(part.step for part in parts):
        raise UserError(f"{total.column.name} has fewer decimals than its parts; declare as many")
    made = Sum(total, tuple((-1 if sign == "-" else 1, part)
                            for sign, part in zip(["+", *signs], parts, strict=True)))
    ends = [sum(sign * transform.bounds(part.column)[(sign > 0) == most]
                for sign, part in made.parts) for most in (False, True)]
    if ends[0] > total.column.high or ends[1] < total.column.low:
        raise UserError("no values within the bounds fulfil it")
    return made
