"""The ablations of DP-GAN-DPAC (its Table 4), at one proven epsilon.

    python -m benchmarks.dpac_ablation [--preset glyphs] [--dataset glyphs] [--runs 1]

"baseline" is the same configuration without a classifier, which is GS-WGAN; "w/o g2r" has a
classifier that learns from records alone, "w/o r2g" from fakes alone, "w/o seq" from both in the
same steps, "w/o init" keeps each critic's classifier from step to step. Accuracy after the last
epoch of the fast schedule: of classifiers trained on synthetic images and tested on real ones
(gen2real), and the reverse.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import common
from dpgen_jax import api, cli, data, presets
from dpgen_jax.config import Budget
from dpgen_jax.evaluation.scores import summary
from dpgen_jax.methods import gswgan


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--preset", default="glyphs")
    parser.add_argument("--dataset", default="glyphs")
    parser.add_argument("--runs", type=int, default=1, help="training runs of each")
    parser.add_argument("--samples", type=int, default=5_000)
    return parser.parse_args()


def variants(full: Any) -> dict[str, tuple[str, Any]]:
    """By the paper's names: method and configuration."""
    base = {f.name: getattr(full, f.name) for f in dataclasses.fields(gswgan.Config)}
    both = full.fake_steps + full.real_steps
    return {"baseline": ("gswgan", gswgan.Config(**base)),
            "w/o g2r": ("dpac", dataclasses.replace(full, fake_steps=0)),
            "w/o r2g": ("dpac", dataclasses.replace(full, real_steps=0)),
            "w/o seq": ("dpac", dataclasses.replace(full, order="parallel", real_steps=both // 2)),
            "w/o init": ("dpac", dataclasses.replace(full, renewed=False)),
            "full": ("dpac", full)}


def one(given: argparse.Namespace, loaded: data.Dataset, method: str, config: Any, budget: Budget
        ) -> dict[str, Any]:
    """The accuracies of one variant over its training runs."""
    found: dict[str, list[float]] = {}
    for _ in range(given.runs):
        with tempfile.TemporaryDirectory() as scratch:
            release = api.run(api.Run(method, given.preset, config, budget,
                                      out=Path(scratch) / "run"), loaded)
        values = common.usefulness(release, loaded, ("gen2real", "real2gen"), 1, given.samples)
        for task in ("gen2real", "real2gen"):
            for net, of in values[task].items():
                found.setdefault(f"{task}.{net}", []).append(of["accuracy"]["mean"])
    return {name: summary(each) for name, each in found.items()}


def main() -> None:
    given = arguments()
    cli.use_all_cores()
    where, loaded = common.machine(), data.load(given.dataset)
    chosen = presets.get("dpac", given.preset)[1]
    budget = Budget(chosen.epsilon, chosen.delta)
    rows = {name: one(given, loaded, method, config, budget)
            for name, (method, config) in variants(chosen.config).items()}
    name = f"dpac_ablation-{loaded.name}"
    shown = [f"--preset {given.preset}", f"--dataset {given.dataset}", f"--runs {given.runs}"]
    print(common.write(common.record("dpac_ablation", shown, range(given.runs), {
        "epsilon": chosen.epsilon, "delta": chosen.delta, "variants": rows}, where),
        common.RESULTS / f"{name}.json"))


if __name__ == "__main__":
    cli.main(lambda argv: main())
