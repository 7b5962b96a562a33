"""A release that judges is charged beside the run it judges, however alike what the two cost."""

import dataclasses
import math
import types

import pytest
import runs

from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.events import EpsilonDeltaEvent
from dpgen_jax.audit.findings import Findings, Verdict
from dpgen_jax.audit.folder import spending
from dpgen_jax.audit.folder.reading import Folder
from dpgen_jax.core.config import Budget, MonitorOptions
from dpgen_jax.core.types import UserError
from dpgen_jax.data import from_arrays
from dpgen_jax.methods import datalens
from dpgen_jax.run import lifecycle, monitor, side_releases

pytestmark = pytest.mark.usefixtures("compiled_once")
NAMES = ((EpsilonDeltaEvent(0.5, 1e-5, "discrete-laplace categories"), 1),)
"""The price of class names, which every run that buys its own pays."""
BUDGET, SIGMA = Budget(60.0, 1e-3), 40.0
HEADER = {"epsilon": 60.0, "delta": 1e-3, "relation": "replace-one", "unit": "record"}


def by_hand(account):
    """The squared mu of all Gaussian events, and what names cost, by the numbers of the events."""
    return (math.fsum(n * event.squared_sensitivity / event.sigma**2
                      for event, n in account.spent() if hasattr(event, "sigma")),
            math.fsum(n * event.epsilon for event, n in account.spent()
                      if hasattr(event, "epsilon")))


def test_equal_events_of_a_judge_pay_for_nothing_else(tmp_path, monkeypatch):
    """Two runs of six rounds of the same noise, which bought class names each; one judges the
    other: all is charged. A judge's events once paid for the rounds, or for the names."""
    mechanism = datalens.mechanism(dataclasses.replace(runs.CONFIG, sigma=SIGMA),
                                   from_arrays(*runs.images(), 3).spec)
    (tmp_path / "judge").mkdir()
    with books.Ledger.create(tmp_path / "judge/ledger.jsonl", HEADER) as ledger:
        ledger.charge(NAMES)
        ledger.reserve(mechanism.pending_charge(ledger.spent(), 0, 6), 6)
        alone = by_hand(ledger)
    monkeypatch.setattr(monitor, "load", lambda root: types.SimpleNamespace(privacy=None))
    monkeypatch.setattr(monitor.guarantee, "of",
                        lambda privacy: types.SimpleNamespace(kind="valid"))
    cost = monitor.judging_cost(MonitorOptions(
        evaluate_every=1, public_dataset=f"release:{tmp_path / 'judge'}"), False)
    with books.Ledger.create(tmp_path / "ledger.jsonl", HEADER) as ledger:
        ledger.charge(NAMES)  # as `early` does before the data are read
        for _ in range(2):  # a resume charges nothing again
            side_releases.charge_once(ledger, (*NAMES, *cost))
        ledger.reserve(mechanism.pending_charge(ledger.spent(), 0, 6), 6)
        assert by_hand(ledger) == pytest.approx((2 * alone[0], 2 * alone[1])) and alone[1] == 0.5
        side_releases.charge_once(ledger, (*NAMES, *cost))
        assert by_hand(ledger) == pytest.approx((2 * alone[0], 2 * alone[1]))


def train(out, judge=None, **options):
    watching = MonitorOptions(evaluate_every=6 if judge else None, keep_best=bool(judge),
                              public_dataset=f"release:{judge}" if judge else None)
    request = dataclasses.replace(runs.request(out, sigma=SIGMA, budget=BUDGET, **options),
                                  monitor=watching)
    lifecycle.run(request, from_arrays(*runs.images(), 3), lambda line: None)
    return books.account(books.read(out / "ledger.jsonl"))


def test_a_judge_that_went_on_since_its_cost_was_read_is_refused(tmp_path, monkeypatch):
    costs = iter([(), NAMES])
    monkeypatch.setattr(monitor, "judging_cost", lambda *_: next(costs))
    with pytest.raises(UserError, match="continued while this one started"):
        lifecycle.rehearse(runs.request(tmp_path / "run"), from_arrays(*runs.images(), 3),
                           lambda line: None)


@pytest.mark.slow
def test_two_runs_of_the_same_noise(tmp_path, monkeypatch):
    for module in (monitor, monitor):
        monkeypatch.setattr(module, "SAMPLES", 60)
    alone = train(tmp_path / "judge")
    judged = train(tmp_path / "judged", tmp_path / "judge")
    assert by_hand(judged)[0] == pytest.approx(2 * by_hand(alone)[0]) and judged.steps == 6
    again = train(tmp_path / "judged", tmp_path / "judge", resume=True)
    assert again.spent() == judged.spent() and judged.epsilon() > 1.3 * alone.epsilon()
    findings = Findings()
    for name in ("judge", "judged"):
        spending.purchases_of_the_data(Folder(tmp_path / name, True), findings)
    assert [found.verdict for found in findings.made] == [Verdict.HOLDS]
    config = tmp_path / "judge/config.json"
    config.write_text(config.read_text().replace("{", '{"judged_by": "another",', 1))
    spending.purchases_of_the_data(Folder(tmp_path / "judge", True), findings)
    assert findings.made[-1].verdict == Verdict.FAILS
