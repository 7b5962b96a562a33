"""Amounts, decimal commas and durations that nobody declared: what is bought, and what moves it."""

import itertools

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
              {"kind": "continuous", "unit": "{} %"}),
    "cents": ([f"{value:.2f}" for value in AMOUNTS], {"kind": "continuous", "decimals": "2"}),
    "metres": ([f"{value % 10:.3f}" for value in AMOUNTS], {"kind": "continuous"}),
    "floats": ([f"{value}.0" for value in MINUTES], {"kind": "integer"}),
    "stay": ([f"{value // 60}:{value % 60:02d}" for value in MINUTES],
             {"kind": "duration", "format": "H:MM"}),
    "call": ([f"{value // 60}:{value % 60:02d}:07" for value in MINUTES],
             {"kind": "duration", "format": "H:MM:SS"}),
    "clock": ([f"{value // 60 % 24}:{value % 60:02d}" for value in MINUTES],
              {"kind": "time", "format": "%H:%M"})}


def bought(columns, epsilon=5.0):
    """The document that is bought of columns of texts, for a tenth of epsilon."""
    wanted = purchase.Wanted(tuple(columns), None, {})
    made = purchase.priced_survey(len(columns), wanted.queries, N, epsilon, 1e-5, 0.1)
    cells = Cells("a.csv", columns, [str(i) for i in range(N)])
    return purchase.buy_schema(cells, wanted, made, made.events(), SeededBits(11)), cells


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
    cells = [*["$1,200.50"] * 9, "1200.50", "12 apples", "EUR 5", "-", "$-", "1,2,3", "$$5"] * N
    document, table = bought({"paid": cells[:N], "rest": ["x"] * N}, 100.0)
    assert document["columns"]["paid"]["odd"] == "null"
    nulls = np.isnan(coded(schema.parse(document, "a"), table).codes[:, 0])
    assert nulls.mean() == pytest.approx(7 / 16, abs=0.01)


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


def moved(monkeypatch, codes):
    """The most that one cell moves the counts, squared: of kinds and of the bins of any reading."""
    monkeypatch.setattr(single_releases, "_noise", lambda noise, draws,
                        bits: np.zeros(draws, np.int64))
    quiet = purchase.priced_survey(1, 1, 8, 100.0, 1e-5, 0.1)
    hostile = ["", "$1,234.50", "1.234,50 €", "1,234", "12,5", "27:30", "27:30:00", "-1:00", "5 %",
               "x", "2001-01-01", "1e300", "99999999999999999999"]
    of_kinds, of_values = [0], [0]
    numbers = [reading for reading in (READINGS[readings.code(text)] for text in hostile)
               if purchase.has_bins(reading)]

    def answers(cell):
        column = ["1,234", "5,5", "1:00", cell]
        kinds = quiet.kind_counts(Private(codes(column)[:, None]), len(READINGS), OsBits())
        values = [quiet.value_counts({"x": purchase.column_bins(reading, column)}, {}, OsBits())[0]
                  for reading in numbers]
        return kinds, [value["x"] for value in values]

    for (kinds, values), (kinds2, values2) in itertools.combinations(map(answers, hostile), 2):
        of_kinds.append(int(((kinds - kinds2) ** 2).sum()))
        of_values += [int(((a - b) ** 2).sum()) for a, b in zip(values, values2, strict=True)]
    kinds, values, _ = (event for event, _ in quiet.events())
    return (max(of_kinds), kinds.squared_sensitivity), (max(of_values), values.squared_sensitivity)


def test_one_cell_moves_what_is_declared(monkeypatch):
    (kinds, declared), (values, declared_values) = moved(monkeypatch, readings.codes)
    assert kinds == declared == 2 and values == declared_values == 2


def test_a_planted_fault_is_caught(monkeypatch):
    """Three digits after a comma that all cells together read as decimals, or as a thousand."""
    def by_all_cells(texts):
        made = readings.codes(texts)
        thousands, comma = (readings.code(text) for text in ("1,234", "0,5"))
        if "12,5" in texts:
            made[made == thousands] = comma
        return made

    (kinds, declared), _ = moved(monkeypatch, by_all_cells)
    assert kinds > declared


def test_a_survey_has_a_place_for_every_reading():
    assert purchase.priced_survey(3, 3, 10, 1.0, 1e-5, 0.1).most >= len(READINGS)
    with pytest.raises(Exception, match="more than it charges"):
        Survey(1, 1, purchase.priced_survey(1, 1, 9, 1.0, 1e-5, 0.1).kinds, purchase.priced_survey(
            1, 1, 9, 1.0, 1e-5, 0.1).values, 1e-6, len(READINGS) - 1).kind_counts(
                Private(np.zeros((2, 1), int)), len(READINGS), OsBits())
