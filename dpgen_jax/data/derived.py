"""Columns that constraints tie to others: functions of them, with their values, and gaps."""

from __future__ import annotations

import numpy as np

from dpgen_jax.core.types import TableSpec
from dpgen_jax.data import transform
from dpgen_jax.data.constraints import Compare, Implies, Rule, Sum, near, rules

MOMENTS = ("date", "datetime", "time")
"""How columns are written of which a method may learn the distance."""


def constrained(spec: TableSpec) -> frozenset[str]:
    """Returns the names of the columns that stand in a constraint: mending changes no other.

    Args:
        spec: The schema.
    """
    found: set[str] = set()
    for rule in rules(spec):
        fields = ((rule.low, rule.high) if isinstance(rule, Compare) else
                  (rule.first.field, rule.then.field) if isinstance(rule, Implies) else
                  (rule.total, *(part for _, part in rule.parts)))
        found |= {field.column.name for field in fields}
    return frozenset(found)


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


def gaps(spec: TableSpec) -> tuple[tuple[str, str], ...]:
    """Returns the lower and the higher column, by name, of comparisons that are learned as a gap.

    Both are dates or times, as two moments of one thing are near each other beside their bounds,
    which two amounts need not be. The bounds overlap, and the lower one always has a value. A
    column is the higher one once, and the lower one of no earlier pair, so that rows are made in
    the order of the pairs.

    Args:
        spec: The schema.
    """
    found: dict[str, str] = {}
    for rule in rules(spec):
        if not isinstance(rule, Compare):
            continue
        low, high = rule.low.column, rule.high.column
        once = high.name not in {*found, *found.values()}
        moments = low.written in MOMENTS  # and so is the other: they are of one kind
        always = not (low.nullable or low.special) and len(high.special) == len(high.outside)
        overlap = max(low.low, high.low) < min(low.high, high.high)
        if once and moments and always and overlap:
            found[high.name] = low.name
    return tuple((low, high) for high, low in found.items())


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
