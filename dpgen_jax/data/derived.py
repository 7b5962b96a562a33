"""Columns that constraints make functions of others: which they are, and their values."""

from __future__ import annotations

import numpy as np

from dpgen_jax.core.types import TableSpec
from dpgen_jax.data import transform
from dpgen_jax.data.constraints import Implies, Rule, Sum, near, rules


def names(spec: TableSpec) -> tuple[str, ...]:
    """Returns the names of the columns that are functions of others, by equations alone.

    A sum without nulls and special values is one, and so is a category where each value of another
    column, or of the label, implies one value of it. A definition reads no column that is defined
    after it, so that computing them in their order ends.

    Args:
        spec: The schema.
    """
    found: list[str] = []
    read: set[int] = set()
    for rule in rules(spec):
        if isinstance(rule, Sum):
            target, sources = rule.total, [part for _, part in rule.parts]
            is_function = not any(field.column.nullable or field.column.outside
                                  for field in (target, *sources))
        elif isinstance(rule, Implies):
            target, sources = rule.then.field, [rule.first.field]
            is_function = _is_map(rule, rules(spec))
        else:
            continue
        if is_function and target.at not in read and target.column.name not in found:
            found.append(target.column.name)
            read |= {source.at for source in sources}
    return tuple(found)


def _is_map(rule: Implies, among: tuple[Rule, ...]) -> bool:
    """Whether these rules give each value of a category exactly one value of another."""
    source, target = rule.first.field, rule.then.field
    if source.column.kind != "categorical" or target.column.kind != "categorical":
        return False
    others = [other for other in among if isinstance(other, Implies) and other.then.field == target]
    wanted = {*range(len(source.column.categories)), *([None] if source.column.nullable else [])}
    values = [None if np.isnan(other.first.value) else other.first.value for other in others]
    return (not target.column.nullable and set(values) == wanted and len(values) == len(wanted)
            and all(other.first.field == source for other in others))


def computed(spec: TableSpec, table: np.ndarray) -> np.ndarray:
    """Returns rows whose derived columns are what their definitions say, within their bounds.

    Args:
        spec: The schema.
        table: Codes float64 [n, K], the class last.
    """
    table = table.copy()
    for rule in rules(spec):
        if isinstance(rule, Sum) and rule.total.column.name in spec.derived:
            total = rule.total
            table[:, total.at] = np.clip(near(rule.sum(table), total.column),
                                         *transform.bounds(total.column))
        elif isinstance(rule, Implies) and rule.then.field.column.name in spec.derived:
            rows = rule.first.holds(table)
            table[rows, rule.then.field.at] = rule.then.value
    return table
