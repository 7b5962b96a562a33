"""The benchmark of all systems, without its trainings."""

import itertools
import math

import pytest

from benchmarks import systems
from dpgen_jax import methods, presets
from dpgen_jax.errors import UserError

CASES = list(itertools.product(systems.METHODS, systems.DATA, systems.EPSILONS))


def given(tmp_path, *words):
    return systems.arguments(["--out", str(tmp_path), *words])


def test_all_generators_take_part():
    assert set(systems.METHODS) == set(methods.NAMES) - {"topagg_sgd"}


@pytest.mark.parametrize("method, data, epsilon", CASES)
def test_every_row_has_a_preset_for_such_images(method, data, epsilon):
    name = systems.preset_of(method, data, epsilon)
    spec = presets.all_of(method)[name].spec
    assert (spec.height, spec.width, spec.channels, spec.classes) == (28, 28, 1, 10)


@pytest.mark.parametrize("words, steps", [((), None), (("--short",), 10)])
def test_a_short_row_takes_fewer_steps_with_the_noise_of_those(tmp_path, monkeypatch, words, steps):
    asked = []
    monkeypatch.setattr(systems, "command", lambda *words: asked.append(words))
    found = systems.row(given(tmp_path, *words), "datalens", "mnist", 1.0, True)
    assert "cannot read" in found["error"]  # nothing was trained
    assert asked[0][:2] == ("dpgen_jax.train", "datalens") and "--epsilon=1.0" in asked[0]
    assert [w for w in asked[0] if str(w).startswith(("--steps", "--sigma"))] == (
        [f"--steps={steps}", "--sigma=None"] if steps else [])


def test_a_row_that_fails_says_why_and_one_that_is_not_there_is_left_out(tmp_path, monkeypatch):
    def fails(*words):
        raise UserError("out of luck")

    monkeypatch.setattr(systems, "command", fails)
    asked = given(tmp_path)
    assert systems.row(asked, "dpgan", "mnist", 10.0, False) is None
    failed = systems.row(asked, "dpgan", "mnist", 10.0, True)
    assert failed["error"] == "out of luck"
    assert "| dpgan | failed |" in systems.table([failed])


def test_the_table_has_a_column_for_each_data_set_and_epsilon():
    def row(method, epsilon, mean):
        return {"method": method, "dataset": "mnist", "epsilon": epsilon, "steps": 10,
                "preset_steps": 20 if method == "a" else 10,
                "gen2real": {"cnn": {"accuracy": {"mean": mean}}}}

    rows = [row("a", 1.0, 0.5), row("b", 10.0, 0.75), row("b", math.inf, 0.9)]
    lines = systems.table(rows).splitlines()
    assert lines[0] == "| system | mnist, epsilon inf | mnist, epsilon 10.0 | mnist, epsilon 1.0 |"
    assert lines[2:] == ["| a |  |  | 0.500* |", "| b | 0.900 | 0.750 |  |"]
