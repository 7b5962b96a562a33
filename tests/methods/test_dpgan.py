"""DP-GAN and DP-CGAN: drawn records answer with their own clipped gradient, once each, and the
discriminator, its fakes and the generator hear nothing else of them."""

import dataclasses
import functools

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import numpy_compare
import pytest
import small_datalens
from dp_accounting.pld import PLDAccountant
from jax.flatten_util import ravel_pytree

from dpgen_jax import methods, presets
from dpgen_jax.accountant import composition
from dpgen_jax.accountant.events import GaussianEvent, PoissonGaussianEvent
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.core.config import Budget
from dpgen_jax.core.types import ImageSpec, Private, UserError, unseal
from dpgen_jax.methods import dpcgan, dpgan
from dpgen_jax.nets.image import GeneratorNet
from dpgen_jax.nets.pair import Conv, ConvNet, Mlp
from dpgen_jax.private import records as sealing
from dpgen_jax.private import teachers
from dpgen_jax.private.teachers import spread
from dpgen_jax.run import calibrate_config, loop

N = 50
CONFIG = dpgan.Config(records=N, batch=10, sigma=0.0, steps=4, fakes=6, g_batch=6, d_steps=2,
                      clip=0.3, diversity=0.5, generator=GeneratorNet(4, 16, 4),
                      discriminator=ConvNet(4, 4))
METHOD = dpgan.build(CONFIG, small_datalens.SPEC)
block = functools.cache(loop.compile_block)


def where(chunk=4, devices=1, parallel="shard_map"):
    return teachers.Layout(METHOD.mechanism.schedule.batch_capacity, chunk,
                           tuple(jax.devices()[:devices]), parallel, 1, True)


def placed(x, y, layout):
    dealt = sealing.assign(N, N, small_datalens.KEY)
    return teachers.place(
        sealing.deal(sealing.seal(x, y, small_datalens.SPEC), dealt), layout
    ), dealt.index


@functools.cache
def begun(method, layout):
    """The state before the first step, on the host: a run uses up its buffers."""
    state = loop.initial_state(method, jax.random.key(0), layout)
    return jax.device_get((state.public, unseal(state.units))), state.key


def start(method, layout):
    if layout.parallel == "pmap":
        return loop.initial_state(method, jax.random.key(0), layout)
    (public, units), key = begun(method, layout)
    return loop.State(jax.device_put(public, layout.replicated),
                      Private(jax.device_put(units, layout.by_unit)), key)


def first_step(x, y, layout, method=METHOD, seed=0):
    """(public state after one step, who was drawn, by unit)."""
    records, _ = placed(x, y, layout)
    state = start(method, layout)
    private_inputs, *others = loop.draw(method.mechanism, layout, SeededBits(seed), 0, 1, 1)
    inputs = spread(private_inputs, layout), *others
    who = method.mechanism.schedule.participation(SeededBits(seed), N, 0, 1)[:, 0]
    public, *_ = block(method, layout)(state.public, state.units, records, *inputs, state.key, 0, 1)
    return jax.device_get(public), who[who >= 0]


def counted(method):
    """The method with what it was told as its public state."""
    return dataclasses.replace(
        method, init=lambda key: (method.init(key), jnp.zeros(method.mechanism.shape)),
        ask=lambda key, public: method.ask(key, public[0]),
        absorb=lambda key, public, query, released: ((public[0], released), {}),
        finalize=lambda key, public: method.finalize(key, public[0]))


COUNTED = counted(METHOD)


@functools.cache
def round_0(chunk=4, devices=1, parallel="shard_map"):
    x, y = small_datalens.images(N)
    (inner, released), who = first_step(x, y, where(chunk, devices, parallel), COUNTED)
    return inner, released, who


# What is summed.

@pytest.mark.slow
def test_each_sampled_record_counts_once_with_its_own_clipped_gradient():
    inner, released, who = round_0()
    (x, y), order = small_datalens.images(N), sealing.assign(N, N, small_datalens.KEY).index[:, 0]
    net = Conv(CONFIG.discriminator, small_datalens.SPEC)

    def gradient(record):
        return ravel_pytree(jax.grad(lambda d: jax.nn.softplus(-net.apply(
            d, x[record][None] / np.float32(255), y[record][None]))[0])(inner.d))[0]

    total = 0.0
    for record in order[who]:
        g = np.asarray(gradient(record), np.float64)
        total = total + g * min(1, CONFIG.clip / np.linalg.norm(g))
    expected = total / METHOD.mechanism.schedule.expected_answers(N)
    assert len(who) > 3 and np.linalg.norm(expected) > 0.01
    grid = METHOD.mechanism.bound.grid / 10
    np.testing.assert_allclose(released[0], expected, atol=len(who) * grid, rtol=6e-3)


@pytest.mark.parametrize("layout", [
    pytest.param((3, 2, "shard_map"), marks=pytest.mark.slow),
    pytest.param((1, 1, "shard_map"), marks=pytest.mark.long),
    pytest.param((2, 2, "pmap"), marks=pytest.mark.long)])
def test_how_sampled_records_lie_on_devices_changes_nothing(layout):
    _, released, _ = round_0()
    np.testing.assert_allclose(round_0(*layout)[1], released, atol=2 * METHOD.mechanism.bound.grid)


def neighbours(record):
    x, y = small_datalens.images(N)
    x2, y2 = x.copy(), y.copy()
    x2[record], y2[record] = 255 - x2[record], (y2[record] + 1) % 3
    return (x, y), (x2, y2)


@pytest.mark.slow
def test_a_record_counts_where_it_is_sampled_and_nowhere_else():
    order = sealing.assign(N, N, small_datalens.KEY).index[:, 0]
    _, _, who = round_0()
    outside = next(unit for unit in range(N) if unit not in who)
    for unit, changes in ((int(who[0]), True), (outside, False)):
        first, second = (first_step(*data, where())[0] for data in neighbours(order[unit]))
        assert small_datalens.equal(first, second) != changes


@pytest.mark.slow
def test_places_keep_no_state():
    """The planted fault: a unit that remembers, whose place is another record's next time."""
    def learn(key, unit, records, query):
        return records.y[0]

    x, y = small_datalens.images(N)
    layout, method = where(), dataclasses.replace(METHOD, learn=learn)
    records, _ = placed(x, y, layout)
    state = loop.initial_state(method, jax.random.key(0), layout)
    inputs = loop.draw(method.mechanism, layout, SeededBits(0), 0, 1, 1)
    _, units, *_ = loop.compile_block(method, layout)(
        state.public, state.units, records, *inputs, state.key, 0, 1)
    assert not np.any(unseal(units).state)


def test_a_layout_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="sampled"):
        loop.compile_block(METHOD, small_datalens.layout(units=N))


# What it costs.

def cost(preset):
    """All that the cost of a preset depends on."""
    config = preset.config
    return config.batch, config.sigma, config.steps, preset.records, preset.epsilon, preset.delta


ALL = [(name, preset)
       for name in ("dpgan", "dpcgan")  # one of those that cost the same
       for preset in {cost(p): label for label, p in reversed(presets.all_of(name).items())
                      }.values()]


@pytest.mark.parametrize(("name", "preset"), [
    pytest.param(*one, marks=pytest.mark.long if i else pytest.mark.slow)
    for i, one in enumerate(sorted(ALL, key=lambda one: presets.all_of(one[0])[one[1]].epsilon,
                                   reverse=True))])
def test_epsilon_of_every_preset_by_another_accountant(name, preset):
    chosen = presets.all_of(name)[preset]
    config = calibrate_config.complete(
        name,
        calibrate_config.with_records(chosen.config, chosen.records),
        chosen.spec,
        Budget(chosen.epsilon, chosen.delta),
    )
    events = methods.get(name).mechanism(config, chosen.spec).events(config.steps)
    spent = composition.epsilon_of(events, chosen.delta)
    other = PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE,
                          value_discretization_interval=1e-3)
    other.compose(dp_accounting.PoissonSampledDpEvent(
        config.batch / chosen.records, dp_accounting.GaussianDpEvent(config.sigma)), config.steps)
    assert spent <= chosen.epsilon
    assert other.get_epsilon(chosen.delta) == pytest.approx(spent, rel=0.03)
    if config.sigma not in (1.0, 1.12):  # sigma was found: all of the budget is used
        assert spent > 0.99 * chosen.epsilon


def test_noise_sensitivity_and_rate_are_those_of_the_event():
    config = dataclasses.replace(CONFIG, sigma=1.5)
    mechanism = dpgan.mechanism(config, small_datalens.SPEC)
    ((event, count),) = mechanism.events(7)
    assert isinstance(event, PoissonGaussianEvent) and count == 7
    assert event.gaussian.sigma == mechanism.noise.sigma == 1.5 * mechanism.bound.levels
    assert event.squared_norm == mechanism.bound.levels**2 and event.rate == mechanism.schedule.rate
    assert mechanism.bound.clip == config.clip and mechanism.relation == "replace-one"


def test_all_records_in_every_step_are_no_draw():
    built = dpgan.mechanism(dataclasses.replace(CONFIG, batch=N, sigma=2.0), small_datalens.SPEC)
    ((event, _),) = built.events(1)
    assert isinstance(event, GaussianEvent) and event.sensitivity == 2 * built.bound.levels


def test_the_weaker_relation_costs_less_and_is_said():
    both = [dataclasses.replace(CONFIG, sigma=1.5, relation=r) for r in ("replace-one", "zero-out")]
    replace, zero_out = (dpgan.mechanism(c, small_datalens.SPEC) for c in both)
    assert zero_out.relation == "zero-out"
    assert composition.epsilon_of(zero_out.events(50),
                                  1e-5) < composition.epsilon_of(replace.events(50), 1e-5)


def test_a_number_of_records_that_is_not_the_data_sets_is_refused():
    assert calibrate_config.with_records(dataclasses.replace(CONFIG, records=None), 50) == CONFIG
    with pytest.raises(UserError, match="records is 50, and the data set has 49"):
        calibrate_config.with_records(CONFIG, 49)


# Networks.

@pytest.mark.slow
@pytest.mark.parametrize("net", [Conv(ConvNet(3, 5), ImageSpec(8, 12, 2, 4)),
                                 Mlp((6, 5), ImageSpec(8, 12, 2, 4), leak=0.0)])
def test_a_score_depends_on_its_own_record_alone(net):
    params = net.init(jax.random.key(0))
    x = jax.random.uniform(jax.random.key(1), (5, 8, 12, 2))
    y = jnp.array([0, 1, 2, 3, 0])
    params = jax.tree.map(lambda p: p + 0.1 * jax.random.normal(jax.random.key(2), p.shape), params)
    scores = net.apply(params, x, y)
    assert scores.shape == (5,) and np.unique(scores).size == 5
    np.testing.assert_allclose(net.apply(params, x.at[0].set(0), y)[1:], scores[1:], rtol=1e-5)
    assert net.apply(params, x, y.at[0].set(1))[0] != scores[0]


def test_the_weight_of_labels_multiplies_their_share_of_every_layer():
    plain, weighted = (Mlp((6,), small_datalens.SPEC, label_weight=w) for w in (1.0, 10.0))
    params = numpy_compare.shaken(jax.jit(plain.init)(jax.random.key(0)))
    x, y = numpy_compare.uniform(5, *small_datalens.SPEC.shape), np.array([0, 1, 2, 0, 1])
    alike = params | {name: np.concatenate([layer[:-3], 10 * layer[-3:]])
                      for name, layer in params.items() if name.startswith("linear")}
    numpy_compare.close(jax.jit(weighted.apply)(params, x, y), jax.jit(plain.apply)(alike, x, y))
    with pytest.raises(UserError, match="label_weight is 0"):
        dpcgan.Config(label_weight=0)


def test_dpcgan_clips_both_layers_as_one():
    """P23: the published code clips each tensor, and charges for one."""
    mechanism = dpcgan.mechanism(
        dpcgan.Config(records=N, batch=10, sigma=1.0, hidden=(8,)), small_datalens.SPEC
    )
    huge = np.full(mechanism.shape, 1e6, np.float32)
    message = np.asarray(mechanism.bound.project(None, huge), np.int64)
    assert np.sum(message**2) <= mechanism.bound.levels**2
