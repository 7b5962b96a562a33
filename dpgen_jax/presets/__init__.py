"""Named configurations, one file per method: `PRESETS`, the first of which is the default."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Collection, Mapping
from types import ModuleType
from typing import Any

from dpgen_jax import methods
from dpgen_jax.core.errors import option
from dpgen_jax.core.terms import at_most
from dpgen_jax.core.types import Column, ImageSpec, Spec, TableSpec, UserError

GLYPHS = ImageSpec(12, 12, 1, 10)


@dataclasses.dataclass(frozen=True)
class Preset:
    """A named configuration.

    Attributes:
        config: the method's Config.
        spec: schema of the data for which it was chosen.
        epsilon: its target.
        delta: its target.
        records: of the data for which it was chosen.
        source: paper table, command, or benchmark of this repository.
        class_epsilon: part of epsilon for noisy class counts.
        dataset: the data that it serves where the user names no preset: a public name, as mnist
            (`choice.public_name`), or "images" or "table", which is any other data; None: none.
        paper_steps: the steps that the paper says it ran for this epsilon.
        differs: from the paper or code that `source` names, a line each; ("none",) where nothing
            does, and empty where the settings are this library's.
        kind: the kind of data set of which `options` are, as celeba.
        options: how that data set is read: keywords of `data.load`; the size is that of `spec`.
    """

    config: Any
    spec: Spec
    epsilon: float
    delta: float
    records: int
    source: str
    class_epsilon: float = 0.0
    dataset: str | None = None
    paper_steps: int | None = None
    differs: tuple[str, ...] = ()
    kind: str = ""
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def stated(presets: Mapping[str, Preset], differs: Mapping[str, tuple[str, ...]]
           ) -> dict[str, Preset]:
    """Returns presets that say what all presets of their source have in common.

    Args:
        presets: by name.
        differs: by source, lines that come before those of a preset itself.
    """
    return {name: dataclasses.replace(
        preset, differs=(*differs.get(preset.source, ()), *preset.differs))
        for name, preset in presets.items()}


def serving(presets: Mapping[str, Preset], own: Collection[str], general: Mapping[str, str]
            ) -> dict[str, Preset]:
    """Returns presets with what they serve where the user names none.

    Args:
        presets: by name.
        own: the names of those that serve the data set by whose name theirs begins.
        general: {name of a new preset, which serves any other data: the one that it is like}.
    """
    made = {name: dataclasses.replace(preset, dataset=name.partition("-")[0])
            if name in own else preset for name, preset in presets.items()}
    for name, model in general.items():
        kind = "table" if isinstance(presets[model].spec, TableSpec) else "images"
        made[name] = dataclasses.replace(
            presets[model], dataset=kind, kind="", options={}, differs=(),
            source=f"this library: {model}, carried over to other data")
    return made


def _sized(preset: Preset) -> str:
    """The budget of a preset and its number of records, in words."""
    return (f"epsilon {at_most(preset.epsilon)}, delta {at_most(preset.delta, 3)}, "
            f"{preset.records:,} records")


def listed(method: str) -> list[str]:
    """Returns the presets of a method in words: a line of each, its source, and what differs."""
    lines = []
    for name, preset in all_of(method).items():
        differs = [f"    differs: {line}" for line in preset.differs]
        lines += [f"{name}: {_sized(preset)}", f"    source: {preset.source}", *differs]
    return lines


def numbers(features: int, classes: int = 2) -> TableSpec:
    """Returns the schema of a table of numbers, for planning without data."""
    columns = tuple(Column(f"column {i}", "continuous", 0.0, 1.0) for i in range(features))
    names = tuple(map(str, range(classes)))
    return TableSpec(columns, Column("class", "categorical", categories=names), features)


def _module(method: str) -> ModuleType:
    """The module of a method's presets."""
    return importlib.import_module(f"dpgen_jax.presets.{method}")


def all_of(method: str) -> dict[str, Preset]:
    """Returns the presets of a method by name; the first is the default."""
    presets: dict[str, Preset] = _module(method).PRESETS
    return presets


def get(method: str, name: str | None = None) -> tuple[str, Preset]:
    """Returns a preset and its name; an old name is reported on stderr.

    Args:
        method: name of the method.
        name: of the preset, new or old (`RENAMED` of its module); the first if left out.

    Raises:
        UserError: for an unknown name, with the nearest and all known ones.
    """
    from dpgen_jax.core.console import tell
    from dpgen_jax.core.errors import nearest

    presets = all_of(method)
    name = name or next(iter(presets))
    renamed: dict[str, str] = getattr(_module(method), "RENAMED", {})
    if name in renamed:
        tell(f"note: preset {name} of {method} is now {renamed[name]}", sys.stderr)
        name = renamed[name]
    old = methods.OF_PROTOTYPES.get(method)
    if name not in presets and old and name.endswith("-nearest"):
        raise UserError(f"preset {name} of {method} is now a preset of another method: train "
                        f"prototypes with {option('preset', name.removesuffix('nearest'))}{old}")
    if name not in presets:
        raise UserError(f"unknown preset {name!r} of {method}{nearest(name, list(presets))}; "
                        f"known: {', '.join(presets)}")
    return name, presets[name]


class _Listing(ModuleType):
    """This package, which can also be called, as `dpgen_jax.presets("gpate")`."""

    def __call__(self, method: str) -> dict[str, str]:
        """Returns for each preset of a method one line: its promise, its data, and its source.

        Args:
            method: The name of the method.

        Raises:
            UserError: There is no such method.
        """
        methods.get(method)
        return {name: f"{_sized(preset)}; {preset.source}"
                for name, preset in all_of(method).items()}


sys.modules[__name__].__class__ = _Listing
