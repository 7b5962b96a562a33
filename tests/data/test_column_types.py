"""The types of columns: a frame and a Parquet file come out in the types in which they came in."""

import dataclasses
import datetime

import numpy as np
import pytest
from refusals import refused

from dpgen_jax import schema as schema_command
from dpgen_jax.core.config import from_json, to_json
from dpgen_jax.core.types import Identifier, TableSpec, UserError
from dpgen_jax.data.table import columns as table_columns
from dpgen_jax.data.table import frames, schema, transform
from dpgen_jax.data.table.frames import draft_schema
from dpgen_jax.release import contents, files
from dpgen_jax.release.frames import to_frame

pd = pytest.importorskip("pandas", reason="an extra: pip install dpgen_jax[parquet]")
pq = pytest.importorskip("pyarrow.parquet", reason="an extra")
ROWS = 120


def typed_frame():
    """A frame with a column of each type that a schema can declare."""
    i = np.arange(ROWS)
    days = [datetime.date(2000, 1, 1) + datetime.timedelta(int(day)) for day in i]
    columns = {f"whole_{name}": pd.Series(i % 100, dtype=name) for name in table_columns.WHOLE}
    columns |= {f"number_{name}": pd.Series(i / 7, dtype=name) for name in table_columns.FLOATS}
    columns |= {f"masked_{name}": pd.Series(i % 90, dtype=name).mask(i % 5 == 0)
                for name in table_columns.PLAIN if name != "boolean"}
    columns |= {f"moment_{unit}": pd.Series(pd.to_datetime(days)).dt.as_unit(unit)
                + pd.to_timedelta(pd.Series(i), "s") for unit in table_columns.TICKS}
    columns |= {f"span_{unit}": pd.Series(pd.to_timedelta(i * 90, "s")).dt.as_unit(unit)
                for unit in table_columns.TICKS}
    columns |= {
        "wide": pd.Series(i * 10**9, dtype="int64"),
        "floats_of_whole": pd.Series(i % 30, dtype="float64").mask(i % 9 == 0),
        "truth": pd.Series(i % 2 == 0),
        "maybe": pd.Series(i % 2 == 0).astype("boolean").mask(i < 9),
        "day": pd.Series(days, dtype=object),
        "day_text": pd.Series([day.isoformat() for day in days], dtype="string"),
        "noon": pd.Series([datetime.time(n % 24, n % 60) for n in i], dtype=object),
        "word": pd.Series(np.array(["a", "b", "c"])[i % 3]),
        "class": pd.Categorical(np.array(["a", "b", "c"])[i % 3]),
        "class_of_whole": pd.Categorical(i % 4), "y": pd.Series(i % 2, dtype="int16")}
    return pd.DataFrame(columns)


def drafted(frame, **options):
    """The data set of a frame by its draft, whose entries count as declared."""
    document = {**draft_schema(frame, "y", **options), "read_from_data": []}
    return frames.from_frame(frame, schema.of(document)), document


def written_again(data):
    return to_frame(data.spec, transform.decode(data.spec, data.x_train), data.y_train)


def dtypes(frame):
    return {name: (str(kind), str(getattr(getattr(kind, "categories", None), "dtype", "")))
            for name, kind in frame.dtypes.items()}


@pytest.mark.parametrize("declared", [False, True])
def test_a_frame_comes_out_as_it_came_in(declared):
    came = typed_frame()
    data, document = drafted(came, types_declared=declared)
    out = written_again(data)
    assert dtypes(out) == dtypes(came)
    for name in ("day", "noon", "word"):  # objects are of the same class
        assert {type(value) for value in out[name]} == {type(value) for value in came[name]}
    again, second = drafted(out, types_declared=declared)
    assert second["columns"].keys() == document["columns"].keys()
    np.testing.assert_allclose(again.x_train, data.x_train, atol=1e-5)  # 6 digits are written
    np.testing.assert_array_equal(again.y_train, data.y_train)
    assert from_json(TableSpec, to_json(data.spec)) == contents.spec(to_json(data.spec))
    exact = [name for name in came if not name.startswith("number_") and name != "wide"]
    pd.testing.assert_frame_equal(out[exact], came[exact])
    assert (out["wide"] - came["wide"]).abs().max() <= 1e-7 * came["wide"].max()


def test_a_parquet_file_comes_out_as_it_came_in(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "GROUP_CELLS", 600)
    came = typed_frame()
    came.to_parquet(tmp_path / "a.parquet")
    schema_command.command([str(tmp_path / "a.parquet"), "--label", "y", "--out",
                            str(tmp_path / "s.yaml")])
    text = (tmp_path / "s.yaml").read_text()
    assert "dtype: int8  # read from private data" in text and "  - whole_int8.dtype" in text
    declared = dataclasses.replace(schema.read(str(tmp_path / "s.yaml")), uncovered=())
    data = frames.from_frame(came, declared)
    with files.opener(tmp_path / "b.parquet", data.spec, ROWS)(
            tmp_path / "b.parquet", data.spec, ROWS) as take:
        codes = transform.decode(data.spec, data.x_train)
        for part in np.split(np.arange(ROWS), 4):
            take(codes[part], data.y_train[part])
    first, second = (pq.read_schema(tmp_path / name) for name in ("a.parquet", "b.parquet"))
    assert second.names == first.names and second.types == first.types


def test_a_group_of_nulls_alone_has_the_type_of_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "GROUP_CELLS", 3)
    spec = schema.of({"columns": {"at": {"kind": "time", "nullable": True, "dtype": "time"},
                                  "on": {"kind": "date", "min": "2000-01-01", "max": "2001-01-01",
                                         "nullable": True, "dtype": "date"}}}).spec
    with files.opener(tmp_path / "a.parquet", spec, 2)(tmp_path / "a.parquet", spec, 2) as take:
        take(np.full((1, 2), np.nan), np.zeros(1, int))
        take(np.array([[60.0, 10957.0]]), np.zeros(1, int))
    out = pd.read_parquet(tmp_path / "a.parquet")
    assert out["at"].tolist() == [None, datetime.time(0, 1)]
    assert out["on"].tolist() == [None, datetime.date(2000, 1, 1)]


def test_what_the_types_of_pandas_declare_is_not_read_from_the_data():
    came = typed_frame()[["whole_int8", "number_float32", "day", "y"]]
    read = draft_schema(came, "y", types_declared=True)["read_from_data"]
    assert not {"whole_int8.dtype", "number_float32.dtype", "y.dtype"} & set(read)
    assert "day.dtype" in read  # objects, whose values alone tell what they are
    entries = draft_schema(came, "y")["read_from_data"]
    assert {"whole_int8.dtype", "number_float32.dtype", "y.dtype", "day.dtype"} <= set(entries)


def test_a_type_changes_nothing_that_is_learned():
    plain, narrow = (schema.of({"columns": {"a": {"kind": "integer", "min": 0, "max": 9} | dtype}})
                     .spec for dtype in ({}, {"dtype": "int8"}))
    assert plain == narrow and "dtype" not in str(to_json(plain))
    assert to_frame(narrow, np.array([[3.0]]), np.zeros(1))["a"].dtype == np.int8


def test_a_number_of_fewer_bits_stays_within_its_bounds():
    spec = schema.of({"columns": {"a": {"kind": "continuous", "min": 0.1, "max": 0.7,
                                        "special": [99.5], "dtype": "float16"}}}).spec
    made = to_frame(spec, np.array([[0.1], [0.7], [99.5], [0.123456789]]), np.zeros(4))["a"]
    assert made.dtype == np.float16
    assert 0.1 < float(made[0]) < 0.1001 and 0.6995 < float(made[1]) < 0.7 and made[2] == 99.5
    assert made[3] == np.float16(0.123457)
    constant = schema.of({"columns": {"a": {"kind": "continuous", "min": 5.5, "max": 5.5,
                                            "dtype": "float64"}}}).spec
    assert to_frame(constant, np.array([[5.5]]), np.zeros(1))["a"].tolist() == [5.5]


def test_whole_numbers_are_rounded_and_categories_ordered():
    spec = schema.of({"columns": {
        "a": {"kind": "continuous", "min": 0, "max": 9, "decimals": 0, "dtype": "int8"},
        "b": {"kind": "ordinal", "categories": ["3", "1"], "dtype": "category[int8]"},
        "c": {"kind": "datetime", "min": "2000-01-01 00:00:00", "max": "2001-01-01 00:00:00",
              "dtype": "datetime64[ns]"}}}).spec
    at = 946684800 + 3_600
    made = to_frame(spec, np.array([[2.9999999, 1, at]]), np.zeros(1))
    assert made["a"].tolist() == [3] and made["b"].tolist() == [1] and made["b"].cat.ordered
    assert made["b"].cat.categories.tolist() == [3, 1]
    assert made["c"].tolist() == [pd.Timestamp("2000-01-01 01:00:00")]


def test_a_kind_that_the_range_decides_counts_as_read():
    came = pd.DataFrame({"wide": np.arange(9) * 10**9, "y": [0, 1, 1] * 3})
    made = draft_schema(came, "y", types_declared=True)
    assert made["columns"]["wide"]["kind"] == "continuous"
    assert "wide.kind" in made["read_from_data"] and "wide.dtype" not in made["read_from_data"]


def test_types_that_were_read_are_refused_by_a_run_and_named():
    document = {**draft_schema(typed_frame()[["whole_int8", "y"]], "y"),
                "read_from_data": ["whole_int8.dtype", "y.dtype"]}
    (entry,) = schema.of(document).uncovered
    assert entry.what == "types of whole_int8, y read from private data"


def test_a_category_of_many_values_is_told_by_its_values():
    came = pd.DataFrame({"a": pd.Categorical(np.arange(150)), "b": pd.Categorical([1.0, 2.0] * 75),
                         "y": [0, 1] * 75})
    made = draft_schema(came, "y")["columns"]
    assert made["a"]["kind"] == "integer" and made["b"]["categories"] == ["1", "2"]
    data, _ = drafted(came, types_declared=True)
    assert written_again(data)["b"].cat.categories.dtype == np.float64


def test_durations_that_are_no_whole_seconds_are_what_they_were():
    ticks = pd.to_timedelta(np.arange(12) * 500, "ms")
    data, document = drafted(pd.DataFrame({"a": ticks, "y": [0, 1] * 6}))
    assert document["columns"]["a"]["kind"] == "categorical"
    assert written_again(data)["a"][1] == "0 days 00:00:00.500000"
    objects = pd.DataFrame({"a": pd.Series(list(ticks[::2]), dtype=object), "y": [0, 1] * 3})
    data, document = drafted(objects)
    assert document["columns"]["a"]["kind"] == "duration"
    assert written_again(data)["a"].tolist() == list(ticks[::2])


def test_an_identifier_of_digits_may_be_a_whole_number():
    document = {"columns": {"id": {"kind": "identifier", "pattern": "####", "dtype": "int32"},
                            "a": {"kind": "integer", "min": 0, "max": 9}}}
    spec = schema.of(document).spec
    assert spec.identifiers == (Identifier("id", "####", 0, "int32"),)
    made = to_frame(spec, np.zeros((2, 1)), np.zeros(2), first=7)["id"]
    assert made.tolist() == [7, 8] and made.dtype == np.int32
    assert contents.spec(to_json(spec)).identifiers[0].dtype == "int32"


@pytest.mark.parametrize(("entries", "match"), [
    ("kind: integer, min: 0, max: 300, dtype: int8", "int8 does not hold all of its values"),
    ("kind: integer, min: -1, max: 3, dtype: uint64", "uint64 does not hold all"),
    ("kind: integer, min: 0, max: 3, special: [999], dtype: int8", "does not hold all"),
    ("kind: integer, min: 0, max: 3, dtype: int31", "dtype is 'int31'; known for such a column"),
    ("kind: integer, min: 0, max: 3, nullable: true, dtype: int8", "no null; write dtype: Int8"),
    ("kind: continuous, min: 0, max: 1, dtype: int8", "dtype is 'int8'; known"),
    ("kind: continuous, min: 0, max: 70000, dtype: float16", "float16 does not hold all"),
    ('kind: categorical, categories: ["1", "02"], dtype: int8', "int8 does not hold all"),
    ('kind: categorical, categories: ["0.1", "2"], dtype: float32', "float32 does not hold all"),
    ('kind: categorical, categories: ["--1", "2"], dtype: int8', "int8 does not hold all"),
    ('kind: categorical, categories: ["no", "yes"], dtype: bool', "bool does not hold all"),
    ("kind: boolean, nullable: true, dtype: bool", "no null; write dtype: boolean"),
    ('kind: date, min: 1600-01-01, max: 2000-01-01, dtype: "datetime64[ns]"', "does not hold all"),
    ('kind: datetime, min: "2000-01-01 00:00:00.5", max: "2000-01-02 00:00:00.0", '
     'format: "%Y-%m-%d %H:%M:%S.%f", dtype: "datetime64[s]"', "does not hold all"),
    ('kind: identifier, pattern: "P##", dtype: int8', "dtype is 'int8'; known"),
    ('kind: identifier, pattern: "####", dtype: int8', "int8 does not hold all"),
    ("kind: integer, min: 0, max: 3, dtype: [int8]", "dtype is"),
    ("kind: integer, min: 0, max: 2049, dtype: float16", "float16 does not hold all"),
    ("kind: integer, min: 16777000, max: 16777217, dtype: float32", "float32 does not hold all"),
    ("kind: continuous, min: 1000.1, max: 1000.3, dtype: float16", "float16 does not hold all"),
    ("kind: continuous, min: 0, max: 0.7, special: [99.3], dtype: float32", "does not hold all"),
])
def test_a_type_that_does_not_hold_the_values_is_refused(tmp_path, entries, match):
    (tmp_path / "s.yaml").write_text(
        f"columns:\n  a: {{{entries}}}\n  b: {{kind: integer, min: 0, max: 1}}\n")
    with pytest.raises(UserError, match="column a") as error:
        schema.read(str(tmp_path / "s.yaml"))
    assert match in str(error.value)


def test_a_damaged_type_is_found_when_a_release_is_read():
    spec = schema.of({"columns": {"a": {"kind": "integer", "min": 0, "max": 9,
                                        "dtype": "int8"}}}).spec
    value = to_json(spec)
    value["columns"][0]["dtype"] = "int31"
    refused("damaged", contents.spec, value)
    value = to_json(dataclasses.replace(spec, identifiers=(Identifier("id", "####", 0, "int8"),)))
    refused("damaged", contents.spec, value)
