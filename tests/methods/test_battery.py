"""The tests of every method, with no special cases: one record is replaced, and one message
changes, by no more than was declared; faults that are planted are caught.

A method is written for one unit, so this needs no loop and no devices: each unit is visited as the
library visits it, on two neighbouring data sets.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import people_table
import pytest
import small_datalens

from dpgen_jax import methods, presets
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.audit import pairs
from dpgen_jax.core.types import EMPTY, Records
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.nets.pair import ConvNet, MlpNet
from dpgen_jax.nets.resnet import CriticNet, ResNetNet
from dpgen_jax.private import records, teachers
from dpgen_jax.run.calibrate_config import with_records

N, RECORD = 24, 17
SLOW = ("dpac", "gswgan", "pategan", "fedavg_gan", "dpmerf_ae", "projected_dpgan", "dpcgan",
        "dcgan")
"""Methods that take long to compile; they are checked by `-m slow`."""
TABLES_ONLY = ("marginals",)


def marked(names, mark=pytest.mark.slow) -> list:
    """Each name as a parameter, with the mark where its method is slow."""
    return [pytest.param(name, marks=mark) if name in SLOW else name for name in names]


NAMES = [name for name in methods.NAMES if name != "dcgan"]  # which promises nothing
PRIVATE = marked(NAMES)
ALONE = marked(NAMES, pytest.mark.long)
"""For tests of a unit outside of the loop: `test_battery_loop` has the slow methods in the loop's
own block, and `test_empty_slots` the units without records."""
SMALL = {  # whatever fields of these names a configuration has
    "teachers": 4,
    "critics": 4,
    "clients": 4,
    "batch": 6,
    "records": None,
    "sigma": 3.0,
    "network": "mlp",
    "fakes": 6,
    "g_batch": 4,
    "pool": 2,
    "warm_steps": 0,
    "critics_per_step": 0,
    "hidden": 8,
    "client_records": 6,
    "records_per_step": 4,
    "features": 20,
    "projection": 6,
    "top_k": 10,
    "generator": GeneratorNet(4, 16, 4),
    "discriminator": DiscriminatorNet(4, 4, 8),
    "critic": CriticNet(4),
    "warm_generator": ResNetNet(4, 8),
}
OWN = {ConvNet: ConvNet(4, 4), MlpNet: MlpNet(4, (8,)), ResNetNet: ResNetNet(4, 8),
       tuple: (8,)}


def small(name):
    """The default preset of a method, made small."""
    config = presets.get(name)[1].config
    chosen = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if type(value) in OWN and field.name in ("generator", "discriminator", "hidden"):
            chosen[field.name] = OWN[type(value)]
        elif field.name in SMALL and (field.name != "features" or isinstance(value, int)):
            chosen[field.name] = SMALL[field.name]
    if name == "dcgan":  # has no noise
        chosen.pop("sigma", None)
    return with_records(dataclasses.replace(config, **chosen), N)


@functools.cache
def built(name):
    method = methods.get(name).build(small(name), spec_of(name))
    public = jax.jit(method.init)(jax.random.key(0))
    return method, public, jax.jit(method.ask)(jax.random.key(1), public)


def spec_of(name):
    """The schema of the records that a method is tried on: images, where it takes them."""
    return people_table.THREE if name in TABLES_ONLY else small_datalens.SPEC


def neighbours(name=None):
    images = spec_of(name) is small_datalens.SPEC
    x, y = small_datalens.images(N) if images else people_table.table(N, spec=people_table.THREE)
    x2, y2 = x.copy(), y.copy()
    x2[RECORD], y2[RECORD] = (255 if images else 1) - x2[RECORD], (y2[RECORD] + 1) % 3
    return (x, y), (x2, y2)


def dealt(name, x, y):
    """Records of each unit."""
    index = records.assign(N, built(name)[0].mechanism.n_units, small_datalens.KEY).index
    own = Records(jnp.asarray(x[index]), jnp.asarray(y[index], jnp.int32))
    return own, np.flatnonzero((index == RECORD).any(1))


@functools.cache
def visitor(name):
    method, _, query = built(name)
    secrets = method.mechanism.private_inputs(SeededBits(0), np.zeros(1, np.int32), 0)
    # What a draw tells a place is who was drawn; here, that somebody was.
    participation = (
        jnp.ones(secrets.shape[2:], jnp.int32) if method.mechanism.schedule.batch_capacity else None
    )

    @jax.jit
    def visit(unit_id, x, y, secret):
        unit = teachers.one_unit(method, jax.random.key(2), unit_id)
        return teachers.query_unit(method, unit, Records(x, y), query, jnp.int32(0), secret)

    return lambda unit, own: visit(unit, own.x[unit], own.y[unit],
                                   secrets[unit, 0] if participation is None else participation)


def messages(name, data, visit=None):
    own, owner = dealt(name, *data)
    visit = visit or visitor(name)
    return [dense(name, *visit(u, own)) for u in range(len(own.y))], owner


def dense(name, unit, votes):
    """A unit and what it adds to a sum: int32 [B, D]."""
    mechanism = built(name)[0].mechanism
    return unit, mechanism.added(jnp.zeros(mechanism.shape, jnp.int32), votes[None])


def check_neighbours(name, visit=None):
    """One unit's state and message change, and the message by no more than is declared."""
    (first, owner), (second, _) = (messages(name, data, visit) for data in neighbours(name))
    changed = {u for u, (a, b) in enumerate(zip(first, second, strict=True))
               if not small_datalens.equal(a, b)}
    assert changed <= set(owner.tolist())
    bound = built(name)[0].mechanism.bound
    squared = [np.sum((np.asarray(a[1], np.int64) - np.asarray(b[1], np.int64)) ** 2)
               for a, b in zip(first, second, strict=True)]
    assert max(squared) <= bound.squared_sensitivity()
    return changed


@pytest.mark.parametrize("name", ALONE)
def test_one_record_moves_one_unit_within_the_declared_bound(name):
    assert check_neighbours(name), "the record has no say at all: the test tests nothing"


@pytest.mark.parametrize("name", ALONE)
def test_a_unit_that_sees_others_records_is_caught(name):
    """The planted fault: every unit learns and answers on unit 0's records as well."""
    visit = visitor(name)

    def leaky(unit, own):
        owner = int(dealt(name, *neighbours(name)[0])[1][0])
        return visit(unit, jax.tree.map(lambda a: a.at[unit].set(a[owner]), own))

    with pytest.raises(AssertionError):
        check_neighbours(name, leaky)


@pytest.mark.parametrize("name", ALONE)
def test_a_unit_that_has_nothing_but_empty_slots_adds_nothing(name):
    own, _ = dealt(name, *neighbours(name)[0])
    nobody = Records(own.x.at[1].set(0), own.y.at[1].set(EMPTY))
    said = np.asarray(dense(name, *visitor(name)(1, nobody))[1])
    assert said.shape == built(name)[0].mechanism.shape and not said.any()
    if name != "pategan":  # whose units may all vote "fake", which is 0 too
        assert np.asarray(visitor(name)(1, own)[1]).any(), "nothing is ever said"


def check_bound(name, project):
    """Opposite messages, as large as can be, move the sum by what is declared, and no more."""
    method, _, query = built(name)
    own, _ = dealt(name, *neighbours(name)[0])
    shape = jax.eval_shape(
        lambda: method.answer(jax.random.key(0), method.init_unit(jax.random.key(0)),
                              Records(own.x[0], own.y[0]), query)).shape
    pair = pairs.opposites(method.mechanism.bound, jax.random.key(4), shape)
    a, b = (np.asarray(project(jax.random.key(5), m), np.int64) for m in pair)
    declared = method.mechanism.bound.squared_sensitivity()
    assert 0.8 * declared < np.sum((a - b) ** 2) <= declared


@pytest.mark.parametrize("name", PRIVATE)
def test_the_declared_sensitivity_is_reached_and_not_exceeded(name):
    project = jax.jit(built(name)[0].mechanism.bound.project)
    check_bound(name, project)
    with pytest.raises(AssertionError):  # the planted fault: messages twice as long
        check_bound(name, lambda key, message: 2 * project(key, message))
