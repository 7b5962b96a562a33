"""The ablations of DataLens (Tables 5 to 7 of Wang et al. 2021, arXiv 2103.11109), at one proven
epsilon.

    python -m benchmarks.datalens_ablation [--preset glyphs] [--dataset glyphs] [--epsilons 10 inf]
    python -m benchmarks.datalens_ablation --preset mnist-eps1 --dataset idx:mnist --setting full
    python -m benchmarks.datalens_ablation --preset fashion-eps1 --dataset idx:fashion_mnist

Compression: "topagg" is the preset, "d2p-fed" and "fetchsgd" compress otherwise (Table 5), with the
time of a step (Table 6). Components (Table 7): "w/o top-k" votes on all entries, "w/o stochastic
signs" by the sign alone, and of the sums "threshold" makes -1, 0 and 1, "w/o threshold" their sign
(a threshold of 0 in Table 4, whose numbers Table 7 repeats), and "mean" leaves them as they are;
what the preset does is not repeated. At epsilon inf nothing is noised: what compression alone
costs.

Every variant takes as many steps as the preset, with the noise that its sensitivity asks for; the
paper's runs keep the noise and end sooner. Accuracy after the last epoch, of classifiers trained on
synthetic images and tested on real ones.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import shlex
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import common
from dpgen_jax import api, cli, data, presets
from dpgen_jax.config import Budget, Runtime, to_json
from dpgen_jax.evaluation import utility
from dpgen_jax.evaluation.scores import summary
from dpgen_jax.methods.datalens import Config
from dpgen_jax.plan import complete
from dpgen_jax.run import metrics
from dpgen_jax.types import Spec, UserError

ALWAYS = 1e-30
"""as a threshold, one vote; as a clip, signs that are certain"""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--preset", default="glyphs")
    parser.add_argument("--dataset", default="glyphs")
    parser.add_argument("--epsilons", type=float, nargs="+", help="that of the preset if left out")
    parser.add_argument("--variants", nargs="+", help="all if left out")
    parser.add_argument("--teachers", type=int, help="those of the preset if left out")
    parser.add_argument("--steps", type=int, help="those of the preset if left out")
    parser.add_argument("--runs", type=int, default=1, help="training runs of each")
    parser.add_argument("--seeds", type=int, default=1, help="of the classifiers")
    parser.add_argument("--samples", type=int, help="those of the setting if left out")
    parser.add_argument("--setting", default="fast", choices=utility.SETTINGS)
    parser.add_argument("--moments", default="float32", help="as in Runtime")
    parser.add_argument("--out", type=Path, help="of the record, instead of benchmarks/results")
    return parser.parse_args()


def planned(given: argparse.Namespace, chosen: presets.Preset, spec: Spec) -> Config:
    """The preset with as many teachers and steps as asked for, and the noise left open."""
    asked = {name: value for name in ("teachers", "steps") if (value := getattr(given, name))}
    config = dataclasses.replace(chosen.config, **asked)
    if config.steps is None:
        config = complete("datalens", config, spec, Budget(chosen.epsilon, chosen.delta))
    return dataclasses.replace(config, sigma=None)


def variants(base: Config, features: int, noise: float) -> dict[str, Config]:
    """By the paper's names, without those that are the preset itself. noise: standard deviation of
    the mean vote, where a preset without a threshold gets one (the upper end of section 5.3)."""
    def but(**fields: Any) -> Config:
        return dataclasses.replace(base, **fields)

    at = base.threshold if base.decode == "threshold" else min(1.0, noise)
    columns = math.ceil(features / 3)  # of each of three rows: no more numbers than a fake has
    every = {"d2p-fed": but(aggregate="d2p"),
             "fetchsgd": but(aggregate="fetchsgd", sketch_rows=3, sketch_columns=columns),
             "w/o top-k": but(top_k=features), "w/o stochastic signs": but(clip=ALWAYS),
             "threshold": but(decode="threshold", threshold=at), "mean": but(decode="mean"),
             "w/o threshold": but(decode="threshold", threshold=ALWAYS)}
    return {"topagg": base} | {name: config for name, config in every.items() if config != base}


def one(given: argparse.Namespace, loaded: data.Dataset, config: Config, budget: Budget
        ) -> dict[str, Any]:
    """The accuracies of one variant over its training runs, and the seconds of a step."""
    found: dict[str, list[float]] = {}
    seconds = []
    for _ in range(given.runs):
        with tempfile.TemporaryDirectory() as scratch:
            root = Path(scratch) / "run"
            release = api.run(api.Run("datalens", given.preset, config, budget,
                                      Runtime(moments=given.moments), root), loaded)
            rows = metrics.read(root / "metrics.jsonl")
        first, last = rows[0], rows[-1]  # the first block also compiles
        seconds.append((last["seconds"] - first["seconds"]) / max(1, last["step"] - first["step"]))
        values = common.usefulness(release, loaded, ("gen2real",), given.seeds, given.samples,
                                   given.setting)
        for net, of in values["gen2real"].items():
            found.setdefault(net, []).append(of["accuracy"]["mean"])
    return {"gen2real": {net: summary(each) for net, each in found.items()},
            "seconds_per_step": common.timing(seconds), "events": release.privacy["events"],
            "config": to_json(config)}


def main() -> None:
    given = arguments()
    cli.use_all_cores()
    where, loaded = common.machine(), data.load(given.dataset)
    chosen = presets.get("datalens", given.preset)[1]
    base = planned(given, chosen, loaded.spec)
    noised = complete("datalens", base, loaded.spec, Budget(chosen.epsilon, chosen.delta))
    each = variants(base, math.prod(loaded.spec.shape), noised.sigma / base.teachers)
    wanted = given.variants or list(each)
    if unknown := [name for name in wanted if name not in each]:
        raise UserError(f"unknown variant {unknown[0]!r} of {given.preset}; known: "
                        f"{', '.join(each)}")
    rows: dict[str, dict[str, Any]] = {}
    for epsilon in given.epsilons or [chosen.epsilon]:
        for name in wanted:
            found = one(given, loaded, each[name], Budget(epsilon, chosen.delta))
            rows.setdefault(f"{epsilon:g}", {})[name] = found
            print(save(given, loaded, base, rows, where), flush=True)


def save(given: argparse.Namespace, loaded: data.Dataset, base: Config, rows: dict[str, Any],
         where: dict[str, Any]) -> Path:
    """Writes what is there so far: a full run takes hours."""
    shown = [shlex.join([f"--{name}", *map(str, value if isinstance(value, list) else [value])])
             for name, value in vars(given).items() if value is not None and name != "out"]
    return common.write(common.record("datalens_ablation", shown, range(given.runs), {
        "dataset": loaded.name, "steps": base.steps, "teachers": base.teachers,
        "by_epsilon": rows}, where),
        given.out or common.RESULTS / f"datalens-ablation-{loaded.name}-{given.preset}.json")


if __name__ == "__main__":
    cli.main(lambda argv: main())
