"""Tables of people's reports that declare nothing: each column is bought as what it is."""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.aggregation.single_releases import Answer, Survey
from dpgen_jax.data.table import parsing, readings, schema, transform
from dpgen_jax.data.table.columns import NULLS
from dpgen_jax.data.table.parsing import Cells, coded
from dpgen_jax.run import purchase

TABLES = Path(os.environ.get("DPGEN_DATA", "data")) / "tables"
N = 2000
RNG = np.random.default_rng(3)


def bought(columns, epsilon=10.0, label=None, seed=5):
    """The columns that are bought of texts, with all noise; and the numbers of what is lost."""
    rows = len(next(iter(columns.values())))
    wanted = purchase.Wanted(tuple(columns), label, {})
    survey = purchase.priced_survey(len(columns), rows, epsilon, 1e-5, purchase.SHARE)
    cells = Cells("a.csv", columns, [str(i) for i in range(rows)])
    document = purchase.buy_schema(cells, wanted, survey, survey.events(),
                                   SeededBits(seed)).document
    made = schema.parse(document, "a")
    codes = coded(made, cells).codes
    kept = {}
    for place, column in enumerate(made.spec.columns):
        decoded = transform.decode(made.spec, transform.encode(made.spec, codes))[:, place]
        texts = transform.texts(column, decoded)
        kept[column.name] = float(np.mean([
            same(a, b) for a, b in zip(texts, columns[column.name], strict=True)]))
    return document["columns"], kept


def same(text, before):
    """Whether a cell is what it was, nulls and digits apart."""
    a, b = transform.number(text), transform.number(before)
    return text == before or (text == "" and before in ("None", "n/a", *NULLS)) or (
        a is not None and b is not None and bool(np.isclose(a, b, 1e-3, 1e-3)))


def table(name):
    if not TABLES.is_dir():
        pytest.skip("the tables of DPGEN_DATA are not here")
    return parsing.read_csv(TABLES / name).columns


RIGHT = {  # by table and column: the entries that are right
    "epochms.csv": {"created_ms": {"kind": "continuous", "decimals": "0"},
                    "micros": {"kind": "continuous", "decimals": "0"}},
    "epochs.csv": {"epoch_s": {"kind": "continuous", "decimals": "0"},
                   "views": {"kind": "continuous", "decimals": "0"}, "age": {"kind": "integer"}},
    "money.csv": {"price": {"kind": "continuous", "decimals": "2"},
                  "temp": {"kind": "continuous", "decimals": "1"}},
    "huge.csv": {"account": {"kind": "identifier", "pattern": "#" * 18}},
    "fardates.csv": {"until": {"kind": "date", "special": ["3118-01-01", "9999-12-31"]},
                     "born": {"kind": "date"}},
    "emptyna.csv": {"city": {"kind": "categorical", "nullable": "true", "odd": "null",
                             "categories": ["Oslo", "Rome"]}},
    "single.csv": {"y": {"kind": "categorical", "categories": ["only"]},
                   "w": {"kind": "continuous", "decimals": "2"}}}


@pytest.mark.parametrize("name", RIGHT)
def test_a_table_of_a_report_is_read_right(name):
    columns = table(name)
    made, kept = bought(columns, label="y")
    for column, entries in RIGHT[name].items():
        assert {key: made[column].get(key) for key in entries} == entries, column
        if made[column]["kind"] != "identifier":
            assert kept.get(column, 1.0) > 0.95, (column, made[column])


def test_zeros_in_front_of_post_codes_are_kept():
    made, _ = bought(table("huge.csv"), label="y")
    found = made["zip"].get("categories", [made["zip"].get("pattern", "").replace("#", "0")])
    assert all(re.fullmatch("0[0-9]{4}", text) for text in found if text != "other")


def test_milliseconds_lie_in_their_years():
    made, _ = bought(table("epochms.csv"), label="y")
    low, high = (float(made["created_ms"][end]) for end in ("min", "max"))
    assert 1.3e12 < low < 1.6e12 and 1.7e12 < high < 2.0e12


def test_numbers_and_texts_in_one_column_are_both_kept():
    made, kept = bought(table("mixed.csv"), label="y")
    assert {"pass", "fail", "2024-01-01"} <= set(made["grade"]["categories"])
    assert kept["grade"] > 0.95


@pytest.fixture(scope="module")
def quirks(tmp_path_factory):
    if not TABLES.is_dir():
        pytest.skip("the tables of DPGEN_DATA are not here")
    place = tmp_path_factory.mktemp("quirks")
    subprocess.run([sys.executable, str((TABLES / "quirks.py").resolve())], cwd=place, check=True)
    with (place / "quirks.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in rows[0]}


def test_what_real_tables_have_is_found_at_epsilon_10(quirks):
    made, kept = bought(quirks, label="y")
    assert (made["year"]["min"], made["year"]["max"]) == ("1995", "2003")
    assert made["stage"]["categories"] == ["0.0", "0.5", "1.0"]
    assert made["term"]["categories"] == ["36", "60"]
    assert made["area_code_415"]["categories"] == ["408", "415", "510"]
    assert (made["flag"]["min"], made["flag"]["max"]) == ("0", "1")
    assert [made[name].get("decimals") for name in ("minutes", "charge", "rate", "kappa")] == [
        "1", "2", "2", "2"]
    assert set(made["reason"]["categories"]) - {"other"} == {"moved", "price", "service"}
    assert made["reason"]["odd"] == "null" and made["y"]["categories"] == ["no", "yes"]
    assert {name: share for name, share in kept.items() if share < 0.95} == {}


def test_half_of_it_is_found_at_epsilon_1(quirks):
    made, kept = bought(quirks, 1.0, label="y")
    low, high = (float(made["year"][end]) for end in ("min", "max"))
    assert 1960 < low <= 1995 and 2003 <= high < 2050
    assert (made["flag"]["min"], made["flag"]["max"]) == ("0", "1")
    assert made["y"]["categories"] == ["no", "yes"]
    assert [made[name].get("decimals") for name in ("minutes", "charge", "rate")] == ["1", "2", "2"]
    assert len(made["state"]["categories"]) > 10
    assert np.mean(list(kept.values())) > 0.85, kept


@pytest.mark.parametrize(("name", "kind"), [
    ("id", "identifier"), ("customer_id", "identifier"), ("paid", "integer"), ("count", "integer")])
def test_a_key_is_no_number(name, kind):
    """By its name and its released counts: no number of it is frequent."""
    made, _ = bought({name: texts_of(RNG.permutation(N) + 1), "few_id": texts_of(
        RNG.integers(1, 40, N))})
    assert (made[name]["kind"], made["few_id"]["kind"]) == (kind, "integer")


def test_where_all_columns_are_keys_there_is_still_a_schema():
    numerals = [f"{value:019d}" for value in RNG.integers(10**17, 10**18, N)]
    made, _ = bought({"a": numerals, "b": numerals, "y": texts_of(RNG.integers(0, 2, N))},
                     label="y")
    assert {made[name]["kind"] for name in "ab"} == {"categorical"}


def texts_of(values):
    return [str(value) for value in values]


COLUMNS = {
    "sentinel": (texts_of(np.where(RNG.random(N) < 0.3, 99999, RNG.integers(18, 90, N))),
                 {"kind": "integer", "special": ["99999"]}),
    "minus": (texts_of(np.where(RNG.random(N) < 0.3, -1, RNG.integers(18, 90, N))),
              {"kind": "integer", "special": ["-1"]}),
    "zeros": (texts_of(np.where(RNG.random(N) < 0.9, 0, RNG.integers(2000, 90_000, N))),
              {"special": ["0"]}),
    "signed": (texts_of(RNG.normal(0, 1, N).round(2)), {"kind": "continuous", "decimals": "2"}),
    "floats": (texts_of(RNG.normal(0, 1e-9, N)), {"kind": "continuous"}),
    "wide": (texts_of(10.0 ** RNG.uniform(100, 200, N)), {"kind": "continuous", "scale": "log"}),
    "tens": (texts_of(10 * RNG.integers(1, 6, N)), {"kind": "ordinal",
                                                    "categories": texts_of(range(10, 60, 10))}),
    "constant": (["7"] * N, {"kind": "integer", "min": "7", "max": "7"}),
    "missing": (["7" if one < 0.02 else "" for one in RNG.random(N)], {"nullable": "true"}),
    "codes": ([f"0{value}" for value in RNG.integers(10, 18, N)],
              {"kind": "categorical", "categories": [f"0{value}" for value in range(10, 18)]}),
    "halves": ([f"{value / 2:.2f}" for value in RNG.integers(0, 5, N)],
               {"kind": "ordinal", "categories": ["0.00", "0.50", "1.00", "1.50", "2.00"]}),
    "mixed_style": ([f"{value / 2:g}" for value in RNG.integers(0, 3, N)],
                    {"kind": "ordinal", "categories": ["0", "0.5", "1"]}),
    "other": (list(np.array(["other", "one", "two"])[RNG.integers(0, 3, N)]),
              {"kind": "categorical", "categories": ["one", "other", "two"]})}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_what_it_is(name):
    texts, entries = COLUMNS[name]
    made, kept = bought({name: texts, "more": texts_of(RNG.integers(0, 5, N))})
    assert {key: made[name].get(key) for key in entries} == entries, made[name]
    assert kept[name] > 0.95


@pytest.mark.parametrize("seed", range(30))
def test_whatever_the_answers_are_there_is_a_schema_that_reads_all_cells(monkeypatch, seed):
    """Counts that tell nothing, or lies: a purchase that is charged never ends in an error."""
    rng = np.random.default_rng(seed)
    hostile = ["", "7", "0", "-1", "1e300", "-1e-300", "1e309", "00535", "9" * 19, "12.5", "0.125",
               "3,14", "$5.00", "-$1,234.50", "12:30", "999:30:00", "2001-02-03", "9999-12-31",
               "0001-01-01", "True", "x", "x" * 99, "other", "5 %", "31.12.2020 10:00"]
    columns = {f"c{i}": [str(text) for text in rng.choice(hostile, 40)] for i in range(4)}

    def lie(size):
        kind = rng.integers(3)
        if kind == 0:
            return np.rint(rng.normal(0, 1000, size)).astype(np.int64)
        counts = np.zeros(size, np.int64)
        counts[rng.integers(0, size, rng.integers(1, 4))] = rng.integers(1, 10**6)
        return counts if kind == 1 else -counts

    def values(self, turn, queries, weights, bits):
        answers = {}
        for name, query in queries.items():
            if hasattr(query, "count"):
                answers[name] = Answer(3.0, lie(query.count))
            else:
                shown = {text for text in columns[name] if text not in ("",)}
                answers[name] = Answer(3.0, names={
                    text: int(rng.integers(1, 50)) for text in sorted(shown)
                    if rng.random() < 0.5})
        return answers

    monkeypatch.setattr(Survey, "kind_counts", lambda self, codes, cells, bits: np.stack(
        [lie(readings.PLACES) for _ in columns]))
    monkeypatch.setattr(Survey, "value_counts", values)
    for label in (None, "c0"):
        wanted = purchase.Wanted(tuple(columns), label, {})
        survey = purchase.priced_survey(4, 40, 50.0, 1e-5, 0.1)
        cells = Cells("a.csv", columns, [str(i) for i in range(40)])
        document = purchase.buy_schema(cells, wanted, survey, survey.events(),
                                   SeededBits(seed)).document
        made = schema.parse(document, "a")
        codes = coded(made, cells).codes
        assert np.isfinite(transform.encode(made.spec, codes)).all()
        assert not re.search("nan|inf", str(document["columns"]))
