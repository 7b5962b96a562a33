"""Conditions on the columns of sampled records: `age>=60`, `city=Rome|Oslo`, `pay=null`.

A condition is checked against the schema first: one that no record of the schema can meet is
refused. Null meets no comparison, `!=` included; only `=null` and a set that names null ask for it.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpgen_jax.core.errors import nearest
from dpgen_jax.core.types import Column, ImageSpec, Spec, UserError
from dpgen_jax.data import forms, python_values

LABEL = "label"
"""The name by which conditions call the class of an image."""
OPERATOR = re.compile(r"\s*(!=|>=|<=|==|=|>|<)\s*")
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
NULL, NULLS = "null", ("None", "nan", "NaT", "<NA>")
Where = str | Iterable[str] | Mapping[str, object] | None
"""Conditions as users write them, which `parse` reads."""
Labels = int | str | Sequence[int] | Sequence[str] | np.ndarray | None
"""Classes as users name them; None: all."""
HOW = ("write COLUMN=VALUE, COLUMN=A|B, COLUMN!=VALUE, COLUMN>=VALUE, COLUMN=LOW..HIGH or "
       "COLUMN=null")


@dataclasses.dataclass(frozen=True)
class Condition:
    """One condition on one column.

    Attributes:
        text: As the user wrote it.
        place: The place of the column among the codes; -1 for the label.
        column: The column.
        test: From codes float64 [n] without null to bool [n].
        null: Whether null meets it.
        points: Codes at which the test may change.
    """

    text: str
    place: int
    column: Column
    test: Callable[[np.ndarray], np.ndarray]
    null: bool = False
    points: tuple[float, ...] = ()

    def met(self, values: np.ndarray) -> np.ndarray:
        """Returns which codes [n], NaN for null, meet the condition."""
        return np.where(np.isnan(values), self.null, self.test(np.nan_to_num(values)))


@dataclasses.dataclass(frozen=True)
class Conditions:
    """Conditions that a record meets all of.

    Attributes:
        spec: The schema of the records.
        all: The conditions.
    """

    spec: Spec
    all: tuple[Condition, ...] = ()

    @property
    def on_columns(self) -> tuple[Condition, ...]:
        """The conditions on other columns than the label."""
        return tuple(condition for condition in self.all if condition.place >= 0)

    @property
    def on_label(self) -> tuple[Condition, ...]:
        """The conditions on the label."""
        return tuple(condition for condition in self.all if condition.place < 0)

    def classes(self) -> np.ndarray:
        """Returns which classes meet the conditions on the label, bool [C]."""
        return _all(self.on_label, np.arange(self.spec.classes, dtype=np.float64),
                    self.spec.classes)

    def met(self, codes: np.ndarray) -> np.ndarray:
        """Returns which rows meet the conditions on columns, as they are and as they are written.

        Args:
            codes: float64 [n, columns], as `Release.sample` returns them.

        Returns:
            bool [n].
        """
        kept = np.ones(len(codes), bool)
        for condition in self.on_columns:
            values = codes[:, condition.place]
            kept &= condition.met(values)
            if condition.column.kind == "continuous":  # six digits are written
                kept &= condition.met(forms.rounded(condition.column, values))
        return kept


def parse(where: Where, spec: Spec) -> Conditions:
    """Reads conditions.

    Args:
        where: Texts of conditions; or a dict from the names of columns to a value, to several
            values of which one must be met, or to the text of a condition without its column, such
            as ">=60". None stands for null.
        spec: The schema. Images have one column, `label`.

    Returns:
        The conditions, in the order of the input.

    Raises:
        UserError: For a column or value that the schema does not have, and for conditions that no
            record can meet together.
    """
    if where is None:
        return Conditions(spec)
    texts = [where] if isinstance(where, str) else where
    if not isinstance(texts, Iterable):
        raise UserError(f"where is a {type(where).__name__}; give a dict of columns and values, or "
                        "a list of conditions")
    identifiers = [] if isinstance(spec, ImageSpec) else [i.name for i in spec.identifiers]
    columns = Named({one.name: (place, one) for place, one in _columns(spec)}, identifiers)
    if isinstance(texts, Mapping):
        read = [_of_value(str(name), value, columns) for name, value in texts.items()]
    else:
        read = [_of_text(str(text), columns) for text in texts]
    conditions = Conditions(spec, tuple(read))
    for place, column in columns.places.values():
        _require_possible(column, [c for c in conditions.all if c.place == place])
    return conditions


class Named(NamedTuple):
    """The place and the column of each name; and the names of identifiers, which have neither."""

    places: dict[str, tuple[int, Column]]
    identifiers: list[str]


def _columns(spec: Spec) -> list[tuple[int, Column]]:
    """Returns the columns with their places; the label has -1."""
    if isinstance(spec, ImageSpec):
        names = spec.class_names or tuple(map(str, range(spec.classes)))
        return [(-1, Column(LABEL, "categorical", categories=names))]
    return [*enumerate(spec.columns), *([(-1, spec.label)] if spec.label.name else [])]


def _of_text(text: str, columns: Named) -> Condition:
    """Reads `COLUMN OPERATOR VALUE`; a name may hold operators itself, and the longest counts."""
    text = text.strip()
    for name in sorted(columns.places, key=len, reverse=True):
        if text.startswith(name) and (sign := OPERATOR.match(text, len(name))):
            return _compared(text, *columns.places[name], sign[1], text[sign.end():])
    sign = OPERATOR.search(text)
    if sign is None:
        raise UserError(f"condition {text!r} has no comparison; {HOW}")
    raise _unknown(text[:sign.start()], columns)


def _of_value(name: str, value: object, columns: Named) -> Condition:
    """Reads the value, the values or the comparison that a dict gives for a column."""
    if name not in columns.places:
        raise _unknown(name, columns)
    place, column = columns.places[name]
    if isinstance(value, str):
        sign = OPERATOR.match(value)
        if sign and value not in column.categories:
            return _compared(name + value, place, column, sign[1], value[sign.end():])
        return _compared(f"{name}={value}", place, column, "=", value)
    if isinstance(value, list | tuple | set | frozenset | np.ndarray):
        texts = [_text(one, column) for one in value]
        return _one_of(f"{name}={'|'.join(texts)}", place, column, texts)
    return _one_of(f"{name}={_text(value, column)}", place, column, [_text(value, column)])


def _text(value: object, column: Column) -> str:
    """Returns a value as a file holds it."""
    is_null = str(value) in NULLS and not isinstance(value, str)
    return NULL if is_null else python_values.text(value, column)


def _unknown(name: str, columns: Named) -> UserError:
    name, known = name.strip(), ", ".join([*columns.places][:20])
    if name in columns.identifiers:
        return UserError(f"column {name} is an identifier, which is new in every record")
    return UserError(f"no column is named {name!r}{nearest(name, columns.places)}; known: {known}")


def _compared(text: str, place: int, column: Column, sign: str, value: str) -> Condition:
    """Makes a condition of an operator and the text after it."""
    value = value.strip()
    if sign in COMPARE:
        _require_order(text, column)
        bound, compare = _code(text, column, value), COMPARE[sign]
        return Condition(text, place, column, lambda codes: compare(codes, bound) & ~np.isin(
            codes, column.outside), points=(bound,))
    low, dots, high = value.partition("..")
    if dots and value not in column.categories:
        _require_order(text, column)
        if sign == "!=":
            raise UserError(f"{text}: a range has no !=; write two conditions")
        first, last = _code(text, column, low.strip()), _code(text, column, high.strip())
        return Condition(text, place, column,
                         lambda codes: (codes >= first) & (codes <= last) & ~np.isin(
                             codes, column.outside), points=(first, last))
    # A category may itself hold a bar.
    values = [value] if value in column.categories else [part.strip() for part in value.split("|")]
    condition = _one_of(text, place, column, values)
    if sign != "!=":
        return condition
    equal = condition.test
    return dataclasses.replace(condition, test=lambda codes: ~equal(codes), null=False)


def _one_of(text: str, place: int, column: Column, values: list[str]) -> Condition:
    """Makes the condition that a column has one of these values."""
    null = NULL in values and NULL not in column.categories
    if null and not column.nullable:
        raise UserError(f"{text}: column {column.name} is not nullable in the schema, so no record "
                        "has null there")
    codes = np.array([_code(text, column, value) for value in values
                      if not (null and value == NULL)], np.float64)
    return Condition(text, place, column, lambda coded: np.isin(coded, codes), null,
                     tuple(codes.tolist()))


def _require_order(text: str, column: Column) -> None:
    if column.kind == "categorical":
        raise UserError(f"{text}: the values of column {column.name} have no order; name those you "
                        f"want, as in {column.name}=A|B")


def _code(text: str, column: Column, value: str) -> float:
    """Returns the code of a value, as a file of the schema would have it."""
    if column.categories:
        if column.written == "boolean":  # in small or capital letters, as in a file
            named = {name.casefold(): name for name in column.categories}
            value = named.get(value.casefold(), value)
        if value not in column.categories:
            raise UserError(f"{text}: {value!r} is no value of column {column.name}"
                            f"{nearest(value, column.categories)}; known: "
                            f"{', '.join(column.categories[:20])}")
        return float(column.categories.index(value))
    code = forms.reader(column)(value)
    if code is None and column.unit:  # a number may be without its unit
        code = forms.number(value)
    if code is None or (column.kind == "integer" and not code.is_integer()):
        kind = column.kind if forms.is_plain(column) else f"a {forms.what(column)}"
        raise UserError(f"{text}: {value!r} is no value of column {column.name}, which is {kind}")
    return code


def _require_possible(column: Column, conditions: list[Condition]) -> None:
    """Refuses conditions on one column that no record of the schema meets together."""
    if not conditions or all(c.null for c in conditions) or _all(
            conditions, codes := candidates(column, conditions), len(codes)).any():
        return
    texts = " and ".join(condition.text for condition in conditions)
    within = (f"is one of {', '.join(column.categories[:20])}" if column.categories
              else f"lies from {column.low:g} to {column.high:g}" if forms.is_plain(column)
              else "lies from {} to {}".format(*forms.texts(column, np.array(
                  [column.low, column.high]))))
    raise UserError(f"no record can meet {texts}: column {column.name} {within} in the schema")


def candidates(column: Column, conditions: list[Condition]) -> np.ndarray:
    """Returns codes of the schema, with the ends of every part that conditions tell apart.

    Args:
        column: The column.
        conditions: Conditions on it.

    Returns:
        float64 [n], without null.
    """
    if column.categories:
        return np.arange(len(column.categories), dtype=np.float64)
    ends = {column.low, column.high, *(p for c in conditions for p in c.points)}
    if column.kind == "continuous":
        steps = [np.nextafter(end, to) for end in ends for to in (-math.inf, math.inf)]
    else:
        steps = [end + step for end in ends for step in (-1.0, 1.0)]
    codes = np.array([*ends, *steps])
    return np.array([*codes[(codes >= column.low) & (codes <= column.high)], *column.special])


def _all(conditions: Iterable[Condition], codes: np.ndarray, count: int) -> np.ndarray:
    """Returns which codes meet all conditions, bool [count]."""
    kept = np.ones(count, bool)
    for condition in conditions:
        kept &= condition.met(codes)
    return kept
