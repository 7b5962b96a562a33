"""Settings of the evaluation of images: the tasks, the classifiers, and how much of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dpgen_jax.core.config import Evaluation
from dpgen_jax.core.strict_json import Json
from dpgen_jax.evaluation import classical
from dpgen_jax.evaluation.networks import FAST, FULL, Schedule
from dpgen_jax.nets import classifiers as nets

NETWORKS = {"cnn": nets.CNN, "mlp": nets.MLP}
CLASSIFIERS = (*NETWORKS, *classical.CLASSIFIERS)
TASKS = ("gen2real", "real2gen", "real2real")
VALIDATION_SHARE = 0.1
"""The share of the training images that is held out."""


def held_out_count(n: int) -> int:
    """Return how many of n training images are held out: a tenth, and one at least."""
    return max(1, round(VALIDATION_SHARE * n))


@dataclasses.dataclass(frozen=True)
class Setting:
    """How much an evaluation does; nothing in it depends on what is measured."""

    name: str
    description: str
    """The start of the text that metrics.json has on the setting."""
    n_samples: int
    """Synthetic images of a seed, and the most real ones to train on."""
    seeds: int
    schedule: Schedule
    """How networks are trained."""
    classifiers: tuple[str, ...]
    """The classifiers that are trained."""
    classical_rows: Mapping[str, int]
    """The most images that a slow classical classifier learns from; the others learn from all."""
    tasks: tuple[str, ...] = TASKS
    """The tasks that are measured."""
    optional: tuple[str, ...] = ("xgboost",)
    """Classifiers that are left out, with a note, where they are not installed."""

    def info(self, names: Sequence[str]) -> Json:
        """Describe the setting of an evaluation, for metrics.json.

        Args:
          names: The classifiers that were trained.

        Returns:
          {"name", "text", "schedule", "classical_rows"}; the last for those classifiers that
          learned from fewer images than there were.
        """
        n_train = self.n_samples - held_out_count(self.n_samples)
        rows = {name: self.classical_rows[name] for name in names
                if self.classical_rows.get(name, n_train) < n_train}
        text = (f"{self.description}: {self.n_samples:,} synthetic images a seed, seeds: "
                f"{self.seeds}; networks trained for {self.schedule.epochs} epochs or "
                f"{self.schedule.min_steps:,} steps, whichever is more, the MLP "
                f"{self.schedule.mlp_times} times as long")
        if rows:
            text += "; images that slow classifiers learn from: " + ", ".join(
                f"{name} {n:,}" for name, n in rows.items())
        return {"name": self.name, "text": text, "schedule": dataclasses.asdict(self.schedule),
                "classical_rows": rows}


def setting_for(options: Evaluation) -> Setting:
    """Return the setting that a user's options ask for."""
    setting = SETTINGS["fast" if options.fast else "full"]
    setting = dataclasses.replace(
        setting, n_samples=options.samples or setting.n_samples,
        seeds=options.seeds or setting.seeds,
        tasks=tuple(task for task in TASKS if task in options.metrics))
    if not options.classifiers:
        return setting
    return dataclasses.replace(setting, classifiers=options.classifiers, optional=())


def _rows(slow: int, boosted: int) -> dict[str, int]:
    """Return the most images that slow classifiers, and the boosted ones, learn from."""
    return {"adaboost": boosted, "gradient_boosting": boosted} | dict.fromkeys(
        ("bagging", "decision_tree", "linear_svc", "logistic_regression", "random_forest",
         "xgboost"), slow)


SETTINGS = {setting.name: setting for setting in (
    Setting("full", "the full evaluation", 60_000, 3, FULL, CLASSIFIERS, _rows(10_000, 2_500)),
    Setting("fast", "a fast evaluation for laptops, whose numbers are lower and whose averages are "
            "over fewer classifiers than those of the full one", 10_000, 2, FAST,
            ("cnn", "mlp", "bernoulli_nb", "gaussian_nb", "lda", "decision_tree"),
            _rows(5_000, 1_000)))}
