"""Checkpoints are written beside the training, one at a time, and are those of their moment."""

import itertools
import json
import pathlib
import re
import signal
import subprocess
import sys
import threading
import types

import numpy as np
import pytest
import runs
import small_datalens

from dpgen_jax.accountant import ledger as books
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.core import hosts
from dpgen_jax.core.config import Runtime
from dpgen_jax.core.types import UserError, unseal
from dpgen_jax.methods import datalens
from dpgen_jax.run import capacity, checkpoint, training
from dpgen_jax.run.progress import Notices

LIMIT = 1800
"""Seconds after which something waits for what never comes."""
TREE = {"a": np.arange(5, dtype=np.float32)}


def begun(folder, step, tree=TREE):
    return checkpoint.begin(folder, step, [("part", tree)], {"n": step}, keep=2, beside=True)


def test_it_is_a_checkpoint_when_it_is_finished_and_not_before(tmp_path, monkeypatch):
    go_on, real = threading.Event(), checkpoint.write_part
    monkeypatch.setattr(checkpoint, "write_part", lambda *args: go_on.wait(LIMIT) and real(*args))
    saving = begun(tmp_path / "all", 1)
    assert not saving.parts.written and checkpoint.steps(tmp_path / "all") == []
    go_on.set()
    saving.finish()
    assert saving.parts.written and checkpoint.steps(tmp_path / "all") == [1]
    assert checkpoint.note_checkpoint(tmp_path / "all", 1, "n") == {"n": 1}
    assert small_datalens.equal(checkpoint.restore(tmp_path / "all", 1, "part", TREE), TREE)


def test_what_the_thread_could_not_write_is_told_when_it_is_finished(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    begun(tmp_path / "all", 1).finish()
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_part", full)
        saving = begun(tmp_path / "all", 2)
        with pytest.raises(UserError, match=r"/2 cannot be written \(No space .* are kept: free"):
            saving.finish()
    assert [path.name for path in (tmp_path / "all").iterdir()] == ["1"]


def test_what_cannot_be_copied_is_told_too(tmp_path):
    def parts():
        yield "part", TREE
        raise MemoryError("no room for a copy")

    saving = checkpoint.begin(tmp_path / "all", 1, parts(), {}, keep=2, beside=True)
    with pytest.raises(UserError, match=r"/1 cannot be written \(no room for a copy"):
        saving.finish()
    assert not [*(tmp_path / "all").iterdir()]


DIES = """
import os, pathlib, signal, sys
import numpy as np
from dpgen_jax.run import checkpoint

folder, tree, real = pathlib.Path(sys.argv[1]), {"a": np.arange(5, dtype=np.float32)}, []
checkpoint.save(folder, 1, [("part", tree)], {"n": 1}, keep=2)
real = checkpoint.write_part

def dies(path, tree):
    if path.name == "second":
        os.kill(os.getpid(), signal.SIGKILL)
    real(path, tree)

checkpoint.write_part = dies
checkpoint.begin(folder, 2, [("first", tree), ("second", tree)], {}, keep=2, beside=True).finish()
"""


@pytest.mark.slow
def test_a_crash_while_it_is_written_leaves_the_one_before(tmp_path):
    folder = tmp_path / "all"
    done = subprocess.run([sys.executable, "-c", DIES, str(folder)], check=False, timeout=LIMIT)
    assert done.returncode == -signal.SIGKILL
    assert (folder / "2.unfinished" / "first.safetensors").exists()
    assert checkpoint.steps(folder) == [1]
    assert small_datalens.equal(checkpoint.restore(folder, 1, "part", TREE), TREE)
    begun(folder, 2).finish()
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2"]


def seeded(root, monkeypatch, beside):
    """A run that keeps all its checkpoints, and how each was written: (thread, step)."""
    drawn, written, real = itertools.count(), [], checkpoint.write_part
    next_draw = [threading.Event() for _ in range(20)]
    draw = SeededBits.draw

    def drawing(self, shape):
        next_draw[next(drawn)].set()
        return draw(self, shape)

    def write(path, tree):
        step = int(path.parent.name.split(".")[0])
        if beside and step < runs.CONFIG.steps:
            assert next_draw[step].wait(LIMIT)  # the next step has begun, and changes the state
        written.append((threading.current_thread().name, step))
        real(path, tree)

    with monkeypatch.context() as patch:
        patch.setattr(SeededBits, "draw", drawing)
        patch.setattr(checkpoint, "write_part", write)
        patch.setattr(capacity, "copy_fits", lambda method: beside)
        patch.setattr(checkpoint, "thin", lambda folder, keep: 0)
        runs.train(root, seed=3)
    return written


@pytest.mark.slow
def test_a_checkpoint_has_the_state_of_its_step_however_late_it_is_written(
        tmp_path, monkeypatch, compiled_once):
    steps = runs.CONFIG.steps
    waited = seeded(tmp_path / "waited", monkeypatch, False)
    beside = seeded(tmp_path / "beside", monkeypatch, True)
    assert {name for name, _ in waited} == {"MainThread"}
    assert {name for name, _ in beside} == {"checkpoint"}
    order = [step for _, step in beside]
    assert order == sorted(order) and {*order} == {*range(1, steps + 1)}  # one at a time
    method = datalens.build(small_datalens.CONFIG, small_datalens.SPEC)
    layout = small_datalens.layout(4, units=runs.CONFIG.teachers)
    folders = [runs.files(tmp_path / name).checkpoints for name in ("waited", "beside")]
    for step in range(1, steps + 1):
        states = [checkpoint.restore_state(folder, method, layout, step) for folder in folders]
        assert small_datalens.equal(states[0].public, states[1].public)
        assert small_datalens.equal(*(unseal(state.units) for state in states))
    # The line that each names was on the disk before, and charges its step.
    lines = (tmp_path / "beside/ledger.jsonl").read_text().splitlines(keepends=True)
    for step in range(1, steps + 1):
        note = checkpoint.note_checkpoint(folders[1], step, "ledger_lines", "ledger_head")
        before = tmp_path / f"ledger-{step}.jsonl"
        before.write_text("".join(lines[:note["ledger_lines"]]))
        assert books.account(books.read(before)).steps == step
        assert json.loads(lines[note["ledger_lines"] - 1])["hash"] == note["ledger_head"]


@pytest.mark.slow
def test_a_failure_in_the_thread_costs_a_checkpoint_and_one_line(
        tmp_path, monkeypatch, compiled_once):
    real = checkpoint.write_part

    def full_at_2(path, tree):
        if path.parent.name.startswith("2."):
            raise OSError(28, "No space left on device")
        real(path, tree)

    monkeypatch.setattr(checkpoint, "write_part", full_at_2)
    release, said = runs.train(tmp_path / "run")
    assert len(re.findall("checkpoints/2 cannot be written .No space left", said)) == 1
    assert release.privacy["steps"] == 6
    assert checkpoint.steps(runs.files(tmp_path / "run").checkpoints) == [5, 6]


@pytest.mark.parametrize(("share", "fits"), [(0.2, True), (0.9, False)])
def test_a_copy_is_made_where_it_fits(monkeypatch, share, fits):
    """On CPU it lies beside the state itself."""
    method = datalens.build(small_datalens.CONFIG, small_datalens.SPEC)
    size = capacity.state_bytes(method)
    monkeypatch.setattr(capacity.files, "machine_bytes", lambda: size / share)
    assert capacity.copy_fits(method) == fits


@pytest.mark.parametrize(("machines", "fits"), [(1, False), (4, True)])
def test_processes_of_one_machine_share_its_memory(monkeypatch, machines, fits):
    """Eight processes were taken to have eight times as much, wherever they run."""
    method = datalens.build(small_datalens.CONFIG, small_datalens.SPEC)
    size = capacity.state_bytes(method)
    monkeypatch.setattr(capacity.files, "machine_bytes", lambda: size)
    monkeypatch.setattr(hosts.Team, "count", 8)
    monkeypatch.setattr(hosts.Team, "machines", machines)
    assert capacity.memory() == machines * size and capacity.copy_fits(method) == fits


@pytest.mark.slow
@pytest.mark.parametrize(("fits", "says"), [
    (True, "while a checkpoint is written, the state takes twice its memory"),
    (False, "the training waits for its checkpoints, since a second copy")])
def test_the_run_says_what_a_checkpoint_costs(tmp_path, monkeypatch, compiled_once, fits, says):
    monkeypatch.setattr(capacity, "copy_fits", lambda method: fits)
    _, said = runs.train(tmp_path / "run", steps=1)
    assert says in said


class Clock:
    """Seconds that pass when a test says so."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize(("runtime", "takes", "wait"), [
    (Runtime(), 1, 5), (Runtime(), 60, 20), (Runtime(), 600, 200),
    (Runtime(checkpoint_minutes=7), 600, 7)])
def test_checkpoints_that_stop_the_training_take_little_of_its_time(
        monkeypatch, runtime, takes, wait):
    """One that takes `takes` seconds is followed by `wait` minutes of training, a block each."""
    clock, ends, begins = Clock(), [], []

    def begin(*_):
        begins.append(clock.now)
        clock.now += takes
        ends.append(clock.now)
        return types.SimpleNamespace(parts=types.SimpleNamespace(written=True),
                                     finish=lambda: None)

    monkeypatch.setattr(checkpoint, "begin_state", begin)
    job = types.SimpleNamespace(method=types.SimpleNamespace(post_training=None),
                                ledger=types.SimpleNamespace(epsilon=lambda: 0.0))
    run = training.Training(job, runs.files(pathlib.Path()), runtime, monitor=None, stopping=None,
                            notices=Notices(pytest.fail), charged="epsilon", elapsed=clock)
    state = types.SimpleNamespace(done=0, units=(), public=())
    run.begin(state, types.SimpleNamespace(advance=lambda *_: None))
    while len(begins) < 4:
        clock.now += 60
        run.on_block(state, {})
    assert 60 * runtime.checkpoint_minutes < begins[0] <= 60 * (runtime.checkpoint_minutes + 1)
    for end, after in zip(ends, begins[1:], strict=False):
        assert 60 * wait < after - end <= 60 * (wait + 1)  # due after `wait`: at the next block
