"""How releases of images are evaluated in benchmarks: part by part, each kept in a file.

An evaluation that is stopped goes on with the part that is missing.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks import common
from dpgen_jax import data
from dpgen_jax.core.config import Evaluation
from dpgen_jax.core.console import tell
from dpgen_jax.core.run_folder import read_json, write_json
from dpgen_jax.evaluation import assess, utility
from dpgen_jax.evaluation.scores import summary
from dpgen_jax.run import lifecycle


@dataclasses.dataclass(frozen=True)
class Protocol:
    """A way to evaluate a release: how many images, which classifiers, which tasks.

    Attributes:
      setting: "full" or "fast", which decides how long networks are trained.
      classifiers: Names of `evaluation.utility.ALL_CLASSIFIERS`.
      seeds: Draws of the generator and seeds of the classifiers.
      samples: Synthetic images of a seed; None for those of the setting.
      tasks: As for `evaluation.utility`.
    """

    setting: str = "full"
    classifiers: tuple[str, ...] = ("cnn", "mlp")
    seeds: int = 3
    samples: int | None = None
    tasks: tuple[str, ...] = utility.TASKS

    def name(self, part: str) -> str:
        """Return the name of the file that a part of the evaluation is kept in."""
        options = (self.setting, self.samples or "all", self.seeds, *self.tasks, part)
        return "-".join(map(str, options)) + ".json"

    def with_measured(self, folder: Path) -> Protocol:
        """Return the protocol with all classifiers that a folder has results of, beside its own."""
        measured = (name for name in utility.ALL_CLASSIFIERS if (folder / self.name(name)).exists())
        return dataclasses.replace(self, classifiers=tuple(dict.fromkeys(
            (*self.classifiers, *measured))))


def part(path: Path, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what is in a file; where there is none, measure it and write it."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, measure())
    outcome: dict[str, Any] = read_json(path)
    return outcome


def usefulness(release: lifecycle.Release, dataset: data.Dataset, folder: Path, protocol: Protocol
               ) -> dict[str, Any]:
    """Measure the tasks of a protocol, one classifier after the other.

    Args:
      release: The release.
      dataset: The data set that it was trained on, with a held-out part.
      folder: A file for each classifier lies here; what exists is not measured again.
      protocol: What is measured.

    Returns:
      {task: {classifier: {metric: summary}}}, `average` of each task over the classifiers,
      `setting`, and `seconds` by classifier.
    """
    source = SimpleNamespace(sample=functools.lru_cache(protocol.seeds)(release.sample))
    result: dict[str, Any] = {"seconds": {}}
    for classifier in protocol.classifiers:
        def measure(classifier: str = classifier) -> dict[str, Any]:
            tell(f"{protocol.setting} evaluation: {classifier}")
            return common.utility_of(source, dataset, protocol.tasks, protocol.seeds,
                                     protocol.samples, protocol.setting, (classifier,))

        measured = part(folder / protocol.name(classifier), measure)
        for task in protocol.tasks:
            result.setdefault(task, {}).update(measured[task])
        result["seconds"][classifier] = sum(measured["seconds"].values())
        result |= {name: measured[name] for name in ("setting", "n_samples", "n_test", "seeds")}
    result["average"] = {task: averages(result[task]) for task in protocol.tasks}
    return result


def averages(by_classifier: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mean over classifiers of what each seed has, as `evaluation.utility` does it."""
    metrics = set.intersection(*(set(metrics) for metrics in by_classifier.values()))
    return {metric: summary(np.mean([scores[metric]["values"] for scores in by_classifier.values()],
                                    0)) for metric in sorted(metrics)}


def likeness(release: lifecycle.Release, dataset: data.Dataset, folder: Path,
             weights: Path | None = None) -> dict[str, Any]:
    """Measure the Inception Score and its kin, and FID where weights are named.

    As many images are drawn as the test part has, and at least 10,000: a Frechet distance is of the
    whole test part.

    Args:
      release: The release.
      dataset: The data set that it was trained on, with a held-out part.
      folder: The result is kept here.
      weights: The Inception-v3 weights of FID, as `evaluate --inception-weights`.

    Returns:
      The `fidelity` part of metrics.json.
    """
    with_fid = folder / "fid.json"  # which has all that the other has
    path = with_fid if weights or with_fid.exists() else folder / "fidelity.json"

    def measure() -> dict[str, Any]:
        options = Evaluation(metrics=("fidelity",), samples=max(10_000, len(dataset.y_test)),
                             inception_weights=weights)
        return assess.assess(release, dataset, options, tell)

    outcome: dict[str, Any] = part(path, measure)["fidelity"]
    return outcome
