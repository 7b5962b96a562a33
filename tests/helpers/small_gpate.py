"""A small G-PATE and its table, with numbers, nulls and a category."""

import jax
import numpy as np

from dpgen_jax.core.types import Column, TableSpec
from dpgen_jax.methods import gpate
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet

TABLE = TableSpec((Column("age", "continuous", 0, 99), Column("height", "integer", 50, 220),
                   Column("weight", "continuous", 0, 300, nullable=True),
                   Column("eyes", "categorical", categories=("blue", "brown", "green"))),
                  Column("class", "categorical", categories=("a", "b", "c")), 0)
CONFIG = gpate.Config(
    teachers=5, batch=2, projection=4, bins=4, sigma=4.0, threshold=0.4, steps=6, clip=5e-4,
    d_steps_first=2, d_optimiser=Adam(2e-2), generator=GeneratorNet(4, 16, 8),
    discriminator=DiscriminatorNet(4, 8, 8))
QUERIES, F = 8, 7
KEY = jax.random.key(7)


def rows(n=23, seed=0):
    """Encoded rows float32 [n, F] and labels."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, F)).astype(np.float32)
    x[:, 3] = x[:, 3] < 0.3
    x[:, 4:] = np.eye(3)[rng.integers(0, 3, n)]
    return x, rng.integers(0, 3, n)
