"""The number of steps, or the noise, that a target (epsilon, delta) allows. Host floats only."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, Context

from dpgen_jax.accountant import gaussian
from dpgen_jax.accountant.events import Event, Events
from dpgen_jax.errors import BudgetExceeded, UserError

_MOST_STEPS = 2**53
_SMALLEST_SIGMA, _LARGEST_SIGMA = 1e-9, 1e15


def check_budget(epsilon: float, delta: float, n_records: int | None = None) -> list[str]:
    """Refuses a budget that means nothing and returns warnings, one line each.

    n_records: the public number of protected units; a mechanism with delta >= 1 / n_records may
      publish a record chosen at random in the clear, so that is refused.
    Raises UserError for an epsilon that is not positive and finite, or a delta outside (0, 1).
    """
    if not 0 < epsilon < math.inf:
        raise UserError(f"epsilon must be a positive, finite number, got {epsilon}; "
                        "for example --epsilon 1")
    if not 0 < delta < 1:
        raise UserError(f"delta must lie strictly between 0 and 1, got {delta}; "
                        "for example --delta 1e-5")
    if n_records is None:
        return []
    if n_records < 1:
        raise UserError(f"the number of records must be positive, got {n_records}")
    if delta >= 1 / n_records:
        raise UserError(f"delta {delta:g} is no protection for {n_records} records; "
                        f"choose it below 1/n = {1 / n_records:.2g}, better {_below(n_records)}")
    if delta > 1 / (10 * n_records):
        return [f"delta {delta:g} is large for {n_records} records; "
                f"{_below(n_records)} (at most 1/(10 n)) is usual"]
    return []


def _below(n_records: int) -> str:
    """The power of ten at or below 1 / (10 n)."""
    return f"1e-{len(str(10 * n_records - 1)):02d}"


def max_steps(event: Event | Callable[[int], Events], epsilon: float, delta: float,
              spent: Events = ()) -> int:
    """The largest number (at least 1) of steps of `event`, after `spent`, within the budget.

    event: the event of every step, or a function from a number of steps to their events, for a
      schedule that does not charge each step; its cost must not fall with the number.
    The inequality is that of `gaussian.epsilon`, and the ledger checks the same one.
    Raises BudgetExceeded where not even one step fits, naming the smallest epsilon that would allow
    it, and UserError where the budget bounds nothing (a step without cost, or epsilon = inf).
    """
    def total(steps: int) -> float:
        more = event(steps) if callable(event) else ((event, steps),)
        return gaussian.epsilon((*spent, *more), delta)

    if math.isnan(epsilon) or not total(1) <= epsilon:
        raise BudgetExceeded(_too_small(total(1), epsilon, delta, "one step"))
    fits, too_many = 1, 2
    while total(too_many) <= epsilon:
        fits, too_many = too_many, 2 * too_many
        if too_many > _MOST_STEPS:
            raise UserError("this budget does not bound the number of steps; set the steps")
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        fits, too_many = (middle, too_many) if total(middle) <= epsilon else (fits, middle)
    return fits


def sigma_for(make_event: Callable[[float], Event | Events], steps: int, epsilon: float,
              delta: float, spent: Events = ()) -> float:
    """The smallest sigma of four significant digits at which `steps` steps, after `spent`, stay
    within the budget.

    make_event: from sigma, in the caller's units, to the event or the events of one step, or to a
      function from a number of steps to their events, for a schedule that does not charge each
      step. The cost must not rise with sigma; that of the rounded sigma itself is what is checked.
    Raises BudgetExceeded where no sigma is enough (what was spent before leaves nothing, or the
    total variation alone exceeds delta), and UserError where the budget asks for no noise at all.
    """
    def total(sigma: float) -> float:
        made = make_event(sigma)
        if callable(made):
            return gaussian.epsilon((*spent, *made(steps)), delta)
        one_step = made if isinstance(made, tuple) else ((made, 1),)
        return gaussian.epsilon((*spent, *((event, n * steps) for event, n in one_step)), delta)

    if not 0 < epsilon < math.inf:
        raise UserError(f"epsilon must be a positive, finite number, got {epsilon}")
    too_little, enough = _bracket(lambda sigma: total(sigma) <= epsilon)
    if enough > _LARGEST_SIGMA:
        raise BudgetExceeded(_too_small(total(_LARGEST_SIGMA), epsilon, delta, f"{steps} steps"))
    if too_little < _SMALLEST_SIGMA:
        raise UserError("this budget asks for no noise: a step has no cost, or there are no steps")
    while enough / too_little > 1 + 1e-6:
        middle = math.sqrt(enough * too_little)
        too_little, enough = (too_little, middle) if total(middle) <= epsilon else (middle, enough)
    # Four digits keep a configuration readable; from the failing side, so that the first that holds
    # is the smallest.
    digits = Context(prec=4, rounding=ROUND_CEILING)
    sigma = digits.create_decimal_from_float(too_little)
    while not total(float(sigma)) <= epsilon:
        sigma = sigma.next_plus(digits)
    return float(sigma)


def _bracket(holds: Callable[[float], bool]) -> tuple[float, float]:
    """(fails, holds), a factor of two apart, or beyond the limits where there is no such pair."""
    fails, does = 0.5, 1.0
    while does <= _LARGEST_SIGMA and not holds(does):
        fails, does = does, 2 * does
    while fails >= _SMALLEST_SIGMA and holds(fails):
        fails, does = fails / 2, fails
    return fails, does


def _too_small(needed: float, epsilon: float, delta: float, what: str) -> str:
    if needed == math.inf:
        return f"no epsilon allows {what} at delta {delta:g}: add noise, or raise delta"
    # shown rounded up, so that the number named is enough
    shown = Context(prec=5, rounding=ROUND_CEILING).create_decimal_from_float(needed)
    return (f"epsilon {epsilon:g} at delta {delta:g} does not allow {what}; "
            f"the smallest that does is {shown}")
