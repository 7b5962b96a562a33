"""Rotation through the real loop: who is visited, what it costs, and that nobody else moves."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import toy
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgen_jax import loop
from dpgen_jax.accountant import gaussian
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.bits import SeededBits
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.aggregation.schedule import Rotation
from dpgen_jax.private import teachers
from dpgen_jax.types import Private, unseal

GROUPS = 2


def answer(key, unit, own, query):
    """The worst message of one record, else whole numbers, which every layout adds up alike."""
    worst = tiny.answer(key, unit, own, query)
    votes = own.x.reshape(-1, 8).astype(jnp.float32).sum(0) - 128 * len(own.y)
    return jnp.where(jnp.abs(worst) == 3, worst, votes + 0 * query.images)


@functools.cache
def method(units, groups=GROUPS, schedule=Rotation, kind=Mechanism):
    built = tiny.build(answer=answer, schedule=schedule(groups), n_units=units,
                       decode=lambda noised, n: noised.astype(jnp.float32) / n)
    return dataclasses.replace(built, mechanism=kind(**vars(built.mechanism)))


def layout(units, chunk=1, devices=1, parallel="shard_map", groups=GROUPS):
    return tiny.layout(chunk, devices, parallel, units, groups)


# What is charged.

class Cut(BaseException):
    """What ends a run in the middle of a block."""


class Silent(SeededBits):
    def draw(self, shape):
        return np.zeros(shape, np.uint32)


STEP = [0]  # of the state of the run at hand


def live(ledger, built, begun, steps, *, per_call=1, done=0, cut=False):
    """The real loop on blocks that only note which groups they visit; `done`: steps of the
    checkpoint it starts from; cut: the last block visits, and never comes back."""
    units, groups = built.mechanism.n_units, built.mechanism.schedule.groups

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
            where = layout(units, groups=groups)
            loop.train(built, None, loop.State(None, None, None, done), where, ledger,
                       SeededBits(ledger.incarnation), steps=steps,
                       steps_per_call=per_call, on_block=lambda state, metrics: None)
        except Cut:
            assert cut


def check_charged(spent, built, begun):
    """No unit was visited more often than is paid for, lost steps included."""
    mechanism = built.mechanism
    units = np.arange(mechanism.n_units) % mechanism.schedule.groups
    visits = sum((units == group).astype(int) for block in begun for group in block)
    ((visit, _),) = mechanism.events(1)
    paid = gaussian.mu_squared(spent) / visit.mu_squared
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


class AtState(Mechanism):
    """The mutant: the turns that are charged are those of the checkpoint, not of the ledger."""

    def due(self, spent, turn, steps):
        (event, before), = self.events(STEP[0])
        (_, after), = self.events(STEP[0] + steps)
        return ((event, after - before),)


class Difference(Mechanism):
    """The mutant: from the ledger's turns, but as if each of them had been paid for as a turn."""

    def due(self, spent, turn, steps):
        (event, before), = self.events(turn)
        (_, after), = self.events(turn + steps)
        return ((event, after - before),)


class Each(Mechanism):
    """Sound, if dear: every block pays as if it were the first."""

    def due(self, spent, turn, steps):
        return self.events(steps)


class Drawn(Rotation):
    """The mutant: whoever is drawn is visited, and the charge is that of a rotation."""

    def turns(self, source, first, n):
        return (source.draw((n,)) % self.groups).astype(np.int32)


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
        live(ledger, built := method(5, 2, Drawn), begun := [], 40)
        check_charged(ledger.spent(), built, begun)


# What is computed.

LAYOUTS = [(1, 1, "shard_map"), (2, 1, "shard_map"), (3, 2, "shard_map"), (1, 8, "shard_map"),
           (2, 2, "pmap")]
layouts = pytest.mark.parametrize("parts", LAYOUTS, ids=str)


def run(path, units, parts, data=0, steps=tiny.STEPS, **options):
    """(what was released, the units' arrays) of a run on one of the two neighbours."""
    state, ledger = tiny.train(path, method(units), tiny.neighbours()[data], layout(units, *parts),
                               steps=steps, **options)
    assert dict(ledger.spent()).popitem()[1] == -(-steps // GROUPS)
    return np.asarray(state.public.seen), tiny.arrays(state, units)


@functools.cache
def by_hand(units):
    """The same run, unit by unit: released without noise, and the units' arrays."""
    built, (held, key) = method(units), tiny.fresh(units)
    public = jax.tree.map(jnp.asarray, tiny.transcript())
    own = unseal(tiny.records.deal(tiny.records.seal(*tiny.neighbours()[0], tiny.SPEC),
                                   tiny.dealt(units)))
    ask = jax.jit(built.ask)
    visit = jax.jit(functools.partial(teachers.visit_one, built))
    held = [jax.tree.map(lambda a, u=u: a[u], held) for u in range(units)]
    for step in range(tiny.STEPS):
        query, total = ask(jax.random.split(jax.random.fold_in(key, step))[0], public), 0
        for u in range(step % GROUPS, units, GROUPS):
            mine = jax.tree.map(lambda a, u=u: a[u], own)
            held[u], votes = visit(held[u], mine, query, step, np.zeros(0, np.int32))
            total = total + np.asarray(votes)
        public = built.absorb(key, public, query, np.float32(total) / (units / GROUPS))[0]
    return np.asarray(public.seen), jax.tree.map(lambda *a: np.stack(a), *held).state


@pytest.mark.parametrize(("units", "parts"), [(4, LAYOUTS[1]), *((5, p) for p in LAYOUTS)])
def test_a_run_is_what_each_unit_does_in_its_turns(tmp_path, units, parts):
    """On every layout; the sum is divided by the units of a step."""
    seen, arrays = run(tmp_path / "ledger", units, parts, bits=Silent(0))
    expected, held = by_hand(units)
    np.testing.assert_allclose(seen, expected, rtol=1e-6)
    assert np.any(seen[0]) and np.abs(seen).max() <= -(-units // GROUPS) / (units / GROUPS)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), arrays, held)


@layouts
def test_units_that_are_not_visited_stay_as_they_are(tmp_path, parts):
    before = tiny.fresh(5)[0].state
    for steps in (1, 2):
        _, after = run(tmp_path / str(steps), 5, parts, steps=steps)
        assert toy.differing_units(before, after) == set(range(5) if steps == 2 else (0, 2, 4))


@layouts
def test_one_record_moves_one_unit_and_the_messages_of_its_turns(tmp_path, parts):
    """On one transcript, bit for bit."""
    told = np.zeros((tiny.STEPS, *tiny.SHAPE), np.float32)
    (seen, arrays), (seen2, arrays2) = (
        run(tmp_path / str(data), 5, parts, data, given=told) for data in (0, 1))
    assert toy.differing_units(arrays, arrays2) == {tiny.owner(5)}
    moved = {step for step in range(tiny.STEPS) if not np.array_equal(seen[step], seen2[step])}
    assert moved == set(range(tiny.owner(5) % GROUPS, tiny.STEPS, GROUPS))


@pytest.mark.parametrize("parts", [LAYOUTS[1], LAYOUTS[2]], ids=str)
def test_messages_are_each_units_own(parts):
    where, built = layout(5, *parts), method(5)
    bits = np.zeros((loop.LONGEST_BLOCK, *tiny.SHAPE, 3), np.uint32)
    secrets, groups = tiny.untold(where, len(bits))
    groups[1::2] = 1
    pair = [tiny.placed(data, where) for data in tiny.neighbours()]

    def votes_of(only, records):
        state = tiny.start(where)
        ids = np.where(np.arange(where.padded) == only, only, 5).astype(np.int32)
        ids = ids.reshape(unseal(state.units).id.shape)
        alone = Private(dataclasses.replace(unseal(state.units), id=ids))
        return tiny.block(built, where)(state.public, alone, records, secrets, bits, groups,
                                        state.key, 0, 2)[0].seen

    moved = {u for u in range(5) if not np.array_equal(*(votes_of(u, own) for own in pair))}
    assert moved == {tiny.owner(5)}
