"""Trainings of benchmarks: one that was stopped goes on, whatever release it has left."""

import signal

import pytest
import runs

from benchmarks import common, federated, training
from dpgen_jax.aggregation.noise import OsBits
from dpgen_jax.core.errors import UserError
from dpgen_jax.data import from_arrays
from dpgen_jax.run import lifecycle

pytestmark = pytest.mark.long


@pytest.fixture
def commands(monkeypatch):
    """The commands that were run; each leaves what a training leaves, then fails as is set."""
    done = []

    def command(module, method, *words):
        assert module == "dpgen_jax.train"
        done.append((method, *words))
        run = words[words.index("--out") + 1]
        for name in ("config.json", "release/privacy.json", "private/checkpoints/1/state"):
            (run / name).parent.mkdir(parents=True, exist_ok=True)
            (run / name).touch()
        if failure := failures.pop(0):
            raise failure

    failures = []
    monkeypatch.setattr(common, "command", command)
    return done, failures


@pytest.mark.parametrize("failure", [SystemExit(130), UserError("the disk is full")])
def test_a_training_that_was_stopped_goes_on_though_it_has_a_release(tmp_path, commands, failure):
    done, failures = commands
    failures += [failure, None]
    run = tmp_path / "runs" / "one"
    with pytest.raises(type(failure)):
        training.finish(run, "gpate", "--epsilon=1")
    assert not training.is_finished(run) and list((run / "private" / "checkpoints").iterdir())
    assert training.finish(run, "gpate", "--epsilon=1") == run
    assert training.finish(run, "gpate", "--epsilon=1") == run  # finished: no third command
    begun = ("gpate", "--epsilon=1", "--out", run)
    assert done == [begun, (*begun, "--resume")]
    assert training.is_finished(run) and not (run / "private" / "checkpoints").exists()
    assert [path.name for path in run.parent.iterdir()] == ["one"]


def test_a_finished_run_of_an_earlier_version_is_not_trained_again(tmp_path, commands):
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / "privacy.json").touch()
    assert training.finish(tmp_path, "gpate") == tmp_path and not commands[0]


def test_the_training_of_a_federation_goes_on_after_ctrl_c(tmp_path, monkeypatch):
    """In this process, where the run itself takes Ctrl-C for a wish and returns a release."""
    draw, draws = OsBits.draw, []

    def interrupted(self, shape):
        draws.append(shape)
        if len(draws) == 2:
            signal.raise_signal(signal.SIGINT)
        return draw(self, shape)

    request = lifecycle.Resolved("datalens", None, runs.CONFIG, runs.BUDGET,
                                runs.RUNTIME, tmp_path / "run")
    records = from_arrays(*runs.images(), 3)
    monkeypatch.setattr(OsBits, "draw", interrupted)
    with pytest.raises(SystemExit):
        federated.trained(request, records)
    steps = [lifecycle.load(tmp_path / "run").privacy["steps"]]
    monkeypatch.setattr(OsBits, "draw", draw)
    steps += [federated.trained(request, records).privacy["steps"] for _ in range(2)]
    assert steps == [2, 6, 6] and training.is_finished(tmp_path / "run")
