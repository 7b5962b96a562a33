"""Columns of thousands of codes: noise alone must not choose those that are ever drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpgen_jax.core.types import Column, TableSpec
from dpgen_jax.methods.shared import table_rounds
from dpgen_jax.methods.shared.table_plan import Plan
from dpgen_jax.methods.shared.table_tree import Fit

N, CODES = 4000, 800
ZIPS = tuple(f"{i:05d}" for i in range(CODES))
SPEC = TableSpec((Column("zip", "ordinal", categories=ZIPS, nullable=True, written="codes"),
                  Column("age", "integer", 0, 99)),
                 Column("y", "categorical", categories=("no", "yes")), 2)


def masses(true: np.ndarray, sigma: float) -> np.ndarray:
    """The masses of the codes after the first step, of so many true counts of codes and null."""
    plan = Plan(SPEC, N, sigma, 5, 256, 32, 24, 1.0)
    fit, rng = Fit(plan), np.random.default_rng(0)
    counts = np.zeros((plan.d + 1, plan.widest))
    counts[0, :CODES + 1], counts[1, :100], counts[2, :2] = true, N / 100, N / 2
    weights = np.array([[plan.first_weight], [plan.first_weight], [plan.first_class_weight]])
    noise = rng.normal(0, (2 * plan.limit)**0.5 * sigma, counts.shape)
    released = np.zeros(plan.columns, np.float32)
    released[:counts.size] = (counts * weights + noise).ravel()
    public = jax.jit(lambda sums: table_rounds.after_histograms(
        fit, table_rounds.start_rounds(fit), sums))(jnp.asarray(released))
    return np.asarray(public.fine[0, :CODES + 1])


def test_neighbours_share_what_noise_hides():
    """Five records a code, noise of twenty: every code is drawn, about as often as others."""
    even = np.append(np.full(CODES, N / CODES), 0)
    found = masses(even, 8.0)
    assert found.sum() == pytest.approx(1, abs=1e-3)
    assert (found[:CODES] > 0.1 / CODES).mean() > 0.9
    assert np.abs(found - even / N).sum() / 2 < 0.35  # of the largest cells alone it is above 0.8


def test_a_code_that_stands_out_keeps_its_mass():
    spiked = np.append(np.full(CODES, 0.5 * N / CODES), 0.1 * N)
    spiked[300] += 0.4 * N
    found = masses(spiked, 8.0)
    assert found[300] == pytest.approx(0.4, abs=0.06) and found[-1] == pytest.approx(0.1, abs=0.06)


def test_without_noise_it_is_the_histogram():
    true = np.append(np.random.default_rng(1).multinomial(N, np.full(CODES, 1 / CODES)), 0)
    np.testing.assert_allclose(masses(true, 1e-3), true / N, atol=1e-4)
