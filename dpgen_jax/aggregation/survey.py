"""Private queries of all columns of a table at once: what an undeclared schema is made of.

Every record adds to one cell of each column's counts, so that all columns together are one vector
whose L2 sensitivity grows with the square root of their number. All else that a schema says is
computed from the noisy counts.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping

import numpy as np

from dpgen_jax.accountant.events import EpsilonDeltaEvent, Events
from dpgen_jax.aggregation.bits import BitSource
from dpgen_jax.aggregation.noise import RoundedGaussian
from dpgen_jax.core.types import Private, UserError, unseal

KINDS, VALUES, NAMES = "survey kinds", "survey values", "survey names"
"""The names of the events of the three parts."""


@dataclasses.dataclass(frozen=True)
class Survey:
    """The queries that a schema is bought by.

    Attributes:
        columns: K, the columns whose kinds are asked for; once each.
        queries: Q, how many queries of values are asked for, at most.
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
        the least with Q p <= names_delta. Which queries are asked may follow from earlier answers.

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
        """Returns the cost of all queries, whichever of them are asked."""
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
        """Releases the noisy counts of the kinds of each column, once.

        Args:
            codes: Sealed cells int [n, K], 0..cells - 1.
            cells: The number of kinds.
            bits: The source of the noise.

        Returns:
            int64 [K, cells].

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
            bits: The source of the noise.

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
