"""Planted faults that an audit catches, through the real loop (reliability in the sense of Nasr et
al. 2021): an adversarial teacher votes one way on one data set and the other way on its neighbour;
how well the two can be told from the whole transcript certifies a lower bound on mu, which must not
exceed the mu that the ledger was charged, and must be most of it where the code is correct."""

import dataclasses
import functools
import math

import jax
import numpy as np
import pytest
from planted import FAULTS
from planted import toy as adversary

from dpgen_jax.accountant import composition
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.audit import attacks
from dpgen_jax.run import loop

pytestmark = pytest.mark.slow
RUNS, ALPHA = 4000, 1e-6
WHERE = adversary.layout()
METHOD = adversary.build()


def charged(path, method) -> float:
    """mu of a run, from the ledger that the real loop wrote; nothing is computed."""
    def idle(method, layout):
        return lambda public, units, *rest: (
            public, units, {}, np.zeros((loop.LONGEST_BLOCK, 0), np.int32), None)

    _, ledger = adversary.train(path, method, adversary.neighbours()[0], WHERE, block=idle)
    return math.sqrt(composition.mu_squared(ledger.spent()))


@functools.cache
def vmapped(method):
    """The loop's own compiled block, over runs."""
    return jax.jit(jax.vmap(adversary.block(method, WHERE),
                            (0, None, None, None, 0, None, 0, None, None)))


def audit(method) -> float:
    """mu certified by the log likelihood ratio of the transcript.

    Each transcript is followed again on both data sets without noise, which gives the votes that
    either would have cast.
    """
    runs = vmapped(method)
    inputs = adversary.untold(WHERE, adversary.STEPS)
    pair = [adversary.placed(data, WHERE) for data in adversary.neighbours()]
    state = adversary.start(WHERE)
    keys = jax.random.split(state.key, RUNS)
    shape = (RUNS, adversary.STEPS, *adversary.SHAPE, 3)

    def follow(data, planted, bits):
        public = jax.tree.map(
            lambda a: np.broadcast_to(a, (RUNS, *np.shape(a))), adversary.transcript())
        if planted is not None:
            public = dataclasses.replace(public, planted=planted, forced=np.ones(RUNS, np.float32))
        return np.asarray(runs(public, state.units, data, inputs[0], bits, inputs[1], keys, 0,
                               adversary.STEPS)[0].seen)

    scores = []
    for seed, data in enumerate(pair):
        bits = np.random.default_rng(seed).integers(2**32, size=shape, dtype=np.uint32)
        seen = follow(data, None, bits)
        other, one = (follow(d, seen, np.zeros(shape, np.uint32)) for d in reversed(pair))
        scores.append(((one - other) * (seen - (one + other) / 2)).sum((1, 2, 3)))
    return float(attacks.certified(*reversed(scores), attacks.mu_of, ALPHA))


@functools.cache
def sound() -> float:
    """mu certified of what METHOD does."""
    return audit(METHOD)


def check_claim(path, method, bound: float):
    """method: what is charged; bound: mu that is certified of what is done."""
    claim = charged(path, method)
    assert bound <= claim, f"mu {bound:.2f} is certified, above the {claim:.2f} that was charged"
    assert bound > 0.75 * claim, f"mu {bound:.2f} of {claim:.2f}: this audit sees too little"


def test_the_correct_mechanism_certifies_most_of_its_claim_and_not_more(tmp_path):
    assert charged(tmp_path / "ledger", METHOD) == pytest.approx(2)
    check_claim(tmp_path / "again", METHOD, sound())


def test_an_audit_of_the_same_data_certifies_nothing(monkeypatch):
    data = adversary.neighbours()[0]
    monkeypatch.setattr(adversary, "neighbours", lambda: [data, data])
    assert audit(METHOD) <= 0


@pytest.mark.parametrize("name", [
    "sensitivity-off-by-sqrt-2", "sensitivity-off-by-the-batch", "rounds-not-composed"])
def test_a_mechanism_that_charges_too_little_is_caught(tmp_path, name):
    """It does what METHOD does and says that it costs less."""
    bound = sound()
    with FAULTS[name].plant(), pytest.raises(AssertionError, match="above"):
        check_claim(tmp_path / "ledger", adversary.build(), bound)


@pytest.mark.parametrize("name", [
    "noise-halved", pytest.param("ties-vote-on-more-than-k", marks=pytest.mark.long),
    pytest.param("no-bound-at-all", marks=pytest.mark.long), "record-in-two-units"])
def test_a_mechanism_that_does_more_than_it_charges_is_caught(tmp_path, name):
    with FAULTS[name].plant(), pytest.raises(AssertionError, match="above"):
        method = adversary.build()
        check_claim(tmp_path / "ledger", method, audit(method))


def test_the_audited_block_is_what_a_run_computes(tmp_path):
    """One run of the loop, block by block, and the vmapped block on the same bits."""
    data = adversary.neighbours()[0]
    state, _ = adversary.train(tmp_path / "ledger", METHOD, data, WHERE, steps_per_call=4)
    bits = np.zeros((1, 8, *adversary.SHAPE, 3), np.uint32)
    bits[:, :adversary.STEPS] = SeededBits(0).draw((adversary.STEPS, *adversary.SHAPE, 3))
    begun = adversary.start(WHERE)
    block = jax.vmap(adversary.block(METHOD, WHERE), (*[None] * 4, 0, *[None] * 4))
    secrets, groups = adversary.untold(WHERE, 8)
    again = block(begun.public, begun.units, adversary.placed(data, WHERE), secrets, bits, groups,
                  begun.key, 0, adversary.STEPS)[0]
    assert np.array_equal(state.public.seen, again.seen[0]) and np.any(state.public.seen)
