"""A run that a batch system will take away stops in time, and can go on."""

import dataclasses
import re
import shlex
import signal
from pathlib import Path

import pytest
import runs
import yaml

from dpgen_jax import train
from dpgen_jax.aggregation.noise import OsBits
from dpgen_jax.cli import train_flags
from dpgen_jax.core.config import Runtime
from dpgen_jax.core.types import UserError
from dpgen_jax.run import checkpoint, lifecycle, progress

CLUSTER = Path(__file__).parents[2] / "benchmarks/cluster"

pytestmark = pytest.mark.usefixtures("compiled_once")


class Clock:
    """A clock that a test moves."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


def test_a_block_that_would_end_too_late_is_not_begun(monkeypatch):
    clock = Clock(monkeypatch)
    stop = progress.Stop(minutes=10)
    stops = []
    for _ in range(20):
        stops.append(stop())
        clock.now += 60
    # Ten blocks of a minute end in time, the last at 600 s; the eleventh would not.
    assert stops == [False] * 10 + [True] * 10
    assert stop.out_of_time and stop.exit_code == 0 and "--max-minutes" in stop.reason


def test_a_stage_is_not_stopped_by_the_blocks_of_another(monkeypatch):
    """Seven minutes of ten are over with it; of the next stage only the first block takes long."""
    clock = Clock(monkeypatch)
    stop = progress.Stop(minutes=10)
    stop()
    clock.now += 420
    stop.begin_stage(first_is_typical=False)
    stops = []
    for seconds in (60, 1, 1, 100, 1):
        stops.append(stop())
        clock.now += seconds
    assert stops == [False] * 4 + [True]


def test_without_a_limit_time_stops_nothing(monkeypatch):
    clock = Clock(monkeypatch)
    stop = progress.Stop()
    clock.now += 1e9
    assert not stop() and not stop.reason


def test_limits_are_checked():
    with pytest.raises(UserError, match="max_minutes is -1"):
        Runtime(max_minutes=-1)


@pytest.mark.slow
def test_out_of_time_leaves_a_release_and_goes_on(tmp_path, monkeypatch):
    """The clock jumps in the third draw; the command's exit code says that the run can go on."""
    draw, draws = OsBits.draw, []

    def late(self, shape):
        draws.append(shape)
        if len(draws) == 3:
            passed = progress.time.monotonic() + 3600
            monkeypatch.setattr(progress.time, "monotonic", lambda: passed)
        return draw(self, shape)

    runs.npz(tmp_path / "noise.npz", *runs.images())
    monkeypatch.setattr(OsBits, "draw", late)
    monkeypatch.chdir(tmp_path)
    words = ["datalens", "--dataset", "npz:noise.npz", *runs.FLAGS, "--steps=6",
             "--steps-per-call=1", "--out=run", "--max-minutes=30"]
    assert train.command(words) == progress.OUT_OF_TIME == 75
    steps = lifecycle.load(Path("run")).privacy["steps"]
    assert steps == 3 and checkpoint.steps(runs.files(Path("run")).checkpoints)[-1] == 3
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert train.command(["--resume", "run"]) is None
    assert lifecycle.load(Path("run")).privacy["steps"] == 6


@pytest.mark.slow
def test_sigterm_may_leave_a_checkpoint_alone(tmp_path, monkeypatch):
    draw, draws = OsBits.draw, []

    def counting(self, shape):
        draws.append(shape)
        if len(draws) == 3:
            signal.raise_signal(signal.SIGTERM)
        return draw(self, shape)

    runtime = dataclasses.replace(runs.RUNTIME, on_term="checkpoint")
    with monkeypatch.context() as patch:
        patch.setattr(OsBits, "draw", counting)
        with pytest.raises(UserError, match="at step 3, with a checkpoint.*resume") as end:
            runs.train(tmp_path / "run", runtime=runtime)
    assert end.value.exit_code == 143 and not (tmp_path / "run/release").exists()
    assert checkpoint.steps(runs.files(tmp_path / "run").checkpoints)[-1] == 3
    release, _ = runs.train(tmp_path / "run", resume=True)
    assert release.privacy["steps"] == 6


def commands(text: str) -> list[list[str]]:
    """The words behind `dpgen_jax.train` that begin a run."""
    found = re.findall(r"(datalens --preset(?:[^\n]|\\\n|\n         )*?)(?:\)|\n *[a-z]+:)", text)
    return [shlex.split(words.replace("\\\n", " ")) for words in found]


@pytest.mark.parametrize("name", ["slurm_array.sh", "kubernetes_job.yaml"])
def test_the_examples_for_clusters_parse(name):
    text = (CLUSTER / name).read_text()
    (words,) = commands(text)
    parsed, _ = train_flags.parse("datalens", words[1:])
    assert parsed.runtime.on_term == "checkpoint" and parsed.preset == "mnist-eps1"
    assert "DPGEN_STATE" in text and "--resume" in text
    if name.endswith("yaml"):
        job = yaml.safe_load(text)
        assert job["kind"] == "Job" and job["spec"]["template"]["spec"]["containers"]
