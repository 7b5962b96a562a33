"""privacy.json for people: statement.html for a lawyer and a reviewer, and README.txt.

All of it is made of the statement and of the public schema. Its words are those of `guarantee` and
`explain`, which the report of an evaluation uses too.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

from dpgen_jax import methods
from dpgen_jax.core.atomic import json_bytes
from dpgen_jax.core.config import to_json
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import Spec, TableSpec
from dpgen_jax.release import explain, guarantee, render
from dpgen_jax.release.render import NOTHING, Cell, Table, bound, label, number
from dpgen_jax.version import __version__

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
    """How a folder is used.

    Attributes:
        needs: What has to be installed.
        commands: Lines for a terminal.
        code: Lines of Python; none where commands do all.
        files: The name of each file, and what it is.
    """

    needs: str
    commands: tuple[str, ...]
    code: tuple[str, ...]
    files: tuple[tuple[str, str], ...]


def files(privacy: Json, spec: Spec, use: Use) -> dict[str, bytes]:
    """Returns the files of a release that state its guarantee.

    Args:
        privacy: What `statement.statement` returned.
        spec: The public schema of the records.
        use: How the folder is used.

    Returns:
        The bytes of privacy.json, statement.html and README.txt, by name; all say the same.
    """
    plain = to_json(privacy)
    return {"privacy.json": json_bytes(plain), "statement.html": page(plain, spec, use).encode(),
            "README.txt": readme(plain, spec, use).encode()}


def of_release(spec: Spec, classifies: bool) -> Use:
    """Returns how a release folder is used.

    Args:
        spec: The public schema of the records.
        classifies: Whether it holds a classifier.
    """
    table = isinstance(spec, TableSpec)
    load = ("import dpgen_jax as dg", 'release = dg.load("THIS_FOLDER")')
    arrays = ("generator.safetensors, config.json",
              "the weights, and all settings" if classifies else "the generator, and all settings")
    stated = (("statement.html, README.txt", "the promise, for people"),
              ("privacy.json", "the same for programs, with each event that was charged"), arrays)
    needs = f"Python 3.11 or later, and dpgen_jax {__version__} or a later version"
    if classifies:
        return Use(needs, (), (*load, "classes = release.predict(x)"), stated)
    make = ("table = release.frame(1000)          # a pandas DataFrame" if table else
            "images, labels = release.sample(1000)")
    look = (("samples.csv, marginals.png", "a first look; every row is synthetic") if table else
            ("samples.png", "a first look; every image is synthetic, a row for each class"))
    commands = tuple(f"python -m dpgen_jax.{line}" for line in (
        f"sample THIS_FOLDER --n 1000 --out synthetic.{'csv' if table else 'npz'}",
        "export THIS_FOLDER --out FOLDER   # for somebody with NumPy alone"))
    return Use(needs, commands, (*load, make), (*stated, look))


def page(privacy: Json, spec: Spec, use: Use) -> str:
    """Returns statement.html: one file, without scripts, that loads nothing.

    Args:
        privacy: The content of privacy.json.
        spec: The public schema of the records.
        use: How the folder is used.
    """
    checked = explain.checked(privacy)
    return render.page(
        __package__, "statement.html", privacy=checked, guarantee=guarantee.of(checked).text,
        sentence=explain.sentence(checked), alarms=explain.alarms(checked),
        gaps=explain.gaps(checked), cautions=explain.cautions(checked),
        promise=explain.promise(checked), terms=terms(checked), ledger=ledger(checked),
        not_covered=explain.not_covered(checked), assumptions=explain.assumptions(checked),
        notes=explain.other_notes(checked), makes=makes(spec), made=_made(checked), use=use,
        sources=sources(checked))


def readme(privacy: Json, spec: Spec, use: Use) -> str:
    """Returns README.txt, of lines that a terminal shows.

    Args:
        privacy: The content of privacy.json.
        spec: The public schema of the records.
        use: How the folder is used.
    """
    checked = explain.checked(privacy)
    title = "Synthetic data by dpgen_jax"
    meaning = MEANINGS[guarantee.of(checked).kind]
    parts = [
        title, "=" * len(title), "", " ".join(f"Guarantee: {guarantee.line(checked)}".split()), "",
        *_lines(" ".join(filter(None, (explain.sentence(checked), explain.beyond(checked))))), "",
        *_lines(meaning),
        *_section("What it makes", _lines(makes(spec))),
        *_section("Not covered by the guarantee", _listed(explain.not_covered(checked))),
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
    """Returns what records are, as the public schema has it.

    Args:
        spec: The schema.
    """
    if isinstance(spec, TableSpec):
        names = [column.name for column in spec.columns]
        label_of = (f"; the label is {spec.label.name}: {_few(spec.label.categories)}"
                    if spec.labelled else "")
        return f"Rows of a table with {number(len(names))} columns: {_few(names)}{label_of}."
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
    """Returns what to cite: this library, and the paper of the method.

    Args:
        privacy: The content of privacy.json.
    """
    paper = methods.PAPERS.get(str(privacy.get("method")))
    return (SOFTWARE, f"The method: {paper}") if paper else (SOFTWARE,)


def terms(privacy: Json) -> Table:
    """Returns the table of the statement's terms, for a reviewer.

    Args:
        privacy: A statement that `explain.checked` returned.
    """
    budget, size = privacy.get("budget_epsilon"), explain.population(privacy)
    rows = [("guarantee", guarantee.of(privacy).text, "the stamp that every output shows"),
            ("epsilon", bound(privacy["epsilon"]), "bounds the ratio of probabilities by its "
             f"exponential; {_fixed(privacy)}"),
            ("delta", bound(privacy["delta"]), "is added to this bound"),
            ("relation", str(privacy["relation"]), explain.neighbours(privacy)),
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
    """Returns the table of the events of a statement, or None without events.

    Args:
        privacy: The content of privacy.json.
    """
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
