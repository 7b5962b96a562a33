"""CSV files with other separators and encodings: declared, drafted, or one line with the mend."""

import codecs

import pytest
from refusals import refused

from dpgen_jax import schema as schema_command
from dpgen_jax.core.types import UserError
from dpgen_jax.data import load
from dpgen_jax.data.table import schema

SCHEMA = """\
label: y
columns:
  caf\u00e9: {kind: continuous, min: 0, max: 99, decimal_mark: ","}
  b: {kind: categorical, categories: ["\u00fc, v", w]}
  y: {kind: categorical, categories: [p, q]}
"""
TEXT = "caf\u00e9;b;y\n1,5;\u00fc, v;p\n2,25;w;q\n"


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def inner(content: bytes, form: str = ""):
        (tmp_path / "a.csv").write_bytes(content)
        (tmp_path / "s.yaml").write_text(f"{form}\n{SCHEMA}", encoding="utf-8")
        return load("csv:a.csv", schema="s.yaml", test_csv="a.csv")
    return inner


@pytest.mark.parametrize(("separator", "encoding"), [
    ("semicolon", "utf-8"), (";", "cp1252"), ("tab", "latin-1"), ("bar", "utf-16"),
    ("semicolon", "utf-16-le"), ("bar", "utf-32")])
def test_what_is_declared_is_read(read, separator, encoding):
    sign = {"tab": "\t", "bar": "|"}.get(separator, ";")
    data = read(TEXT.replace(";", sign).encode(encoding),
                f'file: {{separator: "{separator}", encoding: {encoding}}}')
    assert data.x_train.shape == (2, 3) and (data.x_train == data.x_test).all()
    assert not data.private_notes and "semicolon" not in str(data.notes)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-le"])
def test_a_draft_tells_how_the_file_is_written(read, encoding):
    with pytest.raises(UserError):
        read(TEXT.encode(encoding))
    schema_command.command(["a.csv", "--label", "y", "--out", "d.yaml"])
    loaded = schema.read("d.yaml")
    assert loaded.dialect.separator == "semicolon"
    assert codecs.lookup(loaded.dialect.encoding).name in encoding
    assert [column.name for column in loaded.spec.columns] == ["caf\u00e9", "b"]
    assert len(load("csv:a.csv", schema="d.yaml").y_train) == 2


@pytest.mark.parametrize(("header", "cell", "encoding", "read_from_rows"), [
    ("caf\u00e9", "\u00fc", "cp1252", False), ("cafe", "\u00fc", "cp1252", True),
    ("cafe", "u", "cp1252", False), ("cafe", "\u00fc", "utf-8", False),
    ("caf\u00e9", "\u00fc", "utf-8", False), ("cafe", "\u00fc", "utf-16", False)])
def test_what_only_rows_tell_of_a_file_is_listed(tmp_path, monkeypatch, header, cell, encoding,
                                                 read_from_rows):
    """One cell that is not UTF-8 puts an encoding into a draft, whose schema must not hide it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_bytes(f"{header};b;y\n1;{cell};p\n2;w;q\n".encode(encoding))
    schema_command.command(["a.csv", "--label", "y", "--out", "d.yaml"])
    text = (tmp_path / "d.yaml").read_text(encoding="utf-8")
    assert ("encoding: cp1252  # read from private data" in text) == read_from_rows
    assert "separator: semicolon\n" in text
    what = "encoding of the file read from private data"
    assert (what in [entry.what for entry in schema.read("d.yaml").uncovered]) == read_from_rows
    assert load("csv:a.csv", schema="d.yaml").uncovered == schema.read("d.yaml").uncovered
    (tmp_path / "d.yaml").write_text(text[:text.index("read_from_data:")], encoding="utf-8")
    assert not load("csv:a.csv", schema="d.yaml").uncovered


def test_a_unit_named_file_takes_no_encoding_off_the_list(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"file,b,y\n1,\xfc,p\n2,w,q\n")
    (tmp_path / "s.yaml").write_text(
        "file: {encoding: cp1252}\nlabel: y\ncolumns:\n"
        "  file: {kind: integer, min: 0, max: 9}\n"
        "  b: {kind: categorical, categories: [\u00fc, w]}\n"
        "  y: {kind: categorical, categories: [p, q]}\n"
        "read_from_data: [file.encoding, file.max]\n", encoding="utf-8")
    data = load(f"csv:{tmp_path / 'a.csv'}", schema=str(tmp_path / "s.yaml"), unit="file",
                rows_per_unit=1)
    assert [entry.what for entry in data.uncovered] == [
        "encoding of the file read from private data"]


def test_a_draft_of_cells_over_several_lines_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text('a,y\n"1\n2",p\n3,q\n')
    words = ["a.csv", "--label", "y", "--out", "d.yaml"]
    refused(r"a.csv, line 2: a quote .*for a draft: --multiline", schema_command.command, words)
    schema_command.command([*words, "--multiline"])
    assert schema.read("d.yaml").dialect.multiline and load("csv:a.csv", schema="d.yaml").count == 2
    refused("d.yaml: where a record ends.*nothing was spent", schema_command.command,
            ["a.csv", "--schema", "d.yaml", "--schema-epsilon", "1", "--out", "e.yaml"])


@pytest.mark.parametrize(("content", "form", "match"), [
    (TEXT.encode("cp1252"), "", r"a.csv, line 1, cell 1: byte 0xe9 is not utf-8; save it as UTF-8, "
     r"or declare file: \{encoding: cp1252\}"),
    ("caf\u00e9,b,y\n".encode() + b"1,w,p\n" * 5000 + b"2,\xfc,q\n", "",
     "line 5002, cell 2: byte 0xfc is not utf-8"),
    (TEXT.encode("utf-16"), "", r"line 1, cell 1: byte 0xff.*\{encoding: utf-16\}"),
    (TEXT.replace("\u00e9", "e").encode("utf-16-le"), "", r"\{encoding: utf-16-le\}"),
    (TEXT.encode(), "", r"one cell with semicolons; .*declare file: \{separator: semicolon\}"),
    (TEXT.encode(), "file: {separator: tab}", "one cell with semicolons; separate .* by tabs"),
    (TEXT.encode(), "file: {separator: semicolon, encoding: ascii}", "0xc3 is not ascii"),
    (TEXT.encode("utf-8"), "file: {separator: semicolon, encoding: utf-16}", "no utf-16"),
    (TEXT.encode(), "file: {separator: ':'}", "separator is ':'; known: comma, semicolon"),
    (TEXT.encode(), "file: {encoding: klingon}", "encoding 'klingon' is not known"),
    (TEXT.encode(), "file: {encoding: base64}", "encoding 'base64' is not known"),
    (TEXT.encode(), "file: {seperator: tab}", "unknown key 'seperator', did you mean 'separator'"),
    (TEXT.encode(), "file: semicolon", "file is not a block of entries"),
    (TEXT.encode(), "file: {multiline: maybe}", "multiline is 'maybe'; write true or false"),
    (TEXT.encode(), "file: {encoding: cp037}", "encoding 'cp037' is not known"),
    (TEXT.encode(), "file: {encoding: utf-16, errors: replace}", "replace is not for utf-16"),
    (b"a;b\n1;2;3\n", "file: {separator: semicolon}", "line 2: 3 cells, .* holds a semicolon")])
def test_what_is_not_is_one_line_with_the_mend(read, content, form, match):
    line = refused(match, read, content, form)
    assert len(line) < 400
