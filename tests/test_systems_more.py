"""Rows whose first training is counted from the row's file."""

import pytest
from test_systems import done, parsed

from benchmarks import systems
from dpgen_jax.evaluation.results import summary

pytestmark = pytest.mark.long


def measured(accuracy, **other):
    return done("dpcgan", 1.0, 0.5) | {
        "gen2real": {"cnn": {"accuracy": summary([accuracy - .01, accuracy + .01])}},
        "fidelity": {}, "setting": {"name": "fast"}, "trained_with": {"git": f"{accuracy}"}} | other


def collected(tmp_path, monkeypatch, there, *words, setting="fast"):
    """Return the row that comes of a file, and the numbers of the trainings that it took."""
    monkeypatch.setattr(systems.common, "RESULTS", tmp_path)
    systems.write_row("dpcgan-mnist-eps1", {"benchmark": "systems", "results": {"row": there}})
    numbers = []

    def row(args, method, data, epsilon, number=0):
        numbers.append(number)
        return measured(0.5 + number / 10, setting={"name": setting})

    monkeypatch.setattr(systems, "row", row)
    args = parsed(tmp_path / "runs", *words)
    return systems.repeated(args, "dpcgan", "mnist", 1.0), numbers


def test_the_training_of_a_file_counts_where_its_run_folder_is_gone(tmp_path, monkeypatch):
    found, numbers = collected(tmp_path, monkeypatch, measured(0.4), "--more")
    assert numbers == [1, 2] and found["repeats"] == 3
    assert found["gen2real"]["cnn"]["accuracy"]["values"] == pytest.approx([0.4, 0.6, 0.7])
    assert [one["git"] for one in found["trained_with_of_each"]] == ["0.4", "0.6", "0.7"]
    del found["short"]  # as in files of earlier versions
    words = systems.row_words(parsed(tmp_path, "--more"), found)
    assert "--more" in words and "--short" not in words


@pytest.mark.parametrize("there, words", [
    ({}, ()), ({"repeats": 3}, ("--more",)), ({"error": "out of luck"}, ("--more",))])
def test_others_are_trained_anew(tmp_path, monkeypatch, there, words):
    assert collected(tmp_path, monkeypatch, measured(0.4, **there), *words)[1] == [0, 1, 2]


def test_a_row_without_the_metrics_that_are_wanted_is_trained_anew(tmp_path, monkeypatch):
    there = measured(0.4)
    del there["fidelity"]
    assert collected(tmp_path, monkeypatch, there, "--more")[1] == [0, 1, 2]
    flags = ("--more", "--metrics", "gen2real")
    assert collected(tmp_path, monkeypatch, there, *flags)[1] == [1, 2]


def test_a_run_folder_that_is_there_is_the_training(tmp_path, monkeypatch):
    run = systems.folder(tmp_path / "runs", "dpcgan", "mnist", 1.0)
    run.mkdir(parents=True)
    (run / "config.json").touch()
    assert collected(tmp_path, monkeypatch, measured(0.4), "--more")[1] == [0, 1, 2]


@pytest.mark.parametrize("unlike", [
    {"preset": "other"}, {"steps": 11}, {"relation": "zero-out"}, {"setting": {"name": "full"}}])
def test_trainings_that_are_unlike_make_no_mean(tmp_path, monkeypatch, unlike):
    found, _ = collected(tmp_path, monkeypatch, measured(0.4, **unlike), "--more")
    assert "train it anew, with another --out and without --more" in found["error"]
    assert systems.recorded(["mnist"])[0]["gen2real"]["cnn"]["accuracy"]["mean"] == 0.4
