"""Rotation through the real loop: what each unit computes in its rounds; nobody else moves."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_datalens
from planted import toy as adversary
from test_rotation import GROUPS, Silent, layout, method

from dpgen_jax.core.types import Private, unseal
from dpgen_jax.private import teachers
from dpgen_jax.run import loop

# What is computed.

LAYOUTS = [(1, 1, "shard_map"), (2, 1, "shard_map"), (3, 2, "shard_map"), (1, 8, "shard_map"),
           (2, 2, "pmap")]
layouts = pytest.mark.parametrize("parts", LAYOUTS, ids=str)


def run(path, units, parts, data=0, steps=adversary.STEPS, **options):
    """(what was released, the units' arrays) of a run on one of the two neighbours."""
    state, ledger = adversary.train(
        path,
        method(units),
        adversary.neighbours()[data],
        layout(units, *parts),
        steps=steps,
        **options,
    )
    assert dict(ledger.spent()).popitem()[1] == -(-steps // GROUPS)
    return np.asarray(state.public.seen), adversary.arrays(state, units)


@functools.cache
def by_hand(units):
    """The same run, unit by unit: released without noise, and the units' arrays."""
    built, (unit_states, key) = method(units), adversary.fresh(units)
    public = jax.tree.map(jnp.asarray, adversary.transcript())
    own = unseal(
        adversary.records.deal(
            adversary.records.seal(*adversary.neighbours()[0], adversary.SPEC),
            adversary.dealt(units),
        )
    )
    ask = jax.jit(built.ask)
    visit = jax.jit(functools.partial(teachers.query_unit, built))
    unit_states = [jax.tree.map(lambda a, u=u: a[u], unit_states) for u in range(units)]
    for step in range(adversary.STEPS):
        query, total = ask(jax.random.split(jax.random.fold_in(key, step))[0], public), 0
        for u in range(step % GROUPS, units, GROUPS):
            mine = jax.tree.map(lambda a, u=u: a[u], own)
            unit_states[u], votes = visit(unit_states[u], mine, query, step, np.zeros(0, np.int32))
            total = total + np.asarray(votes)
        public = built.absorb(key, public, query, np.float32(total) / (units / GROUPS))[0]
    return np.asarray(public.seen), jax.tree.map(lambda *a: np.stack(a), *unit_states).state


@pytest.mark.parametrize(("units", "parts"), [(4, LAYOUTS[1]), (5, LAYOUTS[0]), *(
    pytest.param(5, parts, marks=pytest.mark.slow) for parts in LAYOUTS[1:])])
def test_a_run_is_what_each_unit_does_in_its_turns(tmp_path, units, parts):
    """On every layout; the sum is divided by the units of a step."""
    seen, arrays = run(tmp_path / "ledger", units, parts, bits=Silent(0))
    expected, alone = by_hand(units)
    np.testing.assert_allclose(seen, expected, rtol=1e-6)
    assert np.any(seen[0]) and np.abs(seen).max() <= -(-units // GROUPS) / (units / GROUPS)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), arrays, alone)


@layouts
def test_units_that_are_not_visited_stay_as_they_are(tmp_path, parts):
    before = adversary.fresh(5)[0].state
    for steps in (1, 2):
        _, after = run(tmp_path / str(steps), 5, parts, steps=steps)
        assert small_datalens.differing_units(before, after) == set(
            range(5) if steps == 2 else (0, 2, 4)
        )


@layouts
def test_one_record_moves_one_unit_and_the_messages_of_its_turns(tmp_path, parts):
    """On one transcript, bit for bit."""
    planted = np.zeros((adversary.STEPS, *adversary.SHAPE), np.float32)
    (seen, arrays), (seen2, arrays2) = (
        run(tmp_path / str(data), 5, parts, data, planted=planted) for data in (0, 1))
    assert small_datalens.differing_units(arrays, arrays2) == {adversary.owner(5)}
    moved = {step for step in range(adversary.STEPS) if not np.array_equal(seen[step], seen2[step])}
    assert moved == set(range(adversary.owner(5) % GROUPS, adversary.STEPS, GROUPS))


@pytest.mark.parametrize("parts", [LAYOUTS[1], LAYOUTS[2]], ids=str)
def test_messages_are_each_units_own(parts):
    where, built = layout(5, *parts), method(5)
    bits = np.zeros((loop.LONGEST_BLOCK, *adversary.SHAPE, 3), np.uint32)
    secrets, groups = adversary.untold(where, len(bits))
    groups[1::2] = 1
    pair = [adversary.placed(data, where) for data in adversary.neighbours()]

    def votes_of(only, records):
        state = adversary.start(where)
        ids = np.where(np.arange(where.padded) == only, only, 5).astype(np.int32)
        ids = ids.reshape(unseal(state.units).id.shape)
        alone = Private(dataclasses.replace(unseal(state.units), id=ids))
        return adversary.block(built, where)(state.public, alone, records, secrets, bits, groups,
                                             state.key, 0, 2)[0].seen

    moved = {u for u in range(5) if not np.array_equal(*(votes_of(u, own) for own in pair))}
    assert moved == {adversary.owner(5)}
