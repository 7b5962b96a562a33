"""Presets: named configurations of a method, which its module lists in `PRESETS`."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from dpgen_jax.core.types import Column, ImageSpec, Spec, TableSpec

GLYPHS = ImageSpec(12, 12, 1, 10)
DIGITS = ImageSpec(8, 8, 1, 10)
MNIST = ImageSpec(28, 28, 1, 10)


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
        differs: by source, lines that come before those of a preset itself.
    """
    return {name: dataclasses.replace(
        preset, differs=(*differs.get(preset.source, ()), *preset.differs))
        for name, preset in presets.items()}


def serving(presets: Mapping[str, Preset], own: Collection[str], general: Mapping[str, str]
            ) -> dict[str, Preset]:
    """Returns presets with what they serve where the user names none.

    Args:
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


def numbers(features: int, classes: int = 2) -> TableSpec:
    """Returns the schema of a table of numbers, for planning without data."""
    columns = tuple(Column(f"column {i}", "continuous", 0.0, 1.0) for i in range(features))
    names = tuple(map(str, range(classes)))
    return TableSpec(columns, Column("class", "categorical", categories=names), features)
