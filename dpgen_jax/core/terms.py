"""The terms of a guarantee: units, neighbouring relations, bounds rounded upwards. No JAX.

Units and relations are strings, and compare and serialise as such.

Epsilon and delta are upper bounds. Rounding one to the nearest printed number gives a value below
the bound half of the time, which is a false promise. `at_most` rounds upwards.

The module imports nothing from the package, so every part may use it.
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
    """The unit of a guarantee, which is protected as a whole. The simplest case is one record.

    Attributes:
        column: For subjects, the column that identifies them.
        rows: For subjects, the most rows of one that are kept; 0 for other units.
    """

    kind: Unit = Unit.RECORD
    column: str = ""
    rows: int = 0

    @property
    def terms(self) -> dict[str, Any]:
        """The fields that identify the unit in statements, ledgers and config.json."""
        terms: dict[str, Any] = {"unit": str(self.kind)}
        if self.kind == Unit.SUBJECT:
            terms |= {"unit_column": self.column, "rows_per_unit": self.rows}
        return terms


def whom(terms: Mapping[str, Any]) -> str:
    """Describes in words who is protected, from the fields of `ProtectedUnit.terms`."""
    unit = str(terms.get("unit"))
    if unit != Unit.SUBJECT:
        return unit
    return (f"{terms.get('unit_column')} with all rows (at most {terms.get('rows_per_unit')} are "
            "used)")


class Relation(StrEnum):
    """The relation that makes two data sets neighbours."""

    REPLACE_ONE = "replace-one"
    """The data of one unit are replaced by any others; the number of units is public."""
    ZERO_OUT = "zero-out"
    """The message of one unit is replaced by zeros."""
    ADD_REMOVE = "add-remove"
    """One of the two data sets has a unit that the other does not have."""


FLOATS = 1e-12
"""the relative error of products of typed numbers, such as 0.1 * 1e-5"""


def at_most(value: float, digits: int = 6) -> str:
    """Returns a bound in the format `g`, rounded up if it needs more digits.

    Args:
        digits: The largest number of significant digits.
    """
    text = f"{value:.{digits}g}"
    if not math.isfinite(value) or float(text) * (1 + FLOATS) >= value:
        return text
    larger = Context(prec=digits, rounding=ROUND_CEILING).create_decimal_from_float(value)
    return f"{float(larger):.{digits}g}"
