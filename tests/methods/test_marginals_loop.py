"""Noisy marginals in the real loop: each kind of step, and a record replaced by every other one."""

import dataclasses
import functools
from typing import Any

import as_in_a_run
import jax
import jax.numpy as jnp
import numpy as np
import people_table
import pytest
import small_datalens
import test_battery
import test_battery_loop as battery
from planted import toy as adversary
from test_marginals_method import SPEC, everybody, states, verbs

from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.core.types import Private, Records
from dpgen_jax.methods import marginals
from dpgen_jax.run import loop

STEPS = 5
SETTINGS = {"label and preset": {"label_part": 0.2, "rare_share": 0.05}, "rare classes": {
    "rare_share": 0.3}, "cells follow counts": {"follows": True, "rare_share": 0.05},
    "the class is a column": {"weight_label": 0.0}}


@functools.cache
def compiled(setting):
    """The loop of 24 records, with so little noise that all kinds of steps are there."""
    config = dataclasses.replace(test_battery.small("marginals"), sigma=0.05, steps=STEPS,
                                 **SETTINGS[setting])
    assert marginals.plan(config, SPEC).kinds == (0, 1, 2, 2, 2)
    method = battery.watch(marginals.build(config, SPEC))
    where = as_in_a_run.layout(method, 1)
    state = loop.initial_state(method, jax.random.key(0), where)
    return battery.Compiled(method, where, loop.compile_block(method, where), *jax.device_get(
        (state.public, battery.unseal(state.units))))


def placed(where, x, y):
    """The table on its devices, with a record in the place of one of its own."""
    table = [a.copy() for a in people_table.table(battery.N, spec=SPEC)]
    table[0][battery.RECORD], table[1][battery.RECORD] = x, y
    return small_datalens.placed(*table, where, SPEC)


@pytest.mark.slow
@pytest.mark.parametrize("step", [0, 1, 2])
@pytest.mark.parametrize("setting", SETTINGS)
def test_no_record_moves_the_sum_of_the_loop_further_than_declared(setting, step):
    """The queries are those after the releases so far; the public side does not read this sum."""
    built = compiled(setting)
    x, y = (rows[::2] for rows in everybody())
    if step:
        public, _ = built.run(placed(built.layout, x[0], y[0]), 1.0, steps=step)
        built = dataclasses.replace(built, public=public)
    sums = np.stack([built.run(placed(built.layout, *record), 0.0, steps=1)[0].total.ravel()
                     for record in zip(x, y, strict=True)]).astype(np.int64)
    apart = ((sums[:, None] - sums)**2).sum(-1)
    declared = built.method.mechanism.inner.bound.squared_sensitivity()
    assert 0.9 * declared < apart.max() <= declared


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Scripted:
    """inner: the public state; seen, script float32 [STEPS, 1, D]: what was released, and what is
    taken for it where `forced` is 1."""

    inner: Any
    seen: Any
    script: Any
    forced: Any
    step: Any


def scripted(method):
    """The method, whose public side may be given a script in place of what is released."""
    def init(key):
        nothing = jnp.zeros((STEPS, *method.mechanism.shape))
        return Scripted(method.init(key), nothing, nothing, jnp.float32(0), jnp.int32(0))

    def absorb(key, public, query, released):
        heard = jnp.where(public.forced > 0, public.script[public.step], released)
        inner, metrics = method.absorb(key, public.inner, query, heard)
        return dataclasses.replace(public, inner=inner, step=public.step + 1,
                                   seen=public.seen.at[public.step].set(released)), metrics

    return dataclasses.replace(method, init=init, absorb=absorb,
                               ask=lambda key, public: method.ask(key, public.inner))


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{"rare_share": 0.05, "label_part": 0.2}, {"weight_label": 0.0},
                                    {"follows": True}],
                         ids=["rare classes", "the class is a column", "cells follow counts"])
def test_what_neighbours_make_different_is_what_was_released(fields):
    """The same noise, a record replaced by those of all extremes. The tree, the weights and all
    that a model is fitted to (`graphical` and `network` keep the pairs' tables too) are functions
    of the released counts: on other records, with these counts, they are the same bytes."""
    config = dataclasses.replace(test_battery.small("marginals"), sigma=0.05, steps=STEPS,
                                 model="graphical", **fields)
    method = scripted(marginals.build(config, SPEC))
    where = as_in_a_run.layout(method, 1)
    state, block = (loop.initial_state(method, jax.random.key(0), where),
                    loop.compile_block(method, where))
    public, units = jax.device_get((state.public, battery.unseal(state.units)))
    bits = SeededBits(0).draw((STEPS, *method.mechanism.bits_shape))

    def run(record, script=None):
        start = public if script is None else dataclasses.replace(
            public, script=script, forced=np.float32(1))
        args = loop.State(jax.device_put(start, where.replicated),
                          Private(jax.device_put(units, where.by_unit)), state.key)
        return jax.device_get(adversary.call(block, args, placed(where, *record), where, bits,
                                             STEPS)[0])

    x, y = (rows[::40] for rows in everybody())
    free = [run(record) for record in zip(x, y, strict=True)]
    first = free[0]
    assert first.inner.pairs.any() and (first.inner.parent >= 0).any()
    for record, other in zip(zip(x[1:], y[1:], strict=True), free[1:], strict=True):
        assert not small_datalens.equal(first.inner, other.inner)
        assert small_datalens.equal(first.inner, run(record, first.seen).inner)
        assert small_datalens.equal(other.inner, run((x[0], y[0]), other.seen).inner)
    assert len({one.inner.parent.tobytes() for one in free}) > 1  # another tree is chosen too


@pytest.mark.parametrize("step", range(4))
def test_of_a_person_of_several_rows_one_row_speaks_in_each_step(step):
    """So a person moves what a record moves, whatever the rows; in turn all are counted."""
    _, method, _, _, _ = verbs()
    x, y = everybody()
    query = dataclasses.replace(states()[step], step=np.int32(step))

    def message(rows):
        return np.asarray(method.answer(None, None, Records(x[rows], y[rows]), query))

    rows = np.array([5, 40, 98])
    np.testing.assert_array_equal(message(rows), message(rows[[step % 3]]))
    assert not np.array_equal(message(rows), message(rows[[(step + 1) % 3]]))
