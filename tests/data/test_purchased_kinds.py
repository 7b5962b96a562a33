"""Amounts, decimal commas and durations that nobody declared: what is bought, and what moves it."""

import dataclasses
import math

import numpy as np
import pytest

from dpgen_jax.aggregation import single_releases
from dpgen_jax.aggregation.noise import OsBits, SeededBits
from dpgen_jax.aggregation.single_releases import Survey
from dpgen_jax.core.types import Private
from dpgen_jax.data.table import columns, readings, schema, transform
from dpgen_jax.data.table.parsing import Cells, coded
from dpgen_jax.data.table.readings import READINGS
from dpgen_jax.run import purchase

N = 1500
RNG = np.random.default_rng(5)
AMOUNTS = RNG.lognormal(7, 1.5, N).round(2)
MINUTES = RNG.integers(0, 4000, N)


def swapped(text):
    """A number as Germans write it."""
    return text.translate(str.maketrans(",.", ".,"))


COLUMNS = {
    "money": ([f"${value:,.2f}" for value in AMOUNTS],
              {"kind": "continuous", "unit": "${}", "thousands": ",", "decimals": "2"}),
    "euros": ([swapped(f"{value:,.2f} €") for value in AMOUNTS],
              {"kind": "continuous", "unit": "{} €", "thousands": ".", "decimal_mark": ",",
               "decimals": "2"}),
    "francs": ([f"CHF {value:,.0f}".replace(",", "'") for value in AMOUNTS],
               {"kind": "integer", "unit": "CHF {}", "thousands": "'"}),
    "debt": ([f"-£{value:.2f}" for value in AMOUNTS],
             {"kind": "continuous", "unit": "£{}", "decimals": "2"}),
    "comma": ([swapped(repr(value)) for value in (AMOUNTS / 100).round(3).tolist()],
              {"kind": "continuous", "decimal_mark": ","}),
    "grouped": ([f"{value:,.0f}" for value in AMOUNTS], {"kind": "integer", "thousands": ","}),
    "french": ([f"{value:,.2f}".replace(",", "\u202f").replace(".", ",") for value in AMOUNTS],
               {"kind": "continuous", "thousands": "space", "decimal_mark": ",", "decimals": "2"}),
    "share": ([f"{value % 100:.1f} %" for value in AMOUNTS],
              {"kind": "continuous", "unit": "{} %", "decimals": "1"}),
    "cents": ([f"{value:.2f}" for value in AMOUNTS], {"kind": "continuous", "decimals": "2"}),
    "metres": ([f"{value % 10:.3f}" for value in AMOUNTS],
               {"kind": "continuous", "decimals": "3"}),
    "floats": ([f"{value}.0" for value in MINUTES], {"kind": "integer"}),
    "stay": ([f"{value // 60}:{value % 60:02d}" for value in MINUTES],
             {"kind": "duration", "format": "H:MM"}),
    "call": ([f"{value // 60}:{value % 60:02d}:07" for value in MINUTES],
             {"kind": "duration", "format": "H:MM:SS"}),
    "clock": ([f"{value // 60 % 24}:{value % 60:02d}" for value in MINUTES],
              {"kind": "time", "format": "%H:%M"})}


def bought(columns, epsilon=5.0):
    """The document that is bought of columns of texts."""
    wanted = purchase.Wanted(tuple(columns), None, {})
    made = purchase.priced_survey(len(columns), N, epsilon, 1e-5, 0.1)
    cells = Cells("a.csv", columns, [str(i) for i in range(N)])
    return purchase.buy_schema(cells, wanted, made, made.events(), SeededBits(11)).document, cells


def test_each_kind_comes_back_through_the_noise():
    """With all noise: the entries, bounds that hold most values, and cells that are read."""
    document, cells = bought({name: texts for name, (texts, _) in COLUMNS.items()}, 100.0)
    made = schema.parse(document, "a")
    codes = coded(made, cells).codes
    for place, column in enumerate(made.spec.columns):
        expected, entries = COLUMNS[column.name][1], document["columns"][column.name]
        assert {key: entries.get(key) for key in expected} == expected, column.name
        assert entries["kind"] == "time" or set(entries) - set(expected) <= {
            "min", "max", "nullable", "odd", "scale", "special"}
        inside = (codes[:, place] >= column.low) & (codes[:, place] <= column.high)
        assert inside.mean() > 0.97, column.name
        texts = transform.texts(column, codes[:50, place])
        before = [text.replace("\u202f", " ") for text in cells.columns[column.name][:50]]
        read = transform.reader(column)
        assert [read(text) for text in texts] == pytest.approx(
            [read(text) for text in before], 1e-5)
        if "decimals" in expected:
            assert texts == before


def test_cells_of_another_writing_are_null_and_never_an_error():
    odd = ["1200.50", "12 apples", "EUR 5", "-", "$-", "1,2,3", "$$5"]
    cells = [cell for i in range(N) for cell in (
        *(f"${1000 + 9 * i % 700 + j:,}.50" for j in range(9)), *(f"{text}{i}" for text in odd))]
    document, table = bought({"paid": cells[:N], "rest": ["x"] * N}, 100.0)
    assert document["columns"]["paid"]["odd"] == "null"
    nulls = np.isnan(coded(schema.parse(document, "a"), table).codes[:, 0])
    assert nulls.mean() == pytest.approx(6 / 16, abs=0.01)  # $-7 is a number


@pytest.mark.parametrize("place", range(0, len(READINGS), 97))
def test_a_cell_is_counted_once_and_its_reading_reads_it(place):
    for i, reading in enumerate(READINGS[place:place + 97], place):
        assert readings.code(reading.example) == i
        assert reading in (readings.MISSING, readings.TEXT) or columns.has_value(
            reading.column, reading.example)


@pytest.mark.parametrize("text", [
    "1e5", "12.", ".5", ",5", "-1", "+ 1", "$-5", "-$5", "-$-5", "5 $", "1,23,4", "12,345,678.9",
    "1'2", "1 234", "\u0661", "1_0", "€", "5\u00a0€", "USD5", "5%", "1:2", "-27:30", "27:61", "'"])
def test_odd_numbers_are_read_by_what_they_are_counted_for(text):
    reading = READINGS[readings.code(text)]
    assert reading is readings.TEXT or columns.has_value(reading.column, text)


HOSTILE = ["", "$1,234.50", "1.234,50 €", "1,234", "12,5", "27:30", "27:30:00", "-1:00", "5 %",
           "x", "2001-01-01", "1e300", "99999999999999999999", "007", "0.5", "12.0", "-3",
           "9999-12-31"]
RECORDS = {"number": ["12"] * 40 + ["0.5"] * 9, "day": ["2001-01-01"] * 49,
           "text": ["x"] * 30 + ["y"] * 19, "pay": ["$1,234.50"] * 49,
           "label": ["a"] * 25 + ["b"] * 24}


def moved(monkeypatch, places):
    """The most that one cell moves by the real purchase, in both rounds, over what is charged."""
    monkeypatch.setattr(single_releases, "_noise", lambda noise, draws,
                        bits: np.zeros(draws, np.int64))
    monkeypatch.setattr(single_releases, "least_name", lambda noise, chance: 1)
    monkeypatch.setattr(readings, "places", places)
    quiet = purchase.priced_survey(len(RECORDS), 50, 100.0, 1e-5, 0.1)
    kinds, values, _ = (event for event, _ in quiet.events())
    wanted, seen = purchase.Wanted(tuple(RECORDS), "label", {}), []

    def noted(name):
        real = getattr(Survey, name)

        def inner(self, *args):
            seen.append((args, real(self, *args)))
            return seen[-1][1]
        return inner

    for name in ("kind_counts", "value_counts"):
        monkeypatch.setattr(Survey, name, noted(name))
    most_kinds = most_values = 0.0
    for cell in HOSTILE:
        tables = [{name: [*texts, one] for name, texts in RECORDS.items()}
                  for one in ("12", cell)]
        seen.clear()
        for table in tables:
            purchase.buy_schema(Cells("a.csv", table, [str(i) for i in range(50)]), wanted, quiet,
                                quiet.events(), OsBits())
        (_, one), (_, other) = seen[0], seen[3]
        most_kinds = max(most_kinds, int(((one - other) ** 2).sum()) / kinds.squared_sensitivity)
        # The queries of the second table are those of the first: they follow from noisy answers.
        spent = 0.0
        for (args, answers), (args2, answers2) in zip(seen[1:3], seen[4:6], strict=True):
            for name in answers.keys() & answers2.keys():
                a, b = answers[name], answers2[name]
                if args[1][name].__class__ != args2[1][name].__class__ or (
                        a.counts.shape != b.counts.shape):
                    continue  # other questions, whose answers are not compared
                texts = sum((a.names.get(text, 0) - b.names.get(text, 0)) ** 2
                            for text in {*a.names, *b.names})
                spent += (int(((a.counts - b.counts) ** 2).sum()) + texts) / max(
                    a.sigma, b.sigma)**2
        most_values = max(most_values, spent * values.sigma**2 / values.squared_sensitivity)
    return most_kinds, most_values


def test_one_record_moves_no_more_than_is_charged(monkeypatch):
    kinds, values = moved(monkeypatch, readings.places)
    assert kinds == 1 and 0 < values <= 1


def test_a_planted_fault_is_caught(monkeypatch):
    """Numbers that all cells together read as decimals: one cell moves the others."""
    def by_all_cells(texts, real=readings.places):
        made = real(texts)
        if "0.5" in texts and "12" not in texts[-1:]:
            made[made == readings.place("12")] = readings.place("12.0")
        return made

    kinds, _ = moved(monkeypatch, by_all_cells)
    assert kinds > 1


def test_a_survey_has_a_place_for_every_reading():
    made = purchase.priced_survey(3, 10, 1.0, 1e-5, 0.1)
    assert made.most >= readings.PLACES == len(set(range(readings.PLACES)))
    fewer = dataclasses.replace(made, most=readings.PLACES - 1)
    with pytest.raises(Exception, match="more than it charges"):
        fewer.kind_counts(Private(np.zeros((2, 1), int)), readings.PLACES, OsBits())


@pytest.mark.parametrize(("text", "reading", "detail"), [
    ("-1", "1234", "-1"), ("3", "1234", "3"), ("0", "1234", "0"), ("12.0", "1234.0", "12"),
    ("2.75", "0.55", "2.75"), ("1660100000000", "1234", "1660100000000"), ("00535", "text", "05"),
    ("757136632099528842", "text", "18"), ("Oslo", "text", 4), ("x" * 99, "text", math.inf)])
def test_a_cell_has_one_place_by_its_own_text(text, reading, detail):
    place = readings.place(text)
    found = int(np.searchsorted(readings.STARTS, place, "right")) - 1
    assert READINGS[found].example == reading
    within = place - readings.STARTS[found]
    if reading == "text":
        assert readings.TEXTS[within] == detail
    else:
        low, high = readings.OCTAVES[within:within + 2]
        assert low <= float(detail) <= high
