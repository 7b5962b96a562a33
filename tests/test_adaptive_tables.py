"""The simulation of a further round: it chooses what a model lacks, and its noise is the plan's."""

import dataclasses
import importlib.util
import json

import numpy as np
import pytest

from benchmarks import adaptive_tables
from benchmarks.tables import data
from benchmarks.tables.simulation import Simulation
from dpgen_jax.methods.shared import table_models

pytestmark = pytest.mark.long


def test_tables_that_are_done_are_not_simulated_again(tmp_path):
    path, flags = tmp_path / "found.json", ["--tables", "loans", "--runs", "1"]
    assert adaptive_tables.earlier(path, flags) == {}
    path.write_text(json.dumps({"command": "python -m x " + " ".join(flags),
                                "results": {"tables": {"loans": 1}}}))
    assert adaptive_tables.earlier(path, flags) == {"loans": 1}
    assert adaptive_tables.earlier(path, [*flags[:-1], "2"]) == {}


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mbi") is None,
                    reason='pip install "dpgen_jax[graphical]"')
def test_the_pair_that_a_model_lacks_is_chosen_and_counted(monkeypatch):
    monkeypatch.setattr(adaptive_tables, "DRAWN", 5000)
    run = Simulation(data._of_a_law("loans", 1000), 0, epsilon=20.0)
    facts, _ = run.facts(run.first_four())
    p, parent = run.plan, facts.public.parent
    first = table_models.estimated(p, table_models.measurements(facts, np.full(p.d, -1)))
    pair = next((i, j) for i, j in facts.pairs if j < p.d and parent[i] != j and parent[j] != i)
    lacking = dataclasses.replace(facts, pairs=facts.pairs | {
        pair: facts.pairs[pair] + np.kron([[1, -1], [-1, 1]], np.full((2, 2), 0.2))})
    assert adaptive_tables.chosen(run, lacking, first)[0] == pair

    measured, = adaptive_tables.further(run, facts, [pair], 0.5)
    groups = np.take_along_axis(facts.public.group_of.T, np.take_along_axis(
        facts.public.bin_of.T, run.codes, 0), 0)
    axes = [run.dataset.y_train] * (p.edge_classes > 1) + [groups[:, i] for i in pair]
    counts = np.zeros([p.classes] * (p.edge_classes > 1) + [p.groups] * 2)
    np.add.at(counts, tuple(axes), 1)
    off = np.asarray(measured.noisy_measurement) * p.records - counts.ravel()
    assert off.std() == pytest.approx(p.noise(2.0), rel=0.5) and measured.stddev > 0

    x, y, cells = adaptive_tables.drawn(run, facts, first, 3000)
    assert x.shape == (3000, *run.dataset.spec.shape) and cells.shape == (3000, p.d)
    real = np.bincount(run.dataset.y_train) / p.records
    np.testing.assert_allclose(np.bincount(y, minlength=2) / 3000, real, atol=0.08)
