"""From a budget to a complete configuration: the noise is found, or the number of steps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from dpgen_jax import methods
from dpgen_jax.accountant import composition
from dpgen_jax.accountant.events import Events
from dpgen_jax.core.config import Budget
from dpgen_jax.core.errors import option
from dpgen_jax.core.terms import Unit, at_most
from dpgen_jax.core.types import BudgetExceeded, Spec, UserError
from dpgen_jax.methods.shared.config import MethodConfig, RecordUnits
from dpgen_jax.run import side_releases

EventsOf = Callable[[Any, int], Events]
"""From a complete configuration and a number of steps to their events."""


def with_records(config: MethodConfig, n: int) -> MethodConfig:
    """Fills in the public number of records, where each record is a unit of its own.

    Raises:
        UserError: Where it names another number.
    """
    if not isinstance(config, RecordUnits):
        return config
    if config.records not in (None, n):
        raise UserError(f"records is {config.records}, and the data set has {n}; leave it out, so "
                        "that the promise and the charges agree")
    return dataclasses.replace(config, records=n)


def complete(method: str, config: MethodConfig, spec: Spec, budget: Budget, bought: Events = (),
             bought_unit: Unit = Unit.RECORD) -> MethodConfig:
    """Finds `sigma` or `steps` from what the side releases leave of the budget.

    With an infinite epsilon, `sigma` None means no noise.

    `bought` are the events of what was bought on the same records, and `bought_unit` is whom these
    protect.

    Raises:
        UserError: Where both are open, and for a budget that makes no sense.
        BudgetExceeded: Where the budget allows no step, or not the steps that are set.
    """
    mechanism = methods.get(method).mechanism
    _check_promise(config, budget, bought if bought_unit == Unit.RECORD else ())
    if math.isinf(budget.epsilon) and config.sigma is None:
        config = dataclasses.replace(config, sigma=0.0)
    if config.sigma is None and config.steps is None:
        raise UserError(f"neither sigma nor steps is set; pass {option('steps')} to find the "
                        f"noise, or {option('sigma')} to find the steps")
    spent = _affordable_side_releases(budget, bought)

    def events(config: MethodConfig, steps: int) -> Events:
        cost: Events = mechanism(config, spec).events(steps)
        return cost

    if config.sigma is None:
        events(dataclasses.replace(config, sigma=1.0), 1)  # errors at any noise are raised here
        sigma = composition.sigma_for(_at_sigma(events, config, budget), config.planned_steps,
                                      budget.epsilon, budget.delta, spent)
        return dataclasses.replace(config, sigma=sigma)
    if config.steps is None:
        steps = composition.max_steps(lambda n: events(config, n), budget.epsilon, budget.delta,
                                      spent)
        return dataclasses.replace(config, steps=steps)
    _require_affordable(config, budget, (*spent, *events(config, config.steps)))
    return config


def _check_promise(config: MethodConfig, budget: Budget, of_records: Events) -> None:
    """Refuses a budget that makes no sense, or none with this configuration.

    `of_records` was bought at the level of single records.
    """
    if not budget.epsilon > 0:
        raise UserError(f"epsilon must be above 0, got {budget.epsilon}; for example "
                        f"{option('epsilon', 1)}")
    if math.isfinite(budget.epsilon):
        composition.check_budget(budget.epsilon, budget.delta)
    if config.accounting != "proven" and math.isfinite(budget.epsilon):
        raise UserError(f"{option('accounting', 'as-published')} proves no epsilon; pass "
                        f"{option('epsilon', 'inf')} to confirm that, or leave it out")
    if config.protects_clients and (budget.class_epsilon or of_records):
        raise UserError("class counts and entries of a schema are bought for single records, which "
                        f"does not cover a client; leave out {option('class_epsilon')}, and "
                        "declare the schema")


def _affordable_side_releases(budget: Budget, bought: Events) -> Events:
    """The events of all side releases, which must leave something to train with."""
    spent = side_releases.planned(bought, budget.class_epsilon)
    epsilon = composition.epsilon_of(spent, budget.delta)
    if not epsilon < budget.epsilon:
        raise BudgetExceeded(
            "class counts, the schema's purchases and the release that judges cost epsilon "
            f"{at_most(epsilon, 4)} of {budget.epsilon:g}, and nothing is left to train with; "
            f"raise {option('epsilon')}, or lower {option('class_epsilon')}, "
            f"{option('schema_epsilon')} or that release's")
    return spent


def _require_affordable(config: MethodConfig, budget: Budget, events: Events) -> None:
    """Refuses noise and steps that are both set, and cost more than the budget."""
    needed = composition.epsilon_of(events, budget.delta)
    if not needed <= budget.epsilon:
        raise BudgetExceeded(
            f"{config.steps} steps with sigma {config.sigma:g} need epsilon {at_most(needed, 4)} "
            f"at delta {budget.delta:g}, above the budget of {budget.epsilon:g}; leave out "
            f"{option('sigma')} or {option('steps')} to have it found")


def _at_sigma(events: EventsOf, config: MethodConfig, budget: Budget
              ) -> Callable[[float], Callable[[int], Events]]:
    """From sigma to the events of steps; BudgetExceeded for more noise than can be drawn."""
    fields = ("steps", *["batch"] * hasattr(config, "batch"))
    fewer = f", or lower {' or '.join(map(option, fields))}" * (config.steps != 1)

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
                f"be drawn ({error}); raise {option('epsilon')}{fewer}") from error

    return of
