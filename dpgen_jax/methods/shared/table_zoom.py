"""Cells that follow released counts: many where records are, few where there are none.

The cells of `Grid` are of equal width between the declared bounds, so bounds that are ten times too
wide leave a tenth of them for all records. After the histograms of the first step each cell with
many records is cut into several, and neighbours without any become one. There are as many cells as
before, so nothing else of a plan changes. Later steps count bins of the new cells. Inside an old
cell the masses of the new ones are what the histogram gives, spread evenly.

Everything here is a function of released counts.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import Array
from dpgen_jax.methods.shared.table_plan import Grid

SPREAD = 0.1
"""The share of the new cells that is given to equal widths; the rest is given to equal masses."""


LEAST = 1e-9
"""The least density of a cell: a bin without any mass could not be drawn from."""
CERTAIN = 3.0
"""Within how many standard deviations of nothing the mass of a bin may be noise."""
CLEAR = 2.0
"""Within how many standard deviations of nothing the mass of a bound may be noise."""
FEW, WIDE = 0.25, 15.0
"""Below what part of an equal share, or how much wider than usual, such a bin is left empty."""


def thin(masses: Array, noise: Array, extent: Array, few: float = 0.0) -> Array:
    """Returns which bins of ranges hold nothing but what noise put there, as far as shows.

    Bins have about equal masses, but for those that lie where no records were found.

    Args:
        masses: [d, B], noisy masses.
        noise: [d, B], their standard deviations.
        extent: [d, B], the parts of the range that they take; 0 of what is no range.
        few: the mass below which a bin need not be wide.
    """
    mass = jnp.maximum(masses, 0) * (extent > 0)
    log_extent = jnp.log(jnp.maximum(extent, 1e-9))
    usual = (mass * log_extent).sum(1, keepdims=True) / jnp.maximum(
        mass.sum(1, keepdims=True), 1e-12)
    wide = log_extent > usual + np.log(WIDE)
    below = masses < jnp.minimum(CERTAIN * noise, masses.max(1, keepdims=True))  # never all
    return _noise_only(masses, noise, (extent > 0) & below & wide) | _noise_only(
        masses, noise, (extent > 0) & below & (masses < few))


def _noise_only(masses: Array, noise: Array, among: Array) -> Array:
    """Returns these bins, [d, B], in columns where all of them together may be noise too.

    A long tail lies in many bins, none of which stands out by itself.
    """
    together = jnp.where(among, masses, 0).sum(1, keepdims=True)
    spread = jnp.sqrt(jnp.where(among, noise**2, 0).sum(1, keepdims=True))
    return among & (together < CERTAIN * spread)


def without_empty(grid: Grid, masses: Array, width: Array, noise: float) -> Array:
    """Returns masses of cells, [d, W] of sum 1, without those that noise put far from all records.

    Args:
        masses: [d, W], of sum 1.
        width: [d, W], of the cells.
        noise: standard deviation of the noise of a cell that was counted.
    """
    cells = jnp.where(follows(grid)[:, None], width * grid.most, 1.0)
    empty = thin(masses, noise * jnp.sqrt(jnp.maximum(cells, 1)), extents(grid, width))
    kept = jnp.where(empty, LEAST * jnp.maximum(width, 0), masses)
    return kept / jnp.maximum(kept.sum(1, keepdims=True), 1e-12)


def usable(grid: Grid, width: Array) -> Array:
    """Returns the cells that values may lie in, bool [d, W]: not those of no width between bounds.

    Args:
        width: [d, W], of cells that follow the counts.
    """
    cells = np.arange(grid.widest)
    inner = follows(grid)[:, None] & (cells > 0) & (cells <= grid.most)
    return jnp.asarray(grid.real) & ~(inner & (width <= 0))


def extents(grid: Grid, width: Array) -> Array:
    """Returns the parts of a range that cells take, float32 [d, W]; a bound is as its neighbour.

    Args:
        width: [d, W], of cells that follow the counts.
    """
    even = jnp.asarray(grid.is_range / np.maximum(grid.inside, 1)[:, None], jnp.float32)
    last = 1 + grid.most
    bound = width.at[:, 0].set(width[:, 1])
    if last < grid.widest:
        bound = bound.at[:, last].set(width[:, last - 1])
    return jnp.where(follows(grid)[:, None], bound * grid.is_range, even)


def follows(grid: Grid) -> np.ndarray:
    """Returns the columns whose cells follow the counts: those with several values in a cell."""
    return np.array(grid.inside == grid.most + 2) & ~grid.exact


def cut(grid: Grid, masses: Array, noise: float) -> tuple[Array, Array, Array]:
    """Returns start and width of the new cells in encoded values, and their masses: [d, W] each.

    A bound that noise may have filled has no mass: it may lie far from all records.

    Args:
        grid: The cells that were counted.
        masses: float32 [d, W], smoothed masses of these cells.
        noise: standard deviation of the noise of a cell.
    """
    start, width = (jnp.asarray(array) for array in grid.ends)
    chosen = np.flatnonzero(follows(grid))
    if not len(chosen):
        return start, width, masses
    inner, ends = slice(1, 1 + grid.most), np.array([0, 1 + grid.most])
    bounds = masses[chosen[:, None], ends]
    masses = masses.at[chosen[:, None], ends].set(
        jnp.where(bounds < CLEAR * noise, 0, bounds))
    steps = jnp.asarray(grid.whole_steps[chosen], jnp.float32)
    edges, inside = jax.vmap(_cut)(start[chosen, inner], width[chosen, inner],
                                   masses[chosen, inner], steps)
    return (start.at[chosen, inner].set(edges[:, :-1]),
            width.at[chosen, inner].set(jnp.diff(edges, axis=1)),
            masses.at[chosen, inner].set(inside))


def _cut(start: Array, width: Array, mass: Array, steps: Array) -> tuple[Array, Array]:
    """Returns the edges of the new cells of a column, [K + 1], and their masses, [K].

    Args:
        start, width, mass: [K], of its cells between the bounds.
        steps: the whole numbers between its bounds, where edges lie; 0 where it has any numbers.
    """
    most = len(start)
    level = mass / jnp.maximum(width, 1e-30)
    # A cell begins where the density changes: where records end is an edge.
    changes = jnp.concatenate([jnp.ones(1, bool), jnp.abs(jnp.diff(level)) > 1e-3 * level.max()])
    share = (1 - SPREAD) * mass / jnp.maximum(mass.sum(), 1e-12) + SPREAD * width / width.sum()
    aim = jnp.floor(jnp.cumsum(share) * (most - changes.sum()) * (1 - 1e-6)).astype(jnp.int32)
    parts = jnp.maximum(jnp.diff(aim, prepend=0), changes)
    behind = jnp.cumsum(parts)
    new = jnp.arange(most)
    old = jnp.minimum(jnp.searchsorted(behind, new, side="right"), most - 1)
    place = (new - (behind - parts)[old]) / jnp.maximum(parts[old], 1)
    end = start[-1] + width[-1]
    edges = jnp.where(new < behind[-1], start[old] + place * width[old], end)
    edges = jnp.where(steps > 0, (jnp.ceil(edges * steps - 0.5 - 1e-3) + 0.5) / steps, edges)
    edges = jnp.append(jax.lax.cummax(jnp.minimum(edges, end)), end).at[0].set(start[0])
    below = jnp.interp(edges, jnp.append(start, end), jnp.pad(jnp.cumsum(mass), (1, 0)))
    return edges, jnp.maximum(jnp.diff(below), LEAST * jnp.diff(edges))
