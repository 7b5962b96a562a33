"""Tables as features in [0, 1] and back, by the declared schema only: nothing is fitted.

The codes of a table are float64 [n, columns]: a number as it is, a category or an ordinal as its
index, NaN for null; `forms` defines the codes of dates and times. The layout of the features is
that of `Column` and `TableSpec`.
"""

from __future__ import annotations

import numpy as np

from dpgen_jax.core.types import Column, TableSpec
from dpgen_jax.data.table import forms

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

    A category is the largest entry of its one-hot, null if that is the entry for null, and so is
    which special value a number has; another number or an ordinal is null if its flag is above 0.5;
    integers are rounded, numbers with declared decimals and times to those, and everything lies
    within its declared bounds. The inverse is exact for integers, categories, special values and
    nulls, also if the features were stored as float32, and up to rounding for continuous numbers
    (in float32, 1e-6 of their range). Constraints between columns are not applied here: synthetic
    rows go through `constraints.finished`, which calls it.

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
    """Returns the lowest and highest code of a column, null and special values apart.

    Args:
        column: The column.
    """
    if column.categories:
        return 0.0, len(column.categories) - 1.0
    return column.low, column.high


def unit(column: Column, values: np.ndarray) -> np.ndarray:
    """Maps codes to [0, 1] by the bounds and the scale of a number or an ordinal.

    On a log scale, equal parts of [0, 1] are equal parts of log x where the lower bound is above 0,
    and elsewhere of sign(x) log(1 + |x|), which is linear around 0.

    Args:
        column: The column.
        values: float64 [n], NaN for null; values outside the bounds count as the nearest bound.
    """
    ends = bounds(column)
    values = np.clip(values, *ends)
    low, high = ends if column.scale == "linear" else _log(column, np.array(ends)).tolist()
    if column.scale == "log":
        values = _log(column, values)
    return (values - low) / ((high - low) or 1.0)


def from_unit(column: Column, values: np.ndarray) -> np.ndarray:
    """Inverts `unit`, and rounds to the codes that the column has.

    Args:
        column: The column.
        values: float64 [n] in [0, 1].
    """
    first, last = bounds(column)
    if column.scale == "log":
        low, high = _log(column, np.array([first, last])).tolist()
        values = _exp(column, low + values * (high - low)) - first
    else:
        values = values * (last - first)
    size = forms.step(column)
    if column.kind != "continuous":
        values = np.rint(values)
    elif size is not None:
        values = np.rint(values / size) * size
    codes = np.asarray(first + values)
    if column.decimals >= 0:
        codes = np.round(codes, column.decimals)
    return np.clip(codes, first, last)


def _log(column: Column, values: np.ndarray) -> np.ndarray:
    """Returns numbers on the log scale of a column."""
    return np.log(values) if column.low > 0 else np.sign(values) * np.log1p(np.abs(values))


def _exp(column: Column, values: np.ndarray) -> np.ndarray:
    """Inverts `_log`."""
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
    """Returns one-hots float64 [n, places]."""
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
