"""The benchmark writes a table of its schema, and draws a line through two peaks."""

import pytest

from benchmarks import large_table
from dpgen_jax.data import load

pytestmark = pytest.mark.long


def test_the_table_has_the_columns_of_the_schema(tmp_path):
    large_table.write_table(tmp_path / "t.csv", 30, 20, 0)
    (tmp_path / "s.yaml").write_text(large_table.schema(20))
    data = load(f"csv:{tmp_path / 't.csv'}", schema=str(tmp_path / "s.yaml"))
    assert len(data.spec.all_columns) == 20 == sum(map(len, large_table.names(20))) + 1
    assert data.x_train.shape == (30, 12 + 7 * 4) and set(data.y_train.tolist()) == {0, 1}


def test_the_bytes_of_a_row_are_the_slope():
    cases = [{"rows": rows, "peak_resident_bytes": 700 + 3 * rows} for rows in (500, 100, 300)]
    assert large_table.slope(cases) == pytest.approx({"bytes_a_row": 3, "bytes_of_no_row": 700})
