"""Stamps with offsets: read as moments of UTC, written in one zone, in files and in frames."""

import datetime

import numpy as np
import pandas as pd
import pytest

from dpgen_jax.core.config import to_json
from dpgen_jax.core.types import UserError
from dpgen_jax.data.table import columns, frames, parsing, readings, schema, transform
from dpgen_jax.release import contents
from dpgen_jax.release.frames import series, to_frame

BERLIN = {"kind": "datetime", "format": "%Y-%m-%d %H:%M:%S%z", "zone": "Europe/Berlin",
          "min": "2020-01-01 00:00:00", "max": "2024-12-31 00:00:00", "nullable": "true"}
NOON = (datetime.datetime(2022, 7, 1, 10) - transform.EPOCH).total_seconds()


@pytest.mark.parametrize("text", [
    "2022-07-01 12:00:00+02:00", "2022-07-01 12:00:00", "2022-07-01 10:00:00Z",
    "2022-07-01 10:00:00 UTC", "2022-07-01 10:00:00+00", "2022-07-01 15:30:00+0530",
    "2022-07-01 12:00:00.999999999+02:00", "2022-07-01 05:00:00 -05:00"])
def test_a_stamp_is_a_moment_and_comes_out_in_the_zone(text):
    column = columns.column("seen", BERLIN)
    assert transform.reader(column)(text) == NOON
    assert transform.texts(column, np.array([NOON])) == ["2022-07-01 12:00:00+02:00"]


def test_a_winter_of_the_zone_has_another_offset():
    column = columns.column("seen", BERLIN)
    code = transform.reader(column)("2022-01-01 10:00:00")
    assert transform.texts(column, np.array([code])) == ["2022-01-01 10:00:00+01:00"]


@pytest.mark.parametrize("form", ["%Y-%m-%d %H:%M:%S", "%d/%b/%Y:%H:%M:%S %z"])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "+05:45", "UTC", "-0930"])
def test_what_is_written_is_read_back(zone, form):
    shaped = columns.format_fields("seen", "datetime", {"format": form, "zone": zone})
    column = columns.Column("seen", "continuous", **shaped)
    codes = np.arange(1e9, 1.7e9, 12_345_678.0)
    read = [transform.reader(column)(text) for text in transform.texts(column, codes)]
    assert read == codes.tolist()


@pytest.mark.parametrize(("cell", "form", "zone"), [
    ("2024-07-06 16:48:00+00:00", "%Y-%m-%d %H:%M:%S%z", "+00:00"),
    ("2024-07-06T16:48-07", "%Y-%m-%dT%H:%M%z", "-07:00"),
    ("2024-07-06 16:48:00.123456789+0530", "%Y-%m-%d %H:%M:%S.%f%z", "+05:30"),
    ("2024-07-06 16:48:00 GMT", "%Y-%m-%d %H:%M:%S%z", "+00:00"),
    ("2024-07-06 16:48:00+01:23", "%Y-%m-%d %H:%M:%S%z", "+00:00"),
    ("2024-07-06T16:48:00Z", "%Y-%m-%dT%H:%M:%SZ", None),
    ("2024-07-06T16:48:00.123456789Z", "%Y-%m-%dT%H:%M:%S.%fZ", None),
    ("2024-07-06 16:48:00.123456789", "%Y-%m-%d %H:%M:%S.%f", None),
    ("20240706164800", "%Y%m%d%H%M%S", None), ("20240706164800123", "%Y%m%d%H%M%S%f", None),
    ("20240706164800000000", "%Y%m%d%H%M%S%f", None)])
def test_a_stamp_is_counted_for_its_format_and_its_zone(cell, form, zone):
    found = readings.READINGS[readings.code(cell)].entries
    assert (found["kind"], found["format"], found.get("zone")) == ("datetime", form, zone)


def test_long_cells_are_read_at_once():
    for cell in ("a" + " " * 300_000 + "b", "+01" * 5000, "1" * 100_000 + "+01:00", ":0." * 99_999):
        assert readings.code(cell) == len(readings.READINGS) - 1
        assert transform.reader(columns.column("seen", BERLIN))(cell) is None


@pytest.mark.parametrize("cell", ["20241306164800", "20240706256100", "30240706164800", "+01:00",
                                  "2024-07-06 16:48:00+25:00", "a+01:00", "Z", "2024070616480"])
def test_other_cells_are_no_stamps(cell):
    assert readings.READINGS[readings.code(cell)].entries["kind"] != "datetime"


def counted(cells):
    counts = np.zeros(len(readings.READINGS), np.int64)
    np.add.at(counts, [readings.code(cell) for cell in cells], 1)
    return readings.chosen(counts, 5)


def test_the_commonest_zone_reads_them_all():
    summer, winter = ["2024-07-06 16:48:00+02:00"] * 70, ["2024-01-06 16:48:00+01:00"] * 50
    bare, utc = ["2024-01-06 16:48:00"] * 20, ["2024-01-06 16:48:00.5Z"] * 10
    found, present, others = counted(winter + summer + bare + utc)
    assert (found.entries["zone"], present, others) == ("+02:00", 150, 0)
    assert "zone" not in counted(bare)[0].entries and "zone" not in counted(utc)[0].entries


@pytest.mark.parametrize(("entries", "text"), [
    ({"zone": "Europe/Berln"}, "column seen: zone is 'Europe/Berln'; write a zone of the tz"),
    ({"zone": "Europe"}, "zone is 'Europe'"), ({"zone": "+25:00"}, r"zone is '\+25:00'"),
    ({"zone": "../UTC"}, "zone is"), ({"zone": "é"}, "zone is"),
    ({"format": "%z %Y-%m-%d %H:%M"}, "%z, the offset of a time zone, is the end of a datetime"),
    ({"kind": "date", "format": "%Y-%m-%d%z"}, "%z, the offset"),
    ({"kind": "date", "zone": "UTC"}, "zone does not belong to a column of kind date")])
def test_what_is_no_zone_is_refused(entries, text):
    made = BERLIN | entries
    if entries.get("kind") == "date" and "zone" not in entries:
        del made["zone"]
    with pytest.raises(UserError, match=text):
        columns.column("seen", made)


ZONED = pd.Series(pd.to_datetime(["2022-07-01 12:00:00.123456789", None, "2022-01-01 10:00:00"],
                                 format="ISO8601")).dt.tz_localize("Europe/Berlin")


@pytest.mark.parametrize("made", [
    ZONED, ZONED.dt.tz_convert("UTC"), ZONED.astype(object), ZONED.dt.tz_localize(None),
    ZONED.dt.as_unit("us").astype("timestamp[us, tz=Europe/Berlin][pyarrow]"),
    ZONED.map(str).where(ZONED.notna(), None)],
    ids=["zoned", "UTC", "objects", "naive", "Arrow", "texts"])
def test_a_frame_gives_the_same_moments_whatever_its_type_is(made):
    document = {"columns": {"seen": BERLIN, "n": {"kind": "integer", "min": 0, "max": 9}}}
    cells = frames.cells_of_frame("f", pd.DataFrame({"seen": made, "n": 1}),
                                  schema.of(document).spec)
    codes = parsing.coded(schema.of(document), cells).codes[:, 0]
    np.testing.assert_array_equal(codes, [NOON, np.nan, NOON - (181 * 24 + 1) * 3600])


def test_a_frame_comes_out_in_the_zone():
    column = columns.column("seen", BERLIN)
    out = series(column, np.array([NOON, np.nan]))
    assert str(out.dtype) == "datetime64[us, Europe/Berlin]" and out.isna().tolist() == [0, 1]
    assert out[0] == pd.Timestamp("2022-07-01 12:00", tz="Europe/Berlin")
    fixed = columns.column("seen", BERLIN | {"zone": "+01:00", "dtype": "datetime64[s]"})
    assert str(series(fixed, np.array([NOON]))[0]) == "2022-07-01 11:00:00+01:00"


def test_a_release_keeps_the_zone():
    spec = schema.of({"columns": {"seen": BERLIN}}).spec
    assert contents.spec(to_json(spec)) == spec and spec.columns[0].zone == "Europe/Berlin"
    assert to_frame(spec, np.array([[NOON]]), np.zeros(1))["seen"].dt.tz.key == "Europe/Berlin"
