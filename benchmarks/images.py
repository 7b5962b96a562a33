"""Train a preset at full scale, and evaluate the release.

    python -m benchmarks.images --preset mnist-eps1 --dataset idx:mnist --out runs/mnist-eps1
    python -m benchmarks.images --method gpate --preset mnist-eps1-sum --dataset idx:mnist --out RUN
    python -m benchmarks.images --preset hair-eps1 --dataset celeba:CelebA --out runs/hair-eps1

The run folder may exist: an interrupted training goes on from its checkpoint, a finished one is not
repeated, and neither is a part of the evaluation that is in RUN/benchmark. Classifiers are trained
on synthetic images with a fixed schedule and tested once, after the last epoch, on the test images;
nothing is chosen on them. `validation_accuracy` is measured on held-out synthetic images. Beside
accuracy the record has the Inception Score by a network that learned from the real images. The
record, and a picture of samples, are results/images-DATA-PRESET.json, or METHOD-DATA-PRESET.json.
With `--repeats 3` it holds means over trainings, and how far these differ.
`benchmarks.papers` trains and evaluates its rows by the functions of this module.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import jax
import numpy as np

from benchmarks import common, training
from dpgen_jax import data, methods, presets
from dpgen_jax.accountant.events import add_up
from dpgen_jax.cli import terminal
from dpgen_jax.core import run_folder
from dpgen_jax.core.config import Budget, Evaluation, Runtime, State, to_json
from dpgen_jax.core.console import tell
from dpgen_jax.core.errors import UserError
from dpgen_jax.core.run_folder import RunFolder, read_json, write_json
from dpgen_jax.evaluation import assess, utility
from dpgen_jax.evaluation.assessment import over_runs
from dpgen_jax.evaluation.results import TASKS, summary
from dpgen_jax.run import costs, lifecycle, resolve

# How releases of images are evaluated in benchmarks: part by part, each kept in a file.

@dataclasses.dataclass(frozen=True)
class Protocol:
    """A way to evaluate a release: how many images, which classifiers, which tasks.

    Attributes:
      samples: Synthetic images of a seed; None for those of the setting.
    """

    setting: str = "full"
    classifiers: tuple[str, ...] = ("cnn", "mlp")
    seeds: int = 3
    samples: int | None = None
    tasks: tuple[str, ...] = TASKS

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
      folder: A file for each classifier lies here; what exists is not measured again.

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
      weights: The Inception-v3 weights of FID, as `evaluate --inception-weights`.
    """
    with_fid = folder / "fid.json"  # which has all that the other has
    path = with_fid if weights or with_fid.exists() else folder / "fidelity.json"

    def measure() -> dict[str, Any]:
        options = Evaluation(metrics=("fidelity",), samples=max(10_000, len(dataset.y_test)),
                             inception_weights=weights)
        return assess.assess(release, dataset, options, tell)

    outcome: dict[str, Any] = part(path, measure)["fidelity"]
    return outcome


def train(request: lifecycle.Resolved, dataset: data.Dataset) -> lifecycle.Release:
    """Train, or go on with a run that exists, or load one that is finished; return the release.

    Checkpoints of a finished run are not kept: one of thousands of teachers takes many gigabytes.

    Args:
      request: The run; it goes on where its folder `out` holds one that was begun.
    """
    assert request.out is not None
    finished = request.out / "benchmark" / "trained.json"
    means = to_json({"method": request.method, "dataset": dataset.name, "config": request.config,
                     "budget": request.budget})
    if finished.exists():
        if not within(read_json(finished).get("request", {}), means):
            raise UserError(f"{request.out} holds a run of another method, data set, preset or "
                            "budget; name another --out")
        return lifecycle.load(request.out)
    release = training.run(request, dataset)
    finished.parent.mkdir(exist_ok=True)
    kinds = [device.device_kind for device in jax.devices() if device.platform != "cpu"]
    write_json(finished, {"steps": release.privacy["steps"], "request": means,
                          **({"accelerators": kinds} if kinds else {})})
    shutil.rmtree(RunFolder(request.out).checkpoints, ignore_errors=True)
    return release


def within(before: Any, now: Any) -> bool:
    """Return whether all that was asked for before is so now; later fields had their defaults."""
    if isinstance(before, dict) and isinstance(now, dict):
        return all(name in now and within(value, now[name]) for name, value in before.items())
    return bool(before == now)


def votes(run: Path) -> dict[str, Any] | None:
    """Return how far teachers agreed and how many queries were answered, or None.

    These shares depend on private records, belong to the data holder, and are in no release. They
    are written to results here only because the data of benchmarks are public.
    """
    files = RunFolder(run)
    stored = read_json(files.config)
    if not files.votes.exists() or not stored["config"]["sigma"]:
        return None
    return {"of public data": "such shares are private to the holder of private data",
            **costs.data_dependent_reading(run).record()["votes"]}


def results(release: lifecycle.Release, dataset: data.Dataset, run: Path) -> dict[str, Any]:
    """Return what a record has on a run, but for its evaluation."""
    rows = run_folder.read(run / "metrics.jsonl")
    finished = run / "benchmark" / "trained.json"
    trained = read_json(finished) if finished.exists() else {}
    on = {"trained_on": trained["accelerators"]} if "accelerators" in trained else {}
    return {"dataset": dataset.name, **on, "run": read_json(run / "config.json"),
            "privacy": to_json(release.privacy), "training_seconds": common.training_seconds(rows),
            "randomness_of_training": release.privacy["noise_source"]}


def write(name: str, flags: Sequence[str], stem: str, outcome: Mapping[str, Any], seeds: int,
          run: Path, where: dict[str, Any]) -> Path:
    """Write results/STEM.json, and a picture of samples beside it."""
    shutil.copy(run / "release" / "samples.png", common.RESULTS / f"{stem}.png")
    return common.write(common.record(name, flags, range(seeds), dict(outcome), where),
                        common.RESULTS / f"{stem}.json")


def measured(request: lifecycle.Resolved, dataset: data.Dataset, repeats: int, protocol: Protocol
             ) -> dict[str, Any]:
    """Train once or several times on the same records, and evaluate each release.

    Of several trainings the folder of the request holds one folder each, 0 and on.

    Returns:
      What a record has on the first run; `evaluation` and `fidelity` (the Inception Score and its
      kin), with the means over trainings and their deviations where there are several; and then
      `trainings` and the `epsilon` of all together.
    """
    assert request.out is not None
    if repeats < 1:
        raise UserError(f"--repeats {repeats}; give 1 or more")
    places = [request.out] if repeats == 1 else [request.out / str(i) for i in range(repeats)]
    if repeats > 1:
        tell(f"{repeats} trainings on the SAME records: each spends epsilon "
             f"{request.budget.epsilon:g}, all together {repeats * request.budget.epsilon:g}")
    releases = [train(dataclasses.replace(request, out=place), dataset) for place in places]
    evaluations = [{
        "evaluation": usefulness(release, dataset, place / "benchmark", protocol),
        "fidelity": likeness(release, dataset, place / "benchmark")}
        for release, place in zip(releases, places, strict=True)]
    first = results(releases[0], dataset, places[0])
    if repeats == 1:
        return first | evaluations[0]
    spent = add_up((float(release.privacy["epsilon"]), 1) for release in releases)
    return first | over_runs(evaluations) | {
        "trainings": repeats, "epsilon": spent,
        "evaluations": [each["evaluation"] for each in evaluations]}


def arguments(argv: list[str]) -> argparse.Namespace:
    script = common.Script("images", __doc__, record=None)
    script.add_argument("--method", default="datalens")
    script.add_argument("--preset", required=True)
    script.add_argument("--dataset", required=True)
    script.add_argument("--out", type=Path, required=True, help="run folder")
    script.add_argument("--moments", default="bfloat16", help="as in Runtime")
    script.add_argument("--devices", type=int, default=0, help="as in Runtime")
    script.add_argument("--state", default="device", choices=get_args(State), help="as in Runtime")
    script.add_argument("--accept-uncovered", action="store_true",
                        help="as in train; Places365 by classes needs it")
    script.add_argument("--samples", type=int, help="those of the setting if left out")
    script.add_argument("--seeds", type=int, default=3, help="of the classifiers")
    script.add_argument("--repeats", type=int, default=1,
                        help="trainings in OUT/0, OUT/1, ..., each of which spends its own epsilon")
    script.add_argument("--setting", default="full", choices=utility.SETTINGS)
    script.add_argument("--classifiers", nargs="+", default=["cnn", "mlp"],
                        choices=utility.ALL_CLASSIFIERS)
    args = script.begin(argv)
    args.script = script
    return args


def main(argv: list[str]) -> None:
    args = arguments(argv)
    terminal.use_all_cores()
    methods.get(args.method)
    name, preset = presets.get(args.method, args.preset)
    dataset = resolve.load_preset_data(name, preset, args.dataset)
    request = lifecycle.Resolved(
        args.method, name, preset.config, Budget(preset.epsilon, preset.delta),
        Runtime(devices=args.devices, moments=args.moments, state=args.state,
                checkpoint_minutes=20, keep_checkpoints=1), args.out,
        accept_uncovered=args.accept_uncovered)
    protocol = Protocol(args.setting, tuple(args.classifiers), args.seeds, args.samples)
    outcome = measured(request, dataset, args.repeats, protocol)
    start = "images" if args.method == "datalens" else args.method
    print(write("images", args.script.words, f"{start}-{dataset.name}-{args.preset}", outcome,
                args.seeds, args.out / "0" if args.repeats > 1 else args.out, args.script.where))


if __name__ == "__main__":
    terminal.main(main)
