"""Protocols of mechanisms whose votes are kept: the numbers that a reading of the votes needs.

`aggregation` has the mechanisms themselves, which this folder does not import.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np


class WithSigma(Protocol):
    """The protocol of Gaussian noise."""

    @property
    def sigma(self) -> float:
        """The standard deviation, in votes."""


class WithTails(Protocol):
    """The protocol of noise whose tails are known."""

    def log_tail(self, k: np.ndarray) -> np.ndarray:
        """Returns ln P(X >= k).

        Args:
            k: Whole numbers, any shape.
        """


class WithTopK(Protocol):
    """The protocol of a bound on signed votes."""

    @property
    def top_k(self) -> int:
        """The votes of one unit in a row."""


class KeepsVotes(Protocol):
    """The protocol of a mechanism whose votes the data holder keeps."""

    @property
    def n_units(self) -> int:
        """U: the public number of units."""

    @property
    def queries(self) -> int:
        """The queries of one round."""

    @property
    def votes_needed(self) -> int:
        """The least votes that pass."""


class KeepsHistograms(KeepsVotes, Protocol):
    """The protocol of `aggregation.confident_gnmax.ConfidentGNMax`."""

    @property
    def vote_bins(self) -> int:
        """The bins of each histogram."""

    @property
    def noise(self) -> WithSigma:
        """The noise on every count for the arg max."""

    @property
    def test_noise(self) -> WithSigma:
        """The noise on the largest count for the test."""


class KeepsSums(KeepsVotes, Protocol):
    """The protocol of `aggregation.topagg.TopAggMechanism`."""

    @property
    def shape(self) -> tuple[int, int]:
        """(B, D): the shape of the sum over units."""

    @property
    def bound(self) -> WithTopK:
        """The bound on the votes of one unit."""

    @property
    def noise(self) -> WithSigma:
        """The noise on the sum."""
