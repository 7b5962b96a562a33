"""The benchmark of presets on tables: which columns of Kaggle's file are learned."""

import kaggle_file
import numpy as np
import pytest

from benchmarks import table_presets
from benchmarks.papers.registry import ROWS
from dpgen_jax import presets
from dpgen_jax.core.types import UserError

pytestmark = pytest.mark.long


@pytest.fixture
def arguments(tmp_path, monkeypatch):
    """The arguments of the paper's row on credit cards, for 50 rows in Kaggle's layout."""
    kaggle_file.write(tmp_path)
    monkeypatch.setenv("DPGEN_DATA", str(tmp_path))
    argv = ROWS["gpate:table1a:credit-gpate"].work.argv
    monkeypatch.setattr("sys.argv", ["table_presets", *argv])
    return table_presets.arguments()


def test_the_papers_rows_learn_the_29_features_of_the_paper(arguments):
    dataset = table_presets.loaded(arguments)
    assert dataset.spec.shape == (29,) == presets.all_of("gpate")["credit"].spec.shape
    assert len(dataset.y_train) == 40 and len(dataset.y_test) == 10
    arguments.test_fraction = None
    dataset, arguments.leave_out = table_presets.loaded(arguments), None
    whole = table_presets.loaded(arguments)
    assert whole.spec.shape == (30,)
    np.testing.assert_array_equal(whole.x_train[:, 1:], dataset.x_train)
    for row in ROWS.values():
        if row.work.data == "credit":
            at = row.work.argv.index("--leave-out")
            assert row.work.argv[at + 1] == "Time"


def test_a_column_that_is_not_declared_cannot_be_left_out(arguments):
    arguments.leave_out = "Zeit"
    with pytest.raises(UserError, match="--leave-out Zeit: --schema declares no such column"):
        table_presets.loaded(arguments)
    arguments.schema = None
    with pytest.raises(UserError, match="declares no such column"):
        table_presets.loaded(arguments)
