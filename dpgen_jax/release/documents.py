"""privacy.json in plain language: statement.html for a lawyer and a reviewer, and README.txt.

The documents are made of the statement and of the public schema only. Every fact is read from
privacy.json. This module adds the definition of (epsilon, delta) differential privacy (Dwork and
Roth, "The Algorithmic Foundations of Differential Privacy", 2014) and what it bounds. The report of
an evaluation uses the same explanations.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

from dpgen_jax import methods
from dpgen_jax.core.config import to_json
from dpgen_jax.core.files import Json, json_bytes
from dpgen_jax.core.types import Spec, TableSpec, UserError
from dpgen_jax.release import guarantee, render
from dpgen_jax.release.numpy_samplers import SAMPLERS
from dpgen_jax.release.render import NOTHING, Cell, Table, bound, label, number, one_in
from dpgen_jax.version import __version__

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


def checked_statement(privacy: Json) -> Json:
    """Return a privacy statement with epsilon and delta as floats, after a check.

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


class Explained(NamedTuple):
    """A statement in sentences, for every page that shows it."""

    guarantee: str
    alarms: tuple[str, ...]
    """Why it guarantees nothing."""
    gaps: tuple[str, ...]
    """Parts of a release that it leaves out."""
    cautions: tuple[str, ...]
    promise: tuple[tuple[str, str], ...]
    """Questions and answers."""
    assumptions: tuple[str, ...]
    not_covered: tuple[str, ...]
    notes: tuple[str, ...]
    ledger: Table | None


def explained(privacy: Json) -> Explained:
    """Return a statement, as `checked_statement` returned it, in sentences."""
    return Explained(guarantee.of(privacy).text, alarms(privacy), gaps(privacy), cautions(privacy),
                     promise(privacy), assumptions(privacy), not_covered(privacy),
                     other_notes(privacy), ledger(privacy))


def sentence(privacy: Json) -> str:
    """Return the promise of a checked statement in one sentence; or that there is none."""
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
    """Return a sentence on the epsilon of a paper's formula, where there is no valid guarantee."""
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
    """Return the largest probability with which two neighbouring data sets are distinguished.

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
    """Return how two data sets differ that the promise compares."""
    unit = str(privacy["unit"])
    one = ONE.get(unit, f"one {unit}")
    change = CHANGE.get(unit, f"{one} is replaced by any other")
    relation = RELATIONS.get(privacy["relation"])
    return (relation.format(unit=unit, one=one, change=change) if relation
            else "a relation that this page does not know; ask for its definition")


def promise(privacy: Json) -> tuple[tuple[str, str], ...]:
    """Explain a checked statement as pairs (question, answer).

    Without a valid guarantee only the meaning of its terms is explained.
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
    """Return the other notes of the statement on the data."""
    return tuple(note for note in data_notes(privacy) if not note.lower().startswith("not covered"))


def by_hand(config: Json) -> tuple[str, ...]:
    """Return what a reader must know of how samples are made, such as knowledge put in by hand."""
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


WIDTH = 78
"""Letters of a line of README.txt."""
NAMED = 30
"""The most classes or columns that are named."""
MEANINGS = {
    "valid": "Whatever is done with this folder, the bound of the statement holds for it.",
    "none": "This folder must not be shared as private. No bound is proven on what it tells of "
            "the records it was made from.",
    "not covered": "Epsilon bounds what this folder tells of the records, except for what is named "
                   "above: that was read from private records, is in this folder, and no epsilon "
                   "covers it."}
SOFTWARE = (f"The dpgen_jax authors: dpgen_jax, generators of synthetic images and tables under "
            f"differential privacy, in JAX, version {__version__}.")


class Use(NamedTuple):
    """How a folder is used."""

    needs: str
    """The software that has to be installed."""
    commands: tuple[str, ...]
    """Lines for a terminal."""
    code: tuple[str, ...]
    """Lines of Python; none where commands do all."""
    files: tuple[tuple[str, str], ...]
    """The name of each file, and a description of it."""


def files(privacy: Json, spec: Spec, use: Use) -> dict[str, bytes]:
    """Return privacy.json, statement.html and README.txt, by name; all say the same."""
    plain = to_json(privacy)
    return {"privacy.json": json_bytes(plain), "statement.html": page(plain, spec, use).encode(),
            "README.txt": readme(plain, spec, use).encode()}


def of_release(spec: Spec, classifies: bool, method: str = "") -> Use:
    """Return how a release folder is used, whose method may have a sampler without JAX."""
    table = isinstance(spec, TableSpec)
    load = ("import dpgen_jax as dg", 'release = dg.load("THIS_FOLDER")')
    arrays = ("generator.safetensors, config.json",
              "the weights, and all settings" if classifies else "the generator, and all settings")
    stated = (("statement.html, README.txt", "the promise, for people"),
              ("privacy.json", "the same for programs, with each event that was charged"), arrays)
    needs = f"Python 3.11 or later, and dpgen_jax {__version__} or a later version"
    if classifies:
        return Use(needs, (), (*load, "classes = release.predict(x)"), stated)
    make = ("table = release.sample(1000)         # a pandas DataFrame" if table else
            "images, labels = release.sample(1000)")
    look = (("samples.csv, marginals.png", "a first look; every row is synthetic") if table else
            ("samples.png", "a first look; every image is synthetic, a row for each class"))
    lines = [f"sample THIS_FOLDER --n 1000 --out synthetic.{'csv' if table else 'npz'}"]
    if method in SAMPLERS:
        lines.append("export THIS_FOLDER --out FOLDER   # for somebody with NumPy alone")
    commands = tuple(f"python -m dpgen_jax.{line}" for line in lines)
    return Use(needs, commands, (*load, make), (*stated, look))


def page(privacy: Json, spec: Spec, use: Use) -> str:
    """Return statement.html: one file, without scripts, that loads nothing."""
    checked = checked_statement(privacy)
    return render.page(
        __package__, "statement.html", privacy=checked, stated=explained(checked),
        sentence=sentence(checked), terms=terms(checked), makes=makes(spec), made=_made(checked),
        use=use, sources=sources(checked))


def readme(privacy: Json, spec: Spec, use: Use) -> str:
    """Return README.txt, of lines that a terminal shows."""
    checked = checked_statement(privacy)
    title = "Synthetic data by dpgen_jax"
    meaning = MEANINGS[guarantee.of(checked).kind]
    parts = [
        title, "=" * len(title), "", " ".join(f"Guarantee: {guarantee.line(checked)}".split()), "",
        *_lines(" ".join(filter(None, (sentence(checked), beyond(checked))))), "",
        *_lines(meaning),
        *_section("What it makes", _lines(makes(spec))),
        *_section("Not covered by the guarantee", _listed(not_covered(checked))),
        *_section("How to load and sample", [
            *_lines(f"It needs {use.needs}. New records cost no privacy."), "",
            *(f"    {line}" for line in use.commands),
            *(("", "In Python:", "", *(f"    {line}" for line in use.code)) if use.code else ())]),
        *_section("Files", _listed(f"{name}: {what}" for name, what in use.files)),
        *_section("How it was made", _listed(f"{name}: {value}" for name, value in _made(checked))),
        *_section("How to cite it", _listed(sources(checked)))]
    return render.visible("\n".join(parts)) + "\n"


def _lines(text: str) -> list[str]:
    """A text in lines; breaks within it, which could look like lines of ours, are spaces."""
    return textwrap.wrap(render.shorten(text, 2000), WIDTH)


def _listed(texts: Any) -> list[str]:
    return [line for text in texts for line in textwrap.wrap(
        render.shorten(text), WIDTH, initial_indent="- ", subsequent_indent="  ")]


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", title, "-" * len(title), *lines] if lines else []


def makes(spec: Spec) -> str:
    """Return what records are, as the public schema has it."""
    if isinstance(spec, TableSpec):
        names = [column.name for column in spec.columns]
        label_of = (f"; the label is {spec.label.name}: {_few(spec.label.categories)}"
                    if spec.labelled else "")
        filled = [column.name for column in spec.identifiers if not column.numbered]
        apart = ("".join(f"; {what}: {_few(columns)}" for what, columns in (
            ("left out", spec.left_out), ("a placeholder in every row", filled)) if columns))
        return f"Rows of a table with {number(len(names))} columns: {_few(names)}{label_of}{apart}."
    names = list(spec.class_names) or [str(i) for i in range(spec.classes)]
    colour = "grey" if spec.channels == 1 else "colour"
    return (f"Images of {spec.height} x {spec.width} pixels, {colour}, of "
            f"{number(spec.classes)} classes: {_few(names)}.")


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(render.shorten(name, 60) for name in names[:NAMED])
    return shown if len(names) <= NAMED else f"{shown} and {number(len(names) - NAMED)} more"


def _made(privacy: Json) -> tuple[tuple[str, str], ...]:
    """Names and values of how a release was made."""
    return tuple((name, number(privacy[field])) for name, field in (
        ("method", "method"), ("preset", "preset"), ("steps", "steps"),
        ("version of dpgen_jax", "package_version")) if privacy.get(field) is not None)


def sources(privacy: Json) -> tuple[str, ...]:
    """Return what to cite: this library, and the paper of the method."""
    paper = methods.PAPERS.get(str(privacy.get("method")))
    return (SOFTWARE, f"The method: {paper}") if paper else (SOFTWARE,)


def terms(privacy: Json) -> Table:
    """Return the table of a checked statement's terms, for a reviewer."""
    budget, size = privacy.get("budget_epsilon"), population(privacy)
    rows = [("guarantee", guarantee.of(privacy).text, "the stamp that every output shows"),
            ("epsilon", bound(privacy["epsilon"]), "bounds the ratio of probabilities by its "
             f"exponential; {_fixed(privacy)}"),
            ("delta", bound(privacy["delta"]), "is added to this bound"),
            ("relation", str(privacy["relation"]), neighbours(privacy)),
            ("unit", guarantee.whom(privacy), "what is protected as a whole"),
            ("budget", bound(float(budget)) if budget is not None else NOTHING.text,
             "the epsilon that the noise was chosen for"),
            ("accountant", number(privacy.get("accountant")), "adds up the cost of all events"),
            ("noise", str(privacy["noise_source"]), "the source of the random bits")]
    if size:
        rows.insert(5, (f"number of {size[0]}", number(size[1]), "public, and not protected"))
    bought = privacy.get("bought_from")
    if isinstance(bought, dict):
        rows.insert(6, ("description bought from", f"{number(bought.get('records'))} records",
                        "public; those that were not trained on are protected likewise"))
    return render.table("The promise in the terms of the field", ["term", "value", "meaning"], [
        (name, [Cell(render.shorten(value)), Cell(meaning)]) for name, value, meaning in rows],
        numeric=False)


def _fixed(privacy: Json) -> str:
    """When epsilon was fixed: with the budget, unless more was charged than that."""
    budget = privacy.get("budget_epsilon")
    later = budget is not None and privacy["epsilon"] > float(budget)
    return ("the budget was fixed before the first release, and what was charged beyond it is added"
            if later and guarantee.of(privacy).holds else "fixed before the first release")


def ledger(privacy: Json) -> Table | None:
    """Return the table of the events of a statement, or None without events."""
    events = privacy.get("events") or ()
    if not events:
        return None
    fields = [name for name in dict.fromkeys(key for event in events for key in event)
              if name not in ("mechanism", "count")]
    rows = [(str(event.get("mechanism")), [
        Cell(number(event.get("count"))), *(Cell(number(event[f])) if f in event else NOTHING
                                            for f in fields), _ratio(event)])
            for event in events]
    return render.table(
        "Events", ["mechanism", "count", *map(label, fields), "sigma / sensitivity"], rows)


def _ratio(event: Json) -> Cell:
    sigma, sensitivity = event.get("sigma"), event.get("sensitivity")
    return Cell(number(float(sigma) / float(sensitivity))) if sigma and sensitivity else NOTHING
