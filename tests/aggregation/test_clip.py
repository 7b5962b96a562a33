"""Clipped rows on the integer grid: exact norms, the dither's mean, and the sensitivity."""

import dataclasses
import functools
import math

import hostile
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpgen_jax.aggregation.clip import GridMean, RowL2, halves_within
from dpgen_jax.core.types import UserError

DRAWS = 100_000
PROJECT = jax.jit(RowL2.project, static_argnums=0)
WITHIN = jax.jit(halves_within)
SMALL = RowL2(0.01, 10, 4, 32)
WIDE = RowL2(1.0, 784, 4, 224)


def squares(entries):
    """Sums of squares of each row."""
    return (np.asarray(entries, np.int64) ** 2).sum(1)


def check_norms(project, bound, rows):
    for seed in range(3):
        entries = project(jax.random.key(seed), rows)
        assert entries.dtype == jnp.int32 and entries.shape == rows.shape
        assert squares(entries).max() <= bound.levels**2
        assert not np.any(entries[~np.isfinite(rows).all(1)])


@pytest.mark.parametrize("bound", [SMALL, WIDE], ids=["small", "wide"])
def test_no_row_is_longer_than_the_bound(rng, bound):
    rows = hostile.rows(rng, bound.columns, bound.clip)
    if bound is SMALL:
        rows = np.resize(rows, (DRAWS, 10))
    check_norms(lambda key, m: PROJECT(bound, key, m), bound, rows)
    length = np.linalg.norm(rows.astype(float), axis=1) / bound.clip
    clipped = PROJECT(bound, jax.random.key(0), rows)[(length > 20) & (length < 1e6)]
    assert np.sqrt(squares(clipped)).min() > bound.levels - 5  # and not silenced


def rounded_up(key, message):
    """The mutant: every entry away from zero, without the check."""
    scaled = message / jnp.linalg.norm(message, axis=-1, keepdims=True) * (WIDE.levels - 2)
    return (jnp.sign(scaled) * jnp.ceil(jnp.abs(scaled))).astype(jnp.int32)


def clipped_later(key, message):
    """The mutant: the grid alone, for a clip that comes after the noise."""
    return jnp.round(message / WIDE.clip * WIDE.levels).astype(jnp.int32)


@pytest.mark.parametrize("mutant", [rounded_up, clipped_later])
def test_projections_without_the_check_are_caught(rng, mutant):
    rows = rng.normal(size=(118, WIDE.columns)).astype(np.float32)
    check_norms(lambda key, m: PROJECT(WIDE, key, m), WIDE, rows)
    with pytest.raises(AssertionError):
        check_norms(mutant, WIDE, rows)


def test_saturated_rows_are_hardly_ever_dropped(rng):
    """Fewer than one in 1000, whatever the direction: 3 in 10^5 by the normal law."""
    rows = rng.normal(size=(DRAWS, 10)) * rng.choice([1, 1e-3], (DRAWS, 10)) * 9
    entries = np.asarray(PROJECT(SMALL, jax.random.key(0), rows.astype(np.float32)))
    assert np.mean(~entries.any(1)) < 1e-3
    assert np.sqrt((entries**2).sum(1)).mean() > SMALL.levels - 3


@pytest.mark.parametrize("length", [0.3, 1.0, 40.0])
def test_the_mean_over_the_dither_is_the_scaled_row(length):
    """Scaled to `reach` where the clip binds, and by as much where it does not."""
    row = np.array([0.6, -0.5, 0.4, 0.3, -0.2, 0.1, -0.05, 0.01, 1e-4, 0])
    row = np.float32(length * SMALL.clip * row / np.linalg.norm(row))
    reach = math.sqrt(32**2 - 10 / 4) - 2
    expected = row.astype(float) / SMALL.clip / max(length, 1) * reach
    entries = np.asarray(PROJECT(SMALL, jax.random.key(1), np.tile(row, (DRAWS, 1))))
    part = expected - np.floor(expected)
    # alpha 10^-6 over ten entries: 5.4 standard errors; a dropped row in 3 * 10^4 moves the mean
    limit = 5.4 * np.sqrt(part * (1 - part) / DRAWS) + 1e-4 * np.abs(expected) + 2**-17
    np.testing.assert_array_less(np.abs(entries.mean(0) - expected), limit)
    assert np.isin(entries - np.floor(expected), (0, 1)).mean() > 1 - 1e-3


def test_the_grid_gives_back_what_was_clipped(rng):
    row = SMALL.clip / 2 * np.float32([0.6, 0.8, *[0] * 8])
    entries = PROJECT(SMALL, jax.random.key(2), np.tile(row, (DRAWS, 1)))
    decoded = GridMean(SMALL.grid)(entries.sum(0)[None], len(entries))
    assert decoded.dtype == jnp.float32
    reach = (math.sqrt(32**2 - 10 / 4) - 2) / 32
    np.testing.assert_allclose(decoded[0], reach * row, atol=5.4 * SMALL.grid / 2 / 300)


# Sensitivity.

NINE = RowL2(1.0, 9, 1, 24)


@functools.cache
def squared_distance(draws=300_000):
    """The largest over all pairs of what a row, its opposite and other rows become: of many
    dithers of each, the longest."""
    rows = np.tile(np.ones(9, np.float32), (draws, 1))
    others = np.random.default_rng(0).normal(size=rows.shape).astype(np.float32)
    found = []
    for seed, message in enumerate((rows, -rows, others)):
        entries = np.asarray(PROJECT(NINE, jax.random.key(seed), message))
        found.append(entries[np.argsort((entries**2).sum(1))[-200:]].astype(float))
    return hostile.furthest(np.concatenate(found))


def test_the_declared_sensitivity_is_attained_and_never_exceeded():
    """Nine equal entries round up to 8 each, and their opposites to -8, in a few of many dithers:
    the norm is then 24, all that is allowed."""
    assert squared_distance() == NINE.squared_sensitivity() == 4 * 24**2
    assert dataclasses.replace(NINE, rows=15).squared_sensitivity() == 15 * 4 * 24**2


# Exact sums of squares.

def test_sums_of_squares_are_compared_exactly(rng):
    for scale in (3, 200, 2**15):
        entries = rng.integers(-scale, scale + 1, (60, 64)).astype(np.int32)
        sums = np.array([sum(int(e) ** 2 for e in row) for row in entries])
        for most in {*sums[:6], *(sums[:6] - 1), *(sums[:6] + 1), 1, 2**30} - {0, -1}:
            if most <= 2**30:
                np.testing.assert_array_equal(WITHIN(entries, int(most))[:, 0], sums <= most)


def test_sums_beyond_32_bits_are_not_mistaken_for_small_ones():
    """65,536 squares of 2^30 come to 2^46; modulo 2^32 that is 0."""
    entries = np.full((5, 2**16), 2**15, np.int32)
    entries[1, 4:] = 0  # 2^32
    entries[2, 1:] = 0  # 2^30
    entries[3, 1:] = 0
    entries[3, 1] = 1
    entries[4] = 255  # low halves alone sum up to just below 2^32
    assert squares(entries)[:4].tolist() == [2**46, 2**32, 2**30, 2**30 + 1]
    assert WITHIN(entries, 2**30)[:, 0].tolist() == [False, False, True, False, False]
    assert not np.any(WITHIN(entries, 2**20))


@pytest.mark.parametrize(("fields", "text"), [
    ({"clip": 0.0}, "clip is 0.0"), ({"clip": math.nan}, "clip is nan"),
    ({"clip": math.inf}, "clip is inf"), ({"clip": 1e-40}, "clip is 1e-40"),
    ({"columns": 0}, "columns is 0"), ({"rows": 0}, "rows is 0"), ({"levels": 0}, "levels is 0"),
    ({"levels": 6}, "use at least 7"), ({"levels": 2**15 + 1}, "stay exact"),
    ({"columns": 2**16 + 1, "levels": 2**15}, "stay exact")])
def test_values_out_of_range_are_refused(fields, text):
    with pytest.raises(UserError, match=text):
        dataclasses.replace(SMALL, **fields)
