"""Amplification that is not there: each claim is audited through the loop's own compiled block.

A unit votes one way on one data set and the other way on its neighbour, everybody else abstains.
How well the two can be told from what is released certifies a lower bound on epsilon at the
ledger's delta, which must not exceed the epsilon of the ledger.
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import loops
import numpy as np
import pytest
from planted import toy as adversary

from dpgen_jax.accountant.events import SampledGaussianEvent
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.mechanism import SumMechanism
from dpgen_jax.aggregation.noise import RoundedGaussian, SeededBits
from dpgen_jax.aggregation.schedule import FixedSizeSampling, RoundRobin
from dpgen_jax.aggregation.topagg import TopKSign
from dpgen_jax.audit import attacks
from dpgen_jax.core.types import Method, Private, Records
from dpgen_jax.private import teachers
from dpgen_jax.run import loop

pytestmark = pytest.mark.slow

RUNS, ALPHA, DELTA = 16_000, 1e-6, 0.01
OWNER, ROWS = 7, 36


def build(schedule, units: int, rows: int, sigma: float) -> Method:
    """One coordinate in `rows` rows. The public state is a score of what was released: in a
    rotation the sum over the turns of the audited unit, else the largest step, which is likely to
    be the one in which that unit was drawn."""
    mechanism = SumMechanism(
        bound=TopKSign(1, rows),
        noise=RoundedGaussian(sigma),
        schedule=schedule,
        n_units=units,
        shape=(rows, 1),
        decode=lambda noised, n: noised.astype(jnp.float32),
    )

    def answer(key, unit, own, query):
        return jnp.full((rows, 1), own.x[0, 0], jnp.float32)

    def absorb(key, public, query, released):
        score, step = public
        if schedule.n_cohorts == 1:
            return (jnp.maximum(score, released.sum()), step + 1), {}
        turn = step % schedule.n_cohorts == OWNER % schedule.n_cohorts
        return (score + jnp.where(turn, released.sum(), 0), step + 1), {}

    return dataclasses.replace(
        adversary.build(
            init=lambda key: (jnp.float32(0), jnp.int32(0)),
            ask=lambda key, public: (),
            init_unit=lambda key: jnp.zeros(1),
            learn=lambda key, unit, own, query: unit,
            answer=answer,
            absorb=absorb,
        ),
        mechanism=mechanism,
    )


def layout(method: Method) -> teachers.Layout:
    mechanism = method.mechanism
    return adversary.layout(1, units=mechanism.n_units, n_cohorts=mechanism.schedule.n_cohorts)


def charged(path, method: Method, steps: int) -> float:
    """Epsilon of a run, from the ledger that the real loop wrote; nothing is computed."""
    def idle(method, where):
        return lambda public, units, records, secrets, bits, *rest: (
            public, units, {}, np.zeros((len(bits), 0), np.int32), None)

    with Ledger.create(path, {"epsilon": math.inf, "delta": DELTA}) as ledger, \
            pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop, "compile_block", idle)
        loops.train(method, None, loop.State(None, None, None), layout(method), ledger,
                    SeededBits(0), steps=steps, on_block=lambda state, metrics: None)
        return ledger.epsilon()


class Fast:
    """Bits for many runs, which a seeded source would take a minute to hash."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)

    def draw(self, shape):
        return self.rng.integers(2**32, size=shape, dtype=np.uint32)

    def draw_for(self, units, first, shape):
        return self.draw((*units.shape, *shape))


def scores(method: Method, steps: int, vote: int, seed: int) -> np.ndarray:
    """The sums of RUNS runs, on fresh noise and fresh draws."""
    where, mechanism = layout(method), method.mechanism
    own = np.zeros((mechanism.n_units, 1, 1), np.int32)
    own[OWNER] = vote
    records = teachers.place(Private(Records(own, np.zeros(own.shape[:2], np.int32))), where)
    units = teachers.stack(method, jax.random.key(0), where)
    source, groups = Fast(seed), mechanism.schedule.cohorts(None, 0, steps)
    bits = source.draw((RUNS, steps, *mechanism.bits_shape))
    inputs = mechanism.private_inputs(source, np.tile(groups, RUNS), 0)
    secrets = np.moveaxis(inputs.reshape(len(inputs), RUNS, steps, *inputs.shape[2:]), 1, 0)
    block = jax.vmap(loop.compile_block(method, where), (*[None] * 3, 0, 0, *[None] * 4))
    out = jax.jit(block)((jnp.float32(0), jnp.int32(0)), units, records, secrets, bits, groups,
                         jax.random.key(1), 0, steps)
    return np.asarray(out[0][0])


def certified(zeros: np.ndarray, ones: np.ndarray) -> float:
    """Lower bound on epsilon at DELTA, at confidence 1 - ALPHA."""
    return float(attacks.certified(zeros, ones, attacks.epsilon_of(DELTA), ALPHA))


@functools.cache
def audit(schedule, units: int, rows: int, steps: int, sigma: float) -> float:
    """Epsilon certified of what a schedule does; what it says of the cost plays no part."""
    method = build(schedule, units, rows, sigma)
    return certified(*(scores(method, steps, vote, seed) for seed, vote in enumerate((-1, 1))))


def check_audit(path, schedule, done, units: int, rows: int, steps: int, sigma: float):
    """schedule: what is charged; done: the sound one that does the same."""
    claim = charged(path, build(schedule, units, rows, sigma), steps)
    bound = audit(done, units, rows, steps, sigma)
    assert bound > 2, f"epsilon {bound:.2f}: this audit sees too little"
    assert bound <= claim, f"epsilon {bound:.2f} is certified, above the {claim:.2f} charged"


class Fixed(RoundRobin):
    """The mutant: a fixed partition, visited in turn, at the price of fresh secret draws."""

    def event(self, visit, bound):
        return SampledGaussianEvent(visit, self.n_cohorts, 1)

    def max_participations(self, turns):
        return turns


class BatchLast(FixedSizeSampling):
    """The mutant: one row is amplified, and the rows are composed after that, as published."""

    def event(self, visit, bound):
        return super().event(dataclasses.replace(
            visit, squared_sensitivity=visit.squared_sensitivity // ROWS), bound)

    def max_participations(self, turns):
        return turns * ROWS


ROTATION = {"done": RoundRobin(20), "units": 20, "rows": 1, "steps": 160, "sigma": 4.0}
DRAW = {"done": FixedSizeSampling(100, 1), "units": 100, "rows": ROWS, "steps": 10, "sigma": 1.5}


def test_schedules_are_worth_what_is_charged(tmp_path):
    check_audit(tmp_path / "rotation", RoundRobin(20), **ROTATION)
    check_audit(tmp_path / "draw", FixedSizeSampling(100, 1), **DRAW)


def test_amplification_of_a_fixed_partition_is_caught(tmp_path):
    with pytest.raises(AssertionError, match="above"):
        check_audit(tmp_path / "ledger", Fixed(20), **ROTATION)


def test_a_batch_that_is_composed_after_amplification_is_caught(tmp_path):
    with pytest.raises(AssertionError, match="above"):
        check_audit(tmp_path / "ledger", BatchLast(100, 1), **DRAW)


def test_an_audit_of_the_same_data_certifies_nothing():
    noise = np.random.default_rng(0).normal(size=(2, RUNS))
    assert certified(*noise) <= 0.1
