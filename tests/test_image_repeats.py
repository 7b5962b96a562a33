"""Several trainings of the benchmark on images: a folder, an epsilon and an evaluation for each."""

import json
import types
from pathlib import Path

import pytest

from benchmarks import images
from dpgen_jax.core.config import Budget, to_json
from dpgen_jax.core.types import UserError
from dpgen_jax.evaluation.scores import summary
from dpgen_jax.run.planning import Resolved

pytestmark = pytest.mark.long


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
