"""Small mechanisms of each kind, attacked as those of a run are: `audit METHOD` in small."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpgen_jax.aggregation.clip import GradientL2, GridMean, RowL2
from dpgen_jax.aggregation.mechanism import SumMechanism
from dpgen_jax.aggregation.noise import RoundedGaussian
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.audit import attacks, mechanism, pairs
from dpgen_jax.audit.findings import Findings, Verdict
from planted import toy

SEARCH, LAW, RELEASES = 0.5, 0.05, 60.0
"""Seconds: of the search for two messages, at least a round of it; of draws, at least 2^20; and of
releases, which end sooner, when there are enough"""


NAME = "the toy"


def votes() -> SumMechanism:
    """Top-k votes, as in DataLens."""
    return toy.mechanism()


def rows() -> SumMechanism:
    """Rows of clipped gradients, on a grid so coarse that rounding counts."""
    return _sum(RowL2(1.0, 64, 2, 20), (2, 64))


def long_rows() -> SumMechanism:
    """Rows on the finest grid that there is, whose squares fill 32 bits."""
    return _sum(RowL2(1.0, 8, 1, 2**15), (1, 8), sigma=2.0**15)


def gradient() -> SumMechanism:
    """One clipped gradient with respect to all parameters, as in DP-SGD."""
    return _sum(GradientL2(1.0, 32, 4095), (1, 32), sigma=4095.0)


def _sum(bound: GradientL2 | RowL2, shape: tuple[int, int], sigma: float = 50.0) -> SumMechanism:
    return SumMechanism(bound=bound, noise=RoundedGaussian(sigma), schedule=FullParticipation(),
                        n_units=4, shape=shape, decode=GridMean(bound.grid))


def sensitivity(build: Callable[[], SumMechanism]) -> str:
    """Returns which two messages move a sum further than is declared; empty where none is found."""
    found, mechanism = Findings(), build()
    attacks.sensitivity(mechanism, _pair(mechanism), found, NAME)
    return _failed(found)


def releases(build: Callable[[], SumMechanism]) -> str:
    """Returns what many releases certify above the claim; empty where that is nothing."""
    found, mechanism = Findings(), build()
    attacks.noisy_sum(mechanism, _pair(mechanism), RELEASES, found, NAME)
    return _failed(found)


def noise() -> str:
    """Returns what differs between the noise that is drawn and its law; empty where nothing."""
    found = Findings()
    mechanism.audit_law(votes(), LAW, found, NAME)
    return _failed(found)


def _pair(mechanism: SumMechanism) -> pairs.Pair:
    return pairs.search(mechanism, mechanism.shape, SEARCH, np.random.default_rng())


def _failed(found: Findings) -> str:
    return "; ".join(finding.line().removeprefix(f"{Verdict.FAILS:17} ") for finding in found.made
                     if finding.verdict == Verdict.FAILS)
