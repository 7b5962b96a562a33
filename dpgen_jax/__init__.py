"""Generators of synthetic images and tables under differential privacy, in JAX.

import dpgen_jax as dg
release = dg.fit(x, y=y, classes=10, epsilon=1.0, delta=1e-5)
x_syn, y_syn = release.sample(1000)

`dg.methods()` lists the methods, `dg.presets(METHOD)` the settings of one.
"""

import importlib
from types import FunctionType

from dpgen_jax.version import __version__

_HOME = {
    "fit": "run.fitting", "resume": "run.fitting", "repeat": "run.fitting",
    "load": "release.bundle", "Release": "release.bundle",
    "assess": "evaluation.assess", "over_runs": "evaluation.assessment",
    "Assessment": "evaluation.assessment", "Finding": "evaluation.results",
    "complete": "evaluation.completion",
    "Budget": "core.config", "Runtime": "core.config",
    "Evaluation": "core.config", "UserError": "core.errors", "BudgetExceeded": "core.errors",
    "load_dataset": "data", "ImageSpec": "core.types", "Method": "core.types",
    "Private": "core.types", "Dataset": "data", "draft_schema": "data.table.frames",
    "methods": "", "presets": "", "account": "", "audit": "", "evaluate": "",
}
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> object:
    # Loaded on use: a command's `--help` and the accountant need no JAX.
    if name not in _HOME:
        raise AttributeError(f"module 'dpgen_jax' has no attribute {name!r}")
    if not _HOME[name]:  # a module that can be called
        return importlib.import_module(f"dpgen_jax.{name}")
    module = importlib.import_module(f"dpgen_jax.{_HOME[name]}")
    value: object = getattr(module, "load" if name == "load_dataset" else name)
    if not isinstance(value, FunctionType):
        return value
    from dpgen_jax.core import errors

    return errors.speaking_python(value, name)


def __dir__() -> list[str]:
    return list(__all__)
