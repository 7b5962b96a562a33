"""Schemas: what a file declares, and one clear line for each way in which it can be wrong."""

import pytest
from refusals import refused

from dpgen_jax.core.types import Column, TableSpec
from dpgen_jax.data.table import schema

GOOD = """\
label: Class
columns:
  age: {kind: integer, min: 0, max: 120, nullable: true}
  Class: {kind: categorical, categories: [no, yes]}
  pay: {kind: continuous, min: -1.5, max: 1e3}
  job: {kind: categorical, categories: [01, true, "a, b", ~], other: true}
  size: {kind: ordinal, categories: [S, M, L], nullable: "no"}
"""


def read(tmp_path, text: str) -> schema.Schema:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    return schema.read(str(path))


def test_all_kinds_and_texts_stay_as_they_were_typed(tmp_path):
    loaded = read(tmp_path, GOOD)
    assert loaded.spec == TableSpec((
        Column("age", "integer", 0.0, 120.0, nullable=True),
        Column("pay", "continuous", -1.5, 1000.0),
        Column("job", "categorical", categories=("01", "true", "a, b", "~")),
        Column("size", "ordinal", categories=("S", "M", "L"))),
        Column("Class", "categorical", categories=("no", "yes")), 1)
    assert loaded.others == {"job": "true"}
    assert not (loaded.notes or loaded.bought or loaded.uncovered)


def test_what_was_read_or_bought_is_stated(tmp_path):
    loaded = read(tmp_path, GOOD + """\
read_from_data: [age.min, age.max, pay.max, Class.categories, size.nullable]
bought:
  - {entry: job.categories, kind: epsilon-delta, count: 1, epsilon: 0.5, delta: 1e-06,
     mechanism: m}
""")
    assert loaded.notes == (
        "bought under differential privacy on the same records: categories of job",)
    assert [entry.what for entry in loaded.uncovered] == [
        "bounds of age, pay read from private data",
        "categories of Class read from private data",
        "nullability of size read from private data"]
    assert all("read_from_data" in entry.declare for entry in loaded.uncovered)
    assert ["--schema-epsilon" in entry.declare
            for entry in loaded.uncovered] == [True, True, False]
    assert loaded.bought == ({"kind": "epsilon-delta", "count": 1, "epsilon": 0.5, "delta": 1e-6,
                              "mechanism": "m"},)
    assert isinstance(loaded.bought[0]["count"], int)


@pytest.mark.parametrize(("old", "new", "match"), [
    ("max: 120", "max: -1", "column age: min 0 is above max -1"),
    ("max: 120", "max: lots", "column age: max is 'lots'; give a finite number"),
    ("max: 120", "max: inf", "column age: max is 'inf'"),
    ("max: 120", "max: .nan", "column age: max is '.nan'"),
    ("max: 120", "max: [1]", "column age: max is"),
    ("max: 120", "max: 1_000", "column age: max is '1_000'"),
    ("max: 120", "max: 1.5", "column age: max is 1.5; an integer column has whole bounds"),
    ("max: 120", "max: 8388609", "column age: the integers 0..8388609 exceed .*continuous"),
    ("min: 0, max: 120", "min: 9007199254740993, max: 9007199254740999", "column age: .*exceed"),
    ("max: 1e3", "max: 1e999", "column pay: max is '1e999'"),
    ("min: -1.5, max: 1e3", "min: -1e308, max: 1e308", "column pay: the range .* is too large"),
    ("max: 120, ", "", "column age: max is missing"),
    ("max: 120", "max: private", "column age: max is still `private`.*--schema-epsilon"),
    ("max: 120", "maxx: 120", "column age: unknown key 'maxx', did you mean 'max'"),
    ("max: 120", "max: 120, categories: [a]", "column age: categories does not belong"),
    ("max: 120", "max: 120, max: 121", "line 3: 'max' is given twice"),
    ("pay:", "age:", "line 5: 'age' is given twice"),
    ("pay:", '" age ":', "'age' is given twice"),
    ("pay:", '"":', "a column has no name"),
    ("kind: integer", "kind: integr", "column age: unknown kind 'integr', did you mean 'integer'"),
    ("kind: integer, ", "", "column age: kind is missing; known: continuous"),
    ("kind: integer", "kind: [integer]", "column age: unknown kind"),
    ("nullable: true", "nullable: maybe", "column age: nullable is 'maybe'; write true or false"),
    ("{kind: integer, min: 0, max: 120, nullable: true}", "integer", "column age: give its entri"),
    ("label: Class", "label:", "the label has no name; write `label: NAME`, one of: age, Class"),
    ("label: Class", "label: Clas", "label 'Clas' is not a column, did you mean 'Class'"),
    ("label: Class", "label: [Class]", "is not a column"),
    ("label: Class", "label: age", "column age: the label is of kind integer"),
    ("[no, yes]}", "[no, yes], nullable: true}", "column Class: the label is nullable"),
    ("[no, yes]}", "[no, yes], other: no}", "column Class: a label takes no `other`"),
    ("[no, yes]", "[no]", "column Class: the label has 1 class"),
    ("[no, yes]", "[no, yes, no]", "column Class: category 'no' is given twice"),
    ("[no, yes]", "[]", "column Class: no categories"),
    ("[no, yes]", "no, yes", r"unknown key|Class: .*categories|given twice"),
    ("[no, yes]", "[no, [yes]]", "column Class: categories is not a list of texts"),
    ("[no, yes]", '[no, " "]', "column Class: the category '' means null"),
    ("[S, M, L]", "[S, M, L], other: S", "column size: other does not belong"),
    ("other: true", "other: b", "column job: other is 'b'; name one of its categories"),
    ("label:", "lable: Class\nlabel:", "unknown key 'lable', did you mean 'label'"),
    ("columns:", "rows:", "a schema has `columns:`, with one entry a column"),
    ("label: Class", "label: Class\nread_from_data: [agee.min]", "'agee.min' names no entry"),
    ("label: Class", "label: Class\nread_from_data: [age.mean]", "'age.mean' names no entry"),
    ("label: Class", "label: Class\nread_from_data: age.min", "read_from_data is not a list"),
    ("label: Class", "label: Class\nbought: 3", "bought is not a list of purchases"),
    ("label: Class", "label: Class\nbought: [{records: [1]}]", "bought is not a list of purchases"),
    ("label: Class", "label: Class\nbought: [{epsilon: 1}]", "'' names no entry"),
    ("label: Class", "label: Class: x", r"s.yaml, line 1: .*correct the YAML"),
    ("label: Class", "label: \x00", "correct the YAML"),
    ("age: {", "? [age]\n  : {", "line 3: found unhashable key"),
])
def test_errors_are_one_line_that_names_the_column(tmp_path, old, new, match):
    assert GOOD.count(old) == 1
    line = refused(match, read, tmp_path, GOOD.replace(old, new))
    assert "s.yaml" in line


def test_a_category_that_reads_as_null_is_refused_where_null_is_declared(tmp_path):
    text = "label: y\ncolumns:\n  y: {kind: ordinal, categories: [a, b]}\n  " \
           "x: {kind: categorical, categories: [a, '?']%s}"
    assert read(tmp_path, text % "").spec.columns[0].categories == ("a", "?")
    refused(r"column x: the category '\?' means null", read, tmp_path, text % ", nullable: true")


@pytest.mark.parametrize("text", ["", "3", "[]", "label: y", "columns: {y: {}}",
                                  "label: y\ncolumns: {y: {kind: ordinal, categories: [a, b]}}"])
def test_too_little(tmp_path, text):
    refused(r"a schema has|kind is missing|is the only column", read, tmp_path, text)


def test_no_such_file(tmp_path):
    refused("nowhere.yaml not found", schema.read, str(tmp_path / "nowhere.yaml"))
    (tmp_path / "s.yaml").write_bytes(b"label: \xff\xfe\xfa")
    refused("cannot be read", schema.read, str(tmp_path / "s.yaml"))


def test_packaged_schemas_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "adult").mkdir()  # a folder of that name is no schema
    assert schema.NAMES == ("adult", "breast_cancer", "creditcard", "creditcard_kaggle")
    shapes = {name: (len(schema.read(name).spec.columns), schema.read(name).spec.shape,
                     schema.read(name).spec.label.name) for name in schema.NAMES}
    assert shapes == {"adult": (14, (108,), "income"), "creditcard": (29, (29,), "Class"),
                      "creditcard_kaggle": (30, (30,), "Class"),
                      "breast_cancer": (30, (30,), "diagnosis")}
    assert not any(schema.read(name).notes or schema.read(name).uncovered for name in schema.NAMES)


def test_a_file_comes_before_a_packaged_schema(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "adult").write_text(GOOD)
    assert schema.read("adult").spec.label.name == "Class"
