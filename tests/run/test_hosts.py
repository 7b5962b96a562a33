"""Several processes make one run: its release does not depend on how many they are."""

import signal
import struct
import time
import types

import many_processes as processes
import numpy as np
import pytest
import runs

from dpgen_jax import train
from dpgen_jax.accountant import ledger as books
from dpgen_jax.audit.findings import UNDECIDED
from dpgen_jax.audit.folder import of_folder
from dpgen_jax.core import hosts
from dpgen_jax.core import run_folder as core_run_folder
from dpgen_jax.core.errors import UserError
from dpgen_jax.core.hosts import Hosts
from dpgen_jax.run import checkpoint, lifecycle, planning, progress

COMMON = [word for word in runs.FLAGS if not word.startswith(("--devices", "--chunk"))]
WORDS = ["datalens", "--dataset=npz:noise.npz", *COMMON, "--chunk=1", "--devices={devices}",
         "--steps=4", "--steps-per-call=2", "--checkpoint-minutes=0", "--out=run"]


@pytest.fixture
def place(tmp_path):
    runs.npz(tmp_path / "noise.npz", *runs.images())
    return tmp_path


def words(devices, *more):
    return [word.format(devices=devices) for word in (*WORDS, *more)]


def model(folder):
    """The generator of a run, as bytes."""
    return (folder / "run/release/generator.safetensors").read_bytes()


@pytest.mark.slow
def test_two_processes_release_what_one_does(place, call, monkeypatch, compiled_once):
    """The one is that of the test."""
    def one(folder, *arguments):
        monkeypatch.chdir(folder)
        code, _, errors = call(train, *arguments)
        assert not code, errors

    for name in ("one", "two"):
        (place / name).mkdir()
        (place / name / "noise.npz").symlink_to(place / "noise.npz")
    one(place / "one", *words(2, "--seed=3"))
    codes, said = processes.train(words(1, "--seed=3"), 2, 1, place / "two")
    assert codes == [0, 0], said
    assert model(place / "one") == model(place / "two")
    # The second has nothing to say, and what was charged was charged once.
    lines = (place / "two/1.out").read_text().splitlines()
    assert all(line.startswith("[Gloo]") for line in lines), lines
    ledgers = [books.account(books.read(place / name / "run/ledger.jsonl")) for name in
               ("one", "two")]
    assert ledgers[0].spent() == ledgers[1].spent() and ledgers[1].steps == 4
    # An audit finds nothing, but that a seed promises nothing.
    report = of_folder(place / "two/run")
    assert report.exit_code == UNDECIDED, report.closing
    # What two wrote, one reads: it goes on from the last step, to the same end.
    release = model(place / "two")
    one(place / "two", "--resume=run")
    assert model(place / "two") == release


@pytest.mark.slow
def test_a_release_depends_on_the_threads_of_xla_alone_which_processes_agree_on(tmp_path):
    """XLA splits a long sum by its threads. Here a layer's gradient is one, over a large batch."""
    layouts = {"one": (4, [4]), "fewer": (2, [4]), "two": (2, [2, 4])}
    for name, (devices, threads) in layouts.items():
        (tmp_path / name).mkdir()
        runs.npz(tmp_path / name / "noise.npz", *runs.images(n=600))
        codes, said = processes.train(
            words(devices, "--seed=3", "--batch=250", "--teachers=4", "--steps=1"), len(threads),
            devices, tmp_path / name,
            environment=lambda i, threads=threads: {hosts.THREADS: str(threads[i])})
        assert codes == [0] * len(threads), said
    assert model(tmp_path / "one") == model(tmp_path / "fewer") == model(tmp_path / "two")


# Units that lie in cohorts and are pretrained, records that are sampled, phases, and post-training.
METHODS = {
    "gswgan": ["--critics=4", "--critics-per-step=2", "--warm-steps=2", "--batch=3", "--pool=2",
               "--generator.width=2", "--critic.width=2", "--warm-generator.width=2"],
    "dpgan": ["--batch=6", "--fakes=6", "--g-batch=6"],
    "dpmerf": ["--features=12", "--generator-steps=3"],
    "mixture": ["--cells=2", "--frequencies=4", "--dimensions=5"]}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_kind_of_method_runs_on_two(place, method):
    given = [method, "--dataset=npz:noise.npz", "--delta=1e-3", "--test-fraction=0", "--out=run",
             "--seed=3", "--class-epsilon=1", *METHODS[method],
             *["--steps=3"] * (method in ("gswgan", "dpgan"))]
    for name, count, devices in (("one", 1, 2), ("two", 2, 1)):
        (place / name).mkdir()
        (place / name / "noise.npz").symlink_to(place / "noise.npz")
        each = 1 if method == "mixture" else devices  # which takes one device of a CPU
        codes, said = processes.train([*given, f"--devices={each}", "--chunk=1"], count, devices,
                                      place / name)
        assert codes == [0] * count, said
    assert model(place / "one") == model(place / "two")


@pytest.mark.slow
def test_two_processes_without_out_make_one_folder_with_a_default_preset(tmp_path):
    """As a user of MNIST starts them; with fewer teachers and steps, on as few records as count as
    MNIST's."""
    idx(tmp_path / "mnist", 30001)
    codes, said = processes.train(["prototypes", "--dataset=idx:mnist", "--epsilon=1",
                                   "--teachers=60", "--steps=2", "--verbose"], 2, 1, tmp_path)
    assert codes == [0, 0], said
    assert "preset mnist-eps1-gradients" in said and "in 2 processes" in said, said
    folder, = (tmp_path / "runs").iterdir()
    statement, = tmp_path.rglob("privacy.json")
    assert statement.parent == folder / "release"
    release = lifecycle.load(folder)
    assert release.privacy["steps"] == 2 and release.privacy["epsilon"] <= 1
    kinds = [record["kind"] for record in books.read(folder / "ledger.jsonl")]
    assert kinds.count("header") == 1 and "open" not in kinds


def idx(folder, n):
    """A set of n images of ten classes in files as MNIST has them, and ten more for the test."""
    folder.mkdir()
    shades = np.random.default_rng(0).integers(0, 256, (10, 28, 28), np.uint8)
    for part, size in (("train", n), ("t10k", 10)):
        y = (np.arange(size) % 10).astype(np.uint8)
        x = shades[y]
        x[:, 0, :4] = np.arange(size, dtype=">u4")[:, None].view(np.uint8)  # no two are the same
        (folder / f"{part}-images-idx3-ubyte").write_bytes(
            struct.pack(">4I", 0x803, *x.shape) + x.tobytes())
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(
            struct.pack(">2I", 0x801, size) + y.tobytes())


# The command, of which the clock jumps an hour in the third draw; none but the leader draws.
LATE = """
import sys, time
from dpgen_jax import train
from dpgen_jax.aggregation.noise import OsBits
from dpgen_jax.cli import terminal
draw, draws, now = OsBits.draw, [], time.monotonic
def late(self, shape):
    draws.append(shape)
    if len(draws) == 3:
        time.monotonic = lambda: now() + 3600
    return draw(self, shape)
OsBits.draw = late
terminal.main(train.command)
"""


@pytest.mark.slow
def test_the_time_limit_of_the_leader_ends_all_and_two_go_on(place):
    given = words(1, "--steps=6", "--steps-per-call=1", "--max-minutes=30")
    started = processes.start(given, 2, 1, place, program=["-c", LATE])
    codes, said = processes.finish(started, place)
    assert codes == [progress.OUT_OF_TIME] * 2, said
    assert "the time limit (--max-minutes) is reached" in said, said
    assert lifecycle.load(place / "run").privacy["steps"] == steps(place) == 3
    codes, said = processes.train(["--resume=run"], 2, 1, place)
    assert codes == [0, 0], said
    release = lifecycle.load(place / "run")
    assert release.privacy["steps"] == 6 and sum(e["count"] for e in release.privacy["events"]) == 6


@pytest.mark.slow
def test_processes_that_differ_are_refused_before_anything_is_spent(place):
    def other(i, given):
        return [word for word in given if i == 0 or word != "--top-k=8"]

    codes, said = processes.train(words(1), 2, 1, place, change=other)
    assert codes == [2, 2], said
    assert "process 1 was started with another --top-k than process 0" in said
    assert "Traceback" not in said
    assert not (place / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("who", [pytest.param(0, marks=pytest.mark.long), 1])
def test_sigterm_to_any_process_stops_all(place, who):
    started = processes.start(words(1, "--steps=4000", "--sigma=6e4"), 2, 1, place)
    wait_for(1, started, place)
    started[who].send_signal(signal.SIGTERM)
    codes, said = processes.finish(started, place)
    assert codes == [143, 143], said
    release = lifecycle.load(place / "run")
    assert 0 < release.privacy["steps"] < 4000
    assert checkpoint.steps(runs.files(place / "run").checkpoints)[-1] == release.privacy["steps"]


@pytest.mark.long
@pytest.mark.slow
def test_sigterm_to_any_process_may_leave_a_checkpoint_alone(place):
    given = words(1, "--steps=4000", "--sigma=6e4", "--on-term=checkpoint")
    started = processes.start(given, 2, 1, place)
    wait_for(1, started, place)
    started[1].send_signal(signal.SIGTERM)
    codes, said = processes.finish(started, place)
    assert codes == [143, 143] and "with a checkpoint and no release" in said, said
    assert not (place / "run/release").exists()
    assert checkpoint.steps(runs.files(place / "run").checkpoints)[-1] == steps(place) < 4000


@pytest.mark.slow
@pytest.mark.parametrize("who", [0, 1])
def test_a_process_that_dies_ends_all_and_one_goes_on(place, who):
    started = processes.start(words(1, "--steps=4000", "--sigma=6e4"), 2, 1, place)
    wait_for(1, started, place)
    started[who].kill()
    codes, said = processes.finish(started, place)
    assert codes[1 - who] != 0
    assert "another process has ended" in said, said
    charged = books.account(books.read(place / "run/ledger.jsonl")).steps
    started = processes.start(["--resume=run"], 1, 1, place)
    wait_for(steps(place) + 1, started, place)
    started[0].send_signal(signal.SIGTERM)
    codes, said = processes.finish(started, place)
    assert codes == [143], said
    assert books.account(books.read(place / "run/ledger.jsonl")).steps > charged > 0
    assert lifecycle.load(place / "run").privacy["steps"] > 0


def steps(place):
    """The last step that the metrics of the run tell of."""
    return max((row["step"] for row in core_run_folder.read(place / "run/metrics.jsonl")),
               default=0)


def wait_for(step, started, place):
    """Until a whole block was made that ends in this step or later."""
    end = time.monotonic() + processes.LIMIT
    while steps(place) < step:
        assert time.monotonic() < end and all(process.poll() is None for process in started)
        time.sleep(0.1)


@pytest.mark.parametrize(("sampled", "what"), [
    (False, ", in 2 processes. The processes and the network"),
    (True, ", in 2 processes. Each has all records. The processes")])
def test_the_summary_says_what_is_trusted_and_what_each_process_has(monkeypatch, sampled, what):
    layout = types.SimpleNamespace(sampled=sampled)
    assert planning.processes_line(layout) == ""
    monkeypatch.setattr(hosts.Team, "count", 2)
    assert planning.processes_line(layout).startswith(what)


@pytest.mark.parametrize(("fields", "why"), [
    ({"coordinator": "host:1"}, "needs --processes N"),
    ({"coordinator": "host:1", "processes": 2, "process_id": 2}, "must be 0 to 1"),
    ({"processes": 2}, "belong to --coordinator"),
    ({"coordinator": "auto", "process_id": 0}, "belong to --coordinator")])
def test_where_processes_meet_is_checked(fields, why):
    with pytest.raises(UserError, match=why):
        Hosts(**fields)
