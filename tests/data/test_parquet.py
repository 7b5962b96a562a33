"""`parquet:FILE`: the same table as a CSV file's, in blocks of rows; and what is refused."""

import datetime

import numpy as np
import pytest
from refusals import refused

from dpgen_jax import schema as schema_command
from dpgen_jax.core.types import UserError
from dpgen_jax.data import load
from dpgen_jax.data.table import parsing, schema

pd = pytest.importorskip("pandas", reason="an extra: pip install dpgen_jax[parquet]")
pa = pytest.importorskip("pyarrow", reason="an extra")
pq = pytest.importorskip("pyarrow.parquet", reason="an extra")

SCHEMA = """\
label: ill
columns:
  age: {kind: integer, min: 0, max: 120, nullable: true}
  pay: {kind: continuous, min: -10, max: 1000, nullable: true}
  job: {kind: categorical, categories: [cook, nurse]}
  born: {kind: date, format: "%Y-%m-%d", min: "1900-01-01", max: "2020-12-31"}
  well: {kind: boolean, categories: ["false", "true"]}
  ill: {kind: categorical, categories: ["0", "1"]}
"""
ROWS = 50


def columns():
    days = [datetime.date(1950 + i, 1 + i % 12, 1 + i % 28) for i in range(ROWS)]
    return {
        "pay": [None if i % 9 == 0 else i / 4 for i in range(ROWS)],
        "age": [None if i % 7 == 0 else i for i in range(ROWS)], "born": days,
        "well": [i % 3 == 0 for i in range(ROWS)], "ill": [i % 2 for i in range(ROWS)],
        "job": ["cook" if i % 5 else "nurse" for i in range(ROWS)]}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(SCHEMA)
    table = columns()
    pq.write_table(pa.table(table), "a.parquet", row_group_size=20)
    lines = [",".join(table), *(",".join(
        "" if cell is None else str(cell).lower() if isinstance(cell, bool) else str(cell)
        for cell in row) for row in zip(*table.values(), strict=True))]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.parametrize("rows", [1, 7, 20, 1000])
def test_it_is_the_table_of_a_csv_file(place, monkeypatch, rows):
    monkeypatch.setattr(parsing, "BLOCK_CELLS", 6 * rows)
    monkeypatch.setattr("dpgen_jax.data.table.frames.BLOCK_CELLS", 6 * rows)
    data = load("parquet:a.parquet", schema="s.yaml", test_csv="a.parquet")
    known = load("csv:a.csv", schema="s.yaml")
    np.testing.assert_array_equal(data.x_train, known.x_train)
    np.testing.assert_array_equal(data.y_train, known.y_train)
    np.testing.assert_array_equal(data.x_test, known.x_train)
    assert data.name == "a" and data.options["kind"] == "parquet"
    assert data.x_train.shape == (ROWS, 9) and np.isfinite(data.x_train).all()


@pytest.mark.parametrize(("column", "cells", "match"), [
    ("job", {30: "cok"}, "row 30, column job: 'cok' is not a declared category"),
    ("job", {3: None}, "row 3, column job: an empty cell"),
    ("age", {41: 3.5}, "row 41, column age: 3.5 is not a whole number"),
    ("pay", {0: float("inf")}, "row 0, column pay: 'inf' is not a finite number")])
def test_errors_name_the_row_and_the_column(place, monkeypatch, column, cells, match):
    monkeypatch.setattr("dpgen_jax.data.table.frames.BLOCK_CELLS", 6 * 20)
    table = columns()
    table[column] = [cells.get(i, cell) for i, cell in enumerate(table[column])]
    pq.write_table(pa.table(table), "b.parquet")
    line = refused(match, load, "parquet:b.parquet", schema="s.yaml")
    assert "b.parquet" in line


def test_other_types_of_the_same_cells(place):
    """Texts as bytes or categories, and numbers as decimals or of few bits."""
    table = columns()
    jobs, known = pa.array(table["job"]), load("parquet:a.parquet", schema="s.yaml")
    for other in ({"job": jobs.cast(pa.binary())}, {"job": jobs.dictionary_encode()},
                  {"age": pa.array(table["age"], pa.int8())},
                  {"pay": pa.array(table["pay"], pa.float32()).cast(pa.decimal128(9, 2))}):
        pq.write_table(pa.table(table | other), "b.parquet")
        data = load("parquet:b.parquet", schema="s.yaml")
        np.testing.assert_array_equal(data.x_train, known.x_train)
        np.testing.assert_array_equal(data.y_train, known.y_train)


def test_what_cannot_be_read_is_one_line(place):
    (place / "b.parquet").write_bytes((place / "a.parquet").read_bytes()[:-100])
    (place / "c.parquet").write_bytes(b"a,b\n1,2\n")
    pq.write_table(pa.table(columns()).slice(0, 0), "d.parquet")
    pq.write_table(pa.table(columns()).drop_columns("job"), "e.parquet")
    for name, match in (("b", "cannot be read as Parquet"), ("c", "cannot be read as Parquet"),
                        ("d", "no rows; at least 1"), ("e", "column 'job' is missing")):
        line = refused(match, load, f"parquet:{name}.parquet", schema="s.yaml")
        assert len(line) < 400
    for name in "bc":
        with pytest.raises(UserError, match="cannot be read as Parquet"):
            schema_command.command([f"{name}.parquet", "--out", "d.yaml"])
    refused("needs --schema FILE.yaml.*dpgen_jax.schema a.parquet", load, "parquet:a.parquet")


def test_a_schema_is_drafted_of_it(place):
    schema_command.command(["a.parquet", "--label", "ill", "--out", "d.yaml"])
    drafted = schema.read("d.yaml").spec
    assert {column.name: column.written for column in drafted.columns}["born"] == "date"
    assert len(load("parquet:a.parquet", schema="d.yaml").y_train) == ROWS


def test_people_with_many_rows(place):
    table = columns() | {"who": [f"p{i // 4}" for i in range(ROWS)]}
    pq.write_table(pa.table(table), "people.parquet")
    data = load("parquet:people.parquet", schema="s.yaml", unit="who", rows_per_unit=2,
                test_fraction=0.25)
    assert data.subjects.count == 10 and len(set(data.subjects.test.tolist())) == 3
    assert len(data.y_train) + len(data.y_test) == ROWS
    assert data.x_train.shape[1:] == load("csv:a.csv", schema="s.yaml").x_train.shape[1:]
    pq.write_table(pa.table(table | {"who": [None, *table["who"][1:]]}), "none.parquet")
    with pytest.raises(UserError, match="row 0, column who: '' is null, and each row needs"):
        load("parquet:none.parquet", schema="s.yaml", unit="who", rows_per_unit=2)


@pytest.mark.parametrize(("name", "cell"), [
    ("age", None), ("age", 30.0), ("age", float("nan")), ("age", 2**63), ("pay", 3),
    ("pay", -1e308), ("born", None), ("born", datetime.datetime(1990, 1, 1, 5)), ("ill", 1.0),
    ("ill", None), ("job", b"nurse"), ("job", None)])
def test_a_cell_that_changes_the_type_of_its_column_changes_its_own_row(place, name, cell):
    """As pandas writes it: whole numbers beside one null are floats."""
    (place / "s.yaml").write_text(SCHEMA.replace('"2020-12-31"', '"2020-12-31", nullable: true'))

    def loaded(rows):
        pd.DataFrame(rows).to_parquet("b.parquet")
        return load("parquet:b.parquet", schema="s.yaml")

    rows = columns() | {"age": list(range(ROWS)), "pay": list(range(ROWS))}
    before = loaded(rows)
    changed = rows | {name: [cell if i == 5 else value for i, value in enumerate(rows[name])]}
    if cell is None and name in ("ill", "job"):
        refused(f"row 5, column {name}: an empty cell", loaded, changed)
        return
    after = loaded(changed)
    assert (after.spec, after.notes, after.uncovered) == (before.spec, before.notes, ())
    others = np.arange(ROWS) != 5
    np.testing.assert_array_equal(after.x_train[others], before.x_train[others])
    np.testing.assert_array_equal(after.y_train[others], before.y_train[others])


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us")], ids=str)
def test_a_date_that_python_does_not_have_is_one_line(place, kind):
    size, whole = (2**30, pa.int32()) if kind == pa.date32() else (2**62, pa.int64())
    table = columns() | {"born": pa.array([0] * (ROWS - 1) + [size], whole).cast(kind)}
    pq.write_table(pa.table(table), "far.parquet")
    refused("far.parquet.* out of range", load, "parquet:far.parquet", schema="s.yaml")
