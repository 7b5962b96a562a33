"""Killed at any moment, the ledger has counted what was drawn; nothing private leaves the run."""

import errno
import json
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
import toy
from PIL import Image

from dpgen_jax import api, capacity, loop
from dpgen_jax.accountant import ledger as books
from dpgen_jax.aggregation import bits
from dpgen_jax.data import from_arrays
from dpgen_jax.run import checkpoint, metrics
from dpgen_jax.types import UserError, unseal

# Logs each draw before anybody gets it; kills itself where it is told to.
RUNNER = """
import os, signal, sys, time
from dpgen_jax import cli, train
from dpgen_jax.aggregation.bits import OsBits
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
cli.main(train.command)
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
        words = ["--dataset", "npz:noise.npz", *runs.FLAGS, "--sigma", "3000", "--epsilon", "10",
                 "--steps", MOST, "--steps-per-call", 1, "--checkpoint-minutes", 0, "--out", "run",
                 *flags]
        return subprocess.Popen(
            [sys.executable, "runner.py", str(self.log), moment, *map(str, words)], cwd=self.place,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=runs.environment())

    def wait_for(self, process, step):
        """Until the metrics tell of this step."""
        while not any(row["step"] >= step for row in metrics.read(self.root / "metrics.jsonl")):
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.01)

    @property
    def drawn(self):
        return sum(map(int, self.log.read_text().split()))

    def held(self):
        return books.account(books.read(self.root / "ledger.jsonl"))

    @property
    def saved(self):
        return checkpoint.steps(runs.files(self.root).checkpoints)


def test_killed_again_and_again_it_goes_on(tmp_path):
    training = Training(tmp_path)

    def died(process, incarnation):
        out, _ = process.communicate(timeout=1800)
        assert process.returncode == -signal.SIGKILL, out
        held = training.held()
        assert training.drawn <= held.steps <= training.drawn + 1 + incarnation
        assert held.incarnation == incarnation
        assert not (training.root / "release").exists()

    process = training.start("never")
    training.wait_for(process, 3)  # right after a line of progress
    time.sleep(np.random.default_rng().uniform(0, 0.5))
    process.kill()
    died(process, 0)
    first = training.saved[-1]
    assert first >= 2

    died(training.start("checkpoint 3", "--resume"), 1)
    second = training.saved[-1]
    assert second == first + 2 and (
        runs.files(training.root).checkpoints / f"{second + 1}.unfinished").exists()

    died(training.start("draw 2", "--resume"), 2)  # charged and drawn, never used
    assert training.saved[-1] == second + 1

    process = training.start("never", "--resume")
    training.wait_for(process, second + 3)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=1800)
    assert process.returncode == 0 and "you interrupted it" in out, out
    assert "Traceback" not in out
    held, release = training.held(), api.load(training.root)
    assert held.incarnation == 3 and held.steps >= training.drawn
    # three steps were drawn and thrown away, at least; they stay in the statement
    assert release.privacy["events"][0]["count"] == held.steps
    assert release.privacy["steps"] <= held.steps - 2
    assert release.privacy["epsilon"] == 10.0 and len(release.sample(3)[0]) == 3
    steps = [row["step"] for row in metrics.read(training.root / "metrics.jsonl")]
    assert steps == list(range(1, release.privacy["steps"] + 1))
    assert training.saved[-1] == steps[-1]


def no_space(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def orbax_full(*_, **__):
    raise ValueError("RESOURCE_EXHAUSTED: write failed")


TREE = {"a": np.arange(5, dtype=np.float32)}


@pytest.mark.parametrize(("name", "fault", "message"), [
    ("write_json", no_space, "No space left"), ("_checkpointer", no_space, "No space left"),
    ("_checkpointer", orbax_full, "RESOURCE_EXHAUSTED")])
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
    assert toy.equal(checkpoint.restore(folder, 2, "part", TREE), TREE)
    checkpoint.save(folder, 3, [("part", TREE)], {"n": 3}, keep=2)
    assert checkpoint.steps(folder) == [2, 3] and checkpoint.note(folder, 3, "n") == {"n": 3}
    assert not any("unfinished" in p.name for p in folder.iterdir())


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
    held = books.account(books.read(tmp_path / "run/ledger.jsonl"))
    assert held.steps == release.privacy["steps"] == 6 and len(tried) == 1
    assert checkpoint.steps(runs.files(tmp_path / "run").checkpoints) == [5, 6]


def test_a_disk_without_room_for_a_checkpoint_is_named_before_anything_is_spent(
        tmp_path, monkeypatch):
    monkeypatch.setattr(capacity.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(UserError, match=r"checkpoint of this run takes .* 0\.0 GB free.*--out"):
        runs.train(tmp_path / "new/run")
    assert not any(tmp_path.iterdir())


def test_a_full_disk_at_the_ledger_stops_before_the_draw(tmp_path, monkeypatch):
    """What was drawn before is released."""
    drawn, real, appends = [], os.pwrite, []

    def pwrite(descriptor, *args):
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("/ledger.jsonl"):
            appends.append(args)
        if len(appends) == 4:  # header, reserve, settle, reserve
            no_space()
        return real(descriptor, *args)

    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr(bits.OsBits, "draw", lambda self, shape: drawn.append(shape) or
                        bits.draw_bits(shape))
    release, said = runs.train(tmp_path / "run")
    assert "stopped at step 1 of 6: it cannot go on" in said
    assert re.search("warning: .*ledger.jsonl cannot be written .*nothing may be drawn", said)
    assert len(drawn) == 1 == api.load(tmp_path / "run").privacy["steps"]


def test_without_entropy_nothing_is_released(tmp_path, monkeypatch):
    def fails(n):
        raise OSError(errno.EIO, "no entropy")

    with monkeypatch.context() as patch:
        patch.setattr(os, "urandom", fails)
        with pytest.raises(OSError, match="no entropy"):
            runs.train(tmp_path / "run")
    held = books.account(books.read(tmp_path / "run/ledger.jsonl"))
    assert held.steps == 1 and not (tmp_path / "run/release").exists()
    assert metrics.read(tmp_path / "run/metrics.jsonl") == []


# --- what leaves the run

def encodings(array):
    """The ways in which a row of numbers could end up in a file."""
    row = np.ravel(array)
    yield from (row.astype(kind).tobytes() for kind in ("u1", "<i4", "<i8", "<f4", "<f8"))
    yield (row / 255).astype("<f4").tobytes()
    yield (row / np.float32(toy.CONFIG.teachers)).astype("<f4").tobytes()
    for gap in (",", ", ", " ", "\n"):
        yield gap.join(map(str, row.tolist())).encode()


def test_the_search_finds_what_is_there():
    row = np.arange(8)
    assert any(found in json.dumps({"x": row.tolist()}).encode() for found in encodings(row))
    assert any(found in b"a" + row.astype(np.float32).tobytes() for found in encodings(row))


def test_nothing_private_leaves_the_run(tmp_path, monkeypatch, capfd):
    """Neither the partition key, nor a record, nor a count of votes is in what may be shared,
    or in what is printed."""
    votes, real = [], loop.release

    def spied(mechanism, noise, total):
        jax.debug.callback(lambda sums: votes.append(np.array(sums)), unseal(total))
        return real(mechanism, noise, total)

    monkeypatch.setattr(loop, "release", spied)
    x, y = runs.images()
    release = api.run(runs.asked(tmp_path / "run"), from_arrays(x, y, 3))
    jax.effects_barrier()
    assert len(votes) == runs.CONFIG.steps and all(np.abs(v).max() > 2 for v in votes)

    out, err = capfd.readouterr()
    root = tmp_path / "run"
    shared = runs.snapshot(root / "release") | {
        name: (root / name).read_bytes() for name in
        ("metrics.jsonl", "config.json", "curves.png", "ledger.jsonl")}
    shared |= {"stdout": out.encode(), "stderr": err.encode(), "repr": repr(release).encode()}
    for name in [name for name in shared if name.endswith(".png")]:
        path = root / ("" if name == "curves.png" else "release") / name
        shared[f"{name}, decoded"] = np.asarray(Image.open(path).convert("L")).tobytes()

    key = bytes.fromhex(json.loads((root / "private/identity.json").read_text())["partition_key"])
    print_of = json.loads((root / "private/identity.json").read_text())["fingerprint"]
    secret = [key, key.hex().encode(), print_of.encode(), bytes.fromhex(print_of)]
    secret += [code for image in x for code in encodings(image)]
    secret += [image[0].repeat(7).tobytes() for image in x]  # as wide as a grid would draw it
    secret += [code for step in votes for row in step for code in encodings(row)]
    secret += list(encodings(y))
    for name, content in shared.items():
        assert content and not any(code in content for code in secret), name
    assert not list((root / "release").glob("*.tmp"))
    assert all(np.issubdtype(np.asarray(a).dtype, np.floating)
               for a in jax.tree.leaves(release.model))


def test_others_may_read_nothing_private_whatever_the_umask(tmp_path):
    """Orbax writes its files as the umask says, which may be 0."""
    before = os.umask(0)
    try:
        runs.train(tmp_path / "run", steps=2)
    finally:
        os.umask(before)
    private = tmp_path / "run/private"
    for path in [private, *private.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_64_bits_are_refused_before_anything_is_charged(tmp_path):
    """It failed in the first block, whose steps were charged by then."""
    jax.config.update("jax_enable_x64", True)
    try:
        with pytest.raises(UserError, match="JAX is set to 64 bits"):
            runs.train(tmp_path / "run", steps=2)
    finally:
        jax.config.update("jax_enable_x64", False)
    assert not any(tmp_path.iterdir())
