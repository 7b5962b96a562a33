"""Rules of one line: functions of columns, implications on several, chains, and combinations."""

import datetime
import os
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from refusals import refused

import dpgen_jax as dg
from dpgen_jax.data.table import constraints, rules, schema, transform

TABLES = Path(os.environ.get("DPGEN_DATA", "data")) / "tables"
COLUMNS = {
    "born": {"kind": "date", "min": "1930-01-01", "max": "2012-12-31"},
    "sex": {"kind": "categorical", "categories": ["F", "M"]},
    "pregnant": {"kind": "boolean", "categories": ["no", "yes"]},
    "arrived": {"kind": "datetime", "format": "%Y-%m-%dT%H:%M:%S%z", "zone": "Europe/Berlin",
                "min": "2021-01-01T00:00:00+01:00", "max": "2023-12-31T23:00:00+01:00"},
    "admission": {"kind": "date", "min": "2021-01-01", "max": "2023-12-31"},
    "discharge": {"kind": "date", "min": "2021-01-01", "max": "2024-12-31"},
    "age": {"kind": "integer", "min": "0", "max": "100"},
    "stay": {"kind": "integer", "min": "0", "max": "90"},
    "country": {"kind": "categorical", "categories": ["DE", "FR"]},
    "city": {"kind": "categorical", "categories": ["Bonn", "Jena", "Lyon, Est", "rock and roll"]},
    "seen": {"kind": "date", "min": "2021-01-01", "max": "2024-12-31", "nullable": "true"},
    "ill": {"kind": "boolean"}}
PREGNANT = "pregnant = yes -> age < 55 and sex = F"
FUNCTIONS = ["admission = date(arrived)", "age = years(admission - born)",
             "stay = discharge - admission"]
CITIES = 'country, city in DE, Bonn; DE, Jena; FR, "Lyon, Est"; FR, rock and roll'


def parsed(*lines):
    return schema.parse({"label": "ill", "columns": COLUMNS, "constraints": [*lines]}, "s").spec


def drawn(spec, n=3000, seed=0):
    """Rows drawn without any sense, their classes, and the place of each column."""
    rng = np.random.default_rng(seed)
    codes = transform.decode(spec, rng.random((n, *spec.shape)))
    return codes, rng.integers(0, 2, n), {column.name: i for i, column in enumerate(spec.columns)}


def test_functions_are_computed_in_the_declared_zone():
    """Compared with `datetime` in 100 % of the rows."""
    spec = parsed("discharge >= admission", *FUNCTIONS)
    assert spec.derived == ("admission", "age", "discharge") and spec.gaps == ()
    codes, y, at = drawn(spec)
    header, rows = constraints.written_cells(spec, constraints.mended(spec, codes, y).codes, y)
    for cells in rows:
        row = dict(zip(header, cells, strict=True))
        arrived = datetime.datetime.fromisoformat(row["arrived"])
        days = {name: datetime.date.fromisoformat(row[name])
                for name in ("admission", "discharge", "born")}
        assert arrived.date() == days["admission"]
        assert int(row["stay"]) == (days["discharge"] - days["admission"]).days >= 0
        assert int(row["age"]) == days["admission"].year - days["born"].year - (
            (days["admission"].month, days["admission"].day)
            < (days["born"].month, days["born"].day))
    assert len({row[header.index("arrived")][-6:] for row in rows}) == 2  # summer and winter


def test_a_date_from_which_a_gap_is_learned_moves_its_moment():
    """The date is learned, and the moment keeps its time."""
    spec = parsed("admission <= discharge", FUNCTIONS[0])
    assert spec.derived == () and spec.gaps == (("admission", "discharge"),)
    codes, y, at = drawn(spec, 300)
    made = constraints.mended(spec, codes, y).codes
    function, = rules.functions(spec)
    assert not function.broken(np.column_stack([made, y])).any()
    assert (made[:, at["admission"]] == codes[:, at["admission"]]).mean() > 0.9


@pytest.mark.parametrize(("lines", "kept"), [
    ([PREGNANT], ("sex", "pregnant", "age")), ([CITIES], ("country", "city"))],
    ids=["implication", "combinations"])
def test_shares_of_columns_stay_where_rows_break_a_rule(lines, kept):
    """Rows exchange values with others of their class, so that each class keeps its shares."""
    spec = parsed(*lines)
    codes, y, at = drawn(spec)
    rng = np.random.default_rng(1)
    codes[:, at["pregnant"]] = rng.random(len(y)) < 0.1
    codes[:, at["city"]] = np.where(codes[:, at["country"]] == 0, rng.integers(0, 3, len(y)),
                                    rng.integers(1, 4, len(y)))
    before = constraints.mended(parsed(), codes, y).codes
    made = constraints.mended(spec, codes, y)
    assert min(made.mended.values()) > 100 and not made.replaced
    assert not rules.read_rules(spec)[0].broken(np.column_stack([made.codes, y])).any()
    for name in kept:
        for label in (0, 1):
            ours, theirs = (np.sort(part[y == label, at[name]]) for part in (made.codes, before))
            assert np.mean(ours != theirs) < 0.05  # unmatched ones of a block of 500 remain


def test_a_chain_of_order_is_one_rule():
    spec = parsed("born < admission <= seen <= discharge")
    codes, y, at = drawn(spec, 500)
    made = constraints.mended(spec, codes, y)
    assert list(made.mended) == ["born < admission <= seen <= discharge"]
    born, admission, seen, discharge = (
        made.codes[:, at[name]] for name in ("born", "admission", "seen", "discharge"))
    assert (born < admission).all() and not (admission > seen).any() and not (
        seen > discharge).any()


def test_conditions_on_both_sides_and_values_that_hold_the_word_and():
    rule, = rules.read_rules(parsed("city = rock and roll and age > 30 -> sex = F"))
    assert [one.field.column.name for one in rule.first] == ["city", "age"]
    assert rule.first[0].value == 3 and rule.then.value == 0
    plain, = rules.read_rules(parsed("city = rock and roll -> sex = F"))
    assert plain.first[0].value == 3


def test_combinations_of_a_file(tmp_path):
    """A header may stand above them; a cell with a comma stands in double quotes."""
    lines = 'DE,Bonn\nDE,Jena\nFR,"Lyon, Est"\nFR,rock and roll\n'
    for text in (lines, f"country,city\n{lines}"):
        (tmp_path / "cities.csv").write_text(text)
        (tmp_path / "s.yaml").write_text(
            "label: ill\ncolumns:\n  country: {kind: categorical, categories: [DE, FR]}\n"
            '  city: {kind: categorical, categories: [Bonn, Jena, "Lyon, Est", rock and roll]}\n'
            "  ill: {kind: boolean}\nconstraints:\n  - country, city in file cities.csv\n")
        rule, = rules.read_rules(schema.read(str(tmp_path / "s.yaml")).spec)
        assert rule.combinations == ((0, 0), (0, 1), (1, 2), (1, 3))
    (tmp_path / "cities.csv").unlink()
    refused("cities.csv", schema.read, str(tmp_path / "s.yaml"))


@pytest.mark.parametrize(("line", "match"), [
    ("admission = day(arrived)", "day is not a function.*write a = date"),
    ("admission = date(arived)", "'arived' is not a column with values, did you mean 'arrived'"),
    ("admission = date(born)", "makes a date of a datetime"),
    ("age = years(admission)", "write a = date.b., or a = years.b - c."),
    ("age = years(admission + born)", "write a = date"),
    ("age = years(admission - sex)", "years.. is of two dates"),
    ("sex = years(admission - born)", "sex is not a number"),
    ("age = years(born - born)", "a column stands in it twice"),
    ("stay = discharge - arrived", "both moments must be dates"),
    ("stay = discharge - seen", "stay is null where its columns are; declare it nullable: true"),
    ("ill = date(arrived)", "the label stands on the left"),
    ("pregnant = yes -> age < 55 and sexx = F", "'55 and sexx' is not a value and a column"),
    ("born <= admission = seen", "a comparison is of two columns, or of a chain"),
    ("country, town in DE, Bonn", "'town' is not a column"),
    ("country, city in DE, Bern", "'Bern' is not a category of city"),
    ("country, city in DE, Bonn, x", "has 3 of 2 values"),
    ("country in DE", "combinations are of two columns or more")])
def test_a_bad_line_is_refused_by_its_entry(line, match):
    assert f"constraint {line!r}" in refused(match, parsed, line)


@pytest.mark.parametrize(("lines", "match"), [
    (["stay = discharge - admission", "stay = admission - born"], "compute stay twice"),
    (["stay = admission - born"], "fulfils all of them"),  # of 90 days, of dates 9 years apart
    (["pregnant = yes -> age < 55", "pregnant = yes -> age > 60", "ill = true -> pregnant = yes"],
     "no row of class 'true' fulfils all of them")])
def test_lines_that_cannot_stand_together_are_refused(lines, match):
    refused(match, parsed, *lines)


def test_differences_that_would_compute_each_other_stay_as_they_are():
    """One of `n = a - b` and `m = b - a` computes a moment; the other one is checked."""
    columns = dict.fromkeys("ab", COLUMNS["discharge"]) | {
        name: {"kind": "integer", "min": "-9", "max": "9"} for name in "nm"} | {
        "y": {"kind": "boolean"}}
    spec = schema.parse({"label": "y", "columns": columns, "constraints": [
        "n = a - b", "m = b - a"]}, "s").spec
    assert [rule.turned for rule in rules.read_rules(spec)] == [True, False]
    codes, y, at = drawn(spec, 200)
    made = constraints.mended(spec, codes, y).codes
    a, b, n, m = (made[:, at[name]] for name in "abnm")
    assert (n == a - b).all() and (m == b - a).all()


@pytest.mark.slow
@pytest.mark.skipif(not (TABLES / "visits.py").is_file(), reason="DPGEN_DATA/tables has the table")
def test_visits_keep_all_rules_and_their_shares(tmp_path, monkeypatch):
    """Arrival on the day of admission, stays that are differences, pregnancy only where it can be:
    of all rows; and the share of women is that of the model within noise."""
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(TABLES / "visits.py"))
    frame = pd.read_csv("visits.csv", dtype=str, keep_default_na=False).drop(columns="person")
    admission, born, left = (pd.to_datetime(frame[name])
                             for name in ("admission", "born", "discharge"))
    birthday = born.dt.month * 31 + born.dt.day
    frame["age"] = (admission.dt.year - born.dt.year - (
        admission.dt.month * 31 + admission.dt.day < birthday)).astype(str)
    frame["stay"] = (left - admission).dt.days.astype(str)
    text = (TABLES / "visits.yaml").read_text().replace(
        "constraints:", "  age: {kind: integer, min: 0, max: 100}\n"
        "  stay: {kind: integer, min: 0, max: 450}\nconstraints:").replace(
        "  - pregnant = yes -> sex = F", "".join(f"  - {line}\n" for line in [
            PREGNANT, *FUNCTIONS]))
    Path("visits.yaml").write_text(text)
    frame.to_csv("visits.csv", index=False)
    release = dg.fit("csv:visits.csv", schema="visits.yaml", epsilon=10.0, delta=1e-5, seed=1,
                     follows=True, out=tmp_path / "run", verbose=False)
    made = release.sample(4000, seed=1)
    day = made["admission"].astype(str).str[:10]
    assert (made["arrived"].astype(str).str[:10] == day).all()
    assert ((pd.to_datetime(made["discharge"]) - pd.to_datetime(day)).dt.days
            == made["stay"].astype(int)).all()
    pregnant = made[made["pregnant"].astype(str).isin(["yes", "True"])]
    assert len(pregnant) > 100 and (pregnant["sex"] == "F").all() and (
        pregnant["age"].astype(int) < 55).all()
    assert (made["sex"] == "F").mean() == pytest.approx((frame["sex"] == "F").mean(), abs=0.03)
    assert len(pregnant) / 4000 == pytest.approx((frame["pregnant"] == "yes").mean(), abs=0.015)
    stays = np.quantile(made["stay"].astype(int), [0.5, 0.999])
    assert stays[0] <= 5 and stays[1] < 90  # declared up to 450; real ones end at 60
