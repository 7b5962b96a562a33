"""Data sets: their readers, schemas and parts. The names below are those of `data.sources`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpgen_jax.data.base import Dataset, Uncovered
    from dpgen_jax.data.parts import without_empty_slots
    from dpgen_jax.data.sources import (
        RECORDED,
        SOURCES,
        SPECS,
        Source,
        content,
        from_arrays,
        kind_of,
        load,
        recorded,
        require_applicable,
        require_label,
    )

__all__ = ["RECORDED", "SOURCES", "SPECS", "Dataset", "Source", "Uncovered", "content",
           "from_arrays", "kind_of", "load", "recorded", "require_applicable", "require_label",
           "without_empty_slots"]


def __getattr__(name: str) -> object:
    # Readers are loaded on use: whoever draws from a release needs only columns and texts.
    if name not in __all__:
        raise AttributeError(f"module 'dpgen_jax.data' has no attribute {name!r}")
    value: object = getattr(importlib.import_module("dpgen_jax.data.sources"), name)
    return value
