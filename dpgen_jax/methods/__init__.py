"""The registry of methods, one file for each.

A method's file has `Config`, `mechanism(config, spec)`, `build(config, spec, runtime)` and
`PRESETS`; where its paper has another accounting, `published(config, delta)`; and where its records
can be drawn without JAX, `for_numpy(config, spec, model)` (`release.numpy_samplers`). A new method
adds its file, a file of tests, and its row in `about.ABOUT`.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

from dpgen_jax.accountant.published import Published
from dpgen_jax.core.errors import UserError, nearest
from dpgen_jax.methods.about import ABOUT, described
from dpgen_jax.methods.shared.config import MethodConfig

NAMES = tuple(ABOUT)
OF_PROTOTYPES = {"gpate": "gradients", "datalens": "signs", "pategan": "votes"}
"""Teachers without networks were a setting of these methods: what they answered in each."""
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


def as_named_now(described: dict[str, Any]) -> dict[str, Any]:
    """Returns the content of a config.json of any version, by today's names of methods and fields.

    Teachers without networks were a setting of G-PATE, DataLens and PATE-GAN, `nearest`. Where a
    method was renamed, `method_then` is its name in the file and in its statement.
    """
    method, config = described.get("method"), described.get("config")
    if not isinstance(config, dict) or method not in OF_PROTOTYPES:
        return described
    nearest = config.get("nearest")
    if not isinstance(nearest, dict) or not nearest.get("images"):
        return described
    kept = ("teachers", "sigma", "steps", "clip", "top_k", "step_size", "ema", "frequencies")
    fields = {name: config[name] for name in kept if name in config}
    if method == "pategan":
        fields = {"frequencies": 10} | fields  # its default, which was not written
    fields |= nearest | {
        "answer": OF_PROTOTYPES[method], "final_rate": config.get("g_final_rate", 1.0),
        "images_per_teacher": nearest.get("images_per_teacher", 15),
        "warp": (config.get("generator") or {}).get("warp", 0.0)}
    return described | {"method": "prototypes", "method_then": method, "config": fields}


class _Listing(ModuleType):
    """This package, which can also be called, as `dpgen_jax.methods()`."""

    def __call__(self) -> dict[str, str]:
        """Returns for each method one line: for what data, for whom, and what answers."""
        return described()


sys.modules[__name__].__class__ = _Listing
