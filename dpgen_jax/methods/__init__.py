"""The registry of methods, one file for each.

A method's file has `Config`, `mechanism(config, spec)` and `build(config, spec, runtime)`, and,
where its paper has another accounting, `published(config, delta)`. A new method adds its file, a
file of presets, a file of tests, and its row in `about.ABOUT`.
"""

import importlib
import sys
from types import ModuleType

from dpgen_jax.accountant.published_formula import Published
from dpgen_jax.core.errors import UserError, nearest
from dpgen_jax.methods.about import ABOUT, described
from dpgen_jax.methods.shared.config import MethodConfig

NAMES = tuple(ABOUT)
PAPERS = {name: about.paper for name, about in ABOUT.items()}
"""The work to cite for each method."""


def get(name: str) -> ModuleType:
    """Returns the module of a method.

    Raises:
        UserError: for an unknown name, with the nearest known one.
    """
    if name not in NAMES:
        raise UserError(f"unknown method {name!r}{nearest(name, NAMES)}; known: {', '.join(NAMES)}")
    return importlib.import_module(f"dpgen_jax.methods.{name}")


def published(name: str, config: MethodConfig, delta: float) -> Published | None:
    """Returns the accounting of a method's paper for a complete configuration.

    It is None for a method or a configuration that no paper has accounted.
    """
    formula = getattr(get(name), "published", None)
    return None if formula is None else formula(config, delta)


class _Listing(ModuleType):
    """This package, which can also be called, as `dpgen_jax.methods()`."""

    def __call__(self) -> dict[str, str]:
        """Returns for each method one line: for what data, for whom, and what answers."""
        return described()


sys.modules[__name__].__class__ = _Listing
