"""The terms of a guarantee: units, neighbouring relations, bounds rounded upwards. No JAX.

Units and relations are strings: they compare and serialise as the words that they stand for.

Epsilon and delta are upper bounds. A text that rounds one to the nearest number of its digits is,
half of the time, below the bound and so promises what does not hold. `at_most` rounds upwards.

The module imports nothing of the package, so that every part may use it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, Context
from enum import StrEnum
from typing import Any


class Unit(StrEnum):
    """Who is protected: one record, or one client or subject with all its records."""

    RECORD = "record"
    CLIENT = "client"
    SUBJECT = "subject"


@dataclasses.dataclass(frozen=True)
class ProtectedUnit:
    """The unit of a guarantee, which is protected as a whole. The plain case is one record.

    Attributes:
        column: Of subjects, the column that names them.
        rows: Of subjects, the most rows of one that are kept; 0 for other units.
    """

    kind: Unit = Unit.RECORD
    column: str = ""
    rows: int = 0

    @property
    def terms(self) -> dict[str, Any]:
        """The fields by which statements, ledgers and config.json name the unit."""
        terms: dict[str, Any] = {"unit": str(self.kind)}
        if self.kind == Unit.SUBJECT:
            terms |= {"unit_column": self.column, "rows_per_unit": self.rows}
        return terms


def whom(terms: Mapping[str, Any]) -> str:
    """Says in words who is protected, by the fields that `ProtectedUnit.terms` returns."""
    unit = str(terms.get("unit"))
    if unit != Unit.SUBJECT:
        return unit
    return (f"{unit} (all rows of one {terms.get('unit_column')}; at most "
            f"{terms.get('rows_per_unit')} of them are kept)")


class Relation(StrEnum):
    """The relation that makes two data sets neighbours."""

    REPLACE_ONE = "replace-one"
    """The data of one unit are replaced by any others; the number of units is public."""
    ZERO_OUT = "zero-out"
    """The message of one unit is replaced by zeros."""
    ADD_REMOVE = "add-remove"
    """One of the two data sets has a unit that the other has not."""


FLOATS = 1e-12
"""The share by which products of numbers that people wrote may be off, as 0.1 * 1e-5 is"""


def at_most(value: float, digits: int = 6) -> str:
    """Returns a bound in the format `g`, rounded up where its digits do not hold it.

    Args:
        digits: The most significant digits.
    """
    text = f"{value:.{digits}g}"
    if not math.isfinite(value) or float(text) * (1 + FLOATS) >= value:
        return text
    larger = Context(prec=digits, rounding=ROUND_CEILING).create_decimal_from_float(value)
    return f"{float(larger):.{digits}g}"
