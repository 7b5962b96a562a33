"""State of units outside of the devices: the same bits as on them, and nothing left behind.

Networks are compared in `test_state_elsewhere`, compiled as a run compiles them; here are integers.
"""

import dataclasses
import functools
import itertools
import math
import os
import stat

import jax
import jax.numpy as jnp
import loops
import numpy as np
import pytest
import small_datalens
from planted import toy as adversary

from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.aggregation.schedule import FullParticipation, RoundRobin
from dpgen_jax.core.types import Pretraining, UserError, unseal
from dpgen_jax.private import pretraining, streaming
from dpgen_jax.run import loop

# --- a file in place of an array

@pytest.fixture
def stored(tmp_path):
    """An array [7, 2, 3] in a file, and the same in memory."""
    values = np.arange(42, dtype=np.float32).reshape(7, 2, 3)
    array = streaming.FileArray(tmp_path, values.shape, values.dtype)
    array[0:7] = values
    return array, values


@pytest.mark.parametrize("rows", [slice(0, 7), slice(2, 5), slice(1, 7, 3), slice(6, 7, 2),
                                  slice(3, 3)])
def test_rows_of_a_file_are_those_of_an_array(stored, rows):
    array, values = stored
    np.testing.assert_array_equal(array[rows], values[rows], strict=True)
    array[rows] = values[rows] + 100
    values[rows] += 100
    np.testing.assert_array_equal(array[0:7], values, strict=True)


def test_scalars_and_bytes_have_rows_too(tmp_path):
    for dtype in (np.uint8, np.int32, jax.numpy.bfloat16):
        array = streaming.FileArray(tmp_path, (5,), dtype)
        assert not array[0:5].astype(np.float32).any()
        array[1:5:2] = np.array([3, 4], dtype)
        assert array[0:5].astype(np.float32).tolist() == [0, 3, 0, 4, 0]


def test_the_file_has_no_name_and_one_reader(stored, tmp_path):
    array, _ = stored
    found = os.fstat(array._file.fileno())
    assert stat.S_IMODE(found.st_mode) == 0o600 and found.st_size == 7 * 24
    assert found.st_nlink == 0 and not any(tmp_path.iterdir())


def test_a_disk_that_fails_is_one_line(stored, tmp_path, monkeypatch):
    array, values = stored
    with pytest.raises(UserError, match="state of units cannot be kept on the disk of .*missing"):
        streaming.FileArray(tmp_path / "missing", (2,), np.int32)
    array._file.truncate(30)
    with pytest.raises(UserError, match="the file ends early"):
        array[0:7]
    with open("/dev/full", "r+b", buffering=0) as full:
        monkeypatch.setattr(array, "_file", full)
        with pytest.raises(UserError, match="No space left on device.; free some space, then"):
            array[0:7] = values


# --- the same bits

COUNT = 11
DATA = adversary.neighbours()[0]


def init_unit(key):
    return {"weights": jax.random.randint(key, (8,), 0, 100).astype(np.float32),
            "momentum": jnp.zeros(8)}


def moved(key, unit, seen):
    """The unit with a draw and something seen added, all in whole numbers below 2^24."""
    draw = jax.random.randint(key, (8,), 0, 100)
    return {"weights": unit["weights"] + draw, "momentum": unit["momentum"] + seen}


def warm_step(key, state, rows):
    return moved(key, state, rows.x.astype(jnp.int32).sum())


def learn(key, unit, rows, query):
    return moved(key, unit, rows.y.sum() + query.images[0])


def answer(key, unit, rows, query):
    return jnp.tile((unit["weights"] + unit["momentum"]) % 251 - 125, (adversary.ROWS, 1))


def ask(key, public):
    """A query that depends on what was released before."""
    return adversary.Query((public.seen[public.step - 1].astype(jnp.int32) // 8).astype(float))


@functools.cache
def method(n_cohorts):
    """The toy method of the audit in integers, with eleven units and a warm start."""
    schedule = RoundRobin(n_cohorts) if n_cohorts > 1 else FullParticipation()
    return adversary.build(
        n_units=COUNT, schedule=schedule, init_unit=init_unit, ask=ask, learn=learn, answer=answer,
        pretraining=Pretraining(3, init_unit, warm_step, lambda state: state))


def trained(path, where, stop=adversary.STEPS, state=None):
    """The state after a warm start and the rounds up to `stop`, with seeded noise."""
    toy = method(where.n_cohorts)
    records = adversary.placed(DATA, where, adversary.dealt(COUNT))
    if state is None:
        state = loop.initial_state(toy, jax.random.key(1), where)
        for units, _ in pretraining.pretrain(toy, state.units, records, where):
            state = dataclasses.replace(state, units=units)
    with Ledger.create(path, {"epsilon": math.inf, "delta": 1e-5}) as ledger:
        return loops.train(toy, records, state, where, ledger, SeededBits(2), steps=stop)


def layout(n_cohorts=1, **fields):
    return dataclasses.replace(adversary.layout(2, 1, "shard_map", COUNT, n_cohorts), **fields)


@pytest.mark.parametrize("n_cohorts", [1, 3])
def test_slabs_of_any_size_give_the_bits_of_all_units_on_the_devices(tmp_path, n_cohorts):
    plain = small_datalens.opened(trained(tmp_path / "plain", layout(n_cohorts)), layout(n_cohorts))
    assert np.any(plain[0].seen) and np.all(plain[1].warm)
    two = tuple(jax.devices()[:2])
    for i, fields in enumerate([{"slab": 2}, {"slab": 4, "files": tmp_path},
                                {"slab": 8, "files": tmp_path, "devices": two},
                                {"slab": 3, "chunk": 3}]):
        where = layout(n_cohorts, **fields)
        assert where.padded > COUNT
        state = trained(tmp_path / str(i), where)
        assert small_datalens.equal(small_datalens.opened(state, where), plain), fields


def passed_on(folder, places):
    """Public state and units after two rounds in each place, from one to the next in blocks."""
    folder.mkdir()
    state = None
    for i, (where, after) in enumerate(itertools.pairwise([*places, layout()])):
        state = trained(folder / str(i), where, 2 * i + 2, state)
        units = streaming.assemble(streaming.blocks(state.units, where, 3), method(1), after)
        state = dataclasses.replace(state, units=units)
    assert state.step == adversary.STEPS
    return small_datalens.opened(state, layout())


def test_slabs_are_read_and_written_without_another_mesh(tmp_path, monkeypatch):
    made, real = [], jax.make_mesh
    monkeypatch.setattr(jax, "make_mesh", lambda *a, **more: made.append(a) or real(*a, **more))
    trained(tmp_path / "ledger", layout(slab=4))
    assert 0 < len(made) < 6  # one for each form of the layout that is compiled


def test_a_state_moves_between_devices_memory_and_disk(tmp_path):
    plain = passed_on(tmp_path / "plain", [layout()] * 3)
    host, disk = layout(slab=2), layout(slab=4, files=tmp_path)
    for i, places in enumerate([[layout(), disk, host], [host, disk, layout()]]):
        assert small_datalens.equal(passed_on(tmp_path / str(i), places), plain)


def test_a_round_that_fails_leaves_no_state_that_could_be_saved(tmp_path, monkeypatch):
    where, real, writes = layout(slab=4, files=tmp_path), streaming.write, []

    def write(units, rows, new):
        writes.append(rows)
        if len(writes) == 2:
            raise UserError("the disk fails")
        return real(units, rows, new)

    toy = method(1)
    state = loop.initial_state(toy, jax.random.key(1), where)
    before = small_datalens.opened(state, where)[1]
    records = adversary.placed(DATA, where, adversary.dealt(COUNT))
    monkeypatch.setattr(streaming, "write", write)
    with Ledger.create(tmp_path / "ledger", {"epsilon": math.inf, "delta": 1e-5}) as ledger:
        with pytest.raises(UserError, match="the disk fails"):
            loops.train(toy, records, state, where, ledger, SeededBits(2), steps=2)
        assert ledger.steps_charged == 1  # what was drawn stays charged
    after = unseal(next(streaming.blocks(state.units, where, COUNT)))
    assert 0 < len(small_datalens.differing_units(before.state, after.state)) < COUNT
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state.public))


def test_a_slab_that_has_no_memory_is_found_before_anything_is_charged(tmp_path, monkeypatch):
    def bounded_sum(*args):
        raise MemoryError

    where, toy = layout(slab=4), method(1)
    state = loop.initial_state(toy, jax.random.key(1), where)
    records = adversary.placed(DATA, where, adversary.dealt(COUNT))
    monkeypatch.setattr(streaming, "bounded_sum", bounded_sum)
    with Ledger.create(tmp_path / "ledger", {"epsilon": math.inf, "delta": 1e-5}) as ledger:
        with pytest.raises(MemoryError):
            loops.train(toy, records, state, where, ledger, SeededBits(2), steps=2)
        assert ledger.steps_charged == 0


def test_all_slabs_and_rounds_run_the_same_programs(tmp_path, monkeypatch, caplog):
    where, toy = layout(slab=4), method(1)
    monkeypatch.setattr(loop, "compile_block", functools.cache(loop.compile_block))
    records = adversary.placed(DATA, where, adversary.dealt(COUNT))
    state, counts = loop.initial_state(toy, jax.random.key(1), where), []
    for stop in (1, 3):
        caplog.clear()
        with jax.log_compiles(), Ledger.create(
                tmp_path / str(stop), {"epsilon": math.inf, "delta": 1e-5}) as ledger:
            state = loops.train(toy, records, state, where, ledger, SeededBits(2), steps=stop,
                                steps_per_call=1)
        counts.append(sum("XLA compilation" in line for line in caplog.messages))
    assert counts[0] >= 3 and counts[1] == 0


@pytest.mark.parametrize("fields", [{"slab": 3}, {"slab": 4, "parallel": "pmap"}])
def test_layouts_that_cannot_be_are_refused(fields):
    with pytest.raises((ValueError, UserError), match="slabs of 3 units|--parallel pmap keeps"):
        layout(**fields)
