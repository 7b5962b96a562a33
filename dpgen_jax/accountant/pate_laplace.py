"""Data-dependent Renyi-DP of LNMax votes, and of noisy majorities of two labels.

Source: Papernot et al., ICLR 2017 (arXiv 1610.05755), Theorem 3, as PATE-GAN (Jordon et al., ICLR
2019) uses it. These bounds are as private as the votes, as those of `pate` are.

Shapes: Q queries, m classes, A orders, L moments. All logarithms are natural.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from dpgen_jax.accountant.pate_votes import (
    ROUNDED,
    Rounding,
    leads,
    require_orders,
    require_positive,
    total_over_queries,
)
from dpgen_jax.core.errors import UserError


def lnmax_log_q(counts: ArrayLike, rate: float, rounding: Rounding = ROUNDED) -> np.ndarray:
    """The logarithm of an upper bound on the chance that LNMax releases another class than j*.

    A class g votes behind wins with probability at most (2 + rate g) / (4 e^(rate g)); rounding, j*
    and the cap 1 - 1/m are as in `pate.gnmax_log_q`.

    Args:
        counts: Votes, int [Q, m].
        rate: 1 / scale of the Laplace noise on each count (the papers' gamma or lambda).
        rounding: ROUNDED, or IDEAL for the noise of the papers.

    Returns:
        Logarithms [Q].

    Raises:
        UserError: Counts that are not whole numbers [Q, m], m >= 2, or a rate <= 0.
    """
    lead = require_positive("rate", rate) * leads(counts, rounding)
    tail = (2 + np.abs(lead)) / 4 * np.exp(-np.abs(lead))
    with np.errstate(divide="ignore"):  # a tail below the smallest float: ln q = -inf
        log_q = np.log(np.where(lead < 0, 1 - tail, tail).sum(axis=1))
    return np.minimum(log_q, math.log1p(-1 / np.shape(counts)[1]))


def moments_laplace(log_q: ArrayLike, rate: float, moments: ArrayLike) -> np.ndarray:
    """The moments alpha(l) of one LNMax query, at most.

    alpha(l) is the smaller one of 2 rate^2 l (l + 1), and
    ln[(1 - q) ((1 - q) / (1 - q e^(2 rate)))^l + q e^(2 rate l)], which is valid only for
    q < (e^(2 rate) - 1) / (e^(4 rate) - 1). One teacher moves two counts, hence 2 rate.
    alpha(l) = l RDP(l + 1), so `pate.epsilon_of(alpha / l, l + 1, delta)` converts a total.

    Args:
        log_q: Logarithms of upper bounds on q [Q].
        rate: 1 / scale of the noise.
        moments: l > 0 [L].

    Returns:
        Moments [Q, L].

    Raises:
        UserError: Moments that are not positive, or a rate <= 0.
    """
    moments, q = np.asarray(moments, float), np.exp(np.asarray(log_q, float))[:, None]
    if moments.size == 0 or not np.all(moments > 0):
        raise UserError("moments must be positive numbers, at least one")
    twice = 2 * require_positive("rate", rate)
    cap = twice * rate * moments * (moments + 1)
    with np.errstate(all="ignore"):
        log_a = np.log1p(q * np.expm1(twice) / (1 - q * np.exp(twice)))
        bound = np.log1p((1 - q) * np.expm1(moments * log_a) + q * np.expm1(moments * twice))
        valid = q < 1 / (np.exp(twice) + 1)
    return np.where(valid, np.minimum(bound, cap), cap)


def lnmax_moments(counts: ArrayLike, rate: float, moments: ArrayLike,
                  rounding: Rounding = ROUNDED) -> np.ndarray:
    """The sum of `moments_laplace` over queries; ex-post, as `pate.confident_gnmax_rdp`.

    Args:
        counts: Votes, int [Q, m].
        rate: 1 / scale of the noise.
        moments: l > 0 [L].
        rounding: ROUNDED, or IDEAL for the noise of the papers.

    Returns:
        Moments [L].
    """
    log_q = lnmax_log_q(counts, rate, rounding)
    return total_over_queries(lambda part: moments_laplace(part, rate, moments), log_q)


def count_test_rdp(needed: int, most: int, log_tail: Callable[[np.ndarray], np.ndarray],
                   orders: ArrayLike) -> np.ndarray:
    """One test whether a count + noise >= needed, for every count 0..most.

    It is PATE-GAN's majority: counts of one label, needed: those of more than half of `most`
    teachers.

    One teacher moves a count c to c - 1, c or c + 1 within 0..most, and both laws of the released
    bit are known. So this is no bound but the largest D_a(M(D) || M(D')) over neighbours itself,
    whichever the noise; PATE's l-th moment is l times it at a = l + 1. The bit is a function of the
    noisy count, so it never exceeds the data-independent cost of that. Nor does it exceed what the
    theorem says (PATE, Theorem 3; PATE-GAN, Theorem 2), which asks for two things: each query is
    (epsilon, 0)-private, and q bounds the chance of another outcome than the likeliest. ONE Laplace
    noise on ONE count that moves by 1 gives epsilon = 1 / scale (`moments_laplace` with half of it
    as rate, for its two counts), and q is the smaller chance; but q is all that it knows of the
    law. Both ways need that the bit is all that is released: of a released count only the
    data-independent cost holds. Sums over queries are ex-post, as above.

    Args:
        needed: The smallest count that passes.
        most: The largest count.
        log_tail: From whole k to ln P(noise >= k), of a symmetric law.
        orders: Orders [A], > 1.

    Returns:
        RDP [most + 1, A].

    Raises:
        UserError: Orders <= 1.
    """
    orders, counts = require_orders(orders), np.arange(most + 1)
    bits = np.stack([log_tail(needed - counts), log_tail(counts - needed + 1)], axis=1)
    table = np.zeros((most + 1, len(orders)))
    table[:-1] = renyi_of_laws(bits[:-1], bits[1:], orders)
    table[1:] = np.maximum(table[1:], renyi_of_laws(bits[1:], bits[:-1], orders))
    return table


def renyi_of_laws(log_p: np.ndarray, log_q: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """The Renyi divergences D_a(P || Q) of laws on a few outcomes.

    A small one is a sum of P (e^x - 1), x = (a - 1) ln(P / Q), each without loss of digits; a large
    one of logarithms.

    Args:
        log_p: ln P of each outcome [Q, outcomes].
        log_q: ln Q, likewise.
        orders: Orders [A], > 1.

    Returns:
        Divergences [Q, A].
    """
    log_p, power = log_p[..., None], (log_p - log_q)[..., None] * (orders - 1)
    with np.errstate(over="ignore"):
        grown = np.sum(np.exp(log_p + np.maximum(power, 0)) * -np.expm1(-np.abs(power))
                       * np.sign(power), axis=1)
        small = np.log1p(np.clip(grown, 0, 1))
    return np.where(grown < 1, small, np.logaddexp.reduce(log_p + power, axis=1)) / (orders - 1)
