"""Cells that have no value of their column, and the entries `odd` by which a schema reads them.

Where a schema was bought, no cell may be an error: an error would tell what no epsilon covers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpgen_jax.core.types import Column, TableSpec, UserError
from dpgen_jax.data import forms
from dpgen_jax.data.schema_columns import NULLS


def odd_texts(columns: Sequence[Column], entries: Mapping[str, Mapping[str, Any]], label: str
              ) -> dict[str, str]:
    """Returns the text by which cells without a value are read, by column, where it is declared.

    Args:
        columns: The columns.
        entries: The entries of each, by its name.
        label: The name of the label.

    Raises:
        UserError: It is no value of its column.
    """
    odd = {made.name: entries[made.name]["odd"] for made in columns if "odd" in entries[made.name]}
    for made in columns:
        text = odd.get(made.name, "")
        null = text in NULLS and (made.nullable or made.name == label)
        if made.name in odd and not (null or has_value(made, text)):
            raise UserError(f"column {made.name}: odd is {text!r}, which is no value of it; write "
                            "one, or null where the column is nullable or the label")
    return odd


def has_value(made: Column, text: str) -> bool:
    """Returns whether a cell has a value of a column, null where that is one.

    Args:
        made: The column.
        text: The cell.
    """
    if text in NULLS and made.nullable:
        return True
    if made.categories:
        folded = made.written == "boolean"
        return text in made.categories or (folded and text.casefold() in map(
            str.casefold, made.categories))
    value = forms.reader(made)(text)
    whole = made.kind != "integer" or made.written == "date"
    return value is not None and (whole or value.is_integer())


def tamed(spec: TableSpec, odd: Mapping[str, str], others: Mapping[str, str],
          columns: Mapping[str, list[str]]
          ) -> tuple[dict[str, list[str]], dict[str, int], np.ndarray]:
    """Replaces the cells that have no value by what the schema declares for them.

    Args:
        spec: The columns.
        odd: The text that takes them, by column; null for a label whose row is left out.
        others: The category that takes undeclared texts, by column.
        columns: The n cells of each column.

    Returns:
        The cells; the number of those that were replaced, by column; and bool [n]: the rows that
        are left out for their label.
    """
    texts, counts = dict(columns), {}
    left_out = np.zeros(len(next(iter(columns.values()), [])), bool)
    for column in spec.all_columns:
        if column.name not in odd:
            continue
        known = {text: has_value(column, text) or (column.name in others and text not in NULLS)
                 for text in dict.fromkeys(texts[column.name])}
        replaced = np.array([not known[text] for text in texts[column.name]], bool)
        counts[column.name], value = int(replaced.sum()), odd[column.name]
        if value in NULLS and not column.nullable:  # of the label
            left_out, value = replaced, column.categories[0]
        texts[column.name] = [text if known[text] else value for text in texts[column.name]]
    return texts, counts, left_out
