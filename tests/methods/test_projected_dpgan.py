"""Projected DP-GAN: every record is a unit, and a vote on each projected coordinate of its own
gradient is all that it says."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import small_datalens

from dpgen_jax.accountant.events import GaussianEvent
from dpgen_jax.core.types import Column, Records, TableSpec
from dpgen_jax.methods import projected_dpgan
from dpgen_jax.nets.adam import descend
from dpgen_jax.nets.image import GeneratorNet

K, N = 7, 20
CONFIG = projected_dpgan.Config(records=N, batch=6, projection=K, sigma=3.0, steps=3, hidden=5,
                                generator=GeneratorNet(4, 16, 8))
SPEC = TableSpec((Column("a", "continuous", 0.0, 1.0), Column("b", "continuous", 0.0, 1.0)),
                 Column("class", "categorical", categories=("0", "1", "2")), 2)
METHOD = projected_dpgan.build(CONFIG, SPEC)
UNIT = jnp.int32(0)
answer = jax.jit(METHOD.answer)


@functools.cache
def public():
    return jax.jit(METHOD.init)(jax.random.key(0))


@functools.cache
def query():
    return jax.jit(METHOD.ask)(jax.random.key(1), public())


def rows(n: int) -> Records:
    x, y = small_datalens.images(n)
    return Records(x.reshape(n, -1)[:, :2] / np.float32(255), y.astype(np.int32))


def dense(signs) -> np.ndarray:
    """R [P, k], written out: the outer products, layer after layer."""
    return np.concatenate([np.einsum("ik,ok->iok", r, s).reshape(-1, K) for r, s in signs]
                          ) / math.sqrt(K)


def plain_loss(weights, x, label, classes=3):
    """BCE(real, 1) of one record by a discriminator in three lines."""
    h = x.reshape(-1)
    for w in weights:
        h = jnp.concatenate([h, jnp.eye(classes)[label], jnp.ones(1)]) @ w
        out, h = h, jnp.where(h > 0, h, 0.2 * h)
    return -jnp.log(jax.nn.sigmoid(out[0]))


@functools.partial(jax.jit, static_argnums=3)
def plain_answer(weights, x, label, loss=plain_loss):
    return jnp.concatenate([g.reshape(-1) for g in jax.grad(loss)(weights, x, label)])


def bins_mean(u: np.ndarray, clip: float, bins: int) -> np.ndarray:
    """Mean over records of the midpoint of the bin that each coordinate falls into."""
    edges = np.linspace(-clip, clip, bins + 1)
    middle = (edges[1:] + edges[:-1]) / 2
    return middle[np.digitize(u, edges[1:-1])].mean(0)


# The conversation.

def check_answer(method, own, x, weights, signs):
    question = projected_dpgan.Query(weights, signs, None, None)
    expected = plain_answer(weights, x, own.y[0]) @ dense(signs)
    message = jax.jit(method.answer)(jax.random.key(2), UNIT, own, question)
    assert message.shape == (1, K) and np.abs(message).max() > 1e-3
    np.testing.assert_allclose(message[0], expected, rtol=1e-4, atol=1e-6)


def test_an_answer_is_the_records_own_gradient_projected():
    own = rows(1)
    check_answer(METHOD, own, own.x[0], public().d, query().signs)


def test_so_it_is_for_images():
    x, y = small_datalens.images(1)
    weights = projected_dpgan.initial_weights(jax.random.key(0), small_datalens.SPEC, 5)
    signs = projected_dpgan.draw_projection(jax.random.key(1), weights, K)
    own = Records(x, y.astype(np.int32))
    check_answer(
        projected_dpgan.build(CONFIG, small_datalens.SPEC),
        own,
        x[0] / np.float32(255),
        weights,
        signs,
    )


def test_a_unit_of_several_records_answers_with_their_mean():
    own = rows(3)
    each = [answer(jax.random.key(2), UNIT, Records(own.x[i:i + 1], own.y[i:i + 1]), query())
            for i in range(3)]
    together = answer(jax.random.key(2), UNIT, own, query())
    np.testing.assert_allclose(together, np.mean(each, 0), rtol=1e-4, atol=1e-6)


def test_the_projection_is_of_signs_and_its_transpose_reconstructs():
    matrix = dense(query().signs)
    assert np.allclose(np.abs(matrix), 1 / math.sqrt(K))
    u = jax.random.normal(jax.random.key(5), (K,))
    back = projected_dpgan.reconstruct(query().signs, u)
    assert [b.shape for b in back] == [w.shape for w in public().d]
    flat = np.concatenate([b.reshape(-1) for b in back])
    np.testing.assert_allclose(flat, matrix @ u, rtol=1e-4, atol=1e-6)


def test_the_projection_is_drawn_anew_and_keeps_gradients_on_average():
    weights = [jnp.zeros((3, 2)), jnp.zeros((4, 1))]
    draws = [dense(projected_dpgan.draw_projection(jax.random.key(i), weights, K))
             for i in range(300)]
    assert not np.array_equal(draws[0], draws[1])
    mean = np.mean([r @ r.T for r in draws], 0)  # 2,100 columns: standard deviation 0.022
    assert np.abs(mean - np.eye(10)).max() < 0.12


def fakes_part() -> np.ndarray:
    """The part of fakes in a release, from plain formulas: -log(1 - D) through the same bins."""
    def loss(weights, x, label):
        return -jnp.log(1 - jnp.exp(-plain_loss(weights, x, label)))

    sent = query()
    u = np.stack([plain_answer(sent.d, x, y, loss)
                  for x, y in zip(sent.fakes, sent.labels, strict=True)]) @ dense(sent.signs)
    return bins_mean(u, CONFIG.clip, CONFIG.bins)[None]


def test_the_discriminator_follows_the_release_and_the_fakes_through_the_same_bins():
    absorb = jax.jit(METHOD.absorb)
    released = 0.1 * jax.random.normal(jax.random.key(4), (1, K))
    moved, metrics = absorb(jax.random.key(3), public(), query(), released)
    direction = projected_dpgan.reconstruct(query().signs, (released + fakes_part())[0])
    expected, _ = descend(CONFIG.d_optimiser.transformation(), public().d, direction,
                          public().d_adam)
    for new, wanted in zip(moved.d, expected, strict=True):
        np.testing.assert_allclose(new, wanted, rtol=1e-4, atol=1e-6)
    assert np.isfinite(list(metrics.values())).all() and int(moved.step) == 1
    assert not small_datalens.equal(moved.g, public().g)


# Privacy.

def test_a_step_is_one_gaussian_event():
    mechanism = METHOD.mechanism
    tau = mechanism.noise.total_variation(K * CONFIG.bins)
    assert mechanism.events(5) == ((GaussianEvent(3.0, 2 * K, 1.0, tau), 5),)
    assert (mechanism.n_units, mechanism.unit, mechanism.relation) == (N, "record", "replace-one")
    assert mechanism.shape == (1, K * CONFIG.bins)
