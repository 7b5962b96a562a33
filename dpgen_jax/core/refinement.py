"""A public estimate after a method's `finalize`: another package's, or one that takes long."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Refinement:
    """A public estimate on the host, after `Method.finalize`.

    It reads released values alone and costs no privacy.

    Attributes:
        check: ``check() -> str``, a line that says what it takes at most; raises UserError where
            it cannot be made here. It is called before anything is spent.
        apply: ``apply(public, model) -> model``, from arrays of NumPy to such arrays of the same
            names, shapes and types. Where it raises, or changes one of these, the model of
            `Method.finalize` is released, and a resumed run refines it at no cost.
    """

    check: Callable[[], str]
    apply: Callable[[Any, Any], Any]
