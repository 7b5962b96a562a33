"""Tables as features in [0, 1] and back, by the declared schema alone: nothing is fitted.

The codes of a table: float64 [n, columns], a number as it is, a category or an ordinal as its
index, NaN for null. The layout of the features is that of `Column` and `TableSpec`.
"""

from __future__ import annotations

import numpy as np

from dpgen_jax.types import Column, TableSpec

PLACEHOLDER = 0.5  # the value of a null number; its flag is 1


def encode(spec: TableSpec, codes: np.ndarray) -> np.ndarray:
    """Features float64 [n, F] in [0, 1] of codes float64 [n, columns].

    Numbers outside their declared bounds are clipped to them. The codes must be valid otherwise:
    indices of declared categories, nulls in nullable columns only.
    """
    return np.concatenate([_encode(column, values) for column, values
                           in zip(spec.columns, codes.T, strict=True)], axis=1)


def decode(spec: TableSpec, encoded: np.ndarray) -> np.ndarray:
    """Codes float64 [n, columns] of features [n, F], which may be any values at all.

    A category is the largest place of its one-hot, null if that is the null place; a number or an
    ordinal is null if its flag is above 0.5; integers are rounded, and everything lies within its
    declared bounds. Inverts `encode` on valid codes: integers, categories and nulls exactly, also
    if the features were stored as float32; continuous numbers up to rounding (in float32, 1e-6 of
    their range).
    """
    encoded = np.nan_to_num(np.asarray(encoded, np.float64))  # NaN becomes 0, infinities finite
    ends = np.cumsum([column.width for column in spec.columns])
    return np.stack([_decode(column, features) for column, features
                     in zip(spec.columns, np.split(encoded, ends[:-1], axis=1), strict=True)], 1)


def bounds(column: Column) -> tuple[float, float]:
    """The lowest and highest code of a column, null apart."""
    if column.categories:
        return 0.0, len(column.categories) - 1.0
    return column.low, column.high


def _encode(column: Column, values: np.ndarray) -> np.ndarray:
    """[n] codes -> [n, width] features."""
    null = np.isnan(values)
    if column.kind == "categorical":
        places = np.where(null, column.width - 1, values)
        return (places[:, None] == np.arange(column.width)).astype(np.float64)
    low, high = bounds(column)
    value = (np.clip(values, low, high) - low) / ((high - low) or 1.0)
    value = np.where(null, PLACEHOLDER, value)
    return np.stack([value, null] if column.nullable else [value], axis=1)


def _decode(column: Column, features: np.ndarray) -> np.ndarray:
    """[n, width] features -> [n] codes."""
    if column.kind == "categorical":
        place = features.argmax(1).astype(np.float64)
        return np.where(place == len(column.categories), np.nan, place)
    low, high = bounds(column)
    value = np.clip(features[:, 0], 0.0, 1.0) * (high - low)
    value = low + (value if column.kind == "continuous" else np.rint(value))
    value = np.clip(value, low, high)
    return np.where(features[:, 1] > 0.5, np.nan, value) if column.nullable else value
