"""The stamp of a release: one line that says what its privacy statement guarantees.

It is made here, when a statement is written, and read here, by everything that shows one: the
terminal, `account`, `sample`, the report, the comparison, the README of a release, the bound that
attacks are held to. It begins with one of three words:

    (epsilon, delta) replace-one      the statement holds, for that relation
    none: WHY                         nothing is guaranteed; epsilon is then "inf"
    not covered: WHAT                 epsilon holds for all but these: they were read from private
                                      records and are public now

Imports next to nothing, so that every part may use it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any, Literal

from dpgen_jax.core.at_most import at_most
from dpgen_jax.core.strict_json import Json

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

    Returns:
        The guarantee, with its stamp.
    """
    faults, uncovered = tuple(faults), tuple(uncovered)
    if faults:
        return Guarantee("none", NONE + "; ".join(faults), faults)
    if uncovered:
        return Guarantee("not covered", NOT_COVERED + "; ".join(uncovered), uncovered)
    return Guarantee("valid", TERMS + relation)


def sources(labels: Iterable[str]) -> str:
    """Returns the sources of noise bits of several clients, as a statement names them.

    Args:
        labels: Those of the clients, each once.
    """
    return "; ".join(sorted(labels))


def faults(epsilon: float, noise_source: str, accounting: str = "proven", simulated: str = ""
           ) -> tuple[str, ...]:
    """The reasons why nothing is guaranteed; none where a guarantee holds.

    Args:
        epsilon: The epsilon that the ledger allows, or inf.
        noise_source: Labels of the sources of noise bits, with "; " between those of several
            clients.
        accounting: Of the configuration: "proven", or another.
        simulated: The reason why no bound is proven for the records of simulated clients.

    Returns:
        One line for each reason.
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
    """Reads the guarantee of a privacy statement.

    It fails closed: a stamp that says more than the rest of the statement allows, or that is not
    known, counts as none. Statements of before 2026-11 have no stamp: theirs follows from the other
    fields.

    Args:
        privacy: The contents of privacy.json.

    Returns:
        The guarantee.
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
    return stamped("", [f"the statement says {text!r}, which is no guarantee that is known"])


def line(privacy: Json) -> str:
    """One line about a statement for a terminal: its stamp, its numbers, and who is protected.

    Args:
        privacy: The contents of privacy.json.

    Returns:
        The line.
    """
    stamp = of(privacy)
    epsilon, budget = (_number(privacy.get(name)) for name in ("epsilon", "budget_epsilon"))
    numbers = f"epsilon {at_most(math.inf if stamp.kind == 'none' else epsilon)}"
    if stamp.kind == "none" and math.isfinite(budget):
        numbers += f" (the noise was for {at_most(budget)})"
    elif stamp.kind == "not covered":
        numbers += " for all else"
    clients = privacy.get("simulated_clients")
    simulated = f", {clients} simulated clients" if clients else ""
    return (f"{stamp.text}; {numbers}, delta {at_most(_number(privacy.get('delta')))}, unit "
            f"{whom(privacy)}{simulated}")


def whom(terms: Json) -> str:
    """Says in words who is protected.

    Args:
        terms: The contents of privacy.json, or of the header of a ledger.

    Returns:
        The unit, and of subjects their column and the most rows of one that are kept.
    """
    unit = str(terms.get("unit"))
    if unit != SUBJECT:
        return unit
    return (f"{unit} (all rows of one {terms.get('unit_column')}; at most "
            f"{terms.get('rows_per_unit')} of them are kept)")


def _number(value: Any) -> float:
    """A number of a statement: infinite where it is missing, NaN where it is none."""
    try:
        return math.inf if value is None else float(value)
    except (TypeError, ValueError):
        return math.nan
