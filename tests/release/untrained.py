"""Releases of random weights: they cost nothing to make, and sample as trained ones do."""

from __future__ import annotations

import numpy as np
from flax import traverse_util

from dpgen_jax import methods
from dpgen_jax.core.types import Spec
from dpgen_jax.release import bundle
from dpgen_jax.release.bundle import Release

PRIVACY = {"epsilon": 1.0, "delta": 1e-5, "relation": "replace-one", "unit": "record",
           "noise_source": "os-entropy", "guarantee": "(epsilon, delta) replace-one"}


def release(method: str, spec: Spec, counts: tuple[int, ...] | None = None, **fields) -> Release:
    """A release of a method, with this configuration; variances are above 0."""
    config = methods.get(method).Config(**fields)
    rng = np.random.default_rng(0)
    arrays = {name: np.abs(rng.normal(size=array.shape)) + 0.1 if name.endswith("var")
              else rng.normal(size=array.shape) * 0.5
              for name, array in bundle.arrays_of_model(method, config, spec).items()}
    kinds = bundle.arrays_of_model(method, config, spec)
    arrays = {name: array.astype(np.float32) if kinds[name].dtype.kind == "f" else  # or places
              np.arange(array.size, dtype=np.int32).reshape(array.shape) % 2
              for name, array in arrays.items()}
    return Release(method, config, spec, traverse_util.unflatten_dict(arrays, sep="/"), PRIVACY,
                   counts)
