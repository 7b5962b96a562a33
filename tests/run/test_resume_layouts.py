"""A checkpoint goes on under another layout, bit for bit, or in half precision."""

import dataclasses

import jax
import numpy as np
import pytest
import runs
import small_datalens

from dpgen_jax.core.config import Runtime
from dpgen_jax.core.types import UserError, unseal
from dpgen_jax.data import from_arrays
from dpgen_jax.methods import datalens
from dpgen_jax.private import streaming, teachers
from dpgen_jax.run import capacity, checkpoint
from dpgen_jax.run.loop import initial_state

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_once")]


LAYOUTS = [(1, 1, "shard_map"), (2, 8, "shard_map"), (3, 2, "pmap"), (4, 1, "pmap")]


@pytest.mark.parametrize(("before", "after", "size"), [
    (LAYOUTS[0], LAYOUTS[1], 4), (LAYOUTS[2], LAYOUTS[3], 11)],
    ids=str)
def test_units_move_between_layouts_bit_for_bit(before, after, size):
    """Eleven units, which divide by no chunk, device count or block."""
    method = datalens.build(small_datalens.CONFIG, small_datalens.SPEC)
    old, new = small_datalens.layout(*before), small_datalens.layout(*after)
    units = teachers.stack(method, jax.random.key(1), old)
    blocks = list(streaming.blocks(units, old, size))
    moved = streaming.assemble(iter(blocks), method, new)
    like = initial_state(method, jax.random.key(0), new).units
    for a, b in zip(jax.tree.leaves(moved), jax.tree.leaves(like), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert a.sharding.is_equivalent_to(b.sharding, a.ndim)
    again = list(streaming.blocks(moved, new, size))
    assert len(again) == len(blocks) == -(-11 // size)
    assert all(small_datalens.equal(unseal(a), unseal(b))
               for a, b in zip(again, blocks, strict=True))
    ids = [np.asarray(jax.device_get(u.id)).ravel() for u in (unseal(moved), unseal(like))]
    np.testing.assert_array_equal(*ids)


def test_a_state_that_does_not_fit_is_kept_in_half_precision(monkeypatch):
    data, said, runtime = from_arrays(*runs.images(), 3), [], Runtime()
    request = "datalens", runs.CONFIG, data.spec
    assert capacity.fitting(*request, runtime, said.append) is runtime and not said
    monkeypatch.setattr(capacity, "memory", lambda: 3e4)
    smaller = capacity.fitting(*request, runtime, said.append)
    assert smaller == dataclasses.replace(runtime, moments="bfloat16")
    assert "kept in bfloat16" in said[0]
    assert capacity.fitting(*request, smaller, said.append) is smaller and len(said) == 1


def test_a_state_that_never_fits_is_refused_before_anything_is_spent(monkeypatch, tmp_path):
    monkeypatch.setattr(capacity, "memory", lambda: 3e4)
    with pytest.raises(UserError, match="takes .* this machine has 0.0 GB"):
        runs.train(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_blocks_of_several_processes_leave_no_unit_out():
    """Two processes, of units 0 to 5 and 6 to 10, in blocks of 4; in any order of names."""
    names = ["public", "units-00001", "units-00001-0000006", "units-00000", "units-00002"]
    assert checkpoint._unit_blocks(names, 11, 4) == [
        ("units-00000", 0, 4), ("units-00001", 4, 2), ("units-00001-0000006", 6, 2),
        ("units-00002", 8, 3)]
    # Where one is missing, another claims its units, which it does not hold: it counts as damaged.
    assert checkpoint._unit_blocks(names[1:3], 11, 4) == [
        ("units-00000", 0, 4), ("units-00001", 4, 2), ("units-00001-0000006", 6, 5)]
