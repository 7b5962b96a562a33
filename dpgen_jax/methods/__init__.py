"""The registry of methods, one file for each.

A method's file has `Config`, `mechanism(config, spec)` and `build(config, spec, runtime)`, and,
where its paper has another accounting, `published(config, delta)`. A new method adds its file, a
file of presets, a file of tests, and its name below.
"""

import importlib
from types import ModuleType
from typing import Any

from dpgen_jax.accountant.published_formula import Published
from dpgen_jax.core.errors import UserError, nearest

NAMES = ("datalens", "gpate", "gswgan", "dpac", "pategan", "dpgan", "dpcgan", "dpmerf", "dpmerf_ae",
         "fedavg_gan", "dcgan", "topagg_sgd", "projected_dpgan", "dpsinkhorn",
         "marginals", "mixture")


def get(name: str) -> ModuleType:
    """Returns the module of a method.

    Raises:
        UserError: for an unknown name, with the nearest known one.
    """
    if name not in NAMES:
        raise UserError(f"unknown method {name!r}{nearest(name, NAMES)}; known: {', '.join(NAMES)}")
    return importlib.import_module(f"dpgen_jax.methods.{name}")


def published(name: str, config: Any, delta: float) -> Published | None:
    """Returns the accounting of a method's paper for a complete configuration.

    It is None for a method or a configuration that no paper has accounted.
    """
    formula = getattr(get(name), "published", None)
    return None if formula is None else formula(config, delta)
