"""A small table of people, whose difficulty is known."""

import dataclasses

import numpy as np

from dpgen_jax.core.types import Column, TableSpec
from dpgen_jax.data.table import transform

SPEC = TableSpec((
    Column("age", "integer", 0, 100), Column("sex", "categorical", categories=("f", "m")),
    Column("pay", "continuous", -10.0, 30.0, nullable=True),
    Column("mark", "ordinal", categories=("low", "mid", "high"))),
    Column("ill", "categorical", categories=("no", "yes")), 4)
THREE = dataclasses.replace(SPEC, label=Column("kind", "categorical", categories=("a", "b", "c")))


def table(n, seed=0, signal=6.0, spec=SPEC):
    """Rows whose class moves the age and the mark; signal 0: labels that mean nothing."""
    rng = np.random.default_rng(seed)
    y = np.resize(np.arange(spec.classes), n).astype(np.int32)
    shift = signal * (y - (spec.classes - 1) / 2)
    age = np.clip(np.round(50 + 6 * shift + 8 * rng.normal(size=n)), 0, 100)
    pay = np.where(rng.random(n) < 0.2, np.nan, rng.uniform(-10, 30, n))
    mark = np.clip(np.round(1 + shift / 3 + 0.2 * rng.normal(size=n)), 0, 2)
    codes = np.stack([age, rng.integers(0, 2, n), pay, mark], 1)
    return transform.encode(spec, codes).astype(np.float32), y
