"""The epsilon of a run, and the number of rounds or the noise that a target allows.

Gaussian releases compose exactly. Releases that are mu_i-GDP compose, adaptively, to
sqrt(sum mu_i^2)-GDP, and no better statement holds (Dong, Roth and Su, "Gaussian Differential
Privacy", JRSSB 2022, Corollary 2). One pair (mu, exact delta) therefore describes a whole run of
Gaussian releases; `exact_epsilon` reads epsilon off it without a search over orders and without
discretisation. All other releases compose by their privacy losses (`pld`) or by Renyi divergences;
`epsilon_of` combines the kinds.

Sampling without replacement amplifies the guarantee (`sampled_curve`). The units of a round are
drawn uniformly, without replacement, afresh for each round. Throughout
q = sample_size / population and t = sensitivity / sigma. The bound on the Renyi divergences of a
round is that of Wang, Balle and Kasiviswanathan, "Subsampled Renyi Differential Privacy and
Analytical Moments Accountant", AISTATS 2019 (arXiv 1808.00087); the relation is replace-one of one
unit. It needs the sample to stay secret, and each unit's state to be a function of its own data and
of what was released before.

Everything is computed on the host, in Python floats.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, Context
from typing import Literal

import numpy as np
from scipy.special import erfcx, gammaln, ndtr, ndtri

from dpgen_jax.accountant import pld
from dpgen_jax.accountant.events import (
    EpsilonDeltaEvent,
    Event,
    Events,
    GaussianEvent,
    LaplaceEvent,
    NonPrivateEvent,
    PoissonGaussianEvent,
    RenyiEvent,
    SampledGaussianEvent,
    add_up,
    left_of,
    merge,
    of_kind,
)
from dpgen_jax.core.errors import BudgetExceeded, UserError, option

# `gaussian_delta` is good to about 1e-12 (tests/accountant/test_gaussian.py compares it with 60
# digits). Inflating it, or Renyi divergences, by this factor makes every returned epsilon an upper
# bound, and adds less than 1e-9.
SAFETY = 1 + 1e-9
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The exact delta of mu-GDP at epsilon: Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2).

    Because e^eps phi(x + mu) = phi(x) at x = eps/mu - mu/2, this is phi(x) [M(x) - M(x + mu)] with
    the Mills ratio M = (1 - Phi) / phi: neither e^eps nor a difference of two tiny tails is formed.

    Args:
        mu: Sensitivity over standard deviation; 0 to inf.
        epsilon: Any finite number >= 0.

    Returns:
        Delta, in [0, 1].

    Source:
        Dong, Roth and Su, "Gaussian Differential Privacy", JRSSB 2022, Corollary 1; Balle and Wang,
        ICML 2018, Theorem 8.
    """
    if mu <= 0:
        return 0.0
    if mu == math.inf:
        return 1.0
    x = epsilon / mu - mu / 2
    density = math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    if mu < 0.5:
        # M(x) - M(x + mu) cancels for small mu; its integrand, 1 - t M(t) = -M'(t), does not.
        t = x + mu / 2 * (1 + _NODES)
        return float(density * mu / 2 * (_WEIGHTS @ (1 - t * _mills(t))))
    if x > 0:
        return float(density * (_mills(x) - _mills(x + mu)))
    return float(ndtr(-x) - density * _mills(x + mu))


def _mills(t: np.ndarray | float) -> np.ndarray:
    """The Mills ratio (1 - Phi(t)) / phi(t)."""
    return math.sqrt(math.pi / 2) * erfcx(t / math.sqrt(2))


def exact_epsilon(mu: float, tau: float, delta: float) -> float:
    """The smallest epsilon of Gaussian releases whose noise differs from the ideal by `tau`.

    The value returned satisfies gaussian_delta(mu, eps) + (1 + e^eps) tau <= delta: the distance
    between sampled and ideal noise is charged to delta.

    Proof of the charge. Let P, Q be the ideal distributions of the transcript on neighbouring data
    and P', Q' the sampled ones. Replacing the ideal rounds by the sampled ones, one at a time,
    changes the transcript by at most the round's total variation (the later rounds apply the same
    kernel to both), so P' and Q' are within tau of P and Q. For every set S:
      P'(S) <= P(S) + tau <= e^eps Q(S) + delta(eps) + tau
            <= e^eps (Q'(S) + tau) + delta(eps) + tau = e^eps Q'(S) + delta(eps) + (1 + e^eps) tau.

    Args:
        mu: mu^2 is the sum of count * squared_sensitivity / sigma^2.
        tau: The sum of count * total_variation.

    Returns:
        Epsilon >= 0; inf if delta is not enough.
    """
    def holds(eps: float) -> bool:
        apart = tau + math.exp(eps + math.log(tau)) if tau else 0.0
        return (gaussian_delta(mu, eps) + apart) * SAFETY <= delta

    if holds(0.0):
        return 0.0
    if tau >= 1 or mu == 0 or mu == math.inf or delta <= 0:
        return math.inf
    if tau:
        # The left side is convex with slope e^eps (tau - Phi(-eps/mu - mu/2)): lowest here, and
        # e^eps tau = e^eps Phi(..) <= 1 up to here, so nothing overflows.
        enough = mu * (-ndtri(tau) - mu / 2)
        if enough <= 0 or not holds(enough):
            return math.inf
    else:
        # gaussian_delta <= Phi(mu/2 - eps/mu) <= delta / 2 here, by Phi(-a) <= e^(-a^2/2) / 2
        enough = mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    return bisect(holds, 0.0, enough)


def bisect(holds: Callable[[float], bool], failing: float, holding: float) -> float:
    """Bisects between a value at which a condition fails and one at which it holds.

    Args:
        holds: A condition that is monotone between the two values.
        failing: A value at which it fails, above or below the other.

    Returns:
        The boundary, up to rounding; the condition holds there.
    """
    while abs(holding - failing) > 1e-14 * max(abs(holding), abs(failing)):
        middle = (holding + failing) / 2
        if middle in (holding, failing):
            break
        holding, failing = (middle, failing) if holds(middle) else (holding, middle)
    return holding


def require_delta(delta: float) -> None:
    """Refuses a delta outside (0, 1)."""
    if not 0 < delta < 1:
        raise UserError(f"delta must lie strictly between 0 and 1, got {delta}")


Conversion = Literal["improved", "classic"]
Values = float | np.ndarray

# More than the rounding errors of the short chains of operations elsewhere.
ROUNDING = 1e-14


def convert_renyi(rdp: Values, order: Values, delta: float, conversion: Conversion) -> Values:
    """The epsilon that a Renyi divergence gives at each order.

    Args:
        rdp: Divergences, a number or an array [A].
        order: Their orders, all > 1, of the same shape or one that broadcasts.
        conversion: "classic" is rdp + ln(1/delta) / (a-1), "improved" is
            rdp + ln(1 - 1/a) - (ln delta + ln a) / (a-1).

    Returns:
        Epsilon by order, in the shape of the arguments; it may be negative.

    Source:
        Classic: Mironov, "Renyi Differential Privacy", CSF 2017, Proposition 3. Improved: Canonne,
        Kamath and Steinke, NeurIPS 2020, Proposition 12.
    """
    if conversion == "classic":
        return rdp + math.log(1 / delta) / (order - 1)
    return rdp + np.log1p(-1 / order) - (math.log(delta) + np.log(order)) / (order - 1)


def epsilon_beside_distance(rdp: Values, orders: Values, tau: float, delta: float,
                            shares: Sequence[float]) -> float:
    """The smallest epsilon for Renyi divergences and `tau`, over a few splits of delta.

    One part of delta is for the divergences, the rest for the distance between sampled and ideal
    noise, (1 + e^eps) tau as `exact_epsilon` proves.

    Args:
        rdp: Divergences, a number or an array [A].
        tau: The sum of count * total_variation.
        shares: The shares of delta to try for the divergences.

    Returns:
        Epsilon >= 0; inf if delta is not enough.
    """
    best = math.inf
    for share in shares:
        eps, rest = _from_rdp(rdp, orders, share * delta), (1 - share) * delta
        if tau == 0 or rest > 0 and (math.log(tau) + np.logaddexp(0, eps) + math.log(SAFETY)
                                     <= math.log(rest)):
            best = min(best, eps)
    return best


def _from_rdp(rdp: Values, orders: Values, delta: float) -> float:
    """The smallest epsilon over the orders, rounded up."""
    if not np.any(rdp) or delta <= 0:
        return math.inf if np.any(rdp) else 0.0
    size = rdp - np.log1p(-1 / orders) + (np.log(orders) - math.log(delta)) / (orders - 1)
    return max(0.0, float(np.min(convert_renyi(rdp, orders, delta, "improved") + ROUNDING * size)))


def zcdp_for(epsilon: float, delta: float) -> float:
    """The largest c = mu^2 / 2 of Gaussian releases whose exact epsilon at `delta` meets a target.

    Raises:
        UserError: Unless 0 < epsilon < inf and 0 < delta < 1.
    """
    require_delta(delta)
    if not 0 < epsilon < math.inf:
        raise UserError(f"epsilon must be positive and finite, got {epsilon}")

    def affords(c: float) -> bool:
        return exact_epsilon(math.sqrt(2 * c), 0.0, delta) <= epsilon

    too_much = 1.0
    while affords(too_much):
        too_much *= 2
    return bisect(affords, too_much, 0.0)


_INTEGERS = (*range(2, 65), *(int(64 * 1.07**k) for k in range(1, 52)), 2048)
SAMPLED_ORDERS = np.asarray(sorted([1.01, 1.02, 1.05, 1.1, 1.25, 1.5, 1.75, *_INTEGERS,
                                    *(k + 0.5 for k in range(2, 11)),
                                    *(2.0**k for k in range(12, 21))]))
"""The orders for runs with sampled units. They are fixed, so epsilon cannot fall when an event is
added.
"""

_LOG_FACTORIAL = gammaln(np.arange(2050) + 1.0)
_LARGEST_TERM = 128  # larger terms use Theorem 9, which is also valid: they are negligible


def sampled_curve(events: Events) -> np.ndarray:
    """The sum of the divergences of all SampledGaussianEvents: RDP [A] at SAMPLED_ORDERS.

    Events of other kinds are ignored.

    Source:
        Mironov, "Renyi Differential Privacy", CSF 2017, Proposition 1.
    """
    total = np.zeros_like(SAMPLED_ORDERS)
    for event, count in events:
        if isinstance(event, SampledGaussianEvent):
            total = total + count * _one(event.rate, event.gaussian.mu_squared)
    return total


def sampled_at_order(events: Events, order: float) -> float:
    """`sampled_curve` at one order: inf outside of SAMPLED_ORDERS, 0.0 without such events."""
    rdp = sampled_curve(events)
    where = np.flatnonzero(order == SAMPLED_ORDERS)
    return float(rdp[where[0]]) if where.size else math.inf if rdp.any() else 0.0


@functools.lru_cache(maxsize=1024)
def _one(q: float, t_squared: float) -> np.ndarray:
    """The divergences of one round by order: the smallest bound at this or a higher order.

    The Renyi divergence does not fall with its order.
    """
    if t_squared == 0:
        return np.zeros_like(SAMPLED_ORDERS)
    rdp = by_convexity(q, t_squared, SAMPLED_ORDERS)
    whole = np.isin(SAMPLED_ORDERS, _INTEGERS)
    rdp[whole] = np.minimum(rdp[whole], without_replacement(q, t_squared, _INTEGERS))
    rdp = np.minimum.accumulate(rdp[::-1])[::-1] * SAFETY
    rdp.flags.writeable = False
    return rdp


def by_convexity(q: float, t_squared: float, orders: np.ndarray) -> np.ndarray:
    """The divergence ln(1 - q + q e^((a-1) a t^2 / 2)) / (a - 1), by convexity.

    The power divergence is jointly convex. Given the sample, the distributions on neighbouring data
    are equal, or (with probability q) those of the Gaussian mechanism. It holds for every order a >
    1; for q = 1 it is the Gaussian's own a t^2 / 2.

    Args:
        q: The probability that a unit is sampled.
        t_squared: Squared sensitivity over sigma^2.
    """
    cgf = orders * (orders - 1) * t_squared / 2
    small = np.log1p(q * np.expm1(np.minimum(cgf, 1)))
    return np.where(cgf < 1, small, cgf + np.log(q + (1 - q) * np.exp(-cgf))) / (orders - 1)


@functools.lru_cache(maxsize=64)
def without_replacement(q: float, t_squared: float, orders: tuple[int, ...]) -> np.ndarray:
    """RDP of one round at integer orders, by the expansion in powers of q.

    It is e^((a-1) RDP(a)) <= 1 + sum_{j=2..a} C(a,j) q^j T_j, where T_j bounds the integral of |p -
    p'|^j / r^(j-1) for any three distributions of the Gaussian mechanism that are pairwise
    neighbours.

    T_j is the smaller of two. Theorem 9: 2 e^(j (j-1) t^2 / 2), as |p - p'|^j <= p^j + p'^j.
    Theorem 27: 4 sqrt(B(l) B(l')) with l, l' the even numbers around j, for a mechanism with one
    worst pair of neighbours, here B(l) = E (e^(t Z - t^2/2) - 1)^l, Z standard normal. The 4: where
    p > p', |p - p'|^j / r^(j-1) is at most |p - p'|^j / p'^(j-1) if r > p', else at most |p - r|^j
    / r^(j-1); where p < p' likewise; so the integral is at most four divergences between
    neighbours, those of even j grow with the distance of two Gaussians, and an odd j follows by
    Cauchy-Schwarz. This one is smaller if t is small.

    Args:
        q: The probability that a unit is sampled.
        t_squared: Squared sensitivity over sigma^2, > 0.
        orders: Integers from 2 to 2048.

    Returns:
        RDP by order; read-only, as it is cached.
    """
    j = np.arange(max(orders) + 1)
    log_terms = math.log(2) + j * (j - 1) * t_squared / 2
    if t_squared < 1:  # above, the first is the smaller one
        log_moment, k = _even_moments(math.sqrt(t_squared)), j[2:_LARGEST_TERM + 1]
        tighter = math.log(4) + (log_moment[k // 2] + log_moment[(k + 1) // 2]) / 2
        log_terms[k] = np.minimum(log_terms[k], tighter)
    log_terms += j * math.log(q) - _LOG_FACTORIAL[j]

    def log_sum(order: int) -> float:
        k = j[2:order + 1]
        log_choose = _LOG_FACTORIAL[order] - _LOG_FACTORIAL[order - k]  # times k!, divided above
        return np.logaddexp(0.0, np.logaddexp.reduce(log_terms[k] + log_choose))

    rdp = np.asarray([log_sum(order) / (order - 1) for order in orders])
    rdp.flags.writeable = False  # it is kept
    return rdp


def _even_moments(t: float) -> np.ndarray:
    """Ln B(2k) at index k, for t < 1.

    The trapezoidal rule is exact up to rounding for an integrand that is analytic and decays like a
    Gaussian. All terms are positive, so nothing cancels.
    """
    step = 1 / 8
    z = np.arange(-40, 40 + _LARGEST_TERM * t, step)
    with np.errstate(divide="ignore"):  # the integrand may be exactly 0
        log_base = np.log(np.abs(np.expm1(t * z - t * t / 2)))
    powers = 2 * np.arange(_LARGEST_TERM // 2 + 1)[1:, None]
    log_parts = powers * log_base - z**2 / 2
    top = log_parts.max(axis=1)
    sums = top + np.log(np.exp(log_parts - top[:, None]).sum(axis=1))
    return np.concatenate([[0.0], sums + math.log(step / math.sqrt(2 * math.pi))])


# Parts of delta to try; fixed, so that epsilon cannot fall when an event is added.
_SHARES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
_FINE_SHARES = (*_SHARES, 1 - 1e-4, 1 - 1e-6)


def epsilon_of(events: Events, delta: float) -> float:
    """An epsilon at which all `events` together are (epsilon, delta)-private.

    If all are Gaussian, it is the smallest one, rounded up: Gaussian releases compose exactly
    (`exact_epsilon`), with SampledGaussianEvents by Renyi divergences (`_with_sampled`).
    EpsilonDeltaEvents add their epsilons to that, and their deltas are subtracted from delta (basic
    composition). This holds however the releases are interleaved and depend on each other: each
    kind is an interactive mechanism with its own (epsilon, delta), and these compose like
    mechanisms that run one after the other (Vadhan and Zhang, "Concurrent Composition Theorems for
    Differential Privacy", STOC 2023). With RenyiEvents of one order, the result is the smaller of
    this (`_each_kind`) and the sum of all events at that order (`_one_order`). Gaussian events in a
    run with Poisson sampling or Laplace noise compose with these by their privacy losses (`pld`);
    other events are added to that.

    Returns:
        Epsilon >= 0; inf with a NonPrivateEvent, or where delta is not enough; 0.0 for no events.
        It never falls when an event is added or delta is lowered.

    Raises:
        UserError: Unless 0 < delta < 1, and for what `merge` refuses.
    """
    require_delta(delta)
    events = merge(events)
    left = left_of(delta, ((event.delta, count)
                           for event, count in of_kind(EpsilonDeltaEvent, events)))
    if of_kind(NonPrivateEvent, events) or left < 0:
        return math.inf
    if any(isinstance(event, PoissonGaussianEvent | LaplaceEvent) for event, _ in events):
        return pld.beside(_without_losses, events, left)
    return _without_losses(events, left)


def _without_losses(events: Events, delta: float) -> float:
    """`epsilon_of` for the kinds that do not need privacy losses."""
    orders = {event.order for event, _ in of_kind(RenyiEvent, events)}
    if len(orders) == 1:
        return min(_each_kind(events, delta), _one_order(events, orders.pop(), delta))
    return _each_kind(events, delta)


def _each_kind(events: Events, delta: float) -> float:
    """Each kind of event separately, then basic composition.

    Both Gaussian kinds count as one kind, and each order of RenyiEvents as a kind. A share of delta
    is for the Renyi orders, split equally; the best of `_SHARES` is used. The tau of each kind is
    charged at the epsilon of that kind.
    """
    renyi: dict[float, tuple[tuple[RenyiEvent, int], ...]] = {}
    for event, count in of_kind(RenyiEvent, events):
        renyi[event.order] = (*renyi.get(event.order, ()), (event, count))
    others = tuple(pair for pair in events if not isinstance(pair[0], RenyiEvent))
    mu, tau = math.sqrt(mu_squared(of_kind(GaussianEvent, events))), total_variation(others)
    sampled = sampled_curve(events)
    pure = [(event.epsilon, n) for event, n in of_kind(EpsilonDeltaEvent, events)]
    divergence = {order: add_up((event.rdp, n) for event, n in same)
                  for order, same in renyi.items()}

    def total(share: float) -> float:
        each = share * delta / max(1, len(renyi)) * (1 - ROUNDING)
        parts = [epsilon_beside_distance(divergence[order], order, total_variation(same), each,
                                         _SHARES)
                 for order, same in renyi.items()]
        parts.append(_with_sampled(sampled, mu, tau, (1 - share) * delta))
        return add_up([*pure, *((part, 1) for part in parts)])

    return min(map(total, _SHARES)) if renyi else total(0.0)


def _one_order(events: Events, order: float, delta: float) -> float:
    """All events at the order a of the RenyiEvents, where divergences add up, adaptively.

    Source: Mironov, "Renyi Differential Privacy", CSF 2017, Proposition 1. A Gaussian release has
    the divergence a mu^2 / 2; an e-private release min(e, a e^2 / 2) (Bun and Steinke,
    "Concentrated Differential Privacy", TCC 2016, Proposition 3.3). An (e, d)-private release is
    e-private except that it reveals everything with probability d (Kairouz, Oh and Viswanath, "The
    Composition Theorem for Differential Privacy", ICML 2015): the caller has already subtracted
    these d from delta. A SampledGaussianEvent has the divergence of `sampled_at_order`, at
    SAMPLED_ORDERS only.
    """
    rdp = add_up([
        (order * mu_squared(of_kind(GaussianEvent, events)) / 2, 1),
        (sampled_at_order(events, order), 1),
        *((event.rdp, n) for event, n in of_kind(RenyiEvent, events)),
        *((min(event.epsilon, order * event.epsilon**2 / 2), n)
          for event, n in of_kind(EpsilonDeltaEvent, events))])
    return epsilon_beside_distance(rdp, order, total_variation(events), delta, _SHARES)


def _with_sampled(rdp: np.ndarray, mu: float, tau: float, delta: float) -> float:
    """`exact_epsilon` with SampledGaussianEvents of divergences `rdp` [A] at SAMPLED_ORDERS."""
    if not rdp.any():
        return exact_epsilon(mu, tau, delta)
    rdp = rdp + SAMPLED_ORDERS * mu**2 / 2
    return epsilon_beside_distance(rdp, SAMPLED_ORDERS, tau, delta, _FINE_SHARES)


def mu_squared(events: Events) -> float:
    """The mu^2 to which Gaussian releases compose.

    Args:
        events: Pairs (event, count), each a GaussianEvent or NonPrivateEvent.

    Returns:
        The sum of count * squared_sensitivity / sigma^2; inf with a NonPrivateEvent.

    Raises:
        UserError: An event that is not Gaussian; use `epsilon_of` for those.
    """
    def squared(event: Event) -> float:
        match event:
            case GaussianEvent():
                return event.mu_squared
            case NonPrivateEvent():
                return math.inf
        raise UserError(f"{event} is not Gaussian: only its epsilon can be counted")

    return math.fsum(count * squared(event) for event, count in merge(events))


def total_variation(events: Events) -> float:
    """The total variation between the run and one with ideal noise: the sum, rounded up."""
    return add_up((event.total_variation, count) for event, count in merge(events))


_LARGEST_STEPS = 2**53
_SMALLEST_SIGMA, _LARGEST_SIGMA = 1e-9, 1e15


def check_budget(epsilon: float, delta: float, n_records: int | None = None) -> list[str]:
    """Refuses a budget that gives no protection.

    Args:
        n_records: The public number of protected units. A mechanism with delta >= 1 / n_records may
            publish a random record, so such a delta is refused.

    Returns:
        Warnings, one line each.

    Raises:
        UserError: An epsilon that is not positive and finite, a delta outside (0, 1), or one too
            large for so many records.
    """
    if not 0 < epsilon < math.inf:
        raise UserError(f"epsilon must be a positive, finite number, got {epsilon}; for example "
                        f"{option('epsilon', 1)}")
    if not 0 < delta < 1:
        raise UserError(f"delta must lie strictly between 0 and 1, got {delta}; for example "
                        f"{option('delta', '1e-5')}")
    if n_records is None:
        return []
    if n_records < 1:
        raise UserError(f"the number of records must be positive, got {n_records}")
    if delta >= 1 / n_records:
        raise UserError(f"delta {delta:g} does not protect {n_records} records; choose a delta "
                        f"below 1/n = {1 / n_records:.2g}, better {_below(n_records)}")
    if delta > 1 / (10 * n_records):
        return [f"delta {delta:g} is large for {n_records} records; "
                f"{_below(n_records)} (at most 1/(10 n)) is usual"]
    return []


def _below(n_records: int) -> str:
    """The power of ten at or below 1 / (10 n)."""
    return f"1e-{len(str(10 * n_records - 1)):02d}"


def max_steps(event: Event | Callable[[int], Events], epsilon: float, delta: float,
              spent: Events = ()) -> int:
    """The largest number of rounds, at least 1, that a budget allows.

    The condition is the one that the ledger checks.

    Args:
        event: The event of every round, or, for a schedule that does not charge each round, a
            function from a number of rounds to their events; its cost must not fall with the
            number.

    Raises:
        BudgetExceeded: Not even one round fits; the message names the smallest epsilon that would
            allow it.
        UserError: The budget does not limit the rounds (a round without cost, or epsilon = inf).
    """
    def total(steps: int) -> float:
        block = event(steps) if callable(event) else ((event, steps),)
        return epsilon_of((*spent, *block), delta)

    if math.isnan(epsilon) or not total(1) <= epsilon:
        raise BudgetExceeded(_too_small(total(1), epsilon, delta, "one step"))
    fits, too_many = 1, 2
    while total(too_many) <= epsilon:
        fits, too_many = too_many, 2 * too_many
        if too_many > _LARGEST_STEPS:
            raise UserError("this budget does not bound the number of steps; set the steps")
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        fits, too_many = (middle, too_many) if total(middle) <= epsilon else (fits, middle)
    return fits


def sigma_for(make_event: Callable[[float], Event | Events | Callable[[int], Events]], steps: int,
              epsilon: float, delta: float, spent: Events = ()) -> float:
    """The smallest sigma, to four significant digits, that keeps the rounds within the budget.

    Args:
        make_event: From sigma, in the caller's units, to the event or events of one round, or, for
            a schedule that does not charge each round, to a function from a number of rounds to
            their events. The cost must not rise with sigma; the cost of the rounded sigma is
            checked. It may raise BudgetExceeded for each sigma that is too large for noise to be
            drawn.

    Raises:
        BudgetExceeded: No sigma is enough (nothing is left of the budget, or the total variation
            exceeds delta), or `make_event` raises for every sigma that would be.
        UserError: The budget needs no noise.
    """
    def total(sigma: float) -> float:
        event = make_event(sigma)
        if callable(event):
            return epsilon_of((*spent, *event(steps)), delta)
        one_step = event if isinstance(event, tuple) else ((event, 1),)
        return epsilon_of((*spent, *((event, n * steps) for event, n in one_step)), delta)

    if not 0 < epsilon < math.inf:
        raise UserError(f"epsilon must be a positive, finite number, got {epsilon}")
    too_little, enough = _bracket(lambda sigma: total(sigma) <= epsilon)
    if enough > _LARGEST_SIGMA:
        raise BudgetExceeded(_too_small(total(_LARGEST_SIGMA), epsilon, delta, f"{steps} steps"))
    if too_little < _SMALLEST_SIGMA:
        raise UserError("this budget needs no noise: a step costs nothing, or there are no steps")
    while enough / too_little > 1 + 1e-6:
        middle = math.sqrt(enough * too_little)
        too_little, enough = (too_little, middle) if total(middle) <= epsilon else (middle, enough)
    # Four digits keep a configuration readable; searched from the failing side, so the first that
    # holds is the smallest.
    digits = Context(prec=4, rounding=ROUND_CEILING)
    sigma = digits.create_decimal_from_float(too_little)
    while not total(float(sigma)) <= epsilon:
        sigma = sigma.next_plus(digits)
    return float(sigma)


def _bracket(holds: Callable[[float], bool]) -> tuple[float, float]:
    """(fails, holds), a factor of two apart, or beyond the limits if there is no such pair."""
    fails, does = 0.5, 1.0
    try:
        while does <= _LARGEST_SIGMA and not holds(does):
            fails, does = does, 2 * does
    except BudgetExceeded as error:
        return _below_the_largest(holds, fails, does, error)
    while fails >= _SMALLEST_SIGMA and holds(fails):
        fails, does = fails / 2, fails
    return fails, does


def _below_the_largest(holds: Callable[[float], bool], fails: float, too_large: float,
                       error: BudgetExceeded) -> tuple[float, float]:
    """(fails, holds) if noise cannot be drawn from some sigma above `fails` on."""
    while too_large / fails > 1 + 1e-4:
        middle = math.sqrt(fails * too_large)
        try:
            if holds(middle):
                return fails, middle
            fails = middle
        except BudgetExceeded:
            too_large = middle
    raise error


def _too_small(needed: float, epsilon: float, delta: float, what: str) -> str:
    if needed == math.inf:
        return f"no epsilon allows {what} at delta {delta:g}: add noise, or raise delta"
    # shown rounded up, so that the number named is enough
    shown = Context(prec=5, rounding=ROUND_CEILING).create_decimal_from_float(needed)
    return (f"epsilon {epsilon:g} at delta {delta:g} does not allow {what}; "
            f"the smallest that does is {shown}")
