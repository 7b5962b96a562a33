"""Single releases on the host with separate noise: class counts, and queries for a schema.

All of them count records in bins that do not depend on the records, add noise, and compute the rest
from the noisy counts only. Relation: replace-one, unit one record, n public.

`class_counts` releases the size of each class; `bounds` and `categories` release the bounds of a
number and the categories of one column. Their noise is exact discrete Laplace noise, drawn in
integer arithmetic. A draw uses only random bits and integers, so its distribution is exact for
every output, and a guarantee may have delta 0: no table ends, and no floating-point number is
rounded.

`Survey` releases what an undeclared schema needs of all columns of a table at once, with rounded
Gaussian noise. Every record adds to one cell of each column's counts, so that all columns together
are one vector whose L2 sensitivity grows with the square root of their number. Later rounds of it
spend more on those columns of which earlier rounds left most open.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np

from dpgen_jax.accountant.events import EpsilonDeltaEvent, Events
from dpgen_jax.aggregation.noise import MIN_SIGMA, BitSource, RoundedGaussian
from dpgen_jax.core.types import Private, UserError, unseal

_WORDS = 64
"""Words drawn from the source at once."""


class Coins:
    """Uniform integers of any range, one at a time, from a source of bits."""

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

    The time depends on the noise, not on what it is added to.

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
        epsilon: Taken as the decimal number that is printed for it.
        l1_sensitivity: L1 sensitivity of all counts together.

    Raises:
        UserError: Epsilon is not positive and finite.
    """
    if not 0 < epsilon < math.inf:
        raise UserError(f"epsilon must be a positive, finite number, got {epsilon}")
    return l1_sensitivity / Fraction(repr(float(epsilon)))


def class_counts(labels: Private[np.ndarray], classes: int, epsilon: float, bits: BitSource,
                 rows_per_unit: int = 0) -> np.ndarray:
    """Releases the noisy number of records of each class: int64 [C]; may be negative.

    A label outside 0..C - 1, such as that of an empty slot, is in no count. With two classes it
    counts in the first, because the number of empty slots is private and only one count is drawn,
    with half the noise.

    Args:
        labels: Sealed labels int [n].
        rows_per_unit: k, if the unit is a subject with at most k labels; else 0.

    Guarantee:
        Unit: a record. Relation: replace-one, n public. Epsilon-private. A replaced label lowers
        one count by one and raises another: L1 sensitivity 2, noise of scale 2 / epsilon on each.
        With two classes only one count is drawn, with sensitivity 1 and scale 1 / epsilon, and the
        other is n minus it: post-processing, as n is public. Unit: a subject, n private. At most k
        labels leave the counts and at most k others enter, L1 sensitivity 2 k, and every count is
        drawn, since none follows from the others. For counts x and a release k, P(x -> k) is
        proportional to exp(-||k - x||_1 / scale) and ||x - x'||_1 <= sensitivity.

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
        rows_per_unit: As in `class_counts`.
    """
    return 2 * rows_per_unit or (1 if classes == 2 else 2)


def class_counts_event(epsilon: float) -> EpsilonDeltaEvent:
    """Returns the cost of `class_counts`."""
    return EpsilonDeltaEvent(epsilon, mechanism="discrete-laplace class counts")


# Two bins an octave: the noise of a bin does not depend on its width, so finer bins would be hidden
# by it.
EDGES = 2.0 ** (np.arange(-40, 81) / 2)
"""Edges of the magnitudes, from 2^-20 to 2^40: smaller ones are one bin, larger ones count as the
last bin.
"""
TAIL = 0.005
"""Share of the noisy mass left out at each end."""
FALSE_CORE = 1e-3
"""Probability that an empty bin of the grid gets into the core."""
FALSE_STEP = 0.05
"""Probability that an interval grows into an empty bin."""


def bounds(values: Private[np.ndarray], epsilon: float, bits: BitSource) -> tuple[float, float]:
    """Releases (low, high) between which most of the values lie.

    One noisy histogram over a fixed grid of signed magnitudes. The core is the bins whose noisy
    count is unlikely to be noise in any bin of the grid. It grows outward while the count of the
    next bin is unlikely to be noise in that one bin. 0.5 % of the noisy mass of these bins is left
    out at each end, and the outer edges of the remaining bins are returned.

    Args:
        values: Sealed float64 [n], NaN for null.

    Guarantee:
        Unit: a record. Relation: replace-one, n public. Epsilon-private. A value lies in one bin
        and a null in none, so replacing a record lowers one count by at most one and raises another
        by at most one: L1 sensitivity 2, noise of scale 2 / epsilon on every bin, including empty
        ones. Everything else, including whether an error is raised, is post-processing.

    Source:
        Dwork, McSherry, Nissim and Smith (TCC 2006) for the histogram; the interval is from this
        library.

    Raises:
        UserError: Epsilon is not positive and finite, or no bin exceeds the noise.
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
    """Returns the outer edges of the bins with most of the noisy mass."""
    ends = interval(noisy, lambda chance: _quantile(epsilon, chance))
    if ends is None:
        raise UserError("cannot find bounds at this epsilon; raise it or declare them")
    middle = len(EDGES) - 1
    return -_upper_edge(middle - ends[0]), _upper_edge(ends[1] - middle)


def interval(noisy: np.ndarray, least: Callable[[float], int]) -> tuple[int, int] | None:
    """Returns the first and last of the bins with most of the noisy mass.

    Args:
        noisy: Noisy counts int [bins].
        least: A function from a probability to the count that the noise of an empty bin reaches
        with at most this probability.

    Returns:
        Two indices, or None if no bin exceeds the noise.
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
    """Returns the smallest count k >= 1 that noise reaches with at most this probability.

    The noise is of scale 2 / epsilon, and k may be one too large. P(X >= k) = q^k / (1 + q), q =
    e^(-epsilon / 2).
    """
    count = -math.log(chance * (1 + math.exp(-epsilon / 2))) / (epsilon / 2)
    return max(1, math.floor(count * (1 + 1e-9)) + 1)


def categories(values: Private[list[str | None]], epsilon: float, delta: float, bits: BitSource
               ) -> tuple[str, ...]:
    """Releases the frequent values, sorted, perhaps none; nulls (None) are ignored.

    Values rarer than about (2 / epsilon) ln(1 / delta) do not appear.

    Args:
        values: Sealed list of n values.

    Guarantee:
        Unit: a record. Relation: replace-one, n public. (epsilon, delta)-private: each value that
        occurs is shown if count + X >= k, with independent discrete Laplace X of scale 2 / epsilon.
        Replacing a record lowers the count of one value a from c >= 1 and raises that of one value
        b from d >= 0, each by one (either may be missing: null). Independent coins, one for each
        value, determine what is shown, and all except those of a and b keep their distribution. Let
        p(i) = P(i + X >= k) for i >= 1 and p(0) = 0.

          - A count that changes between i >= 1 and i + 1: the coin is (epsilon / 2, 0)-private in
            both directions, as its count is, by the scale of X.
          - A count that changes between 1 and 0: the value is shown with probability p(1), or
            never. In one direction the coin is (0, p(1))-private: the outcome "shown" has
            probability p(1) instead of 0, and "hidden" is less likely. In the other direction it is
            (epsilon / 2, 0)-private if p(1) <= 1 - e^(-epsilon / 2).

        Going from the data with a to those with b, only a's coin can go from 1 to 0, and only b's
        from 0 to 1, so at most one of the two has a delta: both together are (epsilon,
        p(1))-private. k is chosen such that p(1) = P(X >= k - 1) <= min(delta, 1 - e^(-epsilon /
        2)).

    Source:
        Korolova, Kenthapadi, Mishra and Ntoulas (WWW 2009); Bun, Nissim and Stemmer (ITCS 2016): a
        stable histogram.

    Raises:
        UserError: Epsilon or delta is out of range.
    """
    counts = Counter(value for value in unseal(values) if value is not None)
    names = sorted(counts)
    scale, threshold = laplace_scale_for(epsilon, 2), least_count(epsilon, delta)
    noise = sample_discrete_laplace(scale, len(names), bits)
    return tuple(name for name, x in zip(names, noise, strict=True)
                 if counts[name] + x >= threshold)


def least_count(epsilon: float, delta: float) -> int:
    """Returns the noisy count from which `categories` shows a value.

    Raises:
        UserError: Epsilon or delta is out of range.
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


ROUNDS = (0.3, 0.7)
"""The parts of what the values cost, and of the delta of the names, that each round may spend."""
LEAST_WEIGHT = 0.02
"""A query has at least this part of the weight of another one in its round."""
COARSEST = 13.0
"""The noise of a query of values is at most so many times the noise of `Survey.values`."""


@dataclasses.dataclass(frozen=True)
class Numbers:
    """A query of the cells of a column: a record of another cell is not counted.

    Attributes:
        cells: Sealed cells int [n].
        count: How many cells there are.
    """

    cells: Private[np.ndarray]
    count: int


@dataclasses.dataclass(frozen=True)
class Names:
    """A query of the frequent texts of a column.

    Attributes:
        texts: A sealed list of n texts; None is not counted.
    """

    texts: Private[list[str | None]]


@dataclasses.dataclass(frozen=True)
class Answer:
    """The noisy counts of a query.

    Attributes:
        sigma: The standard deviation of their noise.
        counts: Of numbers, int64 [cells].
        names: Of names the frequent texts, sorted, with their counts.
    """

    sigma: float
    counts: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    names: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Survey:
    """The queries from which an undeclared schema is estimated.

    Attributes:
        columns: K, the columns whose kinds are released, once each.
        kinds: The noise on the counts of kinds.
        values: The noise on the counts of values, if each column had one query of equal weight.
        names_delta: The chance that a name of a single record comes out of any of the queries.
        most: The largest number of cells that are counted in one query, or of records.

    Guarantee:
        Unit: a record. Relation: replace-one, n public; also zero-out, where the record that is
        left out adds to no cell. In each query a record adds one to one cell at most, so replacing
        it lowers one count by one and raises another by one: squared L2 sensitivity 2 a query, 2 K
        of all kinds. Rounded Gaussian noise on every cell of a fixed list is Gaussian, as
        `RoundedGaussian` says.

        Values are counted in rounds. Round r divides `ROUNDS[r]` K over its queries by their
        weights: a query with the part w of it has noise of values.sigma / sqrt(w). So its mu is
        sqrt(2 w) / values.sigma, the squares of all queries of all rounds add up to at most
        2 K / values.sigma^2, and that is charged. Queries and weights may depend on earlier
        answers: they do not change what a round costs.

        The cells of a query of texts are those texts that occur, which are no fixed list. Let D and
        D' be neighbours. Texts of both have noisy counts as above. A text of D alone occurs once,
        and so does one of D' alone; of either sort there is one a query at most. Such a text is
        shown, with its count, with the chance p = P(1 + X >= threshold) if it is there, and never
        if it is not. The joint law of those of D alone (the others hidden) and that of those of D'
        alone agree in the outcome that none is shown, so they are at a distance of at most the
        sum of p over the queries of the round. All noise is independent, so the whole release is a
        composition of the Gaussian one and of one that is (0, sum of p)-private. In round r each of
        T queries of texts has the least threshold with T p <= ROUNDS[r] names_delta.

    Source:
        Dong, Roth and Su, "Gaussian Differential Privacy" (arXiv 1905.02383) for the counts;
        Korolova, Kenthapadi, Mishra and Ntoulas (WWW 2009) for hiding rare names.
    """

    columns: int
    kinds: RoundedGaussian
    values: RoundedGaussian
    names_delta: float
    most: int

    def events(self) -> Events:
        """Returns the cost of all queries, whether or not they are made."""
        kinds = self.kinds.event(2 * self.columns, self.columns * self.most)
        coarsest = RoundedGaussian(COARSEST * self.values.sigma)
        values = dataclasses.replace(
            self.values.event(2 * self.columns, 1), total_variation=coarsest.total_variation(
                len(ROUNDS) * self.columns * self.most))
        return ((dataclasses.replace(kinds, mechanism=KINDS), 1),
                (dataclasses.replace(values, mechanism=VALUES), 1),
                (EpsilonDeltaEvent(0.0, self.names_delta, NAMES), 1))

    @property
    def threshold(self) -> int:
        """The least noisy count of a name that is shown, if each column had such a query."""
        return least_name(self.values, self.names_delta / self.columns)

    def kind_counts(self, codes: Private[np.ndarray], cells: int, bits: BitSource) -> np.ndarray:
        """Releases the noisy counts of the kinds of each column, once: int64 [K, cells].

        Args:
            codes: Sealed cells int [n, K], 0..cells - 1.

        Raises:
            UserError: There are more columns or cells than `events` covers.
        """
        opened = unseal(codes)
        self._require(opened.shape[1] <= self.columns and cells <= self.most)
        counts = np.stack([np.bincount(column, minlength=cells) for column in opened.T])
        return counts + _noise(self.kinds, counts.size, bits).reshape(counts.shape)

    def value_counts(self, turn: int, queries: Mapping[str, Numbers | Names],
                     weights: Mapping[str, float], bits: BitSource) -> dict[str, Answer]:
        """Releases noisy counts of the values of columns, once in each round.

        Args:
            turn: The number of the round, from 0.
            queries: At most one a column, by its name.
            weights: Those of all queries, above 0; one that is much smaller than others is raised.

        Raises:
            UserError: There are more queries or cells than `events` covers.
        """
        names = [name for name, query in queries.items() if isinstance(query, Names)]
        self._require(len(queries) <= self.columns)
        answers = {}
        for name, noise in self.noises(turn, {name: weights[name] for name in queries}).items():
            query = queries[name]
            if isinstance(query, Names):
                least = least_name(noise, ROUNDS[turn] * self.names_delta / len(names))
                answers[name] = Answer(noise.sigma, names=self._frequent(
                    Counter(text for text in unseal(query.texts) if text is not None), noise, least,
                    bits))
            else:
                self._require(query.count <= self.most)
                opened = unseal(query.cells)
                inside = opened[(opened >= 0) & (opened < query.count)]
                answers[name] = Answer(noise.sigma, np.bincount(inside, minlength=query.count)
                                       + _noise(noise, query.count, bits))
        return answers

    def noises(self, turn: int, weights: Mapping[str, float]) -> dict[str, RoundedGaussian]:
        """Returns the noise of each query of a round, by its weight."""
        most = max(weights.values(), default=1.0)
        raised = {name: max(weight, LEAST_WEIGHT * most) for name, weight in weights.items()}
        unit = sum(raised.values()) / (ROUNDS[turn] * self.columns)
        self._require(len(raised) <= self.columns)  # so that none is above COARSEST
        return {name: rounded_up(self.values.sigma * math.sqrt(unit / weight))
                for name, weight in raised.items()}

    def _frequent(self, counts: Counter[str], noise: RoundedGaussian, least: int, bits: BitSource
                  ) -> dict[str, int]:
        """The texts whose noisy count is high enough, sorted."""
        self._require(len(counts) <= self.most)
        present = sorted(counts)
        draws = _noise(noise, len(present), bits).tolist()
        noisy = {text: counts[text] + x for text, x in zip(present, draws, strict=True)}
        return {text: count for text, count in noisy.items() if count >= least}

    def _require(self, fits: bool) -> None:
        """Refuses what the events do not cover; no message depends on a record."""
        if not fits:
            raise UserError("a survey would release more than it charges; this is a bug, please "
                            "report it")


def least_name(noise: RoundedGaussian, chance: float) -> int:
    """Returns the least count that a name of one record has by noise with at most this chance."""
    low, high = 1, 2 + noise.max_abs
    while low < high:
        middle = (low + high) // 2
        enough = float(noise.log_tail(np.array(middle - 1))) <= math.log(chance) - 1e-9
        low, high = (low, middle) if enough else (middle + 1, high)
    return low


def rounded_up(sigma: float) -> RoundedGaussian:
    """Returns the noise of a sigma that is rounded up to four digits."""
    digits = 3 - math.floor(math.log10(sigma))
    return RoundedGaussian(max(MIN_SIGMA, math.ceil(sigma * 10**digits) / 10**digits))


def _noise(noise: RoundedGaussian, draws: int, bits: BitSource) -> np.ndarray:
    """Returns draws int64 [draws]."""
    return noise.draw(bits.draw((draws, 3)))
