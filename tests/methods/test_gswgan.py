"""GS-WGAN: its warm start, what its generator follows, and what a step is charged for."""

import dataclasses
import functools
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpy_compare
import optax
import pytest
import small_datalens
import small_gswgan
from small_gswgan import KEY, OWNER, ROWS, UNITS

from dpgen_jax import presets
from dpgen_jax.accountant import composition
from dpgen_jax.accountant.events import GaussianEvent, NonPrivateEvent, SampledGaussianEvent
from dpgen_jax.aggregation.mechanism import LocalMechanism
from dpgen_jax.aggregation.schedule import (
    FixedSizeSampling,
    FullParticipation,
    PublishedSampling,
    RoundRobin,
)
from dpgen_jax.core.config import Budget
from dpgen_jax.core.types import Column, Records, TableSpec, UserError
from dpgen_jax.methods import gswgan
from dpgen_jax.nets.resnet import Critic, ResNet, ResNetNet
from dpgen_jax.release import guarantee
from dpgen_jax.run import calibrate_config, costs, stages

METHOD = gswgan.build(small_gswgan.gs(), small_datalens.SPEC)
DATA, OTHER = small_gswgan.neighbours()


# The real warm start.

@functools.cache
def warm(which):
    return small_gswgan.warmed(METHOD, (DATA, OTHER)[which])


@pytest.mark.slow
def test_a_warm_start_changes_every_critic_and_reads_its_own_records_alone():
    cold, first, second = small_gswgan.fresh(METHOD)[1], warm(0), warm(1)
    assert small_datalens.differing_units(cold.state, first.state) == set(range(UNITS))
    assert small_datalens.differing_units(first, second) == {OWNER}
    a, b = first.state[0][1], second.state[0][1]  # vectors of the power iteration
    moved = {layer for layer in a if small_datalens.differing_units(a[layer], b[layer]) == {OWNER}}
    assert moved == {"conv1", "conv2", "conv3", "embedding"}  # that of one output stays 1 or -1
    assert first.warm.tolist() == [1] * UNITS and not cold.warm.any()


@pytest.mark.slow
@pytest.mark.parametrize("calls", [1, 3])
def test_an_interrupted_warm_start_ends_where_it_would_have(calls):
    """Cut inside the first unit, and between two units."""
    cut = small_gswgan.warmed(METHOD, DATA, calls=calls)
    assert 0 <= cut.warm.sum() < UNITS
    assert small_datalens.equal(small_gswgan.warmed(METHOD, DATA, units=cut), warm(0))


# The verbs.

@functools.cache
def conversation(warp=0.0):
    """The first step with one critic, and the same by plain formulas."""
    config = small_gswgan.gs(ema=0.25, generator=ResNetNet(2, 2, warp))
    method = gswgan.build(config, small_datalens.SPEC)
    net_g, net_d = (
        ResNet(config.generator, small_datalens.SPEC),
        Critic(config.critic, small_datalens.SPEC),
    )
    released = np.random.default_rng(1).normal(0, 0.1, (ROWS, 64)).astype(np.float32)
    records = Records(np.zeros((2, *small_datalens.SPEC.shape), np.uint8), np.zeros(2, np.int32))
    public, units, _ = small_gswgan.fresh(METHOD)
    unit = jax.tree.map(lambda a: a[0], units.state)

    @jax.jit
    def everything(public, unit):
        query = method.ask(KEY, public)
        (weights, vectors, _), _ = unit
        normalised, _ = net_d.normalise(weights, vectors)

        def loss(weights):
            fakes = net_g.generate(weights, public.vectors, query.latents, query.labels)
            return -(released.reshape(fakes.shape) * fakes).sum() / ROWS, fakes

        def score(fake, label):
            return net_d.apply(normalised, fake[None], label[None])[0]

        grads, fakes = jax.grad(loss, has_aux=True)(public.weights)
        return SimpleNamespace(
            query=query, answer=method.answer(KEY, unit, records, query), grads=grads, fakes=fakes,
            slope=jax.vmap(jax.grad(score))(query.fakes, query.labels)).__dict__

    parts = SimpleNamespace(**everything(public, unit))
    parts.public, parts.released, parts.absorb = public, released, jax.jit(method.absorb)
    parts.new, parts.metrics = parts.absorb(KEY, parts.public, parts.query, released)
    return parts


@pytest.mark.slow
def test_critics_learn_from_a_public_pool_of_each_class_and_answer_about_other_fakes():
    parts = conversation()
    assert parts.query.material.shape == (3, 2, 8, 8, 1) and parts.query.fakes.shape == (3, 8, 8, 1)
    np.testing.assert_allclose(parts.query.fakes, parts.fakes, atol=1e-6)
    every = np.concatenate([parts.query.material.reshape(6, -1), parts.query.fakes.reshape(3, -1)])
    assert len(np.unique(every, axis=0)) > 4
    assert (parts.query.step, parts.query.critic_steps, parts.query.extra) == (0, 2, ())


@pytest.mark.parametrize("warp", [0.0, 0.3])
def test_the_answer_is_the_gradient_of_the_score_at_each_fake(warp):
    parts = conversation(warp)
    assert np.abs(parts.slope).max() > 1e-3
    np.testing.assert_allclose(parts.answer, parts.slope.reshape(ROWS, -1), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("warp", [0.0, 0.3])
def test_the_generator_takes_one_adam_step_along_what_was_released(warp):
    parts = conversation(warp)
    expected = numpy_compare.adam_step(parts.public.weights, parts.grads, 1e-4, 0.5, 0.9)
    clear = {name: np.abs(g) > 1e-3 * np.abs(g).max() for name, g in parts.grads.items()}
    weights = jax.tree.map(np.asarray, parts.new.weights)
    for name, weight in weights.items():  # where not the sign of a rounding error
        np.testing.assert_allclose(weight[clear[name]], expected[name][clear[name]], atol=2e-6)
        assert np.abs(weight - parts.public.weights[name]).max() > 5e-5
    assert small_datalens.equal(parts.new.average, parts.new.weights)  # of one step
    for name, u in parts.public.vectors.items():  # one power iteration, with the new weights
        w = np.reshape(weights[name], (-1, len(u)))
        u = w.T @ (w @ np.asarray(u))
        np.testing.assert_allclose(parts.new.vectors[name], u / np.linalg.norm(u), atol=1e-5)
    assert float(parts.metrics["released_rms"]) == pytest.approx(
        math.sqrt((parts.released**2).mean()), rel=1e-4)
    assert float(parts.metrics["generator_gradient"]) == pytest.approx(
        float(jax.jit(optax.tree.norm)(parts.grads)), rel=1e-3)


def test_the_update_is_a_function_of_the_public_state_the_query_and_what_was_released():
    """Bit for bit, whatever the key; and of the query only the fakes' latents and labels."""
    parts = conversation()
    blind = dataclasses.replace(jax.tree.map(jnp.zeros_like, parts.query),
                                latents=parts.query.latents, labels=parts.query.labels)
    for key, query in ((jax.random.key(9), parts.query), (KEY, blind)):
        assert small_datalens.equal(
            parts.absorb(key, parts.public, query, parts.released)[0], parts.new)
    assert not small_datalens.equal(
        parts.absorb(KEY, parts.public, parts.query, -parts.released)[0], parts.new)


def test_the_average_begins_as_a_mean_and_forgets_later():
    parts = conversation()
    second, _ = parts.absorb(KEY, parts.new, parts.query, -parts.released)
    third, _ = parts.absorb(KEY, second, parts.query, parts.released)
    for name, average in third.average.items():  # ema .25 is below 1 - 1 / 2
        before = 0.25 * parts.new.weights[name] + 0.75 * second.weights[name]
        np.testing.assert_allclose(average, 0.25 * before + 0.75 * third.weights[name], atol=1e-6)


# What it costs.

def mechanism(**fields):
    return gswgan.mechanism(small_gswgan.gs(**fields), small_datalens.SPEC)


def test_one_step_is_charged_for_all_its_fakes():
    for sigma, batch in ((1.0, 3), (1.07, 32), (12.6, 1)):
        built = mechanism(sigma=sigma, batch=batch)
        ((event, count),) = built.events(7)
        assert count == 7 and isinstance(event, GaussianEvent)
        assert event.mu_squared == pytest.approx(batch / sigma**2)
        assert event.sensitivity * event.grid == pytest.approx(2 * 0.1 * math.sqrt(batch))
        assert built.noise.sigma == event.sigma and built.shape == (batch, 64)


@pytest.mark.parametrize(("critics", "groups", "visits"), [
    (0, 1, 7), (5, 1, 7), (4, 2, 4), (3, 2, 4), (2, 3, 3), (1, 5, 2)])
def test_in_a_rotation_a_critic_is_charged_for_its_own_visits(critics, groups, visits):
    built = mechanism(critics_per_step=critics)
    assert built.schedule == (FullParticipation() if groups == 1 else RoundRobin(groups))
    assert [count for _, count in built.events(7)] == [visits]


def test_a_secret_draw_is_one_subsampled_release_of_the_whole_batch():
    built = mechanism(schedule="secret-draw", critics_per_step=2)
    ((event, count),) = built.events(7)
    plain = mechanism().events(1)[0][0]
    assert built.schedule == FixedSizeSampling(5, 2) and count == 7
    ties = 10 * 2.0**-96  # of five secret numbers
    expected = dataclasses.replace(plain, total_variation=event.total_variation)
    assert event == SampledGaussianEvent(expected, 5, 2)
    assert event.total_variation == pytest.approx(plain.total_variation + ties, rel=1e-12)


def test_the_noise_of_a_federation_is_that_of_one_client():
    local, central = mechanism(federated=True), mechanism()
    assert isinstance(local, LocalMechanism) and local.unit == "client"
    assert local.client_bits_shape == central.bits_shape and local.bits_shape == (0,)
    assert local.events(7) == central.events(7)


def test_no_noise_is_no_privacy():
    ((event, _),) = mechanism(sigma=0.0).events(3)
    assert isinstance(event, NonPrivateEvent)
    assert composition.epsilon_of(mechanism(sigma=0.0).events(3), 1e-5) == math.inf


def test_as_published_proves_nothing_whatever_the_noise():
    account = mechanism(accounting="as-published", critics_per_step=1, sigma=100.0)
    assert account.schedule == PublishedSampling(5)
    assert composition.epsilon_of(account.events(1), 0.1) == math.inf
    config = dataclasses.replace(presets.get("gswgan", "mnist-published")[1].config,
                                 accounting="as-published")
    said = stages.as_published("gswgan", config, 1e-5, 20_000)
    assert said["epsilon"] == pytest.approx(9.2428, abs=5e-5)
    proven = presets.get("gswgan", "mnist-published")[1].config
    assert stages.as_published("gswgan", proven, 1e-5, 9) is None
    stamp = guarantee.stamped("replace-one", guarantee.faults(10.0, "os-entropy", "as-published"))
    assert stamp.kind == "none" and "no valid guarantee" in stamp.text


# Presets.

def test_the_published_noise_and_what_it_proves():
    config = presets.all_of("gswgan")["mnist-published"].config
    assert (config.critics, config.critics_per_step, config.batch) == (1000, 1, 32)
    shown = costs.of_configuration("gswgan", "mnist-published", config, None, 1e-5)
    assert shown.proven.epsilon == pytest.approx(379.417, abs=6e-4)
    assert shown.as_published.epsilon == pytest.approx(9.2428, abs=5e-5)


# Refused.

@pytest.mark.parametrize(("fields", "text"), [
    ({"critics_per_step": 6}, "critics_per_step is 6, of 5 critics"),
    ({"schedule": "secret-draw"}, "5 of 5 units are drawn"),
    ({"accounting": "as-published"}, "pass --critics-per-step 1"),
    ({"accounting": "as-published", "critics_per_step": 1, "federated": True},
     "without --federated"),
    ({"federated": True, "schedule": "secret-draw", "critics_per_step": 1}, "secret draw hides"),
    ({"federated": True, "critics": 1}, "a federation of 1 clients")])
def test_who_answers_must_be_what_the_accounting_knows(fields, text):
    with pytest.raises(UserError, match=text) as caught:
        gswgan.build(small_gswgan.gs(**fields), small_datalens.SPEC)
    assert "\n" not in str(caught.value)


def test_as_published_needs_an_infinite_epsilon():
    config = small_gswgan.gs(accounting="as-published", critics_per_step=1)
    with pytest.raises(UserError, match="--epsilon inf"):
        calibrate_config.complete("gswgan", config, small_datalens.SPEC, Budget(1e6, 1e-5))
    assert (
        calibrate_config.complete("gswgan", config, small_datalens.SPEC, Budget(math.inf, 1e-5))
        == config
    )


def test_noise_that_is_too_large_to_draw_is_refused_in_its_own_units():
    assert (
        gswgan.mechanism(small_gswgan.gs(sigma=500.0), small_datalens.SPEC).noise.sigma == 500 * 128
    )
    # Larger noise has a coarser table, down to 2 sqrt(64) levels; the cost is that of sigma.
    coarse = gswgan.mechanism(small_gswgan.gs(sigma=2000.0), small_datalens.SPEC)
    assert coarse.bound.levels == 16 and coarse.noise.sigma == 64000
    with pytest.raises(UserError, match="sigma is 2049; .* at most 2048 can be drawn"):
        gswgan.mechanism(small_gswgan.gs(sigma=2049.0), small_datalens.SPEC)


def test_a_table_is_refused():
    table = TableSpec((Column("age", "continuous", 0, 99),),
                      Column("class", "categorical", categories=("a", "b")), 0)
    with pytest.raises(UserError, match="use marginals"):
        gswgan.build(small_gswgan.gs(), table)
