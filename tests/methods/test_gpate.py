"""G-PATE does what its paper says, verb by verb, on a table with numbers, nulls and a category."""

import dataclasses
import functools
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small_gpate import CONFIG, KEY, QUERIES, TABLE, F, rows

from dpgen_jax.accountant import composition
from dpgen_jax.aggregation import teacher_votes
from dpgen_jax.aggregation.clip import RowL2
from dpgen_jax.aggregation.teacher_votes import ConfidentGNMax, OneHot
from dpgen_jax.aggregation.topagg import TopKSign
from dpgen_jax.core.types import Records
from dpgen_jax.methods import gpate
from dpgen_jax.nets.pair import pair

WAYS = {"gnmax": {}, "mean": {"aggregate": "mean"}, "sum": {"aggregate": "sum"},
        "topk": {"aggregate": "topk", "projection": 3},
        "full": {"aggregate": "sum", "projection": 0}}
METHODS = {way: gpate.build(dataclasses.replace(CONFIG, **fields), TABLE)
           for way, fields in WAYS.items()}
ABSTAINING = gpate.build(dataclasses.replace(CONFIG, abstain=True), TABLE)
NET_G, NET_D = pair(TABLE, CONFIG.generator, CONFIG.discriminator)


# The verbs. What differs between the ways are pure functions; the rest is one of them in full.

@functools.cache
def teacher_parts(way):
    """The functions that `teachers.build_gan` gets: (question of a key, message, direction)."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gpate, "build_gan", lambda *args: args[-1])
        messages = gpate.build(dataclasses.replace(CONFIG, **WAYS[way]), TABLE)
    return messages.question, messages.message, messages.direction


@pytest.mark.parametrize("way", WAYS)
def test_messages_are_projected_and_what_is_released_is_taken_back(way, rng):
    question, message, direction = teacher_parts(way)
    gradients = rng.normal(size=(2, F)).astype(np.float32)
    if way in ("topk", "full"):
        assert question(None) == ()
        np.testing.assert_array_equal(message((), gradients), gradients)
        scale = CONFIG.clip if way == "topk" else 1
        np.testing.assert_allclose(direction((), gradients), scale * gradients, rtol=1e-6)
        return
    matrices = rng.normal(size=(2, 4, F)).astype(np.float32)
    released = rng.normal(size=(2, 4)).astype(np.float32)
    np.testing.assert_allclose(message(matrices, gradients), np.stack(
        [matrices[b] @ gradients[b] for b in range(2)]), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(direction(matrices, released), np.stack(
        [released[b] @ matrices[b] for b in range(2)]), rtol=1e-4, atol=1e-6)


RELEASED = np.random.default_rng(1).normal(size=(2, 4)).astype(np.float32)


@functools.cache
def conversation():
    """The first step with one teacher, and the same by plain formulas."""
    method = METHODS["gnmax"]
    records = Records(jnp.asarray(rows(4)[0]), jnp.array([0, 2, 0, 2], jnp.int32))

    @jax.jit
    def everything(key, other):
        public, unit = method.init(key), method.init_unit(key)
        query = method.ask(key, public)
        new, metrics = method.absorb(key, public, query, RELEASED)
        moved = jnp.einsum("bkd,bk->bd", query.question, RELEASED)
        target = query.fakes + moved

        def teacher(fakes):
            logits = NET_D.apply(unit[0], fakes[None], query.labels[None])[0]
            return -jnp.log(jax.nn.sigmoid(logits)).sum() / CONFIG.batch

        def student(params):
            fakes = NET_G.generate(params, query.latents, query.all_labels)[3 * CONFIG.batch:]
            return ((fakes - target) ** 2).sum()

        return SimpleNamespace(
            public=public, query=query, new=new, metrics=metrics, moved=moved,
            other=method.ask(other, public), after=student(new.params),
            answer=method.answer(key, unit, records, query),
            silent=ABSTAINING.answer(key, unit, records, dataclasses.replace(
                query, labels=jnp.array([1, 2]))),
            teacher=jax.grad(teacher)(query.fakes),
            student=jax.value_and_grad(student)(public.params)).__dict__

    return SimpleNamespace(**everything(KEY, jax.random.key(1)))


@pytest.mark.slow
def test_the_question_is_a_fresh_matrix_for_each_fake_and_step():
    first, second = conversation().query.question, conversation().other.question
    assert first.shape == (2, 4, F)
    every = np.concatenate([first, second]).reshape(4, -1)
    assert len(np.unique(every)) == every.size
    assert np.abs(np.corrcoef(every) - np.eye(4)).max() < 0.9


def test_the_question_is_a_function_of_the_public_key():
    k_question = jax.random.split(KEY, 3)[2]
    np.testing.assert_allclose(conversation().query.question, teacher_votes.projection_matrices(
        k_question, 2, F, 4), rtol=1e-5, atol=1e-7)


def test_the_answer_is_minus_the_gradient_of_the_mean_loss_projected():
    parts = conversation()
    expected = np.stack([parts.query.question[b] @ -parts.teacher[b] for b in range(2)])
    assert np.abs(expected).max() > 1e-4
    np.testing.assert_allclose(parts.answer, expected, rtol=1e-3, atol=1e-6)


def test_a_teacher_may_have_no_say_on_classes_that_it_does_not_hold():
    """Asked about classes 1 and 2, it holds 0 and 2; votes of a row of NaN there are none."""
    silent = conversation().silent
    assert np.isnan(silent[0]).all() and np.isfinite(silent[1]).all()
    votes = ABSTAINING.mechanism.bound.project(KEY, silent)
    assert votes.sum(1).tolist() == [0, 4] and np.isfinite(conversation().answer).all()


def test_the_generator_takes_one_adam_step_towards_the_moved_fakes():
    parts, adam = conversation(), optax.adam(1e-3, 0.5, 0.999)
    before, grads = parts.student
    assert float(parts.metrics["generator_loss"]) == pytest.approx(
        float((parts.moved**2).sum()), rel=1e-3)
    assert float(parts.metrics["released_rms"]) == pytest.approx(
        math.sqrt((RELEASED**2).mean()), rel=1e-4)
    updates, _ = adam.update(grads, adam.init(parts.public.params))
    expected, new, slope = (
        np.concatenate([np.ravel(a) for a in jax.tree.leaves(tree)])
        for tree in (optax.apply_updates(parts.public.params, updates), parts.new.params, grads))
    clear = np.abs(slope) > 1e-4 * np.abs(slope).max()  # not the sign of a rounding error
    assert clear.mean() > 0.3 and parts.after < before and int(parts.new.step) == 1
    np.testing.assert_allclose(new[clear], expected[clear], atol=1e-6)


def test_what_each_way_bounds_and_pays():
    bounds = {way: method.mechanism.bound for way, method in METHODS.items()}
    votes = OneHot(4, 4, 2, 5e-4)
    assert bounds == {"gnmax": votes, "mean": votes, "sum": RowL2(5e-4, 4, 2, 32),
                      "topk": TopKSign(3, 2, 5e-4), "full": RowL2(5e-4, F, 2, 32)}
    squared = {way: composition.mu_squared(method.mechanism.events(1)) * 16
               for way, method in METHODS.items()}
    assert squared == pytest.approx({
        "gnmax": QUERIES * (2 + 1 / 9), "mean": 2 * QUERIES, "sum": 2 * 4 * 32**2,
        "topk": 4 * 3 * 2, "full": 2 * 4 * 32**2})
    shapes = {way: method.mechanism.shape for way, method in METHODS.items()}
    assert shapes == {"gnmax": (2, 16), "mean": (2, 16), "sum": (2, 4), "topk": (2, F),
                      "full": (2, F)}
    assert [way for way in WAYS if METHODS[way].mechanism.keeps_votes] == ["gnmax"]


# Refused.

def test_without_noise_the_votes_are_counted_exactly():
    mechanism = gpate.mechanism(dataclasses.replace(CONFIG, sigma=0.0), TABLE)
    assert isinstance(mechanism, ConfidentGNMax) and mechanism.bits_shape == (QUERIES, 5, 0)
    assert composition.epsilon_of(mechanism.events(1), 1e-5) == math.inf
