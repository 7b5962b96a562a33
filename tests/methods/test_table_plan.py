"""The noisy tables that a plan asks for, by public numbers alone."""

import dataclasses

import pytest

from dpgen_jax.core.types import Column, TableSpec
from dpgen_jax.methods.shared.table_plan import FEWEST, Plan


def plan(classes, records=1500):
    label = Column("kind", "categorical", categories=tuple(map(str, range(classes))))
    columns = tuple(Column(f"pixel{i}", "integer", 0, 16) for i in range(64))
    return Plan(TableSpec(columns, label, 64), records, 8.3, 5, 256, 32, 24, 1.0)


@pytest.mark.parametrize(("classes", "kinds"), [(10, (0, 2, 2, 2, 2)), (2, (2, 2, 2, 2, 2))])
def test_columns_have_histograms_where_many_classes_would_drown_them(classes, kinds):
    """Tables beside two classes tell of a column what a histogram does; beside ten they do not."""
    assert plan(classes).kinds == kinds
    assert plan(classes).histograms == (FEWEST if kinds[0] == 0 else 0)


def test_a_histogram_that_says_nothing_is_not_asked_for():
    few = dataclasses.replace(plan(10), records=300)
    assert few.many_classes and few.histograms == 0
