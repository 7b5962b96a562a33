"""CSV files with other separators and encodings: declared, drafted, or one line with the mend."""

import codecs

import pytest

from dpgen_jax import schema as schema_command
from dpgen_jax.core.types import UserError
from dpgen_jax.data import load, schema

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


@pytest.mark.parametrize(("content", "form", "match"), [
    (TEXT.encode("cp1252"), "", r"a.csv, line 1, cell 1: byte 0xe9 is no utf-8; save it as UTF-8, "
     r"or declare file: \{encoding: cp1252\}"),
    ("caf\u00e9,b,y\n".encode() + b"1,w,p\n" * 5000 + b"2,\xfc,q\n", "",
     "line 5002, cell 2: byte 0xfc is no utf-8"),
    (TEXT.encode("utf-16"), "", r"line 1, cell 1: byte 0xff.*\{encoding: utf-16\}"),
    (TEXT.replace("\u00e9", "e").encode("utf-16-le"), "", r"\{encoding: utf-16-le\}"),
    (TEXT.encode(), "", r"one cell with semicolons; .*declare file: \{separator: semicolon\}"),
    (TEXT.encode(), "file: {separator: tab}", "one cell with semicolons; separate .* by tabs"),
    (TEXT.encode(), "file: {separator: semicolon, encoding: ascii}", "0xc3 is no ascii"),
    (TEXT.encode("utf-8"), "file: {separator: semicolon, encoding: utf-16}", "no utf-16"),
    (TEXT.encode(), "file: {separator: ':'}", "separator is ':'; known: comma, semicolon"),
    (TEXT.encode(), "file: {encoding: klingon}", "encoding 'klingon' is not known"),
    (TEXT.encode(), "file: {encoding: base64}", "encoding 'base64' is not known"),
    (TEXT.encode(), "file: {seperator: tab}", "unknown key 'seperator', did you mean 'separator'"),
    (TEXT.encode(), "file: semicolon", "file is no block of entries"),
    (b"a;b\n1;2;3\n", "file: {separator: semicolon}", "line 2: 3 cells, .* holds a semicolon")])
def test_what_is_not_is_one_line_with_the_mend(read, content, form, match):
    with pytest.raises(UserError, match=match) as caught:
        read(content, form)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400
