"""Tables and schemas that would fill the memory or never end: refused in one line, by the number;
and work that is linear in columns and categories."""

import gzip
import json
import os
import sys
import tracemalloc

import pytest

from dpgen_jax import schema as schema_command
from dpgen_jax.core import files
from dpgen_jax.core.errors import MAX_COMPARED, nearest
from dpgen_jax.core.types import UserError
from dpgen_jax.data import load
from dpgen_jax.data.table import constraints, draft, parsing, schema, transform

SCHEMA = """\
label: y
columns:
  a: {kind: integer, min: 0, max: 99}
  y: {kind: categorical, categories: [p, q]}
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(SCHEMA)
    (tmp_path / "a.csv").write_text("a,y\n1,p\n2,q\n")
    return tmp_path


def refused(match, call, *args, **options):
    with pytest.raises(UserError, match=match) as caught:
        call(*args, **options)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


# --- memory

def test_a_gz_bomb_is_stopped_while_it_is_read(place):
    """4,000 bytes that unpack to 4 MB: never more are kept than allowed."""
    (place / "bomb.csv.gz").write_bytes(gzip.compress(b"a,y\n" + b"1,p\n" * 2**20))
    (place / "adult.data.gz").write_bytes(gzip.compress(b"1,p\n" * 2**20))
    with files.limited(1e-3):
        refused("adult.data.gz is larger than the .* GB that are allowed; .*--max-gb", load,
                "adult:.")
    with files.limited(4e-3):
        refused("rows of 1 encoded values takes 0.00.* GB", load, "csv:bomb.csv.gz",
                schema="s.yaml")
    (place / "bomb.csv.gz").write_bytes(gzip.compress(b"a,y\n" + b"1" * 2**21))
    with files.limited(4e-3):
        refused("line 2: longer than 40,000 bytes", load, "csv:bomb.csv.gz", schema="s.yaml")


def test_the_held_out_part_is_counted_too(place):
    (place / "b.csv.gz").write_bytes(gzip.compress(b"a,y\n" + b"1,p\n" * 2**20))
    with files.limited(4e-3):
        refused("rows of 1 encoded values takes", load, "csv:a.csv", schema="s.yaml",
                test_csv="b.csv.gz")


def test_a_draft_reads_within_a_limit_too(place):
    (place / "b.csv").write_text("a,y\n" + "1,p\n2,q\n" * 5_000)
    words = ["b.csv", "--label", "y", "--out", "new.yaml", "--max-gb"]
    refused("cells takes .*--max-gb", schema_command.command, [*words, "0.002"])
    schema_command.command([*words, "1"])


def test_what_the_cells_would_take_is_said_before_they_are_made(place):
    (place / "b.csv").write_text("a,y\n" + "1,p\n" * 10_000)
    with files.limited(2e-3):
        refused("b.csv: a table of 20,00. cells takes 0.00.* GB of memory, and 0.002 GB are .*"
                "--max-gb", parsing.read_csv, place / "b.csv")
    assert len(load("csv:b.csv", schema="s.yaml").y_train) == 10_000


def test_one_enormous_line_and_one_enormous_cell(place):
    (place / "b.csv").write_text("a,y\n" + "1," * 100_000)
    refused("line 2: 100001 cells, expected 2", load, "csv:b.csv", schema="s.yaml")
    with files.limited(5e-3):
        refused("line 2: longer than 50,000 bytes", load, "csv:b.csv", schema="s.yaml")
    (place / "b.csv").write_text("a,y\n1," + "p" * 10**6)
    refused("line 2: field larger than", load, "csv:b.csv", schema="s.yaml")
    (place / "b.csv").write_text("a,y\n" + "7" * 10**5 + ",p")
    refused(r"'777.*' is not a finite number|letters\) is not a finite number", load, "csv:b.csv",
            schema="s.yaml")


def test_what_the_encoded_table_would_take_is_said(place):
    wide = SCHEMA.replace("[p, q]", "[p, q]") + "  b: {kind: categorical, categories: [%s]}\n"
    (place / "s.yaml").write_text(wide % ", ".join(f"v{i}" for i in range(20_000)))
    (place / "a.csv").write_text("a,y,b\n" + "1,p,v7\n" * 20)
    with files.limited(4e-3):
        refused(r"a: 20 rows of 20,001 encoded values \(column b has 20,000.*\) takes 0.0048 GB",
                load, "csv:a.csv", schema="s.yaml")


def test_what_the_whole_file_would_take_is_said_at_its_first_rows(place, monkeypatch):
    """A machine may have no room long before as much is encoded as it has in all."""
    wide = SCHEMA + "  b: {kind: categorical, categories: [%s]}\n"
    (place / "s.yaml").write_text(wide % ", ".join(f"v{i}" for i in range(20_000)))
    (place / "a.csv").write_text("a,y,b\n" + "1,p,v7\n" * 50_000)
    monkeypatch.setattr("dpgen_jax.data.table.tables.encode", None)  # nothing is encoded
    with files.limited(3):
        refused(r"a.csv: about 50,00. rows of 20,001 encoded values \(column b has 20,000.*kind: "
                r"codes.*\) takes 4 GB", load, "csv:a.csv", schema="s.yaml")


def test_a_label_without_a_value_is_no_matter_of_nulls(place):
    (place / "a.csv").write_text("a,y\n1,p\n2,\n")
    refused("line 3, column y: an empty cell, but the column is not nullable; fill it in, or write "
            "odd: null at the label", load, "csv:a.csv", schema="s.yaml")


@pytest.mark.parametrize("row", ["1,p", "12,p", "12.3456789,p", "\U0001f600x,\u00e9",
                                 "1" * 99 + ",p"])
def test_reading_takes_no_more_than_the_estimate(place, row):
    """Which a run is refused by: so it must not be too low, nor many times too high."""
    (place / "b.csv").write_text("a,y\n" + f"{row}\n" * 20_000)
    logged = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(files, "require_memory", lambda what, needed: logged.append(needed))
        tracemalloc.start()
        try:
            parsing.read_csv(place / "b.csv")
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak <= logged[0] <= 4 * peak


# --- files that never end

@pytest.mark.parametrize("name", ["pipe", "/dev/zero", "."])
def test_only_regular_files_are_read(place, name):
    os.mkfifo(place / "pipe")
    refused("not a regular file", load, f"csv:{name}", schema="s.yaml")
    refused("not a regular file", load, "csv:a.csv", schema=name)
    refused("not a regular file", load, "csv:a.csv", schema="s.yaml", test_csv=name)
    refused("not a regular file", schema_command.command,
            [name, "--label", "y", "--out", "new.yaml"])
    refused("not a regular file", schema_command.command, [
        "a.csv", "--schema", name, "--schema-epsilon", "1", "--out", "new.yaml"])


# --- YAML

def test_a_billion_laughs_are_one_line(place):
    laughs = "a: &a [x, x]\n" + "".join(
        f"{new}: &{new} [{', '.join(['*' + old] * 9)}]\n"
        for old, new in zip("abcdefghi", "bcdefghij", strict=True))
    (place / "s.yaml").write_text(laughs)
    refused("s.yaml, line 1: anchors .* and aliases .* are not read", schema.read, "s.yaml")
    (place / "s.yaml").write_text("label: *y\ncolumns: {}\n")
    refused("s.yaml, line 1: anchors", schema.read, "s.yaml")


@pytest.mark.parametrize("text", ["[" * 10_000, "{a: " * 10_000, "- " * 10_000, "? " * 10_000])
@pytest.mark.parametrize("head", ["", "label: "])
def test_deep_nesting_is_one_line(place, head, text):
    (place / "s.yaml").write_text(head + text)
    refused("levels of nesting|correct the YAML", schema.read, "s.yaml")


@pytest.mark.parametrize(("text", "match"), [
    ('label: "\\ud800"', "correct the YAML"), ("label: a\n---\nlabel: b", "a second document"),
    ("label: !!python/object/apply:os.system [x]", "a schema has"), ("{a: b}: c", "unhashable")])
def test_other_yaml(place, text, match):
    (place / "s.yaml").write_text(text)
    refused(match, schema.read, "s.yaml")


def test_a_schema_has_a_size(place, monkeypatch):
    monkeypatch.setattr(schema, "MOST_BYTES", 100)
    (place / "s.yaml").write_text(SCHEMA + "#" * 100)
    refused("s.yaml is larger than", schema.read, "s.yaml")


# --- growth

def calls(work, *args) -> int:
    """Lines of Python and calls into C that the work takes: the same on every machine."""
    count = 0

    def step(frame, event, arg):
        nonlocal count
        count += 1
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        work(*args)
    finally:
        sys.settrace(before)
    return count


class Text(str):
    """Counts how often texts are compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Text.compared += 1
        return str.__eq__(self, other)


def document(columns: int, categories: int) -> dict:
    """A schema of unequal texts, whose comparisons are counted."""
    names = [Text(f"c{i}") for i in range(columns)]
    texts = [Text(f"v{i}") for i in range(categories)]
    made = {name: {"kind": "categorical", "categories": list(texts), "other": texts[0]}
            for name in names}
    return {"label": "y", "columns": made | {"y": {"kind": "ordinal", "categories": ["p", "q"]}},
            "read_from_data": [Text(f"{name}.categories") for name in names]}


def everything(columns: int, categories: int) -> None:
    """From the document of a schema to the cells of a table and back, and a draft."""
    parsed = schema.parse(document(columns, categories), "s")
    texts = [Text(f"v{3 * i % (2 * categories)}") for i in range(10)]
    cells = parsing.Cells("a", {Text(f"c{i}"): texts for i in range(columns)}
                          | {"y": ["p", "q"] * 5}, [f"line {i}" for i in range(10)])
    found = parsing.coded(parsed, cells)
    decoded = transform.decode(parsed.spec, transform.encode(parsed.spec, found.codes))
    constraints.written_cells(parsed.spec, decoded, found.y)
    draft.render(json.loads(json.dumps(document(columns, min(categories, 10)))), "a.csv")


@pytest.mark.parametrize(("columns", "categories"), [((50, 500), (5, 5)), ((2, 2), (200, 2000))])
def test_ten_times_as_much_is_ten_times_the_work(columns, categories):
    """Columns, then categories: of lines that run, and of texts that are compared."""
    work = []
    for size in zip(columns, categories, strict=True):
        Text.compared = 0
        work.append((calls(everything, *size), Text.compared))
    assert work[1][0] < 13 * work[0][0]
    assert work[1][1] < 13 * work[0][1] + 1000


def test_a_wrong_name_is_compared_with_some(place):
    known = [f"v{i}" for i in range(100 * MAX_COMPARED)]
    assert calls(nearest, "w77", known) < 3 * calls(nearest, "w77", known[:MAX_COMPARED])
    assert nearest("v3O", known) and not nearest("v" * 10**5, ["v" * 10**5 + "v"])


def test_messages_stay_short(place):
    (place / "s.yaml").write_text("label: z\ncolumns:\n" + "".join(
        f"  c{i}: {{kind: integer, min: 0, max: 9}}\n" for i in range(1000)))
    refused("one of: c0, c1, .* and 980 more", schema.read, "s.yaml")


def test_a_label_has_at_most_so_many_classes(place):
    many = ", ".join(f"v{i}" for i in range(schema.MAX_CLASSES + 1))
    (place / "s.yaml").write_text(SCHEMA.replace("p, q", many))
    refused("column y: the label has 1,001 classes, and at most 1,000", schema.read, "s.yaml")


def test_the_layout_of_a_table_is_computed_once():
    spec = schema.parse(document(3, 3), "s").spec
    assert spec.shape is spec.shape and spec.blocks is spec.blocks
