"""DataLens does what its paper says, verb by verb, against plain formulas."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpy_compare
import optax
import pytest
import small_datalens

from dpgen_jax.core.types import Records
from dpgen_jax.methods import datalens
from dpgen_jax.nets.image import Discriminator, Generator

CONFIG = dataclasses.replace(small_datalens.CONFIG, step_size=0.1)
METHOD = datalens.build(CONFIG, small_datalens.SPEC)
NET_D = Discriminator(CONFIG.discriminator, small_datalens.SPEC)
NET_G = Generator(CONFIG.generator, small_datalens.SPEC)
N_POOL = 3 * CONFIG.batch

ask, learn, answer, absorb, finalize, sample = map(jax.jit, (
    METHOD.ask, METHOD.learn, METHOD.answer, METHOD.absorb, METHOD.finalize, METHOD.sample))
KEY = jax.random.key(7)


@functools.cache
def public():
    return jax.jit(METHOD.init)(jax.random.key(0))


@functools.cache
def query():
    return ask(jax.random.key(1), public())


@functools.cache
def unit():
    """A teacher's state after the first iteration, and its records: two classes of three."""
    return learn(KEY, jax.jit(METHOD.init_unit)(jax.random.key(2)), own(), query())


def own():
    x, _ = small_datalens.images(3)
    return Records(jnp.asarray(x), jnp.array([0, 2, 2], jnp.int32))


@functools.cache
def released():
    return jax.random.normal(jax.random.key(3), METHOD.mechanism.shape)


def later(public):
    return dataclasses.replace(public, step=jnp.int32(1))


def close(a, b, rtol=1e-5, atol=1e-6):
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=rtol, atol=atol), a, b)


def images_of(params, latents, labels):
    """The generator's, as in training."""
    return NET_G.apply({"params": params}, latents, labels, train=True, mutable=["batch_stats"])[0]


fakes_of = numpy_compare.compiled(images_of)


# The conversation.

@pytest.mark.slow
def test_the_first_iteration_trains_longer():
    first = unit()
    second = learn(KEY, first, own(), ask(KEY, later(public())))
    assert (int(first[1].count), int(second[1].count)) == (3, 3 + 2)
    assert CONFIG.d_steps_first == 3 and CONFIG.d_steps == 2


def test_the_pool_holds_a_batch_of_each_class():
    question = query()
    images = fakes_of(public().params, question.latents, question.all_labels)
    assert question.all_labels[:N_POOL].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert np.array_equal(question.all_labels[N_POOL:], question.labels)
    close(question.fakes, images[N_POOL:])
    close(question.pool.reshape(N_POOL, *question.pool.shape[2:]), NET_D.patches(images[:N_POOL]))


def test_labels_of_a_query_are_uniform():
    labels = [ask(jax.random.key(seed), public()).labels for seed in range(150)]
    counts = np.bincount(np.concatenate(labels), minlength=3)
    assert counts.sum() == 600 and abs(counts - 200).max() < 58  # 5 standard deviations


def plain_training(question, steps):
    """The same discriminator, trained with optax on the published loss."""
    params = jax.jit(METHOD.init_unit)(jax.random.key(2))[0]
    adam = optax.adam(1e-3, 0.5, 0.999)
    records, state = own(), adam.init(params)
    images = fakes_of(public().params, question.latents, question.all_labels)
    fakes = images[:N_POOL].reshape(3, 4, *small_datalens.SPEC.shape)[records.y, jnp.arange(3)]
    both = jnp.stack([records.x / 255, fakes])

    @jax.jit
    def step(params, state):
        def loss(params):
            real, fake = NET_D.apply(params, both, jnp.stack([records.y, records.y]))
            return (-jnp.log(jax.nn.sigmoid(real)) - jnp.log(1 - jax.nn.sigmoid(fake))).mean()

        updates, state = adam.update(jax.grad(loss)(params), state)
        return optax.apply_updates(params, updates), state

    for _ in range(steps):
        params, state = step(params, state)
    return params


def test_learning_is_adam_on_the_published_loss():
    # What stands before a normalisation has a gradient of rounding errors, which Adam scales up.
    expected, (params, _) = plain_training(query(), 3), unit()
    start = jax.jit(METHOD.init_unit)(jax.random.key(2))[0]
    flat = [np.concatenate([np.ravel(a) for a in jax.tree.leaves(p)])
            for p in (expected, params, start)]
    moved = np.abs(flat[0] - flat[2])
    assert moved.max() > 2e-3 and np.mean(np.abs(flat[0] - flat[1]) > 1e-5) < 0.02


def test_learning_reads_its_own_records_and_the_pool_of_their_classes():
    question = query()
    base = unit()
    start = jax.jit(METHOD.init_unit)(jax.random.key(2))

    def learnt(records, question):
        return learn(KEY, start, records, question)

    elsewhere = dataclasses.replace(question, fakes=question.fakes + 1, labels=question.labels * 0,
                                    pool=question.pool.at[1].add(1.0))
    assert small_datalens.equal(learnt(own(), elsewhere), base)
    brighter = Records(own().x.at[0].add(9), own().y)
    other_class = Records(own().x, own().y.at[0].set(1))
    for records in (brighter, other_class):
        assert not small_datalens.equal(learnt(records, question), base)


def test_a_teacher_with_many_records_draws_a_batch_of_them_each_step():
    x, y = small_datalens.images(9)
    records = Records(jnp.asarray(x), jnp.asarray(y, jnp.int32))
    start = jax.jit(METHOD.init_unit)(jax.random.key(2))
    a, b = (learn(jax.random.key(seed), start, records, query()) for seed in range(2))
    assert not small_datalens.equal(a, b) and int(a[1].count) == 3


def test_the_answer_is_minus_the_image_gradient_of_the_mean_loss():
    params, question = unit()[0], query()

    def loss(images):
        logits = NET_D.apply(params, images[None], question.labels[None])[0]
        return sum(-jnp.log(jax.nn.sigmoid(logit)) for logit in logits) / CONFIG.batch

    expected = -numpy_compare.compiled(jax.grad(loss))(question.fakes).reshape(CONFIG.batch, -1)
    message = answer(KEY, unit(), own(), question)
    assert message.shape == METHOD.mechanism.shape and numpy_compare.largest(message) > 0
    close(message, expected, rtol=1e-3, atol=1e-6 * numpy_compare.largest(expected) + 1e-9)


def test_moving_along_the_answer_looks_more_real():
    question, message = query(), np.asarray(answer(KEY, unit(), own(), query()))
    moved = question.fakes + 1e-2 * (message / np.abs(message).max()).reshape(question.fakes.shape)
    mean = jax.jit(lambda x: NET_D.apply(unit()[0], x[None], question.labels[None]).mean())
    assert mean(moved) > mean(question.fakes)


def test_the_generator_takes_one_adam_step_towards_the_moved_images():
    question, start = query(), public()
    target = question.fakes + CONFIG.step_size * released().reshape(question.fakes.shape)

    def loss(params):
        images = images_of(params, question.latents, question.all_labels)
        return ((images[N_POOL:] - target) ** 2).sum()

    new, metrics = absorb(KEY, start, question, released())
    norm_squared = float((released() ** 2).sum())
    assert float(metrics["generator_loss"]) == pytest.approx(
        CONFIG.step_size**2 * norm_squared, rel=1e-4)
    assert float(metrics["released_rms"]) == pytest.approx(
        math.sqrt(norm_squared / released().size), rel=1e-5)
    loss = jax.jit(loss)
    grads = jax.jit(jax.grad(loss))(start.params)
    expected, actual, slope = (
        np.concatenate([np.ravel(a) for a in jax.tree.leaves(tree)])
        for tree in (
            numpy_compare.adam_step(start.params, grads, 1e-3, 0.5, 0.999),
            new.params,
            grads,
        )
    )
    clear = np.abs(slope) > 1e-4 * np.abs(slope).max()  # not the sign of a rounding error
    assert clear.mean() > 0.5
    np.testing.assert_allclose(actual[clear], expected[clear], atol=1e-6)
    assert loss(new.params) < loss(start.params) and int(new.step) == 1


def test_nothing_released_moves_nothing_much():
    new, metrics = absorb(KEY, public(), query(), 0 * released())
    assert float(metrics["generator_loss"]) < 1e-8 and float(metrics["released_share"]) == 0
    assert float(metrics["released_rms"]) == 0 and int(new.step) == 1


# What is released.

def test_without_averaging_the_last_weights_are_released():
    new, _ = absorb(KEY, public(), query(), released())
    assert small_datalens.equal(new.average, new.params) and not small_datalens.equal(
        new.params, public().params
    )
    assert small_datalens.equal(finalize(KEY, new)["params"], new.params)


def test_an_average_of_the_weights_is_released():
    averaged = jax.jit(
        datalens.build(dataclasses.replace(CONFIG, ema=0.9), small_datalens.SPEC).absorb
    )
    first, _ = averaged(KEY, public(), query(), released())
    second, _ = averaged(KEY, first, query(), -released())
    close(first.average, first.params)  # the first average forgets the initial weights
    close(second.average, jax.tree.map(lambda a, b: (a + b) / 2, first.params, second.params))
    assert small_datalens.equal(finalize(KEY, second)["params"], second.average)


def test_a_sample_does_not_depend_on_its_company():
    model = finalize(KEY, public())
    labels = jnp.array([2, 0, 1, 1, 0], jnp.int32)
    together = sample(model, KEY, labels)
    assert together.shape == (5, *small_datalens.SPEC.shape)
    assert float(together.min()) >= 0 and float(together.max()) <= 1
    close(sample(model, KEY, labels[:1])[0], together[0])
    changed = sample(model, KEY, labels.at[3].set(0))
    close(changed[:3], together[:3])
    assert not np.allclose(changed[3], together[3], atol=1e-7)


# A teacher that has gone wrong.

def votes(teacher):
    message = answer(KEY, teacher, own(), query())
    return np.asarray(METHOD.mechanism.bound.project(KEY, message))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_teacher_that_has_diverged_casts_no_vote(value):
    params, adam = unit()
    assert np.any(votes((params, adam)))
    broken = params | {"linear2": params["linear2"].at[0].set(value)}
    assert not np.any(votes((broken, adam)))


def test_a_teacher_without_an_opinion_casts_no_vote():
    params, adam = unit()
    assert not np.any(votes((params | {"linear2": 0 * params["linear2"]}, adam)))


@pytest.mark.parametrize("value", [0, 255])
def test_constant_records_are_no_error(value):
    constant = Records(jnp.full_like(own().x, value), own().y)
    start = jax.jit(METHOD.init_unit)(jax.random.key(2))
    cast = votes(learn(KEY, start, constant, query()))
    assert np.isin(cast, (-1, 0, 1)).all() and (np.abs(cast).sum(1) <= CONFIG.top_k).all()
