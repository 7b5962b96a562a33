"""Tables as features in [0, 1] and back, by the declared schema alone: nothing is fitted.

The codes of a table: float64 [n, columns], a number as it is, a category or an ordinal as its
index, NaN for null. The layout of the features is that of `Column` and `TableSpec`.
"""

from __future__ import annotations

import numpy as np

from dpgen_jax.core.types import Column, TableSpec

PLACEHOLDER = 0.5  # the value of a null number; its flag is 1


def encode(spec: TableSpec, codes: np.ndarray) -> np.ndarray:
    """Encodes codes as features. Numbers outside their declared bounds are clipped to them.

    Args:
        spec: The schema.
        codes: float64 [n, columns], valid but for the bounds: indices of declared categories, and
            nulls in nullable columns only.

    Returns:
        float64 [n, F] in [0, 1].
    """
    return np.concatenate([_encode(column, values) for column, values
                           in zip(spec.columns, codes.T, strict=True)], axis=1)


def decode(spec: TableSpec, encoded: np.ndarray) -> np.ndarray:
    """Decodes features as codes; inverts `encode` on valid codes.

    A category is the largest entry of its one-hot, null if that is the entry for null; a number or
    an ordinal is null if its flag is above 0.5; integers are rounded, and everything lies within
    its declared bounds. The inverse is exact for integers, categories and nulls, also if the
    features were stored as float32, and up to rounding for continuous numbers (in float32, 1e-6 of
    their range).

    Args:
        spec: The schema.
        encoded: [n, F], any values at all.

    Returns:
        float64 [n, columns].
    """
    encoded = np.nan_to_num(np.asarray(encoded, np.float64))  # NaN becomes 0, infinities finite
    ends = np.cumsum([column.width for column in spec.columns])
    return np.stack([_decode(column, features) for column, features
                     in zip(spec.columns, np.split(encoded, ends[:-1], axis=1), strict=True)], 1)


def bounds(column: Column) -> tuple[float, float]:
    """Returns the lowest and highest code of a column, null apart.

    Args:
        column: The column.
    """
    if column.categories:
        return 0.0, len(column.categories) - 1.0
    return column.low, column.high


def _encode(column: Column, values: np.ndarray) -> np.ndarray:
    """Encodes the codes [n] of a column as features [n, width]."""
    null = np.isnan(values)
    if column.kind == "categorical":
        index = np.where(null, column.width - 1, values)
        return (index[:, None] == np.arange(column.width)).astype(np.float64)
    low, high = bounds(column)
    value = (np.clip(values, low, high) - low) / ((high - low) or 1.0)
    value = np.where(null, PLACEHOLDER, value)
    return np.stack([value, null] if column.nullable else [value], axis=1)


def _decode(column: Column, features: np.ndarray) -> np.ndarray:
    """Decodes the features [n, width] of a column as codes [n]."""
    if column.kind == "categorical":
        index = features.argmax(1).astype(np.float64)
        return np.where(index == len(column.categories), np.nan, index)
    low, high = bounds(column)
    value = np.clip(features[:, 0], 0.0, 1.0) * (high - low)
    value = low + (value if column.kind == "continuous" else np.rint(value))
    value = np.clip(value, low, high)
    return np.where(features[:, 1] > 0.5, np.nan, value) if column.nullable else value
