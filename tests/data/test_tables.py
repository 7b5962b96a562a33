"""`csv:FILE` and pandas frames: what is read, what is refused, and the way back."""

import csv
import gzip
import json
import os
from pathlib import Path

import cpu_limit
import numpy as np
import pytest
from refusals import refused

from dpgen_jax.core.types import UserError
from dpgen_jax.data import load
from dpgen_jax.data.table import constraints, frames, schema
from dpgen_jax.data.table.transform import decode
from dpgen_jax.release.frames import to_frame

SHARED = Path(os.environ.get("DPGEN_DATA", Path(__file__).parents[3] / "shared" / "data"))
SCHEMA = """\
label: Class
columns:
  age: {kind: integer, min: 0, max: 120, nullable: true}
  Class: {kind: categorical, categories: ["0", "1", "2"]}
  pay: {kind: continuous, min: -10, max: 1000}
  job: {kind: categorical, categories: [cook, "a, b", nurse], nullable: true}
  size: {kind: ordinal, categories: [S, M, L]}
"""
TEXT = """\
pay,size,job,age,Class
1.5,S,cook,40,0
-3e0, M ,"a, b",NA,1
2000,L,?,,0
.25,L,nurse,130,1
"""
CODES = [[40, 1.5, 0, 0], [np.nan, -3, 1, 1], [np.nan, 1000, np.nan, 2], [120, 0.25, 2, 2]]


@pytest.fixture
def declared(tmp_path):
    (tmp_path / "s.yaml").write_text(SCHEMA)
    return schema.read(str(tmp_path / "s.yaml"))


@pytest.fixture
def read(tmp_path):
    """Loads a text (or bytes) as a CSV file."""
    def inner(text, name="my people.csv", **options):
        (tmp_path / "s.yaml").write_text(SCHEMA)
        (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
        return load(f"csv:{tmp_path / name}", schema=str(tmp_path / "s.yaml"), **options)
    return inner


def test_a_file_in_another_order(read):
    data = read(TEXT)
    assert data.name == "my-people" and data.spec.classes == 3 and data.x_test is None
    assert (data.x_train.dtype, data.y_train.dtype) == (np.float32, np.int32)
    assert data.x_train.shape == (4, *data.spec.shape) and not data.x_train.flags.writeable
    np.testing.assert_allclose(decode(data.spec, data.x_train), CODES, rtol=1e-5)
    assert data.y_train.tolist() == [0, 1, 0, 1]


def test_what_was_changed_is_for_the_data_holder_only(read):
    data = read(TEXT)
    clipped, absent = data.private_notes
    assert clipped.endswith(
        "2 values outside the bounds of the schema were clipped (column age: 1, pay: 1)")
    assert absent.endswith("no rows of the class 2 (column Class)")
    assert data.notes == (
        "column names, kinds, bounds, categories and classes are those of the schema",)


@pytest.mark.parametrize("change", [
    lambda text: "\ufeff" + text, lambda text: text.replace("\n", "\r\n"),
    lambda text: text + "\n\n", lambda text: text.rstrip("\n"),
    lambda text: text.replace("cook", '"cook"').replace("pay", '"pay"', 1),
    lambda text: text.replace(",", ", ").replace('"a, ', '"a,')])
def test_forms_of_the_same_file(read, change):
    np.testing.assert_array_equal(read(change(TEXT)).x_train, read(TEXT).x_train)


def test_gz_and_the_held_out_part(read, tmp_path):
    (tmp_path / "test.csv").write_text(TEXT.replace("nurse", "cook"))
    data = read(gzip.compress(TEXT.encode()), "my people.csv.gz",
                test_csv=str(tmp_path / "test.csv"))
    assert data.name == "my-people" and data.y_test.tolist() == [0, 1, 0, 1]
    assert (data.x_test != data.x_train).any(1).tolist() == [False, False, False, True]
    assert sum("test.csv" in note for note in data.private_notes) == 2


@pytest.mark.parametrize(("old", "new", "match"), [
    ("1.5,S", "abc,S", "line 2, column pay: 'abc' is not a finite number"),
    ("1.5,S", "inf,S", "line 2, column pay: 'inf' is not a finite number"),
    ("1.5,S", "1_5,S", "line 2, column pay: '1_5' is not a finite number"),
    ("1.5,S", "NaN,S", r"line 2, column pay: null \('NaN'\), .*not nullable"),
    (".25,L", ",L", "line 5, column pay: an empty cell, .*not nullable"),
    ("cook,40", "cook,40.5", "line 2, column age: 40.5 is not a whole number"),
    ("cook,40", "cook,old", "line 2, column age: 'old' is not a finite number"),
    ("nurse", "nurze", "line 5, column job: 'nurze' is not a declared category, did you .*'nurse'"),
    ("1.5,S", "1.5,", "line 2, column size: an empty cell"),
    ("40,0", "40,7", "line 2, column Class: '7' is not a declared category"),
    ("40,0", "40,1.0", "column Class: '1.0' is not a declared category"),
    ("40,0", "40,", "line 2, column Class: an empty cell"),
    ("40,0", "40", "line 2: 4 cells, expected 5"),
    ("40,0", "40,0,", "line 2: 6 cells, expected 5"),
    ('"a, b"', "a, b", "line 3: 6 cells, expected 5; .*quotes"),
    ('"a, b"', '"a, b', "line 3: .*correct the quotes"),
    ('"a, b"', '"a" b', "line 3: .*correct the quotes"),
    ("pay,", "Pay,", "column 'pay' is missing, did you mean 'Pay'"),
    ("pay,size", "size,size", "column 'size' is named twice"),
    ("pay,size", ",size", "column 1 has no name"),
    (TEXT, TEXT.replace(",", ";"), "the first line is one cell with semicolons"),
    (TEXT, TEXT.replace(",", "\t"), "the first line is one cell with tabs"),
    (TEXT, TEXT.splitlines()[0], "no rows; at least 1 is needed"),
    (TEXT, "", "is empty; its first line must name the columns"),
    ("Class\n", "Class\n\n\n1,S,cook,x,0\n", "line 4, column age: 'x'"),
])
def test_errors_name_the_line_and_the_column(read, old, new, match):
    assert TEXT.count(old) == 1
    line = refused(match, read, TEXT.replace(old, new))
    assert "my people.csv" in line


def test_an_undeclared_column(read):
    lines = [f"{line},{'id' if i == 0 else i}" for i, line in enumerate(TEXT.splitlines())]
    refused("column 'id' is not declared; add it to the schema", read, "\n".join(lines))


def test_unreadable_files(read):
    with pytest.raises(UserError, match="line 2, cell 3: byte 0xe9 is not utf-8"):
        read(TEXT.replace("cook", "caf\u00e9").encode("latin-1"))
    refused("cannot be read", read, gzip.compress(TEXT.encode())[:-9], "a.csv.gz")
    refused("cannot be read", read, TEXT, "a.csv.gz")


def test_undeclared_texts_count_as_other_where_the_schema_says_so(tmp_path):
    (tmp_path / "s.yaml").write_text(SCHEMA.replace("nullable: true}\n  size",
                                                    "other: nurse}\n  size"))
    (tmp_path / "a.csv").write_text(TEXT.replace("?", "cooc").replace("cook", "chef"))
    data = load(f"csv:{tmp_path / 'a.csv'}", schema=str(tmp_path / "s.yaml"))
    assert decode(data.spec, data.x_train)[:, 2].tolist() == [2, 1, 2, 2]
    assert any("2 texts outside the categories of the schema count as `other` (column job: 2)"
               in note
               for note in data.private_notes)
    (tmp_path / "a.csv").write_text(TEXT)
    with pytest.raises(UserError, match=r"line 4, column job: null \('\?'\)"):
        load(f"csv:{tmp_path / 'a.csv'}", schema=str(tmp_path / "s.yaml"))


@pytest.mark.parametrize(("spec", "options", "match"), [
    ("csv:a.csv", {}, "needs --schema FILE.yaml.*dpgen_jax.schema a.csv --label COLUMN"),
    ("csv:a.csv", {"schema": "adult", "classes": 2}, "--classes does not apply to csv"),
    ("csv:a.csv", {"schema": "adult", "image_size": 8}, "--image-size does not apply to csv"),
    ("glyphs", {"schema": "adult"}, "--schema does not apply to glyphs; drop the option"),
    ("digits", {"test_csv": "a.csv"}, "--test-csv does not apply to digits"),
    ("adult:x", {"schema": "adult"}, "--schema does not apply to adult"),
    ("breast_cancer", {"classes": 2}, "--classes does not apply to breast_cancer"),
    ("breast_cancer:", {}, "did you mean breast_cancer"),
    ("csv:", {"schema": "adult"}, "did you mean csv:FILE"),
    ("csv", {"schema": "adult"}, "did you mean csv:FILE")])
def test_options_that_do_not_apply(spec, options, match):
    refused(match, load, spec, **options)


def test_cells_are_the_same_columns_in_the_schemas_order(declared):
    header, rows = constraints.written_cells(declared.spec, np.array(CODES), np.array([0, 1, 0, 1]))
    assert header == ["age", "Class", "pay", "job", "size"]
    assert rows == [["40", "0", "1.5", "cook", "S"], ["", "1", "-3.0", "a, b", "M"],
                    ["", "0", "1000.0", "", "L"], ["120", "1", "0.25", "nurse", "L"]]


def test_numbers_are_written_within_their_bounds():
    spec = schema.parse({"label": "y", "columns": {
        "x": {"kind": "continuous", "min": "-0.12345678", "max": "123456.78"},
        "y": {"kind": "ordinal", "categories": ["a", "b"]}}}, "s").spec
    codes = np.array([[-0.12345678], [123456.78], [2 / 3], [-0.0]])
    written = [row[0] for row in constraints.written_cells(spec, codes, np.zeros(4))[1]]
    assert written == ["-0.12345678", "123456.78", "0.666667", "0.0"]


def test_what_is_written_reads_back_the_same(read, tmp_path):
    data = read(TEXT)
    codes = decode(data.spec, data.x_train)
    header, rows = constraints.written_cells(data.spec, codes, data.y_train)
    with open(tmp_path / "back.csv", "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    back = read((tmp_path / "back.csv").read_bytes())
    np.testing.assert_allclose(back.x_train, data.x_train, atol=1e-6)
    np.testing.assert_array_equal(back.y_train, data.y_train)


def test_a_pandas_frame_there_and_back(declared, read):
    pd = pytest.importorskip("pandas", reason="pandas is an extra: pip install dpgen_jax[pandas]")
    frame = pd.DataFrame({
        "pay": [1.5, -3, 2000, 0.25], "size": pd.Categorical(["S", "M", "L", "L"]),
        "job": ["cook", "a, b", None, "nurse"], "age": [40, np.nan, np.nan, 130],
        "Class": [0, 1, 0, 1]}, index=[7, 7, 8, 9])
    data = frames.from_frame(frame, declared, frame.iloc[:2])
    np.testing.assert_array_equal(data.x_train, read(TEXT).x_train)
    assert data.y_train.tolist() == [0, 1, 0, 1] and data.y_test.tolist() == [0, 1]
    # For the journal: the same rows under another schema, and other rows under this one.
    assert data.content == frames.content_of_frame(frame.copy()) != ""
    assert data.content != frames.content_of_frame(frame.assign(
        pay=0.5)) != frames.content_of_frame(frame.iloc[:2])

    back = to_frame(data.spec, decode(data.spec, data.x_train), data.y_train)
    assert list(back.columns) == ["age", "Class", "pay", "job", "size"]
    assert [str(t) for t in back.dtypes] == ["Int64", "category", "float64", "category", "category"]
    assert back["age"].isna().tolist() == [False, True, True, False] and back["age"][3] == 120
    assert back["size"].cat.ordered and not back["job"].cat.ordered
    assert back["job"].isna().tolist() == [False, False, True, False]
    again = frames.from_frame(back, declared)
    np.testing.assert_allclose(again.x_train, data.x_train, atol=1e-6)


def test_faults_of_a_frame(declared):
    pd = pytest.importorskip("pandas", reason="pandas is an extra: pip install dpgen_jax[pandas]")
    good = pd.DataFrame({"age": [1], "Class": ["0"], "pay": [1.0], "job": ["cook"], "size": ["S"]})
    for bad, match in ((good.assign(pay=np.nan), "frame, row 0, column pay: an empty cell"),
                       (good.assign(pay="x"), "frame, row 0, column pay: 'x'"),
                       (good.assign(Class=True), "column Class: 'True' is not a declared category"),
                       (good.drop(columns="job"), "frame: column 'job' is missing"),
                       (pd.concat([good, good], axis=1), "frame: column 'age' is named twice"),
                       (good.iloc[:0], "frame: no rows"), ([[1]], "frame is a list")):
        refused(match, frames.from_frame, bad, declared)


def test_breast_cancer():
    data = load("breast_cancer")
    assert (data.x_train.shape, data.x_test.shape) == ((455, 30), (114, 30))
    assert data.spec.label.categories == ("malignant", "benign") and "public data" in data.notes
    everything = np.concatenate([data.x_train, data.x_test])
    assert everything.min() >= 0 and everything.max() <= 1 and everything.std(0).min() > 0.05
    assert ((everything == 0) | (everything == 1)).mean() < 0.02  # hardly any at a bound
    assert np.bincount(np.concatenate([data.y_train, data.y_test])).tolist() == [212, 357]


def adult_folder(path: Path) -> Path:
    row = ("39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, "
           "White, Male, 2174, 0, 40, United-States, ")
    path.mkdir()
    (path / "adult.data").write_text(
        f"{row}<=50K\n{row.replace('State-gov', '?')}>50K\n\n")
    (path / "adult.test.gz").write_bytes(gzip.compress(
        f"|1x3 Cross validator\n{row}>50K.\n".encode()))
    return path


def test_adult_layout(tmp_path):
    folder = adult_folder(tmp_path / "adult")
    data = load(f"adult:{folder}")
    assert data.y_train.tolist() == [0, 1] and data.y_test.tolist() == [1]
    codes = decode(data.spec, data.x_train)
    assert codes[0, :3].tolist() == [39, 5, 77516] and np.isnan(codes[1, 1])
    (folder / "adult.data").write_text("1, 2\n")
    refused("adult.data, line 1: 2 cells, expected 15", load, f"adult:{folder}")
    (folder / "adult.data").unlink()
    refused(r"adult.data\[.gz\] is missing", load, f"adult:{folder}")


def shared(name: str) -> Path:
    if not (SHARED / name).exists():
        pytest.skip(f"no {name} in {SHARED}; set DPGEN_DATA to where the data sets lie")
    return SHARED / name


def test_adult_real():
    data = load(f"adult:{shared('adult')}")
    assert data.x_train.shape == (32561, 108) and data.x_test.shape == (16281, 108)
    assert np.bincount(data.y_train).tolist() == [24720, 7841]
    assert not data.private_notes  # the packaged bounds cover everything


def test_credit_card_real():
    folder = shared("creditcard_20pct")
    with cpu_limit.at_most(12):  # about 1.2 s alone
        data = load(f"csv:{folder / 'train.csv.gz'}", schema="creditcard")
    assert data.x_train.shape == (45569, 29) and data.y_train.sum() == 78
    spread = np.subtract(*np.quantile(data.x_train[:, :28], [0.95, 0.05], axis=0))
    assert spread.min() > 0.05 and np.median(spread) > 0.2  # no column in a thin slice
    clipped = ((data.x_train == 0) | (data.x_train == 1))[:, :28].mean()
    assert 0 < clipped < 0.003


def test_a_category_may_hold_a_line_break(tmp_path):
    """In quotes it is one cell, wherever a block of the file ends, if the schema says so."""
    lines = {"file": {"multiline": "true"}, "label": "y", "columns": {
        "x": {"kind": "categorical", "categories": ["one\ntwo", "three"]},
        "y": {"kind": "categorical", "categories": ["p", "q"]}}}
    (tmp_path / "s.yaml").write_text(json.dumps(lines))
    (tmp_path / "t.csv").write_text('x,y\n"one\ntwo",p\nthree,q\n', newline="")
    data = load(f"csv:{tmp_path / 't.csv'}", schema=str(tmp_path / "s.yaml"))
    header, rows = constraints.written_cells(data.spec, decode(data.spec, data.x_train),
                                             data.y_train)
    assert sorted(rows) == [["one\ntwo", "p"], ["three", "q"]] and header == ["x", "y"]
