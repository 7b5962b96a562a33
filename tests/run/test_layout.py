"""Layout is speed and memory: chunks, devices and blocks of steps do not change what is computed.

Given the messages, sums and releases are identical. A network's own floats may differ in the last
bits where another kernel is picked, so there the share of votes that differ is bounded.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_datalens
import watched_datalens
from planted import toy as adversary

from dpgen_jax.aggregation.schedule import RoundRobin
from dpgen_jax.core.types import Private, unseal
from dpgen_jax.methods import datalens
from dpgen_jax.private import streaming, teachers
from dpgen_jax.run import loop

LAYOUTS = [(1, 1, "shard_map"), (2, 8, "shard_map"), (2, 2, "pmap")]
layouts = pytest.mark.parametrize(
    "where",
    [pytest.param(small_datalens.layout(*parts),
                  marks=pytest.mark.slow if parts == LAYOUTS[0] else pytest.mark.long)
     for parts in LAYOUTS],
    ids=lambda w: f"{w.chunk}-{len(w.devices)}-{w.parallel}",
)
NONE = np.zeros((loop.LONGEST_BLOCK, *watched_datalens.BITS), np.uint32)


@functools.cache
def votes(where):
    return watched_datalens.messages(where, small_datalens.images())


def released(where, bits):
    """The sum that one step of DataLens releases, undecoded."""
    state = watched_datalens.start(where)
    public, *_ = adversary.call(
        watched_datalens.block(watched_datalens.METHOD, where),
        state,
        small_datalens.placed(*small_datalens.images(), where),
        where,
        bits,
        1,
    )
    return np.asarray(public.seen)


@layouts
def test_votes_do_not_depend_on_the_layout(where):
    plain, here = votes(small_datalens.layout(*LAYOUTS[0])), votes(where)
    assert np.all(np.abs(here).sum(-1) == small_datalens.CONFIG.top_k)
    assert np.mean(plain != here) <= 0.005


@pytest.mark.long
def test_pmap_and_shard_map_are_identical():
    mapped, sharded = (
        votes(small_datalens.layout(2, 2, parallel)) for parallel in ("pmap", "shard_map")
    )
    assert np.array_equal(mapped, sharded)


@layouts
def test_the_release_is_the_exact_sum_of_the_real_units_and_the_noise(where):
    bits = np.random.default_rng(0).integers(2**32, size=NONE.shape, dtype=np.uint32)
    noise = np.asarray(watched_datalens.METHOD.mechanism.noise.sample(bits[0]))
    total = votes(where).sum(0)
    assert np.array_equal(released(where, NONE), total)
    assert np.array_equal(released(where, bits), total + noise)


# The small method: whole runs.

def answer_of_integers(key, unit, own, query):
    """A message without a sum of floats, so that every layout computes the same one."""
    return own.x[:4].reshape(-1, 8)[:1].astype(np.float32) - 128 + 0 * query.images


SMALL = adversary.build(answer=answer_of_integers)
PLAIN = adversary.build()
SMALL_LAYOUTS = [(1, 1, "shard_map"), (3, 1, "shard_map"), (4, 1, "shard_map"),
                 (1, 2, "shard_map"), (1, 8, "shard_map"), (1, 2, "pmap")]
SOME_SLOW = [pytest.param(parts, marks=pytest.mark.slow) for parts in SMALL_LAYOUTS[4:]]
OTHERS = [pytest.param(parts, marks=pytest.mark.long) for parts in SMALL_LAYOUTS[2:4]]


@pytest.mark.parametrize("parts", [SMALL_LAYOUTS[1], *SOME_SLOW, *OTHERS])
def test_the_same_messages_make_an_identical_transcript(tmp_path, parts):
    first, second = (
        adversary.train(tmp_path / name, SMALL, adversary.neighbours()[0], adversary.layout(*p))[
            0
        ].public.seen
        for name, p in (("a", SMALL_LAYOUTS[0]), ("b", parts))
    )
    assert np.array_equal(first, second) and np.any(first)


@pytest.mark.parametrize("parts", [*SOME_SLOW, *OTHERS])
def test_units_are_initialised_and_restored_alike(parts):
    where = adversary.layout(*parts)
    units = loop.initial_state(SMALL, jax.random.key(0), where).units
    blocks = [unseal(block) for block in streaming.blocks(units, where, 3)]
    blocks = jax.tree.map(lambda *parts: np.concatenate(parts), *blocks)
    assert small_datalens.equal(
        blocks, jax.tree.map(lambda a: a[: adversary.UNITS], adversary.fresh()[0])
    )
    again = streaming.assemble(streaming.blocks(units, where, 3), SMALL, where)
    assert small_datalens.equal(unseal(units).id, unseal(again).id)  # those of the padding too
    assert small_datalens.equal(
        *(unseal(next(streaming.blocks(u, where, adversary.UNITS))) for u in (units, again))
    )
    assert all(a.sharding.is_equivalent_to(b.sharding, a.ndim)
               for a, b in zip(*map(jax.tree.leaves, (unseal(units), unseal(again))), strict=True))


def test_a_padded_unit_would_vote_but_for_its_number():
    where = adversary.layout(3)
    assert where.padded == 6
    block = adversary.block(PLAIN, where)
    bits = np.zeros((adversary.STEPS, *adversary.SHAPE, 3), np.uint32)

    def total(ids):
        state = adversary.start(where)
        units = Private(dataclasses.replace(unseal(state.units), id=np.array(ids, np.int32)))
        records = adversary.placed(adversary.neighbours()[0], where)
        state = dataclasses.replace(state, units=units)
        return np.asarray(adversary.call(block, state, records, where, bits, 1)[0].seen[0])

    real, padding = total([0, 1, 2, 3, 9, 9]), total([9, 9, 9, 9, 0, 1])
    assert np.any(padding) and np.array_equal(total([0, 1, 2, 3, 4, 5]), real)


@pytest.mark.parametrize("steps_per_call", [1, 3])
def test_steps_in_one_call_do_not_matter(tmp_path, steps_per_call):
    where = adversary.layout()
    first, second = (
        adversary.train(tmp_path / str(n), PLAIN, adversary.neighbours()[0], where,
                        steps_per_call=n)[0] for n in (steps_per_call, 0))
    assert small_datalens.equal(first.public, second.public)
    assert (
        small_datalens.equal(adversary.arrays(first), adversary.arrays(second))
        and first.step == second.step == 6
    )


@pytest.mark.parametrize(("devices", "parallel"), [
    pytest.param(1, "shard_map", marks=pytest.mark.long),
    pytest.param(2, "shard_map", marks=pytest.mark.slow),
    pytest.param(2, "pmap", marks=pytest.mark.long)])
def test_compiled_once_whatever_the_number_of_steps_and_after_a_resume(devices, parallel, caplog):
    method, where = adversary.build(), adversary.layout(1, devices, parallel)
    block = loop.compile_block(method, where)
    records = adversary.placed(adversary.neighbours()[0], where)
    state = loop.initial_state(method, jax.random.key(0), where)
    noise = np.zeros((loop.LONGEST_BLOCK, *adversary.SHAPE, 3), np.uint32)

    compilations = []

    def go(state, n):
        caplog.clear()
        public, units, *_ = adversary.call(block, state, records, where, noise, n)
        compilations.append(sum("XLA compilation" in line for line in caplog.messages))
        return dataclasses.replace(state, public=public, units=units, step=state.step + n)

    with jax.log_compiles():
        state = go(go(go(state, 1), 2), 1)
        resumed = loop.State(jax.device_put(jax.device_get(state.public), where.replicated),
                             streaming.assemble(streaming.blocks(state.units, where, 3), method,
                                                where),
                             jax.random.wrap_key_data(jax.device_get(
                                 jax.random.key_data(state.key))), 4)
        go(resumed, 2)
    assert compilations[0] >= 1 and compilations[1:] == [0, 0, 0]


# Memory.

def temporary(method, where, records):
    """Bytes that one compiled block takes beside its arguments, and bytes of the units' state."""
    units = jax.eval_shape(lambda: jax.tree.map(
        lambda a: jnp.zeros((where.padded, *a.shape), a.dtype),
        teachers.Units(method.init_unit(jax.random.key(0)), jnp.zeros(2, np.uint32),
                       jnp.int32(0), jnp.uint8(0))))
    public = jax.eval_shape(method.init, jax.random.key(0))
    bits = jax.ShapeDtypeStruct((loop.LONGEST_BLOCK, *method.mechanism.bits_shape),
                                np.uint32)
    secrets, groups = adversary.untold(where, loop.LONGEST_BLOCK)
    lowered = loop.compile_block(method, where).lower(
        public, Private(units), records, secrets, bits, groups, jax.random.key(0), 0, 1)
    compiled = lowered.compile(small_datalens.AS_IN_A_RUN)
    size = sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(units))
    return compiled.memory_analysis().temp_size_in_bytes, size


def check_memory(chunk_of):
    """The block grows by less than one copy of these units' few weights, let alone a message each.

    (XLA may copy the state of so small a unit; that of a real one it updates in place, below.)
    """
    def measure(units):
        data = (np.zeros((3 * units, *adversary.SPEC.shape), np.uint8), np.zeros(3 * units, int))
        where = adversary.layout(chunk_of(units), units=units)
        dealt = adversary.records.assign(3 * units, units, adversary.KEY)
        return temporary(
            adversary.build(n_units=units), where, adversary.placed(data, where, dealt)
        )

    (few, less), (many, more) = measure(8), measure(512)
    assert many - few < 1.2 * (more - less), f"{few} bytes for 8 units, {many} for 512"


@pytest.mark.slow
def test_temporary_memory_does_not_grow_with_the_messages():
    check_memory(lambda units: 2)


@pytest.mark.slow
def test_messages_of_all_units_at_once_are_caught():
    with pytest.raises(AssertionError, match="for 512"):
        check_memory(lambda units: units)


def wide(units, groups):
    """A rotation of units that keep 2 kB each."""
    def init_unit(key):
        return adversary.init_unit(key) | {"wide": jnp.zeros((8, 64))}

    def learn(key, unit, own, query):
        more = jnp.tanh(query.images.T @ query.images @ unit["wide"]) + own.y.sum()
        return adversary.learn(key, unit, own, query) | {"wide": 0.9 * unit["wide"] + more}

    return adversary.build(
        init_unit=init_unit, learn=learn, n_units=units, schedule=RoundRobin(groups)
    )


def check_rotation(groups, chunk):
    """The block does not grow with the units, neither with those visited nor with the others."""
    def measure(units):
        data = (np.zeros((3 * units, *adversary.SPEC.shape), np.uint8), np.zeros(3 * units, int))
        where = adversary.layout(chunk, units=units, n_cohorts=groups)
        dealt = adversary.records.assign(3 * units, units, adversary.KEY)
        return temporary(wide(units, groups), where, adversary.placed(data, where, dealt))

    (few, less), (many, more) = measure(16), measure(512)
    assert many - few < (more - less) / 8, f"{few} bytes for 16 units, {many} for 512"


@pytest.mark.parametrize(("groups", "chunk"), [
    pytest.param(2, 1, marks=pytest.mark.long), pytest.param(4, 2, marks=pytest.mark.slow)])
def test_a_step_of_a_rotation_copies_nobody(groups, chunk):
    check_rotation(groups, chunk)


@pytest.mark.slow
def test_a_group_that_is_gathered_at_once_is_caught(monkeypatch):
    def whole(row, group, layout):
        def rows(a):
            return a.reshape(-1, layout.n_cohorts, *a.shape[1:])

        def put(a, new):
            group_of = jax.lax.dynamic_update_slice_in_dim(rows(a)[:, group], new, row, 0)
            return rows(a).at[:, group].set(group_of).reshape(a.shape)

        return (lambda a: jax.lax.dynamic_slice_in_dim(rows(a)[:, group], row, layout.chunk)), put

    monkeypatch.setattr(teachers, "_chunk", whole)
    with pytest.raises(AssertionError, match="for 512"):
        check_rotation(4, 2)


@pytest.mark.slow
def test_no_second_copy_of_the_teachers_of_datalens():
    # One discriminator step in every iteration: a loop that XLA would unroll, if it knew.
    config = dataclasses.replace(small_datalens.CONFIG, teachers=600, d_steps=1, d_steps_first=1)
    where = small_datalens.layout(2, units=600)
    x, y = small_datalens.images(600)
    unit_states, state = temporary(
        datalens.build(config, small_datalens.SPEC), where, small_datalens.placed(x, y, where)
    )
    assert unit_states < state / 20
