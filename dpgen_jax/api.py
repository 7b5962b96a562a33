"""What the commands and a notebook share: `fit` on arrays, and `run` on a loaded data set."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dpgen_jax import (
    capacity,
    guarantee,
    init_schema,
    methods,
    presets,
    protection,
    purchases,
    resume,
    spending,
    watch,
)
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.accountant.published import PUBLISHED
from dpgen_jax.aggregation.bits import BitSource, OsBits, SeededBits
from dpgen_jax.aggregation.confident_gnmax import ConfidentGNMax
from dpgen_jax.config import Budget, Runtime, Watch, to_json
from dpgen_jax.data import Dataset, from_arrays, tables
from dpgen_jax.data import schema as schemas
from dpgen_jax.loop import State, require_32_bits
from dpgen_jax.plan import complete, with_records
from dpgen_jax.private import records as sealing
from dpgen_jax.private import teachers
from dpgen_jax.private.partition import Partition
from dpgen_jax.run import folder, statement
from dpgen_jax.run.bundle import Release, load
from dpgen_jax.run.finish import finish
from dpgen_jax.run.progress import Notices, Stop, interruptible, tell
from dpgen_jax.run.statement import Protected
from dpgen_jax.stages import Stages
from dpgen_jax.types import BudgetExceeded, Method, Private, Records, UserError
from dpgen_jax.watch import Watcher

__all__ = ["Release", "Run", "fit", "load", "run"]


def fit(method: str, x: Any, y: np.ndarray | None = None, *, epsilon: float | None = None,
        delta: float | None = None, preset: str | None = None, classes: int | None = None,
        schema: str | Path | None = None, out: str | Path | None = None, resume: bool = False,
        seed: int | None = None, runtime: Runtime = Runtime(), watched: Watch = Watch(),
        accept_uncovered: bool = False, total_epsilon: float | None = None,
        **fields: Any) -> Release:
    """Trains `method` on images x uint8 (or float in [0, 1]) [n, H, W(, ch)], labels y int [n]; or
    on x, a pandas DataFrame with the columns of `schema`, the path of a schema file.

    epsilon, delta: the promise; the preset's by default. fields: any field of the method's Config.
    classes: how many there are. accept_uncovered: where public fields, such as classes, are not
    declared, they are read from the records, and the privacy statement says "not covered"; without
    it that is refused. total_epsilon: refuses a run with which all runs on these records would go
    beyond it, as far as this machine's journal knows them. Returns the release; the run folder is
    `out`, or runs/METHOD-NAME-TIME.
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
    loaded, config = protection.federated(loaded, dataclasses.replace(chosen.config, **fields))
    return run(Run(method, name, config, budget, runtime, Path(out) if out else None, resume, seed,
                   watched, accept_uncovered, total_epsilon), loaded)


@dataclasses.dataclass(frozen=True)
class Run:
    """What the user asked for. seed: None for the operating system's randomness; accept_uncovered:
    public fields that were read from private records are released, and the statement says so;
    total_epsilon: the most that all runs on these records may promise together, as far as this
    machine knows."""

    method: str
    preset: str
    config: Any
    budget: Budget
    runtime: Runtime = Runtime()
    out: Path | None = None
    resume: bool = False
    seed: int | None = None
    watched: Watch = Watch()
    accept_uncovered: bool = False
    total_epsilon: float | None = None


def run(asked: Run, data: Dataset, say: Callable[[str], None] = tell,
        notices: Notices | None = None) -> Release:
    """One training run, from sealed records to the release folder. say: prints a line of the run;
    notices: tells the data holder what concerns nobody else, and what failed beside the release.
    Errors: as `fit`; SystemExit with its exit code after a signal that ended the run early."""
    notices = notices or Notices()
    if asked.resume and asked.out is None:
        raise UserError("--resume needs --out, the folder of the run to go on with")
    require_32_bits()
    bought = init_schema.bought(data.bought)
    config = complete(asked.method, with_records(asked.config, len(data.y_train)), data.spec,
                      asked.budget, bought)
    asked = dataclasses.replace(asked, runtime=capacity.fitting(
        asked.method, config, data.spec, asked.runtime, say))
    records = sealing.seal(data.x_train, data.y_train, data.spec)
    method = methods.get(asked.method).build(config, data.spec, asked.runtime)
    purchases.refuse_useless(method, asked.budget.class_epsilon)
    refine, polishing = jax.jit(method.refine), method.polish.steps if method.polish else 0
    public_rows = watch.prepare(asked.watched, data.spec, method.predict is not None)
    who = protection.protected(method, data)
    if not asked.accept_uncovered:
        protection.refuse_uncovered(data, asked.budget, asked.seed)
    for line in data.notes + protection.warnings(asked.budget, asked.seed, config, who):
        say(f"note: {line}")
    for line in data.private_notes:
        notices.private(line)
    layout = capacity.choose_layout(method, asked.runtime)
    root = asked.out or folder.default_root(asked.method, data.name)
    capacity.check_disk(root, method)
    public = _public_config(asked, config, data, who)
    files = folder.RunFolder(root)
    dealing, opened = _opened(asked, config, data, method, records, files, public, who, notices)
    say(f"run folder: {root}")
    with opened as ledger, interruptible() as stop:
        say(_summary(method, config, layout, asked.budget, who))
        bits = OsBits() if asked.seed is None else SeededBits(asked.seed, ledger.incarnation)
        purchases.charge_once(ledger, bought)
        counts = purchases.class_counts(files, ledger, records, data.spec,
                                        asked.budget.class_epsilon, bits, say)
        dealt = sealing.deal(records, dealing)

        def released(state: State, privacy: dict[str, Any] | None = None) -> Release:
            known = state.polished if method.polish else state.public
            model = refine(_last_key(state, config), known)
            return Release(asked.method, config, data.spec, jax.device_get(model), privacy or {},
                           counts)

        watcher = Watcher(asked.watched, config.steps + polishing, released, public_rows)
        stages = Stages(method, files, layout, ledger, asked.runtime, watcher, stop, notices)
        state, fault = _train(asked, config, stages, dealt, bits)
        if not state.step:
            raise nothing_made(files, stop)
        if state.step < config.steps:
            say(f"stopped at step {state.step} of {config.steps}: {_why(stop, fault)}")
        state = stages.polish(state, _last_key(state, config))
        if state.polish_step < polishing:
            say(f"the generator was trained for {state.polish_step} of {polishing} steps; "
                f"--resume --out {files.root} trains it to the end, at no cost in privacy")
        privacy = statement.statement(
            method=asked.method, preset=asked.preset, ledger=ledger,
            relation=method.mechanism.relation, protected=who, steps=state.step,
            noise_source=bits.label, accounting=config.accounting,
            as_published=_as_published(asked.method, config, asked.budget.delta, state.step))
        release = finish(files, released(state, privacy), lambda: stages.keep(state), notices)
        say(f"release: {files.release} ({release.privacy['steps']} steps; "
            f"{guarantee.line(release.privacy)})")
    return release


def _opened(asked: Run, config: Any, data: Dataset, method: Method, records: Private[Records],
            files: folder.RunFolder, public: dict[str, Any], who: Protected,
            notices: Notices) -> tuple[Partition, Ledger]:
    """Which unit has which record, and the open ledger. Before the folder is made it is looked up
    what was spent on these records."""
    holds = protection.stamp(asked.budget, asked.seed, config, who).holds
    own = files.run_id() if asked.resume else ""
    with spending.before(records, method.mechanism, asked.budget, holds, asked.total_epsilon,
                         own, notices.private) as witness:
        (folder.reopen if asked.resume else folder.create)(files.root, public)
        dealing = resume.identity(files, records,
                                  lambda key: protection.dealt(method, config, data, key),
                                  asked.resume, asked.seed)
        return dealing, resume.ledger(files, method.mechanism, public, asked.resume, witness(files))


def _as_published(method: str, config: Any, delta: float, steps: int) -> dict[str, Any] | None:
    """What a paper's formula gives for a run that kept to it; None for any other run."""
    if config.accounting == "proven":
        return None
    paper = PUBLISHED[method](config, delta)
    return {"epsilon": paper.epsilon(steps), "steps": steps, "formula": paper.formula}


def _train(asked: Run, config: Any, stages: Stages, dealt: Private[Records], bits: BitSource
           ) -> tuple[State, Exception | None]:
    """The warm start and the loop; see `Stages.train`."""
    method, layout = stages.method, stages.layout
    placed = teachers.place(dealt, layout)
    state = resume.start(stages.files, method, layout, stages.ledger, asked.resume, asked.seed)
    # Queries that were not answered leave budget for more steps than the plan, unless steps were
    # asked for: the ledger decides.
    settled = isinstance(method.mechanism, ConfidentGNMax)
    most = sys.maxsize if settled and not asked.config.steps else config.steps
    if method.warm and not state.step:
        state = stages.warm(state, placed)
    stages.watcher.last = state.step
    return stages.train(state, placed, bits, config.steps, most)


def _last_key(state: State, config: Any) -> jax.Array:
    """Of what comes after the last release."""
    return jax.random.fold_in(state.key, config.steps)


def _why(stop: Stop, fault: Exception | None) -> str:
    """Why a run made fewer steps than it was to."""
    if fault:
        return "it cannot go on"
    return "you interrupted it" if stop() else "the budget allows no further step"


def nothing_made(files: folder.RunFolder, stop: Stop) -> UserError:
    """Why a run that did no step has no release."""
    if stop():
        error = UserError("interrupted before the first step: there is no generator to release; "
                          f"go on with --resume --out {files.root}")
        error.exit_code = stop.exit_code or error.exit_code
        return error
    return BudgetExceeded(f"what {files.ledger} holds leaves no budget for a step, and there is no "
                          "generator to release; start a new run, whose epsilon adds to this one's")


def _public_config(asked: Run, config: Any, data: Dataset, who: Protected) -> dict[str, Any]:
    # Names of classes stand apart: the ledger's hash of what decides the cost is without them.
    spec = to_json(data.spec)
    names = spec.pop("class_names", [])
    return to_json({"method": asked.method, "preset": asked.preset, "dataset": data.name,
                    "records": who.counts.get("records"), "spec": spec, "class_names": names,
                    "config": config,
                    "budget": asked.budget, "runtime": asked.runtime,
                    "seed": asked.seed, "data_notes": data.notes,
                    "not_covered": who.uncovered, "simulated": who.simulated})


def _summary(method: Method, config: Any, layout: teachers.Layout, budget: Budget,
             who: Protected) -> str:
    size = teachers.unit_bytes(method) * layout.padded / 1e9
    kind = layout.devices[0].platform
    named = " and ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in who.counts.items())
    units = named + (f", {layout.n_units:,} units" if [*who.counts] == ["records"] else "")
    groups = f", 1 in {layout.groups} a step" if layout.groups > 1 else ""
    return (f"{units} ({size:.2f} GB of state{groups}), "
            f"{config.steps:,} steps, sigma {config.sigma:g} for epsilon {budget.epsilon:g} at "
            f"delta {budget.delta:g}; {len(layout.devices)} {kind} devices, "
            f"chunks of {layout.chunk}")
