"""Cells of numbers that follow released counts: where they lie, and what wide bounds cost."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpgen_jax.core.types import Column, Records, TableSpec
from dpgen_jax.data.table import transform
from dpgen_jax.methods import marginals
from dpgen_jax.methods.shared import table_zoom
from dpgen_jax.methods.shared.table_plan import Grid
from dpgen_jax.release import numpy_samplers

COLUMNS = (Column("stay", "integer", 0, 400),
           Column("bmi", "continuous", 0.0, 500.0, nullable=True),
           Column("few", "integer", 0, 9), Column("sex", "categorical", categories=("F", "M")))
SPEC = TableSpec(COLUMNS, Column("ill", "categorical", categories=("no", "yes")), 4)
TIGHT = dataclasses.replace(SPEC, columns=(
    dataclasses.replace(COLUMNS[0], high=40.0),
    dataclasses.replace(COLUMNS[1], low=10.0, high=60.0), *COLUMNS[2:]))
CELLS = 64


def rows(n, seed=0):
    """Codes of short stays and usual weights, and classes that both tell of."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    stay = np.minimum(rng.gamma(1.2, 3 + 3 * y).astype(int), 40)
    bmi = np.where(rng.random(n) < 0.1, np.nan, np.clip(rng.normal(24 + 4 * y, 4), 10, 60))
    return np.stack([stay, bmi, rng.integers(0, 10, n), rng.integers(0, 2, n)], 1), y


def counted(grid, x):
    cells = np.asarray(jax.vmap(grid.codes)(x))
    return np.stack([np.bincount(column, minlength=grid.widest) for column in cells.T]) / len(x)


def test_most_cells_lie_where_records_are():
    """About seven of 64 cells of equal widths hold all records, and many more of the new ones."""
    grid, (codes, _) = Grid(SPEC, CELLS), rows(5000)
    x = transform.encode(SPEC, codes).astype(np.float32)
    assert table_zoom.follows(grid).tolist() == [True, True, False, False]
    masses = jnp.float32(counted(grid, x))
    start, width, new = map(np.asarray, table_zoom.cut(grid, masses, 1e-6))
    inner = slice(1, 1 + CELLS)
    for i, most in ((0, 40 / 400), (1, 60 / 500)):
        assert (np.diff(start[i, inner]) >= 0).all() and (width[i, inner] >= 0).all()
        np.testing.assert_allclose(start[i, inner] + width[i, inner],
                                   np.append(start[i, 2:CELLS + 1], grid.ends[0][i, CELLS]
                                             + grid.ends[1][i, CELLS]), atol=1e-6)
        assert (width[i, inner] > 0).sum() > 20
        among = (start[i, inner] < most) & (width[i, inner] > 0)
        assert among.sum() > 18 and new[i, inner][~among].sum() < 1e-3
    np.testing.assert_allclose(new.sum(1), masses.sum(1), atol=1e-5)
    np.testing.assert_array_equal(new[2:], masses[2:])
    again = np.asarray(jax.vmap(lambda row: grid.codes(row, jnp.asarray(start)))(x))
    for i in (0, 1):
        known = ~np.isnan(codes[:, i])
        at = again[known, i]
        inside = (at > 0) & (at <= CELLS)
        value = x[known][inside, 0 if i == 0 else 1]
        assert (value >= start[i, at[inside]] - 1e-6).all()
        assert (value <= start[i, at[inside]] + width[i, at[inside]] + 1e-6).all()


def test_cells_without_any_width_are_never_used():
    """Whole numbers leave some: no value lies in them, and no bin is made of them."""
    grid, (codes, _) = Grid(SPEC, CELLS), rows(5000)
    x = transform.encode(SPEC, codes).astype(np.float32)
    start, width, _ = table_zoom.cut(grid, jnp.float32(counted(grid, x)), 1e-6)
    usable = np.asarray(table_zoom.usable(grid, width))
    assert 0 < (~usable & grid.real)[0].sum() < CELLS
    cells = np.asarray(jax.vmap(lambda row: grid.codes(row, start))(x))
    assert usable[np.arange(4), cells].all()


def test_what_noise_puts_far_from_records_is_left_out():
    """Bins of about equal masses stay; a wide one that noise may have filled does not."""
    masses = jnp.float32([[0.3, 0.3, 0.3, 0.06, 0.04], [0.3, 0.3, 0.3, 0.06, 0.04]])
    extent = jnp.float32([[0.02, 0.02, 0.02, 0.02, 0.92], [0.2, 0.2, 0.2, 0.2, 0.2]])
    thin = np.asarray(table_zoom.thin(masses, jnp.full((2, 5), 0.03), extent))
    np.testing.assert_array_equal(thin, [[False] * 4 + [True], [False] * 5])
    sure = np.asarray(table_zoom.thin(masses, jnp.full((2, 5), 0.01), extent))
    assert not sure.any()


@functools.cache
def verbs(spec, sigma, follows=True):
    config = marginals.Config(records=4000, sigma=sigma, label_part=0.2, rare_share=0.05,
                              follows=follows)
    method = marginals.build(config, spec)

    def answers(x, y, query):
        return jax.vmap(lambda x, y: method.mechanism.bound.compact(None, method.answer(
            None, None, Records(x[None], y[None]), query)))(x, y)

    return (config, method, jax.jit(answers),
            jax.jit(lambda public, sums: method.absorb(None, public, public, sums)[0]),
            jax.jit(lambda public: method.finalize(None, public)), jax.jit(method.sample))


def learned(spec, sigma, seed, follows=True):
    """The model of 4,000 records on noisy sums."""
    config, method, answers, absorb, final, _ = verbs(spec, sigma, follows)
    codes, y = rows(4000, seed)
    x, rng = transform.encode(spec, codes).astype(np.float32), np.random.default_rng(seed)
    p, public = marginals.plan(config, spec), method.init(jax.random.key(0))
    for _ in range(p.steps):
        pairs = np.asarray(answers(x, y.astype(np.int32), public), np.int64)
        sums = np.bincount(pairs[:, 0].ravel(), pairs[:, 1].ravel(), p.columns + p.votes)
        sums = sums[None, :p.columns]
        noise = np.round(rng.normal(size=sums.shape) * (2 * p.limit)**0.5 * p.sigma)
        public = absorb(public, jnp.float32(sums + noise))
    return final(public)


def errors(spec, sigma, seed, follows=True):
    """Mean distance of quantiles in standard deviations, of each number."""
    model = learned(spec, sigma, seed, follows)
    real, y = rows(4000, seed + 100)
    drawn = verbs(spec, sigma, follows)[5](model, jax.random.key(1), y.astype(np.int32))
    made = transform.decode(spec, np.asarray(drawn))
    ranks = np.linspace(0.005, 0.995, 199)
    return [np.mean(np.abs(np.nanquantile(made[:, i], ranks) - np.nanquantile(real[:, i], ranks)))
            / np.nanstd(real[:, i]) for i in (0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [1.1, 8.0])  # about epsilon 10 and 1
def test_bounds_that_are_ten_times_too_wide_cost_little(sigma):
    """The noise is the same, over three draws; cells of equal widths cost much."""
    tight, wide, fixed = (np.mean([errors(spec, sigma, seed, follows) for seed in range(3)])
                          for spec, follows in ((TIGHT, True), (SPEC, True), (SPEC, False)))
    assert wide < 1.1 * tight + 0.02
    assert fixed > (2 if sigma > 2 else 1) * wide  # of little noise a cell is nearly one value


@pytest.mark.slow
def test_numpy_draws_the_same_rows():
    config, *_, sample = verbs(SPEC, 1.1)
    model = {name: np.asarray(array) for name, array in learned(SPEC, 1.1, 0).items()}
    y = np.resize([0, 1], 500).astype(np.int32)
    ours = np.asarray(sample(model, jax.random.key(3), y))
    theirs = numpy_samplers.rows(marginals.for_numpy(config, SPEC, model),
                                 numpy_samplers.key_of(3), y)
    assert np.isclose(ours, theirs, atol=1e-3).all(1).mean() > 0.99
