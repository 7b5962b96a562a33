"""The steps of `marginals` on exact counts and NumPy's noise: no release, and quick to repeat."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from benchmarks.tables import cells
from dpgen_jax import presets
from dpgen_jax.core.config import Budget
from dpgen_jax.core.types import Records
from dpgen_jax.methods import marginals
from dpgen_jax.methods.shared import table_plan
from dpgen_jax.methods.shared.table_models import Facts
from dpgen_jax.methods.shared.table_plan import COARSE, Plan, Public
from dpgen_jax.methods.shared.table_tree import Fit
from dpgen_jax.run import calibrate_config

EPSILON = 1.0
BLOCK = 4096
"""Records that are counted at once."""


class Simulation:
    """The steps of one run, on exact counts and NumPy's noise."""

    def __init__(self, dataset: Any, seed: int, epsilon: float = EPSILON, **changed: Any) -> None:
        config = calibrate_config.with_records(
            presets.get("marginals", "table")[1].config, len(dataset.y_train))
        # The models beyond a tree read the tables of pairs, which a tree's state does not keep.
        config = dataclasses.replace(config, model="graphical", **changed)
        self.config = calibrate_config.complete("marginals", config, dataset.spec,
                                                Budget(epsilon, cells.DELTA))
        self.dataset, self.seed, self.rng = dataset, seed, np.random.default_rng(seed)
        self.plan: Plan = marginals.plan(self.config, dataset.spec)
        self.fit, self.method = Fit(self.plan), marginals.build(self.config, dataset.spec)
        self.codes = np.asarray(jax.jit(jax.vmap(self.plan.grid.codes))(
            jax.jit(lambda x: table_plan.learned_features(dataset.spec, x))(dataset.x_train)))
        self._answer = jax.jit(jax.vmap(lambda x, y, query: self.method.answer(
            None, None, Records(x[None], y[None]), query), (0, 0, None)))
        self._absorb = jax.jit(lambda public, sums: self.method.absorb(None, public, public,
                                                                       sums)[0])

    def step(self, public: Public) -> Public:
        """Return the public state after one more step of today."""
        sums = np.zeros(self.plan.columns)
        x, y = self.dataset.x_train, self.dataset.y_train
        for first in range(0, len(y), BLOCK):
            rows = slice(first, first + BLOCK)
            cell, weight = np.split(np.asarray(
                self._answer(x[rows], y[rows], public)).reshape(len(y[rows]), -1), 2, 1)
            sums += np.bincount(cell.astype(np.int64).ravel(), weight.ravel(),
                                len(sums) + self.plan.votes)[:len(sums)]
        noise = self.rng.normal(0, (2 * self.plan.limit)**0.5 * self.plan.sigma, len(sums))
        return self._absorb(public, np.float32(sums + noise)[None])

    def first_four(self) -> Public:
        """Return the public state before the last step."""
        public = jax.jit(self.method.init)(jax.random.key(0))
        for _ in range(self.plan.steps - 1):
            public = self.step(public)
        return public

    def facts(self, public: Public) -> tuple[Facts, dict[str, Any]]:
        """Return what a fit of private-PGM reads, and the model of a tree."""
        model = jax.jit(self.method.finalize)(None, public)
        public, model = jax.tree.map(np.asarray, (public, model))
        return Facts.of(self.fit, public, model), model

    def table(self, columns: list[tuple[np.ndarray, int]], tables: float) -> np.ndarray:
        """Return the noisy masses of one of so many tables that share a step, of any axes."""
        places, sizes = zip(*columns, strict=True)
        counts = np.bincount(np.ravel_multi_index(places, sizes), minlength=int(np.prod(sizes)))
        noisy = counts + self.rng.normal(0, self.plan.noise(tables), len(counts))
        return noisy.reshape(sizes) / self.plan.records

    def pairs_again(self, facts: Facts, share: float) -> Facts:
        """Return the facts with all coarse tables of pairs released once more."""
        p, public = self.plan, facts.public
        coarse = np.take_along_axis(public.coarse_of.T, self.codes, 0)
        before, tables = facts.pair_noise**-2, len(p.couples) / share
        now = (p.noise(tables) / p.records)**-2
        pairs = {(i, j): (before * facts.pairs[i, j] + now * self.table(
            [(coarse[:, i], COARSE), (coarse[:, j], COARSE)], tables)) / (before + now)
            for i, j in facts.pairs}
        return dataclasses.replace(facts, pairs=pairs, pair_noise=(before + now)**-0.5)


def rows_of(run: Simulation, public: Public, n: int, model: str = "tree"
            ) -> tuple[np.ndarray, np.ndarray]:
    """Return n encoded rows of a model of a state, float32 [n, F], and their labels int32 [n]."""
    method = marginals.build(dataclasses.replace(run.config, model=model), run.dataset.spec)
    arrays = jax.tree.map(np.asarray, jax.jit(method.finalize)(None, public))
    if method.refinement:
        arrays = method.refinement.apply(jax.tree.map(np.asarray, public), arrays)
    labels = run.rng.choice(run.plan.classes, n, p=arrays["share"] / arrays["share"].sum())
    rows = jax.jit(method.sample)(arrays, jax.random.key(run.seed), labels.astype(np.int32))
    return np.asarray(rows), labels
