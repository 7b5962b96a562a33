"""Every preset of G-PATE spends its budget, counted by hand."""

import functools
import math

import pytest

from dpgen_jax import presets
from dpgen_jax.accountant import composition
from dpgen_jax.cli import train_flags
from dpgen_jax.core.config import Budget
from dpgen_jax.core.types import UserError
from dpgen_jax.methods import gpate
from dpgen_jax.run import calibrate_config

ALL = presets.all_of("gpate")
PRIVATE = [name for name in ALL if ALL[name].epsilon < math.inf]


@functools.cache
def planned(name):
    preset = ALL[name]
    budget = Budget(preset.epsilon, preset.delta, preset.class_epsilon)
    return calibrate_config.complete("gpate", preset.config, preset.spec, budget)


def test_published_settings():
    config = ALL["mnist-eps1"].config
    assert (config.teachers, config.batch, config.projection, config.bins, config.clip) == (
        4000, 15, 10, 5, 1e-4)
    assert (config.layers, config.generator.hidden, config.generator.channels) == (
        "paper", 1024, 64)
    assert (config.sigma, config.sigma_threshold, config.threshold) == (1000, 3000, 0.5)
    assert planned("mnist-eps1").steps == planned("fashion-eps1").steps == 226
    assert ALL["mnist-eps1"].paper_steps == 232
    config = ALL["fashion-eps10"].config
    assert (config.teachers, config.batch, config.sigma, config.sigma_threshold) == (
        2000, 30, 100, 600)
    assert (config.layers, config.bins, config.clip) == ("paper", 10, 5e-5)
    assert ALL["credit"].config.projection == 5
    for name in ("mnist-eps1", "mnist-eps10", "fashion-eps1", "fashion-eps10"):
        config = ALL[f"{name}-code"].config
        assert (config.layers, config.bins, config.clip) == ("published", 10, 1e-4)
        assert config.generator.channels == 128
    for name, preset in ALL.items():
        if "Long" in preset.source:  # a teacher's whole part of the records in every step
            most = min(64, preset.records // preset.config.teachers)
            assert preset.config.batch <= most, name


def test_an_old_name_of_a_preset_is_reported_once(capsys):
    """In the new name's preset, in the words of a command, and for each use of the command."""
    for name in ("mnist-eps1", "fashion-eps10"):
        assert presets.get("gpate", f"{name}-paper") == (name, ALL[name])
        assert capsys.readouterr().err == f"note: preset {name}-paper of gpate is now {name}\n"
        assert f"{name}-paper" not in ALL
    args, _ = train_flags.parse("gpate", [
        "--dataset", "glyphs", "--preset", "mnist-eps1-paper"])
    assert args.preset == "mnist-eps1" and capsys.readouterr().err.count("is now") == 1


@pytest.mark.parametrize("name", ["mnist", "fashion"])
def test_small_budgets_are_the_settings_of_epsilon_1_stopped_earlier(name):
    names = [f"{name}-eps{epsilon}" for epsilon in (0.2, 0.4, 0.6, 0.8, 1)]
    assert len({ALL[n].config for n in names}) == 1
    assert [ALL[n].epsilon for n in names] == [0.2, 0.4, 0.6, 0.8, 1]
    steps = [planned(n).steps for n in names]
    assert steps == sorted(set(steps)) and steps[0] >= 10


def test_presets_without_noise_say_so():
    for name in ALL.keys() - PRIVATE:
        config = planned(name)
        events = gpate.build(config, ALL[name].spec).mechanism.events(config.steps)
        assert config.sigma == 0 and composition.epsilon_of(events, 1e-5) == math.inf


def test_the_papers_delta_is_no_protection_for_its_larger_data_sets():
    """Where 1e-5 is not below 1 / records the presets have another."""
    smaller = {name for name in PRIVATE if ALL[name].delta != 1e-5}
    assert smaller == {name for name in ALL
                       if name.startswith(("gender", "hair", "places"))} | {"credit"}
    for name in smaller:
        with pytest.raises(UserError, match="does not protect"):
            composition.check_budget(ALL[name].epsilon, 1e-5, ALL[name].records)
