"""Trainings that a benchmark starts, and goes on with until they are finished.

A training that was stopped writes a release of the steps that it made, so that a release alone does
not tell whether the run is finished. A file NAME.unfinished beside the run folder tells it: it is
there from before the training begins until it has ended by itself.
"""

import contextlib
import dataclasses
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import common
from dpgen_jax import data
from dpgen_jax.core.run_folder import RunFolder
from dpgen_jax.run import lifecycle
from dpgen_jax.run.progress import Notices


def is_finished(run: Path) -> bool:
    """Return whether a run has a release and was not stopped before its training ended."""
    return (run / "release" / "privacy.json").exists() and not _mark(run).exists()


def is_begun(run: Path) -> bool:
    """Return whether there is a run to go on with."""
    return (run / "config.json").exists()


@contextlib.contextmanager
def unfinished(run: Path) -> Iterator[None]:
    """Mark a run as unfinished, until the block has ended without an error."""
    run.parent.mkdir(parents=True, exist_ok=True)
    _mark(run).touch()
    yield
    _mark(run).unlink()


def finish(run: Path, method: str, *words: Any) -> Path:
    """Train a run by the command of a user, or go on with it; checkpoints are not kept."""
    if not is_finished(run):
        resume = ["--resume"] if is_begun(run) else []
        with unfinished(run):
            common.command("dpgen_jax.train", method, *words, "--out", run, *resume)
    # Those of 4,000 teachers are 18 GB, and four such runs fill a disk.
    shutil.rmtree(RunFolder(run).checkpoints, ignore_errors=True)
    return run


def run(request: lifecycle.Resolved, dataset: data.Dataset) -> lifecycle.Release:
    """Train in this process, or go on with a run that was begun.

    Raises:
      UserError: As `lifecycle.run`.
      SystemExit: The training was stopped, by Ctrl-C too, after which a release of its steps is
        there.
    """
    assert request.out is not None
    notices = Notices()
    request = dataclasses.replace(request, resume=is_begun(request.out))
    release = lifecycle.run(request, dataset, lambda line: print(line, flush=True), notices)
    if notices.interrupted:
        raise SystemExit(128 + signal.SIGINT)
    return release


def _mark(run: Path) -> Path:
    return run.with_name(f"{run.name}.unfinished")
