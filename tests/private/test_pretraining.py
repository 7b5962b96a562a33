"""Warm-up in chunks, on devices and in calls of any length: each unit as if it were alone."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_datalens
from planted import toy as adversary

from dpgen_jax.core.types import Pretraining, Private, unseal
from dpgen_jax.private import pretraining, streaming, teachers

STEPS = 7
COUNT = 5  # divides by no chunk and by no number of devices
MARK = np.float32(77)  # of what is thrown away


def init(key):
    weights = jax.random.normal(key, (8,))
    return {"weights": weights, "own": jnp.zeros((3, 8)), "thrown": jnp.full(2, MARK)}


def step(key, state, own):
    """A little descent on the unit's records, with a momentum of each and noise from the key."""
    flat = own.x.reshape(len(own.y), 8) / 255 + 0.1 * own.y[:, None]
    pull = flat[:3] - state["weights"] + 0.1 * jax.random.normal(key, (3, 8))
    moved = 0.5 * state["own"] + pull
    return {"weights": state["weights"] + 0.1 * moved.mean(0), "own": moved,
            "thrown": state["thrown"]}


def finish(state):
    return {"weights": state["weights"], "momentum": state["own"].sum(0)}


METHOD = adversary.build(n_units=COUNT, pretraining=Pretraining(STEPS, init, step, finish))
DEAL = adversary.records.assign(15, COUNT, adversary.KEY)
layouts = pytest.mark.parametrize("parts", [
    (1, 1, "shard_map"), (2, 1, "shard_map"), (3, 1, "shard_map"), (1, 2, "shard_map"),
    (2, 2, "pmap"), (1, 8, "shard_map")], ids=str)


def near(found, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
                 found.state, expected.state)


def layout(chunk=1, devices=1, parallel="shard_map", n_cohorts=1):
    return adversary.layout(chunk, devices, parallel, COUNT, n_cohorts)


def data(n=15):
    rng = np.random.default_rng(1)
    return rng.integers(0, 256, (n, *adversary.SPEC.shape), dtype=np.uint8), rng.integers(0, 2, n)


@functools.cache
def fresh():
    """The units before anything, on the host: donated buffers are used up."""
    return real(teachers.stack(METHOD, jax.random.key(3), layout()), layout())


def cold(where):
    return adversary.lay(fresh(), where)


def real(units, where):
    """Arrays [U, ...] of the real units, on the host."""
    return unseal(next(streaming.blocks(units, where, COUNT)))


@pytest.fixture(autouse=True)
def compiled_once(monkeypatch):
    monkeypatch.setattr(pretraining, "compile_call", CALLS)


CALLS = functools.cache(pretraining.compile_call)


def warmed(where, records=None, method=METHOD):
    """The units after the whole warm-up, and the shares that were told."""
    own = adversary.placed(records or data(), where, DEAL)
    *_, (units, _) = blocks = list(pretraining.pretrain(method, cold(where), own, where))
    return units, [share for _, share in blocks]


def one_by_one():
    """Each unit by itself, with no layout."""
    own = unseal(adversary.records.deal(adversary.records.seal(*data(), adversary.SPEC), DEAL))
    units = fresh()
    warm = jax.jit(lambda unit, own: pretraining.pretrain_one(METHOD, unit, own))
    done = [warm(*jax.tree.map(lambda a, i=i: a[i], (units, own))) for i in range(COUNT)]
    return jax.tree.map(lambda *parts: np.stack(parts), *done)


ALONE = one_by_one()


def test_a_chunk_of_one_is_the_unit_alone_bit_for_bit():
    units, _ = warmed(layout())
    assert small_datalens.equal(real(units, layout()), ALONE)
    assert np.all(ALONE.warm == 1) and ALONE.warm.dtype == np.uint8


@layouts
def test_no_layout_changes_what_a_unit_becomes(parts):
    where = layout(*parts)
    units, shares = warmed(where)
    found = real(units, where)
    for name in ("key", "id", "warm"):
        np.testing.assert_array_equal(getattr(found, name), getattr(ALONE, name))
    near(found, ALONE)
    assert shares == sorted(shares) and shares[-1] == 1 and shares[0] > 0
    assert np.all(streaming.warmed(units, where))


@pytest.mark.parametrize("groups", [2, 3])
def test_rows_of_groups_are_warmed_like_any_others(groups):
    where = layout(2, 2, n_cohorts=groups)
    units, _ = warmed(where)
    near(real(units, where), ALONE)


def together(pretrained, chunk=1, devices=1, **fields):
    """A layout that pretrains so many units of a device at once."""
    return dataclasses.replace(layout(chunk, devices, **fields), pretrained=pretrained)


@pytest.mark.parametrize("where", [
    together(2), together(3, 2), together(99), together(1, 2), together(2, devices=2),
    together(4, n_cohorts=COUNT), together(2, 2, 2, parallel="pmap")],
    ids=lambda where: f"{where.pretrained}, {where.chunk}, {len(where.devices)}, {where.n_cohorts}")
def test_more_units_or_fewer_are_pretrained_at_once_than_are_queried(where):
    """The last ones at once may have some of those before them among them."""
    units, shares = warmed(where)
    found = real(units, where)
    np.testing.assert_array_equal(found.warm, ALONE.warm)
    near(found, ALONE)
    own = where.padded // len(where.devices)
    assert where.pretrained_at_once <= min(where.pretrained, own)
    assert len(shares) >= -(-own // where.pretrained_at_once) and shares[-1] == 1


def test_sessions_that_are_short_come_to_an_end_where_two_chunks_hold_a_unit(monkeypatch):
    """A unit that is done stays so while the last chunk, which has it too, is pretrained."""
    of_length(monkeypatch, 1)
    where, units, done = together(2), cold(together(2)), []
    while not np.all(streaming.warmed(units, where)) and len(done) < 5:
        work = pretraining.pretrain(METHOD, units, adversary.placed(data(), where, DEAL), where)
        for _ in range(STEPS + 2):
            units, _ = next(work, (units, 1))
        done.append(streaming.warmed(units, where).sum())
        units = streaming.assemble(streaming.blocks(units, where, 3), METHOD, where)
    assert done == [2, 4, COUNT]
    near(real(units, where), ALONE)


def of_length(monkeypatch, longest):
    """Calls of at most so many steps."""
    monkeypatch.setattr(pretraining, "LONGEST_CALL", longest)


@pytest.mark.parametrize("longest", [1, 3])
def test_the_length_of_calls_does_not_matter(monkeypatch, longest):
    of_length(monkeypatch, longest)
    units, shares = warmed(layout(2))
    monkeypatch.undo()
    usual, _ = warmed(layout(2))
    assert small_datalens.equal(real(units, layout(2)), real(usual, layout(2)))
    assert len(shares) >= 3 * -(-STEPS // longest)


@pytest.mark.parametrize("calls", [1, 4, STEPS, STEPS + 2])
def test_an_interrupted_warm_up_goes_on_and_ends_where_it_would_have(monkeypatch, calls):
    """Saved and restored in between, on another layout, as a run does it."""
    of_length(monkeypatch, 1)
    where = layout(2)
    whole = real(warmed(where)[0], where)
    work = pretraining.pretrain(METHOD, cold(where), adversary.placed(data(), where, DEAL), where)
    for _ in range(calls):
        units, _ = next(work)
    work.close()
    done = streaming.warmed(units, where)
    assert done.sum() == 2 * (calls // STEPS)  # a unit that is half warm does not count
    units = streaming.assemble(streaming.blocks(units, where, 3), METHOD, where)
    *_, (units, _) = seen = list(
        pretraining.pretrain(METHOD, units, adversary.placed(data(), where, DEAL), where))
    assert small_datalens.equal(real(units, where), whole)
    assert len(seen) == STEPS * (3 - calls // STEPS)  # what was done is not done again


def test_warm_units_are_left_alone():
    where = layout(2, 2)
    units, _ = warmed(where)
    before = real(units, where)
    again = list(pretraining.pretrain(METHOD, units, adversary.placed(data(), where, DEAL), where))
    assert not again and small_datalens.equal(before, real(units, where))


# Private.

@pytest.mark.parametrize("parts", [(1, 1), (2, 1), (2, 2), (1, 8)], ids=str)
def test_one_record_moves_one_unit(parts):
    where, (x, y) = layout(*parts), data()
    record = 4
    owner = int(np.argwhere(DEAL.index == record)[0][0])
    other, labels = x.copy(), y.copy()
    other[record], labels[record] = 255 - other[record], 1 - labels[record]
    pair = [real(warmed(where, records)[0], where) for records in ((x, y), (other, labels))]
    assert small_datalens.differing_units(*pair) == {owner}
    for a, b in zip(*map(jax.tree.leaves, (pair[0].state, pair[1].state)), strict=True):
        assert np.any(a[owner] != b[owner])


def test_a_state_shared_by_a_chunk_is_caught(monkeypatch):
    """The check above on a warm-up whose chunks keep one momentum."""
    separate = pretraining.vmapped

    def shared(one, chunk):
        def visit(*args):
            units, states = separate(one, chunk)(*args)
            mean = states["own"].mean(0)
            return units, states | {"own": jnp.broadcast_to(mean, states["own"].shape)}
        return visit

    monkeypatch.setattr(pretraining, "vmapped", shared)
    CALLS.cache_clear()
    of_length(monkeypatch, 2)
    with pytest.raises(AssertionError):
        test_one_record_moves_one_unit((2, 1))
    CALLS.cache_clear()


def test_what_is_thrown_away_is_not_kept(monkeypatch):
    """Neither in the units' arrays nor in their shapes, at any call."""
    of_length(monkeypatch, 3)
    where = layout(2)
    like = repr(cold(where))
    for units, _ in pretraining.pretrain(
        METHOD, cold(where), adversary.placed(data(), where, DEAL), where
    ):
        assert repr(units) == like
        assert all(not np.any(np.asarray(a) == MARK) for a in jax.tree.leaves(unseal(units).state))


def test_warm_keys_are_not_those_of_the_steps():
    """Not of the first thousand steps, nor of the initial weights."""
    unit = jax.tree.map(lambda a: a[0], fresh())
    warm = {jax.random.key_data(pretraining._key(unit, i)).tobytes() for i in range(STEPS + 1)}
    steps = jax.vmap(lambda i: jax.random.key_data(
        jax.random.fold_in(jax.random.wrap_key_data(unit.key), i)))(np.arange(1000))
    assert len(warm) == STEPS + 1
    assert not warm & {key.tobytes() for key in [*np.asarray(steps), unit.key]}


def test_padded_units_are_no_units():
    """They hold no records and are warm with the rest; what they become is never read."""
    where = layout(3, 2)
    assert where.padded == 6
    units, _ = warmed(where)
    assert streaming.warmed(units, where).shape == (COUNT,)
    flags = unseal(units).warm.at[COUNT:].set(0)
    units = Private(dataclasses.replace(unseal(units),
                                        warm=jax.device_put(flags, where.by_unit)))
    assert not list(
        pretraining.pretrain(METHOD, units, adversary.placed(data(), where, DEAL), where)
    )


@pytest.mark.parametrize("warm", [None, Pretraining(0, init, step, finish)], ids=("none", "zero"))
def test_methods_without_a_warm_start_yield_nothing(warm):
    method, where = adversary.build(n_units=COUNT, pretraining=warm), layout()
    assert not list(pretraining.pretrain(method, cold(where), None, where))


# In place.

def test_no_second_copy_of_the_units():
    def temporary(units):
        method = adversary.build(n_units=units, pretraining=METHOD.pretraining)
        where = adversary.layout(2, units=units)
        shapes = jax.eval_shape(lambda: teachers.one_unit(method, jax.random.key(0), jnp.int32(0)))
        shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct((units, *a.shape), a.dtype), shapes)
        states = jax.tree.map(lambda a: jax.ShapeDtypeStruct((2, *a.shape), a.dtype),
                              jax.eval_shape(init, jax.random.key(0)))
        own = adversary.placed((np.zeros((3 * units, *adversary.SPEC.shape), np.uint8),
                                np.zeros(3 * units, int)), where,
                               adversary.records.assign(3 * units, units, adversary.KEY))
        compiled = CALLS(method, where).lower(Private(shapes), own, Private(states),
                                             pretraining.Span(0, 0, 1))
        return compiled.compile(small_datalens.AS_IN_A_RUN).memory_analysis().temp_size_in_bytes

    assert temporary(1024) - temporary(8) < 1016 * teachers.unit_bytes(METHOD) / 5
