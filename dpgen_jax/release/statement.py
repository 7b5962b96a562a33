"""privacy.json, which says what a release promises and to whom."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from dpgen_jax.accountant.events import (
    Events,
    LaplaceEvent,
    PoissonGaussianEvent,
    RenyiEvent,
    SampledGaussianEvent,
)
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.terms import Unit
from dpgen_jax.release import guarantee
from dpgen_jax.version import __version__

NOT_ACCOUNTED = (
    "hyper-parameter tuning", "other runs on the same records (budgets add up)",
    "side channels (timing, memory, power)",
    "the generator of the operating system, whose strength is computational")

BETWEEN_HOSTS = ("listening on the network between the {} processes that made the run, which lies "
                 "inside the trust boundary: it carried sums without noise, the bits of the noise, "
                 "and which record is whose")


@dataclasses.dataclass(frozen=True)
class Protected:
    """Who is protected, and what is public of the data.

    Attributes:
        unit: "record", "client" or "subject".
        counts: Their public number, and that of simulated clients.
        notes: Notes on the data, one line each.
        uncovered: Public facts that were read from private records, one line each.
        simulated: The reason why no bound is proven for a record of simulated clients; empty where
            one is.
        unit_column: Of subjects, the column that names them.
        rows_per_unit: Of subjects, the most rows of one that are kept.
        bought_from: As `run.protection.bought_from` returns it.
    """

    unit: str
    counts: dict[str, int]
    notes: tuple[str, ...] = ()
    uncovered: tuple[str, ...] = ()
    simulated: str = ""
    unit_column: str = ""
    rows_per_unit: int = 0
    bought_from: Json = dataclasses.field(default_factory=dict)

    @property
    def terms(self) -> Json:
        """The fields by which statements and ledgers name the unit, as `guarantee.whom` reads."""
        terms: Json = {"unit": self.unit}
        if self.unit == Unit.SUBJECT:
            terms |= {"unit_column": self.unit_column, "rows_per_unit": self.rows_per_unit}
        return terms


def accountant(events: Events) -> str:
    """Names how `accountant.gaussian.epsilon` counts events.

    Args:
        events: Pairs (event, count).

    Returns:
        The name, as a statement has it.
    """
    name = "exact Gaussian differential privacy; basic composition with pure releases"
    if any(isinstance(event, PoissonGaussianEvent | LaplaceEvent) for event, _ in events):
        name = "privacy loss distributions; basic composition with pure releases"
    elif any(isinstance(event, SampledGaussianEvent) for event, _ in events):
        name = "Renyi differential privacy, with secret draws without replacement"
    if any(isinstance(event, RenyiEvent) for event, _ in events):
        name += "; Renyi differential privacy of releases that state it at one order"
    return name


def events_of(spent: Events) -> list[dict[str, Any]]:
    """Returns events as a statement lists them.

    Args:
        spent: Pairs (event, count).
    """
    return [{**event.statement(), "count": count} for event, count in spent]


def between_hosts(processes: int) -> list[str]:
    """Returns what several processes add to what is not accounted; nothing of one.

    Args:
        processes: How many made the run, at the start that had most.
    """
    return [BETWEEN_HOSTS.format(processes)] * (processes > 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """The facts of a run that its statement names.

    Attributes:
        method: Name of the method.
        preset: Name of the preset, or None.
        steps: Rounds that the run made.
        noise_source: Label of the source of noise bits.
        accounting: "proven", or another that proves nothing.
        as_published: The epsilon of a paper's formula, beside an accounting that is not proven.
    """

    method: str
    preset: str | None
    steps: int
    noise_source: str
    accounting: str = "proven"
    as_published: Json | None = None


def statement(facts: Facts, ledger: Any, relation: str, protected: Protected) -> Json:
    """The statement of a run.

    epsilon is the budget fixed before the first release and never a reading taken while training,
    unless the ledger holds more than the budget allows, as after a damaged line; "inf" where
    nothing is guaranteed. The events are those of the ledger.

    Args:
        facts: Of the run.
        ledger: The run's `Ledger`.
        relation: The neighbouring relation.
        protected: Who is protected.

    Returns:
        The contents of privacy.json; an infinite number is still a float.
    """
    spent = ledger.epsilon()
    epsilon = max(ledger.target, spent)
    stamp = guarantee.stamped(relation, guarantee.faults(
        epsilon, facts.noise_source, facts.accounting, protected.simulated), protected.uncovered)
    return {
        "guarantee": stamp.text,
        "epsilon": epsilon if stamp.holds else math.inf,
        "delta": ledger.header["delta"],
        "relation": str(relation),  # plain text, as a reader of privacy.json gets it
        **protected.terms,
        "budget_epsilon": ledger.target,
        "not_covered": list(protected.uncovered),
        "accountant": accountant(ledger.spent()),
        "events": events_of(ledger.spent()),
        "steps": facts.steps,
        "method": facts.method,
        "preset": facts.preset,
        **protected.counts,
        **({"bought_from": protected.bought_from} if protected.bought_from else {}),
        "noise_source": facts.noise_source,
        "not_accounted": [*NOT_ACCOUNTED, *between_hosts(ledger.processes)],
        "data_notes": list(protected.notes),
        "data_dependent_epsilon": None,
        "package_version": __version__,
        **({} if facts.as_published is None else {"as_published": facts.as_published}),
    }
