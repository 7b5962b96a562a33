"""Named configurations of every method: `PRESETS` of its module, the first of which is the default.

`presets.choice` chooses a method and a preset for data where the user names none.
"""

from __future__ import annotations

import sys
from types import ModuleType

from dpgen_jax import methods
from dpgen_jax.core.errors import option
from dpgen_jax.core.terms import at_most
from dpgen_jax.core.types import UserError
from dpgen_jax.methods.shared.presets import GLYPHS, Preset, numbers

__all__ = ["GLYPHS", "Preset", "all_of", "get", "listed", "numbers"]


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


def all_of(method: str) -> dict[str, Preset]:
    """Returns the presets of a method by name; the first is the default."""
    presets: dict[str, Preset] = methods.get(method).PRESETS
    return presets


def get(method: str, name: str | None = None) -> tuple[str, Preset]:
    """Returns a preset and its name; an old name is reported on stderr.

    Args:
        name: of the preset, new or old (`RENAMED` of its module); the first if left out.

    Raises:
        UserError: for an unknown name, with the nearest and all known ones.
    """
    from dpgen_jax.core.console import tell
    from dpgen_jax.core.errors import nearest

    presets = all_of(method)
    name = name or next(iter(presets))
    renamed: dict[str, str] = getattr(methods.get(method), "RENAMED", {})
    if name in renamed:
        tell(f"note: preset {name} of {method} is now {renamed[name]}", sys.stderr)
        name = renamed[name]
    old = methods.OF_PROTOTYPES.get(method)
    if name not in presets and old and name.endswith("-nearest"):
        raise UserError(f"preset {name} of {method} now belongs to another method: train "
                        f"prototypes with {option('preset', name.removesuffix('nearest'))}{old}")
    if name not in presets:
        raise UserError(f"unknown preset {name!r} of {method}{nearest(name, list(presets))}; "
                        f"known: {', '.join(presets)}")
    return name, presets[name]


class _Listing(ModuleType):
    """This package, which can also be called, as `dpgen_jax.presets("gpate")`."""

    def __call__(self, method: str) -> dict[str, str]:
        """Returns for each preset of a method one line: its promise, its data, and its source.

        Raises:
            UserError: There is no such method.
        """
        methods.get(method)
        return {name: f"{_sized(preset)}; {preset.source}"
                for name, preset in all_of(method).items()}


sys.modules[__name__].__class__ = _Listing
