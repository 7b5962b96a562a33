"""A fast evaluation of a wide table: fewer rows, by a fixed rule that the report says."""

import pytest

from dpgen_jax.core.config import Evaluation
from dpgen_jax.core.types import Column, TableSpec
from dpgen_jax.evaluation import prediction


@pytest.mark.parametrize(("columns", "options", "rows"), [
    (10, {"fast": True}, 2_500), (11_000, {"fast": True}, 381), (20_000, {"fast": True}, 250),
    (11_000, {"fast": True, "samples": 900}, 900), (11_000, {}, 10_000)])
def test_rows_of_a_fast_evaluation(columns, options, rows):
    spec = TableSpec(tuple(Column(f"c{i}", "continuous", 0, 1) for i in range(columns)),
                     Column("y", "categorical", categories=("a", "b")), columns)
    setting = prediction.setting_for(Evaluation(**options), spec)
    assert setting.n_samples == rows
    assert ("fewer rows" in setting.description) == (rows < 900)
