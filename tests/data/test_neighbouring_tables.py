"""Neighbouring files: one cell of a table changes, and nothing that is called public may follow.

What a run publishes of a data set (its name, schema, number of records, notes and purchases) must
be a function of the schema and of the number of rows, whatever a cell holds. A cell may also be
refused; that is said on the terminal alone.
"""

import dataclasses
import gzip
import io

import numpy as np
import pytest
from refusals import refused

from dpgen_jax.core.types import UserError
from dpgen_jax.data import load
from dpgen_jax.data.table import frames, parsing, subjects
from dpgen_jax.data.table import schema as schemas

SCHEMA = """\
label: grade
columns:
  age: {kind: integer, min: 18, max: 90, nullable: true}
  pay: {kind: continuous, min: 0, max: 500}
  job: {kind: categorical, categories: [cook, nurse, none], other: none}
  size: {kind: ordinal, categories: [S, M, L], nullable: true}
  born: {kind: date, min: 01.01.1950, max: 31.12.2010, format: "%d.%m.%Y", nullable: true}
  hours: {kind: integer, min: 1, max: 60, special: [0, 99], scale: log}
  owes: {kind: continuous, min: 0, max: 900, decimals: 2, unit: "EUR {}"}
  due: {kind: continuous, min: 0, max: 900, decimals: 2}
  sick: {kind: boolean}
  zip: {kind: codes, categories: ["10001", "10002", "other"], other: other}
  id: {kind: identifier, pattern: "#####"}
  grade: {kind: categorical, categories: [low, high, top]}
constraints: [owes <= due, sick = true -> hours = 0]
"""
HEADER = "age,pay,job,size,born,hours,owes,due,sick,zip,id,grade"
ROWS = [f"{20 + i},{10.5 * i},{('cook', 'nurse')[i % 2]},{'SML'[i % 3]},0{1 + i % 9}.12.1999,"
        f"{1 + i},EUR {i}.50,{i}.60,false,1000{1 + i % 2},x{i},{('low', 'high')[i % 2]}"
        for i in range(12)]
CHANGES = {  # column: cells that are no reason to refuse the file
    "age": ["55", "17", "1000000", "-1e300", "", "?", "NaN", " 40 "],
    "pay": ["250.25", "-1", "1e308", "0", "1e-320"],
    "job": ["nurse", "none", "astronaut", "caf\u00e9", "$x^2$", '"a, b"', '"two""quotes"',
            "x" * 9999, "a\x0bb", "a\u2028b", "\ufeffa", "\x1a", "\u202efools", "a\x00b",
            "|remark"],
    "size": ["L", "", "null"], "born": ["31.12.2010", "1.1.1900", "", "31.12.9999"],
    "hours": ["0", "99", "60", "100000"], "owes": ["EUR 0.00", "EUR 899", "EUR 1e300"],
    "due": ["0", "1e9"], "sick": ["TRUE", "True"], "zip": ["10002", "90210", "x" * 999],
    "id": ["", "x1", "\u202e", "00001", "NA", "x" * 9999],
    "grade": ["high", "top"]}
REFUSED = {
    "age": ["40.5", "old", "inf", "1_0"], "pay": ["", "NaN", "1e309", "x" * 9999],
    "job": ["", "NA", "x" * 200_000, '"open', '"two\nlines"', "two\nlines", "a\rb"],
    "size": ["XL", "s"],
    "born": ["1999-12-31", "31.02.2000", "0"], "hours": ["", "1.5", "1h"],
    "owes": ["5", "EUR", "USD 5", "EUR NaN"], "sick": ["", "0", "yes"], "zip": ["", "?"],
    "grade": ["", "mid", "LOW", "0"]}


@pytest.fixture
def read(tmp_path):
    """The data set of rows, as a CSV file of always the same name."""
    def inner(rows, schema=SCHEMA, **options):
        (tmp_path / "s.yaml").write_text(schema)
        (tmp_path / "people.csv").write_text("\n".join([HEADER, *rows]) + "\n", newline="")
        return load(f"csv:{tmp_path / 'people.csv'}", schema=str(tmp_path / "s.yaml"), **options)
    return inner


def public(data) -> dict:
    """All of a data set but the records, and what the data holder alone may see."""
    private = {"x_train", "y_train", "x_test", "y_test", "private_notes", "content", "clients"}
    return {field.name: getattr(data, field.name) for field in dataclasses.fields(data)
            if field.name not in private} | {
        "n": len(data.y_train), "shape": data.x_train.shape, "types": data.x_train.dtype,
        "held out": None if data.y_test is None else len(data.y_test)}


def with_cell(row: int, column: str, cell: str) -> list[str]:
    cells = ROWS[row].split(",")
    cells[HEADER.split(",").index(column)] = cell
    return [*ROWS[:row], ",".join(cells), *ROWS[row + 1:]]


def cases(table: dict[str, list[str]]) -> list:
    return [pytest.param(column, cell, id=f"{column}-{i}")
            for column, cells in table.items() for i, cell in enumerate(cells)]


@pytest.mark.parametrize(("column", "cell"), cases(CHANGES))
@pytest.mark.parametrize("row", [0, 11])
def test_a_changed_cell_changes_nothing_public(read, row, column, cell):
    before, after = read(ROWS), read(with_cell(row, column, cell))
    assert public(after) == public(before) and not after.uncovered
    rest = [i for i in range(len(ROWS)) if i != row]
    assert (after.x_train[rest] == before.x_train[rest]).all()
    assert (after.y_train[rest] == before.y_train[rest]).all()


@pytest.mark.parametrize(("column", "cell"), cases(REFUSED))
def test_or_the_file_is_refused_in_one_line(read, column, cell):
    with pytest.raises(UserError) as caught:
        read(with_cell(3, column, cell))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000


def test_a_whole_record_in_other_words(read):
    """All of a record at once, its place in the file too."""
    before = public(read(ROWS))
    other = '"","1e9","pilot","","","99","EUR 800","0","true","9","?","top"'
    assert public(read([*ROWS[:-1], other])) == before
    assert public(read(ROWS[::-1])) == before
    assert public(read([ROWS[0]] * len(ROWS))) == before  # no row of the second class


def test_rows_that_were_held_out_are_private_too(read, tmp_path):
    (tmp_path / "test.csv").write_text("\n".join([HEADER, *ROWS]))
    before = public(read(ROWS, test_csv=str(tmp_path / "test.csv")))
    (tmp_path / "test.csv").write_text("\n".join([HEADER, *with_cell(2, "age", "1000")]))
    assert public(read(ROWS, test_csv=str(tmp_path / "test.csv"))) == before


@pytest.mark.parametrize("row", [0, 7, 11])
def test_nothing_public_follows_where_a_share_is_held_out(read, row):
    before = read(ROWS, test_fraction=0.25)
    after = read(with_cell(row, "age", "55"), test_fraction=0.25)
    assert public(after) == public(before) and len(before.y_train) == 9
    for option in ({}, {"test_fraction": 0.5}):
        assert public(read(ROWS, **option)) != public(before)  # what is public says which share


def test_a_remark_is_the_first_line_of_a_public_file_and_no_record(tmp_path):
    """A record that begins with a bar stays one: n is the number of rows."""
    rows = ["39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, "
            "White, Male, 2174, 0, 40, United-States, <=50K"] * 3
    (tmp_path / "adult.test.gz").write_bytes(gzip.compress(
        ("|1x3 Cross validator\n" + "\n".join(rows)).encode()))
    (tmp_path / "adult.data").write_text("\n".join(rows))
    assert len(load(f"adult:{tmp_path}").y_test) == 3
    (tmp_path / "adult.data").write_text("\n".join([rows[0], "|" + rows[1], rows[2]]))
    refused("adult.data, line 2, column age", load, f"adult:{tmp_path}")


def test_an_empty_cell_of_the_only_column_is_no_record_less(tmp_path):
    """Some programs write it as an empty line; skipped, it would decide how many records count."""
    schema = tmp_path / "s.yaml"
    schema.write_text("columns:\n  a: {kind: continuous, min: 0, max: 10, nullable: true}\n")
    path = tmp_path / "a.csv"
    path.write_text('a\n1\n""\n3\n')
    assert load(f"csv:{path}", schema=str(schema)).count == 3
    path.write_text("a\n1\n\n3\n")
    with pytest.raises(UserError, match='a.csv, line 3: an empty line in a file of one column'):
        load(f"csv:{path}", schema=str(schema))


@pytest.mark.parametrize(("before", "after"), [("a,b\n1,2\n", "3,4\n"), ("a,b\n", "1,2\n3,4\n"),
                                               ("", "a,b\n1,2\n3,4\n"), ("", "")])
def test_no_file_of_empty_lines_is_read_for_hours(tmp_path, monkeypatch, before, after):
    monkeypatch.setattr(parsing, "MOST_EMPTY", 5)
    (tmp_path / "s.yaml").write_text("columns:\n  a: {kind: integer, min: 0, max: 10}\n"
                                     "  b: {kind: integer, min: 0, max: 10}\n")
    path = tmp_path / "a.csv"
    if after:
        path.write_text(before + "\n" * 5 + after + "\n" * 5)
        assert load(f"csv:{path}", schema=str(tmp_path / "s.yaml")).count == 2
    path.write_text(before + "\n" * 6 + after)
    line = before.count("\n") + 6
    with pytest.raises(UserError, match=f"a.csv, line {line}: the last 6 lines are empty"):
        load(f"csv:{path}", schema=str(tmp_path / "s.yaml"))


# Frames, of which pandas infers the types from all rows.

FRAME_SCHEMA = """\
label: grade
columns:
  code: {kind: codes, categories: ["001", "002", "010", other], other: other, nullable: true}
  card: {kind: codes, categories: ["9107199254740993", "9107199254740995", other], other: other,
         nullable: true}
  rank: {kind: categorical, categories: ["1", "2", "3.5", other], other: other, nullable: true}
  pair: {kind: categorical, categories: ["1", "01", other], other: other}
  well: {kind: categorical, categories: ["true", "false", other], other: other, nullable: true}
  sick: {kind: boolean, categories: ["no", "yes"], nullable: true}
  n: {kind: integer, min: 0, max: 90, nullable: true}
  pay: {kind: continuous, min: 0, max: 9999, nullable: true}
  sum: {kind: continuous, min: 0, max: 9999, decimal_mark: ",", thousands: ".", nullable: true}
  at: {kind: time, format: "%H%M", nullable: true}
  day: {kind: date, min: "01011990", max: "31122020", format: "%d%m%Y", nullable: true}
  month: {kind: date, min: "199001", max: "202012", format: "%Y%m", nullable: true}
  id: {kind: identifier, pattern: "#####"}
  grade: {kind: categorical, categories: ["0", "1"]}
"""
CELLS = {  # by column: the cells of the rows in turn
    "code": ["001", "002", "010"], "card": ["9107199254740993", "9107199254740995"],
    "rank": ["1", "2", "2.0", "01", "3.5", "7"], "pair": ["1"], "well": ["true", "FALSE", "True"],
    "sick": ["True", "False"], "n": ["7", "30"], "pay": ["12.34", "99"], "sum": ["1.234"],
    "at": ["0115", "1145"], "day": ["11021999", "31122000"], "month": ["199912", "201001"],
    "id": ["007", "12"], "grade": ["0", "1"]}
LONG = "99999999999999999999"
ODD_CELLS = ["", "?", "x01", "01", "1.0", "0.5", "1e300", LONG, "-1", "2020-02-29", "True", "1,5"]


def but(*cells):
    return tuple(cell for cell in ODD_CELLS if cell not in cells)


FRAMES = {  # by column: whether its rows are read, and the cells that have the frame refused
    "code": (True, ("1e300",)), "card": (True, ("", "1.0", "0.5", "1e300")),
    "rank": (True, ("1e300", LONG)), "pair": (False, but("x01", "2020-02-29", "True", "1,5")),
    "well": (True, ()), "sick": (True, but("", "?", "True")),
    "n": (True, ("x01", "0.5", "2020-02-29", "True", "1,5")),
    "pay": (True, ("x01", "2020-02-29", "True", "1,5")), "sum": (False, but("?", "1,5")),
    "at": (False, but("?")), "day": (True, but("", "?")), "month": (True, but("", "?")),
    "id": (True, ("1e300",)), "grade": (True, but("01", "1.0"))}


@pytest.fixture(params=["frame", "parquet"])
def framed(request, tmp_path):
    """Reads rows of which pandas infers the type of one column; None where they are refused."""
    pd = pytest.importorskip("pandas", reason="an extra: pip install dpgen_jax[pandas]")
    pytest.importorskip("pyarrow", reason="an extra")
    (tmp_path / "s.yaml").write_text(FRAME_SCHEMA)

    def inner(column, cell=None):
        table = {name: [cells[i % len(cells)] for i in range(12)] for name, cells in CELLS.items()}
        if cell is not None:
            table[column][4] = f'"{cell}"'
        text = "\n".join(map(",".join, (table, *zip(*table.values(), strict=True))))
        frame = pd.read_csv(io.StringIO(text), dtype=dict.fromkeys({*table} - {column}, "string"))
        try:
            if request.param == "frame" or cell == LONG:  # which pandas cannot write as Parquet
                return frames.from_frame(frame, schemas.read(str(tmp_path / "s.yaml")))
            frame.to_parquet(tmp_path / "a.parquet")
            return load(f"parquet:{tmp_path / 'a.parquet'}", schema=str(tmp_path / "s.yaml"))
        except UserError as error:
            assert "\n" not in str(error) and f", column {column}: " in str(error)
            return None
    return inner


@pytest.mark.parametrize("column", FRAMES)
def test_a_cell_changes_the_types_of_a_frame_and_no_other_row(framed, column):
    """A frame is refused where pandas has lost what other rows held."""
    before, changed = framed(column), {cell: framed(column, cell) for cell in ODD_CELLS}
    refused = tuple(cell for cell, after in changed.items() if after is None)
    assert (before is not None, refused) == FRAMES[column]
    whole = before or changed["x01"] or changed["?"]
    rest = [i for i in range(12) if i != 4]
    for after in filter(None, changed.values()):
        assert (after.spec, after.notes, after.uncovered) == (whole.spec, whole.notes, ())
        assert (after.x_train[rest] == whole.x_train[rest]).all()
        assert (after.y_train[rest] == whole.y_train[rest]).all()


def test_units_of_a_frame_are_told_apart_or_refused():
    """One person would be two units, as 7 and as 007 in pieces of a long file."""
    pd = pytest.importorskip("pandas", reason="an extra: pip install dpgen_jax[pandas]")
    document = {"columns": {"n": {"kind": "integer", "min": "0", "max": "9"}}}
    for names, match in (
            ([7, "007"], "column who: some units are texts and some are none.*'string'"),
            ([1e16, 2.0], "row 0, column who: 10000000000000000 may be another whole number"),
            (np.array([2**24, 1], np.float32), "row 0, column who: 16777216 may be another")):
        with pytest.raises(UserError, match=match):
            subjects.from_frame(pd.DataFrame({"n": [1, 2], "who": names}), document, "who", 1)
    kept = pd.DataFrame({"n": [1, 2], "who": pd.array([10**16, 10**16 + 1], "Int64")})
    assert subjects.from_frame(kept, document, "who", 1).subjects.count == 2
