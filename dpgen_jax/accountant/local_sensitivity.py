"""How far votes at a distance of some teachers move the cost of one query more.

Source: Papernot et al., "Scalable Private Learning with PATE", ICLR 2018 (arXiv 1802.08908),
appendix B. All of it is as private as the votes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from dpgen_jax.accountant import pate
from dpgen_jax.accountant.pate_curve import Curve
from dpgen_jax.accountant.pate_votes import ROUNDED, Rounding


def gnmax_local_sensitivity(curve: Curve, counts: ArrayLike,
                            rounding: Rounding = ROUNDED) -> Iterator[float]:
    """The sum over queries of the local sensitivity at distance 0, 1, 2, ... teachers, endlessly.

    A vote with q > q0 is moved towards its leader, one with q < q1 away from it, a teacher at a
    time and on the way that changes q fastest, until q lies between; from then on the largest local
    sensitivity counts. Equal votes are walked once.

    Args:
        curve: The cost of one query.
        counts: Votes, int [Q, m].
        rounding: ROUNDED, or IDEAL for the noise of the papers.

    Yields:
        The sum at the next distance.
    """
    ordered = np.sort(np.asarray(counts, np.int64), axis=1)[:, ::-1]
    votes, times = np.unique(ordered, axis=0, return_counts=True)
    settled = 0
    while len(votes):
        log_q = pate.gnmax_log_q(votes, curve.sigma, rounding)
        yield settled * curve.plateau + float(times @ curve.sensitivity(log_q))
        weak, strong = log_q > curve.log_q0, log_q < curve.log_q1
        moving = strong | (weak & (votes[:, 1] > 0))
        settled += int(times[~moving].sum())
        votes, times = votes[moving], times[moving]
        step = np.where(weak[moving], 1, -1)
        votes[:, 0] += step
        votes[:, 1] -= step
        votes[:, 1:] = np.sort(votes[:, 1:], axis=1)[:, ::-1]
    while True:
        yield settled * curve.plateau


def threshold_local_sensitivity(largest: int, table: np.ndarray) -> np.ndarray:
    """The local sensitivity of one threshold test if the largest count moves by exactly 0..T.

    Args:
        largest: Votes of the leading class, 0..T.
        table: Cost of the test at each largest count [T + 1].

    Returns:
        Sensitivities [T + 1]; 0 where neither count is in range.
    """
    steps = np.abs(np.diff(table))
    either = np.maximum(np.append(steps, 0.0), np.append(0.0, steps))  # to v + 1, to v - 1
    moved = np.zeros(len(table))
    moved[:len(table) - largest] = either[largest:]
    moved[:largest + 1] = np.maximum(moved[:largest + 1], either[largest::-1])
    return moved


def threshold_table(threshold: float, sigma: float, order: float, n_teachers: int,
                    rounding: Rounding = ROUNDED) -> np.ndarray:
    """The cost of the threshold test at one order, for each largest count 0..T.

    Args:
        threshold: In votes.
        sigma: Noise of the test, in votes.
        order: The order a > 1.
        n_teachers: T.
        rounding: ROUNDED, or IDEAL for the noise of the papers.

    Returns:
        RDP [T + 1].
    """
    log_q = pate.threshold_log_q(np.arange(n_teachers + 1), threshold, sigma, rounding)
    return pate.rdp_gaussian(log_q, math.sqrt(2) * sigma, order)[:, 0]
