r"""The data-dependent bound of TopAgg beside the data-independent one: DataLens, Figure 2.

    python -m benchmarks.topagg_bound --preset mnist-eps1 --dataset idx:mnist
    python -m benchmarks.topagg_bound --preset mnist-eps1 --dataset idx:mnist \
        --teachers 800 --sigma 1000
    python -m benchmarks.topagg_bound --run RUN

First, for all published presets and without any data: how likely the likeliest outcome of a row can
be at most, whatever the teachers vote, by the number of entries (Theorem 5), and how far the bound
of Theorem 4 lies above the data-independent one there. Then, of a run (`--run`, a finished one of
the preset; else OUT, which is trained and can be stopped and gone on with; further flags go to the
training): epsilon after each round by the data-independent bound, by Theorem 4, and by the exact
laws of the entries (`accountant.pate`). The latter two are as private as the records: they are
written here because the images of a benchmark are public, and never of your own data. The record
and the picture are results/topagg-bound-DATA-PRESET.json and .png.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any, get_args

import numpy as np
from matplotlib.figure import Figure

from benchmarks import common, training
from dpgen_jax import methods, presets
from dpgen_jax.aggregation.topagg import TopAggMechanism
from dpgen_jax.cli import terminal
from dpgen_jax.core.config import State, digest, to_json
from dpgen_jax.core.run_folder import RunFolder, read_json
from dpgen_jax.core.types import UserError
from dpgen_jax.private.kept_votes import ORDERS, Signs
from dpgen_jax.run import costs

DIMENSIONS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32, 64, 128, 256, 784, 12288)
CURVES = {"independent": "data-independent (Theorem 3)",
          "theorem": "data-dependent (Theorems 4 and 5)",
          "entries": "data-dependent, from the laws of the entries"}


def arguments(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options, and further flags, which go to the training."""
    script = common.Script("topagg_bound", __doc__, record="--record")
    script.add_argument("--preset", default="mnist-eps1", help="one that releases signs")
    script.add_argument("--dataset", default="idx:mnist")
    script.add_argument("--run", type=Path, help="a finished run, instead of training one")
    script.add_argument("--out", type=Path, help="the run folder; runs/topagg-bound-PRESET-DIGEST, "
                        "another one for a changed preset")
    script.add_argument("--state", default="device", choices=get_args(State), help="as in train")
    args, more = script.begin_with_more(argv)
    known = digest({"dataset": args.dataset, "flags": more,
                    "preset": to_json(presets.get("datalens", args.preset)[1])})
    args.out = args.out or Path("runs") / f"topagg-bound-{args.preset}-{known[:10]}"
    args.script = script
    return args, more


def mechanism_of(name: str) -> TopAggMechanism | None:
    """Return the mechanism of a published preset, if it releases the signs of noisy sums."""
    preset = presets.get("datalens", name)[1]
    built = methods.get("datalens").mechanism(preset.config, preset.spec)
    released = isinstance(built, TopAggMechanism) and preset.config.sigma
    return built if released else None


def by_dimension(name: str) -> dict[str, list[float | None]] | None:
    """Return the best case over all votes of rows of some numbers of entries, for one preset.

    Returns:
      The dimensions, log10 of the largest possible probability of the likeliest outcome, and the
      smallest ratio over orders of Theorem 4's divergence to the data-independent one, None where
      the theorem says nothing; None for a preset that releases no signs.
    """
    built = mechanism_of(name)
    if built is None:
        return None
    dimensions = [d for d in DIMENSIONS if d <= built.shape[1]]
    peaks, ratios = [], []
    for d in dimensions:
        row = Signs(built).row
        row = type(row)(row.n_units, min(row.top_k, d), row.needed, row.sigma)
        log_peak = row.most_log_peak(d)
        log_q = np.log(-np.expm1([log_peak])) if log_peak < 0 else np.array([-np.inf])
        ratio = float(np.min(row.theorem(log_q, ORDERS)[0] / row.independent(ORDERS)))
        peaks.append(log_peak / math.log(10))
        ratios.append(ratio if math.isfinite(ratio) else None)
    return {"dimensions": dimensions, "log10_most_likely": peaks, "theorem_to_independent": ratios}


def reading(args: argparse.Namespace, more: list[str]) -> dict[str, Any]:
    """Return the data-dependent reading of the run, which is trained first where there is none."""
    root = args.run or args.out
    if not args.run:
        training.finish(root, "datalens", "--preset", args.preset, "--dataset", args.dataset,
                        "--state", args.state, *more)
    return costs.data_dependent_reading(root).record()


def draw(presets_of: dict[str, Any], read: dict[str, Any], title: str, path: Path) -> None:
    """Draw the best case by dimension, and the three curves of the run.

    Presets that have the same case share a line; solid are those of epsilon 1.
    """
    figure = Figure(figsize=(13, 5), dpi=120, layout="constrained")
    peak, ratio, curve = figure.subplots(1, 3)
    alike: dict[str, list[str]] = {}
    for name, row in presets_of.items():
        alike.setdefault(json.dumps(row), []).append(name)
    for number, (text, names) in enumerate(alike.items()):
        row = json.loads(text)
        style = {"marker": ".", "color": f"C{number % 10}", "linewidth": 1,
                 "linestyle": "--" if "eps10" in names[0] else "-"}
        peak.plot(row["dimensions"], row["log10_most_likely"], label=", ".join(names), **style)
        ratio.plot(row["dimensions"], [math.nan if r is None else r
                                       for r in row["theorem_to_independent"]], **style)
    peak.set(xscale="log", yscale="symlog", xlabel="entries of a row",
             ylabel="log10 of the most likely outcome's probability",
             title="best case over all votes (Theorem 5)")
    figure.legend(*peak.get_legend_handles_labels(), loc="outside lower center", fontsize=7,
                  frameon=False, ncols=4)
    ratio.axhline(1, color="black", linewidth=0.8, linestyle=":")
    ratio.set(xscale="log", yscale="log", xlabel="entries of a row", ylabel="divergence, times the "
              "data-independent one", title="Theorem 4 in that case; no point: it says nothing")
    for name, label in CURVES.items():
        values = read["by round"][name]
        said = "" if any(v is not None for v in values) else ": says nothing (infinite)"
        curve.plot(range(1, len(values) + 1), [math.nan if v is None else v for v in values],
                   marker=".", markersize=3, label=label + said)
    curve.set(xlabel="rounds", ylabel="epsilon at the run's delta", title=title)
    curve.margins(y=0.3)  # room for the legend
    curve.legend(fontsize=7, frameon=False, loc="upper left")
    for axes in (peak, ratio, curve):
        axes.grid(alpha=0.3)
    figure.savefig(path)


def main(argv: list[str]) -> None:
    args, more = arguments(argv)
    if mechanism_of(args.preset) is None:
        raise UserError(f"--preset {args.preset} releases no signs of noisy sums; use a published "
                        "one, such as mnist-eps1")
    best = {name: row for name in presets.all_of("datalens") if (row := by_dimension(name))}
    read = reading(args, more)
    config = read_json(RunFolder(args.run or args.out).config)["config"]
    path = args.script.save({
        "dataset": args.dataset, "preset": args.preset, "published_best_case": best,
        "config": config, **{name: read[name] for name in (
            "by round", "data_dependent", "data_independent", "votes")}},
        stem=f"topagg-bound-{args.dataset.split(':')[-1]}-{args.preset}")
    draw(best, read, f"{args.preset}, {config['teachers']} teachers", path.with_suffix(".png"))
    print(path)


if __name__ == "__main__":
    terminal.main(main)
