"""One file per system: `Config`, `mechanism(config, spec)`, `build(config, spec, runtime)`."""

import difflib
import importlib
from types import ModuleType

from dpgen_jax.types import UserError

NAMES = ("datalens", "gpate", "gswgan", "dpac", "pategan", "dpgan", "dpcgan", "dpmerf", "dpmerf_ae",
         "fedavg_gan", "dcgan", "topagg_sgd", "projected_dpgan")


def get(name: str) -> ModuleType:
    """The module of a method. Errors: UserError naming the nearest known name."""
    if name not in NAMES:
        raise UserError(f"unknown method {name!r}{nearest(name, NAMES)}; known: {', '.join(NAMES)}")
    return importlib.import_module(f"dpgen_jax.methods.{name}")


def nearest(name: str, known: tuple[str, ...] | list[str]) -> str:
    """', did you mean X?' or nothing."""
    close = difflib.get_close_matches(name, known, 1)
    return f", did you mean {close[0]!r}?" if close else ""
