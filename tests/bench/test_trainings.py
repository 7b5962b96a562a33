"""Trainings that benchmarks start, and go on with."""


import json
import signal
import types
from pathlib import Path

import pytest
import runs

from benchmarks import common, federated, images, training
from dpgen_jax.aggregation.noise import OsBits
from dpgen_jax.core.config import Budget, to_json
from dpgen_jax.core.errors import UserError
from dpgen_jax.data import from_arrays
from dpgen_jax.evaluation.results import summary
from dpgen_jax.run import lifecycle
from dpgen_jax.run.planning import Resolved

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


@pytest.fixture
def trained(monkeypatch):
    """The folders of all trainings, whose releases score 0.5, 0.6 and so on."""
    made = []

    def train(request, dataset):
        made.append(request.out)
        return types.SimpleNamespace(privacy={"epsilon": 1.0}, score=0.4 + 0.1 * len(made))

    monkeypatch.setattr(images, "train", train)
    monkeypatch.setattr(images, "results", lambda release, dataset, run: {"run": str(run)})
    monkeypatch.setattr(images, "usefulness", lambda release, *rest: {
        "fake_to_real": {"cnn": {"accuracy": summary([release.score] * 3)}}, "seconds": {"cnn": 3}})
    monkeypatch.setattr(images, "likeness", lambda release, *rest: {
        "inception_score": summary([10 * release.score] * 3) | {"floor": 9.5}})
    return made


def measured(repeats):
    request = Resolved("dpmerf", "mnist", None, Budget(1.0, 1e-5), None, Path("out"))
    return images.measured(request, None, repeats, images.Protocol())


def test_means_are_over_trainings_and_the_epsilons_add_up(trained, capsys):
    outcome = measured(3)
    accuracy = outcome["evaluation"]["fake_to_real"]["cnn"]["accuracy"]
    assert accuracy["mean"] == pytest.approx(0.6) and accuracy["std"] == pytest.approx(0.1)
    score = outcome["fidelity"]["inception_score"]
    assert score["mean"] == pytest.approx(6) and score["std"] == pytest.approx(1)
    assert score["floor"] == 9.5
    assert trained == [Path("out/0"), Path("out/1"), Path("out/2")]
    assert outcome["trainings"] == 3 and outcome["epsilon"] == pytest.approx(3.0)
    assert len(outcome["evaluations"]) == 3 and outcome["run"] == "out/0"
    assert "each spends epsilon 1, all together 3" in capsys.readouterr().out


def test_one_training_is_as_it_was(trained):
    outcome = measured(1)
    assert trained == [Path("out")] and outcome.keys() == {"run", "evaluation", "fidelity"}
    with pytest.raises(UserError, match="give 1 or more"):
        measured(0)


def test_a_finished_run_is_not_taken_for_one_of_a_changed_preset(tmp_path, monkeypatch):
    monkeypatch.setattr(images.lifecycle, "load", lambda out: f"release of {out.name}")
    dataset, config = types.SimpleNamespace(name="mnist"), {"steps": 50, "net": {"width": 8}}

    def train(changed=None, epsilon=1.0):
        return images.train(Resolved("dpmerf", "mnist", config | (changed or {}),
                                    Budget(epsilon, 1e-5), None, tmp_path), dataset)

    (tmp_path / "benchmark").mkdir()
    (tmp_path / "benchmark" / "trained.json").write_text('{"steps": 50}')
    assert train() == f"release of {tmp_path.name}"  # by a version that kept no request
    asked = {"method": "dpmerf", "dataset": "mnist", "config": config,
             "budget": to_json(Budget(1.0, 1e-5))}
    (tmp_path / "benchmark" / "trained.json").write_text(json.dumps({"request": asked}))
    assert train() == train({"net": {"width": 8, "later": 0}}) == f"release of {tmp_path.name}"
    for changed in ({"changed": {"steps": 51}}, {"changed": {"net": {"width": 9}}},
                    {"epsilon": 2.0}):
        with pytest.raises(UserError, match="name another --out"):
            train(**changed)
