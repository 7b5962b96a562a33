"""The ablations of TopAgg for DP-SGD (Tables 8 to 10 of DataLens, Wang et al. 2021, arXiv
2103.11109): test accuracy of classifiers.

    python -m benchmarks.topagg [--preset glyphs] [--dataset glyphs] [--epsilons 10 inf]
    python -m benchmarks.topagg --preset mnist-eps1 --dataset idx:mnist --runs 10 \\
        --epsilons 0.05 0.1 0.2 0.3 0.5 0.7 1 inf
    python -m benchmarks.topagg --preset features-eps8-published --dataset npz:features.npz

"norm K" keeps a share K of each gradient's squared norm (Table 8), "dimension K" of its entries
(Table 9), "gm-dp" all of it, which is DP-SGD. "full noise K" keeps by norm and has the noise of
gm-dp nevertheless (TopK-GM-DP of Table 10), so that its epsilon is below the budget. At epsilon inf
nothing is noised (TopK-SGD and clipped SGD of Table 10); "full noise" is not repeated there. With
several --clips each is a variant of its own.

Every variant takes the steps of the preset, with the noise that its sensitivity asks for, and its
learning rate; the paper chooses clip, noise, batch and learning rate for each cell by a grid
search. features.npz holds x_train, y_train, x_test, y_test and classes: features of a public
network laid out as images, float in [0, 1], such as [n, 16, 32].
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import shlex
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import common
from dpgen_jax import api, assessment, cli, data, presets
from dpgen_jax.config import Budget, to_json
from dpgen_jax.evaluation.scores import summary
from dpgen_jax.methods.topagg_sgd import Config
from dpgen_jax.plan import complete, with_records
from dpgen_jax.types import Spec, UserError

FULL_NOISE = "full noise"


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--preset", default="glyphs")
    parser.add_argument("--dataset", default="glyphs")
    parser.add_argument("--epsilons", type=float, nargs="+", help="that of the preset if left out")
    parser.add_argument("--kappas", type=float, nargs="*", default=[0.6, 0.7, 0.8],
                        help="shares of the squared norm")
    parser.add_argument("--dimensions", type=float, nargs="*", default=[0.2, 0.4, 0.6],
                        help="shares of the entries")
    parser.add_argument("--full-noise", type=float, nargs="*", default=[0.8],
                        help="shares of the squared norm, with the noise of gm-dp")
    parser.add_argument("--clips", type=float, nargs="+", help="that of the preset if left out")
    parser.add_argument("--steps", type=int, help="those of the preset if left out")
    parser.add_argument("--batch", type=int, help="that of the preset if left out")
    parser.add_argument("--learning-rate", type=float, help="that of the preset if left out")
    parser.add_argument("--runs", type=int, default=1, help="training runs of each")
    parser.add_argument("--out", type=Path, help="of the record, instead of benchmarks/results")
    return parser.parse_args(argv)


def variants(given: argparse.Namespace, config: Config) -> dict[str, Config]:
    """By name, with the noise left open; "full noise" gets its own in `noised`."""
    asked = {name: value for name in ("steps", "batch", "learning_rate")
             if (value := getattr(given, name))}
    found: dict[str, Config] = {}
    for clip in given.clips or [config.clip]:
        base = dataclasses.replace(config, clip=clip, sigma=None, **asked)
        tail = f", clip {clip:g}" if given.clips else ""
        found[f"gm-dp{tail}"] = dataclasses.replace(base, kappa=1.0, keep="norm")
        for name, keep, shares in (("norm", "norm", given.kappas),
                                   ("dimension", "dimension", given.dimensions),
                                   (FULL_NOISE, "norm", given.full_noise)):
            for kappa in shares:
                found[f"{name} {kappa:g}{tail}"] = dataclasses.replace(base, kappa=kappa, keep=keep)
    return found


def noised(name: str, config: Config, records: int, spec: Spec, budget: Budget) -> Config:
    """The configuration with its noise: what the budget asks for, over sqrt(kappa) for "full
    noise"."""
    config = complete("topagg_sgd", with_records(config, records), spec, budget)
    more = math.sqrt(config.kappa) if name.startswith(FULL_NOISE) else 1.0
    return dataclasses.replace(config, sigma=config.sigma / more)


def one(given: argparse.Namespace, loaded: data.Dataset, name: str, config: Config, budget: Budget
        ) -> dict[str, Any]:
    """The accuracies of one variant over its training runs."""
    config = noised(name, config, len(loaded.y_train), loaded.spec, budget)
    found, seconds = [], []
    for _ in range(given.runs):
        with tempfile.TemporaryDirectory() as scratch:
            started = time.perf_counter()
            release = api.run(api.Run("topagg_sgd", given.preset, config, budget,
                                      out=Path(scratch) / "run"), loaded, lambda line: None)
            seconds.append(time.perf_counter() - started)
        found.append(assessment.assess(release, loaded)["accuracy"])
    return {"accuracy": summary(found), "seconds": common.timing(seconds),
            "events": release.privacy["events"], "config": to_json(config)}


def main(argv: list[str]) -> None:
    given = arguments(argv)
    cli.use_all_cores()
    where, loaded = common.machine(), data.load(given.dataset)
    chosen = presets.get("topagg_sgd", given.preset)[1]
    if loaded.x_test is None:  # said now: hours would be lost
        raise UserError(f"{loaded.name} has no held-out part to test on; add x_test and y_test")
    rows: dict[str, dict[str, Any]] = {}
    for epsilon in given.epsilons or [chosen.epsilon]:
        for name, config in variants(given, chosen.config).items():
            if name.startswith(FULL_NOISE) and math.isinf(epsilon):
                continue
            rows.setdefault(f"{epsilon:g}", {})[name] = one(
                given, loaded, name, config, Budget(epsilon, chosen.delta))
            print(save(given, loaded, rows, where), flush=True)


def save(given: argparse.Namespace, loaded: data.Dataset, rows: dict[str, Any],
         where: dict[str, Any]) -> Path:
    """Writes what is there so far: a full run takes hours."""
    shown = [shlex.join([f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, list)
                                                             else [value])])
             for name, value in vars(given).items() if value is not None and name != "out"]
    return common.write(common.record("topagg", shown, range(given.runs), {
        "dataset": loaded.name, "by_epsilon": rows}, where),
        given.out or common.RESULTS / f"topagg-{loaded.name}-{given.preset}.json")


if __name__ == "__main__":
    cli.main(main)
