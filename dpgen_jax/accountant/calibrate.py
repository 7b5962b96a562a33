"""The number of rounds, or the noise, that a target (epsilon, delta) allows. Host floats only."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, Context

from dpgen_jax.accountant import gaussian
from dpgen_jax.accountant.events import Event, Events
from dpgen_jax.core.errors import BudgetExceeded, UserError

_LARGEST_STEPS = 2**53
_SMALLEST_SIGMA, _LARGEST_SIGMA = 1e-9, 1e15


def check_budget(epsilon: float, delta: float, n_records: int | None = None) -> list[str]:
    """Refuses a budget that means nothing.

    Args:
        epsilon: The target.
        delta: The target.
        n_records: The public number of protected units. A mechanism with delta >= 1 / n_records may
            publish a record chosen at random in the clear, so that is refused.

    Returns:
        Warnings, one line each.

    Raises:
        UserError: An epsilon that is not positive and finite, a delta outside (0, 1), or one that
            is no protection for so many records.
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
    """The largest number of rounds, at least 1, that a budget allows.

    The inequality is that of `gaussian.epsilon`, and the ledger checks the same one.

    Args:
        event: The event of every round, or a function from a number of rounds to their events, for
            a schedule that does not charge each round; its cost must not fall with the number.
        epsilon: The target.
        delta: The target.
        spent: Events that are charged already.

    Returns:
        The number of rounds.

    Raises:
        BudgetExceeded: Not even one round fits; the message names the smallest epsilon that would
            allow it.
        UserError: The budget bounds nothing (a round without cost, or epsilon = inf).
    """
    def total(steps: int) -> float:
        block = event(steps) if callable(event) else ((event, steps),)
        return gaussian.epsilon((*spent, *block), delta)

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
    """The smallest sigma of four significant digits with which some rounds stay in the budget.

    Args:
        make_event: From sigma, in the caller's units, to the event or the events of one round, or
            to a function from a number of rounds to their events, for a schedule that does not
            charge each round. The cost must not rise with sigma; that of the rounded sigma itself
            is checked. It may raise BudgetExceeded from some sigma on, above which no noise can be
            drawn.
        steps: The number of rounds.
        epsilon: The target.
        delta: The target.
        spent: Events that are charged already.

    Returns:
        Sigma, in the caller's units.

    Raises:
        BudgetExceeded: No sigma is enough (what was spent before leaves nothing, or the total
            variation alone exceeds delta), or none for which `make_event` has an event.
        UserError: The budget asks for no noise at all.
    """
    def total(sigma: float) -> float:
        event = make_event(sigma)
        if callable(event):
            return gaussian.epsilon((*spent, *event(steps)), delta)
        one_step = event if isinstance(event, tuple) else ((event, 1),)
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
    """(fails, holds) where noise cannot be drawn from some sigma on, which is above `fails`."""
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
    """The message of a budget that does not allow `what`."""
    if needed == math.inf:
        return f"no epsilon allows {what} at delta {delta:g}: add noise, or raise delta"
    # shown rounded up, so that the number named is enough
    shown = Context(prec=5, rounding=ROUND_CEILING).create_decimal_from_float(needed)
    return (f"epsilon {epsilon:g} at delta {delta:g} does not allow {what}; "
            f"the smallest that does is {shown}")
