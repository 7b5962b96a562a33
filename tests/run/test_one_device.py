"""Methods that decompose matrices take one device of a CPU: several could wait without end."""

import jax
import people_table
import pytest
import small_datalens

from dpgen_jax import methods, presets
from dpgen_jax.core.config import Runtime
from dpgen_jax.core.types import UserError
from dpgen_jax.run import capacity
from dpgen_jax.run.calibrate_config import with_records


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


def test_as_many_small_units_are_answered_at_once_as_the_method_says():
    config = with_records(presets.get("marginals")[1].config, 5000)
    method = methods.get("marginals").build(config, people_table.THREE)
    assert capacity.choose_layout(method, Runtime()).chunk == method.at_once > 256
    assert capacity.choose_layout(method, Runtime(), rows=4).chunk == method.at_once // 4
    assert capacity.choose_layout(method, Runtime(chunk=7)).chunk == 7
