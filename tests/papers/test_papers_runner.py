"""A row is trained and evaluated part by part: what is there is not repeated."""

import dataclasses
import json
from types import SimpleNamespace

import pytest
import toy_rows

from benchmarks import common, images
from benchmarks.papers import __main__ as command
from benchmarks.papers import page, runner
from benchmarks.papers.rows import Command, Nothing, Row, Training
from dpgen_jax.core.types import UserError
from dpgen_jax.evaluation import assess
from dpgen_jax.run import lifecycle

pytestmark = pytest.mark.long

LEAF = {"mean": 0.5, "std": 0.0, "values": [0.5]}


def toy(method, preset):
    """A row of a preset at toy size."""
    config = Training(method, preset, "mnist").base()[0]
    small = toy_rows.small(config)
    fields = {f.name: getattr(small, f.name) for f in dataclasses.fields(small)
              if getattr(small, f.name) != getattr(config, f.name)}
    return Row(f"{method}:table1:toy", Training(method, preset, "mnist", fields=fields))


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Generated data and no classifiers: the classifiers that would have been trained."""
    toy_rows.idx(tmp_path / "data" / "mnist")
    monkeypatch.setenv("DPGEN_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(common, "RESULTS", tmp_path / "results")
    (tmp_path / "results").mkdir()
    calls = []

    def utility_of(source, dataset, tasks, seeds, samples, name, classifiers):
        calls.extend(classifiers)
        return {**{task: {c: {"accuracy": LEAF} for c in classifiers} for task in tasks},
                "seconds": dict.fromkeys(classifiers, 1.0), "setting": {}, "n_samples": 1,
                "n_test": 1, "seeds": seeds}

    def likeness(release, dataset, options, log):
        calls.append("fidelity")
        return {"fidelity": {"inception_score": LEAF}}

    monkeypatch.setattr(common, "utility_of", utility_of)
    monkeypatch.setattr(assess, "assess", likeness)
    return calls


@pytest.mark.slow
def test_a_row_writes_its_results_and_repeats_nothing(measured, tmp_path, monkeypatch):
    row = toy("gpate", "mnist-eps1")
    monkeypatch.setattr(images, "accelerators", lambda: {"accelerators": ["a GPU"]})
    path = runner.run(row, tmp_path / "runs")
    record = json.loads(path.read_text())
    outcome = record["results"]
    assert record["command"] == f"python -m benchmarks.papers {row.name}" and row.measured()
    assert path.name == f"papers-{row.work.name()}.json" and path.with_suffix(".png").exists()
    assert outcome["evaluation"]["gen2real"]["cnn"]["accuracy"] == LEAF
    assert outcome["as_systems"]["average"]["gen2real"]["accuracy"]["mean"] == 0.5
    assert outcome["privacy"]["steps"] == 2 and outcome["privacy"]["epsilon"] == 1.0
    assert outcome["trained_on"] == ["a GPU"]
    shares = outcome["votes"]
    assert 0 < shares["second"] <= shares["most agreed bin"] <= 1 and 0 <= shares["answered"] <= 1
    assert measured == ["cnn", "cnn", "mlp", "fidelity"]
    folder = tmp_path / "runs" / row.work.name()
    assert not (folder / "private" / "checkpoints").exists()
    monkeypatch.setattr(lifecycle, "run", None)  # it is not called again, nor is any classifier
    assert json.loads(runner.run(row, tmp_path / "runs").read_text())["results"] == outcome
    assert len(measured) == 4


@pytest.mark.slow
def test_a_row_without_noise_writes_that_it_promises_nothing(measured, tmp_path):
    row = toy("datalens", "mnist-eps1")
    row = dataclasses.replace(row, work=dataclasses.replace(row.work, variant="no-noise"))
    outcome = json.loads(runner.run(row, tmp_path / "runs").read_text())["results"]
    assert outcome["privacy"]["epsilon"] == "inf" and "votes" not in outcome


def test_a_training_that_was_stopped_goes_on(measured, tmp_path, monkeypatch):
    row, resumed, real = toy("datalens", "mnist-eps1"), [], lifecycle.run

    def stopped(request, dataset, *notices):
        resumed.append(request.resume)
        release = real(request, dataset, *notices)
        if len(resumed) == 1:
            raise SystemExit(130)
        return release

    monkeypatch.setattr(lifecycle, "run", stopped)
    with pytest.raises(SystemExit):
        runner.run(row, tmp_path / "runs")
    assert not row.measured() and measured == []
    path = runner.run(row, tmp_path / "runs", as_it_stands=True)
    assert resumed == [False] and json.loads(path.read_text())["results"]["stopped"] is True
    assert page.spent(row)[1] == "2 (stopped)" and "after 2 (stopped) steps" in page.done(row)
    assert command.state(row).startswith("measured, stopped")
    evaluated = len(measured)
    runner.run(row, tmp_path / "runs")
    assert resumed == [False, True] and row.measured() and page.spent(row)[1] == "2"
    assert len(measured) == 2 * evaluated  # no part of it stands for the whole training


def test_what_cannot_be_evaluated_as_it_stands(tmp_path):
    with pytest.raises(UserError, match="no single training; leave out --as-it-stands"):
        runner.run(Row("a:b:c", Command("sweep", ("x",), "x")), tmp_path, as_it_stands=True)
    with pytest.raises(UserError, match="neither a run nor a release"):
        runner.run(toy("datalens", "mnist-eps1"), tmp_path / "runs", as_it_stands=True)


def test_an_evaluation_that_was_stopped_goes_on(measured, tmp_path, monkeypatch):
    protocol = images.Protocol(classifiers=("cnn", "mlp", "lda"), seeds=1)
    release, real = SimpleNamespace(sample=print), common.utility_of

    def stopped(*args):
        if args[-1] == ("mlp",):
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(common, "utility_of", stopped)
    with pytest.raises(KeyboardInterrupt):
        images.usefulness(release, None, tmp_path / "parts", protocol)
    monkeypatch.setattr(common, "utility_of", real)
    outcome = images.usefulness(release, None, tmp_path / "parts", protocol)
    assert measured == ["cnn", "mlp", "lda"] and list(outcome["gen2real"]) == measured
    more = dataclasses.replace(protocol, seeds=2)  # another evaluation is not taken for this one
    images.usefulness(release, None, tmp_path / "parts", more)
    assert measured == ["cnn", "mlp", "lda"] * 2


def test_what_cannot_be_run_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("DPGEN_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="a drawing"):
        runner.run(Row("a:b:c", Nothing("a drawing")), tmp_path)
    absent = Row("a:b:c", Training("datalens", "mnist-eps1", "mnist"))
    with pytest.raises(UserError, match=r"put mnist/train-images-idx3-ubyte and .* into"):
        runner.run(absent, tmp_path)
    with pytest.raises(UserError, match="not built yet"):
        runner.run(Row("a:b:c", Command("no_such_benchmark", (), "x")), tmp_path)


def test_a_command_is_run_by_itself(tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr(common, "command", lambda *words: called.append(words))
    path = runner.run(Row("a:b:c", Command("claimed", ("--x",), "claimed")), tmp_path)
    assert called == [("benchmarks.claimed", "--x")] and path.name == "claimed.json"


def test_the_list_shows_rows_by_paper_and_by_part_of_a_name(capsys):
    command.main(["table1", "--paper", "datalens"])
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split()[0] for line in lines[1:-2]]
    assert "datalens:table1:mnist-eps1" in rows and "no-noise" in lines[-1]
    assert all(row.startswith("datalens:table1") for row in rows)
    assert any("cannot be run" not in line and "~" in line for line in lines)
    with pytest.raises(UserError, match="unknown row"):
        command.main(["no such row"])
