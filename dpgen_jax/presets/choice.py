"""The method and preset for data where the user names none, the short help, and reached scores.

Only public facts decide: the kind of the data, their shape, the number of records, a public name
where they have one, and epsilon. No record is looked at, so a choice costs nothing. A preset that
was made for a data set serves only that one. All other data get a general preset, whose teachers,
votes and windows are scaled to them, or a line that names the methods that have one.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import textwrap
from collections.abc import Mapping
from importlib import resources
from pathlib import PurePath
from typing import Any

from dpgen_jax import methods, presets
from dpgen_jax.core.errors import UserError, option
from dpgen_jax.core.files import Json
from dpgen_jax.core.types import ImageSpec, Spec, TableSpec
from dpgen_jax.methods import prototypes
from dpgen_jax.methods.shared.dpsgd import DpSgd
from dpgen_jax.presets import Preset

BEST_ON_TABLES = "marginals"
"""The method for tables that the others are compared with."""


@functools.cache
def reached() -> list[Json]:
    """Returns a row for each method, data set and epsilon that was measured."""
    rows: list[Json] = json.loads(
        resources.files("dpgen_jax.presets").joinpath("reached.json").read_text("utf-8"))
    return rows


def reached_on_tables(method: str) -> list[str]:
    """Returns lines that compare a method on tables with the one that is chosen for them."""
    rows = {(row["method"], row["epsilon"], row["data"].split(" (")[0]): row["score"]
            for row in reached() if row["kind"] == "table"}
    shown = []
    for epsilon in sorted({epsilon for name, epsilon, _ in rows if name == method}):
        scores = [f"{table} {score:.3f}" + _beside(rows, method, epsilon, table)
                  for (name, at, table), score in rows.items() if (name, at) == (method, epsilon)]
        shown += textwrap.wrap(f"  epsilon {epsilon:g}: {', '.join(scores)}", 99,
                               subsequent_indent="    ")
    if not shown:
        return [f"there is no result of {method} on tables; {BEST_ON_TABLES} is for them"]
    beside = f"; in brackets {BEST_ON_TABLES}" * (method != BEST_ON_TABLES)
    head = f"on tables, mean AUROC of classifiers (runs, settings: docs/tables.md){beside}:"
    return [head, *shown]


def _beside(rows: dict[tuple[str, float, str], float], method: str, epsilon: float, table: str
            ) -> str:
    """Returns the score of the method for tables on the same table, in brackets, if it was run."""
    best = rows.get((BEST_ON_TABLES, epsilon, table))
    return "" if best is None or method == BEST_ON_TABLES else f" ({best:.3f})"


DEMONSTRATION = ("datalens", "glyphs")
"""The method and the data set of a command that names neither."""
BEST = {
    "table": (
        ("marginals", "the best here for training classifiers on its rows, on average over the "
                      "tables measured at epsilon 1 (docs/tables.md)"),
        ("dpmerf", "the second best here on the tables measured at epsilon 1 (docs/tables.md)")),
    "images": (
        ("mixture", "the best here for training classifiers on its images, on average over MNIST "
                    "and Fashion-MNIST at epsilon 1 and 10 (docs/results.md; not compared on few "
                    "images)"),
        ("dpmerf", "the second best here on MNIST and Fashion-MNIST among those that train in two "
                   "minutes (docs/results.md; not compared on few images)")),
}
"""Where no method is named: by kind of data the methods in the order of preference, and why: a test
compares the reasons with benchmarks/results."""
NAMED_KINDS = ("glyphs", "digits", "breast_cancer", "adult", "femnist")
"""Kinds of data sets that are one public data set."""
ALIASES = {"mnist": "mnist", "fashion": "fashion", "fashionmnist": "fashion"}
"""Public data sets by the names of tfds and of folders, without dashes and underscores."""
EPSILON = {"table": 1.0, "images": 10.0}
"""The budget of the preset that is chosen where the user states none."""
CLASSIFIERS = ("topagg_sgd",)
"""Methods that train a classifier and no generator."""
MAX_NAMED = 12
"""The presets that a message names."""
FEWEST = 0.1
"""A general preset serves this share of the records for which it was chosen, and more."""
FAKES_OF_A_CLASS = 4
"""The fewest fakes of each class in a generator step, where a method needs some of every class."""
COUNTS = ("teachers", "critics", "clients")
"""Fields that go with the number of records."""


@dataclasses.dataclass(frozen=True)
class Facts:
    """The public facts of some data, before anything is spent on them.

    Attributes:
        name: Their public name as `public_name` gives it, or empty.
        spec: Their schema.
        records: The number of training records.
        clients: Whether they name clients, whose numbers of records are then private.
    """

    name: str
    spec: Spec
    records: int
    clients: bool = False

    @property
    def kind(self) -> str:
        """The key of `BEST`."""
        return "table" if isinstance(self.spec, TableSpec) else "images"

    def __str__(self) -> str:
        if isinstance(self.spec, ImageSpec):
            side = " x ".join(map(str, self.spec.shape))
            return f"{self.records:,} images of {side}"
        return f"{self.records:,} rows of a table"


@dataclasses.dataclass(frozen=True)
class Choice:
    """A preset that serves some data.

    Attributes:
        name: The name of the preset.
        preset: The preset, whose configuration is scaled to the data.
        why: Why it was chosen, for the first line of a run.
    """

    name: str
    preset: Preset
    why: str


def public_name(dataset: str, attribute: str | None = None) -> str:
    """Returns the name of a public data set by which presets know it, or an empty text.

    Args:
        dataset: KIND or KIND:PLACE. A folder of kind idx counts by its name, also where the files
            lie in its folder `raw`.
        attribute: The label of celeba.
    """
    kind, _, place = dataset.partition(":")
    if kind in NAMED_KINDS:
        return kind
    if kind in ("idx", "tfds"):
        parts = [part for part in PurePath(place).parts if part != "raw"] or [""]
        return ALIASES.get(parts[-1].lower().replace("-", "").replace("_", ""), "")
    if kind == "celeba":
        return attribute or ""
    return "places" if kind == "places365" else ""


def kind_of(dataset: str) -> str:
    """Returns the key of `BEST` that a data set most likely has; only npz: may hold either.

    Args:
        dataset: KIND or KIND:PLACE, or a key of `BEST`.
    """
    return "table" if dataset.partition(":")[0] in (
        "table", "csv", "parquet", "adult", "breast_cancer") else "images"


def method_for(kind: str) -> tuple[str, str]:
    """Returns the method that does best on a kind of data, of those that are here, and why."""
    name, why = next(pair for pair in BEST[kind] if pair[0] in methods.NAMES
                     and _general(presets.all_of(pair[0]), kind))
    return name, why


def provisional(method: str, dataset: str) -> str:
    """Returns the preset whose values flags have before the data are read, as `--help` shows them.

    Args:
        dataset: KIND or KIND:PLACE, or `federated`.
    """
    known, name = presets.all_of(method), public_name(dataset)
    wanted = (name or "federated" if dataset == "federated" else name,
              kind_of(dataset))
    return next((one for what in wanted for one, preset in known.items()
                 if what and preset.dataset == what), next(iter(known)))


def preset_for(method: str, facts: Facts, epsilon: float | None = None, tuned: bool = False
               ) -> Choice:
    """Chooses the preset of a method for data of which the user named none.

    Args:
        epsilon: The budget; None where the user states none.
        tuned: Whether the user sets fields of the configuration, and so knows what is wanted.

    Raises:
        UserError: No preset of the method is for such data; it names the methods that have one.
    """
    epsilon = EPSILON[facts.kind] if epsilon is None else epsilon
    if not epsilon > 0:
        raise UserError(f"epsilon must be above 0, got {epsilon}; for example "
                        f"{option('epsilon', 1)}")
    known = presets.all_of(method)
    if own := {name: preset for name, preset in known.items() if _is_of(preset, facts)}:
        name = min(own, key=lambda name: _distance(own[name].epsilon, epsilon))
        return Choice(name, own[name], f"which was tuned for {facts.name}")
    general = _general(known, facts.kind)
    if not general:
        raise UserError(f"{method} has no preset for {facts}{_others(facts)}{_named(known, facts)}")
    enough = {name: preset for name, preset in general.items() if _serves(preset, facts)}
    name = min(enough or general, key=lambda name: _unlike(general[name], facts, epsilon))
    preset = general[name]
    records = _records(preset, facts)
    if not _serves(preset, facts) and not tuned and (others := _others(facts)):
        raise UserError(
            f"{method} has no preset for {facts}: {name} was chosen for {preset.records:,}, of "
            f"which these are less than a tenth{others}{_named(known, facts)}")
    delta = min(preset.delta, 10.0 ** math.floor(-math.log10(10 * records)))
    return Choice(name, dataclasses.replace(preset, config=_scaled(preset, facts), delta=delta),
                  f"a general one for {'tables' if facts.kind == 'table' else 'images'}")


def _is_of(preset: Preset, facts: Facts) -> bool:
    """Whether a preset was chosen for these very data: their name, shape, classes and number."""
    return (preset.dataset == facts.name != "" and preset.spec.shape == facts.spec.shape
            and preset.spec.classes == facts.spec.classes
            and 2 * _records(preset, facts) > preset.records)


def _general(known: Mapping[str, Preset], kind: str) -> dict[str, Preset]:
    return {name: preset for name, preset in known.items() if preset.dataset == kind}


def _serves(preset: Preset, facts: Facts) -> bool:
    """Whether the records are not far fewer than those that a preset was chosen for."""
    return _records(preset, facts) >= FEWEST * preset.records


def _records(preset: Preset, facts: Facts) -> int:
    """The number of records by which a preset is chosen and scaled, if that is public."""
    private = preset.config.protects_clients and facts.clients
    return preset.records if private else facts.records


def _unlike(preset: Preset, facts: Facts, epsilon: float) -> float:
    """How far a general preset is from data and budget: 0 where it was chosen for such."""
    sizes = [float(math.prod(spec.shape)) for spec in (preset.spec, facts.spec)
             if isinstance(spec, ImageSpec)]
    return (_distance(preset.epsilon, epsilon)
            + _distance(preset.records, _records(preset, facts))
            + (_distance(*sizes) if len(sizes) == 2 else 0.0))


def _distance(one: float, other: float) -> float:
    """How far two positive numbers are apart, as a ratio: 0 where they are equal."""
    if one == other:
        return 0.0
    if not (0 < one < math.inf and 0 < other < math.inf):
        return 1e3
    return abs(math.log(one / other))


def _others(facts: Facts) -> str:
    """Names the methods whose presets are for such data; empty where there are none."""
    fitting = [method for method in methods.NAMES if method not in CLASSIFIERS and any(
        _serves(preset, facts) and preset.epsilon < math.inf
        for preset in _general(presets.all_of(method), facts.kind).values())]
    return f"; methods that have one: {', '.join(fitting)}" if fitting else ""


def _named(known: Mapping[str, Preset], facts: Facts) -> str:
    """Names the presets of a method that are for data of this kind, to be named by the user."""
    names = [name for name, preset in known.items()
             if isinstance(preset.spec, TableSpec) == (facts.kind == "table")]
    return f"; or name a preset: {', '.join(names[:MAX_NAMED])}" if names else ""


def _scaled(preset: Preset, facts: Facts) -> Any:
    """The configuration of a general preset, for fewer records and for another shape."""
    records = _records(preset, facts)
    config, share = preset.config, min(1.0, records / preset.records)
    fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    changes: dict[str, Any] = {
        name: max(1, round(share * fields[name])) for name in COUNTS if fields.get(name)}
    if isinstance(config, prototypes.Config):
        changes |= _scaled_prototypes(preset, facts)
    if isinstance(config, DpSgd):  # whose batch is sampled from the records
        changes["batch"] = min(config.batch, max(1, records // 2))
    if name := config.fakes_of_all_classes:
        changes[name] = max(fields[name], FAKES_OF_A_CLASS * facts.spec.classes)
    size, model = math.prod(facts.spec.shape), math.prod(preset.spec.shape)
    if fields.get("windows") and isinstance(preset.spec, ImageSpec) and size != model:
        side = min(facts.spec.shape[:2]) / preset.spec.height
        changes["windows"] = tuple(round(window * side) for window in fields["windows"])
    if fields.get("projection"):
        changes["projection"] = min(fields["projection"], size)
    return dataclasses.replace(config, **changes)


def _scaled_prototypes(preset: Preset, facts: Facts) -> dict[str, Any]:
    """How many prototypes there are, and how far they move.

    Fewer records of a class teach fewer prototypes. A teacher answers for the same number of them,
    so for a larger share where there are fewer; and images of more values are further apart.
    """
    config, model = preset.config, preset.spec
    share = (_records(preset, facts) / facts.spec.classes) / (preset.records / model.classes)
    images = max(1, round(config.images * math.sqrt(min(1.0, share))))
    fewer = images * facts.spec.classes / (config.images * model.classes)
    apart = math.sqrt(math.prod(facts.spec.shape) / math.prod(model.shape))
    return {"images": images, "step_size": float(f"{config.step_size * apart * fewer:.2g}")}
