"""Votes for real or fake: the bound by brute force, the decoders, and what a step costs."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgen_jax.accountant import composition
from dpgen_jax.aggregation.mechanism import SumMechanism, release
from dpgen_jax.aggregation.noise import DiscreteLaplace, NoNoise, RoundedGaussian
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.aggregation.teacher_votes import LabelMechanism, LabelVotes, Majority, Share
from dpgen_jax.core.types import Private, UserError

KEY = jax.random.key(0)
MAJORITY = Majority()
EXTREMES = (-math.inf, -1.0, -0.0, 0.0, 1e-45, 1.0, math.inf, math.nan)
floats = st.floats(width=32, allow_nan=True, allow_infinity=True)


def mechanism(noise, rows=3, units=10, decode=MAJORITY, kind=LabelMechanism):
    return kind(bound=LabelVotes(rows), noise=noise, schedule=FullParticipation(), n_units=units,
                shape=(rows, 1), decode=decode)


@settings(deadline=None)
@given(st.lists(floats, min_size=8, max_size=8))
def test_any_score_is_one_vote(scores):
    votes = LabelVotes(len(scores)).project(KEY, jnp.array(scores, jnp.float32)[:, None])
    assert votes.dtype == jnp.int32 and votes.shape == (len(scores), 1)
    # a subnormal may be flushed to zero, which is fake
    scores = np.where(np.abs(scores) < np.finfo(np.float32).tiny, 0, np.float32(scores))
    np.testing.assert_array_equal(votes[:, 0], (scores > 0).astype(int))


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_the_declared_sensitivity_is_what_brute_force_finds(rows):
    """Over all messages of extreme scores, and those of a record's other value."""
    bound = LabelVotes(rows)
    messages = np.array(list(itertools.product(EXTREMES, repeat=rows)), np.float32)
    votes = np.asarray(jax.vmap(lambda m: bound.project(KEY, m[:, None]))(messages))[:, :, 0]
    votes = np.unique(votes, axis=0)
    moved = votes[:, None] - votes[None]
    assert (moved**2).sum(-1).max() == bound.squared_sensitivity() == rows
    assert np.abs(moved).max() == 1 == bound.max_abs


def test_a_score_that_is_not_cut_to_one_vote_is_caught():
    def faulty(message):
        return message.astype(np.int32)

    moved = faulty(np.full((3, 1), 5.0)) - faulty(np.zeros((3, 1)))
    assert (moved**2).sum() > LabelVotes(3).squared_sensitivity()


@settings(deadline=None)
@given(st.integers(-50, 150), st.integers(1, 100))
def test_the_majority_is_more_than_half_of_the_units(noised, units):
    label = float(Majority()(jnp.array([[noised]]), units)[0, 0])
    assert label == (noised > units / 2)
    share = float(Share()(jnp.array([[noised]]), units)[0, 0])
    assert share == pytest.approx(min(1, max(0, noised / units)))


def test_the_count_of_a_step_is_released_with_noise_and_then_decoded():
    noise = RoundedGaussian(5.0)
    built = mechanism(noise, decode=Share())
    bits = np.random.default_rng(0).integers(2**32, size=built.bits_shape, dtype=np.uint32)
    count = jnp.array([[0], [4], [10]], jnp.int32)
    released = release(built, bits, Private(count))
    np.testing.assert_allclose(
        released, np.clip((np.asarray(count) + noise.sample(bits)) / 10, 0, 1), rtol=1e-6)


def test_gaussian_noise_is_charged_for_the_step_and_laplace_noise_for_every_vote():
    step = RoundedGaussian(5.0)
    assert mechanism(step).events(7) == ((step.event(3, 3), 7),)
    noise = DiscreteLaplace(5.0)
    built = mechanism(noise)
    assert built.events(7) == ((noise.event(1, 1), 21),)
    assert built.pending_charge(built.events(2), 2, 3) == ((noise.event(1, 1), 9),)
    with pytest.raises(ValueError, match="charged for each"):
        mechanism(noise, kind=SumMechanism).events(1)


@pytest.mark.parametrize("scale", [30.0, 400.0])
def test_laplace_votes_cost_no_more_than_pure_composition(scale):
    """3 votes a step, each 1 / scale: basic composition, a bound that needs no accountant."""
    spent = composition.epsilon_of(mechanism(DiscreteLaplace(scale)).events(20), 1e-5)
    assert 0 < spent <= 60 / scale + 1e-9
    # and no less than Gaussian noise of the same Fisher information, to which it converges
    ideal = composition.epsilon_of(mechanism(RoundedGaussian(scale)).events(20), 1e-5)
    assert spent > 0.5 * ideal


def test_without_noise_epsilon_is_infinite():
    assert composition.epsilon_of(mechanism(NoNoise()).events(1), 1e-5) == math.inf


@pytest.mark.parametrize("rows", [0, -1])
def test_no_rows_are_refused(rows):
    with pytest.raises(UserError, match="rows is"):
        LabelVotes(rows)


def test_add_or_remove_is_refused():
    with pytest.raises(UserError, match="add-remove"):
        SumMechanism(bound=LabelVotes(1), noise=NoNoise(), schedule=FullParticipation(), n_units=2,
                     shape=(1, 1), decode=Majority(), relation="add-remove")
