"""From a budget to a complete configuration: the noise is found, or the number of steps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from dpgen_jax import methods, purchases
from dpgen_jax.accountant import calibrate, gaussian
from dpgen_jax.accountant.events import Events
from dpgen_jax.config import Budget
from dpgen_jax.types import BudgetExceeded, Spec, UserError


def with_records(config: Any, n: int) -> Any:
    """`config` with the public number of records, where each record is a unit of its own. Errors:
    UserError where it names another number."""
    if not config.of_records:
        return config
    if config.records not in (None, n):
        raise UserError(f"records is {config.records}, and the data set has {n}; leave it out, so "
                        "that what is promised is what is charged")
    return dataclasses.replace(config, records=n)


def complete(method: str, config: Any, spec: Spec, budget: Budget, bought: Events = ()) -> Any:
    """`config` with both `sigma` and `steps`, which get what `bought` and class counts leave.

    One of them may be None and is found from the budget; with epsilon = inf, sigma None means no
    noise. Errors: UserError where both are open, BudgetExceeded where the budget allows no step
    or not the steps that were asked for.
    """
    mechanism = methods.get(method).mechanism
    if not budget.epsilon > 0:
        raise UserError(f"epsilon must be above 0, got {budget.epsilon}; for example --epsilon 1")
    if math.isfinite(budget.epsilon):
        calibrate.check_budget(budget.epsilon, budget.delta)
    elif config.sigma is None:
        config = dataclasses.replace(config, sigma=0.0)
    if config.accounting != "proven" and math.isfinite(budget.epsilon):
        raise UserError("--accounting as-published proves no epsilon; pass --epsilon inf to say "
                        "that you know, or leave it out")
    if config.protects_clients and (budget.class_epsilon or bought):
        raise UserError("class counts and entries of a schema are bought at the level of single "
                        "records, which does not cover a client; leave out --class-epsilon, and "
                        "declare the schema")
    if config.sigma is None and config.steps is None:
        raise UserError("neither sigma nor steps is set; pass --steps, and the noise is found, or "
                        "--sigma, and the steps are found")

    spent = purchases.planned(bought, budget.class_epsilon)
    if not gaussian.epsilon(spent, budget.delta) < budget.epsilon:
        raise BudgetExceeded(
            f"class counts and the schema's purchases cost epsilon "
            f"{gaussian.epsilon(spent, budget.delta):.4g} of {budget.epsilon:g}, and nothing is "
            "left to train with; raise --epsilon, or lower --class-epsilon or --schema-epsilon")

    def events(config, steps):
        return mechanism(config, spec).events(steps)

    if config.sigma is None:
        events(dataclasses.replace(config, sigma=1.0), 1)  # what is wrong at any noise is said here
        sigma = calibrate.sigma_for(_at_sigma(events, config, budget), config.steps,
                                    budget.epsilon, budget.delta, spent)
        return dataclasses.replace(config, sigma=sigma)
    if config.steps is None:
        steps = calibrate.max_steps(lambda n: events(config, n), budget.epsilon, budget.delta,
                                    spent)
        return dataclasses.replace(config, steps=steps)
    needed = gaussian.epsilon((*spent, *events(config, config.steps)), budget.delta)
    if not needed <= budget.epsilon:
        raise BudgetExceeded(
            f"{config.steps} steps with sigma {config.sigma:g} need epsilon {needed:.4g} at delta "
            f"{budget.delta:g}, above the budget of {budget.epsilon:g}; leave out --sigma or "
            "--steps to have it found")
    return config


def _at_sigma(events: Callable, config: Any, budget: Budget) -> Callable:
    """From sigma to the events of any number of steps; BudgetExceeded where noise as large as that
    is not drawn."""
    def of(sigma: float) -> Callable[[int], Events]:
        try:
            noisy = dataclasses.replace(config, sigma=sigma)
            events(noisy, 1)
            return lambda steps: events(noisy, steps)
        except UserError as error:
            if sigma <= 1:
                raise
            raise BudgetExceeded(
                f"epsilon {budget.epsilon:g} over {config.steps} steps needs more noise than can "
                f"be drawn ({error}); raise --epsilon, or lower --steps or --batch") from error

    return of
