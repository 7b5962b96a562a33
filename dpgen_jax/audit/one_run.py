"""The epsilon that one training with many canaries certifies.

Each of m canaries takes one of two opposite values by a fair coin of its own, and an attacker
guesses r of the m coins from what is public, the others it leaves. Let N be how many guesses are
right. The less private a training is, the more often N is large, and this module bounds the chance
of N >= v for every training that has a given trade-off curve for a change of any one canary.

Proof. Fix all coins but the i-th. Let Z be 1 where coin i is guessed right and W where it is
guessed wrong. The event {N >= c, Z = 1} becomes {N >= c - 1, W = 1} where the coin is turned and
the guesses stay. Let F(x) be the most that the chance of any event can grow to from x under the
promise: min_k(e^eps_k x + delta_k, ..) for pairs, Phi(Phi^-1(x) + mu) for mu-GDP. F is concave, so
averages over all coins and all i obey, for every c,
    R_c <= F(H_{c-1}),  R_c = E[N; N >= c] / m,  H_c = E[r - N; N >= c] / m.
Suppose P(N >= v) = tau. Mass above v may be moved down to v: that lowers R_c and raises H_c for
c <= v, and breaks nothing. So R_v = tau v / m and H_v = tau (r - v) / m. With P(N = n) = p_n,
H_n - H_{n+1} = p_n (r - n) / m and R_n - R_{n+1} = p_n n / m; therefore, with w_n = n / (r - n),
which grows with n,
    R_c = R_v - w_{v-1} H_v + w_c H_c + sum_{c<n<v} (w_n - w_{n-1}) H_n
grows with every H_n. By induction downwards, `least` below, with H_{c-1} = max(H_c, F^-1(R_c)), is
the least that R and H can be. In the end R_0 + H_0 = r / m: where the least is more, P(N >= v) is
below tau.

Sources: Steinke, Nasr and Jagielski, "Privacy Auditing with One (1) Training Run" (NeurIPS 2023);
Mahloujifar, Melis and Chaudhuri, "Auditing f-Differential Privacy in One Run" (2024), whose
recursion this is for guesses of all canaries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from scipy.special import ndtr, ndtri

Shrink = Callable[[float], float]
"""F^-1: from the chance of an event to the least that it can be on a neighbour."""
ROUNDING = 1 + 1e-9
"""by which a sum must exceed what is possible, for the arithmetic of floats"""


def gaussian(mu: float) -> Shrink:
    """Returns F^-1 of mu-GDP."""
    return lambda x: float(ndtr(ndtri(min(x, 1.0)) - mu))


def of_pairs(pairs: Sequence[tuple[float, float]]) -> Shrink:
    """Returns F^-1 of a training that is (epsilon, delta)-private for each of some pairs."""
    both = [(math.exp(-epsilon), math.exp(min(epsilon, 700.0)), delta) for epsilon, delta in pairs]
    return lambda x: max(0.0, *(max(down * (x - delta), 1 - delta - up * (1 - x))
                                for down, up, delta in both))


def rejected(shrink: Shrink, canaries: int, guesses: int, right: int, alpha: float) -> bool:
    """Returns whether so many right guesses have a chance of at most alpha under a promise.

    Args:
        shrink: F^-1 of the promise.
        canaries: m.
        guesses: r, fixed before the training.
        right: v, how many of the guesses are right.
        alpha: The chance that a promise which holds is rejected.
    """
    if not 0 <= right <= guesses <= canaries:
        raise ValueError(f"{right} right of {guesses} guesses on {canaries} canaries")
    possible = guesses / canaries * ROUNDING
    r, h = alpha * right / canaries, alpha * (guesses - right) / canaries
    for n in range(right - 1, -1, -1):
        least = max(h, shrink(r))
        r, h = r + (least - h) * n / (guesses - n), least
        if r + h > possible:
            return True
    return False


def certified(family: Callable[[float], Shrink], canaries: int, guesses: int, right: int,
              alpha: float = 0.05, most: float = 50.0) -> float:
    """Returns the largest parameter that is rejected: a lower bound at confidence 1 - alpha.

    Args:
        family: From a parameter (mu, or epsilon) to F^-1; a larger one promises less.
        canaries: m.
        guesses: r, fixed before the training.
        right: v, how many of the guesses are right.
        alpha: The chance that the true parameter is below the bound.
        most: No larger parameter is looked for.
    """
    def fails(parameter: float) -> bool:
        return rejected(family(parameter), canaries, guesses, right, alpha)

    if not fails(0.0):
        return 0.0
    low, high = 0.0, 1e-3
    while high < most and fails(high):
        low, high = high, 2 * high
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if fails(middle) else (low, middle)
    return low


def certified_mu(canaries: int, guesses: int, right: int, alpha: float = 0.05) -> float:
    """Returns a lower bound on mu at confidence 1 - alpha; see `certified`."""
    return certified(gaussian, canaries, guesses, right, alpha)


def certified_epsilon(canaries: int, guesses: int, right: int, delta: float, alpha: float = 0.05
                      ) -> float:
    """Returns a lower bound on epsilon at delta, at confidence 1 - alpha; see `certified`."""
    return certified(lambda epsilon: of_pairs([(epsilon, delta)]), canaries, guesses, right, alpha)
