"""The columns of a table that are learned: all but those that are functions of others."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import Array, TableSpec


def learned(spec: TableSpec) -> TableSpec:
    """Returns the schema without its derived columns; as it is where there are no others."""
    columns = tuple(column for column in spec.columns if column.name not in spec.derived)
    return dataclasses.replace(spec, columns=columns, derived=()) if columns else spec


def places(spec: TableSpec) -> np.ndarray:
    """Returns the places of the learned features in an encoded row, int [f]."""
    kept = {column.name for column in learned(spec).columns}
    of_feature = np.repeat([column.name in kept for column in spec.columns],
                           [column.width for column in spec.columns])
    return np.flatnonzero(of_feature)


def whole(spec: TableSpec, rows: Array) -> Array:
    """Returns encoded rows [N, F] from the learned features [N, f].

    In derived columns they hold the first category, or the lower bound: what constraints compute
    later on stands there for now.
    """
    start = np.zeros(spec.shape[0], np.float32)
    first = 0
    for column in spec.columns:
        start[first] = column.kind == "categorical"
        first += column.width
    empty = jnp.broadcast_to(jnp.asarray(start), (len(rows), len(start)))
    return empty.at[:, places(spec)].set(rows)
