"""A run folder that is written by the library's own parts, without a training, and its audit."""

from __future__ import annotations

import tempfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from dpgen_jax.accountant.smooth_sensitivity import Sanitiser
from dpgen_jax.aggregation.noise import OsBits
from dpgen_jax.audit.findings import Findings, Verdict
from dpgen_jax.audit.folder import spending
from dpgen_jax.audit.folder.reading import opened
from dpgen_jax.core import run_folder
from dpgen_jax.core.config import Budget, Runtime, to_json
from dpgen_jax.core.types import Private
from dpgen_jax.methods import gpate
from dpgen_jax.private import kept_votes, records
from dpgen_jax.run import resume, side_releases
from planted import toy

STEPS, TEACHERS = 4, 40
CONFIG = gpate.Config(teachers=TEACHERS, batch=2, projection=3, bins=4, sigma=20.0,
                      sigma_ratio=2.0, threshold=0.5, steps=STEPS,
                      sanitiser=Sanitiser(8.0, 0.025, 10.0, 12.0, 3.0))
BUDGET = Budget(100.0, 1e-5, class_epsilon=0.5)


def written(root: Path) -> None:
    """Writes the folder of a run of Confident-GNMax whose votes are drawn at random.

    The order of what is written is that of a run: class counts, then for each round the charge, the
    votes, the settlement and the row of metrics.
    """
    public = to_json({
        "method": "gpate", "preset": None, "dataset": "toy", "records": 12,
        "spec": toy.SPEC, "config": CONFIG, "budget": BUDGET, "runtime": Runtime(),
        "seed": None, "data_notes": (), "not_covered": (), "simulated": ""})
    files = resume.create(root, public)
    sealed = records.seal(*toy.neighbours()[0], toy.SPEC)
    origin = resume.Origin(files)
    resume.partition(origin, sealed, lambda key: toy.dealt(), None)
    mechanism, rng = gpate.mechanism(CONFIG, toy.SPEC), np.random.default_rng(0)
    with resume.open_ledger(origin, mechanism, public) as ledger, \
            run_folder.MetricsWriter(files.metrics) as rows:
        counted = side_releases.Counted(sealed, toy.SPEC)
        side_releases.class_counts(files, ledger, counted, BUDGET.class_epsilon, OsBits(),
                                   lambda line: None)
        for step in range(STEPS):
            charged = mechanism.pending_charge(ledger.spent(), ledger.steps_charged, 1)
            ticket = ledger.reserve(charged, 1)
            shape = (1, CONFIG.batch, CONFIG.projection)
            counts = rng.multinomial(TEACHERS, rng.dirichlet(np.full(CONFIG.bins, 0.05), shape))
            answered = (counts.max(-1) > TEACHERS / 2).astype(np.int32)
            sums = jnp.asarray(counts.reshape(1, *mechanism.shape), jnp.int32)
            kept_votes.append(files.votes, Private(sums), answered)
            ledger.settle(ticket, mechanism.actual_charge(answered, charged), 1)
            rows.write({"step": step + 1, "epsilon": ledger.epsilon(),
                        "charged": ledger.steps_charged})


def audited() -> str:
    """Writes the folder, and returns what an audit of what it spent found to fail."""
    found = Findings()
    with tempfile.TemporaryDirectory() as place:
        root = Path(place, "run")
        written(root)
        run = opened(root)
        spending.chained(run, found)
        spending.of_this_run(run, found)
        spending.as_the_mechanism_says(run, found)
        spending.against_releases(run, found)
        spending.class_counts(run, found)
        spending.purchases_of_the_data(run, found)
    return "; ".join(f"{finding.check}: {finding.detail}" for finding in found.made
                     if finding.verdict == Verdict.FAILS)

