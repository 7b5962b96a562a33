"""Private queries for the schema of a table: bounds of a number, and categories.

Both count records in bins that do not depend on them, add discrete Laplace noise, and compute the
rest from the noisy counts alone. Relation: replace-one, unit one record, n public.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np

from dpgen_jax.accountant.events import EpsilonDeltaEvent
from dpgen_jax.aggregation import discrete_laplace
from dpgen_jax.aggregation.bits import BitSource
from dpgen_jax.core.types import Private, UserError, unseal

# Two bins an octave: the noise of a bin does not depend on its width, so finer bins would drown.
EDGES = 2.0 ** (np.arange(-40, 81) / 2)
"""Edges of the magnitudes, from 2^-20 to 2^40: below is one bin, above counts as the last."""
TAIL = 0.005
"""Share of the noisy mass that is left out at each end."""
FALSE_CORE = 1e-3
"""Chance that any empty bin of the grid gets into the core."""
FALSE_STEP = 0.05
"""Chance that an interval grows into an empty bin."""


def bounds(values: Private[np.ndarray], epsilon: float, bits: BitSource) -> tuple[float, float]:
    """Releases (low, high) that hold most of the values.

    One noisy histogram over a fixed grid of signed magnitudes. Bins whose noisy count could hardly
    be noise in any bin of the grid are the core; it grows outward while the next bin could hardly
    be noise by itself; of the noisy mass that these have, 0.5 % are left out at each end, and the
    outer edges of the bins that remain are returned.

    Args:
        values: Sealed float64 [n], NaN for null.
        epsilon: The price.
        bits: The source of the noise.

    Guarantee:
        Unit: a record. Relation: replace-one, n public. Epsilon-private. A value lies in one bin
        and a null in none, so replacing a record lowers one count by at most one and raises one
        other by at most one: L1 sensitivity 2, noise of scale 2 / epsilon on every bin, also the
        empty ones. All else, whether an error is raised too, is post-processing.

    Source:
        Dwork, McSherry, Nissim and Smith (TCC 2006) for the histogram; the interval is this
        library's.

    Raises:
        UserError: Epsilon is bad, or no bin stands out of the noise.
    """
    counts = _histogram(unseal(values))
    scale = discrete_laplace.scale_for(epsilon, 2)
    noisy = counts + np.array(discrete_laplace.sample(scale, counts.size, bits))
    return _interval(noisy, epsilon)


def _histogram(values: np.ndarray) -> np.ndarray:
    """Returns counts int64 of the bins, from the most negative to the most positive."""
    numbers = values[~np.isnan(values)]
    magnitude = np.minimum(np.searchsorted(EDGES, np.abs(numbers), "right"), len(EDGES) - 1)
    signed = np.where(numbers < 0, -magnitude, magnitude)
    return np.bincount(signed + len(EDGES) - 1, minlength=2 * len(EDGES) - 1)


def _interval(noisy: np.ndarray, epsilon: float) -> tuple[float, float]:
    """Returns the outer edges of the bins that hold most of the noisy mass."""
    ends = interval(noisy, lambda chance: _quantile(epsilon, chance))
    if ends is None:
        raise UserError("cannot find bounds at this epsilon; raise it or declare them")
    middle = len(EDGES) - 1
    return -_upper_edge(middle - ends[0]), _upper_edge(ends[1] - middle)


def interval(noisy: np.ndarray, least: Callable[[float], int]) -> tuple[int, int] | None:
    """Returns the first and the last of the bins that hold most of the mass of noisy counts.

    Args:
        noisy: Noisy counts int [bins].
        least: From a chance to the count that the noise of an empty bin reaches with it at most.

    Returns:
        Two places, or None where no bin stands out of the noise.
    """
    core = np.flatnonzero(noisy >= least(FALSE_CORE / noisy.size))
    if not core.size:
        return None
    full = noisy >= least(FALSE_STEP)
    first, last = core[0], core[-1]
    while first > 0 and full[first - 1]:
        first -= 1
    while last < noisy.size - 1 and full[last + 1]:
        last += 1
    mass = first + np.flatnonzero(full[first:last + 1])
    below = np.cumsum(noisy[mass]) / noisy[mass].sum()
    lowest = mass[np.searchsorted(below, TAIL, "right")]
    highest = mass[np.searchsorted(below, 1 - TAIL, "left")]
    return int(lowest), int(highest)


def _upper_edge(signed: int) -> float:
    """Returns the upper edge of a bin by its signed number: 0 is around zero, -1 below it."""
    return float(EDGES[signed] if signed >= 0 else -EDGES[-signed - 1])


def _quantile(epsilon: float, chance: float) -> int:
    """Returns the least count k >= 1 that noise reaches with this chance at most.

    The noise is of scale 2 / epsilon, and k may be one too large. P(X >= k) = q^k / (1 + q), q =
    e^(-epsilon / 2).
    """
    count = -math.log(chance * (1 + math.exp(-epsilon / 2))) / (epsilon / 2)
    return max(1, math.floor(count * (1 + 1e-9)) + 1)


def categories(values: Private[list[str | None]], epsilon: float, delta: float, bits: BitSource
               ) -> tuple[str, ...]:
    """Releases the frequent values, sorted; perhaps none. None is null, and is ignored.

    Values rarer than about (2 / epsilon) ln(1 / delta) do not appear.

    Args:
        values: Sealed list of n values.
        epsilon: The price.
        delta: The price.
        bits: The source of the noise.

    Guarantee:
        Unit: a record. Relation: replace-one, n public. (epsilon, delta)-private: each value that
        occurs is shown where count + X >= k, X discrete Laplace of scale 2 / epsilon, independent.
        Replacing a record lowers the count of one value a from c >= 1 and raises that of one value
        b from d >= 0, each by one (either may be missing: null). What is shown is determined by
        independent coins, one for each value, and all but those of a and b keep their law. Let p(i)
        = P(i + X >= k) for i >= 1 and p(0) = 0.

          - A count that moves between i >= 1 and i + 1: the coin is (epsilon / 2, 0)-private, both
            ways round, as its count is, by the scale of X.
          - A count that moves between 1 and 0: shown with chance p(1), or never. One way round the
            coin is (0, p(1))-private: what is never shown otherwise has chance p(1), and what is
            hidden is rarer. The other way round it is (epsilon / 2, 0)-private if
            p(1) <= 1 - e^(-epsilon / 2).

        Going from the data with a to those with b, only a's coin can go from 1 to 0, and only b's
        from 0 to 1, so at most one of the two has a delta: both together are (epsilon,
        p(1))-private. k is chosen such that p(1) = P(X >= k - 1) <= min(delta, 1 - e^(-epsilon /
        2)).

    Source:
        Korolova, Kenthapadi, Mishra and Ntoulas (WWW 2009); Bun, Nissim and Stemmer (ITCS 2016): a
        stable histogram.

    Raises:
        UserError: Epsilon or delta is bad.
    """
    counts = Counter(value for value in unseal(values) if value is not None)
    names = sorted(counts)
    scale, threshold = discrete_laplace.scale_for(epsilon, 2), _threshold(epsilon, delta)
    noise = discrete_laplace.sample(scale, len(names), bits)
    return tuple(name for name, x in zip(names, noise, strict=True)
                 if counts[name] + x >= threshold)


def least_count(epsilon: float, delta: float) -> int:
    """Returns the noisy count from which `categories` shows a value; a function of the price alone.

    Args:
        epsilon: The price.
        delta: The price.

    Raises:
        UserError: Epsilon or delta is bad.
    """
    return _threshold(epsilon, delta)


def _threshold(epsilon: float, delta: float) -> int:
    """Returns k of `categories`, or raises UserError unless 0 < delta < 1."""
    if not 0 < delta < 1:
        raise UserError(f"delta must lie strictly between 0 and 1, got {delta}: without it no "
                        "category can be found, so declare them")
    return 1 + _quantile(epsilon, min(delta, -math.expm1(-epsilon / 2)))


def bounds_event(epsilon: float) -> EpsilonDeltaEvent:
    """Returns the cost of `bounds`.

    Args:
        epsilon: The price.
    """
    return EpsilonDeltaEvent(epsilon, mechanism="discrete-laplace bounds")


def categories_event(epsilon: float, delta: float) -> EpsilonDeltaEvent:
    """Returns the cost of `categories`.

    Args:
        epsilon: The price.
        delta: The price.
    """
    return EpsilonDeltaEvent(epsilon, delta, mechanism="discrete-laplace categories")
