"""Change one record: one teacher's state changes, nothing else, bit for bit, through the real loop.

With the mechanism muted, public state does not change at all; with it, public state changes only
through the noisy votes.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy

from dpgen_jax.methods import datalens
from dpgen_jax.private import partition, teachers
from dpgen_jax.types import Private, unseal

RECORD = 17
OWNER = int(np.argwhere(partition.assign(50, 11, toy.KEY).index == RECORD)[0][0])


def neighbours(kind: str):
    x, y = toy.images()
    x2, y2 = x.copy(), y.copy()
    if kind in ("content", "both"):
        x2[RECORD] = 255 - x2[RECORD]
    if kind in ("label", "both"):
        y2[RECORD] = (y2[RECORD] + 1) % 3
    return (x, y), (x2, y2)


LAYOUTS = [(1, 1, "shard_map"), (2, 2, "shard_map"), (2, 8, "shard_map"), (2, 2, "pmap")]


@pytest.mark.parametrize("kind", ["content", "label"])
@pytest.mark.parametrize(("chunk", "devices", "parallel"), LAYOUTS)
def test_one_record_changes_one_unit_and_no_public_state_when_muted(
        tmp_path, kind, chunk, devices, parallel):
    method, where = toy.muted(datalens.build(toy.CONFIG, toy.SPEC)), toy.layout(
        chunk, devices, parallel)
    results = []
    for name, data in zip("ab", neighbours(kind), strict=True):
        (tmp_path / name).mkdir()
        results.append(toy.held(toy.run(tmp_path / name, *data, method, where)[0], where))
    (public, units), (public2, units2) = results
    assert toy.equal(public, public2)
    assert toy.differing_units(units, units2) == {OWNER}


@pytest.mark.parametrize(("chunk", "devices", "parallel"), LAYOUTS)
def test_one_record_changes_one_message(chunk, devices, parallel):
    """The unit's bounded message itself, not only its state: a gradient summed over devices by
    mistake would leave all states alone and mix every message."""
    method, where = datalens.build(toy.CONFIG, toy.SPEC), toy.layout(chunk, devices, parallel)
    first, second = (messages(method, where, data) for data in neighbours("both"))
    changed = {u for u in range(11) if not np.array_equal(first[u], second[u])}
    assert changed == {OWNER}


def messages(method, where, data):
    """int32 [U, B, D]: each unit's votes after one visit, read off sums over one unit at a time:
    the other units are given ids beyond the last, as padding has, so that they count zero."""
    def visit(units, records, query, only):
        held = unseal(units)
        alone = Private(dataclasses.replace(
            held, id=jnp.where(held.id == only, held.id, where.n_units)))
        return teachers.bounded_sum(method, where, alone, records, query, jnp.int32(0))[1]

    compiled = teachers.on_devices(visit, where, (True, True, False, False), False, donate=())
    query = jax.jit(method.ask)(jax.random.key(1), method.init(jax.random.key(0)))
    units, records = teachers.stack(method, jax.random.key(2), where), toy.placed(*data, where)
    return np.stack([np.asarray(unseal(compiled(units, records, query, jnp.int32(unit))))
                     for unit in range(where.n_units)])


def test_unmuted_public_state_does_change(tmp_path):
    results = []
    for name, data in zip("ab", neighbours("both"), strict=True):
        (tmp_path / name).mkdir()
        results.append(toy.held(toy.run(tmp_path / name, *data)[0], toy.layout())[0])
    assert not toy.equal(*results)
