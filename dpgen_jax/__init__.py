"""Generators of synthetic images and tables under differential privacy, in JAX.

import dpgen_jax as dg
release = dg.fit("datalens", x, y, classes=10, epsilon=1.0, delta=1e-5)
x_syn, y_syn = release.sample(1000)
"""

import importlib

from dpgen_jax.version import __version__

_HOME = {
    "fit": "run.lifecycle", "repeat": "run.repeats", "load": "release.bundle",
    "Release": "release.bundle", "assess": "evaluation.assess", "over_runs": "evaluation.scores",
    "Budget": "core.config", "Runtime": "core.config",
    "Evaluation": "core.config", "UserError": "core.errors", "BudgetExceeded": "core.errors",
    "load_dataset": "data", "ImageSpec": "core.types", "Method": "core.types",
    "Private": "core.types",
}
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> object:
    # Loaded on use: a command's `--help` and the accountant need no JAX.
    if name not in _HOME:
        raise AttributeError(f"module 'dpgen_jax' has no attribute {name!r}")
    module = importlib.import_module(f"dpgen_jax.{_HOME[name]}")
    value: object = getattr(module, "load" if name == "load_dataset" else name)
    return value
