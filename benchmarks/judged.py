"""Does a small release of the same records tell which generator of a training is the best one?

    python -m benchmarks.judged
    python -m benchmarks.judged --method gswgan --preset mnist-eps10 --epsilon 10 --every 10

A mixture is released on a share of the budget and judges a training as it goes: an MLP that learns
from the generator's samples is tested on the mixture's (`--public-dataset release:`). The training
is then repeated with the same seed and noise, and judged by real images that nobody trained on, so
that both curves are of the same generators. A third training has the whole budget and no judge. The
record, results/judged-METHOD-PRESET.json, has the curves and what they would pick.

Records are the training images, of which a sixth are the real images that judge; no test image is
read. The trainings have a seed, since they must be repeated, and so promise nothing; the judge has
none. The script continues with the run folders that are there; they lie in a folder whose name has
the digest of all that decides what they mean, so that another preset never goes on with them.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks import common, training, validation_part
from dpgen_jax import data, presets
from dpgen_jax.cli import terminal
from dpgen_jax.core import run_folder
from dpgen_jax.core.config import digest
from dpgen_jax.core.errors import UserError
from dpgen_jax.core.run_folder import RunFolder, read_json

SCORE = "public_accuracy"
FEWEST = 3
"""Judgements of a training."""


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--method", default="dpcgan")
    parser.add_argument("--preset", default="mnist-eps1")
    parser.add_argument("--dataset", default="idx:mnist")
    parser.add_argument("--epsilon", type=float, default=1.0, help="of judge and training together")
    parser.add_argument("--share", type=float, default=0.3, help="of epsilon that the judge has")
    parser.add_argument("--steps", type=int, help="those of the preset if left out")
    parser.add_argument("--every", type=int, default=50, help="steps between two judgements")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/judged"))
    parser.add_argument("--json", type=Path, help="the results file")
    args = parser.parse_args(argv)
    steps = args.steps or presets.get(args.method, args.preset)[1].config.steps
    if args.every < 1 or (steps is not None and steps < FEWEST * args.every):
        raise UserError(f"--every {args.every}: in {steps} steps that are fewer than {FEWEST} "
                        "judgements, of which no order can be seen; give a smaller number, "
                        "at least 1")
    return args


def written(dataset: str, out: Path) -> tuple[str, str]:
    """Write the records and the real images that judge; return both as data sets."""
    files = out / "records.npz", out / "real.npz"
    if not all(file.exists() for file in files):
        made = validation_part.split(data.load(dataset), 1 / 6)
        for file, x, y in ((files[0], made.x_train, made.y_train),
                           (files[1], made.x_test, made.y_test)):
            part = file.with_name(f"part-{file.name}")
            np.savez(part, x_train=x, y_train=y, classes=made.spec.classes)
            os.replace(part, file)
    return f"npz:{files[0]}", f"npz:{files[1]}"


def curve(run: Path) -> dict[int, float]:
    """Return the accuracy by step of all generators that were judged."""
    return {row["step"]: row[SCORE] for row in run_folder.read(RunFolder(run).metrics)
            if SCORE in row}


def compared(judged: dict[int, float], real: dict[int, float]) -> dict[str, Any]:
    """Return what a judge's curve is worth.

    Args:
        judged: Accuracy by step on the judge's images.
        real: That of the same generators on real ones.

    Returns:
        The rank correlation of both (None where one does not vary), and the steps and accuracies on
        real images of the generator that the judge picks, of the last one, and of the best.
    """
    if judged.keys() != real.keys():
        raise ValueError(f"the curves have other steps: {sorted(judged)}, {sorted(real)}")
    steps = sorted(judged)
    picked = max(steps, key=lambda step: judged[step])
    best = max(steps, key=lambda step: real[step])
    scores = [[scored[step] for step in steps] for scored in (judged, real)]
    vary = all(len(set(one)) > 1 for one in scores)
    return {"rank_correlation": float(stats.spearmanr(*scores).statistic) if vary else None, **{
        name: {"step": step, "accuracy": real[step]}
        for name, step in (("picked", picked), ("last", steps[-1]), ("best", best))}}


def folder(args: argparse.Namespace) -> Path:
    """Return the folder of the runs, by all that decides what they mean, the whole preset too."""
    known = digest([args.dataset, presets.get(args.method, args.preset)[1].config, args.epsilon,
                    args.share, args.steps, args.every, args.seed])[:12]
    return args.out / f"{args.method}-{args.preset}-{known}"


def run(args: argparse.Namespace, argv: Sequence[str]) -> Path:
    """Train all four runs and write the record."""
    where, place = common.machine(), folder(args)
    place.mkdir(parents=True, exist_ok=True)
    records, real = written(args.dataset, place)
    judge = training.finish(place / "judge", "mixture", "--dataset", records, "--epsilon",
                            args.share * args.epsilon)
    steps = [] if args.steps is None else ["--steps", args.steps]
    words = (args.method, "--preset", args.preset, "--dataset", records, "--seed", args.seed,
             *steps, "--evaluate-every", args.every, "--steps-per-call", args.every)
    judged = training.finish(place / "judged", *words, "--sigma", "None", "--epsilon", args.epsilon,
                             "--public-dataset", f"release:{judge}")
    sigma = read_json(judged / "config.json")["config"]["sigma"]
    same = training.finish(place / "by-real-images", *words, "--sigma", sigma, "--epsilon", "inf",
                           "--public-dataset", real)
    whole = training.finish(place / "without-a-judge", *words, "--sigma", "None", "--epsilon",
                            args.epsilon, "--public-dataset", real)
    models = [(run / "release/generator.safetensors").read_bytes() for run in (judged, same)]
    assert models[0] == models[1], "with the same seed and noise both are one training"
    curves = {"judge": curve(judged), "real": curve(same), "without_a_judge": curve(whole)}
    results = {"method": args.method, "preset": args.preset, "epsilon": args.epsilon,
               "epsilon_of_the_judge": args.share * args.epsilon, "sigma": sigma,
               "sigma_without_a_judge": read_json(whole / "config.json")["config"]["sigma"],
               "steps": read_json(judged / "config.json")["config"]["steps"],
               **compared(curves["judge"], curves["real"]),
               "last_without_a_judge": curves["without_a_judge"][max(curves["without_a_judge"])],
               "curves": curves}
    out = args.json or common.RESULTS / f"judged-{args.method}-{args.preset}.json"
    return common.write(common.record("judged", argv, [args.seed], results, where), out)


def main(argv: Sequence[str]) -> None:
    """Run the benchmark and print where its record is."""
    print(run(arguments(argv), argv))


if __name__ == "__main__":
    terminal.main(main)
