"""Measure what it costs to protect all rows of a person, and how the limit on rows weighs in.

    python -m benchmarks.subjects

Rows of Adult are given to people who do not exist: each has rows of one class, as many as a
geometric number of mean 2, or 6 in the rarer class, so that who has many rows is unlike the others.
DP-MERF is trained at the same epsilon once for single rows, which says nothing of a person, and for
whole people at several limits. Classifiers are tested on rows split from the training part.
The noise is from the operating system; the seed deals rows to people and draws synthetic ones.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from benchmarks import common
from dpgen_jax import data, presets
from dpgen_jax.core.config import Budget
from dpgen_jax.data import parts
from dpgen_jax.data.table import subjects
from dpgen_jax.evaluation.scores import summary
from dpgen_jax.run import lifecycle

VALIDATION = 4000
"""Rows of the training part on which classifiers are tested."""
MEANS = (2, 6)
"""The mean number of rows of a person of each class."""
LIMITS = (None, 1, 4, 16)
"""The most rows of a person; None where single rows are protected."""


def people(y: np.ndarray, seed: int) -> list[str]:
    """Return the person of each row, who has rows of one class."""
    rng = np.random.default_rng(seed)
    names = np.empty(len(y), object)
    for label, mean in enumerate(MEANS):
        rows = rng.permutation(np.flatnonzero(y == label))
        sizes = rng.geometric(1 / mean, len(rows))
        owner = np.repeat(np.arange(len(sizes)), sizes)[:len(rows)]
        names[rows] = [f"{label}-{i}" for i in owner]
    return names.tolist()


def trained(dataset: data.Dataset, epsilon: float) -> tuple[lifecycle.Release, float]:
    """Return a release of the general preset of tables, and the seconds of the processor."""
    started = time.process_time()
    name, preset = presets.get("dpmerf", "table")
    with tempfile.TemporaryDirectory() as folder:
        release = lifecycle.run(lifecycle.Resolved(
            "dpmerf", name, preset.config,
            Budget(epsilon, 1e-5, preset.class_epsilon), out=Path(folder) / "run"), dataset,
            lambda line: print(line, flush=True))
    return release, time.process_time() - started


def measured(release: lifecycle.Release, x: np.ndarray, y: np.ndarray, seed: int
             ) -> dict[str, float]:
    """Return AUROCs on real rows, and how far means of features and the share of a class are off.

    Args:
      release: The release.
      x: Encoded rows [n, F].
      y: Their classes.
      seed: Of the draw.
    """
    made, labels = release.encoded(10_000, seed=seed)
    scores = {"mean_of_features_off": float(np.abs(made.mean(0) - x.mean(0)).mean()),
              "share_off": float(abs(labels.mean() - y.mean()))}
    for name, model in (("logistic_regression", LogisticRegression(max_iter=300)),
                        ("random_forest", RandomForestClassifier(100, random_state=seed))):
        scores[f"auroc_{name}"] = float(
            roc_auc_score(y, model.fit(made, labels).predict_proba(x)[:, 1]))
    return scores


def main(argv: list[str] | None = None) -> None:
    """Run all cases and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--runs", "--repeats", type=int, default=3)
    args = parser.parse_args(argv)
    where, full = common.machine(), data.load("adult:adult")
    validation = np.isin(np.arange(full.count),
                         np.random.default_rng(0).permutation(full.count)[:VALIDATION])
    train = parts.only(full, ~validation)
    x, y = full.x_train[validation], full.y_train[validation]
    cases: list[dict[str, Any]] = []
    for limit in LIMITS:
        scores = []
        for seed in range(args.runs):
            owners = subjects.numbered("person", limit or 1, people(train.y_train, seed))
            release, seconds = trained(
                dataclasses.replace(train, subjects=owners if limit else None), args.epsilon)
            scores.append(measured(release, x, y, seed) | {"cpu_seconds": seconds})
        cases.append({"unit": "subject" if limit else "record", "rows_per_unit": limit,
                      "units": release.privacy.get("subjects", train.count),
                      **{name: summary([run[name] for run in scores]) for name in scores[0]}})
        print(cases[-1], flush=True)
    words = [f"--epsilon={args.epsilon:g}", f"--runs={args.runs}"]
    common.write(common.record("subjects", words, range(args.runs), {
        "epsilon": args.epsilon, "delta": 1e-5, "rows": train.count, "cases": cases}, where))


if __name__ == "__main__":
    main()
