"""Usefulness against epsilon: trains a method at several budgets, evaluates and draws the curve.

    python -m benchmarks.privacy_utility datalens --dataset glyphs
    nohup python -m benchmarks.privacy_utility gswgan --dataset idx:mnist --preset mnist-eps10 \\
        --epsilons 0.2 0.4 0.6 0.8 1 2 5 10 --out runs/curve > curve.log &

Each point is a run folder OUT/EPSILON, made and evaluated by the commands a user has. The script
can be stopped at any time and started again: it goes on with what is there. What the papers claim
for the same data is drawn on the same axes, and marked so: their protocols and epsilons differ.
Nothing is chosen by the points: every budget is trained once and shown.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks import common
from benchmarks.claimed_points import CLAIMED
from dpgen_jax import presets
from dpgen_jax.errors import UserError
from dpgen_jax.run import metrics
from dpgen_jax.run.folder import read_json

EPSILONS = (0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 5.0, 10.0)
DATA_FLAGS = ("--schema", "--test-csv", "--image-size", "--attribute")
SCORES = {"images": "accuracy", "table": "auroc"}


def arguments() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="Further flags go to the training, such as --steps.")
    parser.add_argument("method")
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--dataset", default="glyphs")
    for name in DATA_FLAGS:
        parser.add_argument(name, help="as in training")
    parser.add_argument("--preset", help="the data set's default if left out")
    parser.add_argument("--out", type=Path, help="runs/curve-METHOD-PRESET if left out")
    parser.add_argument("--seeds", type=int, default=3, help="of the classifiers")
    parser.add_argument("--full", action="store_true", help="the full evaluation, not the fast one")
    parser.add_argument("--classifiers", nargs="+", default=[], help="all of the setting if left "
                        "out")
    given, more = parser.parse_known_args()
    given.preset = presets.get(given.method, given.preset, given.dataset)[0]
    given.out = given.out or Path("runs") / f"curve-{given.method}-{given.preset}"
    return given, more


def command(*words: Any) -> None:
    """python -m dpgen_jax.WORDS, with its output shown. Errors: UserError where it fails."""
    done = subprocess.run([sys.executable, "-m", *map(str, words)], check=False)
    if done.returncode:
        raise UserError(f"{' '.join(map(str, words))} ended with exit code {done.returncode}; "
                        "mend it and start this script again: it goes on")


def data_flags(given: argparse.Namespace) -> list[str]:
    """What training and evaluation both are told of the data."""
    named = {name: getattr(given, name[2:].replace("-", "_")) for name in DATA_FLAGS}
    return ["--dataset", given.dataset, *(f"{name}={value}" for name, value in named.items()
                                          if value is not None)]


def trained(given: argparse.Namespace, epsilon: float, run: Path, more: list[str]) -> None:
    """The run of one budget; nothing to do where it is finished."""
    done = run.with_name(f"{run.name}.finished")
    if done.exists():
        return
    resume = ["--resume"] if (run / "config.json").exists() else []
    command("dpgen_jax.train", given.method, "--preset", given.preset, *data_flags(given),
            f"--epsilon={epsilon}", "--out", run, *resume, *more)
    done.touch()


def evaluated(given: argparse.Namespace, run: Path, real: bool) -> dict[str, Any]:
    """Its metrics.json; `real`: with the upper bound, which is the same for all budgets."""
    out = run / "evaluation"
    if not (out / "metrics.json").exists():
        tasks = ["gen2real", "real2real"] if real else ["gen2real"]
        chosen = ["--classifiers", *given.classifiers] if given.classifiers else []
        command("dpgen_jax.evaluate", run, *data_flags(given), "--metrics", *tasks,
                "--seeds", given.seeds, *([] if given.full else ["--fast"]), *chosen)
    return read_json(out / "metrics.json")


def point(epsilon: float, run: Path, found: dict[str, Any]) -> dict[str, Any]:
    """One row of the result."""
    rows = metrics.read(run / "metrics.jsonl")
    return {"epsilon": epsilon, "privacy": read_json(run / "release" / "privacy.json"),
            "training_seconds": rows[-1]["seconds"], "steps": rows[-1]["step"],
            "setting": found["setting"], "gen2real": found["gen2real"]}


def draw(given: argparse.Namespace, name: str, points: list[dict[str, Any]],
         real: dict[str, Any], score: str, path: Path) -> None:
    """The curves of the classifiers, their upper bounds, and the claimed points."""
    figure = Figure(figsize=(7.5, 4.8), dpi=120, layout="constrained")
    axes = figure.subplots()
    shown = [c for c in ("cnn", "mlp", "lr", "adaboost", "bagging") if c in points[0]["gen2real"]]
    for place, classifier in enumerate(shown):
        each = [p["gen2real"][classifier][score] for p in points]
        axes.errorbar([p["epsilon"] for p in points], [e["mean"] for e in each],
                      [e["std"] for e in each], marker="o", markersize=4, capsize=2,
                      color=f"C{place}", label=f"{given.method}, {classifier}: measured here")
        axes.axhline(real[classifier][score]["mean"], color=f"C{place}", linewidth=0.8,
                     linestyle=":", label=f"{classifier} trained on real records")
    for place, (system, row) in enumerate(CLAIMED.get(name, {}).items()):
        ours = system == given.method
        axes.plot(row.keys(), row.values(), marker="xv^sd+"[place], linestyle="--",
                  linewidth=1.4 if ours else 0.6, color="black" if ours else "0.6",
                  markersize=6 if ours else 4, label=f"{system}, CNN: claimed by the paper")
    printed = " (claimed points: as printed)" if name in CLAIMED else ""
    axes.set(xscale="log", xlabel=f"epsilon, proven{printed}",
             ylabel=f"gen2real {score}", ylim=(0, 1.02), title=f"{given.method} on {name}")
    axes.set_xticks(sorted({p["epsilon"] for p in points}), [
        f"{e:g}" for e in sorted({p["epsilon"] for p in points})], minor=False)
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", fontsize=7, frameon=False)
    FigureCanvasAgg(figure).print_png(str(path))


def main() -> None:
    given, more = arguments()
    where, points, real = common.machine(), [], {}
    given.out.mkdir(parents=True, exist_ok=True)
    for epsilon in sorted(set(given.epsilons)):
        run = given.out / f"{epsilon:g}"
        trained(given, epsilon, run, more)
        found = evaluated(given, run, not real)
        real = real or found["real2real"]
        points.append(point(epsilon, run, found))
        name, score = found["dataset"], SCORES[found["kind"]]
        print(f"epsilon {epsilon:g}:", {c: round(s[score]["mean"], 4)
                                        for c, s in points[-1]["gen2real"].items()}, flush=True)
    stem = f"privacy-utility-{given.method}-{name}-{given.preset}"
    shown = [given.method, *data_flags(given), "--preset", given.preset, "--epsilons",
             *(f"{p['epsilon']:g}" for p in points), *more]
    results = {"dataset": name, "points": points, "real2real": real,
               "claimed": {system: {f"{e:g}": value for e, value in row.items()}
                           for system, row in CLAIMED.get(name, {}).items()}}
    common.write(common.record("privacy_utility", shown, range(given.seeds), results, where),
                 common.RESULTS / f"{stem}.json")
    draw(given, name, points, real, score, common.RESULTS / f"{stem}.png")
    print(common.RESULTS / f"{stem}.png")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
