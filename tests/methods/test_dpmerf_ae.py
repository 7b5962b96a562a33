"""DP-MERF on codes: an autoencoder by DP-SGD and an embedding, as one sort of event."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_datalens
from jax.flatten_util import ravel_pytree
from small_dpmerf import IMAGE, TABLE, records

from dpgen_jax.accountant.events import PoissonGaussianEvent
from dpgen_jax.core.types import Records
from dpgen_jax.methods import dpmerf_ae
from dpgen_jax.nets.image import GeneratorNet

N = 40
CONFIG = dpmerf_ae.Config(records=N, batch=10, clip=0.7, sigma=1.0, steps=5, embedding_steps=2,
                          hidden=6, code=3, features=8, fakes=12, generator_steps=3,
                          generator=GeneratorNet(4, 8))


@functools.cache
def method(spec):
    return dpmerf_ae.build(CONFIG, spec)


def query(spec, embeds):
    public = method(spec).init(jax.random.key(0))
    return dataclasses.replace(method(spec).ask(jax.random.key(1), public),
                               embeds=jnp.asarray(embeds))


@pytest.mark.slow
@pytest.mark.parametrize("spec", [IMAGE, TABLE])
def test_a_record_answers_with_its_gradient_and_then_with_its_embedding(spec):
    own, (net, features) = records(spec, N), dpmerf_ae.parts(CONFIG, spec)
    answer = jax.jit(method(spec).answer)
    x = jnp.asarray(own.x[:1], jnp.float32) / (255 if spec is IMAGE else 1)
    one, question = Records(own.x[:1], own.y[:1]), query(spec, False)
    gradient = np.asarray(answer(jax.random.key(0), None, one, question))[0]
    expected = ravel_pytree(jax.grad(net.loss)(question.net, x))[0]
    np.testing.assert_allclose(gradient[:len(expected)], expected / 0.7, rtol=2e-4, atol=1e-5)
    assert not gradient[len(expected):].any()

    embedding = np.asarray(answer(jax.random.key(0), None, one, query(spec, True)))[0]
    phi = features.embed(question.frequencies, net.encode(question.net, x))[0]
    blocks = embedding[:3 * len(phi)].reshape(3, -1)
    np.testing.assert_allclose(blocks[own.y[0]], phi, rtol=1e-4, atol=1e-5)
    assert np.linalg.norm(embedding) == pytest.approx(1, rel=1e-5)


def test_both_sorts_of_steps_are_one_event():
    built = method(IMAGE).mechanism
    ((event, count),) = built.events(5)
    assert isinstance(event, PoissonGaussianEvent) and count == 5
    net, features = dpmerf_ae.parts(CONFIG, IMAGE)
    assert built.shape == (1, max(dpmerf_ae.length(net), 3 * features.columns))
    assert built.noise.sigma == pytest.approx(CONFIG.sigma * built.bound.levels)
    messages = [s * np.full(built.shape, 1e9, np.float32) for s in (1, -1)]
    sent = [np.asarray(built.bound.project(jax.random.key(0), m)).astype(int) for m in messages]
    distance = ((sent[0] - sent[1]) ** 2).sum()
    assert 0.9 * built.bound.squared_sensitivity() < distance <= built.bound.squared_sensitivity()


@pytest.mark.slow
def test_steps_move_the_autoencoder_first_and_the_embedding_last():
    public, built = method(IMAGE).init(jax.random.key(0)), method(IMAGE)
    absorb = jax.jit(lambda public, released: built.absorb(
        jax.random.key(1), public, built.ask(jax.random.key(2), public), released)[0])
    released = jnp.full(built.mechanism.shape, 0.1)
    for step in range(5):
        after = absorb(public, released)
        assert small_datalens.equal(after.net, public.net) == (step >= 3)
        assert small_datalens.equal(after.embedding, public.embedding) == (step < 3)
        public = after
    np.testing.assert_allclose(public.embedding, 0.1, rtol=1e-5)  # the mean of two estimates


def test_codes_have_one_length():
    net, _ = dpmerf_ae.parts(CONFIG, IMAGE)
    x = jnp.concatenate([jnp.zeros((1, 4, 4, 1)), jnp.ones((1, 4, 4, 1)),
                         jax.random.uniform(jax.random.key(0), (5, 4, 4, 1))])
    codes = net.encode(net.init(jax.random.key(1)), x)
    np.testing.assert_allclose(jnp.linalg.norm(codes, axis=1), math.sqrt(3), rtol=1e-4)


def test_the_loss_is_that_of_each_record_alone():
    net, _ = dpmerf_ae.parts(CONFIG, IMAGE)
    params = net.init(jax.random.key(0))
    x = jax.random.uniform(jax.random.key(1), (3, 4, 4, 1))
    alone = [float(net.loss(params, x[i:i + 1])) for i in range(3)]
    assert float(net.loss(params, x)) == pytest.approx(np.mean(alone), rel=1e-5)
