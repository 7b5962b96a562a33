"""Messages without negative entries: what a replaced record moves, by brute force, in integers."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hostile import furthest

from dpgen_jax.aggregation.moments import (
    MOST_CELLS,
    MOST_COUNT_LEVELS,
    CellVotes,
    count_levels,
)
from dpgen_jax.core.types import UserError

PROJECT = jax.jit(lambda bound, m: jax.vmap(lambda row: bound.project(None, row[None])[0])(m),
                  static_argnums=0)
ADDED = jax.jit(lambda bound, m: bound.added(
    jnp.zeros((1, bound.columns), jnp.int32),
    jax.vmap(lambda row: bound.compact(None, row[None]))(m)), static_argnums=0)
SIZES = (3, 2, 4)
CELLS = CellVotes(3, sum(SIZES), 3)


def of_tables(weights=(1, 1, 1)) -> np.ndarray:
    """The messages of all records that there can be: a cell in each table, and weights."""
    starts = np.cumsum((0, *SIZES[:-1]))
    cells = np.array(list(itertools.product(*map(range, SIZES)))) + starts
    return np.concatenate([cells, np.broadcast_to(weights, cells.shape)], 1).astype(np.float32)


@pytest.mark.parametrize("weights", [(1, 1, 1), (3, 0, 2)])
def test_all_records_of_small_tables_move_what_is_declared_and_no_more(weights):
    """A record in T tables moves exactly 2 T; with weights w twice the sum of their squares."""
    bound = CellVotes(3, sum(SIZES), sum(w * w for w in weights))
    rows = np.asarray(PROJECT(bound, of_tables(weights)))
    assert furthest(rows) == bound.squared_sensitivity() == 2 * sum(w * w for w in weights)
    assert set(rows.sum(1)) == {sum(weights)}
    total = np.asarray(ADDED(bound, of_tables(weights)))
    np.testing.assert_array_equal(total[0], rows.sum(0))


BAD = {"heavier": [0, 3, 5, 1, 1, 2], "a cell twice": [0, 3, 3, 1, 1, 1],
       "falling": [4, 3, 5, 1, 1, 1], "below zero": [-1, 3, 5, 1, 1, 1],
       "a negative weight": [0, 3, 5, 1, -1, 1], "nan": [0, 3, math.nan, 1, 1, 1],
       "a weight of nan": [0, 3, 5, 1, 1, math.nan], "infinite": [0, 3, math.inf, 1, 1, 1],
       "far too heavy": [0, 3, 5, 1, 1, 2.0**23], "no float of a cell": [0, 3, MOST_CELLS, 1, 1, 1]}


@pytest.mark.parametrize("message", BAD.values(), ids=BAD)
def test_a_message_that_breaks_the_bound_adds_nothing(message):
    assert not np.asarray(PROJECT(CELLS, np.array([message], np.float32))).any()


def test_a_cell_behind_all_tables_stands_for_none():
    rows = PROJECT(CELLS, np.array([[0, 9, 10, 1, 1, 1]], np.float32))
    assert np.asarray(rows)[0].tolist() == [1] + [0] * 8


def test_without_the_check_a_record_would_move_more(monkeypatch):
    """The planted fault: cells and weights that nobody looks at."""
    unchecked = CellVotes(3, sum(SIZES) + 1, 3)
    monkeypatch.setattr(CellVotes, "holds", lambda self, pairs: jnp.ones((1, 1), bool))
    rows = PROJECT(unchecked, np.array([BAD["heavier"], BAD["a cell twice"]], np.float32))
    assert furthest(np.concatenate([rows, 0 * rows])) > CELLS.squared_sensitivity() / 2


@pytest.mark.parametrize("bad", [
    lambda: CellVotes(0, 5, 1), lambda: CellVotes(1, 5, 0), lambda: CellVotes(1, 2**24, 1),
    lambda: CellVotes(1, 5, 4096**2), lambda: count_levels(1e6, 10),
    lambda: count_levels(1.0, 2**31)])
def test_bounds_that_are_not_proven_are_refused(bad):
    with pytest.raises(UserError):
        bad()


def test_levels_leave_room_for_the_noise_and_the_sum():
    assert count_levels(0.0, 100) == count_levels(1.0, 100) == MOST_COUNT_LEVELS
    assert math.sqrt(2) * 300 * count_levels(300.0, 100) <= 65536
    assert count_levels(1.0, 10**7) * 10**7 < 2**31
