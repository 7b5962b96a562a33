"""Rows of fewer steps than their preset has."""

import json

import pytest
from test_systems import parsed

from benchmarks import systems

pytestmark = pytest.mark.long


def test_a_short_row_in_colour_takes_fewer_steps_still(tmp_path, monkeypatch):
    commands = []
    monkeypatch.setattr(systems.common, "command", lambda *words: commands.append(words))
    args = parsed(tmp_path, "--data", "cifar", "--short")
    found = systems.row(args, "dpgan", "cifar", 10.0)
    assert {"--steps=150", "--sigma=None"} <= set(commands[0]) and found["preset_steps"] == 6000


def test_in_a_short_row_of_dpac_the_classifier_comes_in(tmp_path, monkeypatch):
    commands = []
    monkeypatch.setattr(systems.common, "command", lambda *words: commands.append(words))
    systems.row(parsed(tmp_path, "--short"), "dpac", "fashion", 10.0)
    assert {"--steps=30", "--t-c=6"} <= set(commands[0])


@pytest.mark.parametrize("words, steps", [((), None), (("--short",), 1000)])
def test_a_short_row_takes_fewer_steps_with_the_noise_of_those(tmp_path, monkeypatch, words, steps):
    commands = []
    monkeypatch.setattr(systems.common, "command", lambda *words: commands.append(words))
    found = systems.row(parsed(tmp_path, *words), "dpcgan", "mnist", 1.0)
    assert "cannot read" in found["error"]  # nothing was trained
    assert commands[0][:2] == ("dpgen_jax.train", "dpcgan") and "--epsilon=1.0" in commands[0]
    assert [w for w in commands[0] if str(w).startswith(("--steps", "--sigma"))] == (
        [f"--steps={steps}", "--sigma=None"] if steps else [])


@pytest.mark.parametrize("asked, made, short", [
    (16, 16, False), (16, 3, False), (2, 2, True)])
def test_a_row_is_short_where_fewer_steps_were_asked_for(tmp_path, monkeypatch, asked, made, short):
    """And not where the budget allowed no more: its command would else be another one."""
    files = {"config.json": {"config": {"steps": asked}},
             "release/privacy.json": {"unit": "record", "relation": "replace-one", "steps": made,
                                      "epsilon": 1.0, "noise_source": "os"}}
    monkeypatch.setattr(systems, "evaluated", lambda *_: {"setting": "fast", "gen2real": {},
                                                          "fidelity": {}})
    monkeypatch.setattr(systems.run_folder, "read", lambda path: [])
    monkeypatch.setattr(systems.common, "training_seconds", lambda rows: 1.0)
    for name, content in files.items():
        path = tmp_path / "prototypes-votes-mnist-eps1" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    args = parsed(tmp_path)
    found = systems.row(args, "prototypes-votes", "mnist", 1.0)
    assert found["preset_steps"] == 16 and found["short"] == short
    assert ("--short" in systems.row_words(args, found)) == short
