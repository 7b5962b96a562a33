"""Bounds that counts of errors certify: those of Clopper and Pearson, from draws on both sides.

Each function takes scores of releases of two neighbouring sums, the last axis counts releases, and
axes before it are independent repetitions. The first quarter of the releases chooses a threshold,
all others are judged by it: a threshold that is chosen on the draws it is judged by would be lucky.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from scipy.stats import beta

TAIL = np.logspace(-6, -1.7, 30)
LEVELS = np.concatenate([TAIL, np.linspace(0.03, 0.97, 81), 1 - TAIL])
"""the quantiles of the scores that are tried as thresholds"""
Value = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""From rates of false positives and of false negatives to what they certify."""


class Rates(NamedTuple):
    """Upper bounds on both rates of errors, which hold together at one confidence.

    Attributes:
        false_positives: float [...], of scores of the first sum above the threshold.
        false_negatives: float [...], of scores of the second one at most the threshold.
    """

    false_positives: np.ndarray
    false_negatives: np.ndarray


def above(hits: np.ndarray, n: int, alpha: float) -> np.ndarray:
    """Returns the upper bound of Clopper and Pearson on a chance, at confidence 1 - alpha.

    Args:
        hits: int [...], how often it happened.
        n: Among how many.
        alpha: The chance that the bound does not hold.
    """
    hits = np.asarray(hits)
    return np.where(hits >= n, 1.0, beta.ppf(1 - alpha, hits + 1, np.maximum(n - hits, 1)))


def training_part(n: int) -> int:
    """Returns how many of n releases choose the threshold."""
    return max(1, n // 4)


def in_reach(curve: Mapping[str, Sequence[float]], n: int, alpha: float, value: Value) -> float:
    """Returns about what the best test of a trade-off curve certifies with so many releases.

    Args:
        curve: Points of the curve, "false_positives" and "false_negatives".
        n: Releases of each sum, those that choose the threshold included.
        alpha: As of `rates`.
        value: As of `rates`.
    """
    judged = n - training_part(n)
    points = [np.asarray(curve[name]) for name in ("false_positives", "false_negatives")]
    found = value(*(above(np.ceil(judged * rate), judged, alpha / 2) for rate in points))
    return max(0.0, float(np.max(found[np.isfinite(found)], initial=0)))


def rates(zeros: np.ndarray, ones: np.ndarray, alpha: float, value: Value) -> Rates:
    """Bounds the errors of one threshold.

    Args:
        zeros: Scores of releases of the first sum, float [..., n].
        ones: Of the second one, float [..., n].
        alpha: The chance that one of the two bounds does not hold.
        value: From both rates to what they would certify, by which the threshold is chosen.
    """
    first = training_part(zeros.shape[-1])
    judged = zeros.shape[-1] - first
    pooled = np.concatenate([zeros[..., :first], ones[..., :first]], -1)
    tried = np.moveaxis(np.quantile(pooled, LEVELS, axis=-1), 0, -1)

    def pessimist(hits: np.ndarray) -> np.ndarray:
        # Of many thresholds in the tails some were lucky on the part that chooses.
        share = np.minimum((hits + np.sqrt(hits + 1) + 1) / first, 1)
        return np.minimum(share + 2 * np.sqrt(share * (1 - share) / judged) + 2 / judged, 1 - 1e-9)

    false_positives = (zeros[..., None, :first] > tried[..., None]).sum(-1)
    false_negatives = (ones[..., None, :first] <= tried[..., None]).sum(-1)
    best = np.argmax(value(pessimist(false_positives), pessimist(false_negatives)), -1)
    threshold = np.take_along_axis(tried, best[..., None], -1)
    return Rates(above((zeros[..., first:] > threshold).sum(-1), judged, alpha / 2),
                 above((ones[..., first:] <= threshold).sum(-1), judged, alpha / 2))


def mu_of(false_positives: np.ndarray, false_negatives: np.ndarray) -> np.ndarray:
    """Returns the mu at which both rates of errors lie on the trade-off curve."""
    return -ndtri(false_positives) - ndtri(false_negatives)


def epsilon_of(delta: float) -> Value:
    """Returns the function from both rates of errors to the epsilon at delta that they show."""
    def epsilon(false_positives: np.ndarray, false_negatives: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            either = [np.log((1 - one - delta) / other) for one, other in (
                (false_negatives, false_positives), (false_positives, false_negatives))]
        return np.fmax(0, np.fmax(*either))

    return epsilon


def certified(zeros: np.ndarray, ones: np.ndarray, alpha: float, value: Value) -> np.ndarray:
    """Returns a lower bound at confidence 1 - alpha, for either direction of the scores.

    Args:
        zeros: Scores of releases of the first sum, float [..., n].
        ones: Of the second one, float [..., n], higher where the attack works.
        alpha: The chance that the truth is below the bound.
        value: From both rates of errors to what they certify, as `mu_of`.
    """
    found = value(*rates(zeros, ones, alpha, value))
    return np.where(np.isfinite(found), np.maximum(found, 0), 0)


def certified_mu(zeros: np.ndarray, ones: np.ndarray, alpha: float = 0.05) -> np.ndarray:
    """Returns a lower bound on mu at confidence 1 - alpha; see `certified`."""
    return certified(zeros, ones, alpha, mu_of)


def certified_epsilon(zeros: np.ndarray, ones: np.ndarray, delta: float, alpha: float = 0.05
                      ) -> np.ndarray:
    """Returns a lower bound on epsilon at delta, at confidence 1 - alpha; see `certified`."""
    return certified(zeros, ones, alpha, epsilon_of(delta))
