"""DP-MERF: one noisy mean embedding, and a generator that is fitted to it."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import loops
import numpy as np
import pytest
import small_datalens
from small_dpmerf import IMAGE, TABLE, records

from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.core.types import Records
from dpgen_jax.methods import dpmerf
from dpgen_jax.nets.image import GeneratorNet
from dpgen_jax.run import loop

N = 20
CONFIG = dpmerf.Config(records=N, features=12, windows=(0, 2), sigma=0.0, batch=30,
                       generator_steps=4, generator=GeneratorNet(4, 16, 8))
WHERE = small_datalens.layout(4, 2, units=N)
compile_block = loop.compile_block


@functools.cache
def method(spec):
    return dpmerf.build(CONFIG, spec)


@functools.cache
def block(spec):
    return compile_block(method(spec), WHERE)


def release(monkeypatch, path, spec, own):
    """Public state of the real loop's one step, without noise."""
    monkeypatch.setattr(loop, "compile_block", lambda *_: block(spec))
    state = loop.initial_state(method(spec), jax.random.key(0), WHERE)
    with Ledger.create(path, {"epsilon": float("inf"), "delta": 1e-5}) as ledger:
        state = loops.train(
            method(spec),
            small_datalens.placed(own.x, own.y, WHERE, spec),
            state,
            WHERE,
            ledger,
            SeededBits(0),
            steps=1,
            on_block=lambda state, metrics: None,
        )
    return jax.device_get(state.public)


def model(built, key, public):
    """The release of this public state: the generator, trained on it."""
    trained = jax.lax.fori_loop(0, built.post_training.steps,
                                lambda i, state: built.post_training.step(key, state, i)[0],
                                built.post_training.init(key, public))
    return built.finalize(key, trained)


def direct(spec, frequencies, own):
    """The embedding [C, D] in NumPy, record by record."""
    found = np.zeros((spec.classes, dpmerf.random_features(CONFIG, spec).columns))
    for x, y in zip(own.x, own.y, strict=True):
        x = x.reshape(-1).astype(float) / (255 if x.dtype == np.uint8 else 1)
        phase, left, parts = x @ frequencies, 0.95, [[math.sqrt(0.05)]]
        if spec is TABLE:
            left, parts = 0.55, [*parts, math.sqrt(0.4) * x[1:]]
        scale = math.sqrt(left / len(phase))
        found[y] += np.concatenate([*parts, scale * np.cos(phase), scale * np.sin(phase)])
    return found / len(own.y)


@pytest.mark.parametrize("spec", [IMAGE, TABLE])
def test_the_release_is_the_mean_embedding(monkeypatch, tmp_path, spec):
    own = records(spec, N)
    public = release(monkeypatch, tmp_path / "ledger", spec, own)
    expected = direct(spec, public.frequencies, own)
    bound = method(spec).mechanism.bound  # which shortens a message a little, for its rounding
    longest = 1 - math.sqrt(bound.columns) / (2 * bound.levels)
    np.testing.assert_allclose(public.embedding, longest * expected, atol=bound.grid)
    np.testing.assert_allclose(public.embedding[:, 0] / math.sqrt(0.05), [7 / 20, 7 / 20, 6 / 20],
                               rtol=2e-3)


def test_frequencies_and_the_generator_do_not_depend_on_records_but_by_the_release(
        monkeypatch, tmp_path):
    first = release(monkeypatch, tmp_path / "a", IMAGE, records(IMAGE, N))
    second = release(monkeypatch, tmp_path / "b", IMAGE, records(IMAGE, N, seed=1))
    np.testing.assert_array_equal(first.frequencies, second.frequencies)
    assert not np.array_equal(first.embedding, second.embedding)
    finalize = jax.jit(functools.partial(model, method(IMAGE)))
    same = dataclasses.replace(second, embedding=first.embedding)
    key = jax.random.key(0)
    assert small_datalens.equal(finalize(key, first), finalize(key, same))
    assert not small_datalens.equal(finalize(key, first), finalize(key, second))


# What one record can do.

@pytest.mark.parametrize("spec", [IMAGE, TABLE])
def test_the_declared_sensitivity_is_attained_and_never_exceeded(spec):
    """A record of another class has its features in another block, orthogonal: only a message that
    is no embedding reaches the whole distance, and none exceeds it."""
    mechanism, own = method(spec).mechanism, records(spec, N)
    frequencies = method(spec).init(jax.random.key(0)).frequencies

    @jax.jit
    def message(x, y):
        return method(spec).answer(jax.random.key(0), None, Records(x[None], y[None]), frequencies)

    project = jax.jit(lambda m: mechanism.bound.project(jax.random.key(0), m))
    sent = [np.asarray(message(x, y)) for x, y in zip(own.x, own.y, strict=True)]
    np.testing.assert_allclose([np.linalg.norm(m) for m in sent], 1, rtol=1e-5)
    for x, m in zip(own.y, sent, strict=True):
        assert set(np.flatnonzero(m.reshape(spec.classes, -1).any(1))) == {int(x)}
    hostile = [np.full_like(sent[0], 1e30), 100 * sent[0], -100 * sent[0],
               np.full_like(sent[0], np.nan)]
    votes = [np.asarray(project(m)).astype(np.int64) for m in [*sent, *hostile]]
    largest = max(((a - b) ** 2).sum() for a in votes for b in votes)
    declared = mechanism.bound.squared_sensitivity()
    assert 0.97 * declared < largest <= declared


# The generator.

@pytest.mark.slow
def test_the_loss_is_unbiased():
    """Over many draws of few fakes it averages to the distance at their distribution's mean."""
    features = dpmerf.random_features(CONFIG, IMAGE)
    public = method(IMAGE).init(jax.random.key(0))
    own = records(IMAGE, 300)
    public = dataclasses.replace(public, embedding=jnp.asarray(
        direct(IMAGE, np.asarray(public.frequencies), own), jnp.float32))
    pool = jax.random.uniform(jax.random.key(1), (5, 3, 4, 4, 1))  # five fakes of each class

    def loss(key):
        chosen = jax.random.randint(key, (2,), 0, 5)
        return dpmerf.embedding_loss(features, public, pool[chosen], 0.0)

    losses = jax.vmap(loss)(jax.random.split(jax.random.key(2), 20_000))
    means = features.embed(public.frequencies, pool.reshape(15, 4, 4, 1)).reshape(5, 3, -1).mean(0)
    aim = public.embedding / (public.embedding[:, :1] / math.sqrt(0.05))
    expected = jnp.sum(means**2 - 2 * means * aim)
    error = float(losses.std()) / math.sqrt(20_000)
    assert float(losses.mean()) == pytest.approx(float(expected), abs=4 * error)


def test_a_class_without_records_pulls_at_nothing():
    features = dpmerf.random_features(CONFIG, IMAGE)
    public = jax.jit(method(IMAGE).init)(jax.random.key(0))
    fakes = np.random.default_rng(1).random((4, 3, 4, 4, 1), np.float32)
    embedding = np.array(public.embedding)
    embedding[1, 0] = -0.5
    slope = jax.jit(jax.grad(lambda f, s: dpmerf.embedding_loss(features, s, f, 0.01)))
    for state in (public, dataclasses.replace(public, embedding=embedding)):
        assert not np.any(slope(fakes, state))


def test_the_generator_moves_towards_the_embedding(monkeypatch, tmp_path):
    own = records(IMAGE, N)
    own.x[...] = np.where(own.y[:, None, None, None] == 1, 230, 25)  # class 1 is bright
    public = release(monkeypatch, tmp_path / "ledger", IMAGE, own)
    longer = dataclasses.replace(CONFIG, generator_steps=200, ema=0.5)
    trained = dpmerf.build(longer, IMAGE)
    fitted = jax.jit(functools.partial(model, trained))(jax.random.key(0), public)
    labels = jnp.arange(60) % 3
    made = np.asarray(jax.jit(trained.sample)(fitted, jax.random.key(1), labels))
    levels = [made[np.asarray(labels) == c].mean() for c in range(3)]
    assert levels[1] > 0.75 and max(levels[0], levels[2]) < 0.25
