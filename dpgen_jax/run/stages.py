"""The stages of a run that write, spend and train: begin, deal, train, release.

The order of their writes makes a crash at any moment safe: the journal is read, the folder is made,
the ledger is opened, and only then is anything charged or drawn.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
import numpy as np

from dpgen_jax import methods
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.noise import BitSource, OsBits, SeededBits
from dpgen_jax.core import hosts, run_folder, storage
from dpgen_jax.core.config import to_json
from dpgen_jax.core.errors import option
from dpgen_jax.core.files import Json, shortfall
from dpgen_jax.core.run_folder import (
    BUDGET_EPSILON,
    EPSILON,
    RunFolder,
    go_on,
    read_json,
    write_json,
)
from dpgen_jax.core.types import BudgetExceeded, Private, PyTree, Records, TableSpec, UserError
from dpgen_jax.data import sources
from dpgen_jax.methods.shared.config import MethodConfig
from dpgen_jax.private.records import Partition
from dpgen_jax.release import bundle, contents, documents, guarantee, plots
from dpgen_jax.release.bundle import Release, load
from dpgen_jax.release.files import write_csv
from dpgen_jax.run import checkpoint, follower, planning, resume, side_releases, spending
from dpgen_jax.run.loop import Job, State
from dpgen_jax.run.monitor import Best, Monitor
from dpgen_jax.run.planning import Log, Plan, memory_line, summary_lines
from dpgen_jax.run.progress import OUT_OF_TIME, Notices, Stop, interruptible, reason
from dpgen_jax.run.training import Training

COLUMNS = 12
ROWS = 1000

BARELY = 12
"""The shades, out of 255, within which images look all alike."""

Drawings = dict[str, Callable[[Path], object]]
"""The function that draws each file, by the name of the file."""


def write_pictures(files: RunFolder, release: Release, notices: Notices, log: Log) -> None:
    """Draws a first look at a release, again in a resumed run.

    It is release/samples.png, a row for each class, or of a table release/samples.csv and
    marginals.png; nothing of a classifier; and curves.png of the public metrics. One that cannot be
    drawn is missing, and `notices` say why.
    """
    made: Drawings = {}
    if not release.classifies:
        spec = release.spec
        made = _table(release, spec) if isinstance(spec, TableSpec) else _images(release, log)
    drawings = {files.release / name: draw for name, draw in made.items()}
    drawings[files.root / "curves.png"] = lambda path: plots.curves(
        run_folder.read(files.metrics), path)
    for path, draw in drawings.items():
        with notices.attempt(f"writing {path}"):
            _replace(path, draw)


def _replace(path: Path, draw: Callable[[Path], object]) -> None:
    """Whole or not at all; the picture of an earlier release goes in any case."""
    path.unlink(missing_ok=True)
    unfinished = path.with_name(path.name + ".tmp")
    try:
        draw(unfinished)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _images(release: Release, log: Log) -> Drawings:
    def samples(path: Path) -> None:
        spec = release.spec
        x, _ = release.sample(spec.classes * COLUMNS, np.repeat(np.arange(spec.classes), COLUMNS))
        plots.samples_grid(x, path, spec.classes, spec.class_names or None)
        if shade := nothing_shown(x):
            log(f"note: samples.png shows nothing: every image is {shade}; a larger budget, more "
                "records or another method may help")

    return {"samples.png": samples}


def nothing_shown(x: np.ndarray) -> str:
    """Returns the shade that all images uint8 [n, H, W, ch] have; empty where they differ."""
    least, most = int(x.min()), int(x.max())
    if most - least > BARELY:
        return ""
    return ("all black" if most <= BARELY else "all white" if least >= 255 - BARELY else
            f"of one shade ({(least + most) // 2} of 255)")


def _table(release: Release, spec: TableSpec) -> Drawings:
    sample = functools.cache(lambda: release.arrays(ROWS))
    return {"samples.csv": lambda path: write_csv(path, *sample(), spec),
            "marginals.png": lambda path: plots.marginals(spec, *sample(), path)}


PROMISE = ("guarantee", "epsilon", "delta", "relation", "unit", "unit_column",
           "rows_per_unit", "noise_source", "package_version")


@contextmanager
def keeping(keep: Callable[[], None]) -> Iterator[None]:
    """Saves the last checkpoint where anything within fails.

    A run that goes on makes the release from it, at no cost in privacy.
    """
    try:
        yield
    except BaseException:
        keep()
        raise


def copied(files: RunFolder, address: str | None, notices: Notices, log: Callable[[str], None]
           ) -> None:
    """Copies the release to an object store, if the user named one; a failure is only logged."""
    if address:
        with notices.attempt(f"copying {files.release} to {address}"):
            storage.copy(files.release, address)
            log(f"copied to {address}")


def nothing_released(files: RunFolder, stop: Stop) -> UserError:
    """Returns the error of a run that made no step."""
    if stop.reason:
        what = "out of time" if stop.signal is None else "interrupted"
        error = UserError(f"{what} before the first step: there is no generator to release; to "
                          f"resume: {go_on(files.root)}")
        error.exit_code = stop.exit_code or error.exit_code
        if stop.signal is None and checkpoint.steps(files.checkpoints):  # of the pretraining
            error.exit_code = OUT_OF_TIME
        return error
    return BudgetExceeded(f"the charges in {files.ledger} leave no budget for a step, so there is "
                          "no generator to release; start a new run, whose epsilon adds to this "
                          "one's")


def _of_more_steps(files: RunFolder, release: Release, post_steps: int) -> Release | None:
    """The release that is there, if it is one of the same promise, and of more steps."""
    try:
        there = load(files.release)
        steps = int(there.privacy["steps"])
    except Exception:  # there is none, or one that is damaged in whatever way
        return None
    same = all(getattr(there, name) == getattr(release, name) for name in (
        "method", "config", "spec", "class_counts")) and all(
        there.privacy.get(name) == to_json(release.privacy.get(name)) for name in PROMISE)
    further = (steps, _post_steps_there(files)) > (release.privacy["steps"], post_steps)
    return there if same and further else None


def _post_steps_there(files: RunFolder) -> int:
    """The `post_steps` of the release that is there; 0 where that is not known."""
    try:
        return int(read_json(files.released)["post_steps"])
    except (UserError, KeyError, TypeError, ValueError):  # an earlier version's, or damaged
        return 0


def _release(files: RunFolder, release: Release, post_steps: int) -> None:
    """On a full disk the older checkpoints make room for it."""
    try:
        _save(files, release, post_steps)
    except OSError:
        if not checkpoint.thin(files.checkpoints, 1):
            raise
        _save(files, release, post_steps)


def _save(files: RunFolder, release: Release, post_steps: int) -> None:
    """Writes the release, and which one it is, by which an audit recognises it."""
    release.save(files.release)
    digest = contents.described(files.release / "config.json")["generator_sha256"]
    stated = hashlib.sha256((files.release / "privacy.json").read_bytes()).hexdigest()
    write_json(files.released, {"generator_sha256": digest, "privacy_sha256": [stated],
                                "post_steps": post_steps}, mode=0o600)


def leave_where_seconds_count(training: Training, state: State) -> None:
    """Ends a run that SIGTERM stopped, with only a checkpoint, where the user wants it so.

    Raises:
        UserError: With the exit code of the signal, where the checkpoint is there.
    """
    if training.stopping.signal != signal.SIGTERM or training.runtime.on_term != "checkpoint":
        return
    training.keep(state)
    if state.step not in checkpoint.steps(training.files.checkpoints):
        return  # it could not be written, and a release is better than neither
    error = UserError(f"stopped by SIGTERM at step {state.step}, with a checkpoint and no release, "
                      f"as set by {option('on_term')}; to resume: {go_on(training.files.root)}")
    error.exit_code = training.stopping.exit_code
    raise error


@dataclasses.dataclass(frozen=True)
class Begun:
    """A run that has a folder.

    Attributes:
        guaranteed: Whether the run promises something, be it with an exception.
        earlier: What the journal says of earlier runs on these records, in lines for the data
            holder only.
    """

    partition: Partition
    ledger: Ledger
    stop: Stop
    notices: Notices
    guaranteed: bool
    earlier: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Dealt:
    """Records that lie with their units.

    Attributes:
        records: Those of each unit, sealed, on their devices: x [U, m, ...], y int32 [U, m].
    """

    records: Private[Records]
    class_counts: tuple[int, ...] | None
    bits: BitSource


@dataclasses.dataclass(frozen=True)
class Trained:
    """The end of the training.

    Attributes:
        state: The state after the last step, and after the post-training.
        save: Writes the last checkpoint, unless it is there.
        best: The best generator of the run, where it is to be released.
    """

    state: State
    class_counts: tuple[int, ...] | None
    noise_source: str
    save: Callable[[], None]
    best: Best | None = None


@contextmanager
def begin(plan: Plan, log: Log, notices: Notices) -> Iterator[Begun]:
    """Makes or reopens the run folder and its ledger, and listens to signals within.

    Before the folder is made, the journal is searched for what was spent on these records.

    Raises:
        UserError: For a folder, a ledger or records that are not those of this run.
        BudgetExceeded: Where all runs on these records would exceed the total.
        SystemExit: At the end, with its exit code, after a signal that ended the run early.
    """
    request, files, mechanism = plan.request, plan.files, plan.method.mechanism
    stamp = planning.stamp_of_run(request.budget, request.seed, plan.config, plan.protected)
    origin = plan.origin
    # Nobody needs the line on public data; with a purchase, this command has printed it before.
    silent = sources.is_built_in(plan.public_config["data_options"]) or (
        origin.bought_first and not origin.resumed)
    earlier: list[str] = []

    def spent(line: str) -> None:
        earlier.append(line)
        if not silent:
            notices.private(line)

    identity = spending.Identity(plan.records, plan.content, plan.grouping)
    start = spending.Start(request.budget, stamp.kind == "valid", request.total_epsilon,
                           origin.before, plan.purchases)
    promise = spending.Promise(mechanism.relation, plan.protected.unit.kind, "")
    with spending.before(identity, promise, start, spent) as witness:
        resume.open_folder(origin, plan.public_config)
        partition = resume.partition(origin, plan.records, plan.assign, request.seed)
        ledger = resume.open_ledger(origin, mechanism, plan.public_config, witness(files))
    shared = f"only {files.release.name}/ in it" if stamp.holds else "nothing in it"
    log(f"run folder: {files.root} (share {shared})")
    for line in filter(None, (shortfall(), resume.of_torn_lines(ledger))):
        log(line)
    with ledger, interruptible(request.runtime.max_minutes) as stop:
        follower.require_shared(files)
        yield Begun(partition, ledger, stop, notices, stamp.holds, tuple(earlier))


def deal(plan: Plan, begun: Begun, log: Log) -> Dealt:
    """Charges and makes the side releases, and deals the records to the units.

    Raises:
        UserError: For class counts on the disk that this ledger never paid for.
        BudgetExceeded: From the ledger.
    """
    for line in (summary_lines(plan), memory_line(plan)):
        plan.request.details(log)(line)
    seed, ledger = plan.request.seed, begun.ledger
    bits = OsBits() if seed is None else SeededBits(seed, ledger.incarnation)
    side_releases.charge_once(ledger, plan.purchases)
    bound = plan.protected.unit.rows
    counted = side_releases.Counted(plan.records, plan.spec, bound,
                                    begun.partition if bound else None)
    counts = side_releases.class_counts(plan.files, ledger, counted,
                                        plan.request.budget.class_epsilon, bits, log)
    if counts is None and _in_equal_shares(plan):
        log("note: synthetic records have all classes in equal shares; "
            f"{option('class_epsilon')} spends a part of epsilon on the shares of the data")
    hosts.tell("deal", index=begun.partition.index, sizes=begun.partition.sizes)
    return Dealt(follower.local_records(plan, begun.partition), counts, bits)


def _in_equal_shares(plan: Plan) -> bool:
    """Whether a release without class counts draws its classes in equal shares."""
    method, spec = plan.method, plan.spec
    labelled = not isinstance(spec, TableSpec) or spec.labelled
    return method.predict is None and method.class_shares is None and labelled and spec.classes > 1


def train(plan: Plan, begun: Begun, dealt: Dealt, log: Log) -> Trained:
    """Trains: pretraining, the steps, and the post-training on what they released.

    The state that it returns has at least one step.

    Raises:
        UserError: Where the run was interrupted before its first step, or the generator diverged.
        BudgetExceeded: Where the budget allowed no step.
    """
    generator = release_maker(plan, dealt.class_counts, begun.notices)
    planned = plan.config.planned_steps
    post_steps = plan.method.post_training.steps if plan.method.post_training else 0
    best = Best(plan.files.best) if plan.request.monitor.keep_best else None
    monitor = Monitor(plan.request.monitor, planned + post_steps, generator, plan.public_rows,
                      best=best)
    job = Job(plan.method, plan.layout, begun.ledger, dealt.bits,
              plan.request.runtime.steps_per_call)
    training = Training(job, plan.files, plan.request.runtime, monitor, begun.stop, begun.notices,
                        EPSILON if begun.guaranteed else BUDGET_EPSILON)
    state, fault = _steps(plan, training, dealt, log)
    if not state.step:
        raise nothing_released(plan.files, begun.stop)
    why = "it cannot go on" if fault else begun.stop.reason
    with keeping(lambda: training.keep(state)):
        if state.step < planned:
            why = why or "the budget allows no further step"
            log(f"stopped at step {state.step} of {planned}: {why}")
        elif why and plan.is_open_ended:
            log(f"stopped at step {state.step}, and the budget may allow more: {why}")
        leave_where_seconds_count(training, state)
        if plan.method.refinement:
            training.keep(state)  # it may take longer and more memory than all steps
        state = training.post_train(state, last_key(state, plan.config))
        leave_where_seconds_count(training, state)
    begun.notices.out_of_time = begun.stop.out_of_time
    begun.notices.interrupted = begun.stop.signal is not None
    if state.post_step < post_steps:
        log(f"the generator was trained for {state.post_step} of {post_steps} steps; "
            f"to train it to the end, at no cost in privacy: {run_folder.go_on(plan.files.root)}")
    return Trained(state, dealt.class_counts, dealt.bits.label, lambda: training.keep(state),
                   best)


def release(plan: Plan, begun: Begun, trained: Trained, log: Log) -> Release:
    """Writes the release with its privacy statement, then the last checkpoint and the pictures.

    Raises:
        UserError: Where the release cannot be written.
        Exception: From the method, of any kind; the last checkpoint is there.
    """
    request, state = plan.request, trained.state
    with keeping(trained.save):
        facts = guarantee.Facts(
            method=request.method, preset=request.preset, steps=state.step,
            noise_source=trained.noise_source, accounting=plan.config.accounting,
            as_published=as_published(
                request.method, plan.config, request.budget.delta, state.step),
            made_by=plan.public_config.get("made_by"), started_on=started_on(plan.files))
        privacy = guarantee.statement(facts, begun.ledger, plan.method.mechanism.relation,
                                      plan.protected)
        made = dataclasses.replace(
            release_maker(plan, trained.class_counts, begun.notices)(state), privacy=privacy)
        with begun.notices.attempt("taking the best generator"):
            made = trained.best.instead_of(made, log) if trained.best else made
        if guarantee.of(privacy).holds and not sources.is_built_in(
                plan.public_config["data_options"]):
            with begun.notices.attempt("listing what was spent"):
                log(spending.spent_line(begun.ledger, plan.purchases, state.step))
        with begun.notices.attempt(f"writing {plan.files.holder}"):
            _for_the_holder(plan.files, begun.earlier)
        return publish(plan.files, made, trained.save, begun.notices, log, state.post_step)


def started_on(files: RunFolder) -> str | None:
    """Returns the day on which a run began; runs of earlier versions did not note it."""
    day: str | None = read_json(files.config).get("started_on")
    return day


def _for_the_holder(files: RunFolder, earlier: tuple[str, ...]) -> None:
    """Writes the page in private/ for the data holder only."""
    text = documents.holder_page(str(files.root), earlier).encode()
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(os.open(files.holder, flags, 0o600), "wb") as out:
        out.write(text)


def publish(files: RunFolder, release: Release, keep: Callable[[], None], notices: Notices,
            log: Log, post_steps: int = 0) -> Release:
    """Ends a run of any kind: writes the release, the last checkpoint by `keep`, and the pictures.

    A failure after the release loses only what failed, and is logged. `post_steps` are the steps
    for which the generator was trained on what had been released.

    Returns:
        The release that is there: an earlier one of this run is kept where it comes of more steps,
        as it does if its last checkpoint failed, or if this training of the generator was stopped.

    Raises:
        UserError: Where the release cannot be written.
    """
    if further := _of_more_steps(files, release, post_steps):
        log(f"{files.release} comes from more steps, and is kept")
        release = further
    else:
        try:
            _release(files, release, post_steps)
        except OSError as error:
            raise UserError(
                f"{files.release} cannot be written ({reason(error)}): free some space, then "
                f"resume, at no cost in privacy: {go_on(files.root)}") from error
        keep()
        write_pictures(files, release, notices, log)
    log(f"release: {files.release} ({release.privacy['steps']} steps; "
        f"{guarantee.line(release.privacy)})")
    return release


def release_maker(plan: Plan, class_counts: tuple[int, ...] | None, notices: Notices
                  ) -> Callable[[State], Release]:
    """Returns the function from a state to the release as it stands, without a statement.

    A refinement that fails leaves the model as it was, and a line by `notices`. It reads released
    values, so whether it fails depends on no record otherwise.
    """
    finalize = jax.jit(plan.method.finalize)

    def at(state: State) -> Release:
        # From the host: the other processes are at their own work.
        public = jax.device_get(state.post_state if plan.method.post_training else state.public)
        arrays = jax.device_get(finalize(last_key(state, plan.config), public))
        if plan.method.refinement:
            try:
                arrays = bundle.refined(plan.method.refinement, public, arrays)
            except Exception as error:  # of any kind: what was paid for must not depend on it
                notices.failure("the model is released without its refinement, which failed "
                                f"({reason(error)}); to refine it, at no cost in privacy: "
                                f"{run_folder.go_on(plan.files.root)}")
        return Release(plan.request.method, plan.config, plan.spec, arrays, {}, class_counts)

    return at


def last_key(state: PyTree, config: MethodConfig) -> jax.Array:
    """Returns the key of what comes after the last planned step."""
    return jax.random.fold_in(state.key, config.planned_steps)


def as_published(method: str, config: MethodConfig, delta: float, steps: int) -> Json | None:
    """Returns what a paper's formula gives for a run that kept to it; None for any other run."""
    paper = None if config.accounting == "proven" else methods.published(method, config, delta)
    if paper is None:
        return None
    return {"epsilon": paper.epsilon(steps), "steps": steps, "formula": paper.formula}


def _steps(plan: Plan, training: Training, dealt: Dealt, log: Log
           ) -> tuple[State, Exception | None]:
    """The pretraining and the loop; see `Training.train`."""
    method = plan.method
    state = resume.state(plan.origin, method, plan.layout, training.job.ledger, plan.request.seed)
    if method.pretraining and not state.step:
        state = training.pretrain(state, dealt.records)
    training.monitor.last = state.step
    steps = plan.config.planned_steps
    if state.step >= steps and not plan.is_open_ended:
        log(f"all {steps:,} steps were done before: nothing more is trained or charged")
    return training.train(state, dealt.records, steps,
                          sys.maxsize if plan.is_open_ended else steps)
