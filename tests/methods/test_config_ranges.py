"""Settings that are infinite or undefined are refused before anything is spent: a run with one
would spend its budget on a generator of NaN."""

import dataclasses
import math
from typing import get_type_hints

import pytest

from dpgen_jax import methods, presets
from dpgen_jax.core.errors import UserError
from dpgen_jax.nets.adam import Adam

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
