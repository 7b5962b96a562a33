"""Explanation of a privacy statement in plain language.

Every fact is read from privacy.json. What is added here is the definition of (epsilon, delta)
differential privacy (Dwork and Roth, "The Algorithmic Foundations of Differential Privacy", 2014)
and what it bounds.
"""

from __future__ import annotations

import math

from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import UserError
from dpgen_jax.release import guarantee
from dpgen_jax.release.render import bound, number, one_in

NEEDED = ("epsilon", "delta", "relation", "unit", "noise_source")
"""The fields of privacy.json without which nothing can be explained."""
WEAK = 0.99
"""The probability of a right guess above which a guarantee is hardly a bound."""

ONE = {"record": "one record", "client": "one client with all its records",
       "subject": "one subject with all its rows"}
CHANGE = {"record": "the content and label of one record are replaced by any others",
          "client": "all records of one client are replaced by any others",
          "subject": "all rows of one subject are replaced by any others, as many or as few as may "
                     "be"}
INSTEAD = {"replace-one": "had held anything else", "add-remove": "had not been there",
           "zero-out": "had been left empty"}
RELATIONS = {
    "replace-one": "both hold equally many {unit}s, a number that is public, and from one to the "
                   "other {change}",
    "add-remove": "one of them holds {one} that the other does not hold",
    "zero-out": "in one of them {one} is replaced by an empty one that contributes nothing",
}


def checked(privacy: Json) -> Json:
    """Check a privacy statement, and return it with epsilon and delta as floats.

    Args:
      privacy: The content of privacy.json.

    Returns:
      The same fields.

    Raises:
      UserError: A field is missing, or epsilon or delta is no number.
    """
    missing = [name for name in NEEDED if name not in privacy]
    if missing:
        raise UserError(f"the privacy statement has no {missing[0]!r}; take privacy.json as "
                        "training wrote it")
    try:
        numbers = {name: float(privacy[name]) for name in ("epsilon", "delta")}
    except (TypeError, ValueError) as error:
        raise UserError(f"epsilon or delta of the privacy statement is no number: {error}"
                        ) from error
    return {**privacy, **numbers}


def sentence(privacy: Json) -> str:
    """Return the promise in one sentence, for a lawyer; or that there is none.

    Args:
      privacy: A statement that `checked` returned.
    """
    stamp, unit = guarantee.of(privacy), str(privacy["unit"])
    if not stamp.holds:
        return ("Nothing is promised to anybody, and this release must not be shared as private: "
                f"{'; '.join(stamp.why)}.")
    size = population(privacy)
    whom = f"each of the {number(size[1])} {size[0]}" if size else f"each {unit}"
    instead = INSTEAD.get(privacy["relation"], f"were another ({privacy['relation']})")
    but = ("; this leaves out what is named as not covered, which is in the release as it was read "
           "from the records" if stamp.kind == "not covered" else "")
    one = ONE.get(unit, f"one {unit}")
    return (f"It is promised for {whom} that, if {one} {instead}, whatever can be seen in this "
            "release or made with it would be more or less probable by a factor of at most "
            f"{factor(privacy['epsilon'])}, apart from a probability of "
            f"{bound(privacy['delta'])}{one_in(privacy['delta'])}{but}.")


def beyond(privacy: Json) -> str:
    """Return what is promised to records that were not trained on; empty where none had a part.

    Those are records from which the description of the data was bought.

    Args:
      privacy: A statement that `checked` returned.
    """
    said, size = privacy.get("bought_from"), population(privacy)
    if not isinstance(said, dict) or size is None or alarms(privacy):
        return ""
    records, held_out = said.get("records"), said.get("held_out")
    bought = ("The description of the data (the schema of a table, or names of classes) was bought "
              f"from {number(records)} records")
    if held_out == 0:
        return ""
    if held_out is None:
        return (f"{bought}, some of which may not be among these. The same promise holds for each "
                "of them; nothing else in this release was learned from those that were not "
                "trained on.")
    return (f"{bought}: these, and {number(held_out)} that were held out for tests. The same "
            f"promise holds for each of the {number(held_out)}; nothing else in this release was "
            "learned from them.")


def alarms(privacy: Json) -> tuple[str, ...]:
    """Return why a statement guarantees nothing; empty where epsilon holds, for all or for part."""
    stamp = guarantee.of(privacy)
    if stamp.holds:
        return ()
    budget = privacy.get("budget_epsilon")
    noise = ("" if budget in (None, "inf") or not math.isfinite(float(budget)) else
             f" The noise was chosen for epsilon {bound(budget)}; that number is no guarantee.")
    return (f"The guarantee of this release is \u201c{stamp.text}\u201d.{noise} It must not be "
            "shared as private." + _published(privacy.get("as_published")),)


def gaps(privacy: Json) -> tuple[str, ...]:
    """Return the parts of a release that epsilon does not cover, although it covers the rest."""
    stamp = guarantee.of(privacy)
    return stamp.why if stamp.kind == "not covered" else ()


def _published(claim: object) -> str:
    """Return a sentence on the epsilon of a paper's formula, beside no valid guarantee."""
    if not isinstance(claim, dict):
        return ""
    return (f" The formula that was published with the method gives epsilon "
            f"{number(claim.get('epsilon'))} for {number(claim.get('steps'))} steps "
            f"({claim.get('formula')}). It is repeated for comparison; it is not proven for the "
            "code that ran.")


def cautions(privacy: Json) -> tuple[str, ...]:
    """Return warnings on what weakens a valid guarantee."""
    warnings = []
    guess = best_guess(privacy["epsilon"], privacy["delta"])
    if not alarms(privacy) and guess > WEAK:
        warnings.append(f"At epsilon {bound(privacy['epsilon'])} the bound by itself is weak: it "
                        "allows an attacker to be almost certain. Attacks that reach less are "
                        "experience, and no proof.")
    size = population(privacy)
    if size and privacy["delta"] >= 1 / size[1]:
        warnings.append(f"Delta is {bound(privacy['delta'])}, which is not below 1 divided by "
                        f"the number of {size[0]} ({number(size[1])}). A delta of this size would "
                        "allow a release that shows some of them outright.")
    return tuple(warnings)


def population(privacy: Json) -> tuple[str, int] | None:
    """Return ("subjects", "clients" or "records", their number) of the statement, or None."""
    for name in ("subjects", "clients", "records"):
        if isinstance(privacy.get(name), int) and privacy[name] > 0:
            return name, privacy[name]
    return None


def best_guess(epsilon: float, delta: float) -> float:
    """Return the largest probability with which two neighbouring data sets are told apart.

    From even odds it is (e^epsilon + delta) / (1 + e^epsilon).

    Source:
      Kairouz et al., "The Composition Theorem for Differential Privacy", ICML 2015.
    """
    shrink = math.exp(-epsilon)
    return min(1.0, (1 + delta * shrink) / (1 + shrink))


def factor(epsilon: float) -> str:
    """Return e^epsilon as text, rounded up since it is a bound."""
    if epsilon > 14:
        return f"about 10 to the power {math.ceil(epsilon / math.log(10))}"
    value = math.exp(epsilon)
    return f"{math.ceil(value):,}" if value >= 100 else f"{math.ceil(100 * value) / 100:g}"


def neighbours(privacy: Json) -> str:
    """Return how two data sets differ that the promise compares.

    Args:
      privacy: A statement that `checked` returned.
    """
    unit = str(privacy["unit"])
    one = ONE.get(unit, f"one {unit}")
    change = CHANGE.get(unit, f"{one} is replaced by any other")
    relation = RELATIONS.get(privacy["relation"])
    return (relation.format(unit=unit, one=one, change=change) if relation
            else "a relation that this page does not know; ask for its definition")


def promise(privacy: Json) -> tuple[tuple[str, str], ...]:
    """Explain a statement; without a valid guarantee only what its terms would mean.

    Args:
      privacy: A statement that `checked` returned.

    Returns:
      Pairs (question, answer).
    """
    epsilon, unit = privacy["epsilon"], str(privacy["unit"])
    one = ONE.get(unit, f"one {unit}")
    answers = [
        ("Who is protected?", " ".join(filter(None, (
            f"The unit is the {unit}: {one}.{_several(privacy)}", beyond(privacy))))),
        ("Two data sets are compared", f"They are \u201cneighbours\u201d ({privacy['relation']}): "
         f"{neighbours(privacy)}.")]
    if alarms(privacy):
        return tuple(answers)
    if gaps(privacy):
        answers.append(("What is left out?", "What is named above as not covered. It was read from "
                        "the records and is in the release as it was; what follows is about all "
                        "else."))
    secret = ("which of two versions of this one was used" if privacy["relation"] == "replace-one"
              else "whether this one was used")
    return (*answers, *_bounds(epsilon, privacy["delta"], unit, secret))


def _several(privacy: Json) -> str:
    """Return a sentence on people with several records.

    Two that change are two steps to a neighbour: (2 epsilon, (1 + e^epsilon) delta) (Dwork and Roth
    2014, theorem 2.2).
    """
    if privacy["unit"] == guarantee.SUBJECT:
        return f" That is a {guarantee.whom(privacy)}."
    if privacy["unit"] != "record":
        return ""
    less = " A person with several records is protected less"
    if alarms(privacy):
        return f"{less}."
    delta = privacy["delta"] * (1 + math.exp(min(privacy["epsilon"], 700.0)))
    beside = (f"a delta of {bound(delta)}" if delta < 1 else
              "a delta above 1, at which nothing is bounded any more")
    return f"{less}: two records are covered by twice the epsilon, beside {beside}, and so on."


def _bounds(epsilon: float, delta: float, unit: str, secret: str
            ) -> tuple[tuple[str, str], ...]:
    """Return the questions and answers on epsilon and delta."""
    guess = best_guess(epsilon, delta)
    if guess < WEAK:
        often = f"at most {math.ceil(1000 * guess) / 10:.1f} % of the cases"
    elif epsilon < 25:
        often = f"all but 1 of {math.ceil(1 / (1 - guess)):,} cases, as far as this bound goes"
    else:
        often = "practically every case, as far as this bound goes"
    return (
        ("What does epsilon bound?", f"Whatever can be seen in the release or made with it is at "
         f"most {factor(epsilon)} times as probable with one of the two data sets as with the "
         f"other, plus delta. The factor is e (about 2.718) to the power of epsilon, which is "
         f"{bound(epsilon)} here."),
        ("What is delta?", f"{bound(delta)}{one_in(delta)}: the small probability that is added "
         "to this bound, and to which the factor does not apply."),
        (f"What does it mean for one {'person' if unit == 'record' else unit}?",
         f"Take an attacker who knows all of the other {unit}s and wants to tell {secret}. "
         "Delta aside, the attacker's odds for either answer "
         f"rise at most {factor(epsilon)}-fold, whatever else "
         f"is known now or later. From even odds, the guess may be right in {often}; a blind guess "
         "is right in 50 %."))


def assumptions(privacy: Json) -> tuple[str, ...]:
    """Return what the guarantee rests on, as the statement has it."""
    meaning = (" (the random generator of the operating system)"
               if privacy["noise_source"] == guarantee.SOUND_NOISE else "")
    lines = [f"Source of the noise: {privacy['noise_source']}{meaning}."]
    if "accountant" in privacy:
        lines.append(f"Accounting: {privacy['accountant']}.")
    size = population(privacy)
    if size:
        lines.append(f"Public, and not protected: the number of {size[0]}, {number(size[1])}.")
    if privacy.get("simulated_clients"):
        lines.append(f"The {number(privacy['simulated_clients'])} clients of this run are "
                     "simulated clients: the records were dealt to them for the run, and what is "
                     "protected is the record.")
    if "steps" in privacy:
        lines.append(f"One training run of {number(privacy['steps'])} steps; its events are listed "
                     "on this page.")
    if "kept_step" in privacy:
        lines.append(f"The generator is that of step {number(privacy['kept_step'])}, which did "
                     "best of all that were evaluated by public data, or by a release whose cost "
                     "is among the events.")
    sanitised = privacy.get("data_dependent_epsilon")
    if isinstance(sanitised, dict):
        lines.append(f"A sanitised data-dependent epsilon of {bound(sanitised.get('epsilon'))} "
                     f"was published; its cost is part of epsilon. {sanitised.get('kind', '')}")
    return tuple(lines)


def not_covered(privacy: Json) -> tuple[str, ...]:
    """Return what the guarantee leaves out."""
    return (*gaps(privacy), *map(str, privacy.get("not_accounted", ())))


def other_notes(privacy: Json) -> tuple[str, ...]:
    """Return what else the statement says of the data."""
    return tuple(note for note in data_notes(privacy) if not note.lower().startswith("not covered"))


def by_hand(config: Json) -> tuple[str, ...]:
    """Return what a reader must know of how samples are made, such as knowledge put in by hand.

    Args:
      config: The content of config.json.
    """
    settings = config.get("config") or {}
    network = "resnet" if settings.get("networks") == "gs-wgan" else "generator"
    warp = settings.get("warp") or (settings.get(network) or {}).get("warp")
    moved = (f"synthetic images are turned, sheared, scaled and moved at random, by up to "
             f"{number(warp or 0)} of their half (warp): knowledge about such images that was put "
             "in by hand, not read from records")
    kept = ("of several synthetic images one is kept that a released classifier gives its label: "
            "images between two classes are rarer than they are among the records")
    images = settings.get("images", 0)
    few = f"each synthetic image is one of the {images} of its class that the generator holds"
    return ((moved,) * bool(warp) + (kept,) * bool(settings.get("classifier"))
            + (few,) * bool(images))


def data_notes(privacy: Json) -> tuple[str, ...]:
    """Return all notes of the statement on the data."""
    return tuple(map(str, privacy.get("data_notes", ())))
