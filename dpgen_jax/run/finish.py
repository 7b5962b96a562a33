"""The end of a run: what was paid for is on disk first."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dpgen_jax.core import storage
from dpgen_jax.core.config import to_json
from dpgen_jax.core.types import BudgetExceeded, UserError
from dpgen_jax.release import contents, pictures
from dpgen_jax.release.bundle import Release, load
from dpgen_jax.run import checkpoint
from dpgen_jax.run.folder import RunFolder, go_on, read_json, write_json
from dpgen_jax.run.loop import State
from dpgen_jax.run.progress import OUT_OF_TIME, Notices, Stop, reason
from dpgen_jax.run.training import Training

PROMISE = ("guarantee", "epsilon", "delta", "relation", "unit", "unit_column",
           "rows_per_unit", "noise_source", "package_version")


@contextmanager
def keeping(keep: Callable[[], None]) -> Iterator[None]:
    """Saves the last checkpoint where anything within fails.

    A run that goes on makes the release from it, at no cost in privacy.

    Args:
        keep: Saves the last checkpoint, unless it is there.
    """
    try:
        yield
    except BaseException:
        keep()
        raise


def finish(files: RunFolder, release: Release, post_steps: int, keep: Callable[[], None],
           notices: Notices, log: Callable[[str], None]) -> Release:
    """Writes the release, then the last checkpoint by `keep`, then the pictures.

    What fails after the release costs itself alone, and a line.

    Args:
        files: The run.
        release: What is to be released.
        post_steps: The steps for which its generator was trained on what had been released.
        keep: Saves the last checkpoint.
        notices: Tells what failed.
        log: Prints a line of the run; also where pictures show nothing.

    Returns:
        The release that is there: an earlier one of this run is kept where it comes of more steps,
        as it does if its last checkpoint failed, or if this training of the generator was stopped.

    Raises:
        UserError: Where the release cannot be written.
    """
    if further := _of_more_steps(files, release, post_steps):
        log(f"{files.release} is of more steps, and stays")
        return further
    try:
        _release(files, release, post_steps)
    except OSError as error:
        raise UserError(
            f"{files.release} cannot be written ({reason(error)}): free some space, then go on, at "
            f"no cost in privacy: {go_on(files.root)}") from error
    keep()
    pictures.write(files, release, notices, log)
    return release


def copied(files: RunFolder, address: str | None, notices: Notices, log: Callable[[str], None]
           ) -> None:
    """Copies the release to the object store that the user named; failing costs a line.

    Args:
        files: The run.
        address: Where to; None: nowhere.
        notices: Tells what failed.
        log: Prints a line of the run.
    """
    if address:
        with notices.attempt(f"copying {files.release} to {address}"):
            storage.copy(files.release, address)
            log(f"copied to {address}")


def nothing_released(files: RunFolder, stop: Stop) -> UserError:
    """Returns the error of a run that made no step."""
    if stop.reason:
        what = "out of time" if stop.signal is None else "interrupted"
        error = UserError(f"{what} before the first step: there is no generator to release; "
                          f"to go on: {go_on(files.root)}")
        error.exit_code = stop.exit_code or error.exit_code
        if stop.signal is None and checkpoint.steps(files.checkpoints):  # of the pretraining
            error.exit_code = OUT_OF_TIME
        return error
    return BudgetExceeded(f"what {files.ledger} holds leaves no budget for a step, and there is no "
                          "generator to release; start a new run, whose epsilon adds to this one's")


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
    """Writes the release, and which one it is, by which an audit knows it from another."""
    release.save(files.release)
    digest = contents.described(files.release / "config.json")["generator_sha256"]
    stated = hashlib.sha256((files.release / "privacy.json").read_bytes()).hexdigest()
    write_json(files.released, {"generator_sha256": digest, "privacy_sha256": [stated],
                                "post_steps": post_steps}, mode=0o600)


def leave_where_seconds_count(training: Training, state: State) -> None:
    """Ends a run that SIGTERM stopped with a checkpoint alone, where the user wants it so.

    Args:
        training: The training that was stopped.
        state: The state after its last whole block.

    Raises:
        UserError: With the exit code of the signal, where the checkpoint is there.
    """
    if training.stop.signal != signal.SIGTERM or training.runtime.on_term != "checkpoint":
        return
    training.keep(state)
    if state.step not in checkpoint.steps(training.files.checkpoints):
        return  # it could not be written, and a release is better than neither
    error = UserError(f"stopped by SIGTERM at step {state.step}, with a checkpoint and no release, "
                      f"as --on-term asks; to go on: {go_on(training.files.root)}")
    error.exit_code = training.stop.exit_code
    raise error
