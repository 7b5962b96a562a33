"""privacy.json, which states what a release promises and to whom, and its summary in one line.

The summary, or stamp, is made here when a statement is written, and read here by everything that
shows it: the terminal, `account`, `sample`, the report, the comparison, the README of a release,
and the bound for attacks. It begins in one of three ways:

    (epsilon, delta) replace-one      the statement holds, for that relation
    none: WHY                         nothing is guaranteed; epsilon is then "inf"
    not covered: WHAT                 epsilon holds for all but these: they were read from private
                                      records and are public now

The module imports next to nothing, so that every part may use it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any, Literal

from dpgen_jax.accountant.events import (
    Events,
    LaplaceEvent,
    PoissonGaussianEvent,
    RenyiEvent,
    SampledGaussianEvent,
)
from dpgen_jax.core.files import Json
from dpgen_jax.core.terms import ProtectedUnit, at_most, whom
from dpgen_jax.version import __version__

TERMS = "(epsilon, delta) "
NONE = "none: "
NOT_COVERED = "not covered: "
SUBJECT = "subject"
RELATIONS = ("replace-one", "add-remove", "zero-out")
SOUND_NOISE = "os-entropy"
SEEDED = "the noise was made from a seed, and whoever knows or guesses it can take the noise away"
PUBLISHED = ("the cost was counted as a paper did, which is not proven for the code that ran "
             "(no valid guarantee)")


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """The guarantee of a statement.

    Attributes:
        kind: "valid", "none", or "not covered".
        text: The stamp.
        why: The reasons that the stamp gives.
    """

    kind: Literal["valid", "none", "not covered"]
    text: str
    why: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether epsilon bounds something at all."""
        return self.kind != "none"


def stamped(relation: str, faults: Iterable[str], uncovered: Iterable[str] = ()) -> Guarantee:
    """Makes the guarantee of a statement.

    Args:
        relation: One of RELATIONS.
        faults: The reasons why nothing holds; none for a sound run.
        uncovered: The public facts that were read from private records.
    """
    faults, uncovered = tuple(faults), tuple(uncovered)
    if faults:
        return Guarantee("none", NONE + "; ".join(faults), faults)
    if uncovered:
        return Guarantee("not covered", NOT_COVERED + "; ".join(uncovered), uncovered)
    return Guarantee("valid", TERMS + relation)


def sources(labels: Iterable[str]) -> str:
    """Returns the sources of noise bits of several clients, as a statement names them."""
    return "; ".join(sorted(labels))


def faults(epsilon: float, noise_source: str, accounting: str = "proven", simulated: str = ""
           ) -> tuple[str, ...]:
    """The reasons why nothing is guaranteed, one line each; none where a guarantee holds.

    Args:
        epsilon: The epsilon that the ledger allows, or inf.
        noise_source: Labels of the sources of noise bits, with "; " between those of several
            clients.
        accounting: Of the configuration: "proven", or another.
        simulated: The reason why no bound is proven for the records of simulated clients.
    """
    sources = set(noise_source.split("; ")) - {SOUND_NOISE}
    seeded = any(source.startswith("seeded") for source in sources)
    unknown = not seeded and bool(sources)
    return tuple(why for why, so in (
        (PUBLISHED, accounting != "proven"),
        (SEEDED, seeded),
        (f"the noise came from {noise_source!r}, a source that is not known to be random", unknown),
        (simulated, bool(simulated)),
        (f"epsilon is {epsilon:g}: nothing bounds what a release tells",
         not 0 < epsilon < math.inf)) if so)


def of(privacy: Json) -> Guarantee:
    """Reads the guarantee of a privacy statement, the contents of privacy.json.

    It fails closed: a stamp that says more than the rest of the statement allows, or that is not
    known, counts as none. Statements of before 2026-11 have no stamp: theirs follows from the other
    fields.
    """
    written = privacy.get("guarantee")
    source = str(privacy.get("noise_source"))
    epsilon = _number(privacy.get("epsilon"))
    reasons = faults(epsilon, source, "as-published" if privacy.get("as_published") else "proven")
    if written is None and privacy.get("relation") not in RELATIONS:
        reasons += (f"no bound is known for relation {privacy.get('relation')!r}",)
    if written is None:
        notes = [str(note) for note in privacy.get("data_notes") or ()]
        return stamped(str(privacy.get("relation")), reasons,
                       [note for note in notes if note.lower().startswith("not covered")])
    text = str(written)
    if text.startswith(NONE):
        return Guarantee("none", text, (text.removeprefix(NONE),))
    if reasons:
        return stamped("", [*reasons, f"the statement itself says {text!r}"])
    if text.startswith(NOT_COVERED):
        listed = privacy.get("not_covered")
        what = (tuple(map(str, listed)) if isinstance(listed, list | tuple) and listed
                else (text.removeprefix(NOT_COVERED),))
        return Guarantee("not covered", text, what)
    if text == TERMS + str(privacy.get("relation")) and privacy["relation"] in RELATIONS:
        return Guarantee("valid", text)
    return stamped("", [f"the statement says {text!r}, which is not a known guarantee"])


def line(privacy: Json) -> str:
    """One line about a statement for a terminal: its stamp, its numbers, and who is protected."""
    stamp = of(privacy)
    epsilon, budget = (_number(privacy.get(name)) for name in ("epsilon", "budget_epsilon"))
    numbers = f"epsilon {at_most(math.inf if stamp.kind == 'none' else epsilon)}"
    if stamp.kind == "none" and math.isfinite(budget):
        numbers += f" (the noise was for {at_most(budget)})"
    elif stamp.kind == "not covered":
        numbers += " for everything else"
    clients = privacy.get("simulated_clients")
    simulated = f", {clients} simulated clients" if clients else ""
    return (f"{stamp.text}; {numbers}, delta {at_most(_number(privacy.get('delta')))}, unit "
            f"{whom(privacy)}{simulated}")


def _number(value: Any) -> float:
    """A number of a statement: infinite where it is missing, NaN where it is none."""
    try:
        return math.inf if value is None else float(value)
    except (TypeError, ValueError):
        return math.nan


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
        unit: The unit.
        counts: Their public number, and that of simulated clients.
        notes: Notes on the data, one line each.
        uncovered: Public facts that were read from private records, one line each.
        simulated: The reason why no bound is proven for a record of simulated clients; empty where
            one is.
        bought_from: As `run.planning.bought_from` returns it.
    """

    unit: ProtectedUnit
    counts: dict[str, int]
    notes: tuple[str, ...] = ()
    uncovered: tuple[str, ...] = ()
    simulated: str = ""
    bought_from: Json = dataclasses.field(default_factory=dict)


def stated_accountant(events: Events) -> str:
    """Names, for a statement, how `accountant.composition.epsilon_of` counts events."""
    name = "exact Gaussian differential privacy; basic composition with pure releases"
    if any(isinstance(event, PoissonGaussianEvent | LaplaceEvent) for event, _ in events):
        name = "privacy loss distributions; basic composition with pure releases"
    elif any(isinstance(event, SampledGaussianEvent) for event, _ in events):
        name = "Renyi differential privacy, with secret draws without replacement"
    if any(isinstance(event, RenyiEvent) for event, _ in events):
        name += "; Renyi differential privacy of releases that state it at one order"
    return name


def stated_events(spent: Events) -> list[dict[str, Any]]:
    """Returns events and their counts as a statement lists them."""
    return [{**event.statement(), "count": count} for event, count in spent]


def between_hosts(processes: int) -> list[str]:
    """Returns what several processes add to what is not accounted; empty for one process."""
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
        as_published: The epsilon of a paper's formula, where the accounting is not proven.
        made_by: The person or organisation that makes the release, if the user named it.
        started_on: The day on which the training began, as YYYY-MM-DD, if it is known.
    """

    method: str
    preset: str | None
    steps: int
    noise_source: str
    accounting: str = "proven"
    as_published: Json | None = None
    made_by: str | None = None
    started_on: str | None = None


def statement(facts: Facts, ledger: Any, relation: str, protected: Protected) -> Json:
    """The statement of a run: the contents of privacy.json, where an infinite number is a float.

    epsilon is the budget fixed before the first release and never a reading taken while training,
    unless the ledger holds more than the budget allows, as after a damaged line; "inf" where
    nothing is guaranteed. The events are those of the run's `Ledger`.
    """
    spent = ledger.epsilon()
    epsilon = max(ledger.target, spent)
    stamp = stamped(relation, faults(
        epsilon, facts.noise_source, facts.accounting, protected.simulated), protected.uncovered)
    return {
        "guarantee": stamp.text,
        "epsilon": epsilon if stamp.holds else math.inf,
        "delta": ledger.header["delta"],
        "relation": str(relation),  # plain text, as a reader of privacy.json gets it
        **protected.unit.terms,
        "budget_epsilon": ledger.target,
        "not_covered": list(protected.uncovered),
        "accountant": stated_accountant(ledger.spent()),
        "events": stated_events(ledger.spent()),
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
        **{name: value for name in ("as_published", "made_by", "started_on")
           if (value := getattr(facts, name)) is not None},
    }
