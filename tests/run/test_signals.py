"""Told to stop by a person, a scheduler or a terminal that closes, a run keeps what it paid for."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time

import pytest
import runs

from dpgen_jax.accountant import ledger as books
from dpgen_jax.aggregation import single_releases
from dpgen_jax.aggregation.noise import OsBits
from dpgen_jax.core.config import Budget
from dpgen_jax.core.types import UserError
from dpgen_jax.run import checkpoint, lifecycle, progress

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_once")]
# In its third draw the run says so by a file, and waits for another.
RUNNER = """
import os, sys, time
from dpgen_jax import train
from dpgen_jax.cli import terminal
from dpgen_jax.aggregation.noise import OsBits
from dpgen_jax.run import progress

draw, drawn = OsBits.draw, []

def held(self, shape):
    drawn.append(shape)
    if len(drawn) == 3:
        open("third", "w").close()
        while not os.path.exists("go"):
            time.sleep(0.01)
    return draw(self, shape)

OsBits.draw, progress.BURST = held, 0.0
if sys.stdin.isatty():  # it becomes the terminal of this session
    os.close(os.open(os.ttyname(0), os.O_RDWR))
terminal.main(train.command)
"""
WORDS = ["datalens", "--dataset", "npz:noise.npz", *runs.FLAGS, "--steps=6", "--steps-per-call=1",
         "--out=run"]
LIMIT = 1800
"""Seconds, for a process that hangs; nothing waits for them otherwise."""


class Running:
    """A training process, which is in its third draw when this is made."""

    def __init__(self, place, *before, **options):
        self.place = place
        runs.npz(place / "noise.npz", *runs.images())
        (place / "runner.py").write_text(RUNNER)
        self.process = subprocess.Popen([*before, sys.executable, "runner.py", *WORDS],
                                        cwd=place, env=runs.environment(), **options)
        self.wait_for((place / "third").exists)

    def wait_for(self, done):
        end = time.monotonic() + LIMIT
        while not done():
            assert time.monotonic() < end, self.said()
            assert self.process.poll() is None, self.said()
            time.sleep(0.01)

    def said(self):
        return (self.place / "err").read_text() + (self.place / "out").read_text()

    def send(self, number, again=False):
        """The signal, once the one before it was understood."""
        self.process.send_signal(number)
        if not again:
            self.wait_for(lambda: "stopping after this step" in self.said())

    def go(self):
        (self.place / "go").touch()
        return self.process.wait(LIMIT)


@pytest.fixture(autouse=True)
def hangups():
    """SIGHUP is heard, also where these tests are started by `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def start(tmp_path):
    with contextlib.ExitStack() as stack:
        def one(*before):
            out, err = (stack.enter_context((tmp_path / n).open("w")) for n in ("out", "err"))
            running = Running(tmp_path, *before, stdout=out, stderr=err)
            stack.callback(running.process.kill)
            return running

        yield one


def kept(root, steps):
    """The run in `root` has a release, and a checkpoint, of so many steps."""
    release = lifecycle.load(root)
    assert release.privacy["steps"] == steps and len(release.arrays(2)[0]) == 2
    assert checkpoint.steps(runs.files(root).checkpoints)[-1] == steps
    assert books.account(books.read(root / "ledger.jsonl")).steps == steps


def test_sigterm_stops_after_the_step_with_a_release(start, tmp_path):
    """And SIGHUP does nothing where the parent ignores it, as nohup does."""
    running = start("sh", "-c", 'trap "" HUP; exec "$@"', "sh")
    running.process.send_signal(signal.SIGHUP)
    running.send(signal.SIGTERM)
    assert running.go() == 143, running.said()
    said = [line for line in (tmp_path / "out").read_text().splitlines()
            if not line.startswith(("samples: ", "statement: ", "spent: "))]
    assert said[-2] == "stopped at step 3 of 6: you interrupted it"
    assert said[-1] == ("release: run/release (3 steps; (epsilon, delta) replace-one; epsilon 10, "
                        "delta 0.001, unit record)")
    assert "Traceback" not in running.said()
    kept(tmp_path / "run", 3)


@pytest.mark.long
def test_a_second_signal_ends_it_at_once(start, tmp_path):
    running = start()
    running.send(signal.SIGHUP)
    running.send(signal.SIGTERM, again=True)
    assert running.process.wait(LIMIT) == 143, running.said()
    assert not (tmp_path / "run/release").exists() and "Traceback" not in running.said()
    assert books.account(books.read(tmp_path / "run/ledger.jsonl")).steps == 3  # the third is lost


@pytest.mark.long
def test_a_closed_terminal_does_not_cost_the_release(tmp_path):
    """The terminal is gone for good: nothing can be printed, and SIGHUP comes of itself."""
    terminal, inside = pty.openpty()
    running = Running(tmp_path, stdin=inside, stdout=inside, stderr=inside, start_new_session=True)
    try:
        os.close(inside)
        os.close(terminal)
        assert running.go() == 129
    finally:
        running.process.kill()
    kept(tmp_path / "run", 3)


# --- in this process

def at(monkeypatch, owner, name, act):
    """Calls `act` before the first call of a function."""
    real, called = getattr(owner, name), []

    def watched(*args, **options):
        called.append(name)
        if len(called) == 1:
            act()
        return real(*args, **options)

    monkeypatch.setattr(owner, name, watched)


def sent(*numbers):
    def act():
        for number in numbers:
            signal.raise_signal(number)
    return act


@pytest.mark.parametrize(("number", "code"), [
    (signal.SIGINT, 2), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_in_the_purchase_of_class_counts(tmp_path, monkeypatch, number, code):
    """They are bought, the run says that there is nothing to release, and a resume goes on."""
    options = {"budget": Budget(10.0, 1e-3, 0.5)}
    with monkeypatch.context() as patch:
        at(patch, single_releases, "class_counts", sent(number))
        with pytest.raises(UserError, match="interrupted before the first step.*resume") as end:
            runs.train(tmp_path / "run", **options)
    assert end.value.exit_code == code
    events = books.account(books.read(tmp_path / "run/ledger.jsonl")).spent()
    assert [count for _, count in events] == [1] and (tmp_path / "run/class_counts.json").exists()
    if code == 143:
        release, _ = runs.train(tmp_path / "run", resume=True, **options)
        assert release.privacy["steps"] == 6 and release.class_counts
        assert sorted(event["count"] for event in release.privacy["events"]) == [1, 6]


ENDS = {"Ctrl-C twice": ((signal.SIGINT,) * 2, KeyboardInterrupt, None),
        "SIGTERM, then Ctrl-C": ((signal.SIGTERM, signal.SIGINT), KeyboardInterrupt, None),
        "SIGTERM twice": ((signal.SIGTERM,) * 2, SystemExit, 143),
        "SIGHUP twice": ((signal.SIGHUP,) * 2, SystemExit, 129),
        "Ctrl-C, then SIGHUP": ((signal.SIGINT, signal.SIGHUP), SystemExit, 129)}


@pytest.mark.parametrize("case", ENDS)
def test_two_signals_end_it_at_once(tmp_path, monkeypatch, case):
    numbers, error, code = ENDS[case]
    monkeypatch.setattr(progress, "BURST", -1.0)
    at(monkeypatch, OsBits, "draw", sent(*numbers))
    before = [signal.getsignal(n) for n in progress.SIGNALS]
    with pytest.raises(error) as end:
        runs.train(tmp_path / "run")
    assert getattr(end.value, "code", None) == code
    assert not (tmp_path / "run/release").exists()
    assert [signal.getsignal(n) for n in progress.SIGNALS] == before


def test_signals_that_come_in_a_burst_are_one(tmp_path, monkeypatch):
    """A closing terminal sends SIGHUP twice, and `timeout` SIGTERM."""
    monkeypatch.setattr(progress, "BURST", float("inf"))
    at(monkeypatch, OsBits, "draw", sent(signal.SIGHUP, signal.SIGHUP, signal.SIGTERM))
    with pytest.raises(SystemExit) as end:
        runs.train(tmp_path / "run")
    assert end.value.code == 129
    kept(tmp_path / "run", 1)


def test_a_stream_that_is_gone_is_silent(tmp_path):
    """A pipe without a reader; what is still in its buffer does not change the exit code either."""
    code = ("import sys\nfrom dpgen_jax.run.progress import Bar, tell\n"
            "tell('one')\ntell('two', sys.stderr)\nBar(3, 0).advance(1, {})\nprint('three')\n")
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-c", code], stdout=writing, stderr=writing, check=False,
                          timeout=LIMIT)
    os.close(writing)
    assert done.returncode == 0
