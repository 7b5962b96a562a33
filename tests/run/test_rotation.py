"""Rotation through the real loop: who is visited, what it costs, and that nobody else moves."""

import dataclasses
import functools

import jax.numpy as jnp
import loops
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import toy as adversary

from dpgen_jax.accountant import composition
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.mechanism import SumMechanism
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.aggregation.schedule import RoundRobin
from dpgen_jax.run import loop

GROUPS = 2


def answer(key, unit, own, query):
    """The worst message of one record, else whole numbers, which every layout adds up alike."""
    worst = adversary.answer(key, unit, own, query)
    votes = own.x.reshape(-1, 8).astype(jnp.float32).sum(0) - 128 * len(own.y)
    return jnp.where(jnp.abs(worst) == 3, worst, votes + 0 * query.images)


@functools.cache
def method(units, n_cohorts=GROUPS, schedule=RoundRobin, kind=SumMechanism):
    built = adversary.build(answer=answer, schedule=schedule(n_cohorts), n_units=units,
                            decode=lambda noised, n: noised.astype(jnp.float32) / n)
    return dataclasses.replace(built, mechanism=kind(**vars(built.mechanism)))


def layout(units, chunk=1, devices=1, parallel="shard_map", n_cohorts=GROUPS):
    return adversary.layout(chunk, devices, parallel, units, n_cohorts)


# What is charged.

class Cut(BaseException):
    """An exception that ends a run in the middle of a block."""


class Silent(SeededBits):
    def draw(self, shape):
        return np.zeros(shape, np.uint32)


STEP = [0]  # of the state of the run at hand


def live(ledger, built, begun, steps, *, per_call=1, done=0, cut=False):
    """The real loop on blocks that only note which groups they visit; `done`: steps of the
    checkpoint it starts from; cut: the last block visits, and never comes back."""
    units, groups = built.mechanism.n_units, built.mechanism.schedule.n_cohorts

    def idle(built, where):
        def block(public, state, records, secrets, bits, visited, key, step, n):
            begun.append(list(visited[:n]))
            STEP[0] = step + n
            if cut and step + n == steps:
                raise Cut
            return public, state, {}, np.zeros((len(bits), 0), np.int32), None
        return block

    STEP[0] = done
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop, "compile_block", idle)
        try:
            where = layout(units, n_cohorts=groups)
            loops.train(built, None, loop.State(None, None, None, done), where, ledger,
                        SeededBits(ledger.incarnation), steps=steps,
                        steps_per_call=per_call, on_block=lambda state, metrics: None)
        except Cut:
            assert cut


def check_charged(spent, built, begun):
    """No unit was visited more often than is paid for, lost steps included."""
    mechanism = built.mechanism
    units = np.arange(mechanism.n_units) % mechanism.schedule.n_cohorts
    visits = sum((units == group).astype(int) for block in begun for group in block)
    ((visit, _),) = mechanism.events(1)
    paid = composition.mu_squared(spent) / visit.mu_squared
    assert np.max(visits) <= paid + 1e-9, f"{visits} visits, {paid:g} of them paid for"


def create(path):
    return Ledger.create(path, {"epsilon": float("inf"), "delta": 1e-5})


@pytest.mark.parametrize(("groups", "per_call"), [(1, 2), (2, 1), (2, 16), (3, 2), (7, 3)])
def test_a_run_is_charged_the_visits_of_one_unit(tmp_path, groups, per_call):
    built = method(5, groups)
    for steps in (1, 2, 3, 6, 7, 20):
        with create(tmp_path / str(steps)) as ledger:
            live(ledger, built, begun := [], steps, per_call=per_call)
            ((_, count),) = ledger.spent()
            assert count == -(-steps // groups) and ledger.steps_charged == steps
            check_charged(ledger.spent(), built, begun)
            assert [g for block in begun for g in block] == [t % groups for t in range(steps)]


def test_the_first_turns_of_a_round_pay_for_it(tmp_path):
    counts = []
    with create(tmp_path / "ledger") as ledger:
        for step in range(7):
            live(ledger, method(5, 3), [], step + 1, done=step)
            counts.append(dict(ledger.spent()).popitem()[1])
    assert counts == [1, 1, 1, 2, 2, 2, 3]


lives = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(0, 6)),
                 min_size=1, max_size=5)


@settings(max_examples=40)
@given(st.integers(1, 4), lives)
def test_lost_steps_stay_paid_for(tmp_path_factory, groups, lives):
    """A run that is cut again and again, and goes on from checkpoints of any age."""
    path, built, begun, done = tmp_path_factory.mktemp("run") / "ledger", method(5, groups), [], 0
    for steps, per_call, lost in lives:
        with Ledger.open(path) if path.exists() else create(path) as ledger:
            live(ledger, built, begun, done + steps, per_call=per_call, done=done, cut=True)
            check_charged(ledger.spent(), built, begun)
            assert ledger.steps_charged == sum(map(len, begun))
        done = max(0, done + steps - lost)


def torn(path, built, keep):
    """A run of three blocks whose ledger is torn at every place, and the run that follows it."""
    with create(path) as ledger:
        live(ledger, built, whole := [], 3)
    lines = path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines[1:], 1):
        for at in [*range(0, len(line), 37), len(line) - 1]:
            for done in keep:
                path.write_bytes(b"".join(lines[:number]) + line[:at])
                begun = whole[:sum(b'"kind":"reserve"' in text for text in lines[:number])]
                with Ledger.open(path) as ledger:
                    check_charged(ledger.spent(), built, begun)
                    live(ledger, built, begun, done + 3, done=done, cut=done > 0)
                    check_charged(ledger.spent(), built, begun)


def test_torn_lines_leave_no_visit_unpaid(tmp_path):
    torn(tmp_path / "ledger", method(5, 2), [0, 1])
    torn(tmp_path / "other", method(5, 3), [0])


class AtState(SumMechanism):
    """The mutant: the turns that are charged are those of the checkpoint, not of the ledger."""

    def pending_charge(self, spent, turn, steps):
        (event, before), = self.events(STEP[0])
        (_, after), = self.events(STEP[0] + steps)
        return ((event, after - before),)


class Difference(SumMechanism):
    """The mutant: from the ledger's turns, but as if each of them had been paid for as a turn."""

    def pending_charge(self, spent, turn, steps):
        (event, before), = self.events(turn)
        (_, after), = self.events(turn + steps)
        return ((event, after - before),)


class Each(SumMechanism):
    """Sound, if dear: every block pays as if it were the first."""

    def pending_charge(self, spent, turn, steps):
        return self.events(steps)


class SampledRotation(RoundRobin):
    """The mutant: whoever is drawn is visited, and the charge is that of a rotation."""

    def cohorts(self, source, first, n):
        return (source.draw((n,)) % self.n_cohorts).astype(np.int32)


def cut_once(path, built):
    with create(path) as ledger:
        live(ledger, built, begun := [], 2, cut=True)
        live(ledger, built, begun, 4, done=1)
        check_charged(ledger.spent(), built, begun)


def test_a_charge_at_the_step_of_the_checkpoint_is_caught(tmp_path):
    cut_once(tmp_path / "sound", method(5, 2))
    with pytest.raises(AssertionError, match="paid for"):
        cut_once(tmp_path / "mutant", method(5, 2, kind=AtState))


def test_a_charge_that_trusts_torn_lines_is_caught(tmp_path):
    with pytest.raises(AssertionError, match="paid for"):
        torn(tmp_path / "ledger", method(5, 2, kind=Difference), [0])


def test_a_charge_by_block_is_more_than_enough(tmp_path):
    cut_once(tmp_path / "cut", method(5, 2, kind=Each))
    torn(tmp_path / "torn", method(5, 2, kind=Each), [0])


def test_random_visits_at_the_price_of_a_rotation_are_caught(tmp_path):
    with create(tmp_path / "ledger") as ledger, pytest.raises(AssertionError, match="paid for"):
        live(ledger, built := method(5, 2, SampledRotation), begun := [], 40)
        check_charged(ledger.spent(), built, begun)
