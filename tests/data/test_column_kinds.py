"""Every kind of column: file -> records -> encoded -> decoded -> the same texts and types."""

import numpy as np
import pytest
from refusals import refused

from dpgen_jax.core.config import from_json, to_json
from dpgen_jax.core.types import TableSpec, UserError
from dpgen_jax.data import load
from dpgen_jax.data.table import constraints, frames, schema, transform
from dpgen_jax.release import contents
from dpgen_jax.release.frames import to_frame

LABEL = "  y: {kind: boolean, categories: [no, yes]}\n"
KINDS = {  # entries: cells that come back as they are, and the type of a frame's column
    "day": ("kind: date, min: 1969-12-30, max: 2099-12-31",
            ["2024-02-29", "1969-12-31", "2099-12-31"], "datetime64"),
    "german": ("kind: date, min: 01.01.2000, max: 31.12.2030, format: '%d.%m.%Y', nullable: true",
               ["03.02.2001", "", "31.12.2030"], "datetime64"),
    "excel": ("kind: date, min: 1/1/2000, max: 12/31/2030, format: '%-m/%-d/%Y', "
              "special: [9/9/1999]", ["2/3/2001", "9/9/1999", "12/31/2030"], "datetime64"),
    "stamp": ("kind: datetime, min: 2024-01-01 00:00:00, max: 2024-03-31 23:59:59",
              ["2024-02-29 23:59:01", "2024-01-01 00:00:00", "2024-03-31 23:59:59"], "datetime64"),
    "minute": ("kind: datetime, min: 2020-01-01T00:00Z, max: 2030-12-31T23:59Z, "
               "format: '%Y-%m-%dT%H:%MZ'", ["2024-02-29T23:59Z", "2020-01-01T00:01Z"],
               "datetime64"),
    "noon": ("kind: time, format: '%I:%M %p'", ["12:00 PM", "12:01 AM", "11:59 PM"], "text"),
    "took": ("kind: duration, min: '-1:00:00', max: '100:00:00', nullable: true",
             ["0:00:07", "-0:30:00", "99:59:59", ""], "timedelta64"),
    "price": ('kind: continuous, min: -5000, max: 5e4, unit: "EUR {}", decimals: 2, '
              "decimal_mark: ',', thousands: '.'",
              ["EUR 1.234,50", "-EUR 0,05", "EUR 49.999,99"], "text"),
    "weight": ('kind: integer, min: 0, max: 3000, unit: "{} kg", thousands: ","',
               ["1,200 kg", "0 kg", "999 kg"], "text"),
    "spaced": ("kind: integer, min: -9999, max: 99999, thousands: space",
               ["12 345", "-1 000", "7"], "text"),
    "cents": ("kind: continuous, min: 0, max: 10, decimals: 2", ["0.10", "9.99", "3.00"],
              "float64"),
    "spiked": ("kind: integer, min: 1, max: 90, special: [0, 999], nullable: true",
               ["0", "999", "45", "", "90"], "Int64"),
    "heavy": ("kind: integer, min: 0, max: 100000, scale: log", ["0", "1", "99999", "100000"],
              "int64"),
    "tail": ("kind: continuous, min: 0.01, max: 1e3, scale: log, decimals: 2",
             ["0.01", "12.50", "1000.00"], "float64"),
    "debts": ("kind: integer, min: -20000, max: 20000, scale: log", ["-19999", "0", "-1"], "int64"),
    "alive": ("kind: boolean, nullable: true, categories: [F, T]", ["T", "F", ""], "boolean"),
    "flag": ("kind: boolean", ["true", "false"], "bool"),
    "zip": ("kind: codes, categories: {file: zips.txt}, other: '99999'",
            ["00007", "01234", "99999"], "category"),
    "town": ("kind: categorical, categories: [Ulm, Bonn]", ["Ulm", "Bonn"], "category")}


@pytest.fixture
def declared(tmp_path):
    """A schema of text, beside a file of 20,000 zip codes."""
    (tmp_path / "zips.txt").write_text("\n".join([*(f"{i:05d}" for i in range(20_000)), "99999"]))

    def inner(columns, more="") -> schema.Schema:
        (tmp_path / "s.yaml").write_text(f"label: y\ncolumns:\n{columns}{LABEL}{more}")
        return schema.read(str(tmp_path / "s.yaml"))
    return inner


def through(spec: TableSpec, codes: np.ndarray) -> np.ndarray:
    """Codes, encoded as a sealed record is, and decoded."""
    encoded = transform.encode(spec, codes).astype(np.float32)
    assert encoded.shape == (len(codes), *spec.shape) and 0 <= encoded.min() <= encoded.max() <= 1
    return constraints.finished(spec, encoded, np.zeros(len(codes))).codes


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_comes_back_as_it_came(declared, tmp_path, name):
    entries, cells, dtype = KINDS[name]
    spec = declared(f"  {name}: {{{entries}}}\n").spec
    (tmp_path / "a.csv").write_text("".join(
        f'"{cell}",{y}\n' for cell, y in zip([name, *cells], ["y", "no", "yes", "no", "no", "no"],
                                             strict=False)))
    data = load(f"csv:{tmp_path / 'a.csv'}", schema=str(tmp_path / "s.yaml"))
    codes = transform.decode(spec, data.x_train)
    header, rows = constraints.written_cells(spec, codes, data.y_train)
    assert header == [name, "y"] and [row[0] for row in rows] == cells
    assert not data.private_notes and not data.uncovered
    frame = to_frame(spec, codes, data.y_train)
    types = ("object", "str") if dtype == "text" else dtype  # pandas 2 and 3
    assert str(frame[name].dtype).startswith(types) and frame["y"].dtype == bool
    back = frames.from_frame(frame, schema.read(str(tmp_path / "s.yaml")))
    np.testing.assert_array_equal(back.x_train, data.x_train)
    assert from_json(TableSpec, to_json(spec)) == spec == contents.spec(to_json(spec))


@pytest.mark.parametrize("name", KINDS)
def test_whatever_a_method_draws_can_be_written_and_read(declared, tmp_path, name):
    """Features that mean nothing: every cell that comes of them is one of the column's."""
    spec = declared(f"  {name}: {{{KINDS[name][0]}}}\n").spec
    (column,), rng = spec.columns, np.random.default_rng(0)
    encoded = np.concatenate([rng.normal(0.5, 1, (300, *spec.shape)),
                              np.full((1, *spec.shape), np.nan), np.ones((1, *spec.shape))])
    codes = transform.decode(spec, encoded)
    texts = transform.texts(column, codes[:, 0])
    (tmp_path / "a.csv").write_text(f"{name},y\n" + "".join(f'"{text}",no\n' for text in texts))
    data = load(f"csv:{tmp_path / 'a.csv'}", schema=str(tmp_path / "s.yaml"))
    assert not any("clipped" in note for note in data.private_notes)
    codes = through(spec, transform.decode(spec, data.x_train))[:, 0]
    assert transform.texts(column, codes) == texts
    assert len(set(texts)) >= min(20, len(column.categories) or 20)


@pytest.mark.parametrize(("name", "cell", "match"), [
    ("day", "2023-02-29", "line 2, column day: '2023-02-29' is not a date of the form %Y-%m-%d"),
    ("day", "today", "'today' is not a date"), ("day", "20230101", "is not a date"),
    ("day", "", "an empty cell, but the column is not nullable"),
    ("stamp", "2024-02-29", "is not a datetime of the form %Y-%m-%d %H:%M:%S"),
    ("noon", "13:00 PM", "is not a time of the form"), ("took", "1:60:00", "is not a duration"),
    ("took", "9" * 40 + ":00:00", "is not a duration of the form H:MM:SS"),
    ("price", "1.234,50", "is not a number of the form EUR 1.234,50"),
    ("price", "EUR 1.23,50", "is not a number"), ("price", "EUR 1_0", "is not a number"),
    ("price", "-EUR -5", "is not a number"), ("price", "EUR ", "is not a number"),
    ("weight", "1.5 kg", "1.5 kg is not a whole number"),
    ("spiked", "0.5", "0.5 is not a whole number"),
    ("alive", "yes", "'yes' is not a declared category"),
    ("flag", "1", "is not a declared category")])
def test_a_hostile_cell_is_one_line_with_row_and_column(declared, tmp_path, name, cell, match):
    declared(f"  {name}: {{{KINDS[name][0]}}}\n")
    (tmp_path / "a.csv").write_text(f'{name},y\n"{cell}",no\n')
    line = refused(match, load, f"csv:{tmp_path / 'a.csv'}", schema=str(tmp_path / "s.yaml"))
    assert "line 2" in line


@pytest.mark.parametrize(("entries", "match"), [
    ("kind: date, min: 2020-13-01, max: 2021-01-01", "min is '2020-13-01'; give a date"),
    ("kind: date, min: 2021-01-01, max: 2020-01-01", "min 2021-01-01 is above max"),
    ("kind: date, min: [1], max: 2020-01-01", "min is"),
    ("kind: date, min: 2020, max: 2021, format: '%Y'", "format is '%Y'.*a year and a month"),
    ("kind: date, min: a, max: b, format: '%Y-%m-%d %m'", "format is"),
    ("kind: date, min: a, max: b, format: '%Y-%m-%d %Q'", "format is"),
    ("kind: time, format: '%I:%M'", "a time has an hour"),
    ("kind: duration, min: '0:00', max: '9:00', format: 'D'", "known: H:MM:SS"),
    ("kind: continuous, min: 0, max: 1, unit: kg", "unit is 'kg'; write the text around"),
    ("kind: continuous, min: 0, max: 1, unit: '{}{}'", "unit is"),
    ("kind: continuous, min: 0, max: 1, thousands: '.'", "each is one sign"),
    ("kind: continuous, min: 0.005, max: 1, decimals: 2", "more digits than the 2 decimals"),
    ("kind: continuous, min: 0, max: 1, decimals: 99", "decimals is '99'; give 0 to 15"),
    ("kind: integer, min: 0, max: 9, decimals: 0", "decimals does not belong"),
    ("kind: integer, min: 0, max: 9, special: 99", "special is not a list"),
    ("kind: integer, min: 0, max: 9, special: [99, 99]", "special value '99'; each is given once"),
    ("kind: integer, min: 0, max: 9, special: [0.5]", "special value '0.5'"),
    ("kind: integer, min: 0, max: 9, special: [1e300]", "special value '1e300'"),
    ("kind: integer, min: 0, max: 8000000, scale: log", "not distinguished on a log scale"),
    ("kind: integer, min: 0, max: 9, scale: root", "scale is 'root'; write linear or log"),
    ("kind: boolean, categories: [a, b, c]", "a boolean has two, false first"),
    ("kind: boolean, categories: [Yes, yes]", "a boolean has two"),
    ("kind: codes, categories: {file: none.txt}", "none.txt not found"),
    ("kind: codes, categories: [a], other: [a]", "other is"),
    ("kind: identifier", "write one with # for each digit"),
    ("kind: identifier, pattern: X, nullable: true", "nullable does not belong.*never read"),
    ("kind: money, min: 0, max: 1", "unknown kind 'money'")])
def test_a_bad_entry_is_one_line_with_the_column(declared, entries, match):
    with pytest.raises(UserError, match=match) as caught:
        declared(f"  c: {{{entries}}}\n  b: {{kind: boolean}}\n")
    assert "\n" not in str(caught.value)
    assert "column c" in str(caught.value) or "none.txt" in str(caught.value)


def test_identifiers_are_never_read_and_always_new(declared, tmp_path):
    spec = declared("  a: {kind: integer, min: 0, max: 9}\n"
                    "  id: {kind: identifier, pattern: 'P-@#'}\n").spec
    assert spec.shape == (1,) and [column.name for column in spec.columns] == ["a"]
    found = []
    for ids in (["P-A1", "P-A1"], ["", "x" * 1000]):
        (tmp_path / "a.csv").write_text(f"id,y,a\n{ids[0]},no,3\n{ids[1]},yes,4\n")
        found.append(load(f"csv:{tmp_path / 'a.csv'}", schema=str(tmp_path / "s.yaml")))
    np.testing.assert_array_equal(found[0].x_train, found[1].x_train)
    codes, y = transform.decode(spec, found[0].x_train), found[0].y_train
    header, rows = constraints.written_cells(spec, codes, y)
    assert (header, rows) == (["a", "id", "y"], [["3", "P-A0", "no"], ["4", "P-A1", "yes"]])
    assert [row[1] for row in constraints.written_cells(spec, codes, y, first=9)[1]] == ["P-A9",
                                                                                         "P-B0"]
    assert to_frame(spec, codes, y)["id"].tolist() == ["P-A0", "P-A1"]
    with pytest.raises(UserError, match="'P-@#' has 260 identifiers, and 261 are needed"):
        constraints.written_cells(spec, codes, y, first=259)


def test_special_values_have_places_of_their_own(declared):
    spec = declared("  n: {kind: integer, min: 1, max: 11, special: [0, 99], nullable: true}\n"
                    "  m: {kind: continuous, min: 1, max: 100, scale: log}\n").spec
    assert spec.columns[0].parts == (("value", 1), ("onehot", 4)) and spec.shape == (6,)
    assert spec.blocks == ((0, 1), (1, 5), (5, 6))
    codes = np.array([[6, 10], [0, 1], [99, 100], [np.nan, 1]])
    np.testing.assert_allclose(transform.encode(spec, codes), [
        [0.5, 1, 0, 0, 0, 0.5], [0.5, 0, 1, 0, 0, 0], [0.5, 0, 0, 1, 0, 1], [0.5, 0, 0, 0, 1, 0]])
    np.testing.assert_allclose(through(spec, codes), codes)
