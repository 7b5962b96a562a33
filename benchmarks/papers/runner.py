"""Runs one row: trains, evaluates part by part, and writes the results."""

from pathlib import Path

from benchmarks import common, images
from benchmarks.images import Protocol, likeness, usefulness
from benchmarks.papers import page
from benchmarks.papers.rows import SOURCES, Command, Nothing, Row, Training
from dpgen_jax import presets
from dpgen_jax.cli import terminal
from dpgen_jax.core import run_folder
from dpgen_jax.core.config import Runtime, to_json
from dpgen_jax.core.console import tell
from dpgen_jax.core.types import UserError
from dpgen_jax.evaluation import utility
from dpgen_jax.run import lifecycle, resolve

PAPERS = {name: Protocol(classifiers=classifiers, samples=66_667) for name, classifiers in (
    ("cnn", ("cnn",)), ("both", ("cnn", "mlp")), ("all", utility.ALL_CLASSIFIERS))}
"""The papers' protocols: classifiers learn from 60,000 images; a tenth of a draw is held out."""
OURS = Protocol("fast", ("cnn", "mlp"), 2, tasks=("gen2real",))
"""The protocol of `benchmarks.systems`, in which systems are compared here."""


WITH_STATE = ("images", "sweep", "topagg_bound")
"""Benchmarks that pass --state on to their trainings."""
WITH_WEIGHTS = {"sweep": "--inception-weights", "federated": "--inception"}
"""Benchmarks that measure FID, with what they call its weights."""


def run(row: Row, out: Path, weights: Path | None = None, state: str = "device",
        as_it_stands: bool = False) -> Path:
    """Run a row, or go on with it where it stopped, with the state where `train --state` has it."""
    if isinstance(row.work, Nothing):
        raise UserError(f"{row.name} cannot be run: {row.work.why}")
    if not row.work.known():
        raise UserError(f"{row.name} is not built yet: {row.work.command(row.name)}")
    absent = row.source().absent()
    if absent:
        raise UserError(f"{row.name} needs data. {absent}")
    if isinstance(row.work, Command):
        if as_it_stands:
            raise UserError(f"{row.name} is no single training; leave out --as-it-stands")
        return _command(row, row.work, state, weights)
    folder = out / row.work.name()
    return _training(row, row.work, folder, weights, None if as_it_stands else state)


def _command(row: Row, work: Command, state: str, weights: Path | None) -> Path:
    if not work.exists():
        raise UserError(f"{row.name} was measured by {work.command(row.name)}, which answered its "
                        "question and was removed; docs/results.md names a commit that has it")
    more: list[str | Path] = []
    if state != "device":
        if work.module not in WITH_STATE:
            raise UserError(f"{row.name} keeps its state in memory; leave out --state {state}")
        more += ["--state", state]
    if weights is not None:
        if work.module not in WITH_WEIGHTS:
            raise UserError(f"{row.name} measures no FID; leave out --inception-weights")
        more += [WITH_WEIGHTS[work.module], weights]
    common.command(f"benchmarks.{work.module}", *work.argv, *more)
    return work.result()


def _training(row: Row, work: Training, folder: Path, weights: Path | None, state: str | None
              ) -> Path:
    """Run a row that is one training; without a state that goes no further."""
    terminal.use_all_cores()
    where = common.machine()
    config, budget = work.request()
    tell(f"{row.name}: {work.method} {work.preset} in {folder}")
    name, preset = presets.get(work.method, work.preset)
    dataset = resolve.load_preset_data(name, preset, SOURCES[work.data].spec)
    parts = folder / "benchmark"
    if state is None:
        release = lifecycle.load(folder)
        parts /= f"at-{release.privacy['steps']}"
    else:
        release = images.train(lifecycle.Resolved(
            work.method, work.preset, config, budget,
            Runtime(moments=page.MOMENTS, state=state, checkpoint_minutes=20, keep_checkpoints=1),
            folder, accept_uncovered=True), dataset)
    # Other tables have the same training: what was measured for them stays in its results.
    papers, ours = (each.with_measured(parts) for each in (PAPERS[work.protocol], OURS))
    outcome = images.results(release, dataset, folder) | {
        "row": row.name, "request": {"config": to_json(config), "budget": to_json(budget)},
        "stopped": state is None,
        "charged_epsilon": run_folder.read(folder / "metrics.jsonl")[-1].get("epsilon"),
        "evaluation": usefulness(release, dataset, parts, papers),
        "as_systems": usefulness(release, dataset, parts, ours),
        "fidelity": likeness(release, dataset, parts, weights)}
    if shares := images.votes(folder):
        outcome["votes"] = shares
    flags = [row.name, *["--as-it-stands"] * outcome["stopped"]]
    return images.write("papers", flags, work.result().stem, outcome, papers.seeds, folder, where)
