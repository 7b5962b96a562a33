"""How many units an accelerator queries at once, by the memory that one of them takes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_datalens
import small_gswgan
import test_battery

from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.core.config import Runtime
from dpgen_jax.core.types import Records
from dpgen_jax.methods import datalens, gswgan
from dpgen_jax.nets.resnet import ResNetNet
from dpgen_jax.private import teachers
from dpgen_jax.run import capacity

METHOD = datalens.build(small_datalens.CONFIG, small_datalens.SPEC)


def records(m, shape=small_datalens.SPEC.shape):
    return Records(jax.ShapeDtypeStruct((m, *shape), np.uint8),
                   jax.ShapeDtypeStruct((m,), np.int32))


def peak(function, *shapes):
    return capacity._peak(jax.make_jaxpr(function)(*shapes).jaxpr)


X = jnp.zeros((10, 10))  # 400 bytes


@pytest.mark.parametrize(("function", "arrays"), [
    (lambda x: x + 1, 2),
    (lambda x: (x + 1) * 2, 2),  # the argument is not needed any more
    (lambda x: (x + 1) * x, 3),
    (lambda x: jnp.sin(x) + jnp.cos(x), 3),
    (lambda x: jax.lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) + jnp.cos(c), x), 3),
    (lambda x: jax.jit(lambda a: jnp.sin(a) + jnp.cos(a))(x) * x, 3),
    (lambda x: jnp.outer(x, x), 102)])
def test_what_is_needed_at_one_time_is_counted(function, arrays):
    assert peak(function, X) == pytest.approx(400 * arrays, abs=100)


def test_a_unit_takes_at_least_its_state_twice_and_more_with_more_records():
    few, many = (capacity.unit_bytes(METHOD, records(m)) for m in (4, 400))
    assert few > 2 * teachers.unit_bytes(METHOD)
    assert many - few > 396 * np.prod(small_datalens.SPEC.shape)


@pytest.mark.parametrize("name", test_battery.NAMES)
def test_the_work_of_every_method_is_counted(name):
    method, _, query = test_battery.built(name)
    if method.mechanism.schedule.batch_capacity is not None:
        pytest.skip("as many messages are taken at once as a cache, or a device, holds")
    x, y = test_battery.neighbours(name)[0]
    each = jax.tree.map(lambda a: np.asarray(a)[:4], Records(x, y.astype(np.int32)))
    assert capacity.unit_bytes(method, each) > each.x.nbytes


@pytest.mark.parametrize("fields", [
    {"federated": True}, {"schedule": "secret-draw", "critics_per_step": 2}])
def test_the_secret_bits_of_a_unit_are_of_the_shape_that_its_mechanism_draws(fields):
    method = gswgan.build(small_gswgan.gs(**fields), small_datalens.SPEC)
    drawn = method.mechanism.private_inputs(SeededBits(0), np.zeros(1, np.int32), 0)
    assert drawn[0, 0].size
    assert capacity.unit_bytes(method, records(4)) > teachers.unit_bytes(method)


def test_units_at_once_fit_into_their_share_of_the_memory():
    each = capacity.unit_bytes(METHOD, records(4))
    memory = 20.5 * each / capacity.WORKING_SHARE
    assert capacity.units_at_once(METHOD, records(4), memory, 10**6) == 20
    assert capacity.units_at_once(METHOD, records(4), 1e15, 10**6) == capacity.MOST_AT_ONCE
    assert capacity.units_at_once(METHOD, records(4), 1.0, 10**6) == 1


def test_no_more_are_taken_than_a_round_queries():
    """Places without a unit would be computed for nothing."""
    assert capacity.units_at_once(METHOD, records(4), 1e15, 3) == 3
    assert capacity.units_at_once(METHOD, None, 1e15, 3) == 3


@pytest.fixture()
def accelerator(monkeypatch):
    """A machine whose one device is no CPU, and has 80 GB."""
    class Device:
        platform, process_index = "gpu", 0

        def memory_stats(self):
            return {"bytes_limit": 80e9}

    devices = [Device()]
    monkeypatch.setattr(jax, "devices", lambda *_: devices)
    monkeypatch.setattr(jax, "local_devices", lambda *_: devices)


def critics(**fields):
    config = small_gswgan.gs(schedule="rotation", critics_per_step=1, **fields)
    return gswgan.build(config, small_datalens.SPEC)


@pytest.mark.usefixtures("accelerator")
@pytest.mark.parametrize("shapes", [records(4), None])
def test_an_accelerator_takes_one_critic_where_a_round_queries_one(shapes):
    layout = capacity.choose_layout(critics(), Runtime(), records=shapes)
    assert (layout.chunk, layout.padded) == (1, small_gswgan.UNITS)


@pytest.mark.usefixtures("accelerator")
@pytest.mark.parametrize("shapes", [records(4), None])
def test_all_critics_are_pretrained_at_once_where_there_is_room(shapes):
    """However few of them answer in a round; not where the user has said how many."""
    layout = capacity.choose_layout(critics(), Runtime(), records=shapes)
    assert layout.pretrained_at_once == small_gswgan.UNITS
    assert capacity.choose_layout(critics(), Runtime(chunk=1)).pretrained_at_once == 1
    none = capacity.choose_layout(critics(warm_steps=0), Runtime(), records=shapes)
    assert none.pretrained == 0


def test_slabs_are_pretrained_chunk_by_chunk():
    where = dataclasses.replace(small_datalens.layout(2, units=8), pretrained=4)
    assert where.pretrained_at_once == 4
    assert dataclasses.replace(where, slab=2).pretrained_at_once == 2


def test_a_critic_that_has_a_generator_meanwhile_takes_more_memory():
    """A published warm start was counted as a step, and took 46 GB at once."""
    large, small = (critics(warm_generator=ResNetNet(2, channels)) for channels in (32, 2))
    assert (capacity.pretraining_bytes(large, records(4))
            > 4 * capacity.pretraining_bytes(small, records(4)))
    each = capacity.pretraining_bytes(large, records(4))
    memory = 2.5 * each / capacity.WORKING_SHARE
    assert capacity.pretrained_at_once(large, records(4), memory, 10**6) == 2
    assert capacity.units_at_once(large, records(4), memory, 10**6) > 8
