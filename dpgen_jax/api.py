"""What the commands and a notebook share: `fit` on arrays, and `run` on a loaded data set."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dpgen_jax import init_schema, methods, presets, purchases, resume
from dpgen_jax.accountant import calibrate
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.bits import BitSource, OsBits, SeededBits
from dpgen_jax.config import Budget, Runtime, to_json
from dpgen_jax.data import Dataset, from_arrays, tables
from dpgen_jax.data import schema as schemas
from dpgen_jax.loop import State, train
from dpgen_jax.plan import complete
from dpgen_jax.private import partition, teachers
from dpgen_jax.private import records as sealing
from dpgen_jax.private import votes as vote_log
from dpgen_jax.run import bundle, folder, metrics, pictures
from dpgen_jax.run.bundle import Release, load
from dpgen_jax.run.progress import Bar, clock, interruptible
from dpgen_jax.types import BudgetExceeded, Method, Private, Records, UserError

MEMORY_SHARE = 0.7
"""of the memory that the teachers may fill; the rest is for records, messages and the generator"""
OnBlock = Callable[[State, dict[str, float]], None]

__all__ = ["Release", "Run", "fit", "load", "run"]


def fit(method: str, x: Any, y: np.ndarray | None = None, *, epsilon: float | None = None,
        delta: float | None = None, preset: str | None = None, classes: int | None = None,
        schema: str | Path | None = None, out: str | Path | None = None, resume: bool = False,
        seed: int | None = None, runtime: Runtime = Runtime(), **fields: Any) -> Release:
    """Trains `method` on images x uint8 (or float in [0, 1]) [n, H, W(, ch)], labels y int [n]; or
    on x, a pandas DataFrame with the columns of `schema`, the path of a schema file.

    epsilon, delta: the promise; the preset's by default. fields: any field of the method's Config.
    classes: how many there are; read from the labels where it is not declared, which the privacy
    statement then says. Returns the release; the run folder is `out`, or runs/METHOD-NAME-TIME.
    Errors: UserError, BudgetExceeded.
    """
    methods.get(method)
    if schema is None:
        loaded, kind = from_arrays(x, y, classes), "arrays"
    elif y is None and classes is None:
        loaded, kind = tables.from_frame(x, schemas.read(str(schema))), "csv"
    else:
        raise UserError("with a schema, give the DataFrame alone: the schema names the label and "
                        "its classes")
    name, chosen = presets.get(method, preset, kind)
    known = {f.name for f in dataclasses.fields(chosen.config)}
    for field in fields.keys() - known:
        raise UserError(f"unknown field {field!r} of {method}{methods.nearest(field, list(known))}")
    budget = Budget(chosen.epsilon if epsilon is None else epsilon,
                    chosen.delta if delta is None else delta, chosen.class_epsilon)
    return run(Run(method, name, dataclasses.replace(chosen.config, **fields), budget, runtime,
                   Path(out) if out else None, resume, seed), loaded)


@dataclasses.dataclass(frozen=True)
class Run:
    """What the user asked for. seed: None for the operating system's randomness."""

    method: str
    preset: str
    config: Any
    budget: Budget
    runtime: Runtime = Runtime()
    out: Path | None = None
    resume: bool = False
    seed: int | None = None


def run(asked: Run, data: Dataset, say: Callable[[str], None] = print) -> Release:
    """One training run, from sealed records to the release folder. Errors: as `fit`."""
    if asked.resume and asked.out is None:
        raise UserError("--resume needs --out, the folder of the run to go on with")
    bought = init_schema.bought(data.bought)
    config = complete(asked.method, asked.config, data.spec, asked.budget, bought)
    for line in data.notes + data.private_notes + _warnings(asked.budget, len(data.y_train)):
        say(f"note: {line}")
    asked = _fitting(asked, config, data, say)
    records = sealing.seal(data.x_train, data.y_train, data.spec)
    partition.check(sealing.count(records), config.teachers)
    method = methods.get(asked.method).build(config, data.spec, asked.runtime)
    layout = choose_layout(method, asked.runtime)
    root = asked.out or folder.default_root(asked.method, data.name)
    public = _public_config(asked, config, data)
    files = (folder.reopen if asked.resume else folder.create)(root, public)
    say(f"run folder: {root}")
    key = resume.identity(files, records, asked.resume, asked.seed)
    with resume.ledger(files, method.mechanism, public, asked.resume) as ledger, \
            interruptible() as stop:
        say(_summary(method, config, layout, asked.budget, sealing.count(records)))
        bits = OsBits() if asked.seed is None else SeededBits(asked.seed, ledger.incarnation)
        purchases.charge_once(ledger, bought)
        counts = purchases.class_counts(files, ledger, records, data.spec,
                                        asked.budget.class_epsilon, bits, say)
        state = _train(asked, config, method, records, key, files, layout, ledger, bits, stop)
        if not state.step:
            raise _nothing_made(files, stop())
        if state.step < config.steps:
            why = "you interrupted it" if stop() else "the budget allows no further step"
            say(f"stopped at step {state.step} of {config.steps}: {why}")
        privacy = bundle.statement(
            method=asked.method, preset=asked.preset, mechanism=method.mechanism,
            epsilon=ledger.target if math.isfinite(ledger.epsilon()) else math.inf,
            delta=asked.budget.delta, spent=ledger.spent(), steps=state.step,
            noise_source=bits.label, n_records=sealing.count(records), notes=data.notes)
    model = jax.jit(method.refine)(jax.random.fold_in(state.key, config.steps), state.public)
    release = Release(asked.method, config, data.spec, jax.device_get(model), privacy, counts)
    release.save(files.release)
    pictures.write(files, release)
    say(f"release: {files.release} (epsilon {privacy['epsilon']:g}, delta "
        f"{asked.budget.delta:g}, {state.step} steps)")
    return release


def _train(asked: Run, config: Any, method: Method, records: Private[Records], key: bytes,
           files: folder.RunFolder, layout: teachers.Layout, ledger: Ledger, bits: BitSource,
           stop: Callable[[], bool]) -> State:
    """Deals the records out and runs the loop. The state comes back without its units, whose memory
    the generator's own work may then use."""
    dealt = partition.assign(sealing.count(records), config.teachers, key)
    placed = teachers.place(sealing.deal(records, dealt), layout)
    state = resume.start(files, method, layout, ledger, asked.resume, asked.seed)

    def keep(votes: Private[jax.Array], answered: np.ndarray) -> None:
        if method.mechanism.keeps_votes:
            vote_log.append(files.votes, votes, answered)

    # Queries that were not answered leave budget for more steps than the plan, unless steps were
    # asked for: the ledger decides.
    most = config.steps if asked.config.steps or not method.mechanism.keeps_votes else sys.maxsize
    with _recorder(files, ledger, method, layout, asked.runtime, config.steps, state) as record:
        state = train(method, placed, state, layout, ledger, bits, steps=most,
                      steps_per_call=asked.runtime.steps_per_call, on_block=record, keep=keep,
                      stop=stop)
    return dataclasses.replace(state, units=None)


def _fitting(asked: Run, config: Any, data: Dataset, say: Callable[[str], None]) -> Run:
    """The run, with moments at half precision where the teachers' state would not fit otherwise."""
    method = methods.get(asked.method).build(config, data.spec, asked.runtime)
    needed, there = teachers.unit_bytes(method) * config.teachers, _memory()
    if asked.runtime.moments != "float32" or needed < MEMORY_SHARE * there:
        return asked
    say(f"note: the teachers would take {needed / 1e9:.0f} GB of {there / 1e9:.0f} GB memory; "
        "their moments are kept in bfloat16 (as with --moments bfloat16)")
    return dataclasses.replace(asked, runtime=dataclasses.replace(
        asked.runtime, moments="bfloat16"))


def _memory() -> float:
    """Bytes of memory of all devices together, or of the machine."""
    held = [(device.memory_stats() or {}).get("bytes_limit", 0) for device in jax.devices()]
    return sum(held) or float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _nothing_made(files: folder.RunFolder, interrupted: bool) -> UserError:
    if interrupted:
        return UserError("interrupted before the first step: there is no generator to release")
    return BudgetExceeded(f"what {files.ledger} holds leaves no budget for a step, and there is no "
                          "generator to release; start a new run, whose epsilon adds to this one's")


@contextmanager
def _recorder(files: folder.RunFolder, ledger: Ledger, method: Method, layout: teachers.Layout,
              runtime: Runtime, steps: int, state: State) -> Iterator[OnBlock]:
    """After each block: a line of public metrics, the progress bar, and now and then a checkpoint;
    at the end, however it comes, a checkpoint of the last whole block."""
    latest = saved = state
    elapsed, next_save = clock(), 60 * runtime.checkpoint_minutes

    def save():
        nonlocal saved, next_save
        # An interrupt inside a block leaves a state whose arrays were given away to that block.
        lost = jax.tree.leaves(latest.public)[0].is_deleted()
        if latest.step > saved.step and not lost:
            resume.save(files, latest, method, layout, ledger, runtime.keep_checkpoints)
        saved, next_save = latest, elapsed() + 60 * runtime.checkpoint_minutes

    with metrics.MetricsWriter(files.metrics, resume_step=state.step) as writer:
        bar = Bar(steps, state.step)

        def record(now: State, values: dict[str, float]) -> None:
            nonlocal latest
            epsilon = ledger.epsilon()
            writer.write({"step": now.step, "epsilon": epsilon, "seconds": elapsed(), **values})
            bar.advance(now.step - latest.step, {"epsilon": f"{epsilon:.3f}"})
            latest = now
            if elapsed() > next_save:
                save()

        try:
            yield record
        finally:
            bar.close()
            save()


def choose_layout(method: Method, runtime: Runtime) -> teachers.Layout:
    """Devices and chunk: what Runtime says, or what was measured to be best."""
    available = jax.devices()
    if runtime.devices > len(available):
        raise UserError(f"--devices {runtime.devices}: only {len(available)} are there")
    # A large network's products use all cores from one device; more devices gain nothing there,
    # and their threads then wait for each other in XLA's collectives.
    large = teachers.unit_bytes(method) > 2**20
    alone = large and available[0].platform == "cpu"
    devices = tuple(available[:runtime.devices or (1 if alone else len(available))])
    on_cpu = devices[0].platform == "cpu"
    # A unit without a network of its own is one row of a product, of which many are taken at once.
    best = 256 if teachers.unit_bytes(method) < 2**10 else 1 if on_cpu else 64
    chunk = runtime.chunk or best
    return teachers.Layout(method.mechanism.n_units, chunk, devices, runtime.parallel)


def _warnings(budget: Budget, n_records: int) -> tuple[str, ...]:
    if math.isfinite(budget.epsilon):
        return tuple(calibrate.check_budget(budget.epsilon, budget.delta, n_records))
    return ("epsilon is infinite: this run gives no privacy",)


def _public_config(asked: Run, config: Any, data: Dataset) -> dict[str, Any]:
    return to_json({"method": asked.method, "preset": asked.preset, "dataset": data.name,
                    "records": len(data.y_train), "spec": data.spec, "config": config,
                    "budget": asked.budget, "runtime": asked.runtime,
                    "seed": asked.seed, "data_notes": data.notes})


def _summary(method: Method, config: Any, layout: teachers.Layout, budget: Budget, n: int) -> str:
    size = teachers.unit_bytes(method) * layout.padded / 1e9
    kind = layout.devices[0].platform
    return (f"{n:,} records, {config.teachers:,} teachers ({size:.2f} GB of state), "
            f"{config.steps:,} steps, sigma {config.sigma:g} for epsilon {budget.epsilon:g} at "
            f"delta {budget.delta:g}; {len(layout.devices)} {kind} devices, "
            f"chunks of {layout.chunk}")
