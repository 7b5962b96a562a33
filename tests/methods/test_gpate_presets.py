"""Every preset of G-PATE spends its budget, counted by hand."""

import dataclasses
import functools
import math

import pytest
from scipy.stats import norm

from dpgen_jax import plan, presets
from dpgen_jax.accountant import calibrate, gaussian
from dpgen_jax.config import Budget
from dpgen_jax.methods import gpate
from dpgen_jax.types import UserError

ALL = presets.all_of("gpate")
PRIVATE = [name for name in ALL if ALL[name].epsilon < math.inf]


def mu_squared(config, spec):
    """Of one step, by hand."""
    columns = config.projection or math.prod(spec.shape)
    squared = {"gnmax": 2 + 1 / config.sigma_ratio**2, "mean": 2, "topk": 4}.get(config.aggregate)
    if squared is None:
        return 4 * config.batch * max(32, math.ceil(8 * math.sqrt(columns)))**2 / config.sigma**2
    return config.batch * columns * squared / config.sigma**2


def steps_by_hand(config, spec, epsilon, delta=1e-5):
    """The Gaussian mechanism of Balle and Wang (2018), T times."""
    def fits(steps):
        mu = math.sqrt(steps * mu_squared(config, spec))
        return (norm.cdf(mu / 2 - epsilon / mu)
                - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)) <= delta

    return next(steps for steps in range(2000) if not fits(steps + 1))


@functools.cache
def planned(name):
    preset = ALL[name]
    budget = Budget(preset.epsilon, preset.delta, preset.class_epsilon)
    return plan.complete("gpate", preset.config, preset.spec, budget)


@pytest.mark.parametrize("name", PRIVATE)
def test_every_private_preset_builds_and_spends_its_budget(name):
    preset, config = ALL[name], planned(name)
    left = preset.epsilon - preset.class_epsilon
    mechanism = gpate.build(config, preset.spec).mechanism
    spent = gaussian.epsilon(mechanism.events(config.steps), preset.delta)
    assert spent <= left and config.steps == steps_by_hand(config, preset.spec, left)
    if preset.config.steps is None:
        assert gaussian.epsilon(mechanism.events(config.steps + 1), preset.delta) > left
    else:  # the least noise
        less = dataclasses.replace(config, sigma=0.999 * config.sigma)
        assert steps_by_hand(less, preset.spec, left) < config.steps == preset.config.steps
    assert mechanism.n_units == config.teachers <= preset.records


@pytest.mark.parametrize("name", ALL)
def test_every_preset_names_its_source(name):
    source = ALL[name].source
    assert "Long et al. 2021" in source or "benchmarks/gpate.py" in source


def test_published_settings():
    config = ALL["mnist-eps1"].config
    assert (config.teachers, config.batch, config.projection, config.bins, config.clip) == (
        4000, 15, 10, 10, 1e-4)
    assert (config.sigma, config.sigma_threshold, config.threshold) == (1000, 3000, 0.5)
    assert planned("mnist-eps1").steps == planned("fashion-eps1").steps == 226
    assert ALL["mnist-eps1"].paper_steps == 232
    config = ALL["fashion-eps10"].config
    assert (config.teachers, config.batch, config.sigma, config.sigma_threshold) == (
        2000, 30, 100, 600)
    assert ALL["mnist-eps1-paper"].config.bins == 5 and ALL["credit"].config.projection == 5
    for name, preset in ALL.items():
        if "Long" in preset.source:  # a teacher's whole part of the records in every step
            most = min(64, preset.records // preset.config.teachers)
            assert preset.config.batch <= most, name


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
        assert config.sigma == 0 and gaussian.epsilon(events, 1e-5) == math.inf


def test_the_papers_delta_is_no_protection_for_its_larger_data_sets():
    """1e-5 is kept where it is not below 1 / records; a run then asks for another."""
    refused = {name for name in PRIVATE if ALL[name].delta >= 1 / ALL[name].records}
    assert refused == {name for name in ALL if name.startswith(("gender", "hair"))} | {"credit"}
    for name in PRIVATE:
        preset = ALL[name]
        if name in refused:
            with pytest.raises(UserError, match="no protection"):
                calibrate.check_budget(preset.epsilon, preset.delta, preset.records)
        else:
            calibrate.check_budget(preset.epsilon, preset.delta, preset.records)
