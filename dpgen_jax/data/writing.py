"""Codes of a table as the cells of a file, which `tables.csv` reads back. It needs NumPy alone."""

from __future__ import annotations

import math
from string import ascii_uppercase

import numpy as np

from dpgen_jax.core.types import Column, Identifier, TableSpec, UserError
from dpgen_jax.data import forms


def cells(spec: TableSpec, codes: np.ndarray, y: np.ndarray, first: int = 0
          ) -> tuple[list[str], list[list[str]]]:
    """Writes codes as cells of text; `tables.csv` reads them back.

    The columns are those of the schema in its order, as `forms` writes them: whole numbers without
    a point, other numbers to their decimals or to 6 significant digits, within their bounds, null
    as an empty cell. Identifiers are new ones, counted from `first`, by which parts of a long table
    differ. Synthetic rows come from `finishing.finished`.

    Args:
        spec: The schema.
        codes: float64 [n, columns].
        y: Classes int [n].
        first: How many rows of the table were written before.

    Returns:
        The column names, and the rows.

    Raises:
        UserError: A pattern has not as many identifiers.
    """
    columns = [(column.name, forms.texts(column, values))
               for column, values in in_order(spec, codes, y)]
    for identifier in spec.identifiers:
        columns.insert(identifier.position, (identifier.name, identifiers(
            identifier, first, len(y))))
    return [name for name, _ in columns], [
        list(row) for row in zip(*(texts for _, texts in columns), strict=True)]


def identifiers(identifier: Identifier, first: int, n: int) -> list[str]:
    """Returns identifiers that no other row has: the pattern's, in the order of their numbers.

    Args:
        identifier: The column.
        first: How many were made before.
        n: How many.

    Raises:
        UserError: The pattern has fewer.
    """
    require_identifiers(identifier, first + n)
    signs = _signs(identifier)
    made = []
    for number in range(first, first + n):
        text = []
        for choices in reversed(signs):
            number, place = divmod(number, len(choices))
            text.append(choices[place])
        made.append("".join(reversed(text)))
    return made


def require_identifiers(identifier: Identifier, n: int) -> None:
    """Refuses more rows than a pattern has identifiers.

    Args:
        identifier: The column.
        n: The rows of a whole table.

    Raises:
        UserError: The pattern has fewer.
    """
    most = math.prod(map(len, _signs(identifier)))
    if n > most:
        raise UserError(f"column {identifier.name}: the pattern {identifier.pattern!r} has "
                        f"{most:,} identifiers, and {n:,} are needed; sample fewer rows, or "
                        "declare a longer one")


def _signs(identifier: Identifier) -> list[str]:
    """Returns what may stand at each place of a pattern."""
    return [{"#": "0123456789", "@": ascii_uppercase}.get(sign, sign)
            for sign in identifier.pattern]


def in_order(spec: TableSpec, codes: np.ndarray, y: np.ndarray) -> list[tuple[Column, np.ndarray]]:
    """Returns all columns but identifiers, in the order of the file, with their codes [n].

    Args:
        spec: The schema.
        codes: float64 [n, columns].
        y: Classes int [n].
    """
    columns = list(zip(spec.columns, np.asarray(codes, np.float64).T, strict=True))
    if spec.labelled:
        columns.insert(spec.label_position, (spec.label, np.asarray(y, np.float64)))
    return columns
