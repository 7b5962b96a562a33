"""All systems on the same images at the same proven epsilons, with the same evaluation.

    nohup python -m benchmarks.systems > systems.log &
    python -m benchmarks.systems --methods dpmerf dpgan --dataset mnist --epsilon 10
    python -m benchmarks.systems --dataset cifar
    python -m benchmarks.systems --dataset scenes-2 scenes-10 scenes-100

Each row is a run folder OUT/METHOD-DATA-epsEPSILON, trained and evaluated by the commands of a
user, and has a file of its own. The script can be stopped at any time
and started again: it continues with what is there. Every row is shown, whatever the result; a row
that fails has the reason. Checkpoints of a finished row are not kept. Epsilons are of replace-one
neighbours but for --relation zero-out, the weaker promise: of a record, or of a client's whole data
where the row's unit says so. Non-private rows have epsilon "inf".

A row whose training takes less than a quarter of an hour is trained three times, another one once,
or each as often as --repeats says; it shows the mean, with its 95 % interval over the trainings.
With --short a system whose preset takes long takes fewer steps, for which less noise is found, so
that a row takes minutes on a laptop; a row tells the steps of both. No preset is for images in
colour: each system takes the settings that a user gets who names none.
"""

import argparse
import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy import stats

from benchmarks import common, scenes, training
from dpgen_jax import methods, presets
from dpgen_jax.cli import terminal
from dpgen_jax.core import run_folder
from dpgen_jax.core.config import to_json
from dpgen_jax.core.errors import UserError
from dpgen_jax.core.run_folder import read_json
from dpgen_jax.core.types import ImageSpec
from dpgen_jax.evaluation.assessment import over_runs
from dpgen_jax.presets.choice import Facts, preset_for
from dpgen_jax.release import plots
from dpgen_jax.release.bundle import load

REPLACE_ONE = "replace-one"
DATA: Mapping[str, tuple[str, ...]] = {"mnist": ("idx:mnist",), "fashion": ("idx:fashion_mnist",)}
COLOUR: Mapping[str, tuple[str, ...]] = {
    "cifar": ("npz:cifar10_subset/cifar10_subset.npz", "--classes=10"),
    **{name: (f"folder:runs/{name}", f"--class-names={','.join(scenes.names(classes))}")
       for name, (classes, _) in scenes.SETS.items()}}
"""Data sets, as --dataset and the flags behind it name them."""
DATA_SETS = (*DATA, *COLOUR)
"""In the order of their columns."""
FACTS = {"cifar": Facts("", ImageSpec(32, 32, 3, 10), 9980)} | {
    name: Facts("", ImageSpec(scenes.SIDE, scenes.SIDE, 3, classes), images)
    for name, (classes, images) in scenes.SETS.items()}
ANSWERS = ("gradients", "signs", "votes")
"""The answers of `prototypes`: each is a row of its own, METHOD-ANSWER."""
PRESETS = {**{f"prototypes-{answer}": f"{{data}}-eps{{epsilon:g}}-{answer}" for answer in ANSWERS},
           "datalens": "{data}-eps{epsilon:g}-mean", "gpate": "{data}-eps{epsilon:g}-sum",
           "dpgan": "{data}-eps{epsilon:g}-revisited", "fedavg_gan": "{data}",
           "dcgan": "{data}-small"}
SHORT = {"dcgan": 1000, "dpgan": 1500, "gswgan": 40, "dpac": 30, "datalens": 10, "gpate": 20,
         "pategan": 8, "dpcgan": 1000, "projected_dpgan": 100, "fedavg_gan": 20}
"""Steps of some minutes on two cores."""
SHORT_IN_COLOUR = {**SHORT, "dpgan": 150}
QUICK = 900
"""Seconds of a training, below which a row is the mean of `REPEATS` trainings."""
REPEATS = 3
EPSILONS = (1.0, 10.0)
METRICS = ("gen2real", "fidelity")
CLASSIFIERS = ("topagg_sgd",)
ALIKE = ("preset", "steps", "relation", "unit", "proven_epsilon", "setting")
"""Entries that trainings of one row share."""
IN_COLOUR = ("mixture", "dpmerf", "dpgan")
METHODS = tuple(row for name in methods.NAMES if name not in CLASSIFIERS and any(
    preset.spec.shape == (28, 28, 1) for preset in presets.all_of(name).values())
    for row in ([f"{name}-{answer}" for answer in ANSWERS] if name == "prototypes" else [name]))
"""All generators that have a preset for such images."""
WITH_RELATIONS = tuple(name for name in METHODS if name in methods.NAMES and any(
    hasattr(preset.config, "relation") for preset in presets.all_of(name).values()))
"""Methods whose users choose the relation of neighbours."""

# The results files: one for each row, in results/systems.
#
# METHOD-DATA-epsEPSILON.json is of the fast evaluation and replaced records; `-full` and
# `-zero-out` behind it are of the full evaluation and of the weaker promise. A file has one row and
# the command, the machine, the versions, the commit and the seeds of that row alone, so that a run
# that stops loses no other row. Rows of before there were such files (until 2026-11-26) have the
# command and the commit of the call that last collected them with others; their `trained_with` is
# their own.

def row_name(method: str, data: str, epsilon: float, full: bool = False, relation: str = REPLACE_ONE
             ) -> str:
    return (f"{method}-{data}-eps{epsilon:g}{'-full' * full}"
            f"{f'-{relation}' * (relation != REPLACE_ONE)}")


def row_words(args: argparse.Namespace, row: Mapping[str, Any]) -> list[str]:
    """Return the flags of `benchmarks.systems` that make one row."""
    epsilon = float(row["epsilon"])
    return ["--methods", row["method"], "--dataset", row["dataset"],
            *([] if math.isinf(epsilon) else ["--epsilon", f"{epsilon:g}"]),
            *["--full"] * args.full,
            "--metrics", *args.metrics, "--classifiers", *args.classifiers,
            "--seeds", str(args.seeds), *["--short"] * row.get("short", False),
            *["--inception-weights", "WEIGHTS"] * bool(args.inception_weights),
            *[f"--repeats={args.repeats}"] * bool(args.repeats),
            *[f"--relation={args.relation}"] * (args.relation != REPLACE_ONE)]


def rows_folder() -> Path:
    return common.RESULTS / "systems"


def write_row(named: str, record: dict[str, Any]) -> Path:
    """Write the record of a row, unless it failed or has less than the one that is there."""
    path = rows_folder() / f"{named}.json"
    if path.exists() and _poorer(record["results"]["row"], read_json(path)["results"]["row"]):
        print(f"{path.name} stays: it has more trainings or metrics; delete it to replace it")
        return path
    return common.write(record, path)


def _poorer(row: dict[str, Any], there: dict[str, Any]) -> bool:
    metrics = [{name for name in METRICS if one.get(name)} for one in (row, there)]
    return "error" not in there and (
        "error" in row or metrics[0] < metrics[1]
        or row.get("repeats", 1) < there.get("repeats", 1))


def recorded(data: Collection[str], full: bool = False, relation: str = REPLACE_ONE
             ) -> list[dict[str, Any]]:
    rows = []
    for path in rows_folder().glob("*.json"):
        row = read_json(path)["results"]["row"]
        if row["dataset"] in data and path.stem == row_name(
                row["method"], row["dataset"], float(row["epsilon"]), full, relation):
            rows.append(row | {"file": f"systems/{path.name}"})
    return sorted(rows, key=lambda row: (row["method"], row["dataset"], float(row["epsilon"])))


# The rows of `benchmarks.systems` as a table and as a picture.

def half_width(values: Sequence[float]) -> float:
    """Return half the width of the 95 % interval of a mean, by Student's t distribution."""
    n = len(values)
    return float(stats.t.ppf(0.975, n - 1) * np.std(values, ddof=1) / math.sqrt(n))


def shown_name(method: str) -> str:
    """Return a row's name in tables: the method, and for prototypes what teachers answer."""
    name, _, answer = method.partition("-")
    return f"`{name}` by {answer}" if answer else f"`{name}`"


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows in Markdown.

    Cells are the accuracy of the classifiers, mean over seeds, with * where a run took fewer steps
    than its preset, and behind it the Inception Score and FID where they were measured; over
    several trainings, the mean with its 95 % interval. The last column has the seconds that a
    system's runs trained.
    """
    def cell(method, data, epsilon):
        r, = [r for r in rows if (r["method"], r["dataset"], r["epsilon"]) == (
            method, data, epsilon)] or [None]
        if r is None or "error" in r:
            return "failed" if r else ""
        scores = " / ".join(f"{s['accuracy']['mean']:.3f}" + (
            f" ± {half_width(s['accuracy']['values']):.3f}" if "repeats" in r else "")
            for s in r["gen2real"].values())
        likeness = [f"{name} {r['fidelity'][key]['mean']:.2f}" for name, key in (
            ("IS", "inception_score"), ("FID", "fid")) if key in r.get("fidelity", {})]
        return ", ".join([scores + "*" * (r["steps"] < (r["preset_steps"] or 0)), *likeness])

    def seconds(method):
        took = [r["training_seconds"] for r in rows if r["method"] == method and "steps" in r]
        return " to ".join(dict.fromkeys(f"{f(took):,.0f}" for f in (min, max))) if took else ""

    private = [r for r in rows if r["epsilon"] != "inf"]
    columns = sorted({(r["dataset"], r["epsilon"]) for r in private},
                     key=lambda c: (DATA_SETS.index(c[0]), c[1]))
    head = ["system", *(f"{data}, epsilon {epsilon:g}" for data, epsilon in columns), "training, s"]
    lines = [head, ["---"] * len(head)]
    for method in dict.fromkeys(r["method"] for r in private):
        lines.append([shown_name(method), *(cell(method, *column) for column in columns),
                      seconds(method)])
    without = [f"{shown_name(r['method'])} without privacy, {r['dataset']}: "
               f"{cell(r['method'], r['dataset'], 'inf')}" for r in rows if r not in private]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", *without])


def picture(rows: list[dict[str, Any]], data: str, epsilon: float, run: Callable[[str], Path]
            ) -> Path:
    """Draw 20 images of each private system, of ten classes at most, beside its accuracy."""
    shown = [r for r in rows if (r["dataset"], r["epsilon"]) == (data, epsilon) and "steps" in r]
    images = []
    for r in shown:
        release = load(run(r["method"]))
        # Without labels some systems draw classes as often as the records have them.
        x, y = release.arrays(20, labels=range(min(10, release.spec.classes)), seed=0)
        images.append(x[np.argsort(y, kind="stable")])
    labels = [f"{r['method']} {r['gen2real']['cnn']['accuracy']['mean']:.2f}" for r in shown]
    return plots.samples_grid(np.concatenate(images), common.RESULTS /
                              f"systems-{data}-eps{epsilon:g}.png", len(shown), labels)


# From a row to its trainings.

def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    script = common.Script("systems", __doc__, record=None)
    script.add_argument("--out", type=Path, help="folder of the run folders; runs/systems, and "
                        "runs/systems-zero-out for that relation, if none is named")
    script.add_argument("--methods", nargs="+", choices=METHODS,
                        help="all that have presets for such images, or those of IN_COLOUR")
    script.add_argument("--dataset", "--data", dest="data", nargs="+", default=list(DATA),
                        choices=DATA_SETS)
    script.add_argument("--epsilon", "--epsilons", dest="epsilons", type=float, nargs="+",
                        default=EPSILONS)
    script.add_argument("--full", action="store_true", help="the full evaluation, not the fast one")
    script.add_argument("--metrics", nargs="+", choices=METRICS, default=METRICS)
    script.add_argument("--classifiers", nargs="+", default=["cnn", "mlp"])
    script.add_argument("--seeds", type=int, default=2, help="of the classifiers")
    script.add_argument("--inception-weights", type=Path, help="as in evaluate, for FID")
    script.add_argument("--repeats", type=int,
                        help="trainings of each row, each of which spends the row's epsilon; if "
                             f"left out, {REPEATS} where one takes less than {QUICK // 60} minutes")
    script.add_argument("--short", action="store_true", help="new runs take fewer steps")
    script.add_argument("--relation", choices=(REPLACE_ONE, "zero-out"), default=REPLACE_ONE,
                        help="of neighbours; zero-out for methods that have it")
    script.add_argument("--curves", action="store_true",
                        help="run nothing, and draw the rows that are there by epsilon")
    script.add_argument("--draw", action="store_true",
                        help="also draw images of the systems, for these data and epsilons")
    args = script.begin(argv)
    if 0 < len(set(args.data) & set(COLOUR)) < len(set(args.data)):
        script.error(f"--dataset {' '.join(args.data)}: images in colour have other methods; name "
                     "them alone")
    if args.repeats is not None and args.repeats < 1:
        script.error(f"--repeats {args.repeats}: at least 1")
    zero_out = args.relation != REPLACE_ONE
    without = [name for name in args.methods or () if name not in WITH_RELATIONS]
    if zero_out and without:
        script.error(f"--relation {args.relation}: {', '.join(without)} has replace-one alone; "
                     f"it is for {', '.join(WITH_RELATIONS)}")
    args.methods = args.methods or (IN_COLOUR if args.data[0] in COLOUR else METHODS)
    if zero_out:
        args.methods = [name for name in args.methods if name in WITH_RELATIONS]
    args.out = args.out or Path("runs", "systems" + f"-{args.relation}" * zero_out)
    return args


def trained_as(method: str) -> str:
    """Return the method that `train` knows, of the name of a row."""
    return method.partition("-")[0]


def settings(method: str, data: str, epsilon: float) -> tuple[str, list[str], int | None]:
    """Return the preset of a row, the words of the command that name it, and its steps."""
    if data in COLOUR:
        choice = preset_for(trained_as(method), FACTS[data], epsilon)
        return choice.name, [], choice.preset.config.steps
    preset = preset_of(method, data, epsilon)
    return preset, ["--preset", preset], presets.all_of(trained_as(method))[preset].config.steps


def preset_of(method: str, data: str, epsilon: float) -> str:
    """Return the preset that is nearest to these data and this epsilon.

    Those of MNIST are also tried on Fashion-MNIST, and settings for one epsilon at the other, as a
    user would.
    """
    template = PRESETS.get(method, "{data}-eps{epsilon:g}")
    tried = [template.format(data=d, epsilon=e) for d in (data, "mnist")
             for e in (epsilon, 1.0, 10.0)]
    return next(name for name in tried if name in presets.all_of(trained_as(method)))


def folder(out: Path, method: str, data: str, epsilon: float, number: int = 0) -> Path:
    """Return the run folder of a row, or of a further training of it."""
    return out / f"{method}-{data}-eps{epsilon:g}{f'-{number}' * bool(number)}"


def repeated(args: argparse.Namespace, method: str, data: str, epsilon: float) -> dict[str, Any]:
    """Return a row of means over its trainings, or that of a single one or of one that failed."""
    each = [row(args, method, data, epsilon)]
    first = each[0]
    if "error" in first:
        return first
    times = args.repeats or (REPEATS if first["training_seconds"] < QUICK else 1)
    each += [row(args, method, data, epsilon, number) for number in range(1, times)]
    failed = [one for one in each if "error" in one]
    if failed or len(each) == 1:
        return next(iter(failed), first)
    if any(one.get(key) != first.get(key) for one in each for key in ALIKE):
        return first | {"error": f"its trainings are unlike in one of {', '.join(ALIKE)}; train "
                                 "it anew, with another --out"}
    took = [one["training_seconds"] for one in each]
    return first | {name: over_runs([one[name] for one in each]) for name in args.metrics} | {
        "repeats": len(each), "training_seconds": sum(took) / len(took),
        "training_seconds_of_each": took,
        "trained_with_of_each": [one.get("trained_with") for one in each]}


def row(args: argparse.Namespace, method: str, data: str, epsilon: float, number: int = 0
        ) -> dict[str, Any]:
    """Train and evaluate one system; return its row, or the reason why it failed."""
    result = {"method": method, "dataset": data, "epsilon": to_json(epsilon), "short": args.short}
    try:
        preset, named, usual = settings(method, data, epsilon)
    except UserError as error:
        return result | {"preset": None, "preset_steps": None, "error": str(error)}
    run = folder(args.out, method, data, epsilon, number)
    words = ("--dataset", *{**DATA, **COLOUR}[data])
    short = SHORT_IN_COLOUR if data in COLOUR else SHORT
    few = min(short.get(method, math.inf), usual or math.inf) if args.short else math.inf
    fewer = [f"--steps={few}"] * (few < math.inf)
    result |= {"preset": preset, "preset_steps": usual, "short": few < (usual or math.inf)}
    if fewer and method == "dpac":  # the classifier comes in as early as in the preset
        fewer.append(f"--t-c={few // 5}")
    if args.relation != REPLACE_ONE:
        fewer.append(f"--relation={args.relation}")
    if fewer:
        fewer.append("--sigma=None")  # the noise is found for these steps and this relation
    try:
        training.finish(run, trained_as(method), *named, *words, f"--epsilon={epsilon}", *fewer)
        measured = evaluated(args, run, words)
        privacy = read_json(run / "release" / "privacy.json")
        config = read_json(run / "config.json")
    except UserError as error:
        return result | {"error": str(error)}
    if method in WITH_RELATIONS and privacy["relation"] != args.relation:
        return result | {"error": f"{run} is of {privacy['relation']} neighbours; take another "
                                  "--out for each relation"}
    return result | {
        "short": usual is not None and config["config"]["steps"] < usual,
        "unit": privacy["unit"], "relation": privacy["relation"], "steps": privacy["steps"],
        "proven_epsilon": privacy["epsilon"], "noise_source": privacy["noise_source"],
        "training_seconds": common.training_seconds(run_folder.read(run / "metrics.jsonl")),
        "trained_with": {name: config.get(name) for name in ("versions", "git")},
        "setting": measured["setting"], **{name: measured[name] for name in args.metrics}}


def evaluated(args: argparse.Namespace, run: Path, words: tuple[str, ...]) -> dict[str, Any]:
    """Return metrics.json of a run; it is evaluated again where that is not what is asked for."""
    out = run / f"evaluation-{'full' if args.full else 'fast'}"
    path = out / "metrics.json"
    if not (path.exists() and answers(args, read_json(path))):
        weights = (["--inception-weights", args.inception_weights] if args.inception_weights
                   else [])
        common.command("dpgen_jax.evaluate", run, *words, "--metrics", *args.metrics,
                       "--classifiers", *args.classifiers, "--seeds", args.seeds,
                       "--out", out, *weights, *([] if args.full else ["--fast"]))
    return read_json(path)


def answers(args: argparse.Namespace, measured: Mapping[str, Any]) -> bool:
    """Return whether an evaluation has the metrics, classifiers and seeds that are asked for."""
    likeness = "fid" if args.inception_weights else "inception_score"
    accuracies = {name: scores["accuracy"] for name, scores in measured.get("gen2real", {}).items()}
    return (("fidelity" not in args.metrics or likeness in measured.get("fidelity", {}))
            and ("gen2real" not in args.metrics or accuracies.keys() == set(args.classifiers))
            and all(len(score["values"]) == args.seeds for score in accuracies.values()))


def main(argv: list[str] | None = None) -> None:
    args = arguments(argv)
    if args.curves:
        return print(draw(common.RESULTS / "systems-curves.png"))
    args.out.mkdir(parents=True, exist_ok=True)
    if args.repeats != 1:
        print(f"a row that is trained {args.repeats or REPEATS} times is so on the SAME records, "
              "each time for its whole epsilon: as often that is spent on them")
    for name in scenes.SETS.keys() & set(args.data):
        if not (made := Path("runs") / name).exists():
            scenes.write(made, *scenes.SETS[name])
    done: list[dict[str, Any]] = []
    for case in dict.fromkeys((method, data, math.inf if method == "dcgan" else epsilon)
                              for epsilon in args.epsilons for data in args.data
                              for method in args.methods):
        where = common.machine()
        done.append(repeated(args, *case))
        write_row(row_name(*case, args.full, args.relation), common.record(
            "systems", row_words(args, done[-1]), range(args.seeds), {"row": done[-1]}, where))
        print(table(done), flush=True)
    trained = dict.fromkeys((row["dataset"], row["epsilon"]) for row in done
                            if "steps" in row and row["epsilon"] != "inf")
    for data, epsilon in trained if args.draw else ():
        print(picture(done, data, epsilon, lambda method, at=(data, epsilon): folder(
            args.out, method, *at)))


# The rows of `benchmarks.systems` for `benchmarks.results_page`.

@functools.cache
def system_rows(data: tuple[str, ...] = tuple(DATA), full: bool = False,
                relation: str = REPLACE_ONE) -> list[dict[str, Any]]:
    """Returns the rows of `benchmarks.systems`, of data sets, an evaluation and a relation.

    A row that failed, and one without a CNN, is left out.
    """
    return [row for row in recorded(data, full, relation)
            if "cnn" in row.get("gen2real", {})]


def system_row(method: str, dataset: str, epsilon: float | str) -> dict[str, Any]:
    return next(row for row in system_rows() if (
        row["method"], row["dataset"], row["epsilon"]) == (method, dataset, epsilon))


def systems_table(methods: Sequence[str] = (), **which: Any) -> str:
    """Returns all private systems, or those named, by the mean of their CNN accuracies.

    Args:
        methods: those that are shown; all, if none is named.
        which: the rows, as for `system_rows`.
    """
    rows = [row for row in system_rows(**which) if row["epsilon"] in EPSILONS
            and (not methods or row["method"] in methods)]
    sums: dict[str, list[float]] = {}
    for row in rows:
        sums.setdefault(row["method"], []).append(row["gen2real"]["cnn"]["accuracy"]["mean"])
    order = sorted(sums, key=lambda name: -math.fsum(sums[name]))
    rows.sort(key=lambda row: order.index(row["method"]))
    head, rule, *lines = table(rows).strip().split("\n")
    for short, name in (("mnist,", "MNIST,"), ("fashion,", "Fashion-MNIST,"),
                        ("cifar,", "CIFAR-10,"),
                        *((f"{name},", f"{classes} classes, {images:,} images,")
                          for name, (classes, images) in scenes.SETS.items())):
        head = head.replace(f"| {short}", f"| {name}")
    return "\n".join([head, rule, *(line.replace("*", "\\*") for line in lines)])


# Accuracy by epsilon, of the systems that were run at more than two of them, in the fast evaluation
# and of replaced records.

Curves = dict[str, dict[float, dict[str, Any]]]


def curves(data: str) -> Curves:
    found: Curves = {}
    for row in system_rows():
        if row["dataset"] == data and math.isfinite(epsilon := float(row["epsilon"])):
            score = row["gen2real"]["cnn"]["accuracy"]
            found.setdefault(row["method"], {})[epsilon] = {
                "mean": score["mean"], "fewer": row["steps"] < (row["preset_steps"] or 0),
                "half": half_width(score["values"]) if "repeats" in row else 0.0}
    return {method: points for method, points in found.items() if len(points) > 2}


def curves_table() -> str:
    rows = [(common.DATA_NAMES[data], method, points) for data in DATA
            for method, points in curves(data).items()]
    epsilons = sorted({epsilon for _, _, points in rows for epsilon in points})


    def cell(point: dict[str, Any] | None) -> str:
        if point is None:
            return ""
        spread = f" ± {point['half']:.3f}" if point["half"] else ""
        return f"{point['mean']:.3f}{spread}" + "\\*" * point["fewer"]

    return common.markdown(("data", "system", *(f"epsilon {epsilon:g}" for epsilon in epsilons)),
                    ([data, shown_name(method),
                      *(cell(points.get(epsilon)) for epsilon in epsilons)]
                     for data, method, points in rows))


def draw(path: Path) -> Path:
    figure = Figure(figsize=(5.5 * len(DATA), 3.8), dpi=120, layout="constrained")
    for axes, data in zip(figure.subplots(1, len(DATA), squeeze=False)[0], DATA,
                          strict=True):
        found = curves(data)
        for method, points in found.items():
            where = sorted(points)
            axes.errorbar(where, [points[e]["mean"] for e in where],
                          [points[e]["half"] for e in where], marker="o", markersize=4, capsize=3,
                          label=method)
        axes.set(xscale="log", title=common.DATA_NAMES[data], xlabel="epsilon, replace-one",
                 ylabel="gen2real, CNN")
        ticks = sorted({epsilon for points in found.values() for epsilon in points})
        axes.set_xticks(ticks, [f"{epsilon:g}" for epsilon in ticks])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        if found:
            axes.legend(frameon=False)
    FigureCanvasAgg(figure).print_png(str(path))
    return path


if __name__ == "__main__":
    terminal.main(main)
