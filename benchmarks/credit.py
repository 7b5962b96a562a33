"""The reasons why generators learn little of frauds from the credit card sample.

    python -m benchmarks.credit                       # goes on where it stopped
    python -m benchmarks.credit published untrained   # with these rows alone

Only the training records of the sample are read: run r of a row trains on four fifths of them and
is judged on the fifth that is left, fold r modulo 5, by the classifiers of the G-PATE paper. The
synthetic rows are drawn with three shares of frauds: as released (noisy counts), as they are among
the records, and one half. The folds are by the hash of `--test-fraction`.

Rows without a generator say what AUROC is made of here: of random directions, of real records, and
of noisy class means. Rows without noise ("inf") promise nothing. The record, results/credit.json,
is written after every run; a row whose case was changed begins anew.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq
from sklearn.metrics import roc_auc_score

from benchmarks import common
from dpgen_jax import data, methods, presets
from dpgen_jax.accountant import composition
from dpgen_jax.cli import terminal
from dpgen_jax.core.config import Budget, Runtime, to_json
from dpgen_jax.data.parts import held_out_hashes
from dpgen_jax.evaluation.prediction import CLASSIFIERS, score
from dpgen_jax.evaluation.scores import summary
from dpgen_jax.release.bundle import Release
from dpgen_jax.run import lifecycle

DATA = "csv:creditcard_20pct/train.csv.gz"
FOLDS = 5
SAMPLES = 10_000
OUT = common.RESULTS / "credit.json"
Rows = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Case:
    """A row: a preset and what is changed in it.

    Attributes:
        about: The question that it answers.
        method: The method.
        preset: Its preset.
        fields: Fields of the configuration that differ.
        epsilon: The budget; None for the preset's.
        class_epsilon: The part of it for the class counts; None for the preset's.
        runs: Trainings.
        classifiers: Their names.
    """

    about: str
    method: str
    preset: str
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)
    epsilon: float | None = None
    class_epsilon: float | None = None
    runs: int = 3
    classifiers: tuple[str, ...] = ("lr", "mlp")


PAPERS = ("lr", "adaboost", "bagging", "mlp")
NOISELESS: dict[str, Any] = {"sigma": 0.0}
CASES = {
    "published": Case("the paper's settings, networks and epsilon", "gpate", "credit",
                      runs=5, classifiers=PAPERS),
    "published-inf": Case("the steps that were planned for it, without noise", "gpate", "credit",
                          NOISELESS, math.inf, 0.0),
    "published-inf-1000": Case("1,000 steps without noise", "gpate", "credit",
                               {"sigma": 0.0, "steps": 1000}, math.inf, 0.0),
    "nonprivate-10": Case("Table 7: 10 teachers, 1,000 steps without noise", "gpate",
                          "credit-nonprivate", classifiers=PAPERS),
    "gan": Case("Table 7: the GAN, one discriminator and 1,000 steps", "dcgan", "credit"),
    "sample": Case("this library's preset of 2,100 teachers", "gpate", "credit-sample"),
    "sample-inf": Case("the same without noise", "gpate", "credit-sample", NOISELESS, math.inf,
                       0.0),
    "sample-eps5": Case("five times the budget, which stands for five times the records", "gpate",
                        "credit-sample", {}, 5.0, 0.05),
    "teachers-60-inf": Case("60 teachers without noise: about one fraud for each", "gpate", "table",
                            NOISELESS | {"teachers": 60}, math.inf, 0.0),
    "dpmerf": Case("DP-MERF at the same budget", "dpmerf", "table"),
}


def folds(dataset: data.Dataset) -> np.ndarray:
    """Return the fold of each training record, int [n]."""
    return np.array([int.from_bytes(record[:8].tobytes(), "little") * FOLDS >> 64
                     for record in held_out_hashes(dataset.x_train, dataset.y_train)])


def release_of(case: Case, dataset: data.Dataset) -> tuple[Release, float]:
    """Return a release, and the seconds that it took."""
    name, preset = presets.get(case.method, case.preset)
    fields = dict(case.fields)
    if fields == NOISELESS and preset.config.steps is None:  # the steps that the budget allows
        fields["steps"] = planned_steps(case, preset)
    epsilon = preset.epsilon if case.epsilon is None else case.epsilon
    part = preset.class_epsilon if case.class_epsilon is None else case.class_epsilon
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        release = lifecycle.run(lifecycle.Resolved(
            case.method, name, dataclasses.replace(preset.config, **fields),
            Budget(epsilon, 1e-5, part), Runtime(), Path(folder) / "run"), dataset)
    return release, time.perf_counter() - started


def planned_steps(case: Case, preset: presets.Preset) -> int:
    """Return the steps that a preset takes at its own epsilon."""
    from dpgen_jax.run import calibrate_config

    budget = Budget(preset.epsilon, preset.delta, preset.class_epsilon)
    complete = calibrate_config.complete(case.method, preset.config, preset.spec, budget)
    return int(complete.steps)


def judged(release: Release, fit: Rows, test: Rows, names: tuple[str, ...]) -> dict[str, Any]:
    """Return {shares: {classifier: AUROC}} of one release."""
    counts = {"released": release.class_counts,
              "true": tuple(np.bincount(fit[1], minlength=2).tolist()), "half": None}
    result = {}
    for shares, shown in counts.items():
        if shares == "released" and shown is None:
            continue
        synthetic = dataclasses.replace(release, class_counts=shown).encoded(SAMPLES)
        result[shares] = {name: score(name, synthetic, test, 2).auroc for name in names}
        result[shares]["frauds"] = int(synthetic[1].sum())
    return result


def run_of(case: Case, dataset: data.Dataset, run: int) -> dict[str, Any]:
    """Return what one run of a row measured."""
    fold = folds(dataset)
    inside, outside = fold != run % FOLDS, fold == run % FOLDS
    fit, test = ((dataset.x_train[part], dataset.y_train[part]) for part in (inside, outside))
    release, took = release_of(case, dataclasses.replace(
        dataset, x_train=fit[0], y_train=fit[1], x_test=None, y_test=None))
    return {"epsilon": to_json(release.privacy["epsilon"]), "steps": release.privacy["steps"],
            "training_seconds": took, "auroc": judged(release, fit, test, case.classifiers)}


def question(case: dict[str, Any]) -> dict[str, Any]:
    """Return what a row asks, whatever the number of its runs and its description."""
    return {name: value for name, value in case.items() if name not in ("runs", "about")}


def row(case: Case, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the record of a row, with the summary of its runs so far."""
    names = runs[0]["auroc"]
    return {"case": to_json(case), "runs": runs, "auroc": {
        shares: {name: summary([run["auroc"][shares][name] for run in runs])
                 for name in names[shares]} for shares in names}}


def random_directions(dataset: data.Dataset, n: int = 2000) -> dict[str, Any]:
    """Return the AUROC of random linear scores on standardised records, which no data made."""
    x = (dataset.x_train - dataset.x_train.mean(0)) / (dataset.x_train.std(0) + 1e-9)
    fraud = x[dataset.y_train == 1]
    other = x[dataset.y_train == 0][:5000]
    rows = np.concatenate([fraud, other])
    truth = np.arange(len(rows)) < len(fraud)
    rng = np.random.default_rng(0)
    scores = np.array([roc_auc_score(truth, rows @ direction)
                       for direction in rng.normal(size=(n, rows.shape[1]))])
    best = scores[:n // 10 * 10].reshape(-1, 10).max(1)
    return {"about": "random linear scores: what chance gives", "scores": n,
            "auroc": {"mean": float(scores.mean()), "std": float(scores.std())},
            "share_above_0.9": float(np.mean(scores > 0.9)),
            "mean_of_the_best_of_ten": float(best.mean())}


def untrained(dataset: data.Dataset, n: int = 20) -> dict[str, Any]:
    """Return the AUROC of classifiers that learn from generators as they are initialised."""
    preset = presets.get("gpate", "credit")[1]
    config = dataclasses.replace(preset.config, steps=1)
    method, fold, values = methods.get("gpate").build(config, dataset.spec), folds(dataset), []
    labels = jnp.arange(SAMPLES) % 2

    @jax.jit
    def rows(key: jax.Array) -> jax.Array:
        assert method.init is not None and method.sample is not None
        return method.sample(method.finalize(key, method.init(key)), key, labels)

    for run in range(n):
        made = np.asarray(rows(jax.random.key(run)), np.float64), np.asarray(labels)
        test = dataset.x_train[fold == run % FOLDS], dataset.y_train[fold == run % FOLDS]
        values.append({name: score(name, made, test, 2).auroc for name in ("lr", "mlp")})
    return {"about": "generators of the preset credit that have learnt nothing, half frauds",
            "auroc": {name: summary([v[name] for v in values]) for name in values[0]}}


def real(dataset: data.Dataset, frauds: int | None) -> dict[str, Any]:
    """Return the AUROC of classifiers that learn from real records, with so many frauds."""
    fold, values = folds(dataset), []
    for outside in range(FOLDS):
        rng = np.random.default_rng(outside)
        place = np.flatnonzero(fold != outside)
        y = dataset.y_train[place]
        picked = np.concatenate([rng.permutation(place[y == 1])[:frauds],
                                 rng.permutation(place[y == 0])[:SAMPLES]])
        fit, test = ((dataset.x_train[part], dataset.y_train[part])
                     for part in (picked, fold == outside))
        values.append({name: score(name, fit, test, 2).auroc for name in CLASSIFIERS})
    return {"about": f"real records, {frauds or 'all'} frauds",
            "auroc": {name: summary([v[name] for v in values]) for name in values[0]}}


def noisy_means(dataset: data.Dataset, epsilon: float = 1.0) -> dict[str, Any]:
    """Return the AUROC of the direction from the noisy sum of records to that of frauds.

    A calculation and no release. One Gaussian mechanism gives both sums: a record of values in
    [0, 1], less 1/2, is at most half the root of its features long, so replacing it moves the two
    sums by at most twice that length, which it does within one class.
    """
    fold, values = folds(dataset), []
    length = math.sqrt(dataset.x_train.shape[1]) / 2
    noise = 2 * length / brentq(lambda mu: composition.gaussian_delta(mu, epsilon) - 1e-5, 1e-3, 10)
    for run in range(10 * FOLDS):
        rng = np.random.default_rng(run)
        inside = fold != run % FOLDS
        x, y = dataset.x_train[inside] - 0.5, dataset.y_train[inside]
        sums = [x[y == label].sum(0) + rng.normal(0, noise, x.shape[1]) for label in (0, 1)]
        direction = sums[1] / (y == 1).sum() - sums[0] / (y == 0).sum()
        test = dataset.x_train[~inside] - 0.5
        values.append(roc_auc_score(dataset.y_train[~inside] == 1, test @ direction))
    return {"about": f"the direction between noisy class means at epsilon {epsilon:g}; the number "
                     "of frauds is taken as known", "auroc": summary(values)}


FLOORS = {"random": random_directions, "untrained": untrained, "real": lambda d: real(d, None),
          "real-10-frauds": lambda d: real(d, 10), "noisy-means": noisy_means}


def write(known: dict[str, Any], where: dict[str, Any]) -> None:
    """Write the record, its rows in the order of this file."""
    results = {name: known[name] for name in (*FLOORS, *CASES) if name in known}
    common.write(common.record("credit", [], [], results, where), OUT)


def main(argv: list[str]) -> None:
    """Run what is missing of all rows, or of those that are named, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("rows", nargs="*", choices=[*FLOORS, *CASES, []])
    args = parser.parse_args(argv)
    terminal.use_all_cores()
    dataset, where = data.load(DATA, schema="creditcard"), common.machine()
    known = json.loads(OUT.read_text())["results"] if OUT.exists() else {}
    for name in args.rows or [*FLOORS, *CASES]:
        print(name, flush=True)
        if name in FLOORS and name not in known:
            known[name] = FLOORS[name](dataset)
            write(known, where)
        elif name in CASES:
            case, earlier = CASES[name], known.get(name, {})
            same = question(earlier.get("case", {})) == question(to_json(case))
            runs = earlier["runs"] if same else []
            while len(runs) < case.runs:
                runs.append(run_of(case, dataset, len(runs)))
                known[name] = row(case, runs)
                write(known, where)


if __name__ == "__main__":
    terminal.main(main)
