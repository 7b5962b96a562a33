"""NormTopK against Algorithm 4 written out literally, and what it promises of any row."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgen_jax.aggregation.topagg import dimension_topk, norm_topk

D = 9
BY_NORM = jax.jit(norm_topk)
BY_DIMENSION = jax.jit(dimension_topk, static_argnums=1)
rows = st.lists(st.integers(-6, 6), min_size=D, max_size=D).map(
    lambda row: np.array(row, np.float32))
floats = st.lists(st.floats(-1, 1, width=32, allow_subnormal=False), min_size=D, max_size=D).map(
    lambda row: np.array(row, np.float32))
kappas = st.sampled_from([0.05, 0.25, 0.5, 0.6, 0.75, 0.8, 1.0])
SIXTY_FOUR = st.sampled_from([i / 64 for i in range(1, 65)])


def by_norm(row, kappa):
    return np.asarray(BY_NORM(jnp.asarray(row), kappa))


def literal(row, kappa):
    """In decreasing order, ties by index, up to the first entry that does not fit; in float64."""
    out, room = np.zeros_like(row), kappa * float(np.sum(row.astype(float)**2))
    for j in sorted(range(len(row)), key=lambda j: (-abs(row[j]), j)):
        room -= float(row[j])**2
        if room < 0:
            break
        out[j] = row[j]
    return out


@settings(max_examples=150)
@given(rows, SIXTY_FOUR, st.integers(-60, 60))
def test_it_is_algorithm_4(row, kappa, exponent):
    """Whole numbers times a power of two: all sums are exact, and so are ties and shares."""
    row = row * np.float32(2.0**exponent)
    np.testing.assert_array_equal(by_norm(row, kappa), literal(row, kappa))


@settings(max_examples=150)
@given(floats, kappas)
def test_of_any_row_the_largest_entries_and_no_more_than_the_share(row, kappa):
    kept = by_norm(row, kappa)
    assert np.all((kept == row) | (kept == 0))
    left = np.abs(row[(kept == 0) & (row != 0)])
    taken = np.abs(row[kept != 0])
    if left.size and taken.size:
        assert left.max() <= taken.min()
    full, part = np.sum(row.astype(float)**2), np.sum(kept.astype(float)**2)
    assert part <= kappa * full * (1 + 1e-6)
    if left.size:  # the next one would not have fitted
        assert part + float(left.max())**2 > kappa * full * (1 - 1e-6)
    if kappa == 1:
        np.testing.assert_array_equal(kept, row)


@settings(max_examples=60)
@given(floats, kappas, st.integers(-100, 100))
def test_the_scale_does_not_matter(row, kappa, exponent):
    row[np.abs(row) < 1e-3] = 0
    scale = np.float32(2.0**exponent)
    np.testing.assert_array_equal(by_norm(row * scale, kappa), by_norm(row, kappa) * scale)


@settings(max_examples=60)
@given(floats, st.sampled_from(kappas.elements[:-1]))
def test_a_larger_share_keeps_at_least_as_much(row, kappa):
    assert np.all((by_norm(row, kappa) != 0) <= (by_norm(row, kappa + 0.1) != 0))


@pytest.mark.parametrize(("row", "kappa", "kept"), [
    ([0] * 5, 0.5, []), ([0] * 5, 1.0, []),
    ([2, 2, 2, 2], 0.5, [0, 1]), ([2, -2, 2, -2], 0.74, [0, 1]), ([2, 2, 2, 2], 0.24, []),
    ([1, 3, 1], 0.5, []), ([1, 3, 1], 0.82, [1]), ([1, 3, 1], 0.95, [0, 1]),
    ([5], 0.9, []), ([5], 1.0, [0]), ([0, 4, 0, 3], 0.64, [1])])
def test_known_rows(row, kappa, kept):
    assert np.flatnonzero(by_norm(np.float32(row), kappa)).tolist() == kept


@pytest.mark.parametrize("keep", [BY_NORM, BY_DIMENSION])
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_a_row_that_diverged_stays_so_and_leaves_others_alone(keep, bad):
    two = np.float32([[1, bad, 2, 1], [3, 4, 0, 0]])
    kept = np.asarray(keep(two, 0.7))
    np.testing.assert_array_equal(kept[0], two[0])
    np.testing.assert_array_equal(kept[1], np.asarray(keep(two[1:], 0.7))[0])


@pytest.mark.parametrize("largest", [2.0**127, 2.0**-126])
def test_the_ends_of_the_range(largest):
    """Squares of such entries are no float32."""
    row = np.full(6, largest, np.float32)
    assert np.flatnonzero(by_norm(row, 0.5)).tolist() == [0, 1, 2]
    row[3:] = 2.0**-126 if largest > 1 else 0
    assert np.flatnonzero(by_norm(row, 0.7)).tolist() == [0, 1]


def test_long_rows_in_a_batch():
    rng = np.random.default_rng(0)
    many = (rng.normal(size=(6, 4000)) * rng.exponential(size=(6, 4000))**3).astype(np.float32)
    for kappa in (0.3, 0.8):
        kept = np.asarray(BY_NORM(many, kappa))
        mapped = np.asarray(jax.jit(jax.vmap(functools.partial(norm_topk, kappa=kappa)))(many))
        for row, ours, theirs in zip(many, kept, mapped, strict=True):
            np.testing.assert_array_equal(ours, theirs)
            wanted = np.count_nonzero(literal(row, kappa))
            assert abs(np.count_nonzero(ours) - wanted) <= 1  # float32 sums


@settings(max_examples=60)
@given(rows, st.sampled_from([0.01, 0.2, 1 / 3, 0.4, 0.6, 1.0]))
def test_by_dimension_as_many_as_the_share_of_entries(row, kappa):
    kept = np.asarray(BY_DIMENSION(jnp.asarray(row), kappa))
    k = max(1, math.floor(kappa * D + 1e-6))
    ranked = sorted(range(D), key=lambda j: (-abs(row[j]), j))[:k]
    expected = np.zeros_like(row)
    expected[ranked] = row[ranked]
    np.testing.assert_array_equal(kept, expected)
