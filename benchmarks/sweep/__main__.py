r"""Trains and evaluates a method over values of its configuration: tables and curves of the papers.

    python -m benchmarks.sweep                               # the published sweeps, by name
    python -m benchmarks.sweep gpate:table4:mnist-clip --plan        # steps and noise of each cell
    nohup python -m benchmarks.sweep gpate:table4:mnist-clip --full --runs 3 > sweep.log &
    python -m benchmarks.sweep gpate --set projection=5,10,20 --set epsilon=0.2,1 \
        --preset mnist-eps1 --dataset idx:mnist --metric gen2real.cnn.accuracy
    python -m benchmarks.sweep dpac:table4:fashion --preset fashion-eps10 --set real_steps=4

`--set` takes any flag of the training, nested ones (`generator.latent=10,50`) and the budget
(`epsilon=0.2,1`) among them; several values are compared, and several `--set` make a grid. A value
of several words stands in quotes (`--set "hidden=32 16,64"`), and a comma inside a value behind a
backslash. `--variant "NAME: FIELD=VALUE ..."` compares settings that change together, of another
METHOD too. On a published sweep, which `benchmarks.sweep.published` lists, `--set` overrides.

Each run is a run folder OUT/METHOD-PRESET-DIGEST/RUN, trained and evaluated by the commands of a
user; the digest is that of everything that decides the meaning of the run, so that a changed preset
never goes on with an old run, and sweeps that share a cell train it once. The script can be stopped
at any time and started again: it continues, a run from its checkpoint. Every cell is shown,
whatever its result, and nothing is chosen by it. The record and the figure are
results/sweep-NAME.json and .png.
"""

import argparse
import dataclasses
import re
import shlex
from pathlib import Path
from typing import Any, get_args

from benchmarks import common, training
from benchmarks.sweep import cells, figure
from benchmarks.sweep.cells import Cell, Job, Sweep
from benchmarks.sweep.published import SWEEPS
from dpgen_jax import methods
from dpgen_jax.cli import terminal
from dpgen_jax.core import run_folder
from dpgen_jax.core.config import State, digest, to_json
from dpgen_jax.core.errors import BudgetExceeded, UserError, nearest
from dpgen_jax.core.run_folder import read_json

NOT_FIELDS = {"out": "the script names the run folders; --out names the folder of all of them",
              "resume": "the script resumes by itself"}


def arguments(argv: list[str]) -> argparse.Namespace:
    script = common.Script("sweep", __doc__, record="--record")
    script.add_argument("name", nargs="?", help="a method, or a published sweep; lists them if "
                        "left out")
    script.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE,VALUE")
    script.add_argument("--variant", action="append", default=[],
                        metavar="NAME: FIELD=VALUE FIELD=VALUE")
    script.add_argument("--preset", help="as --set preset=")
    script.add_argument("--dataset", help="as --set dataset=")
    script.add_argument("--metric", nargs="+", action="extend", default=[],
                        help="paths in metrics.json, such as gen2real.cnn.accuracy, "
                             "fidelity.inception_score, average.gen2real.auroc")
    script.add_argument("--runs", "--repeats", type=int, default=1,
                        help="training runs of each cell")
    script.add_argument("--seeds", type=int, default=2, help="of the evaluation of each run")
    script.add_argument("--samples", type=int, help="those of the evaluation if left out")
    script.add_argument("--full", action="store_true", help="the full evaluation, not the fast one")
    script.add_argument("--inception-weights", type=Path, help="as in evaluate, for fidelity.fid")
    script.add_argument("--out", type=Path, default=Path("runs/sweep"),
                        help="folder of the run folders")
    script.add_argument("--state", default="device", choices=get_args(State),
                        help="where the state of teachers and critics lies, as in train")
    script.add_argument("--plan", action="store_true", help="train nothing: print each cell's "
                        "steps and noise")
    args = script.begin(argv)
    args.script = script
    return args


def assignment(text: str) -> tuple[str, list[str]]:
    """Return the field and the values of FIELD=VALUE,VALUE; a backslash keeps a comma."""
    field, _, values = text.partition("=")
    field = field.strip().lstrip("-").replace("-", "_")
    parts = [part.replace("\\,", ",").strip() for part in re.split(r"(?<!\\),", values)]
    if not field or not all(parts):
        raise UserError(f"{text!r} sets nothing; give FIELD=VALUE, or FIELD=VALUE,VALUE,...")
    if field in NOT_FIELDS:
        raise UserError(f"{field} cannot be set: {NOT_FIELDS[field]}")
    return field, parts


def selected(args: argparse.Namespace) -> Sweep:
    if args.name in methods.NAMES:
        sweep = Sweep(args.name, "the command line", {}, (Cell({}),))
    elif args.name in SWEEPS:
        sweep = SWEEPS[args.name]
    else:
        known = (*SWEEPS, *methods.NAMES)
        raise UserError(f"unknown sweep or method {args.name!r}{nearest(args.name, known)}: "
                        "without a name this script lists the published sweeps")
    if args.variant:
        rows = (variant(text) for text in args.variant)
        sweep = dataclasses.replace(sweep, cells=cells.variants(dict(rows)))
    for field in ("preset", "dataset"):
        if getattr(args, field) is not None:
            sweep = sweep.along(field, [getattr(args, field)])
    for text in args.set:
        sweep = sweep.along(*assignment(text))
    return sweep


def variant(text: str) -> tuple[str, dict[str, str]]:
    name, _, fields = text.partition(":")
    settings = {}
    for word in shlex.split(fields):
        field, values = assignment(word)
        settings[field] = ",".join(values)
    if not name.strip():
        raise UserError(f"--variant {text!r} has no name; give NAME: FIELD=VALUE FIELD=VALUE")
    return name.strip(), settings


def evaluated(one: Job, run: Path, words: list[str]) -> dict[str, Any]:
    """Return metrics.json of a run, evaluated with these flags; once."""
    out = run.parent / f"{run.name}-evaluation-{digest(words)[:8]}"
    if not (out / "metrics.json").exists():
        common.command("dpgen_jax.evaluate", run, *one.data_words, *words, "--out", out)
    return read_json(out / "metrics.json")


def measured(args: argparse.Namespace, one: Job, names: list[str], number: int, first: bool
             ) -> tuple[dict[str, Any], dict[str, Any]]:
    """Train and evaluate one run; the first one measures real records too, which are the same."""
    run = args.out / one.folder / str(number)
    stated = [] if args.state == "device" else ["--state", args.state]
    training.finish(run, one.method, *one.words, *stated)
    document = evaluated(one, run, cells.words(args, one.method, names, first))
    rows = run_folder.read(run / "metrics.jsonl")
    privacy = read_json(run / "release" / "privacy.json")
    seconds = common.training_seconds(rows)
    steps = rows[-1]["step"] - rows[0]["step"]  # the first block also compiles
    return {"steps": privacy["steps"], "training_seconds": seconds,
            "seconds_per_step": (seconds - rows[0]["seconds"]) / max(1, steps),
            "privacy": privacy,
            "metrics": {name: cells.leaf(document, name) for name in names}}, document


def row(args: argparse.Namespace, one: Job, names: list[str], first: bool) -> dict[str, Any]:
    """Return the row of a cell, or the reason why the budget does not allow it."""
    cell = one.cell
    result = {"label": cell.label, "point": cell.point, "method": one.method,
              "preset": one.args.preset, "epsilon": to_json(one.args.epsilon),
              "printed": cell.printed}
    try:
        runs, documents = zip(*(measured(args, one, names, number, first and not number)
                                for number in range(args.runs)), strict=True)
    except BudgetExceeded as error:
        return result | {"error": cells.refusal(one) or str(error)}
    document, run = documents[0], args.out / one.folder / "0"
    return result | {
        "config": read_json(run / "config.json")["config"], "dataset": document["dataset"],
        "setting": document.get("setting"), "runs": list(runs),
        "metrics": {name: cells.over_runs([run["metrics"][name] for run in runs])
                    for name in names},
        "real": cells.real(document, names)}


def record_path(args: argparse.Namespace) -> Path:
    """Return where the record is written: by the sweep's name and all that is set beside it."""
    if args.record:
        return args.record
    parts = [args.name, *args.set, *args.variant, *(getattr(args, field) or ""
                                                    for field in ("preset", "dataset"))]
    stem = "-".join(re.sub(r"[^\w.]+", "-", part).strip("-") for part in parts if part)
    return common.RESULTS / f"sweep-{stem[:120]}.json"


def plan(each: list[Job]) -> None:
    """Print what each cell will take."""
    for one in each:
        cost = cells.refusal(one)
        if not cost:
            config = one.planned()
            cost = f"{config.steps:,} steps, sigma {config.sigma:g}"
        print(f"{one.cell.label or one.method:40} epsilon {one.args.epsilon:<8g} {cost}")


def main(argv: list[str]) -> None:
    args = arguments(argv)
    if args.name is None:
        print("\n".join(f"{name:34} {sweep.source}" for name, sweep in SWEEPS.items()))
        return
    if args.runs < 1:
        raise UserError(f"--runs is {args.runs}; give 1 or more")
    sweep = selected(args)
    each = [cells.job(sweep, cell) for cell in sweep.cells]
    names = cells.names(args, sweep, each[0].method, each[0].args.preset)
    if args.plan:
        return plan(each)
    path, rows = record_path(args), list[dict[str, Any]]()
    for one in each:
        rows.append(row(args, one, names, first=not any("metrics" in done for done in rows)))
        print(rows[-1]["label"], rows[-1].get("error") or {
            name: round(score["mean"], 4) for name, score in rows[-1]["metrics"].items()},
            flush=True)
        results = {"sweep": args.name, "source": sweep.source, "metrics": names, "rows": rows}
        args.script.save(results, range(args.runs), path.stem)
        if any("metrics" in done for done in rows):
            figure.draw(results, path.with_suffix(".png"))
    print(path)


if __name__ == "__main__":
    terminal.main(main)
