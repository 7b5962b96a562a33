"""A method whose rounds differ in cost is charged by the phase that makes a round."""

import dataclasses

import pytest
from planted import books, toy

from dpgen_jax.aggregation.noise import RoundedGaussian

STEPS = 4


def test_each_round_is_charged_by_its_phase(tmp_path):
    dear = toy.build(noise=RoundedGaussian(toy.SIGMA / 2))
    cheap = toy.build()
    method = dataclasses.replace(dear, phases=(dear, cheap))
    _, ledger = toy.train(tmp_path / "ledger", method, toy.neighbours()[0], toy.layout(),
                          block=books.idle, steps=STEPS, steps_per_call=1)
    spent = dict(ledger.spent())
    (first, _), = dear.mechanism.events(1)
    (further, _), = cheap.mechanism.events(1)
    # A lost round may have been of any phase: of all rounds so far, each counts as the present one.
    assert first.mu_squared > further.mu_squared
    assert spent == {first: 1, further: STEPS} and ledger.steps_charged == STEPS


def test_a_cheap_phase_before_a_dear_one_does_not_make_that_one_cheaper(tmp_path):
    dear, cheap = toy.build(noise=RoundedGaussian(toy.SIGMA / 2)), toy.build()
    method = dataclasses.replace(cheap, phases=(cheap, dear))
    _, ledger = toy.train(tmp_path / "ledger", method, toy.neighbours()[0], toy.layout(),
                          block=books.idle, steps=STEPS, steps_per_call=1)
    (event, _), = dear.mechanism.events(1)
    assert dict(ledger.spent())[event] >= STEPS - 1


def test_phases_lie_alike_on_devices():
    with pytest.raises(ValueError, match="differ in units"):
        dataclasses.replace(toy.build(), phases=(toy.build(), toy.build(n_units=2 * toy.UNITS)))
