"""The price of an undeclared schema, and the noise that it buys; from public numbers alone."""

from __future__ import annotations

import math

from dpgen_jax.accountant import gaussian, gdp
from dpgen_jax.aggregation.noise import MAX_SIGMA, MIN_SIGMA, RoundedGaussian
from dpgen_jax.aggregation.survey import Survey
from dpgen_jax.core.at_most import at_most
from dpgen_jax.core.config import Budget
from dpgen_jax.core.console import program
from dpgen_jax.core.types import UserError
from dpgen_jax.data import readings

SHARE = 0.1
"""The part of epsilon by which the training has less; the names cost this part of delta."""
KINDS_PART = 0.2
"""The part of the price, in mu squared, that goes to the kinds: these need large counts only."""
CLEAR = 4.0
"""A count that is so many standard deviations of its noise above 0 is taken for one."""
ENOUGH = 4
"""A name that makes up one part in so many of the records must be able to stand out."""


def survey(columns: int, queries: int, n: int, epsilon: float, delta: float, share: float
           ) -> Survey:
    """Returns the queries that cost a share of a budget.

    What is spent is what Gaussian releases lose by it: with mu of the whole budget and mu' of
    (1 - share) of its epsilon, the queries have sqrt(mu^2 - mu'^2). By itself that is more than the
    share of epsilon, and beside a training it is the share, since Gaussian releases add their
    squares.

    Args:
        columns: The columns whose kinds are bought.
        queries: How many queries of values there are.
        n: The public number of records.
        epsilon: The budget of the run.
        delta: Likewise.
        share: The part of both, above 0 and below 1.

    Returns:
        The survey.

    Raises:
        UserError: The share means nothing, or there are so many columns that no noise will do.
    """
    if not 0 < share < 1:
        raise UserError(f"--schema-share is {share:g}; it is a part of epsilon, as 0.1")
    names_delta = share * delta
    left = delta - names_delta
    mu_squared = _mu(epsilon, left) ** 2 - _mu((1 - share) * epsilon, left) ** 2
    kinds = math.sqrt(2 * columns / (KINDS_PART * mu_squared))
    values = math.sqrt(2 * queries / ((1 - KINDS_PART) * mu_squared))
    if max(kinds, values) > MAX_SIGMA:
        raise hopeless(columns, n, epsilon, max(kinds, values))
    most = max(n, len(readings.READINGS), len(readings.SIGNED), len(readings.YEARS))
    return Survey(columns, queries, _noise(kinds), _noise(values), names_delta, most)


def refuse_useless(made: Survey, n: int, epsilon: float) -> None:
    """Refuses a purchase that so few records cannot pay off, by public numbers alone.

    Args:
        made: The survey.
        n: The public number of records.
        epsilon: The budget of the run.

    Raises:
        UserError: It names the mend.
    """
    if n < ENOUGH * made.threshold:
        raise hopeless(made.columns, n, epsilon, made.threshold)


def hopeless(columns: int, n: int, epsilon: float, count: float) -> UserError:
    """Returns the error of a purchase that would tell nothing."""
    return UserError(
        f"{columns:,} {'column is' if columns == 1 else 'columns are'} not declared, and at "
        f"epsilon {epsilon:g} only what some {count:,.0f} rows share can be learnt of each, and "
        f"there are {n:,}; declare them, or most of them, by --schema FILE, which "
        f"{program('schema', 'CSV', '--label', 'COLUMN', '--out', 'FILE')} "
        "drafts for you to edit, or raise --epsilon or --schema-share (nothing was spent)")


def alone(made: Survey, delta: float) -> float:
    """Returns the epsilon of a survey by itself, at the delta of its run.

    Args:
        made: The survey.
        delta: The delta.
    """
    return gaussian.epsilon(made.events(), delta)


def lines(made: Survey, n: int, budget: Budget, share: float) -> tuple[str, ...]:
    """Returns the lines of a rehearsal: the price, the questions, and the noise of the answers.

    Args:
        made: The survey.
        n: The public number of records.
        budget: The budget of the run.
        share: The part of epsilon and delta that it costs.
    """
    kinds, values = made.kinds.sigma, made.values.sigma
    return (
        f"{made.columns} column{'s are' if made.columns > 1 else ' is'} not declared; the schema "
        f"of {'these' if made.columns > 1 else 'it'} would be bought for {share:.3g} of "
        f"epsilon: Gaussian training has what epsilon {(1 - share) * budget.epsilon:.3g} would give"
        f" (by itself the purchase is epsilon {at_most(alone(made, budget.delta), 3)}); what "
        "is declared in --schema FILE costs nothing",
        f"question 1, the kind and the nulls of each column: {len(readings.READINGS)} counts each, "
        f"with noise of standard deviation {kinds:.0f} beside {n:,} rows, from which a kind stands "
        f"out that {CLEAR * kinds:,.0f} cells have",
        f"question 2, the values of each column: bounds from {len(readings.SIGNED) - 1} bins of "
        f"numbers or {len(readings.YEARS) - 1} of years, and categories, with noise of standard "
        f"deviation {values:.0f}, from which a category stands out that some {made.threshold:,} "
        "rows share")


def _noise(sigma: float) -> RoundedGaussian:
    """The noise of a sigma, rounded up to four digits."""
    digits = 3 - math.floor(math.log10(sigma))
    return RoundedGaussian(max(MIN_SIGMA, math.ceil(sigma * 10**digits) / 10**digits))


def _mu(epsilon: float, delta: float) -> float:
    """The largest mu of Gaussian privacy, to six digits, that is (epsilon, delta)-private."""
    low, high = 0.0, 1.0
    while gdp.exact_epsilon(high, 0.0, delta) <= epsilon:
        low, high = high, 2 * high
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = ((middle, high) if gdp.exact_epsilon(middle, 0.0, delta) <= epsilon
                     else (low, middle))
    return low
