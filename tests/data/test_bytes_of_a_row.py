"""One record, one row: whatever bytes a cell of a CSV file holds, all other rows are read as ever.

A file is refused at the line of that record, or the other rows are what they were, and as many.
"""

import contextlib
import encodings.aliases
import io
import itertools
from pathlib import Path

import pytest
from refusals import refused

from dpgen_jax.core import files
from dpgen_jax.core.types import UserError
from dpgen_jax.data import load
from dpgen_jax.data.table import parsing, schema
from dpgen_jax.data.table.schema import declared_dialect

KNOWN = sorted({*encodings.aliases.aliases.values(), "utf_8_sig", "idna", "punycode",
                "unicode_escape", "raw_unicode_escape", "undefined"})
"""All encodings of Python, and codecs that are none."""
ROWS = [("a1", "b1", "c1"), ("a2", "b2", "c2"), ("a3", "b3", "c3"), ("a4", "b4", "c4")]
CHANGED = 2
LINE = CHANGED + 2
SIGNS = b',"\r\n'
"""Bytes that have a meaning in a file, which are tested apart."""
SECOND = [0, 0x0e, 0x0f, 0x1b, 0x20, 0x24, 0x28, 0x30, 0x39, 0x3b, 0x40, 0x42, 0x5c, 0x7b, 0x7c,
          0x7d, 0x7e, 0x7f, 0x80, 0x81, 0x8e, 0x8f, 0xa1, 0xbf, 0xd8, 0xfe, 0xff]
"""Bytes behind a lead byte: shifts, escapes, the ends of the ranges of second bytes, separators."""


def accepted(**entries) -> list[str]:
    """The encodings that a schema may declare."""
    found = []
    for name in KNOWN:
        try:
            declared_dialect({"encoding": name} | entries)
            found.append(name)
        except UserError as error:
            assert "\n" not in str(error)
    return found


REPLACED = accepted(errors="replace")
STRICT_ONLY = [name for name in accepted() if name not in REPLACED]


def encoded(text: str, encoding: str) -> bytes:
    """A text without a mark, as it stands in the middle of a file."""
    mark = "".encode(encoding)
    return text.encode(encoding)[len(mark):]


def file_with(spoilt: bytes, place: int, encoding: str) -> bytes:
    """The bytes of the file, with some bytes behind a cell of the record that changes."""
    data = "x,y,z\n".encode(encoding)
    for i, row in enumerate(ROWS):
        for k, cell in enumerate(row):
            data += encoded(cell, encoding) + spoilt * ((i, k) == (CHANGED, place))
            data += encoded(",\n"[k == 2], encoding)
    return data


@pytest.fixture
def read(monkeypatch):
    """Reads the rows of a file that lies in memory, since thousands are read."""
    def inner(data: bytes, how: schema.Dialect) -> list[tuple[str, ...]]:
        monkeypatch.setattr(files, "opened", lambda _: contextlib.nullcontext(io.BytesIO(data)))
        cells = parsing.joined(list(parsing.csv_blocks(Path("a.csv"), dialect=how)))
        return list(zip(*cells.columns.values(), strict=True))

    with files.limited(1):
        yield inner


def others(read, data: bytes, how, more: int = 0) -> list[tuple[str, ...]] | None:
    """The rows but the one that changed; None where the file is refused at a line of that row."""
    try:
        rows = read(data, how)
    except UserError as error:
        assert any(f"a.csv, line {LINE + i}" in str(error) for i in range(more + 1)), error
        assert "\n" not in str(error)
        return None
    return [*rows[:CHANGED], *rows[CHANGED + 1:]]


KEPT = [*ROWS[:CHANGED], *ROWS[CHANGED + 1:]]


def test_every_encoding_is_replaced_strict_or_refused():
    assert {"utf_8", "cp1252", "latin_1", "gb18030", "shift_jis", "big5"} <= {*REPLACED}
    wide = [f"utf_{bits}{order}" for bits in (16, 32) for order in ("", "_be", "_le")]
    assert {*wide, "hz", "utf_7", "iso2022_jp"} <= {*STRICT_ONLY}
    for name in ("cp037", "idna", "punycode", "unicode_escape", "undefined", "base64_codec"):
        assert name not in REPLACED + STRICT_ONLY  # no lines, or lines with another end


@pytest.mark.parametrize("encoding", STRICT_ONLY)
def test_replace_is_refused_where_a_byte_changes_what_follows(encoding):
    with pytest.raises(UserError, match="errors: replace is not for .*; leave errors out"):
        declared_dialect({"encoding": encoding, "errors": "replace"})


def check_many(read, encoding, spoilt, place):
    """Many spoilt rows in one file, each between two good ones, since no byte is an error."""
    good, bad = encoded("a1,b1,c1\n", encoding), [encoded(part, encoding) for part in (
        "a1", ",b1", ",c1")]
    cells = [b"".join(part + extra * (k == place) for k, part in enumerate(bad))
             for extra in spoilt]
    data = "x,y,z\n".encode(encoding) + good + b"".join(
        row + encoded("\n", encoding) + good for row in cells)
    rows = read(data, declared_dialect({"encoding": encoding, "errors": "replace"}))
    assert len(rows) == 2 * len(spoilt) + 1
    assert {*rows[::2]} == {("a1", "b1", "c1")}


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("encoding", REPLACED)
def test_no_byte_that_is_replaced_changes_another_row(read, encoding, place):
    single = [bytes([byte]) for byte in range(256) if byte not in SIGNS]
    pairs = [bytes(pair) for pair in itertools.product(range(128, 256), SECOND)]
    check_many(read, encoding, single + pairs, place)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", REPLACED)
def test_no_pair_of_bytes_does(read, encoding):
    pairs = [bytes(pair) for pair in itertools.product(range(256), repeat=2)
             if not {*pair} & {*SIGNS}]
    check_many(read, encoding, pairs, 2)


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("encoding", [*STRICT_ONLY, "utf_8", "cp1252", "gb18030", "shift_jis"])
def test_no_byte_of_a_strict_file_changes_another_row(read, encoding, place):
    how = declared_dialect({"encoding": encoding})
    assert others(read, file_with(b"", place, encoding), how) == KEPT
    outcomes = [others(read, file_with(bytes([byte]), place, encoding), how)
                for byte in range(256)]
    assert all(rows in (None, KEPT) for rows in outcomes) and None in outcomes
    if encoding.replace("_", "-") in schema.WIDE:
        assert not any(outcomes)  # every byte too many is noticed


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("encoding", STRICT_ONLY)
def test_no_two_or_three_bytes_of_a_strict_file_do(read, encoding, place):
    how = declared_dialect({"encoding": encoding})
    runs = [*itertools.product(range(256), SECOND), *itertools.product(SECOND, range(256)),
            *itertools.product((0x1b, 0x7e, 0x2b), SECOND, SECOND)]
    for run in runs:
        rows = others(read, file_with(bytes(run), place, encoding), how, run.count(10))
        assert rows in (None, KEPT), run


@pytest.mark.parametrize("text", [
    ",", '"', "\n", "\r", "\r\n", "\n\n", "\n\r", '"\n', '\n"', '",', ',"', "\0", "\x1a", "\v",
    "\f", "\x1c", "\x85", "\u2028", "\ufeff", " ", "\\", "'", "#"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32-be", "gb18030", "utf-7"])
def test_signs_of_a_file_are_refused_in_their_row_or_change_it_alone(read, encoding, text):
    how = declared_dialect({"encoding": encoding})
    row = ",".join(ROWS[CHANGED])
    for at in range(len(row) + 1):
        lines = [",".join(cells) for cells in ROWS]
        lines[CHANGED] = row[:at] + text + row[at:]
        data = "\n".join(["x,y,z", *lines, ""]).encode(encoding)
        assert others(read, data, how, text.count("\n")) in (None, KEPT), at


@pytest.mark.parametrize(("row", "match"), [
    ('a3,"b3,c3', "line 4: a quote is not closed on its line; correct the quotes, or declare file: "
     r"\{multiline: true\} in the schema"), ('a3,b3,"', "line 4: a quote is not closed"),
    ("a3,b\r3,c3", "line 4: a carriage return within the line"),
    ("a3,b3", "line 4: 2 cells, expected 3"), ("a3,b\n3,c3", "line 4: 2 cells, expected 3"),
    ("a3,b3,c3,", "line 4: 4 cells, expected 3")])
@pytest.mark.parametrize("last", [False, True])
def test_the_row_is_named_with_the_mend(tmp_path, row, match, last):
    lines = ["x,y,z", *(",".join(cells) for cells in ROWS)]
    lines[LINE - 1] = row
    (tmp_path / "a.csv").write_bytes("\n".join(lines[:LINE] if last else lines).encode())
    refused(match, parsing.read_csv, tmp_path / "a.csv")


def test_lines_that_end_as_those_of_old_macs_are_one_error(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"x,y\r1,2\r3,4\r")
    refused(r"line 1: a carriage return .* \(LF or CRLF\)", parsing.read_csv, tmp_path / "a.csv")


SCHEMA = """\
label: y
columns:
  x: {kind: categorical, categories: [a, other], other: other}
  y: {kind: categorical, categories: [p, q]}
"""
OPEN = 'x,y\na,p\n"a,q\na,p\na",q\n'


def test_cells_over_several_lines_are_declared_and_not_covered(tmp_path):
    """One stray quote takes three records into a cell, which no reader could tell."""
    path, form = tmp_path / "a.csv", tmp_path / "s.yaml"
    form.write_text(SCHEMA)
    path.write_text(OPEN)
    refused(r"a.csv, line 3: a quote .*\{multiline: true\}", load, f"csv:{path}", schema=str(form))
    form.write_text("file: {multiline: true}\n" + SCHEMA)
    data = load(f"csv:{path}", schema=str(form))
    assert data.count == 2 and load_count(path, form, OPEN.replace('"a,q', "a,q")) == 4
    (entry,) = data.uncovered
    assert "how many there are, is read from the quotes of single records" in entry.what
    path.write_text('x,y\n"a\n')
    with pytest.raises(UserError, match="line 2: unexpected end of data; correct the quotes"):
        load(f"csv:{path}", schema=str(form))


def load_count(path, form, text):
    path.write_text(text)
    return load(f"csv:{path}", schema=str(form)).count
