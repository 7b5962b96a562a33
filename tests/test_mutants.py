"""Planted faults, through the real loop: each is caught by a check that the correct code passes.

The statistical check is an audit (reliability in the sense of Nasr et al. 2021): an adversarial
teacher votes one way on one data set and the other way on its neighbour; how well the two can be
told from the whole transcript certifies a lower bound on mu, which must not exceed the mu that the
ledger was charged, and must be most of it where the code is correct. The exact checks compare runs
bit for bit.
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import toy
from scipy import stats

from dpgen_jax import loop
from dpgen_jax.accountant import gaussian
from dpgen_jax.aggregation.bits import SeededBits
from dpgen_jax.aggregation.noise import RoundedGaussian
from dpgen_jax.aggregation.schedule import Everyone
from dpgen_jax.aggregation.topk_sign import TopKSign, magnitude_bits
from dpgen_jax.private import partition, teachers

RUNS, ALPHA = 4000, 1e-6
WHERE = tiny.layout()
METHOD = tiny.build()


def charged(path, method) -> float:
    """mu of a run, from the ledger that the real loop wrote; nothing is computed."""
    def idle(method, layout):
        return lambda public, units, *rest: (
            public, units, {}, np.zeros((loop.LONGEST_BLOCK, 0), np.int32), None)

    _, ledger = tiny.train(path, method, tiny.neighbours()[0], WHERE, block=idle)
    return math.sqrt(gaussian.mu_squared(ledger.spent()))


def certified(zeros, ones, alpha: float = ALPHA) -> float:
    """Lower bound on mu from scores on both data sets, at confidence 1 - alpha (both errors by
    Clopper and Pearson, the threshold chosen on one half of the runs and judged on the other)."""
    half = len(zeros) // 2
    candidates = np.quantile(np.concatenate([zeros[:half], ones[:half]]), np.linspace(0, 1, 201))

    def bound(zeros, ones, threshold):
        errors = (zeros > threshold).sum(), (ones <= threshold).sum()
        rates = [stats.beta.ppf(1 - alpha / 2, k + 1, max(len(zeros) - k, 1e-9)) for k in errors]
        return -stats.norm.ppf(rates[0]) - stats.norm.ppf(rates[1])

    best = max(candidates, key=lambda t: bound(zeros[:half], ones[:half], t))
    return bound(zeros[half:], ones[half:], best)


@functools.cache
def vmapped(method):
    """The loop's own compiled block, over runs."""
    return jax.jit(jax.vmap(tiny.block(method, WHERE),
                            (0, None, None, None, 0, None, 0, None, None)))


def audit(method, deal: partition.Partition | None = None) -> float:
    """mu certified by the log likelihood ratio of the transcript.

    Each transcript is followed again on both data sets without noise, which gives the votes that
    either would have cast.
    """
    runs = vmapped(method)
    told = tiny.untold(WHERE, tiny.STEPS)
    pair = [tiny.placed(data, WHERE, deal) for data in tiny.neighbours()]
    state = tiny.start(WHERE)
    keys = jax.random.split(state.key, RUNS)
    shape = (RUNS, tiny.STEPS, *tiny.SHAPE, 3)

    def follow(data, given, bits):
        public = jax.tree.map(
            lambda a: np.broadcast_to(a, (RUNS, *np.shape(a))), tiny.transcript())
        if given is not None:
            public = dataclasses.replace(public, given=given, forced=np.ones(RUNS, np.float32))
        return np.asarray(runs(public, state.units, data, told[0], bits, told[1], keys, 0,
                               tiny.STEPS)[0].seen)

    scores = []
    for seed, data in enumerate(pair):
        bits = np.random.default_rng(seed).integers(2**32, size=shape, dtype=np.uint32)
        seen = follow(data, None, bits)
        other, one = (follow(d, seen, np.zeros(shape, np.uint32)) for d in reversed(pair))
        scores.append(((one - other) * (seen - (one + other) / 2)).sum((1, 2, 3)))
    return certified(*reversed(scores))


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
    data = tiny.neighbours()[0]
    monkeypatch.setattr(tiny, "neighbours", lambda: [data, data])
    assert audit(METHOD) <= 0


@dataclasses.dataclass(frozen=True)
class HalfDrawn(RoundedGaussian):
    def sample(self, bits):
        return RoundedGaussian(self.sigma / 2).sample(bits)


@dataclasses.dataclass(frozen=True)
class SqrtTwo(TopKSign):
    def squared_sensitivity(self):
        return super().squared_sensitivity() // 2


@dataclasses.dataclass(frozen=True)
class OneSided(TopKSign):
    def squared_sensitivity(self):
        return self.top_k * self.rows


@dataclasses.dataclass(frozen=True)
class OneRow(TopKSign):
    def squared_sensitivity(self):
        return 4 * self.top_k


@dataclasses.dataclass(frozen=True)
class AllTies(TopKSign):
    def project(self, key, message):
        order = magnitude_bits(message)
        kth = jnp.sort(order, -1)[..., -self.top_k][..., None]
        return jnp.where(order >= kth, jnp.sign(message), 0).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class NoProjection(TopKSign):
    def project(self, key, message):
        return message.astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class ChargedOnce(Everyone):
    def visits(self, steps):
        return 1


def named(fields):
    return type(next(iter(fields.values()))).__name__


@pytest.mark.parametrize("fields", [
    {"bound": SqrtTwo(tiny.TOP_K, tiny.ROWS)}, {"bound": OneSided(tiny.TOP_K, tiny.ROWS)},
    {"bound": OneRow(tiny.TOP_K, tiny.ROWS)}, {"schedule": ChargedOnce()}], ids=named)
def test_a_mechanism_that_charges_too_little_is_caught(tmp_path, fields):
    """It does what METHOD does and says that it costs less."""
    with pytest.raises(AssertionError, match="above"):
        check_claim(tmp_path / "ledger", tiny.build(**fields), sound())


@pytest.mark.parametrize("fields", [
    {"noise": HalfDrawn(tiny.SIGMA)}, {"bound": AllTies(tiny.TOP_K, tiny.ROWS)},
    {"bound": NoProjection(tiny.TOP_K, tiny.ROWS)}], ids=named)
def test_a_mechanism_that_does_more_than_it_charges_is_caught(tmp_path, fields):
    method = tiny.build(**fields)
    with pytest.raises(AssertionError, match="above"):
        check_claim(tmp_path / "ledger", method, audit(method))


def test_a_record_in_two_units_is_caught(tmp_path):
    dealt = tiny.dealt()
    index = dealt.index.copy()
    index[(tiny.owner() + 1) % tiny.UNITS, 0] = tiny.CANARY
    with pytest.raises(AssertionError, match="above"):
        check_claim(tmp_path / "ledger", METHOD,
                    audit(METHOD, partition.Partition(index, dealt.sizes)))


def test_the_audited_block_is_what_a_run_computes(tmp_path):
    """One run of the loop, block by block, and the vmapped block on the same bits."""
    data = tiny.neighbours()[0]
    state, _ = tiny.train(tmp_path / "ledger", METHOD, data, WHERE, steps_per_call=4)
    bits = np.zeros((1, 8, *tiny.SHAPE, 3), np.uint32)
    bits[:, :tiny.STEPS] = SeededBits(0).draw((tiny.STEPS, *tiny.SHAPE, 3))
    begun = tiny.start(WHERE)
    block = jax.vmap(tiny.block(METHOD, WHERE), (*[None] * 4, 0, *[None] * 4))
    secrets, groups = tiny.untold(WHERE, 8)
    again = block(begun.public, begun.units, tiny.placed(data, WHERE), secrets, bits, groups,
                  begun.key, 0, tiny.STEPS)[0]
    assert np.array_equal(state.public.seen, again.seen[0]) and np.any(state.public.seen)


# Noise bits are used once.

class ConstantBits(SeededBits):
    """Every call gets the same bits; within a call, steps differ."""

    def draw(self, shape):
        return SeededBits(0).draw(shape)


class RepeatedBits(SeededBits):
    """Two steps of one call share their bits."""

    def draw(self, shape):
        return np.repeat(super().draw(((shape[0] + 1) // 2, *shape[1:])), 2, axis=0)[:shape[0]]


@dataclasses.dataclass(frozen=True)
class SharedRows(RoundedGaussian):
    def sample(self, bits):
        return jnp.broadcast_to(super().sample(bits[:1]), bits.shape[:-1])


def check_fresh_noise(path, method, bits):
    """Noise of every step and row: what a run released minus what it releases without noise."""
    data = tiny.neighbours()[0]
    seen = np.asarray(tiny.train(path / "a", method, data, WHERE, bits=bits,
                                 steps_per_call=2)[0].public.seen)

    class NoBits(SeededBits):
        def draw(self, shape):
            return np.zeros(shape, np.uint32)

    silent = tiny.train(path / "b", method, data, WHERE, given=seen, bits=NoBits(0))[0]
    rows = (seen - np.asarray(silent.public.seen)).reshape(-1, tiny.SHAPE[1])
    assert rows.std() == pytest.approx(tiny.SIGMA, rel=5 / math.sqrt(2 * rows.size))
    assert len(np.unique(rows, axis=0)) == len(rows), "noise that was used twice"


def test_noise_is_fresh_in_every_step_and_row(tmp_path):
    check_fresh_noise(tmp_path, METHOD, SeededBits(0))


@pytest.mark.parametrize(("method", "bits"), [
    (METHOD, ConstantBits(0)), (METHOD, RepeatedBits(0)),
    (tiny.build(noise=SharedRows(tiny.SIGMA)), SeededBits(0))], ids=["calls", "steps", "rows"])
def test_noise_bits_that_are_used_twice_are_caught(tmp_path, method, bits):
    with pytest.raises(AssertionError, match="used twice"):
        check_fresh_noise(tmp_path, method, bits)


# One record moves one unit, and the public side hears of it through the release alone.

def check_separation(path, build):
    """Two neighbouring runs on one transcript: public state is equal up to what was released, and
    the state of one unit differs. build: data -> method, for a fault that reads the records."""
    states = [tiny.train(path / name, build(data), data, WHERE,
                         given=np.zeros((tiny.STEPS, *tiny.SHAPE), np.float32))[0]
              for name, data in zip("ab", tiny.neighbours(), strict=True)]
    first, second = (dataclasses.replace(s.public, seen=0) for s in states)
    assert toy.equal(first, second), "public state"
    moved = toy.differing_units(*map(tiny.arrays, states))
    assert moved == {tiny.owner()}, f"units {moved}"


def test_one_record_moves_one_unit(tmp_path):
    check_separation(tmp_path, lambda data: METHOD)


def test_momentum_shared_by_the_units_of_a_chunk_is_caught(tmp_path, monkeypatch):
    """As in the published codes, whose optimiser slots belong to a place in the graph."""
    separate = teachers.vmapped

    def shared(one, chunk):
        def visit(*args):
            units, votes = separate(one, chunk)(*args)
            momentum = units.state["momentum"]
            state = units.state | {"momentum": jnp.broadcast_to(momentum.mean(0), momentum.shape)}
            return dataclasses.replace(units, state=state), votes
        return visit

    monkeypatch.setattr(teachers, "vmapped", shared)
    method = tiny.build()
    with pytest.raises(AssertionError, match="units"):
        check_separation(tmp_path, lambda data: method)


def fed_by_labels(data):
    def absorb(key, public, query, released):
        public, metrics = tiny.absorb(key, public, query, released)
        return dataclasses.replace(public, given=public.given + data[1].mean()), metrics

    return tiny.build(absorb=absorb)


def asked_with_labels(data):
    def ask(key, public):
        query = tiny.ask(key, public)
        return dataclasses.replace(query, images=query.images + np.float32(data[1].mean()))

    return tiny.build(ask=ask)


@pytest.mark.parametrize(("build", "match"), [
    (fed_by_labels, "public state"), (asked_with_labels, "units")], ids=["absorb", "ask"])
def test_a_public_side_that_reads_private_labels_is_caught(tmp_path, build, match):
    with pytest.raises(AssertionError, match=match):
        check_separation(tmp_path, build)
