"""Named configurations, one file per method: `PRESETS`, the first of which is the default."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from dpgen_jax.types import Column, Spec, TableSpec, UserError


@dataclasses.dataclass(frozen=True)
class Preset:
    """config; spec: the data it was made for; epsilon, delta: its target; records: of that data
    set; source: paper table, command, or benchmark of this repository; class_epsilon: of epsilon,
    for noisy class counts; dataset: the kind of data set for which it is the default; paper_steps:
    those that the paper says it ran for this epsilon."""

    config: Any
    spec: Spec
    epsilon: float
    delta: float
    records: int
    source: str
    class_epsilon: float = 0.0
    dataset: str | None = None
    paper_steps: int | None = None


def numbers(features: int) -> TableSpec:
    """A table of numbers with two classes, for planning without data."""
    columns = tuple(Column(f"column {i}", "continuous", 0.0, 1.0) for i in range(features))
    return TableSpec(columns, Column("class", "categorical", categories=("0", "1")), features)


def all_of(method: str) -> dict[str, Preset]:
    """The presets of a method by name; the first is the default."""
    return importlib.import_module(f"dpgen_jax.presets.{method}").PRESETS


def get(method: str, name: str | None = None, dataset: str = "") -> tuple[str, Preset]:
    """(name, preset); without a name the default of the data set (KIND or KIND:PLACE), else the
    first. Errors: UserError naming the nearest and all known presets."""
    from dpgen_jax.methods import nearest

    presets = all_of(method)
    kind = dataset.partition(":")[0]
    fitting = [n for n, preset in presets.items() if kind and preset.dataset == kind]
    name = name or (fitting or list(presets))[0]
    if name not in presets:
        raise UserError(f"unknown preset {name!r} of {method}{nearest(name, list(presets))}; "
                        f"known: {', '.join(presets)}")
    return name, presets[name]
