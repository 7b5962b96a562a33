"""Tables that are no good, a schema drafted by command, and DataLens on a table."""

import json
import re

import jax
import numpy as np
import pytest
import runs

from dpgen_jax import data, schema, train
from dpgen_jax.core.types import UserError
from dpgen_jax.run import lifecycle

N = 60
HEADER = "n,x,size,kind"
ROWS = [f"{i % 10},{i / N:.3f},{'SML'[i % 3]},{'ab'[i % 4 == 0]}" for i in range(N)]
TEXT = "\n".join([HEADER, *ROWS]) + "\n"
SCHEMA = """\
label: kind
columns:
  n: {kind: integer, min: 0, max: 9}
  x: {kind: continuous, min: 0, max: 1}
  size: {kind: ordinal, categories: [S, M, L]}
  kind: {kind: categorical, categories: [a, b]}
"""
FLAGS = ["--test-fraction", "0", "--delta", "1e-3", "--teachers", "8", "--batch", "4",
         "--steps", "2", "--devices", "1", "--chunk", "8", "--steps-per-call", "1",
         "--generator.latent", "3", "--generator.hidden", "8", "--discriminator.hidden", "4"]
NAMED = ["--dataset", "csv:shop.csv", "--schema", "shop.yaml", "--out", "new"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.csv").write_text(TEXT)
    (tmp_path / "shop.yaml").write_text(SCHEMA)
    return tmp_path


def refused(place, message, *flags):
    """The command says one line, with exit code 2, and leaves everything as it was."""
    before = runs.snapshot(place)
    with pytest.raises(UserError) as caught:
        train.command(["gpate", *NAMED, *FLAGS, *flags])
    assert re.search(message, str(caught.value)), caught.value
    assert "\n" not in str(caught.value) and caught.value.exit_code == 2
    assert runs.snapshot(place) == before and not (place / "new").exists()


def column(text, cells):
    """The text with one more column."""
    return "".join(f"{line},{cell}\n" for line, cell in zip(text.splitlines(), cells, strict=True))


FIRST = ROWS[0]  # 0,0.000,S,b in line 2
FILES = {
    "NaN": (TEXT.replace(FIRST, "0,NaN,S,b"), "line 2, column x: null .'NaN'"),
    "infinity": (TEXT.replace(FIRST, "0,-inf,S,b"), "column x: '-inf' is not a finite number"),
    "an empty cell": (TEXT.replace(FIRST, "0,,S,b"), "line 2, column x: an empty cell"),
    "an empty class": (TEXT.replace(FIRST, "0,0,S,"), "line 2, column kind: an empty cell"),
    "text for a number": (TEXT.replace(FIRST, "zero,0,S,b"), "line 2, column n: 'zero' is no"),
    "no whole number": (TEXT.replace(FIRST, "0.5,0,S,b"), "line 2, column n: 0.5 is not a whole"),
    "an unknown category": (TEXT.replace(FIRST, "0,0,XL,b"), "line 2, column size: 'XL' is not a "
                            "declared category"),
    "an unknown class": (TEXT.replace(FIRST, "0,0,S,c"), "column kind: 'c' is not a declared"),
    "a short line": (TEXT.replace(FIRST, "0,0,S"), "line 2: 3 cells, expected 4"),
    "a missing column": (TEXT.replace("size", "sise"), "'size' is missing, did you mean 'sise'"),
    "an extra column": (column(TEXT, ["id", *range(N)]),
                        "1 column is not declared, .*nothing was spent|'id' is not declared"),
    "a name twice": (column(TEXT, ["n", *range(N)]), "column 'n' is named twice"),
    "semicolons": (TEXT.replace(",", ";"), "one cell with semicolons; separate .* by commas"),
    "tabs": (TEXT.replace(",", "\t"), "one cell with tabs"),
    "no header": ("\n".join(ROWS), "column 'n' is missing"),
    "no rows": (HEADER + "\n", "no rows; at least 1 is needed"),
    "nothing": ("", "is empty; its first line must name the columns"),
    "one row": ("\n".join([HEADER, FIRST]), "1 records cannot be dealt to 8 teachers")}


@pytest.mark.parametrize("what", FILES)
def test_a_bad_file_is_one_clear_line(place, what):
    text, message = FILES[what]
    (place / "shop.csv").write_text(text)
    refused(place, message)
    (place / "held.csv").write_text(text)
    (place / "shop.csv").write_text(TEXT)
    if what != "one row":  # enough to test on
        refused(place, f"held.csv.*(?:{message})", "--test-csv", "held.csv")


def test_a_file_in_another_encoding(place):
    (place / "shop.csv").write_bytes(TEXT.replace("S", "\u00dc").encode("latin-1"))
    refused(place, "shop.csv, line 2, cell 3: byte 0xdc is not utf-8; save it as UTF-8")


@pytest.mark.parametrize(("old", "new", "message"), [
    ("min: 0, max: 9", "min: 9, max: 0", "column n: min 9 is above max 0; swap them"),
    ("min: 0, max: 1", "min: 0, max: inf", "column x: max is 'inf'; give a finite number"),
    ("  x:", "  n:", "line 4: 'n' is given twice"),
    ("label: kind\n", "label:\n", "the label has no name; write `label: NAME`"),
    ("label: kind", "label: kinds", "label 'kinds' is not a column, did you mean 'kind'"),
    ("label: kind", "label: x", "column x: the label is of kind continuous"),
    ("[a, b]", "[a]", "column kind: the label has 1 class; declare 2 or more"),
    ("[a, b]", "[a, b, a]", "column kind: category 'a' is given twice"),
    ("min: 0, max: 9", "min: 0", "column n: max is missing"),
    ("min: 0, max: 9", "min: private, max: private", "column n: min is still `private`"),
    ("integer", "whole", "column n: unknown kind 'whole'"),
    (SCHEMA, "label: [", ", line [12]: .*correct the YAML")])
def test_a_bad_schema_is_one_clear_line(place, old, new, message):
    assert SCHEMA.count(old) == 1
    (place / "shop.yaml").write_text(SCHEMA.replace(old, new))
    refused(place, f"shop.yaml.*{message}")


@pytest.mark.parametrize(("flags", "message"), [
    (["--dataset", "csv:none.csv"], "none.csv not found"),
    (["--schema", "none.yaml"], "none.yaml not found"),
    (["--test-csv", "none.csv"], "none.csv not found"),
    (["--classes", "2"], "--classes does not apply to csv"),
    (["--aggregate", "gnmax", "--projection", "2", "--bins", "9"], "9 bins for 8 votes"),
    (["--projection", "4"], "projection is 4; the records have only 3 features"),
    (["--teachers", "61"], "60 records cannot be dealt to 61 teachers"),
    (["--delta", "0.02"], "does not protect 60 records"),
    (["--class-epsilon", "-1"], "class_epsilon is -1"),
    (["--preset", "tables"], "unknown preset 'tables' of gpate, did you mean 'table'"),
    (["--resume"], "no run to resume")])
def test_bad_options_are_one_clear_line(place, flags, message):
    refused(place, message, *flags)


def test_a_table_without_a_schema(place):
    with pytest.raises(UserError, match="4 columns are not declared, .*nothing was spent"):
        train.command(["gpate", "--dataset", "csv:shop.csv"])
    assert not (place / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("text", "flags", "message"), [
    (TEXT.replace(FIRST, "0,NaN,S,b"), FLAGS, "shop.csv, line 2, column x: null"),
    (TEXT, ["--preset", "table", "--delta", "1e-3", "--test-fraction", "0"],
     "60 records cannot be dealt to 400 teachers")])
def test_the_process_ends_with_code_2_and_one_line(place, text, flags, message):
    (place / "shop.csv").write_text(text)
    done = runs.command("train", "gpate", *NAMED, *flags, cwd=place)
    assert done.returncode == 2 and message in done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert not (place / "new").exists()


@pytest.mark.slow
def test_datalens_on_a_table_of_one_class_with_a_drafted_schema(place, capsys):
    """The draft owns up to what it read, and so does the statement. Fewer features than top_k all
    vote."""
    (place / "shop.csv").write_bytes(("\ufeff" + TEXT).replace("\n", "\r\n").encode())
    schema.command(["shop.csv", "--label", "kind", "--out", "draft.yaml"])
    said = capsys.readouterr()
    assert said.err == ""
    (place / "shop.csv").write_text("\n".join([HEADER, *(r for r in ROWS if r[-1] == "a")]))
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        train.command(["datalens", "--preset", "glyphs", "--dataset", "csv:shop.csv", "--schema",
                       "draft.yaml", "--out", "new", "--accept-uncovered", "--top-k", "200",
                       *FLAGS])
    finally:
        jax.config.update("jax_disable_most_optimizations", False)
    assert "no rows of the class b (column kind)" in capsys.readouterr().err
    notes = [f"{entry} read from private data" for entry in (
        "kinds of n, x, size", "bounds of n, x", "nullability of n, x, size", "format of x",
        "categories of size, kind")]
    assert all(f"note: not covered by epsilon: {note}" in said.out for note in notes)
    loaded = data.load("csv:shop.csv", schema="draft.yaml")
    assert [entry.what for entry in loaded.uncovered] == notes
    privacy = json.loads((place / "new/release/privacy.json").read_text())
    assert privacy["guarantee"] == f"not covered: {'; '.join(notes)}"
    (event,) = privacy["events"]
    assert event["sensitivity"] >= 2 * np.sqrt(4 * 3) and event["count"] == 2
    assert not any(b"no rows of" in content for content in runs.snapshot(place / "new").values())
    x, y = lifecycle.load(place / "new").arrays(6, seed=1)
    assert y.tolist() == [0, 1] * 3 and x.shape == (6, 3)
    assert len(data.load("csv:new/release/samples.csv", schema="draft.yaml").y_train) == 1000
