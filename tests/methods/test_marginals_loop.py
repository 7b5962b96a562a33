"""Noisy marginals in the real loop: each kind of step, and a record replaced by every other one."""

import dataclasses
import functools

import as_in_a_run
import jax
import numpy as np
import people_table
import pytest
import small_datalens
import test_battery
import test_battery_loop as battery
from test_marginals_method import SPEC, everybody, states, verbs

from dpgen_jax.core.types import Records
from dpgen_jax.methods import marginals
from dpgen_jax.run import loop

SETTINGS = {"label and preset": {"label_part": 0.2, "rare_share": 0.05}, "rare classes": {
    "rare_share": 0.3}, "the class is a column": {"weight_label": 0.0}}


@functools.cache
def compiled(setting):
    """The loop of 24 records, with so little noise that all kinds of steps are there."""
    config = dataclasses.replace(test_battery.small("marginals"), sigma=0.05, steps=5,
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
