"""How many devices of a CPU a run takes where the user names no number.

Methods that decompose matrices take one: several could wait without end.
"""

import dataclasses
import types

import jax
import people_table
import pytest
import small_datalens

from dpgen_jax import methods, presets
from dpgen_jax.core.config import Runtime
from dpgen_jax.core.types import ImageSpec, UserError
from dpgen_jax.run import capacity
from dpgen_jax.run.calibrate_config import with_records

MNIST = ImageSpec(28, 28, 1, 10)


@pytest.mark.parametrize(("name", "spec"), [
    ("marginals", people_table.THREE), ("mixture", small_datalens.SPEC)])
def test_one_device_of_a_cpu_is_taken(name, spec):
    config = with_records(presets.get(name)[1].config, 60)
    method = methods.get(name).build(config, spec)
    assert method.decomposes and len(jax.devices()) > 1
    assert len(capacity.choose_layout(method, Runtime()).devices) == 1
    with pytest.raises(UserError, match="--devices 2: this method decomposes matrices"):
        capacity.choose_layout(method, Runtime(devices=2))


def test_a_method_that_multiplies_only_takes_all():
    method = methods.get("datalens").build(small_datalens.CONFIG, small_datalens.SPEC)
    assert not method.decomposes
    assert len(capacity.choose_layout(method, Runtime()).devices) == len(jax.devices())


@pytest.mark.parametrize(("method", "preset", "units", "devices"), [
    ("datalens", "mnist-eps1", 100, 1), ("datalens", "mnist-eps1", 299, 2),
    ("datalens", "mnist-eps1", 4000, 4), ("gpate", "mnist-eps1", 4000, 4),
    ("gswgan", "mnist-published", 1000, 1)])
def test_large_networks_take_one_for_each_hundred_of_a_round(method, preset, units, devices):
    """Beside fewer, the public half is too large, which every device computes."""
    config = with_records(presets.get(method, preset)[1].config, 60_000)
    field = "critics" if method == "gswgan" else "teachers"
    built = methods.get(method).build(dataclasses.replace(config, **{field: units}), MNIST)
    assert capacity.teachers.unit_bytes(built) > 2**20
    available = jax.local_devices()[:1] * 4
    assert capacity._devices_by_default(built, available) == devices


def test_processes_take_no_more_than_the_one_that_has_fewest(monkeypatch):
    """Else they would disagree on the layout, and be refused."""
    method = methods.get("datalens").build(small_datalens.CONFIG, small_datalens.SPEC)
    here = jax.devices()[:3]
    there = types.SimpleNamespace(process_index=1, platform="cpu")
    monkeypatch.setattr(jax, "local_devices", lambda: here)
    monkeypatch.setattr(jax, "devices", lambda: [*here, there, there])
    monkeypatch.setattr(capacity.hosts.Team, "count", 2)
    assert capacity.choose_layout(method, Runtime()).devices == (*here[:2], there, there)


def test_as_many_small_units_are_answered_at_once_as_the_method_says():
    config = with_records(presets.get("marginals")[1].config, 5000)
    method = methods.get("marginals").build(config, people_table.THREE)
    assert capacity.choose_layout(method, Runtime()).chunk == method.at_once > 256
    assert capacity.choose_layout(method, Runtime(), rows=4).chunk == method.at_once // 4
    assert capacity.choose_layout(method, Runtime(chunk=7)).chunk == 7
