"""Trains a preset at full scale, evaluates it, and writes what came out.

    python -m benchmarks.images --preset mnist-eps1 --dataset idx:mnist --out runs/mnist-eps1
    python -m benchmarks.images --method gpate --preset mnist-eps1-sum --dataset idx:mnist --out RUN

The run folder may exist: a finished or interrupted run is gone on with. Classifiers are trained on
synthetic images with a fixed schedule and judged once, after the last epoch, on the test images;
nothing is chosen on them. `validation_accuracy` is measured on held-out synthetic images.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from benchmarks import common
from dpgen_jax import api, cli, data, presets
from dpgen_jax.config import Budget, Runtime
from dpgen_jax.evaluation import utility
from dpgen_jax.run import folder, metrics


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--method", default="datalens")
    parser.add_argument("--preset", required=True)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--out", type=Path, required=True, help="run folder")
    parser.add_argument("--moments", default="bfloat16", help="as in Runtime")
    parser.add_argument("--devices", type=int, default=0, help="as in Runtime")
    parser.add_argument("--samples", type=int, help="those of the setting if left out")
    parser.add_argument("--seeds", type=int, default=3, help="of the classifiers")
    parser.add_argument("--setting", default="full", choices=utility.SETTINGS)
    parser.add_argument("--classifiers", nargs="+", default=["cnn", "mlp"],
                        choices=utility.CLASSIFIERS)
    return parser.parse_args()


def train(given: argparse.Namespace, loaded: data.Dataset) -> api.Release:
    """The release; a run that exists is gone on with."""
    name, chosen = presets.get(given.method, given.preset)
    return api.run(api.Run(
        given.method, name, chosen.config, Budget(chosen.epsilon, chosen.delta),
        Runtime(devices=given.devices, moments=given.moments, checkpoint_minutes=20,
                keep_checkpoints=1), given.out,
        resume=(given.out / "config.json").exists()), loaded, say=lambda s: print(s, flush=True))


def main() -> None:
    given = arguments()
    cli.use_all_cores()
    loaded = data.load(given.dataset)
    where = common.machine()
    release = train(given, loaded)
    found = common.usefulness(release, loaded, utility.TASKS, given.seeds, given.samples,
                              given.setting, given.classifiers)
    rows = metrics.read(given.out / "metrics.jsonl")
    start = "images" if given.method == "datalens" else given.method
    name = f"{start}-{loaded.name}-{given.preset}"
    shown = ["--method", given.method, "--preset", given.preset, "--dataset", given.dataset,
             "--setting", given.setting]
    common.write(common.record("images", shown, range(given.seeds), {
        "dataset": loaded.name, "run": folder.read_json(given.out / "config.json"),
        "privacy": release.privacy, "training_seconds": rows[-1]["seconds"],
        "randomness_of_training": release.privacy["noise_source"], "evaluation": found,
    }, where), common.RESULTS / f"{name}.json")
    shutil.copy(given.out / "release" / "samples.png", common.RESULTS / f"{name}.png")


if __name__ == "__main__":
    cli.main(lambda argv: main())
