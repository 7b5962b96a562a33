"""python -m dpgen_jax.evaluate RUN_OR_RELEASE --dataset D [--schedule full] [--out DIR]

Trains classifiers on synthetic records and tests them on real ones that no training saw.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Annotated, Literal

import tyro

from dpgen_jax import cli
from dpgen_jax.errors import UserError


@dataclasses.dataclass(frozen=True)
class Evaluate:
    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_OR_RELEASE")]
    """a run folder or a release folder"""
    dataset: str = "glyphs"
    """the data set whose held-out part is tested on; as for training"""
    metrics: tuple[Literal["gen2real", "real2gen", "real2real"], ...] = ("gen2real", "real2real")
    """gen2real: trained on synthetic, tested on real; real2real: its upper bound"""
    classifiers: tuple[Literal["cnn", "mlp"], ...] = ("cnn", "mlp")
    samples: int = 10_000
    """synthetic records to train on"""
    seeds: int = 3
    schedule: Literal["fast", "full"] = "fast"
    """fixed training schedule; the last epoch counts. fast: for laptops"""
    out: Path | None = None
    """folder for metrics.json; RUN/evaluation if left out"""
    classes: int | None = None
    image_size: int | None = None


def command(argv: list[str]) -> None:
    given = cli.parse(Evaluate, argv, "python -m dpgen_jax.evaluate", __doc__.split("\n\n")[1])
    from dpgen_jax import data
    from dpgen_jax.evaluation import utility
    from dpgen_jax.run import bundle, folder

    release = bundle.load(given.source)
    held = data.load(given.dataset, classes=given.classes, image_size=given.image_size or (
        release.spec.height if given.dataset == "glyphs" else None))
    if held.x_test is None:
        raise UserError(f"{given.dataset} has no held-out part to test on; add one (for npz: "
                        "x_test and y_test)")
    if held.spec != release.spec:
        raise UserError(f"{given.dataset} holds {held.spec}, the release makes {release.spec}; "
                        "name the data set it was trained on, with the same --image-size")
    started = time.monotonic()
    found = utility.utility(
        lambda n, seed: release.sample(n, seed=seed), (held.x_test, held.y_test),
        (held.x_train, held.y_train), tasks=given.metrics, seeds=given.seeds,
        n_samples=given.samples, classifiers=given.classifiers,
        schedule=utility.SCHEDULES[given.schedule])
    out = given.out or given.source / "evaluation"
    out.mkdir(parents=True, exist_ok=True)
    folder.write_json(out / "metrics.json", found | {
        "dataset": held.name, "release": {k: release.privacy[k] for k in (
            "method", "preset", "epsilon", "delta", "relation", "unit", "noise_source")}})
    show(found)
    seconds = time.monotonic() - started
    print(f"{out / 'metrics.json'} ({given.schedule} schedule, {seconds:.0f} s)\n"
          "these numbers come from real records and are not covered by epsilon")


def show(found: dict) -> None:
    """Accuracies, a line for each task and classifier."""
    for task in ("gen2real", "real2gen", "real2real"):
        for name, scores in found.get(task, {}).items():
            score = scores["accuracy"]
            print(f"{task:9} {name:4} accuracy {score['mean']:.4f} +- {score['std']:.4f} over "
                  f"{len(score['values'])} seeds")


if __name__ == "__main__":
    cli.main(command)
