"""Single releases on the host with noise of their own: class counts, and queries for a schema.

All of them count records in bins that do not depend on them, add noise, and compute the rest from
the noisy counts only. Relation: replace-one, unit one record, n public.

`class_counts` releases the size of each class; `bounds` and `categories` release the bounds of a
number and the categories of one column. Their noise is exact discrete Laplace noise, drawn in
integer arithmetic. Only random bits and integers take part in a draw, so the law is the stated one
for every output and a guarantee may be purely epsilon: no table ends, and no floating-point number
is rounded.

`Survey` releases what an undeclared schema needs of all columns of a table at once, with rounded
Gaussian noise. Every record adds to one cell of each column's counts, so that all columns together
are one vector whose L2 sensitivity grows with the square root of their number.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np

from dpgen_jax.accountant.events import EpsilonDeltaEvent, Events
from dpgen_jax.aggregation.noise import BitSource, RoundedGaussian
from dpgen_jax.core.types import Private, UserError, unseal

_WORDS = 64
"""Words that are drawn from the source at once."""


class Coins:
    """Uniform numbers of any range, one at a time, from a source of bits."""

    def __init__(self, source: BitSource):
        self._source, self._pool, self._left = source, 0, 0

    def bits(self, n: int) -> int:
        """Returns n new bits, as a number in 0..2^n - 1."""
        while self._left < n:
            words = self._source.draw((1, _WORDS))
            self._pool |= int.from_bytes(words.tobytes(), "little") << self._left
            self._left += 32 * words.size
        value = self._pool & ((1 << n) - 1)
        self._pool >>= n
        self._left -= n
        return value

    def below(self, n: int) -> int:
        """Returns a uniform number in 0..n - 1, by rejection.

        Args:
            n: At least 1.
        """
        while (value := self.bits((n - 1).bit_length())) >= n:
            pass
        return value

    def exp_minus(self, numerator: int, denominator: int) -> bool:
        """Returns True with probability exp(-numerator / denominator).

        Args:
            numerator: At least 0.
            denominator: At least the numerator.

        Source:
            Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS
            2020, Algorithm 1.
        """
        k = 1
        while self.below(denominator * k) < numerator:
            k += 1
        return k % 2 == 1


def sample_discrete_laplace(scale: Fraction, draws: int, bits: BitSource) -> list[int]:
    """Draws independent integers x with P(x) proportional to exp(-|x| / scale), exactly.

    How long it takes depends on the noise (not on what it is added to).

    Args:
        scale: In steps of the integers.

    Source:
        Canonne, Kamath and Steinke, NeurIPS 2020, Algorithm 2.

    Raises:
        UserError: The scale is not positive.
    """
    if scale <= 0:
        raise UserError(f"the scale of discrete Laplace noise must be positive, got {scale}")
    coins = Coins(bits)
    return [_draw(scale.numerator, scale.denominator, coins) for _ in range(draws)]


def _draw(t: int, s: int, coins: Coins) -> int:
    while True:
        remainder = coins.below(t)
        if not coins.exp_minus(remainder, t):
            continue
        quotient = 0
        while coins.exp_minus(1, 1):
            quotient += 1
        # remainder + t * quotient is geometric with ratio exp(-1 / t)
        magnitude = (remainder + t * quotient) // s
        negative = coins.bits(1) == 1
        if not (negative and magnitude == 0):  # else 0 would be drawn twice as often
            return -magnitude if negative else magnitude


def laplace_scale_for(epsilon: float, l1_sensitivity: int) -> Fraction:
    """Returns the scale that makes counts of this L1 sensitivity epsilon-private.

    Args:
        epsilon: Read as the decimal number that it prints as.
        l1_sensitivity: Of the counts together.

    Raises:
        UserError: Epsilon is not positive and finite.
    """
    if not 0 < epsilon < math.inf:
        raise UserError(f"epsilon must be a positive, finite number, got {epsilon}")
    return l1_sensitivity / Fraction(repr(float(epsilon)))


def class_counts(labels: Private[np.ndarray], classes: int, epsilon: float, bits: BitSource,
                 rows_per_unit: int = 0) -> np.ndarray:
    """Releases the noisy number of records of each class: int64 [C], may be negative.

    A label outside 0..C - 1, as of an empty slot, is in no count. Of two classes it is in the
    first: how many slots are empty is private, and one count less is drawn for half the noise.

    Args:
        labels: Sealed labels int [n].
        rows_per_unit: k, where the unit is a subject, of whom at most k labels are there; else 0.

    Guarantee:
        Unit: a record. Relation: replace-one, n public. Epsilon-private. A replaced label lowers
        one count by one and raises another: L1 sensitivity 2, noise of scale 2 / epsilon on each.
        Of two classes only one count is drawn, with sensitivity 1 and scale 1 / epsilon, and the
        other is n minus it: post-processing, as n is public. Unit: a subject, n private. At most k
        labels leave the counts and at most k others enter, L1 sensitivity 2 k, and every count is
        drawn, since none follows from the others. With x counts and k what is released,
        P(x -> k) is proportional to exp(-||k - x||_1 / scale) and ||x - x'||_1 <= sensitivity.

    Source:
        Dwork, McSherry, Nissim and Smith, "Calibrating Noise to Sensitivity in Private Data
        Analysis" (TCC 2006), with discrete noise.

    Raises:
        UserError: Epsilon is not positive and finite.
    """
    y = unseal(labels)
    sensitivity = class_counts_sensitivity(classes, rows_per_unit)
    if sensitivity == 1:
        ones = int(np.sum(y == 1)) + sample_discrete_laplace(laplace_scale_for(
            epsilon, sensitivity), 1, bits)[0]
        return np.array([len(y) - ones, ones], np.int64)
    noise = sample_discrete_laplace(laplace_scale_for(epsilon, sensitivity), classes, bits)
    return np.array([int(np.sum(y == c)) + noise[c] for c in range(classes)], np.int64)


def class_counts_sensitivity(classes: int, rows_per_unit: int = 0) -> int:
    """Returns the L1 sensitivity of the counts that `class_counts` draws.

    Args:
        rows_per_unit: As `class_counts` takes it.
    """
    return 2 * rows_per_unit or (1 if classes == 2 else 2)


def class_counts_event(epsilon: float) -> EpsilonDeltaEvent:
    """Returns the cost of `class_counts`."""
    return EpsilonDeltaEvent(epsilon, mechanism="discrete-laplace class counts")


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
    scale = laplace_scale_for(epsilon, 2)
    noisy = counts + np.array(sample_discrete_laplace(scale, counts.size, bits))
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
    scale, threshold = laplace_scale_for(epsilon, 2), least_count(epsilon, delta)
    noise = sample_discrete_laplace(scale, len(names), bits)
    return tuple(name for name, x in zip(names, noise, strict=True)
                 if counts[name] + x >= threshold)


def least_count(epsilon: float, delta: float) -> int:
    """Returns the noisy count from which `categories` shows a value; a function of the price only.

    Raises:
        UserError: Epsilon or delta is bad.
    """
    if not 0 < delta < 1:
        raise UserError(f"delta must lie strictly between 0 and 1, got {delta}: without it no "
                        "category can be found, so declare them")
    return 1 + _quantile(epsilon, min(delta, -math.expm1(-epsilon / 2)))


def bounds_event(epsilon: float) -> EpsilonDeltaEvent:
    """Returns the cost of `bounds`."""
    return EpsilonDeltaEvent(epsilon, mechanism="discrete-laplace bounds")


def categories_event(epsilon: float, delta: float) -> EpsilonDeltaEvent:
    """Returns the cost of `categories`."""
    return EpsilonDeltaEvent(epsilon, delta, mechanism="discrete-laplace categories")


KINDS, VALUES, NAMES = "survey kinds", "survey values", "survey names"
"""The names of the events of the three parts."""


@dataclasses.dataclass(frozen=True)
class Survey:
    """The queries from which an undeclared schema is estimated.

    Attributes:
        columns: K, the columns whose kinds are released, once each.
        queries: Q, the most queries of values.
        kinds: The noise on the counts of kinds.
        values: The noise on the counts of values.
        names_delta: The chance that a name of a single record comes out of any of the queries.
        most: The largest number of cells that are counted in one query, or of records.

    Guarantee:
        Unit: a record. Relation: replace-one, n public; also zero-out, where the record that is
        left out adds to no cell. In each query a record adds one to one cell at most, so replacing
        it lowers one count by one and raises another by one: squared L2 sensitivity 2 a query, 2 K
        of all kinds and 2 Q of all values. Rounded Gaussian noise on every cell of a fixed list is
        Gaussian, as `RoundedGaussian` says.

        The cells of a query of texts are those texts that occur, which are no fixed list. Let D and
        D' be neighbours. Texts of both have noisy counts as above. A text of D alone occurs once,
        and so does one of D' alone; of either sort there are Q at most. Such a text is shown, with
        its count, with the chance p = P(1 + X >= threshold) if it is there, and never if it is not.
        The joint law of those of D alone (a of them, the others hidden) and that of those of D'
        alone (b of them) agree in the outcome that none is shown, so they are at a distance of
        1 - (1 - p)^max(a, b) <= Q p. All noise is independent, so the whole release is a
        composition of the Gaussian one and of one that is (0, Q p)-private, and the threshold is
        the least with Q p <= names_delta. The choice of queries may depend on earlier answers.

    Source:
        Dong, Roth and Su, "Gaussian Differential Privacy" (arXiv 1905.02383) for the counts;
        Korolova, Kenthapadi, Mishra and Ntoulas (WWW 2009) for hiding rare names.
    """

    columns: int
    queries: int
    kinds: RoundedGaussian
    values: RoundedGaussian
    names_delta: float
    most: int

    def events(self) -> Events:
        """Returns the cost of all queries, whether or not they are made."""
        kinds = self.kinds.event(2 * self.columns, self.columns * self.most)
        values = self.values.event(2 * self.queries, self.queries * self.most)
        return ((dataclasses.replace(kinds, mechanism=KINDS), 1),
                (dataclasses.replace(values, mechanism=VALUES), 1),
                (EpsilonDeltaEvent(0.0, self.names_delta, NAMES), 1))

    @property
    def threshold(self) -> int:
        """The least noisy count of a name that is shown."""
        log_chance = math.log(self.names_delta / self.queries) - 1e-9
        low, high = 1, 2 + self.values.max_abs
        while low < high:
            middle = (low + high) // 2
            enough = float(self.values.log_tail(np.array(middle - 1))) <= log_chance
            low, high = (low, middle) if enough else (middle + 1, high)
        return low

    def kind_counts(self, codes: Private[np.ndarray], cells: int, bits: BitSource) -> np.ndarray:
        """Releases the noisy counts of the kinds of each column, once: int64 [K, cells].

        Args:
            codes: Sealed cells int [n, K], 0..cells - 1.

        Raises:
            UserError: There are more columns or cells than `events` charges.
        """
        opened = unseal(codes)
        self._require(opened.shape[1] <= self.columns and cells <= self.most)
        counts = np.stack([np.bincount(column, minlength=cells) for column in opened.T])
        return counts + _noise(self.kinds, counts.size, bits).reshape(counts.shape)

    def value_counts(self, numbers: Mapping[str, tuple[Private[np.ndarray], int]],
                     texts: Mapping[str, Private[list[str | None]]], bits: BitSource
                     ) -> tuple[dict[str, np.ndarray], dict[str, dict[str, int]]]:
        """Releases noisy counts of the values of columns, once for all.

        Args:
            numbers: By the name of a query, sealed cells int [n] and how many cells there are; a
                record of another cell is not counted.
            texts: By the name of a query, a sealed list of n texts; None is not counted.

        Returns:
            Of numbers, int64 [cells]; of texts the frequent ones, sorted, with their counts, which
            are at least `threshold`.

        Raises:
            UserError: There are more queries or cells than `events` charges.
        """
        self._require(len(numbers) + len(texts) <= self.queries
                      and all(cells <= self.most for _, cells in numbers.values()))
        counted = {}
        for name, (codes, cells) in numbers.items():
            opened = unseal(codes)
            inside = opened[(opened >= 0) & (opened < cells)]
            counted[name] = np.bincount(inside, minlength=cells) + _noise(self.values, cells, bits)
        return counted, {name: self._frequent(Counter(text for text in unseal(sealed)
                                                      if text is not None), bits)
                         for name, sealed in texts.items()}

    def _frequent(self, counts: Counter[str], bits: BitSource) -> dict[str, int]:
        """The texts whose noisy count is high enough, sorted."""
        self._require(len(counts) <= self.most)
        present, threshold = sorted(counts), self.threshold
        noise = _noise(self.values, len(present), bits).tolist()
        noisy = {text: counts[text] + x for text, x in zip(present, noise, strict=True)}
        return {text: count for text, count in noisy.items() if count >= threshold}

    def _require(self, fits: bool) -> None:
        """Refuses what the events do not charge; no message depends on a record."""
        if not fits:
            raise UserError("a survey is asked for more than it charges; this is a fault of the "
                            "program, please report it")


def _noise(noise: RoundedGaussian, draws: int, bits: BitSource) -> np.ndarray:
    """Returns draws int64 [draws]."""
    return noise.draw(bits.draw((draws, 3)))
