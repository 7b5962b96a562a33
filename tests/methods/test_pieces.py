"""Noisy histograms of numbers as steps: the best cut, and what is left at the end of a range."""

import jax
import numpy as np
import pytest

from dpgen_jax.core.types import Column, TableSpec
from dpgen_jax.methods.shared import table_rounds, table_tree
from dpgen_jax.methods.shared.table_plan import Grid

# Compiled whole for each size and noise.
steps = jax.jit(table_rounds.of_steps, static_argnums=2)


def best(values: np.ndarray, price: float) -> tuple[float, np.ndarray]:
    """The cut of least squares with a price for each piece, by trying all: its cost and heights."""
    mean = values.mean()
    whole = float(((values - mean) ** 2).sum() + price), np.full(len(values), mean)
    if len(values) == 1:
        return whole
    halves = [best(half, price) for half in np.split(values, 2)]
    parts = sum(cost for cost, _ in halves), np.concatenate([heights for _, heights in halves])
    return whole if whole[0] <= parts[0] else parts


@pytest.mark.parametrize("seed", range(4))
def test_the_cut_is_the_best_dyadic_one(seed):
    rng = np.random.default_rng(seed)
    true = np.repeat(rng.random(4), 4) + np.where(np.arange(16) == 5, 3, 0)
    noisy, noise = true + rng.normal(0, 0.2, 16), 0.2
    found = steps(np.float32(noisy[None]), np.ones((1, 16), bool), noise)
    _, wanted = best(noisy, table_rounds.PRICE * noise**2)
    np.testing.assert_allclose(found[0], wanted, atol=1e-5)
    assert 1 < len(np.unique(np.round(wanted, 6))) < 16


def test_cells_of_no_range_and_cells_without_noise_stay():
    spec = TableSpec((Column("n", "integer", 0, 10, nullable=True, special=(99.0,)),
                      Column("c", "categorical", categories=tuple("abcdefgh"))),
                     Column("y", "categorical", categories=("0", "1")), 2)
    grid, rng = Grid(spec, 40), np.random.default_rng(0)
    noisy = np.float32(rng.random((2, grid.widest)))
    found = np.asarray(steps(noisy, np.asarray(grid.is_range), 10.0))
    np.testing.assert_allclose(found[0, :11], np.full(11, noisy[0, :11].mean()), 1e-5)
    np.testing.assert_array_equal(found[0, 11:], noisy[0, 11:])
    np.testing.assert_array_equal(found[1], noisy[1])
    still = steps(noisy, np.asarray(grid.is_range), 0.0)
    np.testing.assert_allclose(still, noisy, rtol=1e-5)


def test_noise_of_empty_cells_puts_few_records_at_the_far_end_of_a_range():
    """A heavy tail with generous bounds: of cells alone noise makes more than a twentieth."""
    rng, cells, noise = np.random.default_rng(0), 107, 0.019
    money = np.exp(rng.normal(6, 1, 1500)) / 100_000
    share = np.histogram(money, cells, (0, 1))[0] / 1500
    noisy = np.float32(share + rng.normal(0, noise, (40, cells)))
    smooth = steps(noisy, np.ones((40, cells), bool), noise)
    far = [float(np.asarray(jax.jit(table_tree.simplex)(masses))[:, 10:].sum(1).mean())
           for masses in (noisy, smooth)]
    assert share[10:].sum() < 0.005 and far[0] > 0.05 and far[1] < 0.03
