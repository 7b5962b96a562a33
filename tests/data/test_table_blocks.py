"""Tables in blocks of rows: what is read is the same as ever, and one block is in memory."""

import hashlib
import tracemalloc

import numpy as np
import pytest
from refusals import refused

from dpgen_jax.data import load
from dpgen_jax.data.table import parsing
from dpgen_jax.private.records import assign

SCHEMA = """\
label: Class
columns:
  age: {kind: integer, min: 0, max: 120, nullable: true}
  Class: {kind: categorical, categories: ["0", "1", "2"], odd: ""}
  pay: {kind: continuous, min: -10, max: 1000}
  job: {kind: categorical, categories: [cook, "a, b", nurse], other: nurse}
  size: {kind: ordinal, categories: [S, M, L], odd: M}
  born: {kind: date, format: "%Y-%m-%d", min: "1900-01-01", max: "2020-12-31"}
constraints:
  - age <= pay
"""
DIGESTS = ["d1130d42f6f8e901", "2f741cba2ba355b1", "20b441d5f4459b81", "3c4b2059328883a1"]
"""The digests of the parts of a table that is read as a whole."""


def text(rows=1000):
    """A table with null, odd and undeclared cells, values outside bounds, and empty lines."""
    lines = ["pay,size,job,age,Class,born"]
    jobs, sizes = ("cook", '"a, b"', "nurse", "miner"), ("S", "M", "L", "XL")
    for i in range(rows):
        lines.append(f"{(i * 37 % 2203) / 2},{sizes[i % 7 % 4]},{jobs[i * i % 4]},"
                     f"{'' if i % 11 == 0 else i * 7 % 130},{i % 4 if i % 50 else 'x'},"
                     f"{1950 + i % 60}-{i % 12 + 1:02d}-{i % 28 + 1:02d}")
        lines += [""] * (i % 100 == 99)
    return "\n".join(lines) + "\n"


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Loads a text as a table, in blocks of some rows."""
    def inner(content, rows=None, **options):
        if rows:
            monkeypatch.setattr(parsing, "BLOCK_CELLS", rows * 6)
        (tmp_path / "s.yaml").write_text(SCHEMA)
        (tmp_path / "t.csv").write_text(content)
        return load(f"csv:{tmp_path / 't.csv'}", schema=str(tmp_path / "s.yaml"), **options)
    return inner


def digest(array):
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=8).hexdigest()


@pytest.mark.parametrize("rows", [None, 1, 7, 500, 999, 1000])
def test_what_is_read_stays_what_it_was_whatever_a_block_holds(read, rows):
    data = read(text(), rows, test_fraction=0.2)
    assert [digest(part) for part in (data.x_train, data.y_train, data.x_test, data.y_test)
            ] == DIGESTS
    odd, clipped, broken = data.private_notes
    assert odd.endswith("the value `odd` of the schema (column size: 143, Class: 270)")
    assert clipped.endswith("of the schema were clipped (column age: 62, pay: 87)")
    assert broken.endswith("50 rows break the constraint age <= pay")


@pytest.mark.parametrize("rows", [1, 7, 500])
def test_subjects_are_the_same_whatever_a_block_holds(read, rows):
    lines = text(300).splitlines()
    content = "\n".join(f"{line},{'who' if i == 0 else f'p{i % 37 * 7}'}" if line else ""
                        for i, line in enumerate(lines))
    whole = read(content, unit="who", rows_per_unit=3, test_fraction=0.3)
    data = read(content, rows, unit="who", rows_per_unit=3, test_fraction=0.3)
    for name in ("x_train", "y_train", "x_test", "y_test"):
        np.testing.assert_array_equal(getattr(data, name), getattr(whole, name))
    for name in ("ids", "train", "test"):
        np.testing.assert_array_equal(getattr(data.subjects, name), getattr(whole.subjects, name))


def test_the_partition_of_records_stays_what_it_was():
    assert digest(assign(997, 10, b"k" * 32).index) == "fefb0a7a4a4765b2"


@pytest.mark.parametrize(("old", "new", "match"), [
    ("18.5,M", "x,M", "line 3, column pay: 'x' is not a finite number"),
    ("\n18.5,M", "\n\n18.5,M,", "line 4: 7 cells, expected 6"),
    ("\n18.5,M", '\n"18.5,M', "correct the quotes"),
    ("\n18.5,M", "\n18.5,M\n\n\n18.5,M", "line 3: 2 cells, expected 6")])
def test_errors_of_later_blocks_name_the_line_and_the_column(read, old, new, match):
    assert text(30).count(old) == 1
    refused(match, read, text(30).replace(old, new), 1)


def test_a_table_without_rows(read):
    refused(r"t\.csv: no rows; at least 1 is needed", read, text(0), 1)


def test_a_class_that_is_in_one_block_only_is_not_absent(read):
    lines = text(8).splitlines()
    assert not any("no rows of the class" in note for note in read("\n".join(lines), 2
                                                                   ).private_notes)


def test_the_memory_grows_by_the_encoded_rows(read):
    """It is 36 bytes a row, beside what is set aside for more of them; texts would take 900."""
    peaks, rows = [], (500, 500, 2000)  # the first time much is made that stays
    for n in rows:
        content = text(n)
        tracemalloc.start()
        try:
            read(content, 100)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[2] - peaks[1] < 2 * 36 * (rows[2] - rows[1])
