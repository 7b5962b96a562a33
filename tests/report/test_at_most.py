"""Printed bounds: no text of an epsilon or a delta says less than there is."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_examples import privacy

from dpgen_jax import presets
from dpgen_jax.accountant.events import EpsilonDeltaEvent
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.audit.findings import Finding, Verdict
from dpgen_jax.cli import terminal
from dpgen_jax.core.terms import at_most
from dpgen_jax.core.types import BudgetExceeded, ImageSpec
from dpgen_jax.release import documents, guarantee
from dpgen_jax.release.render import bound, number, one_in

BOUNDS = st.floats(1e-12, 1e9)


@given(BOUNDS, st.integers(2, 8))
def test_a_text_is_the_next_number_of_its_digits(value, digits):
    shown = float(at_most(value, digits))
    assert value <= shown * (1 + 1e-12) and shown <= value * (1 + 10.0 ** (1 - digits))
    assert at_most(shown, digits) == at_most(value, digits)


@pytest.mark.parametrize(("value", "text"), [
    (0.1, "0.1"), (0.1 * 1e-5, "1e-06"), (1.2345644, "1.23457"), (10.0, "10"), (9.9999991, "10"),
    (math.inf, "inf"), (math.nan, "nan"), (0.0, "0"), (1234567.0, "1.23457e+06")])
def test_numbers_that_people_wrote_stay_as_they_wrote_them(value, text):
    assert at_most(value) == text


@given(BOUNDS)
def test_on_pages_too(value):
    form = "(.*?)(?:(?: × |(?<!.))10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?"
    digits, power = re.fullmatch(form, bound(value)).groups()
    size = int((power or "⁰").translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")))
    shown = float(digits.replace(",", "") or 1) * 10.0**size
    assert value <= shown * (1 + 1e-12) and shown <= 1.01 * value


def test_every_text_on_a_release_is_an_upper_bound():
    """Epsilon 1.23449 at delta 3.1249e-06 was said to be 1.234 at 3.12e-06, 1 in 320,010."""
    stated = privacy(guarantee="(epsilon, delta) replace-one", epsilon=1.23449, delta=3.1249e-6,
                     budget_epsilon=1.23449)
    files = documents.files(stated, ImageSpec(8, 8, 1, 2), documents.of_release(
        ImageSpec(8, 8, 1, 2), False))
    page, words = files["statement.html"].decode(), files["README.txt"].decode()
    assert "1.235" in page and "1.234<" not in page and "1.234 " not in page
    assert "3.13 × 10" in page and "3.12 × 10" not in page
    assert "1 in 320,010" in page and one_in(1e-5) == " (1 in 100,000)"
    assert "epsilon 1.23449, delta 3.1249e-06" in words
    assert "epsilon 1.23457" in guarantee.line({**stated, "epsilon": 1.2345612})


def test_so_are_those_of_commands(capsys):
    terminal.print_record({"spent": {"epsilon": 0.12345649, "sigma": 0.12345649}}, False)
    assert capsys.readouterr().out.split() == ["spent:", "epsilon", "0.123457,", "sigma",
                                               "0.123456"]


@pytest.mark.parametrize(("epsilon", "two"), [(1.0, 1e-5 * (1 + math.e)), (12.0, None)])
def test_what_two_records_of_a_person_are_covered_by(epsilon, two):
    """Twice the epsilon alone is no bound: their delta grows by 1 + e^epsilon."""
    stated = documents.checked_statement(privacy(guarantee="(epsilon, delta) replace-one",
                                                 epsilon=epsilon,
                                                 delta=1e-5))
    (text,) = [answer for question, answer in documents.promise(stated) if "protected?" in question]
    assert "epsilon doubles to" in text
    assert (bound(two) in text) if two else "nothing is bounded" in text
    nothing = documents.checked_statement(privacy(guarantee="none: a seed", epsilon="inf"))
    assert "doubles" not in documents.promise(nothing)[0][1] and number(1.5) == "1.5"


def test_so_are_those_of_votes_budgets_and_audits(capsys, tmp_path):
    """A claim of 1.0000004 was printed as 1."""
    shown = {"epsilon_without_it": 1.0000004, "own_cost_rdp": 0.10000004, "spent": 2.0000004}
    terminal.print_record({"data_dependent_epsilon": shown}, False)
    assert re.findall(r"[\d.]+(?=,|\n)", capsys.readouterr().out) == ["1.00001", "0.100001",
                                                                     "2.00001"]
    line = Finding(check="", verdict=Verdict.HOLDS, detail="", seconds=0, measure="epsilon",
                   claimed=1.0004, certified=0.5, confidence=0.9).line()
    assert "claimed 1.001" in line
    spent = ((EpsilonDeltaEvent(0.9999999), 1),)
    with Ledger.create(tmp_path / "ledger.jsonl", {"epsilon": 1.0, "delta": 1e-5}) as book:
        book.charge(spent)
        with pytest.raises(BudgetExceeded, match="would need epsilon 1.00001$"):
            book.charge(((EpsilonDeltaEvent(0.0000004), 1),))
    for name, preset in presets.all_of("gswgan").items():
        said = next(line for line in presets.listed("gswgan") if line.startswith(f"{name}:"))
        assert float(re.search(r"delta (\S+),", said)[1]) * (1 + 1e-12) >= preset.delta
