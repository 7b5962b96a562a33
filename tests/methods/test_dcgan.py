"""DCGAN: its gradient passes the door as it is, nothing else does, and it promises nothing."""

import dataclasses
import functools
import math
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_datalens
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgen_jax import presets, train
from dpgen_jax.accountant import composition
from dpgen_jax.accountant.events import NonPrivateEvent
from dpgen_jax.aggregation.bound import Unbounded, as_float
from dpgen_jax.aggregation.mechanism import SumMechanism
from dpgen_jax.aggregation.noise import NoNoise, RoundedGaussian
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.core.config import Budget
from dpgen_jax.core.types import Records, UserError
from dpgen_jax.methods import dcgan
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.nets.losses import generator_loss
from dpgen_jax.nets.pair import pair
from dpgen_jax.nets.resnet import Critic, CriticNet, ResNetNet
from dpgen_jax.run import calibrate_config

KEY, OPEN = jax.random.key(3), Budget(math.inf, 1e-3)
CONFIG = dcgan.Config(batch=4, steps=2, sigma=0.0, d_steps=2, penalty=0.0,
                      generator=GeneratorNet(4, 16, 8), discriminator=DiscriminatorNet(4, 8, 8),
                      resnet=ResNetNet(2, 2), critic=CriticNet(2))
WASSERSTEIN = dataclasses.replace(CONFIG, networks="gs-wgan")
both = pytest.mark.parametrize("config", [CONFIG, WASSERSTEIN], ids=["published", "gs-wgan"])
build = functools.cache(dcgan.build)


# The door.

def passed(values):
    bound = Unbounded(1, len(values))
    bits = bound.project(KEY, jnp.asarray([values], jnp.float32))
    assert bits.dtype == jnp.int32 and np.abs(np.asarray(bits, np.int64)).max() <= bound.max_abs
    return np.asarray(as_float(bits, 1))[0]


@settings(max_examples=50)
@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3,
                max_size=3))
def test_every_number_passes_bit_for_bit(values):
    values = np.asarray(values, np.float32)
    # Whether numbers below the smallest normal one are 0 is the processor's choice.
    values = np.where(np.abs(values) < np.finfo(np.float32).tiny, 0, values)
    assert passed(values).tobytes() == (values + 0.0).tobytes()


def test_zeros_are_positive_and_what_is_not_finite_is_zero():
    found = passed(np.asarray([-0.0, math.nan, math.inf, -math.inf, -1.5], np.float32))
    assert found.tobytes() == struct.pack("<5f", 0, 0, 0, 0, -1.5)


def test_neither_a_second_unit_nor_noise_gets_past_the_mechanism():
    fields = {
        "bound": Unbounded(2, 3),
        "noise": NoNoise(),
        "schedule": FullParticipation(),
        "n_units": 1,
        "shape": (2, 3),
        "decode": as_float,
    }
    assert SumMechanism(**fields).events(5) == ((NonPrivateEvent(), 5),)
    for changed in ({"n_units": 2}, {"noise": RoundedGaussian(0.3)}):
        with pytest.raises(UserError, match="could leave 32-bit integers"):
            SumMechanism(**fields | changed)


# The verbs.

@pytest.mark.parametrize("config", [
    pytest.param(CONFIG, marks=pytest.mark.slow, id="published"),
    pytest.param(WASSERSTEIN, marks=pytest.mark.long, id="gs-wgan")])
def test_the_answer_is_the_gradient_of_the_generators_loss(config):
    method = build(config, small_datalens.SPEC)
    x, y = small_datalens.images(9)
    records = Records(jnp.asarray(x), jnp.asarray(y, jnp.int32))

    def score(unit, x, labels):
        if config is CONFIG:
            net_d = pair(small_datalens.SPEC, config.generator, config.discriminator)[1]
            return -generator_loss(net_d.apply(unit[0], x[None], labels[None]))
        net_d, (weights, vectors, _) = Critic(config.critic, small_datalens.SPEC), unit[0]
        return net_d.apply(net_d.normalise(weights, vectors)[0], x, labels)

    @jax.jit
    def everything(key, other):
        unit, query = method.init_unit(key), method.ask(key, method.init(key))
        learnt, again = (method.learn(k, unit, records, query) for k in (key, other))
        slope = jax.grad(lambda x: jnp.sum(score(learnt, x, query.labels)))(query.fakes)
        return unit, learnt, again, method.answer(key, learnt, records, query), slope

    unit, learnt, again, answer, slope = everything(KEY, jax.random.key(4))
    np.testing.assert_allclose(answer, slope.reshape(4, 64), rtol=1e-3,
                               atol=1e-3 * np.abs(slope).max())
    assert not small_datalens.equal(unit, learnt)
    assert not small_datalens.equal(
        learnt, again
    )  # other keys, other records of all that there are


# No promise.

def test_a_promise_is_refused(tmp_path):
    with pytest.raises(UserError, match="gives no privacy") as caught:
        train.command(["dcgan", "--dataset", "glyphs", "--epsilon", "10", "--out",
                       str(tmp_path / "run")])
    assert "\n" not in str(caught.value) and not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", presets.all_of("dcgan"))
def test_presets_promise_nothing(name):
    preset = presets.get("dcgan", name)[1]
    config = calibrate_config.complete(
        "dcgan", preset.config, preset.spec, Budget(preset.epsilon, preset.delta)
    )
    built = dcgan.mechanism(config, preset.spec)
    assert preset.epsilon == math.inf and config.sigma == 0 and built.n_units == 1
    assert composition.epsilon_of(built.events(1), 1e-5) == math.inf
    assert jax.eval_shape(dcgan.build(config, preset.spec).init, KEY)
    with pytest.raises(UserError, match="gives no privacy"):
        calibrate_config.complete("dcgan", preset.config, preset.spec, Budget(10.0, preset.delta))
