"""One clip over a whole gradient, in integers: no message is longer than was declared."""

import dataclasses
import math

import hostile
import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgen_jax.aggregation.clip import GradientL2, gradient_levels
from dpgen_jax.core.types import UserError

PROJECT = jax.jit(lambda bound, m: jax.vmap(lambda row: bound.project(None, row[None])[0])(m),
                  static_argnums=0)
BOUND = GradientL2(0.5, 300, 4095)
WIDE = GradientL2(2.0, 100_003, 1000)


def squares(entries):
    return (np.asarray(entries, np.int64) ** 2).sum(1)


def check(project, bound, rows):
    entries = np.asarray(project(bound, rows))
    assert entries.dtype == np.int32 and entries.shape == rows.shape
    assert squares(entries).max() <= bound.squared_norm
    assert not entries[~np.isfinite(rows).all(1)].any()
    return entries


@pytest.mark.parametrize("bound", [BOUND, WIDE], ids=["short", "long"])
def test_no_message_is_longer_than_declared_and_none_is_lost(rng, bound):
    rows = hostile.rows(rng, bound.columns, bound.clip)[::1 if bound is BOUND else 9]
    length = np.linalg.norm(rows.astype(float), axis=1) / bound.clip
    clipped = check(PROJECT, bound, rows)[(length > 1.5) & (length < 1e6)]
    assert len(clipped) > 4
    assert np.sqrt(squares(clipped)).min() > bound.levels - math.sqrt(bound.columns) - 1


def test_short_gradients_keep_their_length_and_direction(rng):
    row = rng.normal(size=(1, 300)).astype(np.float32)
    row *= 0.3 / np.linalg.norm(row)
    back = PROJECT(BOUND, row) * BOUND.grid
    assert np.abs(back - row).max() <= 0.51 * BOUND.grid + 0.01 * np.abs(row).max()


def unchecked(bound, rows):
    """The mutant: clipped in floats, rounded away from zero, never checked."""
    scaled = rows / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True) * bound.levels
    return (np.sign(scaled) * np.ceil(np.abs(scaled))).astype(np.int32)


def by_layer(bound, rows):
    """The mutant of DP-CGAN (P23): each of two layers is clipped by itself."""
    half = rows.shape[1] // 2
    parts = [rows[:, :half], rows[:, half:]]
    return np.concatenate([np.trunc(p / np.linalg.norm(p, axis=1, keepdims=True) * bound.levels)
                           for p in parts], 1).astype(np.int32)


@pytest.mark.parametrize("mutant", [unchecked, by_layer])
def test_projections_without_one_checked_clip_are_caught(rng, mutant):
    rows = 5 * rng.normal(size=(50, 300)).astype(np.float32)
    check(PROJECT, BOUND, rows)
    with pytest.raises(AssertionError):
        check(mutant, BOUND, rows)


def test_the_float_check_is_exact_at_its_edge():
    """Sums of squares next to levels^2, and beyond 2^24, where float32 no longer counts by one."""
    exact = GradientL2(4095.0, 40_000, 4095)

    def kept(entries):
        flat = np.zeros((1, exact.columns), np.float32)
        flat[0, :len(entries)] = entries
        return bool(exact.holds(flat)[0, 0])

    assert kept([4095]) and not kept([4095, 1]) and not kept([4096])
    assert kept(np.ones(40_000)) and not kept(np.full(40_000, 21))


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=4, max_size=4))
@settings(max_examples=200)
def test_any_four_entries(values):
    bound = GradientL2(1.0, 4, 50)
    check(PROJECT, bound, np.array([values], np.float32))


def test_the_declared_sensitivity_is_reached_and_depends_on_the_relation():
    bound = GradientL2(1.0, 1, 100)
    a, b = (np.asarray(PROJECT(bound, np.array([[v]], np.float32)))[0] for v in (9.0, -9.0))
    assert bound.squared_sensitivity() == 4 * 100**2
    assert 0.98 < np.sum((a - b) ** 2) / bound.squared_sensitivity() <= 1
    zero_out = dataclasses.replace(bound, relation="zero-out")
    assert zero_out.squared_sensitivity() == 100**2


def test_levels_shrink_for_large_noise_and_many_units():
    assert gradient_levels(1.0, 10_000, 100) == 4095
    assert gradient_levels(0.0, 10_000, 60_000) == 4095
    assert gradient_levels(100.0, 10_000, 100) == 655
    assert gradient_levels(1.0, 10_000, 10**6) * 10**6 < 2**31
    for bad in ((400.0, 10_000, 100), (1.0, 10**7, 100), (1.0, 10_000, 10**8)):
        with pytest.raises(UserError, match="levels"):
            gradient_levels(*bad)


@pytest.mark.parametrize("fields", [
    {"clip": 0.0}, {"clip": math.inf}, {"clip": math.nan}, {"relation": "add-remove"},
    {"levels": 5}, {"levels": 4096}])
def test_bad_bounds_are_refused(fields):
    with pytest.raises(UserError):
        dataclasses.replace(BOUND, **fields)
