"""Presets whose whole run is one Gaussian mechanism: each spends its budget and no more, counted
from the papers' formulas and the accounting of Balle and Wang (2018), without the library's own."""

import dataclasses
import functools
import json
import math

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from dpgen_jax import methods, presets
from dpgen_jax.accountant import composition
from dpgen_jax.core.config import Budget, from_json, to_json
from dpgen_jax.run import calibrate_config


def longest_sketch(config, columns):
    """The squared length that a row of a sketch of signs is allowed."""
    kept, rows = min(config.top_k, columns), config.sketch_rows
    return math.floor(rows * kept * (1 + 4 * math.sqrt(2 / (rows * config.sketch_columns))))


def longest_rotation(config, columns):
    """The squared length that a rotated row of so many levels is allowed."""
    padded = 2 ** math.ceil(math.log2(columns))
    reach = (config.levels - 1) * math.sqrt(padded / (2 * math.log(padded)))
    return math.floor((math.sqrt(reach**2 + padded) + 4) ** 2)


def datalens(config, columns):
    """Two opposite messages: twice the length of a row, in every row."""
    squared = {"topk": lambda config, columns: min(config.top_k, columns),
               "fetchsgd": longest_sketch, "d2p": longest_rotation}[config.aggregate](
        config, columns)
    return 4 * squared * config.batch / config.sigma**2


def gpate(config, columns):
    columns = config.projection or columns
    if config.aggregate == "sum":
        levels = max(32, math.ceil(8 * math.sqrt(columns)))
        return 4 * config.batch * levels**2 / config.sigma**2
    squared = {"gnmax": 2 + 1 / (config.sigma_ratio or 1)**2, "mean": 2, "topk": 4}
    return config.batch * columns * squared[config.aggregate] / config.sigma**2


def prototypes(config, columns):
    columns = min(config.frequencies**2 or columns, columns)
    rows = min(config.images_per_teacher, 10 * config.images)  # all presets have ten classes
    squared = {"gradients": max(32, math.ceil(8 * math.sqrt(columns)))**2,
               "signs": min(config.top_k, columns), "votes": columns}
    return 4 * rows * squared[config.answer] / config.sigma**2


MU_SQUARED = {
    "datalens": datalens, "gpate": gpate, "prototypes": prototypes,
    "projected_dpgan": lambda config, columns: 2 * config.projection / config.sigma**2,
    # of one step: sensitivity over sigma
    "dpmerf": lambda config, columns: 1 / config.sigma**2,
    "marginals": lambda config, columns: 1 / config.sigma**2}
CASES = [(method, name) for method in MU_SQUARED for name, preset in presets.all_of(method).items()
         if preset.epsilon < math.inf and "carried over to other data" not in preset.source]
cases = pytest.mark.parametrize(("method", "name"), CASES)


def delta(mu, epsilon):
    """The delta of the Gaussian mechanism of sensitivity mu and sigma 1, by Balle and Wang."""
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(
        epsilon + norm.logcdf(-mu / 2 - epsilon / mu))


@functools.cache
def completed(method, name):
    preset = presets.all_of(method)[name]
    config = calibrate_config.with_records(preset.config, preset.records)
    budget = Budget(preset.epsilon, preset.delta, preset.class_epsilon)
    return preset, calibrate_config.complete(method, config, preset.spec, budget)


def mu_of(method, config, spec, steps):
    return math.sqrt(steps * MU_SQUARED[method](config, math.prod(spec.shape)))


@cases
def test_a_preset_spends_its_budget_and_no_more(method, name):
    """The most steps that the budget allows with a given noise, or the least noise for the steps
    (to the thousandth that its rounding to whole levels takes)."""
    preset, config = completed(method, name)
    left = preset.epsilon - preset.class_epsilon
    spent = mu_of(method, config, preset.spec, config.steps)
    if preset.config.steps is None:
        more = mu_of(method, config, preset.spec, config.steps + 1)
    else:
        assert config.steps == preset.config.steps
        more = spent / 0.998
    assert delta(spent, left) <= preset.delta * (1 + 1e-9) < delta(more, left)


@cases
def test_the_librarys_accountant_says_the_same(method, name):
    preset, config = completed(method, name)
    mechanism = methods.get(method).mechanism(config, preset.spec)
    mu = mu_of(method, config, preset.spec, config.steps)
    expected = brentq(lambda epsilon: delta(mu, epsilon) - preset.delta, 0, 2 * preset.epsilon)
    spent = composition.epsilon_of(mechanism.events(config.steps), preset.delta)
    assert spent == pytest.approx(expected, rel=1e-4) and spent <= preset.epsilon
    assert mechanism.n_units <= preset.records


@pytest.mark.parametrize("method", MU_SQUARED)
def test_a_step_too_many_and_noise_too_small_are_seen(method):
    """The planted faults: what the table declares within its budget would not be with them."""
    name = next(name for other, name in CASES if other == method)
    preset, config = completed(method, name)
    less = dataclasses.replace(config, sigma=0.99 * config.sigma)
    left = preset.epsilon - preset.class_epsilon
    assert delta(mu_of(method, less, preset.spec, config.steps), left) > preset.delta


@pytest.mark.parametrize(("method", "name"), [
    (method, name) for method in ("gswgan", "dpac", "pategan", "mixture", "dpsinkhorn", "dcgan")
    for name in presets.all_of(method)])
def test_a_preset_is_complete_within_its_budget(method, name):
    """Methods whose cost is not counted by hand above, and whose noise is found quickly."""
    preset, config = completed(method, name)
    mechanism = methods.get(method).mechanism(config, preset.spec)
    events = mechanism.events(config.steps)
    assert composition.epsilon_of(events, preset.delta) <= preset.epsilon
    assert preset.delta < 1 / preset.records or preset.epsilon == math.inf
    assert mechanism.n_units <= preset.records
    assert from_json(type(config), json.loads(json.dumps(to_json(config)))) == config


def test_the_default_preset_is_for_data_that_are_always_there():
    first = {method: presets.get(method)[0] for method in methods.NAMES}
    assert {method: name for method, name in first.items() if name != "glyphs"} == {
        "marginals": "table", "prototypes": "mnist-eps1-gradients", "projected_dpgan": "mnist-eps1"}
