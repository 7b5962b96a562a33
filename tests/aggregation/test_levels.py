"""Rounding to k levels: the two-point law, its mean, and the sensitivity of the integers."""

import itertools
import math

import hostile
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpgen_jax.aggregation import compression
from dpgen_jax.aggregation.clip import GridMean
from dpgen_jax.aggregation.compression import KLevels
from dpgen_jax.core.types import UserError

DRAWS = 50_000
PROJECT = jax.jit(KLevels.project, static_argnums=0)
BOUNDS = [KLevels(k, d, 4) for k, d in ((2, 8), (3, 4), (4, 64), (16, 64), (15, 1), (300, 8))]


def check(project, bound, rows):
    """Levels or no row at all, and never longer than what is declared."""
    for seed in range(3):
        entries = np.asarray(project(jax.random.key(seed), rows))
        assert entries.dtype == np.int32 and entries.shape == rows.shape
        spoken = entries.any(1)
        levels = range(-bound.levels + 1, bound.levels, 2)
        assert np.isin(entries[spoken], levels).all()
        assert (entries.astype(np.int64) ** 2).sum(1).max() <= bound.squared_row_norm
        assert not spoken[~np.isfinite(rows).all(1)].any() and not spoken[0]


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda b: f"{b.levels}-{b.columns}")
def test_rows_of_every_kind_become_levels_within_the_bound(rng, bound):
    check(lambda key, m: PROJECT(bound, key, m), bound, hostile.rows(rng, bound.columns))


FINE = BOUNDS[3]


def unscaled(key, message):
    """The mutant: entries are scaled to the range, whatever the length of the row."""
    unit = message / jnp.max(jnp.abs(message), -1, keepdims=True)
    return (2 * jnp.round((unit * 15 + 15) / 2) - 15).astype(jnp.int32)


def published(key, message):
    """The mutant: the levels -k / 2 + 2 r of Algorithm 5."""
    return PROJECT(FINE, key, message) + 7


def with_broken_rows(key, message):
    """The mutant: what is not finite is taken for zero, and rounded like it."""
    return PROJECT(FINE, key, jnp.where(jnp.isfinite(message), message, 1.0))


@pytest.mark.parametrize("mutant", [unscaled, published, with_broken_rows])
def test_other_roundings_are_caught(rng, mutant):
    with pytest.raises(AssertionError):
        check(mutant, FINE, hostile.rows(rng, 64))


@pytest.mark.parametrize("bound", BOUNDS[1:4], ids=lambda b: f"{b.levels}-{b.columns}")
@pytest.mark.parametrize("kind", ["random", "one entry"])
def test_an_entry_is_one_of_its_neighbours_and_right_in_the_mean(rng, bound, kind):
    """A row stopped by its length has length `reach`; one of one entry is stopped by the range."""
    row = rng.normal(size=bound.columns) if kind == "random" else np.eye(bound.columns)[1]
    scale = min(bound.reach / np.linalg.norm(row), bound.max_abs / np.abs(row).max())
    expected = row * scale
    tiled = np.tile(np.float32(1e-5 * row), (DRAWS, 1))
    entries = np.asarray(PROJECT(bound, jax.random.key(1), tiled))
    kept = entries[entries.any(1)] if bound.levels % 2 == 0 else entries
    assert len(kept) > (1 - 1e-3) * DRAWS
    low = np.clip(2 * np.floor((expected + bound.max_abs) / 2), 0, 2 * bound.max_abs - 2
                  ) - bound.max_abs
    up = (expected - low) / 2
    assert np.isin((kept - low)[:, (up > 1e-4) & (up < 1 - 1e-4)], (0, 2)).all()
    # alpha 1e-6 over 64 entries: 6 standard errors; what float32 loses; dropped rows
    limit = 6 * 2 * np.sqrt(up * (1 - up) / DRAWS).clip(0) + 1e-4 + 1e-3 * np.abs(expected)
    np.testing.assert_array_less(np.abs(kept.mean(0) - expected), limit)


@pytest.mark.parametrize("levels", [2, 4, 16, 64])
def test_rotated_rows_are_hardly_ever_dropped_and_their_mean_is_their_direction(rng, levels):
    """Sparse, flat and random rows of 784 entries, through the rotation and back."""
    rows = np.concatenate([np.tile(np.eye(784)[:1], (700, 1)), np.ones((700, 784)),
                           np.tile(rng.normal(size=(1, 784)), (700, 1))]).astype(np.float32)
    bound = KLevels(levels, 1024, len(rows))
    signs = compression.random_signs(jax.random.key(3), *rows.shape)
    entries = PROJECT(bound, jax.random.key(4), compression.rotate(signs, rows))
    assert np.mean(~np.any(entries, 1)) < 1e-3
    back = np.asarray(compression.unrotate(signs, GridMean(bound.grid)(entries, 1), 784))
    along = (back * rows).sum(1) / np.linalg.norm(rows, axis=1)
    assert np.abs(along.reshape(3, -1).mean(1) - 1).max() < 0.06  # a few rows are stopped early


# Sensitivity.

def largest_distance(bound, keys=3000):
    """The largest ||project(v) - project(v')||^2 over pairs of small messages, and of keys."""
    messages = np.array(list(itertools.product((-1.0, 0.4, 1.0, math.nan), repeat=bound.columns)),
                        np.float32)
    found = {(0,) * bound.columns}
    for seed in range(-(-keys // len(messages)) + 2):
        found |= set(map(tuple, np.asarray(PROJECT(bound, jax.random.key(seed), messages))))
    return hostile.furthest(np.array(list(found)))


CASES = [KLevels(2, 4, 1), KLevels(3, 3, 1), KLevels(4, 2, 1)]


@pytest.mark.parametrize("bound", CASES, ids=lambda b: f"{b.levels}-{b.columns}")
def test_the_declared_sensitivity_is_attained_and_never_exceeded(bound):
    assert largest_distance(bound) == bound.squared_sensitivity() == 4 * bound.squared_norm
    assert KLevels(bound.levels, bound.columns, 15).squared_sensitivity() == (
        15 * bound.squared_sensitivity())


def test_the_declared_sensitivity_is_attained_where_the_length_decides():
    """Nine of eleven equal entries rounded up, and their opposites: a few of many roundings."""
    bound = KLevels(15, 11, 1)
    assert bound.squared_norm == 648 < 14**2 * 11
    longest = []
    for sign in (1, -1):
        rows = np.full((600_000, 11), sign, np.float32)
        entries = np.asarray(PROJECT(bound, jax.random.key(0), rows))
        longest.append(entries[np.argmax((entries**2).sum(1))])
    assert ((np.sort(longest[0]) - np.sort(longest[1])[::-1]) ** 2).sum() == (
        bound.squared_sensitivity())


def test_one_bit_is_charged_as_signs_are_and_more_bits_as_their_length():
    """With two levels every row has length sqrt(D); with many, little more than `reach`, where the
    range alone would be charged as (k - 1) sqrt(D)."""
    assert KLevels(2, 1024, 15).squared_sensitivity() == 4 * 1024 * 15
    fine = KLevels(64, 1024, 1)
    assert fine.reach < math.sqrt(fine.squared_norm) < 1.02 * fine.reach
    assert 3.5 < 63 * 32 / math.sqrt(fine.squared_norm) < 4


@pytest.mark.parametrize(("fields", "text"), [
    ((1, 8, 1), "levels is 1"), ((2, 0, 1), "columns is 0"), ((2, 8, 0), "rows is 0"),
    ((400, 16384, 1), "use at most 363")])
def test_values_out_of_range_are_refused(fields, text):
    with pytest.raises(UserError, match=text):
        KLevels(*fields)
    assert KLevels(363, 16384, 1).max_abs == 362
