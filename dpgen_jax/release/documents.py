"""privacy.json in plain language: statement.html for a lawyer and a reviewer, and README.txt.

The documents are made from the statement and the public schema only. Every fact is read from
privacy.json. This module adds the definition of (epsilon, delta) differential privacy (Dwork and
Roth, "The Algorithmic Foundations of Differential Privacy", 2014) and what it bounds. The report of
an evaluation uses the same explanations.

The documents do not say how many earlier runs on the same records the journal knows of. The journal
recognises the records by a keyed digest of all of them: where it counts two earlier runs, it counts
none after a single record is changed. So the number is a function of single records that no epsilon
covers. Whoever knows all records but one, and how often this data holder has trained, could use it
to test guesses of the last one. It is on the page of the data holder only (`holder_page`), and the
statement says why it is not here.
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

TEXTS = 3
"""The version of the words of the documents. privacy.json names it, so that an audit does not
compare documents of other words."""
INSTEAD = {"replace-one": "had been different", "add-remove": "had not been there",
           "zero-out": "had been left empty"}
RELATIONS = {
    "replace-one": "the number of {noun}s, which is public, is the same in both, and they differ "
                   "in the data of {one}",
    "add-remove": "one of them has the data of {one} that the other does not have",
    "zero-out": "in one of them the data of {one} are left empty and contribute nothing",
}


def noun(privacy: Json) -> str:
    """Return the unit as a noun: record, client, or what the column of a subject is called."""
    unit = str(privacy["unit"])
    return str(privacy.get("unit_column") or unit) if unit == guarantee.SUBJECT else unit


def one(privacy: Json) -> str:
    """Return the unit with what belongs to it."""
    unit = str(privacy["unit"])
    return {"client": "one client with all its records",
            "subject": f"one {noun(privacy)} with all its rows"}.get(unit, f"one {unit}")


def data_of(privacy: Json) -> str:
    """Return the data of the unit, as the subject of a sentence with a verb in the past tense."""
    unit = str(privacy["unit"])
    return {"client": "all records of that client",
            "subject": f"all rows of that {noun(privacy)}"}.get(unit, f"that {unit}")


def checked_statement(privacy: Json) -> Json:
    """Return a privacy statement with epsilon and delta as floats, after a check.

    Raises:
      UserError: A field is missing, or epsilon or delta is not a number.
    """
    missing = [name for name in NEEDED if name not in privacy]
    if missing:
        raise UserError(f"the privacy statement has no {missing[0]!r}; use privacy.json as "
                        "training wrote it")
    try:
        numbers = {name: float(privacy[name]) for name in ("epsilon", "delta")}
    except (TypeError, ValueError) as error:
        raise UserError(f"epsilon or delta of the privacy statement is not a number: {error}"
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
    stamp = guarantee.of(privacy)
    if not stamp.holds:
        return ("This release protects nobody and must not be shared as private: "
                f"{'; '.join(stamp.why)}.")
    size, unit = population(privacy), noun(privacy)
    whom = f"each {unit} ({number(size[1])} in all)" if size else f"each {unit}"
    instead = INSTEAD.get(privacy["relation"], f"were another ({privacy['relation']})")
    but = (". The promise does not include the parts named as not covered, which are in the "
           "release as they were read from the records" if stamp.kind == "not covered" else "")
    return (f"This is promised for {whom}: if {data_of(privacy)} {instead}, anything that can be "
            "seen in this release or made with it would be more or less probable by a factor of at "
            f"most {factor(privacy['epsilon'])}, apart from a probability of "
            f"{bound(privacy['delta'])}{one_in(privacy['delta'])}{but}.")


def beyond(privacy: Json) -> str:
    """Return what is promised to records that were not trained on; empty where there are none.

    Those are records that were held out, and records from which the description of the data was
    bought. The promise covers those that were held out, since a change of one of them changes one
    training record at most (`data.parts`).
    """
    said, size = privacy.get("bought_from"), population(privacy)
    if size is None or alarms(privacy):
        return ""
    if not isinstance(said, dict):
        # That one held-out record changes one training record is proven for these relations only.
        covered = privacy["relation"] in ("replace-one", "zero-out") and any(
            note.startswith(HELD_OUT) for note in data_notes(privacy))
        return (f"The same promise holds for each {noun(privacy)} that was held out for tests: the "
                "generator did not learn from it.") * covered
    records, held_out = said.get("records"), said.get("held_out")
    bought = ("The description of the data (the schema of a table, or names of classes) was "
              f"estimated from {number(records)} records")
    if held_out == 0:
        return ""
    if held_out is None:
        return (f"{bought}, some of which may not have been used for training. The same promise "
                "holds for each of them; nothing else in this release was learned from those that "
                "were not used for training.")
    return (f"{bought}: those used for training, and {number(held_out)} that were held out for "
            f"tests. The same promise holds for each of the {number(held_out)}; nothing else in "
            "this release was learned from them.")


def limits(privacy: Json) -> tuple[str, ...]:
    """Return what differential privacy does not promise, whatever its epsilon is."""
    several = (" A person with several records is protected less than one with a single record."
               if privacy["unit"] == "record" else "")
    return (
        "Anonymity in law. This statement is not a finding that the data are anonymous. Whether a "
        "law such as the GDPR still applies is a legal judgement, for which it gives technical "
        f"facts.{several}",
        "Secrecy of facts about groups. If the data show that smokers fall ill more often, the "
        "release may show it too, and that says something about every smoker, including those "
        "whose data were never used.",
        "A bound on several releases together. Releases made from the same data add up: their "
        "epsilons and deltas must be added. The number of earlier ones is not stated here, because "
        f"a count of runs on exactly these data could reveal whether one {noun(privacy)} was "
        "changed. The data holder keeps it.",
        "True records. A synthetic record may equal a real one by chance, and statistics of "
        "synthetic records differ from those of the real ones.")


NO_PROMISE = "What differential privacy does not promise"
"""The heading of `limits`."""
SHARING = (
    "This folder may be shared as a whole.",
    "The run folder that it comes from must not be shared: its folder private/ and its ledger "
    "contain secrets of the run and data made from the records, config.json and other files "
    "describe where the data are kept, and evaluation/ has figures computed from real records, "
    "which epsilon does not cover.",
    "The original data, and any schema or sample that was read from them without a charge, must "
    "not be shared either.")
"""Sentences on what may be shared."""
UNCOVERED_SHARING = ("The folder holds parts that the promise does not cover, as named in this "
                     "document. Decide about these before sharing it.")
NO_SHARING = "This folder must not be shared as private, since nothing bounds what it reveals."


def sharing(privacy: Json) -> tuple[str, ...]:
    """Return which folders may be shared, and which not."""
    kind = guarantee.of(privacy).kind
    this = {"valid": SHARING[0], "none": NO_SHARING, "not covered": UNCOVERED_SHARING}[kind]
    return (this, *SHARING[1:])


def identifiers(privacy: Json, spec: Spec) -> tuple[str, ...]:
    """Return which columns identify people, and how they are treated, by the public schema."""
    if not isinstance(spec, TableSpec):
        return ()
    made = [identifier.name for identifier in spec.identifiers]
    lines = []
    if made:
        bought = any(note.startswith(BOUGHT) and ": kinds of " in note
                     for note in data_notes(privacy))
        lines.append(f"{_few(made)}: identifiers, by the schema. The generator did not learn from "
                     "their values, and new ones are made up in every sample." + bought * (
                         " Which kind a column has was estimated from the records, at a cost that "
                         "epsilon includes."))
    if privacy["unit"] == guarantee.SUBJECT:
        lines.append(f"{noun(privacy)}: identifies which rows belong together. It was not learned "
                     "from, and the release does not contain it.")
    others = "no other column" if lines else "no column"
    return (*lines, f"The schema names {others} as an identifier. Check that none of the columns "
            "that the generator learned from identifies people directly.")


def alarms(privacy: Json) -> tuple[str, ...]:
    """Return why a statement guarantees nothing; empty where epsilon holds, for all or for part."""
    stamp = guarantee.of(privacy)
    if stamp.holds:
        return ()
    budget = privacy.get("budget_epsilon")
    noise = ("" if budget in (None, "inf") or not math.isfinite(float(budget)) else
             f" The noise was chosen for epsilon {bound(budget)}, which is not a guarantee.")
    return (f"The guarantee of this release is \u201c{stamp.text}\u201d.{noise} It must not be "
            "shared as private." + _published(privacy.get("as_published")),)


def gaps(privacy: Json) -> tuple[str, ...]:
    """Return the parts of a release that epsilon does not cover, although it covers the rest."""
    stamp = guarantee.of(privacy)
    return stamp.why if stamp.kind == "not covered" else ()


def _published(claim: object) -> str:
    """Return a sentence on the epsilon of a paper's formula, if there is no valid guarantee."""
    if not isinstance(claim, dict):
        return ""
    return (f" The formula that was published with the method gives epsilon "
            f"{number(claim.get('epsilon'))} for {number(claim.get('steps'))} steps "
            f"({claim.get('formula')}). It is given for comparison; it is not proven for the code "
            "that ran.")


def cautions(privacy: Json) -> tuple[str, ...]:
    """Return warnings on what weakens a valid guarantee."""
    warnings = []
    guess = best_guess(privacy["epsilon"], privacy["delta"])
    if not alarms(privacy) and guess > WEAK:
        warnings.append(f"At epsilon {bound(privacy['epsilon'])} the bound by itself is weak: it "
                        "allows an attacker to be almost certain. If known attacks reach less, "
                        "that is experience and not proof.")
    size = population(privacy)
    if size and privacy["delta"] >= 1 / size[1]:
        warnings.append(f"Delta is {bound(privacy['delta'])}, which is not below 1 divided by "
                        f"the number of {size[0]} ({number(size[1])}). A delta of this size allows "
                        "a release that shows the data of some of them.")
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
    relation = RELATIONS.get(privacy["relation"])
    return (relation.format(noun=noun(privacy), one=one(privacy)) if relation
            else "a relation that this page does not know; ask for its definition")


def promise(privacy: Json) -> tuple[tuple[str, str], ...]:
    """Explain a checked statement as pairs (question, answer).

    Without a valid guarantee only the meaning of its terms is explained.
    """
    answers = [
        ("Who is protected?", " ".join(filter(None, (
            f"The unit of protection is {one(privacy)}.{_several(privacy)}", beyond(privacy))))),
        ("Which data sets are compared?", "Two that are \u201cneighbours\u201d "
         f"({privacy['relation']}): {neighbours(privacy)}.")]
    if alarms(privacy):
        return tuple(answers)
    if gaps(privacy):
        answers.append(("What is left out?", "The parts named above as not covered. They were read "
                        "from the records and are in the release unchanged. The following answers "
                        "are about everything else."))
    return (*answers, *_bounds(privacy))


def _several(privacy: Json) -> str:
    """Return a sentence on people with several records.

    Two that change are two steps to a neighbour: (2 epsilon, (1 + e^epsilon) delta) (Dwork and Roth
    2014, theorem 2.2).
    """
    if privacy["unit"] == guarantee.SUBJECT:
        return (f" The column {noun(privacy)} identifies which rows belong together; at most "
                f"{privacy.get('rows_per_unit')} rows of one {noun(privacy)} were used.")
    if privacy["unit"] != "record":
        return ""
    less = " A person with several records is protected less"
    if alarms(privacy):
        return f"{less}."
    delta = privacy["delta"] * (1 + math.exp(min(privacy["epsilon"], 700.0)))
    two = (f"to {bound(delta)}" if delta < 1 else
           "above 1, so that nothing is bounded")
    return (f"{less}: for two records together epsilon doubles to {bound(2 * privacy['epsilon'])}, "
            f"and delta grows {two}.")


def _bounds(privacy: Json) -> tuple[tuple[str, str], ...]:
    """Return the questions and answers on epsilon and delta."""
    epsilon, delta, unit = privacy["epsilon"], privacy["delta"], noun(privacy)
    secret = (f"which of two versions of that {unit} was used" if privacy["relation"] ==
              "replace-one" else f"whether that {unit} was used")
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
        (f"What does it mean for one {unit}?",
         f"Suppose an attacker knows the data of every other {unit} and wants to find out {secret}."
         " Apart from delta, the attacker's odds of either answer "
         f"rise at most {factor(epsilon)}-fold, whatever else "
         f"becomes known now or later. From even odds, the guess may be right in {often}; a blind "
         "guess is right in 50 %."))


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
                     "simulated: the records were dealt to them for the run, and single records "
                     "are protected.")
    if "steps" in privacy:
        lines.append(f"One training run of {number(privacy['steps'])} steps; its events are listed "
                     "on this page.")
    if "kept_step" in privacy:
        lines.append(f"The generator is that of step {number(privacy['kept_step'])}, the best of "
                     "those that were evaluated, either on public data or with a release whose "
                     "cost is among the events.")
    sanitised = privacy.get("data_dependent_epsilon")
    if isinstance(sanitised, dict):
        lines.append(f"A sanitised data-dependent epsilon of {bound(sanitised.get('epsilon'))} "
                     f"was published; its cost is part of epsilon. {sanitised.get('kind', '')}")
    return tuple(lines)


def not_covered(privacy: Json) -> tuple[str, ...]:
    """Return what the guarantee leaves out."""
    return (*gaps(privacy), *map(str, privacy.get("not_accounted", ())))


def is_warning(note: str) -> bool:
    """Return whether a note on the data says what epsilon does not cover."""
    return note.lower().startswith("not covered")


def other_notes(privacy: Json) -> tuple[str, ...]:
    """Return the other notes of the statement on the data."""
    return tuple(note for note in data_notes(privacy) if not is_warning(note))


def by_hand(config: Json) -> tuple[str, ...]:
    """Return what a reader must know of how samples are made, such as knowledge put in by hand."""
    settings = config.get("config") or {}
    network = "resnet" if settings.get("networks") == "gs-wgan" else "generator"
    warp = settings.get("warp") or (settings.get(network) or {}).get("warp")
    moved = (f"synthetic images are turned, sheared, scaled and moved at random, by up to "
             f"{number(warp or 0)} of their half (warp): this is knowledge about such images that "
             "was put in by hand, not read from records")
    kept = ("of several synthetic images, one is kept to which a released classifier gives its "
            "label: images between two classes are rarer than among the records")
    images = settings.get("images", 0)
    few = f"each synthetic image is one of {images} images of its class in the generator"
    return ((moved,) * bool(warp) + (kept,) * bool(settings.get("classifier"))
            + (few,) * bool(images))


def data_notes(privacy: Json) -> tuple[str, ...]:
    """Return all notes of the statement on the data."""
    return tuple(map(str, privacy.get("data_notes", ())))


GUARANTEE = "Guarantee:"
"""The start of the line of README.txt with the stamp."""
WIDTH = 78
"""Letters of a line of README.txt."""
NAMED = 30
"""The most classes or columns that are named."""
BOUGHT = "bought under differential privacy"
"""The start of the public notes on a bought schema (`data.table.schema`)."""
HELD_OUT = "held out for tests: "
"""The start of the public note on the held-out part (`data.parts.HELD_OUT_NOTE`)."""
MEANINGS = {
    "valid": "The bound holds whatever is done with this folder.",
    "none": "This folder must not be shared as private. No bound is proven on what it reveals "
            "about the records it was made from.",
    "not covered": "Epsilon bounds what this folder reveals about the records, except for the "
                   "parts named above as not covered, which were read from private records and are "
                   "in this folder."}
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
    plain = to_json(privacy) | {"texts": TEXTS}
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
        lines.append("export THIS_FOLDER --out FOLDER   # for somebody with NumPy only")
    commands = tuple(f"python -m dpgen_jax.{line}" for line in lines)
    return Use(needs, commands, (*load, make), (*stated, look))


def page(privacy: Json, spec: Spec, use: Use) -> str:
    """Return statement.html: one file, without scripts, that loads nothing."""
    checked = checked_statement(privacy)
    return render.page(
        __package__, "statement.html", privacy=checked, stated=explained(checked),
        sentence=sentence(checked), terms=terms(checked), makes=makes(spec), made=_made(checked),
        origin=origin(checked), no_promise=NO_PROMISE, limits=limits(checked),
        sharing=sharing(checked),
        identifiers=identifiers(checked, spec), use=use, sources=sources(checked))


def readme(privacy: Json, spec: Spec, use: Use) -> str:
    """Return README.txt, of lines that a terminal shows."""
    checked = checked_statement(privacy)
    title = "Synthetic data by dpgen_jax"
    meaning = MEANINGS[guarantee.of(checked).kind]
    parts = [
        title, "=" * len(title), "", " ".join(f"{GUARANTEE} {guarantee.line(checked)}".split()), "",
        *_lines(" ".join(filter(None, (sentence(checked), beyond(checked))))), "",
        *_lines(meaning), "", *_lines(origin(checked)),
        *_section("What it makes", _lines(makes(spec))),
        *_section("Identifiers", _listed(identifiers(checked, spec))),
        *_section("What may be shared", _listed(sharing(checked))),
        *_section(NO_PROMISE, _listed(limits(checked))),
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
    """A text in lines. Breaks within it are spaces, and no line of it looks like the guarantee."""
    return [f" {line}" if line.startswith(GUARANTEE) else line
            for line in textwrap.wrap(render.shorten(text, 2000), WIDTH - 1)]


def _listed(texts: Any) -> list[str]:
    return [line for text in texts for line in textwrap.wrap(
        render.shorten(text, 1000), WIDTH, initial_indent="- ", subsequent_indent="  ")]


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", title, "-" * len(title), *lines] if lines else []


def makes(spec: Spec) -> str:
    """Return what records are, as the public schema has it."""
    if isinstance(spec, TableSpec):
        names = [column.name for column in spec.columns]
        label_of = (f"; the label is {spec.label.name}: {_few(spec.label.categories)}"
                    if spec.labelled else "")
        filled = [column.name for column in spec.identifiers if not column.numbered]
        made = [column.name for column in spec.identifiers if column.numbered]
        apart = ("".join(f"; {what}: {_few(columns)}" for what, columns in (
            ("made-up identifiers", made), ("left out", spec.left_out),
            ("a placeholder in every row", filled)) if columns))
        return f"Rows of a table with {number(len(names))} columns: {_few(names)}{label_of}{apart}."
    names = list(spec.class_names) or [str(i) for i in range(spec.classes)]
    colour = "grey" if spec.channels == 1 else "colour"
    return (f"Images of {spec.height} x {spec.width} pixels, {colour}, of "
            f"{number(spec.classes)} classes: {_few(names)}.")


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(render.shorten(name, 60) for name in names[:NAMED])
    return shown if len(names) <= NAMED else f"{shown} and {number(len(names) - NAMED)} more"


def origin(privacy: Json) -> str:
    """Return who made a release and when, as far as the statement has it."""
    by = str(privacy.get("made_by") or "")
    who = (f"Made by {by}." if by else "The statement does not name who made it.")
    day = str(privacy.get("started_on") or "")
    return f"{who} The training began on {day} (UTC)." if day else (
        f"{who} The date of the training was not recorded.")


def holder_page(root: str, earlier: Sequence[str]) -> str:
    """Return the text of the page that only the data holder may read, in private/.

    Args:
        root: The run folder.
        earlier: What the journal says of earlier runs on these records, in lines.
    """
    known = earlier or ("no earlier run on these records is known",)
    return "\n".join([
        "For the data holder only", "========================", "",
        *_lines("Do not share this page: it depends on the records in ways that epsilon does not "
                "cover."),
        *_section("Earlier runs on the same records", [
            *_listed(known), "",
            *_lines("The journal of this machine recognises records only if they are exactly the "
                    "same. Runs on other machines, and on changed files, are not counted. Promises "
                    "on the same people add up.")]),
        *_section("What may be shared", _listed((
            f"{root}/release, and nothing else in {root}.",
            "Not private/, the ledger, config.json, metrics.jsonl or evaluation/.")))]) + "\n"


def _made(privacy: Json) -> tuple[tuple[str, str], ...]:
    """Names and values of how a release was made."""
    return tuple((name, number(privacy[field])) for name, field in (
        ("made by", "made_by"), ("training began on", "started_on"),
        ("method", "method"), ("preset", "preset"), ("steps", "steps"),
        ("version of dpgen_jax", "package_version")) if privacy.get(field) is not None)


def sources(privacy: Json) -> tuple[str, ...]:
    """Return what to cite: this library, and the paper of the method."""
    paper = methods.PAPERS.get(str(privacy.get("method")))
    return (SOFTWARE, f"The method: {paper}") if paper else (SOFTWARE,)


def terms(privacy: Json) -> Table:
    """Return the table of a checked statement's terms, for a reviewer."""
    budget, size = privacy.get("budget_epsilon"), population(privacy)
    rows = [("guarantee", guarantee.of(privacy).text, "the summary that every output shows"),
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
                        "public; those that were not used for training are protected too"))
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
