"""Named configurations, one file per method: `PRESETS`, the first of which is the default."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from dpgen_jax.types import ImageSpec, UserError


@dataclasses.dataclass(frozen=True)
class Preset:
    """config; spec: the data it was made for; epsilon, delta: its target; records: of that data
    set; source: paper table, command, or benchmark of this repository."""

    config: Any
    spec: ImageSpec
    epsilon: float
    delta: float
    records: int
    source: str


def all_of(method: str) -> dict[str, Preset]:
    """The presets of a method by name; the first is the default."""
    return importlib.import_module(f"dpgen_jax.presets.{method}").PRESETS


def get(method: str, name: str | None = None) -> tuple[str, Preset]:
    """(name, preset). Errors: UserError naming the nearest and all known presets."""
    from dpgen_jax.methods import nearest

    presets = all_of(method)
    name = name or next(iter(presets))
    if name not in presets:
        raise UserError(f"unknown preset {name!r} of {method}{nearest(name, list(presets))}; "
                        f"known: {', '.join(presets)}")
    return name, presets[name]
