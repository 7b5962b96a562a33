"""PATE-GAN does what its paper says, verb by verb and through the real loop: tables and images."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_datalens
import small_pategan as small
from planted import toy as adversary

from dpgen_jax.accountant import composition
from dpgen_jax.accountant.events import GaussianEvent, LaplaceEvent
from dpgen_jax.core.types import Records
from dpgen_jax.methods import pategan
from dpgen_jax.nets.adam import descend
from dpgen_jax.nets.pair import pair
from dpgen_jax.private import records, teachers
from dpgen_jax.run import loop

KEY = jax.random.key(5)
CONFIG, TABLE, ROWS = small.CONFIG, small.TABLE, small.ROWS
NET_G, NET_D = pair(TABLE, CONFIG.generator, CONFIG.discriminator)
REAL = pategan.build(dataclasses.replace(CONFIG, vote="real", abstain=False), TABLE)
RANK = pategan.build(CONFIG, TABLE)


@functools.cache
def conversation():
    """The first query, to one teacher that holds classes 0 and 2, and what it answers."""
    own = Records(jnp.asarray(small.rows(4)[0]), jnp.array([0, 2, 0, 2], jnp.int32))

    @jax.jit
    def everything(key):
        public, unit = RANK.init(key), RANK.init_unit(key)
        query = RANK.ask(key, public)
        query = dataclasses.replace(query, labels=jnp.array([0, 1, 0, 2]))
        score = NET_D.apply(unit[0], query.fakes[None], query.labels[None])[0]
        keys = jax.random.split(key, 400)
        shares = jnp.linspace(0, 1, ROWS)[:, None]
        new, metrics = RANK.absorb(key, public, query, shares)
        return {"query": query, "score": score, "public": public, "new": new, "metrics": metrics,
                "real": REAL.answer(key, unit, own, query), "shares": shares,
                "rank": jax.vmap(lambda k: RANK.answer(k, unit, own, query))(keys)}

    return everything(KEY)


# The verbs.

@pytest.mark.slow
def test_a_teacher_votes_by_its_own_score():
    exchange = conversation()
    np.testing.assert_allclose(exchange["real"][:, 0], exchange["score"], rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_a_rank_is_above_the_mean_of_the_queried_fakes_of_the_class():
    exchange = conversation()
    score, rank = np.asarray(exchange["score"]), np.asarray(exchange["rank"])[:, :, 0]
    np.testing.assert_allclose(rank[:, 0], score[0] - (score[0] + score[2]) / 2, atol=1e-6)
    np.testing.assert_allclose(rank[:, 2], -rank[:, 0], atol=1e-6)


def test_a_coin_is_tossed_for_a_class_of_which_a_teacher_holds_no_record():
    """So that such teachers neither outvote those that know the class nor call it fake."""
    coins = np.asarray(conversation()["rank"])[:, 1, 0]
    assert set(coins) == {-1.0, 1.0} and abs(coins.sum()) < 5 * math.sqrt(len(coins))


def test_queried_fakes_are_the_generators_moved_by_public_noise():
    exchange, config = conversation(), CONFIG
    query = exchange["query"]
    made = np.asarray(NET_G.generate(exchange["public"].generator.params, query.latents,
                                     query.all_labels))[3 * ROWS:]
    assert query.fakes.shape == (ROWS, small.F)
    moved = np.asarray(query.fakes) - made
    assert 0.5 * config.jitter < moved.std() < 1.5 * config.jitter
    assert query.fakes.min() >= 0 and query.fakes.max() <= 1


def test_images_are_moved_in_squares_of_2_x_2_pixels():
    noise = np.asarray(pategan.coarse_noise(KEY, (50, 8, 4, 2)))
    squares = noise.reshape(50, 4, 2, 2, 2, 2).transpose(0, 1, 3, 5, 2, 4).reshape(-1, 4)
    assert (squares == squares[:, :1]).all() and len(np.unique(squares[:, 0])) == len(squares)
    assert abs(squares[:, 0].std() - 1) < 0.15 and abs(squares[:, 0].mean()) < 0.2


def test_the_query_is_remembered_and_the_student_and_generator_learn():
    exchange = conversation()
    old, new = exchange["public"], exchange["new"]
    x = np.asarray(exchange["query"].fakes)
    np.testing.assert_allclose(new.centres, [(x[0] + x[2]) / 2, x[1], x[3]], rtol=1e-5)
    np.testing.assert_allclose(new.away[0], x - np.asarray(new.centres)[[0, 1, 0, 2]], atol=1e-6)
    np.testing.assert_array_equal(new.told[0], exchange["shares"][:, 0])
    assert not np.any(new.away[1:]) and int(new.step) == 1 and int(new.optimiser.count) == 2
    assert not small_datalens.equal(old.student, new.student)
    assert not small_datalens.equal(old.generator.params, new.generator.params)
    assert all(math.isfinite(value) for value in exchange["metrics"].values())


@pytest.mark.slow
def test_the_memory_holds_the_last_queries(tmp_path):
    public, _, _ = small.train(tmp_path)
    shares = np.clip(public.seen[:, :, 0] / small.UNITS, 0, 1)
    np.testing.assert_allclose(public.inner.told, shares[[3, 1, 2]], rtol=1e-6)


def test_the_student_learns_the_released_votes():
    """A share that is a linear function of a feature, and another for each class."""
    rng = np.random.default_rng(0)
    away, labels = rng.normal(size=(600, 7)).astype(np.float32), rng.integers(0, 3, 600)
    share = np.clip(0.5 + away[:, 0] / 6 * (labels - 1), 0, 1)
    student, adam = pategan.Student(8, 7, 3), CONFIG.s_optimiser.transformation()

    @jax.jit
    def fit(params):
        def step(i, state):
            def loss(params):
                logits = student.apply(params, away[:500], labels[:500])
                return jnp.mean(jax.nn.softplus(logits) - share[:500] * logits)

            return descend(adam, state[0], jax.grad(loss)(state[0]), state[1])

        params, _ = jax.lax.fori_loop(0, 300, step, (params, adam.init(params)))
        return jax.nn.sigmoid(student.apply(params, away[500:], labels[500:]))

    assert np.corrcoef(fit(student.init(KEY)), share[500:])[0, 1] > 0.95


def test_the_centre_of_a_class_that_is_in_no_query_stays_where_it_was():
    x, before = np.arange(6.0).reshape(3, 2), np.full((3, 2), 9.0)
    found = pategan.Student(8, 2, 3).centres(x, np.array([0, 2, 0]), before)
    np.testing.assert_allclose(found, [[2, 3], [9, 9], [2, 3]])


# The mechanism.

def test_what_a_step_costs():
    mechanism = pategan.mechanism(CONFIG, TABLE)
    ((event, count),) = mechanism.events(3)
    assert count == 3 and isinstance(event, GaussianEvent)
    assert (event.sigma, event.squared_sensitivity, event.grid) == (4.0, ROWS, 1.0)
    mechanism = pategan.mechanism(dataclasses.replace(CONFIG, noise="laplace"), TABLE)
    ((event, count),) = mechanism.events(3)
    assert count == 3 * ROWS and isinstance(event, LaplaceEvent)
    assert (event.scale, event.sensitivity) == (4.0, 1)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_without_noise_epsilon_is_infinite(noise):
    mechanism = pategan.mechanism(dataclasses.replace(CONFIG, noise=noise, sigma=0.0), TABLE)
    assert mechanism.bits_shape == (ROWS, 1, 0)
    assert composition.epsilon_of(mechanism.events(1), 1e-5) == math.inf


# The real loop.

def listening(key, public, query, released):
    """The public part of a step that only listens, which compiles sooner."""
    return dataclasses.replace(public, seen=public.seen.at[0].set(released)), {
        "told": jnp.mean(released)}


LISTENER = dataclasses.replace(small.METHOD, absorb=listening)


def votes_on(where):
    """Counts without noise of the first step, of teachers laid out so."""
    layout = small_datalens.layout(*where, units=small.UNITS)
    public, units, key = small.fresh(small.METHOD)
    public = jax.device_put(public, layout.replicated)
    state = loop.State(public, adversary.lay(units, layout), key)
    own = teachers.place(records.deal(records.seal(*small.DATA, TABLE), small.DEALT,
                                      layout.local_units), layout)
    bits = np.zeros((2, *LISTENER.mechanism.bits_shape), np.uint32)
    called = small.block(LISTENER, layout)
    return np.asarray(adversary.call(called, state, own, layout, bits, 1)[0].seen)[0]


@pytest.mark.slow
def test_the_layout_does_not_change_a_count():
    counts = [votes_on(where) for where in ((1, 1), (2, 2))]
    assert np.any(counts[0])
    np.testing.assert_array_equal(*counts)
