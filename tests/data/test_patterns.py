"""Columns that a schema declares together: ranges, patterns and a default."""

import numpy as np
import pandas as pd
import pytest
from refusals import refused

import dpgen_jax as dg
from dpgen_jax import schema as schema_command
from dpgen_jax.data import load
from dpgen_jax.data.table import patterns, schema, subjects

NUMBER = {"kind": "continuous", "min": "-1", "max": "1"}
FLAG = {"kind": "integer", "min": "0", "max": "1"}
NAMES = ["id", "f1", "f2", "f3", "lab_a", "lab_b", "y"]
LABEL = {"kind": "categorical", "categories": ["a", "b"]}


def columns(entries, names=NAMES, **more):
    return patterns.expanded({"label": "y", "columns": {"y": LABEL, **entries}, **more},
                             names)["columns"]


def test_they_are_written_out_in_the_order_of_the_table():
    made = columns({"lab_*": FLAG, "f1..f3": NUMBER}, default={"kind": "integer", "max": "9"})
    assert list(made) == NAMES
    assert made["f2"] == NUMBER and made["lab_b"] == FLAG and made["id"]["max"] == "9"


def test_a_column_with_a_key_of_its_own_is_declared_by_it():
    made = columns({"f*": NUMBER, "f2": FLAG, "lab_*": FLAG})
    assert made["f2"] == FLAG and made["f1"] == NUMBER and "id" not in made
    star = patterns.expanded({"columns": {"a*": FLAG, "b": FLAG}}, ["a*", "ab", "b"])
    assert list(star["columns"]) == ["a*", "b"]  # of the table itself


def test_numbers_with_zeros_in_front_and_texts_after_them():
    names = [f"q{i:02d}_x" for i in range(8, 12)]
    assert list(columns({"q08_x..q11_x": FLAG}, [*names, "y"])) == [*names, "y"]


def test_entries_that_were_read_are_those_of_each_column():
    made = patterns.expanded({"columns": {"f1..f3": NUMBER, "f2": FLAG}, "read_from_data": [
        "f1..f3.min", "f2.max"]}, ["f1", "f2", "f3"])
    assert made["read_from_data"] == ["f1.min", "f3.min", "f2.max"]


@pytest.mark.parametrize(("entries", "match"), [
    ({"lba_*": FLAG}, r"^columns: lba_\* matches no column; the table has: id"),
    ({"f1..f4": FLAG}, r"^columns: f1\.\.f4 has f4, which the table does not have"),
    ({"f3..f1": FLAG}, r"^columns: f3\.\.f1 is 0 columns, and the table has 7"),
    ({"f1..f999999999": FLAG}, r"is 999,999,999 columns, and the table has 7"),
    ({"f*": FLAG, "f1..f2": NUMBER}, r"^columns: 'f1' is declared by both f\* and f1\.\.f2;")])
def test_a_pattern_that_fits_nothing_or_what_another_fits_is_refused(entries, match):
    refused(match, columns, entries)


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    made = pd.DataFrame({f"f{i}": rng.uniform(-1, 1, 60).round(3) for i in range(1, 41)})
    made["f7"] = rng.choice([-1, 1], 60)
    made["y"] = rng.choice(["a", "b"], 60)
    made.to_csv("a.csv", index=False)
    made.to_parquet("a.parquet")
    return made


SCHEMA = """\
label: y
columns:
  f1..f40: {kind: continuous, min: -1, max: 1}
  y: {kind: categorical, categories: [a, b]}
"""


def test_files_and_frames_are_read_by_them(table, tmp_path):
    (tmp_path / "s.yaml").write_text(SCHEMA)
    (tmp_path / "d.yaml").write_text("""\
default: {kind: continuous, min: -1, max: 1}
columns:
  y: {kind: categorical, categories: [a, b]}
label: y
""")
    made = [load(source, schema=name) for source in ("csv:a.csv", "parquet:a.parquet")
            for name in ("s.yaml", "d.yaml")]
    for data in made:
        assert [column.name for column in data.spec.columns] == [f"f{i}" for i in range(1, 41)]
        assert data.spec == made[0].spec and np.array_equal(data.x_train, made[0].x_train)
    (tmp_path / "u.yaml").write_text("default: {kind: continuous, min: -1, max: 1}\n")
    data = load("csv:a.csv", schema="u.yaml", unit="y", rows_per_unit=3)
    assert len(data.spec.columns) == 40 and data.subjects.count == 2
    assert subjects.from_frame(table, {"columns": {f"f{i}": NUMBER for i in range(1, 41)}}, "y",
                               3).spec == data.spec


def test_a_run_goes_by_them_and_keeps_them(table, tmp_path):
    release = dg.fit(table, schema=schema.texts(
        {"default": {"kind": "continuous", "min": -1, "max": 1}, "label": "y",
         "columns": {"y": LABEL}}), epsilon=1.0, delta=1e-5, out=tmp_path / "run", verbose=False)
    assert list(release.sample(2)) == list(table)
    (tmp_path / "s.yaml").write_text(SCHEMA)
    dg.fit("a.csv", schema="s.yaml", epsilon=1.0, delta=1e-5, out=tmp_path / "file",
           test_fraction=0, verbose=False)
    assert (tmp_path / "file" / "release" / "README.txt").is_file()


def test_columns_that_no_pattern_fits_are_bought(table, tmp_path):
    (tmp_path / "s.yaml").write_text("columns: {\"f*\": {kind: continuous, min: -1, max: 1}}\n")
    dg.fit("a.csv", schema="s.yaml", label="y", epsilon=80.0, delta=1e-5, out=tmp_path / "run",
           test_fraction=0, verbose=False)
    bought = schema.document(tmp_path / "run" / "schema.yaml")
    assert list(bought["columns"])[:2] == ["f1", "f2"] and "f1.kind" not in str(bought["bought"])


def test_the_draft_of_many_alike_columns_is_short(table, tmp_path):
    rng = np.random.default_rng(4)
    wide = pd.DataFrame({f"f{i}": np.where(rng.random(90) < .2, rng.choice([-1., 1.]),
                                           rng.uniform(-1, 1, 90).round(4))
                         for i in range(1, 618)})
    wide.insert(0, "y", rng.integers(0, 26, 90).astype(str))
    wide.to_csv(tmp_path / "wide.csv", index=False)
    schema_command.command(["wide.csv", "--label", "y", "--out", "s.yaml"])
    text = (tmp_path / "s.yaml").read_text()
    body = text[text.index("columns:"):text.index("read_from_data:")]
    assert "f1..f617:" in body and len(body.splitlines()) <= 12
    data = load("csv:wide.csv", schema="s.yaml")
    assert len(data.spec.columns) == 617 and not data.private_notes  # nothing is clipped
    made = dg.draft_schema(wide, label="y")
    assert list(made["columns"]) == ["y", "f1..f617"]


def test_columns_that_differ_are_drafted_apart():
    entries = {f"f{i}": {**NUMBER, "max": "1000" if i == 20 else "1"} for i in range(1, 31)}
    made = patterns.condensed({"columns": entries, "read_from_data": ["f1.min"]})
    assert list(made["columns"]) == ["f1..f19", "f20", "f21..f30"]
    assert made["read_from_data"] == ["f1..f19.min"]
    few = {f"f{i}": NUMBER for i in range(1, 6)}
    assert patterns.condensed({"columns": few, "read_from_data": []})["columns"] == few
