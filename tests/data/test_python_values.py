"""Values of Python and pandas as the texts of a file, in frames and in conditions."""

import datetime
import decimal

import numpy as np
import pytest
from refusals import refused

from dpgen_jax.core.types import NO_LABEL, TableSpec, UserError
from dpgen_jax.data.table import frames, schema, transform
from dpgen_jax.release import sampling

pd = pytest.importorskip("pandas", reason="an extra: pip install dpgen_jax[pandas]")
SPEC = schema.parse({"label": "y", "columns": {
    "pay": {"kind": "continuous", "min": "0", "max": "9999", "decimals": "2", "unit": "EUR {}",
            "decimal_mark": ",", "thousands": "."},
    "day": {"kind": "date", "min": "2020-01-01", "max": "2021-12-31", "format": "%Y-%m-%d"},
    "stay": {"kind": "duration", "min": "0:00:00", "max": "50:00:00"},
    "at": {"kind": "time"}, "ill": {"kind": "boolean", "categories": ["no", "yes"]},
    "n": {"kind": "integer", "min": "0", "max": "9", "nullable": "true"},
    "y": {"kind": "categorical", "categories": ["0", "1"]}}}, "s").spec
VALUES = {
    "pay": [1234.5, decimal.Decimal("1234.50"), np.float32(1234.5), "EUR 1.234,50"],
    "day": [datetime.date(2020, 2, 29), pd.Timestamp("2020-02-29"), np.datetime64("2020-02-29"),
            "2020-02-29"],
    "stay": [datetime.timedelta(hours=27, minutes=3), pd.Timedelta("27:03:00"), "27:03:00"],
    "at": [datetime.time(8, 30), "08:30:00"], "ill": [True, np.True_, "yes", "YES"],
    "n": [7, 7.0, np.int64(7), "7"], "y": [1, 1.0, "1"]}


@pytest.mark.parametrize("name", VALUES)
def test_a_condition_takes_them_as_texts(name):
    found = [sampling.parse_conditions({name: value}, SPEC).all[0].points for value in VALUES[name]]
    assert len(set(found)) == 1 and len(found[0]) == 1, found
    both = sampling.parse_conditions({name: VALUES[name][:2]}, SPEC).all[0]
    assert set(both.points) == set(found[0])


@pytest.mark.parametrize("null", [None, float("nan"), pd.NA, pd.NaT], ids=str)
def test_null_is_null_whatever_it_is_called(null):
    assert sampling.parse_conditions({"n": null}, SPEC).all[0].null
    refused("not nullable", sampling.parse_conditions, {"ill": null}, SPEC)


def test_a_frame_of_numbers_is_read_whatever_marks_texts_have():
    frame = pd.DataFrame({name: pd.Series([values[0]] * 2, dtype=object)
                          for name, values in VALUES.items()})
    frame["pay"] = [0.07, 1e-5]
    assert frames.cells_of_frame("f", frame, SPEC).columns["pay"] == ["EUR 0,07", "EUR 1e-05"]
    data = frames.from_frame(frame, schema.Schema(SPEC))
    assert data.x_train.shape == (2, *SPEC.shape)


def test_a_time_with_a_zone_keeps_its_offset():
    moment = pd.Timestamp("2020-02-29 08:00", tz="Europe/Rome")
    cells = frames.cells_of_frame("f", pd.DataFrame({"at": [moment]}), None)
    assert cells.columns["at"] == ["2020-02-29 08:00:00+01:00"]
    assert transform.python_text(moment, SPEC.columns[1]) == "2020-02-29 08:00:00+01:00"


@pytest.mark.parametrize(("categories", "values"), [
    (["001", "010", "x"], {"001": [1, 1.0, "1", "01", "1.0", "001", np.int8(1)], "x": ["x"],
                           "010": [10, "1e1", b"010", decimal.Decimal("10.00")], "100": [100],
                           "True": [True], "1.5": [1.5, np.float32(1.5)]}),
    (["1.50", "true", "No", "Infinity"], {
        "1.50": [1.5, "1.5", "1.500"], "true": [True, "TRUE"], "no": ["no"], "False": [False],
        "Infinity": [np.inf, "inf", "+INFINITY"], "-inf": [-np.inf, "-inf"]}),
    (["9007199254740993", "9007199254740992"], {
        "9007199254740993": [2**53 + 1, "9007199254740993.0", np.uint64(2**53 + 1)],
        "9007199254740992": ["09007199254740992"], "0": ["0"]}),
    (["2020-02-29 00:00:00"], {"2020-02-29 00:00:00": [pd.Timestamp("2020-02-29")]})], ids=str)
def test_a_cell_is_of_the_category_that_is_the_same_number_or_truth_value(categories, values):
    entries = {"kind": "categorical", "categories": categories}
    column = schema.parse({"columns": {"a": entries}}, "s").spec.columns[0]
    read = transform.python_reader(column)
    assert {text: [read(value) for value in same] for text, same in values.items()} == {
        text: [text] * len(same) for text, same in values.items()}


@pytest.mark.parametrize(("entries", "value", "match"), [
    ({"kind": "codes", "categories": ["a"]}, 2.0**53, "9007199254740992 may be another whole"),
    ({"kind": "codes", "categories": ["1", "01"]}, 1, "1 may be any of the categories 1, 01"),
    ({"kind": "categorical", "categories": ["2020-02-29"]}, pd.Timestamp("2020-02-29"),
     "'2020-02-29 00:00:00' is of a type of dates and times"),
    ({"kind": "time", "format": "%H%M"}, 115, "115 may lack zeros in front"),
    ({"kind": "date", "format": "%d%m%Y", "min": "01012000", "max": "01012001"}, 1022000.0,
     "1022000 may lack zeros in front"),
    ({"kind": "continuous", "min": "0", "max": "9", "decimal_mark": ",", "thousands": "."}, 1.234,
     "1.234 may have had a point between thousands .*declare dtype: float64")], ids=str)
def test_a_value_that_may_be_of_several_texts_is_refused(entries, value, match):
    made = schema.parse({"columns": {"a": entries}}, "s").spec.columns[0]
    refused(f"^{match}", transform.python_reader(made), value)
    frame = pd.DataFrame({"a": pd.Series([None, value], dtype=object)})
    with pytest.raises(UserError, match=f"^f, row 1, column a: {match}.*dtype={{'a': 'string'}}"):
        frames.cells_of_frame("f", frame, TableSpec((made,), NO_LABEL, 0))


def test_a_draft_refuses_whole_numbers_that_a_null_made_floats():
    for lost in ([1e16, None], [float(2**53), 2.0]):
        with pytest.raises(UserError, match="row 0, column a: .* may be another whole number"):
            frames.draft_schema(pd.DataFrame({"a": lost, "b": [1, 2]}))
    for measured in ([1e16, 0.5], [1e30, 2e18]):
        drafted = frames.draft_schema(pd.DataFrame({"a": measured, "b": [1, 2]}))
        assert drafted["columns"]["a"]["kind"] == "continuous"


def test_a_number_that_python_cannot_write_names_its_cell():
    frame = pd.DataFrame({"n": pd.Series([1, 10**5000], dtype=object)})
    refused("^f, row 1, column n: ", frames.cells_of_frame, "f", frame, None)


@pytest.mark.parametrize("other", [pd.Series([1]), {"a": [1]}, None], ids=["series", "dict", "-"])
def test_a_draft_is_of_a_frame(other):
    refused("^frame is a .*; give a pandas DataFrame", frames.draft_schema, other)
