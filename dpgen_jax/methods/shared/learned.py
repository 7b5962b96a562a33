"""The columns of a table that are learned: those that follow from no others.

A column that is a function of others is left out. Of two dates or times whose order a constraint
keeps, as `admitted <= discharged`, the lower one is learned, and how far the other lies above it,
on a log scale: bins are too wide to say which of two dates in one of them comes first, and rows
that are mended lose what lies between them.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import Array, Column, TableSpec


def learned(spec: TableSpec) -> TableSpec:
    """Returns the schema of what is learned; as it is where all columns are functions of others."""
    lower = {high: low for low, high in spec.gaps}
    named = {column.name: column for column in spec.columns}
    columns = tuple(
        _gap(named[lower[column.name]], column) if column.name in lower else column
        for column in spec.columns if column.name not in spec.derived)
    return dataclasses.replace(spec, columns=columns, derived=(), gaps=()) if columns else spec


def features(spec: TableSpec, rows: Array) -> Array:
    """Returns the learned features float32 [..., f] of encoded rows [..., F]."""
    changed = rows
    for low, high, at, above in _gaps(spec):
        gap = rows[..., above] * (high.high - high.low) - _beyond(low, high, rows[..., at])
        gap = jnp.round(gap) if _is_whole(low, high) else gap
        value = jnp.log1p(jnp.maximum(gap, 0)) / np.log1p(_gap(low, high).high)
        changed = _with(changed, high, above, value)
    return changed[..., _places(spec)]


def whole(spec: TableSpec, rows: Array) -> Array:
    """Returns encoded rows [N, F] from the learned features [N, f].

    In derived columns they hold the first category, or the lower bound: what constraints compute
    later on stands there for now. A column that is learned by its gap is at most its upper bound.
    """
    start = np.zeros(spec.shape[0], np.float32)
    first = 0
    for column in spec.columns:
        start[first] = column.kind == "categorical"
        first += column.width
    empty = jnp.broadcast_to(jnp.asarray(start), (len(rows), len(start)))
    rows = empty.at[:, _places(spec)].set(rows)
    for low, high, at, above in _gaps(spec):
        gap = jnp.expm1(rows[:, above] * np.log1p(_gap(low, high).high))
        gap = jnp.round(gap) if _is_whole(low, high) else gap
        value = (gap + _beyond(low, high, rows[:, at])) / (high.high - high.low)
        rows = _with(rows, high, above, jnp.clip(value, 0, 1))
    return rows


def _gap(low: Column, high: Column) -> Column:
    """Returns the column of how far the one lies above the other, encoded as the other is."""
    return dataclasses.replace(high, name=f"{high.name} - {low.name}", low=0.0,
                               high=high.high - low.low, scale="log", written="plain")


def _beyond(low: Column, high: Column, value: Array) -> Array:
    """Returns how far the lower column, an encoded value, lies above the other's lower bound."""
    return (low.low - high.low) + value * (low.high - low.low)


def _with(rows: Array, column: Column, at: int, value: Array) -> Array:
    """Returns encoded rows with other values of a number, where it is not null or special."""
    if column.special:
        value = jnp.where(rows[..., at + 1] > 0.5, value, rows[..., at])
    elif column.nullable:
        value = jnp.where(rows[..., at + 1] > 0.5, rows[..., at], value)
    return rows.at[..., at].set(value)


def _is_whole(low: Column, high: Column) -> bool:
    return low.kind == high.kind == "integer"


def _gaps(spec: TableSpec) -> list[tuple[Column, Column, int, int]]:
    """Returns the columns of each gap, and the places of their values in an encoded row."""
    named = {column.name: column for column in spec.columns}
    ends = np.cumsum([column.width for column in spec.columns]).tolist()
    first = dict(zip(named, [0, *ends], strict=False))
    return [(named[low], named[high], first[low], first[high]) for low, high in spec.gaps]


def _places(spec: TableSpec) -> np.ndarray:
    """Returns the places of the learned features in an encoded row, int [f]."""
    left = [column.name not in spec.derived for column in spec.columns]
    kept = left if any(left) else [True] * len(left)
    return np.flatnonzero(np.repeat(kept, [column.width for column in spec.columns]))
