"""Records for DP-MERF and its variant on codes."""

import numpy as np

from dpgen_jax.core.types import Column, ImageSpec, Records, TableSpec

IMAGE = ImageSpec(4, 4, 1, 3)
TABLE = TableSpec((Column("a", "continuous", 0.0, 1.0),
                   Column("b", "categorical", categories=("x", "y"))),
                  Column("class", "categorical", categories=("0", "1", "2")), 2)


def records(spec, n, seed=0):
    rng = np.random.default_rng(seed)
    y = (np.arange(n) % spec.classes).astype(np.int32)
    if spec is TABLE:
        x = np.concatenate([rng.uniform(0, 1, (n, 1)), np.eye(2)[rng.integers(0, 2, n)]], 1)
        return Records(x.astype(np.float32), y)
    return Records(rng.integers(0, 256, (n, *spec.shape), dtype=np.uint8), y)
