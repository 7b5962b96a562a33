"""Constraints between columns: read, refused, and kept by every synthetic row."""

import csv
import datetime
import io

import numpy as np
import pytest
from refusals import refused

from dpgen_jax.core.types import UserError
from dpgen_jax.data import load
from dpgen_jax.data.table import constraints as table_constraints
from dpgen_jax.data.table import rules as rules_of_tables
from dpgen_jax.data.table import schema

COLUMNS = """\
label: ill
columns:
  admitted: {kind: date, min: 2020-01-01, max: 2024-12-31}
  seen: {kind: date, min: 2019-01-01, max: 2025-06-30, nullable: true}
  left: {kind: date, min: 2020-01-03, max: 2025-01-31, special: [9999-12-31]}
  low pay: {kind: continuous, min: 0, max: 1000}
  high pay: {kind: continuous, min: 10, max: 2000}
  net: {kind: continuous, min: 0, max: 900, decimals: 2}
  tax: {kind: integer, min: 0, max: 500, special: [0]}
  back: {kind: continuous, min: 0, max: 99, decimals: 1}
  gross: {kind: continuous, min: 50, max: 1000, decimals: 2, unit: "EUR {}"}
  sex: {kind: categorical, categories: [f, m]}
  children: {kind: integer, min: 0, max: 12, nullable: true}
  work: {kind: categorical, categories: [none, part, full]}
  hours: {kind: integer, min: 0, max: 80, special: [99], nullable: true}
  id: {kind: identifier, pattern: "######"}
  ill: {kind: boolean}
"""
RULES = ["admitted < left", "admitted <= seen", '"low pay" <= high pay', "gross = net + tax - back",
         "sex = m -> children = null", "work = none -> hours = 0", "ill = true -> hours <= 20",
         "hours > 40 -> work = full"]


def parsed(tmp_path, rules=RULES, columns=COLUMNS) -> schema.Schema:
    (tmp_path / "s.yaml").write_text(
        columns + "constraints:\n" + "".join(f"  - '{rule}'\n" for rule in rules))
    return schema.read(str(tmp_path / "s.yaml"))


def fulfilled(row: dict[str, str]) -> list[bool]:
    """Each rule, on a row of the file, by hand."""
    day = datetime.date.fromisoformat
    hours = int(row["hours"]) if row["hours"] else None
    gross = float(row["gross"].removeprefix("EUR "))
    return [row["left"] == "9999-12-31" or day(row["admitted"]) < day(row["left"]),
            not row["seen"] or day(row["admitted"]) <= day(row["seen"]),
            float(row["low pay"]) <= float(row["high pay"]),
            round(100 * float(row["net"])) + 100 * int(row["tax"]) - round(
                100 * float(row["back"])) == round(100 * gross) and 50 <= gross <= 1000,
            row["sex"] != "m" or not row["children"], row["work"] != "none" or hours == 0,
            row["ill"] != "true" or hours in (None, 99) or hours <= 20,
            hours in (None, 99) or hours <= 40 or row["work"] == "full"]


@pytest.mark.parametrize("n", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_they_hold_in_sampled_rows(tmp_path, n):
    """Rows drawn without any sense, mended, written and read again; labels stay as they were."""
    rules = parsed(tmp_path)
    rng = np.random.default_rng(0)
    encoded, y = rng.random((n, *rules.spec.shape)), rng.integers(0, 2, n)
    made = table_constraints.finished(rules.spec, encoded, y)
    assert made.replaced == 0 and set(made.mended) == set(RULES)
    assert min(made.mended.values()) > n / 200
    assert made.lines()[0] == f"constraint admitted < left: {made.mended[RULES[0]]:,} of {n:,} " \
                              "rows mended"
    table = np.column_stack([made.codes, y])
    for rule in rules_of_tables.read_rules(rules.spec):
        assert not rule.broken(table).any()
    again = table_constraints.mended(rules.spec, made.codes, y)
    np.testing.assert_array_equal(again.codes, made.codes)
    assert not any(again.mended.values())
    header, rows = table_constraints.written_cells(rules.spec, made.codes[:2000], y[:2000])
    for row in rows:
        assert all(fulfilled(dict(zip(header, row, strict=True)))), row
    text = io.StringIO()
    csv.writer(text).writerows([header, *rows])
    (tmp_path / "a.csv").write_text(text.getvalue())
    data = load(f"csv:{tmp_path / 'a.csv'}", schema=str(tmp_path / "s.yaml"))
    assert data.private_notes == () and data.y_train.tolist() == y[:2000].tolist()


def test_what_keeps_them_is_not_touched(tmp_path):
    """Mending a table moves only the cells that a broken rule names."""
    constraints = parsed(tmp_path, ["tax <= children", "sex = m -> work = part"])
    at = {column.name: i for i, column in enumerate(constraints.spec.columns)}
    row = np.array([column.low for column in constraints.spec.columns])
    codes = np.stack([row] * 4)
    codes[:, at["tax"]], codes[:, at["children"]] = [3, 9, 400, 5], [4, 2, 1, np.nan]
    codes[2, at["sex"]] = 1
    made = table_constraints.mended(constraints.spec, codes, np.zeros(4))
    moved = made.codes != codes
    moved[3, at["children"]] = False  # null is not equal to itself
    assert [np.flatnonzero(line).tolist() for line in moved] == [
        [], [at["tax"], at["children"]], [at["tax"], at["children"], at["work"]], []]
    assert made.codes[1, at["tax"]] == 2 and made.codes[1, at["children"]] == 9
    assert made.codes[2, at["tax"]] == 1 and made.codes[2, at["children"]] == 12  # its bound
    assert made.mended == {"tax <= children": 2, "sex = m -> work = part": 1}


def test_rows_that_break_one_in_the_file_are_counted_for_the_data_holder(tmp_path):
    parsed(tmp_path, ["a <= b"], "label: y\ncolumns:\n  a: {kind: integer, min: 0, max: 9}\n"
           "  b: {kind: integer, min: 0, max: 9}\n  y: {kind: boolean}\n")
    (tmp_path / "a.csv").write_text("a,b,y\n1,2,true\n2,1,false\n9,1,false\n")
    data = load(f"csv:{tmp_path / 'a.csv'}", schema=str(tmp_path / "s.yaml"))
    assert data.private_notes[-1].endswith("2 rows break the constraint a <= b")
    assert not any("constraint" in note for note in data.notes)


@pytest.mark.parametrize(("rule", "match"), [
    ("admitted", "write a <= b, total = a"), ("admitted<=left", "with spaces between"),
    ("admitted <= lft", "'lft' is not a column with values, did you mean 'left'"),
    ("admitted <= id", "'id' is not a column with values"),
    ("admitted <= net", "both columns must be numbers, or both dates"),
    ("admitted <= admitted", "both columns must be"), ("sex <= work", "both columns must be"),
    ("admitted <= left + seen", "a comparison is of two columns"),
    ("low pay < high pay", "no next one; write <="), ("ill <= sex", "the label stands on the left"),
    ("sex = f -> ill = true", "the label is never changed"),
    ("gross = net + net", "a column stands in it twice"),
    ("high pay = low pay + net", "high pay has no declared decimals.*add decimals: 2"),
    ("tax = net + back", "tax has fewer decimals than its parts"),
    ("gross = net + sex", "sex is not a number that can be added"),
    ("gross = admitted", "admitted is not a number"),
    ("sex = x -> work = none", "'x' is not a category of sex"),
    ("sex < m -> work = none", "have no order; write ="),
    ("sex = m -> work = null", "'null' is not a category"), ("sex = m", "'m' is not a column"),
    ("sex = m -> tax = 501", "tax has no such value within its bounds"),
    ("sex = m -> tax = 0.5", "tax has no such value"), ("sex = m -> tax > 500", "no such value"),
    ("sex = m -> low pay < 3", "low pay has no nearest number; write <="),
    ("admitted > 2021 -> tax = 1", "'2021' is not a date of the form %Y-%m-%d"),
    ("sex = m -> tax = 1 -> work = none", "each side of -> is a column"),
    ("", "write a <= b"), ("=", "write a <= b"), ("-> ->", "each side of ->")])
def test_a_bad_rule_is_one_line_that_quotes_it(tmp_path, rule, match):
    line = refused(match, parsed, tmp_path, [rule])
    assert f"constraint {rule!r}" in line


@pytest.mark.parametrize(("rules", "match"), [
    (["a < b", "b < a"], "no row of class 'false' fulfils all of them"),
    (["b = a + c"], "no values within the bounds fulfil it"),
    (["d <= a"], "no values within the bounds fulfil it"),
    (["y = true -> a = 1", "y = true -> a = 2"], "no row of class 'true' fulfils")])
def test_rules_that_contradict_are_refused_before_anything_is_spent(tmp_path, rules, match):
    with pytest.raises(UserError, match=match):
        parsed(tmp_path, rules, "label: y\ncolumns:\n  a: {kind: integer, min: 0, max: 9}\n"
               "  b: {kind: integer, min: 0, max: 9}\n  c: {kind: integer, min: 20, max: 30}\n"
               "  d: {kind: integer, min: 10, max: 30}\n  y: {kind: boolean}\n")
    (tmp_path / "s.yaml").write_text(COLUMNS + "constraints: a <= b\n")
    refused("constraints is not a list", schema.read, str(tmp_path / "s.yaml"))
