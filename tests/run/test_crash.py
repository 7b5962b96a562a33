"""Killed at any moment, the ledger has counted what was drawn; nothing private leaves the run."""

import errno
import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import runs
import small_datalens

from dpgen_jax.accountant import ledger as books
from dpgen_jax.aggregation import noise
from dpgen_jax.core import run_folder
from dpgen_jax.core.types import UserError
from dpgen_jax.run import capacity, checkpoint, lifecycle

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_once")]

# Logs each draw before anybody gets it; kills itself where it is told to.
RUNNER = """
import os, signal, sys, time
from dpgen_jax import train
from dpgen_jax.cli import terminal
from dpgen_jax.aggregation.noise import OsBits
from dpgen_jax.run import checkpoint

log, moment = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND), sys.argv[2]
draw, write, calls = OsBits.draw, checkpoint.write_json, []

def die(where):
    calls.append(where)
    if moment == f"{where} {calls.count(where)}":
        os.kill(os.getpid(), signal.SIGKILL)

def logged(self, shape):
    out = draw(self, shape)
    os.write(log, b"%d\\n" % shape[0])
    die("draw")
    time.sleep(0.05)
    return out

def note(path, *args, **options):
    if path.name == "note.json":
        die("checkpoint")
    write(path, *args, **options)

OsBits.draw, checkpoint.write_json = logged, note
sys.argv[1:] = sys.argv[3:]
terminal.main(train.command)
"""
MOST = 4000  # which no test gets to


class Training:
    """One run folder, trained by processes that die."""

    def __init__(self, place):
        self.root, self.log, self.place = place / "run", place / "draws", place
        runs.npz(place / "noise.npz", *runs.images())
        (place / "runner.py").write_text(RUNNER)
        self.log.touch()

    def start(self, moment, *flags):
        words = ["datalens", "--dataset", "npz:noise.npz", *runs.FLAGS, "--sigma", "3000",
                 "--epsilon", "10", "--steps", MOST, "--steps-per-call", 1,
                 "--checkpoint-minutes", 0, "--out", "run", *flags]
        return subprocess.Popen(
            [sys.executable, "runner.py", str(self.log), moment, *map(str, words)], cwd=self.place,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=runs.environment())

    def wait_for(self, process, step):
        """Until the metrics tell of this step."""
        while not any(row["step"] >= step for row in run_folder.read(self.root / "metrics.jsonl")):
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.01)

    @property
    def steps_drawn(self):
        return sum(map(int, self.log.read_text().split()))

    def account(self):
        return books.account(books.read(self.root / "ledger.jsonl"))

    @property
    def saved(self):
        return checkpoint.steps(runs.files(self.root).checkpoints)


@pytest.mark.long
def test_killed_again_and_again_it_goes_on(tmp_path):
    training = Training(tmp_path)

    def died(process, incarnation):
        out, _ = process.communicate(timeout=1800)
        assert process.returncode == -signal.SIGKILL, out
        released = training.account()
        assert training.steps_drawn <= released.steps <= training.steps_drawn + 1 + incarnation
        assert released.incarnation == incarnation
        assert not (training.root / "release").exists()

    process = training.start("never")
    training.wait_for(process, 3)  # right after a line of progress
    time.sleep(np.random.default_rng().uniform(0, 0.5))
    process.kill()
    died(process, 0)
    first = training.saved[-1]  # one may be being written
    assert first >= 1

    died(training.start("checkpoint 3", "--resume"), 1)
    second = training.saved[-1]
    assert second == first + 2 and (
        runs.files(training.root).checkpoints / f"{second + 1}.unfinished").exists()

    died(training.start("draw 2", "--resume"), 2)  # charged and drawn, never used
    assert training.saved[-1] == second  # the next was being written

    process = training.start("never", "--resume")
    training.wait_for(process, second + 3)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=1800)
    assert process.returncode == 0 and "you interrupted it" in out, out
    assert "Traceback" not in out
    released, release = training.account(), lifecycle.load(training.root)
    assert released.incarnation == 3 and released.steps >= training.steps_drawn
    # three steps were drawn and thrown away, at least; they stay in the statement
    assert release.privacy["events"][0]["count"] == released.steps
    assert release.privacy["steps"] <= released.steps - 2
    assert release.privacy["epsilon"] == 10.0 and len(release.arrays(3)[0]) == 3
    steps = [row["step"] for row in run_folder.read(training.root / "metrics.jsonl")]
    assert steps == list(range(1, release.privacy["steps"] + 1))
    assert training.saved[-1] == steps[-1]


def no_space(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def other_full(*_, **__):
    raise ValueError("RESOURCE_EXHAUSTED: write failed")


TREE = {"a": np.arange(5, dtype=np.float32)}


@pytest.mark.parametrize(("name", "fault", "message"), [
    ("write_json", no_space, "No space left"), ("save_file", no_space, "No space left"),
    ("save_file", other_full, "RESOURCE_EXHAUSTED")])
def test_a_full_disk_keeps_the_earlier_checkpoints(tmp_path, monkeypatch, name, fault, message):
    folder = tmp_path / "checkpoints"
    for step in (1, 2):
        checkpoint.save(folder, step, [("part", TREE)], {"n": step}, keep=2)
    before = runs.snapshot(folder)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, name, fault)
        with pytest.raises(UserError, match=rf"checkpoints/3 cannot be written \(.*{message}"):
            checkpoint.save(folder, 3, [("part", TREE)], {"n": 3}, keep=2)
    assert checkpoint.steps(folder) == [1, 2]
    assert {k: v for k, v in runs.snapshot(folder).items() if "unfinished" not in k} == before
    assert small_datalens.equal(checkpoint.restore(folder, 2, "part", TREE), TREE)
    checkpoint.save(folder, 3, [("part", TREE)], {"n": 3}, keep=2)
    assert checkpoint.steps(folder) == [2, 3] and checkpoint.note_checkpoint(folder, 3,
                                                                             "n") == {"n": 3}
    assert not any("unfinished" in p.name for p in folder.iterdir())


class Cancelled(BaseException):
    """As `asyncio.CancelledError` is: no Exception."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_checkpoint_that_is_broken_off_beside_the_training_is_none(tmp_path, monkeypatch):
    """It was put in its place without the part, and without the checksum by which that is seen."""
    def broken_off(path, tree):
        raise Cancelled

    monkeypatch.setattr(checkpoint, "write_part", broken_off)
    saving = checkpoint.begin(tmp_path, 1, [("part", TREE)], {}, 2, beside=True)
    with pytest.raises(UserError, match=r"checkpoint .* cannot be written \(.*interrupted"):
        saving.finish()
    assert checkpoint.steps(tmp_path) == []


def test_a_full_disk_in_a_run_costs_a_checkpoint(tmp_path, monkeypatch):
    real, tried = checkpoint.write_json, []

    def full_at_2(path, *args, **options):
        if path.parent.name.startswith("2."):
            tried.append(path)
            no_space()
        real(path, *args, **options)

    monkeypatch.setattr(checkpoint, "write_json", full_at_2)
    release, said = runs.train(tmp_path / "run")
    assert re.search("checkpoints/2 cannot be written .*No space left", said)
    account = books.account(books.read(tmp_path / "run/ledger.jsonl"))
    assert account.steps == release.privacy["steps"] == 6 and len(tried) == 1
    assert checkpoint.steps(runs.files(tmp_path / "run").checkpoints) == [5, 6]


def test_a_disk_without_room_for_a_checkpoint_is_named_before_anything_is_spent(
        tmp_path, monkeypatch):
    monkeypatch.setattr(capacity.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(UserError, match=r"checkpoint of this run takes .* 0\.0 GB free.*--out"):
        runs.train(tmp_path / "new/run")
    assert not any(tmp_path.iterdir())


def test_a_full_disk_at_the_ledger_stops_before_the_draw(tmp_path, monkeypatch):
    """The release has the steps that were drawn before."""
    n_drawn, real, appends = [], os.pwrite, []

    def pwrite(descriptor, *args):
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("/ledger.jsonl"):
            appends.append(args)
        if len(appends) == 4:  # header, reserve, settle, reserve
            no_space()
        return real(descriptor, *args)

    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr(noise.OsBits, "draw", lambda self, shape: n_drawn.append(shape) or
                        noise.draw_bits(shape))
    release, said = runs.train(tmp_path / "run")
    assert "stopped at step 1 of 6: it cannot go on" in said
    assert re.search("warning: .*ledger.jsonl cannot be written .*nothing may be drawn", said)
    assert len(n_drawn) == 1 == lifecycle.load(tmp_path / "run").privacy["steps"]


def test_without_entropy_nothing_is_released(tmp_path, monkeypatch):
    def fails(n):
        raise OSError(errno.EIO, "no entropy")

    with monkeypatch.context() as patch:
        patch.setattr(os, "urandom", fails)
        with pytest.raises(OSError, match="no entropy"):
            runs.train(tmp_path / "run")
    account = books.account(books.read(tmp_path / "run/ledger.jsonl"))
    assert account.steps == 1 and not (tmp_path / "run/release").exists()
    assert run_folder.read(tmp_path / "run/metrics.jsonl") == []




def test_64_bits_are_refused_before_anything_is_charged(tmp_path):
    """It failed in the first block, whose steps were charged by then."""
    jax.config.update("jax_enable_x64", True)
    try:
        with pytest.raises(UserError, match="JAX is set to 64 bits"):
            runs.train(tmp_path / "run", steps=2)
    finally:
        jax.config.update("jax_enable_x64", False)
    assert not any(tmp_path.iterdir())
