"""Settings that mean nothing are refused before anything is spent, by name and in one line."""

import dataclasses
import math
from typing import get_args, get_type_hints

import pytest

from dpgen_jax import methods, presets
from dpgen_jax.core.errors import UserError
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.image import GeneratorNet

# An infinite clip of DataLens means none. The others are read by some aggregations or networks
# alone, which refuse them, and not by those of all presets.
UNREAD = {"datalens": {"threshold", "clip"}, "gpate": {"threshold"}, "dcgan": {"penalty"}}


def numbers(config, path=()):
    """The path of each float field, also of networks and optimisers, and whether it is a tuple."""
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from numbers(value, (*path, field.name))
        elif float in (hints[field.name], *getattr(hints[field.name], "__args__", ())):
            yield (*path, field.name), isinstance(value, tuple)


def changed(config, path, value):
    name, *rest = path
    return dataclasses.replace(config, **{
        name: changed(getattr(config, name), rest, value) if rest else value})


def calibrated(method, config):
    """The configuration with records, noise and steps, where a run finds them."""
    found = {"records": 100_000, "sigma": 0.0 if method == "dcgan" else 3.0, "steps": 5}
    return dataclasses.replace(config, **{
        name: value for name, value in found.items() if getattr(config, name, 0) is None})


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("method", methods.NAMES)
def test_no_setting_is_infinite_or_undefined(method, value):
    """A run with one would spend its budget on a generator of NaN."""
    for name, preset in presets.all_of(method).items():
        sound = calibrated(method, preset.config)
        methods.get(method).build(sound, preset.spec)
        for path, several in numbers(sound):
            if path[-1] in UNREAD.get(method, ()):
                continue
            with pytest.raises(UserError, match=None if method == "dcgan" else str(value)):
                config = changed(sound, path, (value,) if several else value)
                methods.get(method).build(config, preset.spec)
                pytest.fail(f"{method} {name}: {'.'.join(path)} may be {value}")


@pytest.mark.parametrize("field, value", [
    ("learning_rate", -1e-3), ("beta1", 1.0), ("beta2", -0.1), ("epsilon", 0.0)])
def test_an_optimiser_that_cannot_learn_is_refused(field, value):
    with pytest.raises(UserError, match=f"{field} is {value}"):
        Adam(**{field: value})


ZERO = {"weight_label", "label_part", "rare_share", "junction_mb", "grey", "whitening", "prune",
        "warp", "means", "classifier", "onehots", "pooled_steps", "final_rate", "ema",
        "diversity", "weight_clip", "g_final_rate", "critics_per_step", "penalty", "drift", "beta",
        "class_weight", "warm_steps", "t_c", "fake_steps", "real_steps", "c_penalty", "jitter",
        "clients_per_round", "label_cost", "debias", "sigma", "momentum"}
"""Numbers that may be 0, which mostly leaves something out."""
ZERO_IN = {("gpate", "projection"), ("gswgan", "pool"), ("dpac", "pool"),
           *((method, "frequencies") for method in ("datalens", "gpate", "prototypes"))}
"""The same of a method."""
BELOW_ONE = {"ema", "momentum", "warp", "label_part", "rare_share"}
AT_MOST_ONE = {"g_final_rate", "final_rate", "beta", "kappa", "grey"}


def sound(method):
    """The first preset of a method with its records, noise and steps, and its schema."""
    preset = next(iter(presets.all_of(method).values()))
    return calibrated(method, preset.config), preset.spec


def refused(method, text, **fields):
    """Requires that a configuration is refused, by this text in one line."""
    config, spec = sound(method)
    with pytest.raises(UserError, match=text) as caught:
        methods.get(method).build(dataclasses.replace(config, **fields), spec)
        pytest.fail(f"{method}: {fields} may be")
    assert "\n" not in str(caught.value)


def of_one_number(method):
    """The names of the fields that are a number, or may be one."""
    config, _ = sound(method)
    for name, hint in get_type_hints(type(config)).items():
        if {hint, *get_args(hint)} & {int, float} and not isinstance(
                getattr(config, name), bool | tuple):
            yield name


@pytest.mark.parametrize("method", methods.NAMES)
def test_a_number_out_of_range_is_named(method):
    config, spec = sound(method)
    for name in set(of_one_number(method)) - UNREAD.get(method, set()):
        refused(method, name, **{name: -1})
        if name in ZERO or (method, name) in ZERO_IN:
            methods.get(method).build(dataclasses.replace(config, **{name: 0}), spec)
        else:
            refused(method, name, **{name: 0})
        if name in BELOW_ONE:
            refused(method, name, **{name: 1.0})
        if name in AT_MOST_ONE:
            refused(method, name, **{name: 1.1})


@pytest.mark.parametrize(("method", "fields", "text"), [
    ("datalens", {"aggregate": "d2p", "levels": 1}, "levels is 1"),
    ("datalens", {"aggregate": "fetchsgd", "sketch_rows": 0}, "sketch_rows is 0"),
    ("datalens", {"aggregate": "fetchsgd", "sketch_columns": 2}, "too narrow"),
    ("dcgan", {"sigma": 1.0}, "gives no privacy"),
    ("dpac", {"steps": 3, "t_c": 3}, "t_c is 3, but there are only 3 steps"),
    ("dpac", {"fake_steps": 0, "real_steps": 0}, "no steps to learn"),
    ("dpac", {"order": "parallel", "real_steps": 0}, "no steps to learn"),
    ("dpac", {"fake_batch": 0}, "fake_batch is 0"),
    ("dpcgan", {"label_weight": 0}, "label_weight is 0"),
    ("dpgan", {"batch": 100_001}, "there are 100000 records"),
    ("dpmerf", {"features": 7}, "features is 7; it must be an even number"),
    ("dpmerf", {"windows": ()}, "windows"),
    ("dpmerf", {"sigma": 1e5}, "levels"),
    ("dpmerf", {"steps": 2}, "steps is 2; this method releases once"),
    ("dpmerf", {"batch": 5}, "batch is 5.* 20 or above"),
    ("dpmerf_ae", {"fakes": 5}, "fakes is 5.* 20 or above"),
    ("dpmerf_ae", {"steps": 5, "embedding_steps": 5}, "embedding_steps is 5, of 5 steps"),
    ("dpmerf_ae", {"generator": GeneratorNet(8, 16, warp=0.2)},
     "warp is 0.2, which moves images; this generator makes"),
    ("fedavg_gan", {"clients": 5, "clients_per_round": 6}, "clients_per_round is 6, of 5 clients"),
    ("fedavg_gan", {"sigma": 1e5}, "leaves a grid"),
    ("fedavg_gan", {"federated": True, "clients": 1}, "at least 2 are needed"),
    ("gpate", {"projection": 145}, "projection is 145; the records have only 144 features"),
    ("gpate", {"aggregate": "gnmax", "teachers": 5, "bins": 6}, "6 bins for 5 votes"),
    ("gpate", {"aggregate": "gnmax", "threshold": 0.0}, "threshold is 0"),
    ("gpate", {"aggregate": "gnmax", "bins": 1}, "bins is 1"),
    ("gpate", {"projection": 17, "frequencies": 4}, "only 16 frequencies to project"),
    ("gswgan", {"logit_slope": "steep"}, "logit_slope is 'steep'; it must be one of sigmoid"),
    ("mixture", {"steps": 3}, "steps is 3"),
    ("mixture", {"classifier": 5}, "5 for a classifier at least 9"),
    ("mixture", {"frequencies": 13}, "frequencies is 13.* 12 or below"),
    ("prototypes", {"answer": "votes", "frequencies": 0},
     "frequencies is 0; votes are on fakes in low frequencies"),
    ("prototypes", {"answer": "bits"},
     "answer is 'bits'; it must be one of gradients, signs, votes"),
    ("topagg_sgd", {"channels": (3,)}, "channels are"),
    ("topagg_sgd", {"hidden": (0,)}, "hidden")])
def test_settings_that_do_not_go_together_are_named(method, fields, text):
    refused(method, text, **fields)
