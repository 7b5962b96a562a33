"""Conditions that a model is told, so that it draws no other records: for models that can be told.

A model is told of each column a set of values that holds all that are wanted, and the few others
that it may draw, by rounding or where the wanted values are no range, are rejected afterwards: so
what is drawn has exactly the law of filtered records.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from dpgen_jax.core.types import Column, Method, PyTree, TableSpec
from dpgen_jax.data.table import constraints, forms, transform
from dpgen_jax.methods.shared.table_plan import Wanted
from dpgen_jax.release.sampling import Conditions, candidates


@dataclasses.dataclass(frozen=True)
class Narrowed:
    """A model that was told conditions.

    Attributes:
        model: Its arrays.
        prior: The share of each class among the records that meet them, float64 [C]; None: equal.
        columns: The places of the columns that it was told of.
        share: The share of all records that meet them.
    """

    model: PyTree
    prior: np.ndarray | None
    columns: tuple[int, ...] = ()
    share: float = 1.0


def narrowed(method: Method, model: PyTree, prior: np.ndarray | None, conditions: Conditions
             ) -> Narrowed:
    """Tells a model the conditions on columns, if its method can.

    Conditions on columns that stand in a constraint of the schema are left to rejection: mended
    rows have other values there than the model's. Mending looks at no other column, so that the law
    of mended rows that meet conditions on these is the law of the model's own such rows, mended.

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
        1.0 if column.kind == "integer" else forms.step(column) or 0.0)
    ends = np.array([inside.min() - size / 2, inside.max() + size / 2])
    low, high = transform.unit(column, ends).tolist()
    return Wanted(tuple(met[apart].tolist()), low, high)
