"""Values of Python and pandas as the texts of a file, in frames and in conditions."""

import datetime
import decimal

import numpy as np
import pytest

from dpgen_jax.core.types import UserError
from dpgen_jax.data import frames, python_values, schema
from dpgen_jax.release import conditions

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
    found = [conditions.parse({name: value}, SPEC).all[0].points for value in VALUES[name]]
    assert len(set(found)) == 1 and len(found[0]) == 1, found
    both = conditions.parse({name: VALUES[name][:2]}, SPEC).all[0]
    assert set(both.points) == set(found[0])


@pytest.mark.parametrize("null", [None, float("nan"), pd.NA, pd.NaT], ids=str)
def test_null_is_null_whatever_it_is_called(null):
    assert conditions.parse({"n": null}, SPEC).all[0].null
    with pytest.raises(UserError, match="not nullable"):
        conditions.parse({"ill": null}, SPEC)


def test_a_frame_of_numbers_is_read_whatever_marks_texts_have():
    frame = pd.DataFrame({name: pd.Series([values[0]] * 2, dtype=object)
                          for name, values in VALUES.items()})
    frame["pay"] = [0.07, 1e-5]
    assert frames.cells("f", frame, SPEC).columns["pay"] == ["EUR 0,07", "EUR 1e-05"]
    data = frames.from_frame(frame, schema.Schema(SPEC))
    assert data.x_train.shape == (2, *SPEC.shape)


def test_a_time_with_a_zone_is_not_guessed():
    moment = pd.Timestamp("2020-02-29 08:00", tz="Europe/Rome")
    with pytest.raises(UserError, match="f: column at has a time zone.*tz_convert"):
        frames.cells("f", pd.DataFrame({"at": [moment]}), None)
    assert python_values.text(moment, SPEC.columns[1]) == "2020-02-29 08:00:00+01:00"
