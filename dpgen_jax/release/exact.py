"""Exact conditional sampling, for models that support it.

For each column the model is restricted to a set of values that contains all wanted values. It may
draw a few others, by rounding or where the wanted values are not a range. They are rejected
afterwards, so the result has exactly the law of filtered records.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from dpgen_jax.core.types import Column, Method, PyTree, TableSpec
from dpgen_jax.data.table import constraints, transform
from dpgen_jax.methods.shared.table_plan import Wanted
from dpgen_jax.release.sampling import Conditions, candidates


@dataclasses.dataclass(frozen=True)
class Narrowed:
    """A model that is restricted by conditions.

    Attributes:
        model: Its arrays.
        prior: The share of each class among the records that meet them, float64 [C]; None: equal.
        columns: The places of the columns that are restricted.
        share: The share of all records that meet them.
    """

    model: PyTree
    prior: np.ndarray | None
    columns: tuple[int, ...] = ()
    share: float = 1.0


def narrowed(method: Method, model: PyTree, prior: np.ndarray | None, conditions: Conditions
             ) -> Narrowed:
    """Restricts a model by the conditions on columns, if its method supports it.

    Conditions on columns that stand in a constraint of the schema are left to rejection: mended
    rows have other values there than the model's. Mending reads no other column. So the law of
    mended rows that meet conditions on other columns is the law of the model's own rows that meet
    them, mended.

    Args:
        method: The method.
        model: The arrays of the release.
        prior: The share of each class, float64 [C]; None: equal.
        conditions: The conditions.

    Raises:
        UserError: Where the model makes no such record.
    """
    spec = conditions.spec
    if (method.conditional is None or method.class_shares is None or prior is None
            or not isinstance(spec, TableSpec)):
        return Narrowed(model, prior)
    mended = constraints.constrained_columns(spec)
    places = tuple(sorted({condition.place for condition in conditions.on_columns
                           if spec.columns[condition.place].name not in mended}))
    if not places:
        return Narrowed(model, prior)
    wanted = {spec.columns[place].name: _wanted(spec.columns[place], place, conditions)
              for place in places}
    new, share = method.conditional(model, wanted)
    before, after = (np.asarray(method.class_shares(arrays), np.float64)
                     for arrays in (model, new))
    # By Bayes, after / before is how likely the records of a class meet them, over all records'.
    weights = prior * np.divide(after, before, where=before > 0, out=np.zeros(len(before)))
    return Narrowed(new, weights / weights.sum(), places, float(share * weights.sum()))


def _wanted(column: Column, place: int, conditions: Conditions) -> Wanted:
    """Returns a set of values that holds all that meet the conditions on a column."""
    mine = [condition for condition in conditions.on_columns if condition.place == place]
    codes = np.array([*candidates(column, mine), np.nan])
    met = codes[np.all([condition.met(codes) for condition in mine], 0)]
    if column.categories:
        return Wanted(tuple(met.tolist()))
    apart = np.isnan(met) | np.isin(met, column.special)
    inside = met[~apart]
    if not len(inside):
        return Wanted(tuple(met.tolist()))
    # What is rounded to the ends belongs to them; of whole numbers the ends are themselves.
    size = 0.0 if column.kind == "integer" and column.scale == "linear" else (
        1.0 if column.kind == "integer" else transform.step(column) or 0.0)
    ends = np.array([inside.min() - size / 2, inside.max() + size / 2])
    low, high = transform.unit(column, ends).tolist()
    return Wanted(tuple(met[apart].tolist()), low, high)
