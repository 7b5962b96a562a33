"""The release that was paid for is on disk first: a full disk, a broken font or a lost display can
cost a picture or a checkpoint, never the generator; and no generator lies beside another's
statement."""

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import re
import shutil

import jax
import numpy as np
import pytest
import runs
import small_datalens

from dpgen_jax import train
from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.core import errors, files, run_folder
from dpgen_jax.core.types import UserError
from dpgen_jax.data import from_arrays
from dpgen_jax.release import plots
from dpgen_jax.run import checkpoint, lifecycle
from dpgen_jax.run.progress import Notices

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_once")]
STEPS = 3


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def broken(*_, **__):
    raise RuntimeError("In FT2Font: Could not set the fontsize")


def run(root, resume=False):
    """The release, and the warnings."""
    notices = Notices(lambda line: None)
    release = lifecycle.run(runs.request(root, steps=STEPS, resume=resume),
                            from_arrays(*runs.images(), 3), lambda line: None, notices)
    return release, notices.failures


def totals(root):
    return books.account(books.read(root / "ledger.jsonl"))


def whole(root, steps=STEPS):
    """The release on disk is that of so many steps, and its statement covers the ledger."""
    release, account = lifecycle.load(root), totals(root)
    assert release.privacy["steps"] == steps and len(release.arrays(2)[0]) == 2
    assert release.privacy["epsilon"] >= account.epsilon()
    assert not list((root / "release").glob("*.tmp"))


def nth(monkeypatch, owner, name, number, act):
    """Calls `act` in place of the call of this number, from 1."""
    real, called = getattr(owner, name), []

    def counted(*args, **options):
        called.append(name)
        return (act if len(called) == number else real)(*args, **options)

    monkeypatch.setattr(owner, name, counted)
    return called


FAULTS = {
    "checkpoints": (checkpoint, "save_file", full,
                    [f"checkpoint .*/{step} cannot be written .No space" for step in (1, 2, 3)]),
    "samples": (plots, "samples_grid", full, [r"writing .*samples.png failed \(No space left"]),
    "a font": (plots.ImageFont, "truetype", broken, [r"writing .*samples.png failed \(In FT2Font"]),
    "curves": (plots, "curves", broken, ["writing .*curves.png failed"]),
    "metrics": (run_folder.MetricsWriter, "write", full,
                ["writing .*metrics.jsonl failed .No space left", "writing .*curves.png failed"])}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_fails_beside_the_release_costs_itself_alone(tmp_path, monkeypatch, call, fault):
    """A warning line for each on stderr, the last line as ever, and an exit code of its own."""
    owner, name, act, wanted = FAULTS[fault]
    monkeypatch.setattr(owner, name, act)
    runs.npz(tmp_path / "noise.npz", *runs.images())
    code, out, err = call(
        train, "datalens", "--dataset", f"npz:{tmp_path / 'noise.npz'}", *runs.FLAGS, "--steps",
        STEPS, "--steps-per-call", 1, "--checkpoint-minutes", 0, "--out", tmp_path / "run")
    warnings = [line for line in err.splitlines() if line.startswith("warning: ")]
    assert code == errors.INCOMPLETE == 4 and "Traceback" not in err
    last = [line for line in out.splitlines()
            if not line.startswith(("samples: ", "statement: "))][-1]
    assert last.startswith(f"release: {tmp_path / 'run/release'} (")
    assert len(warnings) == len(wanted)
    assert all(re.search(*pair) for pair in zip(wanted, warnings, strict=True))
    whole(tmp_path / "run")
    assert not list((tmp_path / "run").rglob("*.tmp"))


@pytest.mark.long
def test_without_a_fault_nothing_is_warned_of(tmp_path):
    _, failures = run(tmp_path / "run")
    assert not failures and checkpoint.steps(runs.files(tmp_path / "run").checkpoints) == [2, 3]


def test_a_release_that_cannot_be_written_is_written_by_a_resume(tmp_path, monkeypatch):
    root = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(files, "_write", full)
        with pytest.raises(UserError, match="run/release cannot be written .No space.*resume"
                           ) as caught:
            run(root)
    assert "\n" not in str(caught.value) and caught.value.exit_code == 2
    assert not any((root / "release").iterdir())
    assert checkpoint.steps(runs.files(root).checkpoints)[-1] == STEPS
    release, failures = run(root, resume=True)
    assert not failures and totals(root).steps == STEPS  # nothing was drawn or charged again
    whole(root)


def test_a_release_of_more_steps_is_kept(tmp_path, monkeypatch):
    """Its last checkpoint failed, and its steps are paid for: a resume, which knows fewer, must not
    put a worse one in its place."""
    root = tmp_path / "run"
    with monkeypatch.context() as patch:
        for number in (5, 6):  # two parts a checkpoint; at the end of the run it is tried again
            nth(patch, checkpoint, "save_file", number, full)
        release, failures = run(root)
    assert len(failures) == 1 and checkpoint.steps(runs.files(root).checkpoints) == [1, 2]
    before = runs.snapshot(root / "release")
    again, failures = run(root, resume=True)
    assert (
        not failures
        and small_datalens.equal(again.model, release.model)
        and totals(root).steps == STEPS
    )
    assert runs.snapshot(root / "release") == before and again.privacy["steps"] == STEPS


def test_older_checkpoints_make_room_for_the_release(tmp_path, monkeypatch):
    nth(monkeypatch, files, "_write", 2, full)
    _, failures = run(tmp_path / "run")
    assert not failures
    whole(tmp_path / "run")


@pytest.mark.parametrize(("name", "number", "steps"), [("reserve", 3, 2), ("settle", 2, 2)])
def test_a_ledger_that_takes_no_more_costs_only_the_steps_to_come(
        tmp_path, monkeypatch, name, number, steps):
    root, act = tmp_path / "run", lambda *_: (_ for _ in ()).throw(
        UserError("ledger.jsonl cannot be written (No space left on device)"))
    with monkeypatch.context() as patch:
        nth(patch, Ledger, name, number, act)
        if name == "settle":
            nth(patch, Ledger, "reserve", 3, act)
        _, failures = run(root)
    assert failures == ["ledger.jsonl cannot be written (No space left on device)"]
    whole(root, steps)
    run(root, resume=True)
    whole(root)
    assert totals(root).steps == STEPS


def test_a_ledger_that_takes_no_step_at_all_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(Ledger, "reserve", lambda *_: (_ for _ in ()).throw(UserError("full")))
    with pytest.raises(UserError, match="full"):
        run(tmp_path / "run")
    assert not (tmp_path / "run/release").exists()


# --- a crash between the files of a release

class Crash(BaseException):
    """The process ends here."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two releases: of an earlier step, which claims less, and of a later one."""
    release, _ = run(tmp_path_factory.mktemp("pair") / "run")
    later = dataclasses.replace(
        release, model=jax.tree.map(lambda a: np.asarray(a) + 1, release.model),
        privacy=release.privacy | {"epsilon": 20.0, "steps": 9})
    return release, later


def together(root, old, new):
    """The generator that lies in `root`, if any, is described and stated as its own, or refused:
    the index of the release, or None."""
    path = root / "generator.safetensors"
    if not path.exists():
        with pytest.raises(UserError):
            lifecycle.load(root)
        return None
    found = lifecycle.load(root)
    index = int(found.privacy["epsilon"] == new.privacy["epsilon"])
    assert small_datalens.equal(found.model, (old, new)[index].model)
    assert json.loads((root / "config.json").read_text())["generator_sha256"] == hashlib.sha256(
        path.read_bytes()).hexdigest()
    return index


def cut_short(patch, number, error):
    """The call of this number, from 1, of any that change the disk raises `error`."""
    calls = []

    def counted(real):
        def one(*args, **options):
            calls.append(real)
            if len(calls) == number:
                raise error(errno.ENOSPC, "cut")
            return real(*args, **options)
        return one

    for name in ("fsync", "replace", "unlink", "open"):
        patch.setattr(os, name, counted(getattr(os, name)))


@pytest.mark.parametrize("error", [Crash, OSError])
def test_no_generator_lies_beside_the_statement_of_another(pair, tmp_path, monkeypatch, error):
    """The later release is written over the earlier one, and cut short at each call in turn."""
    root, left, number = tmp_path / "release", [], 0
    with contextlib.suppress(StopIteration):
        while True:
            number += 1
            shutil.rmtree(root, ignore_errors=True)
            pair[0].save(root)
            with monkeypatch.context() as patch, contextlib.suppress(error):
                cut_short(patch, number, error)
                pair[1].save(root)
                raise StopIteration
            left.append(together(root, *pair))
    assert left[0] == 0 and left[-1] == 1 and len(left) > 8 and together(root, *pair) == 1
