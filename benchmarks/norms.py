r"""Norms of gradients before they are clipped, over training: GS-WGAN, Figures 2 and A1.

    python -m benchmarks.norms --dataset idx:mnist --steps 150 --critics 60
    nohup python -m benchmarks.norms --dataset idx:mnist --gswgan mnist-published --sizes paper &

Four systems, each once as it is (clipped, with the noise of its preset) and once with gradients
that are neither clipped nor noised: a DP-SGD GAN with the standard loss and one with the
Wasserstein loss and clipped weights, whose records answer with gradients of all weights of the
discriminator; and GS-WGAN with its gradient penalty and without, whose critics answer with
gradients at fakes. Systems and networks are the library's own; their rounds run in plain JAX here,
in float32, so that nothing needs to be clipped.

Who may know the norms: those of records and of private critics are as private as the records. They
are written here because the images of a benchmark are public, and belong to no release. The
discriminator of DP-SGD is itself released, so the norm of its gradient at a fake costs nothing
("on fakes"); at a fake, no critic of GS-WGAN may be looked at.

A run can be stopped and started again with the same flags: finished variants are kept, and the
others go on from their last checkpoint in OUT. The record and the picture are
results/norms-DATA-SIZES.json and .png.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import common
from benchmarks.norms_figure import draw
from benchmarks.norms_study import BINS, Study, follow
from dpgen_jax import data, methods, presets
from dpgen_jax.core import cli
from dpgen_jax.core.config import Budget, Runtime, digest, to_json
from dpgen_jax.core.types import ImageSpec, Records, UserError
from dpgen_jax.presets import gswgan
from dpgen_jax.run.calibrate_config import complete, with_records

GENERATOR = {"logit_slope": "sigmoid", "generator": gswgan.SMALL.generator}
"""Fields by which GS-WGAN's generator has the slope of the paper and does not move its images."""
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "DP-SGD GAN": ("dpcgan", {}),
    "DP-SGD GAN, clipped weights": ("dpgan", {}),
    "GS-WGAN": ("gswgan", GENERATOR),
    "GS-WGAN, no penalty": ("gswgan", GENERATOR | {"penalty": 0.0}),
}
"""Method and fields of each."""


def arguments(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.norms", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="idx:mnist", help="images of the presets' shape")
    parser.add_argument("--dpcgan", default="mnist-eps10-published", help="preset")
    parser.add_argument("--dpgan", default="mnist-eps10-published", help="preset")
    parser.add_argument("--gswgan", default="mnist-eps10", help="preset")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--steps", type=int, help="those of the preset if left out")
    parser.add_argument("--critics", type=int, help="of GS-WGAN; those of the preset if left out")
    parser.add_argument("--warm-steps", type=int, help="of GS-WGAN; the preset's if left out")
    parser.add_argument("--batch", type=int, help="of DP-SGD; that of the preset if left out")
    parser.add_argument("--points", type=int, default=60, help="steps whose norms are written")
    parser.add_argument("--chunk", type=int, default=64, help="most units in one product")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sizes", default="small", help="names the record")
    parser.add_argument("--out", type=Path, help="of checkpoints; runs/norms-DATA-SIZES")
    parser.add_argument("--record", type=Path, help="of the record, instead of benchmarks/results")
    args = parser.parse_args(argv)
    stem = f"norms-{args.dataset.split(':')[-1]}-{args.sizes}"
    args.out = args.out or Path("runs") / stem
    args.record = args.record or common.RESULTS / f"{stem}.json"
    return args


def study(args: argparse.Namespace, dataset: data.Dataset, name: str, clipped: bool) -> Study:
    """Return the study of one system on these records."""
    system, fields = SYSTEMS[name]
    preset_name, preset = presets.get(system, getattr(args, system))
    wanted = {"steps": args.steps, "critics": args.critics, "warm_steps": args.warm_steps,
              "batch": args.batch if system != "gswgan" else None}
    config = dataclasses.replace(preset.config, **fields, **{
        key: value for key, value in wanted.items()
        if value is not None and hasattr(preset.config, key)})
    if not isinstance(dataset.spec, ImageSpec) or dataset.spec != preset.spec:
        raise UserError(f"--dataset {args.dataset} has records {dataset.spec}; preset "
                        f"{preset_name} of {system} is for {preset.spec}")
    n, x, y = len(dataset.y_train), np.asarray(dataset.x_train), np.asarray(dataset.y_train)
    config = complete(system, with_records(config, n), dataset.spec,
                      Budget(preset.epsilon, preset.delta))
    built = methods.get(system).build(config, dataset.spec, Runtime())
    units = getattr(config, "critics", n)
    order = np.random.default_rng(args.seed).permutation(n)[:n // units * units]
    records = Records(x[order].reshape(units, -1, *x.shape[1:]),
                      y[order].reshape(units, -1).astype(np.int32))
    per_step = (config.critics_per_step or units) if system == "gswgan" else config.batch
    mechanism: Any = built.mechanism
    return Study(built, config, preset_name, records, per_step, clipped, args.chunk, config.clip,
                 getattr(mechanism.noise, "sigma", 0.0) * mechanism.bound.grid)


def main(argv: list[str]) -> None:
    """Run the benchmark and write its record and picture."""
    args = arguments(argv)
    cli.use_all_cores()
    where, dataset = common.machine(), data.load(args.dataset)
    known, variants = finished(args.record), {}
    for name in args.systems:
        for clipped in (True, False):
            s = study(args, dataset, name, clipped)
            title = f"{name}, {'clipped' if clipped else 'not clipped'}"
            settings = {"preset": s.preset, "config": to_json(s.config), "clip": s.clip,
                        "noise": s.noise if clipped else 0.0, "units_per_step": s.per_step,
                        "seed": args.seed, "points": args.points}
            if known.get(title, {}).get("settings") == settings:
                variants[title] = known[title]
                continue
            began, path = time.perf_counter(), checkpoint(args.out, title, settings)
            rows = follow(s, args.seed, args.points, path)
            variants[title] = {"settings": settings, "rows": rows,
                               "seconds_since_start": time.perf_counter() - began}
            path.unlink(missing_ok=True)
            print(f"{title}: median norm {rows[0]['quantiles']['0.5']:.3g} at the first step, "
                  f"{rows[-1]['quantiles']['0.5']:.3g} at the last", flush=True)
            write(args, argv, {**known, **variants}, where)
    write(args, argv, variants, where)
    draw(variants, BINS, args.record.with_suffix(".png"))
    print(args.record)


def checkpoint(out: Path, title: str, settings: dict[str, Any]) -> Path:
    """Return the checkpoint of a variant; other settings have another, and begin anew."""
    return out / f"{title.replace(', ', '-')}-{digest(settings)[:8]}.npz"


def finished(record: Path) -> dict[str, Any]:
    """Return the variants of an earlier record, by name."""
    return json.loads(record.read_text())["results"]["variants"] if record.exists() else {}


def write(args: argparse.Namespace, argv: list[str], variants: dict[str, Any],
          where: dict[str, Any]) -> None:
    """Write the record of the variants so far."""
    places = ("--out", "--record")
    shown = [a for i, a in enumerate(argv) if not a.startswith(places)
             and (i == 0 or argv[i - 1] not in places)]
    common.write(common.record("norms", shown, [args.seed], {
        "dataset": args.dataset, "bins": BINS.tolist(), "variants": variants}, where), args.record)


if __name__ == "__main__":
    cli.main(main)
