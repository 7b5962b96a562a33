"""The mechanism as a whole: what it declares, what it draws, and what it refuses."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpgen_jax.accountant.events import GaussianEvent, NonPrivateEvent
from dpgen_jax.aggregation.bound import FewRows
from dpgen_jax.aggregation.clip import GradientL2, RowL2
from dpgen_jax.aggregation.compression import KLevels
from dpgen_jax.aggregation.mechanism import SumMechanism, check_range, release
from dpgen_jax.aggregation.noise import (
    DiscreteLaplace,
    NoNoise,
    RoundedGaussian,
    draw_bits,
    thresholds,
)
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.aggregation.teacher_votes import LabelVotes, OneHot
from dpgen_jax.aggregation.topagg import Mean, Threshold, TopKSign
from dpgen_jax.core.types import Private, UserError

SHAPE = (15, 784)


def vote(**fields):
    """DataLens on MNIST at epsilon 1, with fields of the mechanism replaced."""
    default = {
        "bound": TopKSign(200, rows=15, clip=1e-5),
        "noise": RoundedGaussian(5000.0),
        "schedule": FullParticipation(),
        "n_units": 4000,
        "shape": SHAPE,
        "decode": Threshold(0.7),
    }
    return SumMechanism(**(default | fields))


def random_bits(mechanism, seed=0):
    shape = mechanism.noise.bits_shape(mechanism.shape)
    return np.random.default_rng(seed).integers(2**32, size=shape, dtype=np.uint32)


def released_by(mechanism):
    return jax.jit(lambda bits, total: release(mechanism, bits, total))


def check_events(mechanism):
    """The event against what is measured on the mechanism itself: the spread of the released
    noise, and the distance of two opposite messages."""
    ((event, count),) = mechanism.events(1)
    assert isinstance(event, GaussianEvent) and count == 1
    exact = dataclasses.replace(mechanism, decode=Mean())
    zero = Private(jnp.zeros(mechanism.shape, jnp.int32))
    released = np.asarray(released_by(exact)(random_bits(exact), zero)) * mechanism.n_units
    error = 5 / math.sqrt(2 * released.size)
    assert released.std() == pytest.approx(event.sigma, rel=error)
    key, message = jax.random.key(0), jnp.ones(mechanism.shape)
    project = jax.jit(mechanism.bound.project)
    move = project(key, message) - project(key, -message)
    assert int((move**2).sum()) == event.squared_sensitivity
    assert event.total_variation == mechanism.noise.total_variation(math.prod(mechanism.shape)) > 0
    assert event.grid == 1.0


def test_events_are_those_of_the_objects_that_bound_and_draw():
    check_events(vote())
    check_events(vote(noise=RoundedGaussian(800.0), bound=TopKSign(300, rows=15)))
    assert vote().events(149)[0] == (GaussianEvent(
        5000.0, 12_000, total_variation=RoundedGaussian(5000.0).total_variation(15 * 784)), 149)


@dataclasses.dataclass(frozen=True)
class HalfDrawn(RoundedGaussian):
    def sample(self, bits):
        return super().sample(bits) // 2


@dataclasses.dataclass(frozen=True)
class SayingMore(RoundedGaussian):
    def event(self, squared_sensitivity, draws, grid=1.0):
        return dataclasses.replace(super().event(squared_sensitivity, draws, grid),
                                   sigma=10_000.0)


@dataclasses.dataclass(frozen=True)
class OneSided(TopKSign):
    def squared_sensitivity(self):
        return 2 * self.top_k * self.rows


@dataclasses.dataclass(frozen=True)
class PerRow(TopKSign):
    def squared_sensitivity(self):
        return 4 * self.top_k


@pytest.mark.parametrize("fields", [
    {"noise": HalfDrawn(5000.0)}, {"noise": SayingMore(5000.0)},
    {"bound": OneSided(200, rows=15)}, {"bound": PerRow(200, rows=15)}])
def test_events_that_are_not_those_of_the_release_are_caught(fields):
    with pytest.raises(AssertionError):
        check_events(vote(**fields))


def test_no_noise_is_never_private():
    mechanism = vote(noise=NoNoise(), decode=Mean())
    assert mechanism.events(3) == ((NonPrivateEvent(), 3),)
    total = jnp.arange(15 * 784, dtype=jnp.int32).reshape(SHAPE) % 4000
    released = released_by(mechanism)(random_bits(mechanism), Private(total))
    np.testing.assert_array_equal(released, total.astype(jnp.float32) / 4000)


def test_release_is_votes_plus_the_noise_of_the_bits_decoded():
    mechanism = vote()
    bits = random_bits(mechanism, 3)
    total = np.random.default_rng(4).integers(-4000, 4001, SHAPE).astype(np.int32)
    released = released_by(mechanism)(bits, Private(jnp.asarray(total)))
    noised = total.astype(np.int64) + np.asarray(mechanism.noise.sample(bits))
    expected = np.where(noised >= 2800, 1.0, np.where(noised <= -2800, -1.0, 0.0))
    assert released.dtype == jnp.float32
    np.testing.assert_array_equal(released, expected)
    assert {-1.0, 0.0, 1.0} == set(np.unique(released))


def test_the_sum_is_exact_at_the_edge_of_32_bits():
    noise = RoundedGaussian(5000.0)
    mechanism = vote(n_units=2**31 - 1 - noise.max_abs, decode=lambda noised, n: noised)
    bits = np.full((*SHAPE, 3), 2**32 - 1, np.uint32)
    for sign in (1, -1):
        total = Private(jnp.full(SHAPE, sign * mechanism.n_units, jnp.int32))
        bits[..., 0] = 2**31 - 1 if sign > 0 else 2**32 - 1
        released = np.asarray(released_by(mechanism)(bits, total))
        extreme = mechanism.n_units + len(thresholds(noise.sigma))
        assert 2**31 - 1 - extreme < 0.03 * noise.max_abs
        np.testing.assert_array_equal(released, sign * extreme)
    with pytest.raises(ValueError, match="32-bit"):
        vote(n_units=mechanism.n_units + 1)


@pytest.mark.parametrize("fields,text", [
    ({"relation": "add-remove"}, "not available for teachers"),
    ({"relation": "zero-out"}, "proven for 'replace-one'"),
    ({"unit": "client"}, "proven for 'record'"),
    ({"shape": (14, 784)}, "15 rows"),
    ({"shape": (15, 0)}, "at least one"),
    ({"n_units": 0}, "at least one")])
def test_what_the_bound_is_not_proven_for_is_refused(fields, text):
    with pytest.raises(ValueError, match=text):
        vote(**fields)


@pytest.mark.parametrize("shape", [(1, 784, 3), (784, 3), (15, 784, 1), (15, 1, 3)])
def test_bits_that_would_broadcast_are_refused(shape):
    total = Private(jnp.zeros(SHAPE, jnp.int32))
    with pytest.raises(ValueError, match="noise bits"):
        release(vote(), draw_bits(shape), total)


def test_bits_and_sums_of_other_types_are_refused():
    mechanism = vote()
    bits, total = random_bits(mechanism), jnp.zeros(SHAPE, jnp.int32)
    with pytest.raises(ValueError, match="noise bits"):
        release(mechanism, bits.view(np.int32), Private(total))
    with pytest.raises(ValueError, match="the sum"):
        release(mechanism, bits, Private(total.astype(jnp.float32)))
    with pytest.raises(ValueError, match="the sum"):
        release(mechanism, bits, Private(total[:1]))


def test_a_sealed_sum_shows_its_shape_and_no_value():
    shown = repr(Private(jnp.full((2, 3), 1234567, jnp.int32)))
    assert shown == "Private(int32[2, 3])"


def test_mechanisms_are_plain_values():
    assert vote() == vote() and hash(vote()) == hash(vote())
    assert vote().schedule.max_participations(149) == 149


LARGE = (0.0, 1e-45, 1e-38, 1e-3, 1.0, 2.0**24 + 2, 3e9, 1e19, 3.4e38, math.inf, math.nan)
BOUNDS = [(RowL2(1.0, 8, 3, 64), 8), (RowL2(1e-30, 8, 3, 64), 8), (RowL2(1.0, 400, 1, 2**15), 400),
          (GradientL2(1.0, 9, 4095), 9), (GradientL2(3e38, 9, 4095), 9), (KLevels(2, 9, 3), 9),
          (KLevels(2000, 50, 1), 50), (TopKSign(3, 2), 7),
          (OneHot(3, 4, 2, 1.0), 4), (LabelVotes(3), 1), (FewRows(RowL2(1.0, 8, 2, 64), 6), 8)]


@pytest.mark.parametrize(("bound", "columns"), BOUNDS)
def test_no_message_leaves_the_bound_or_its_sum_32_bits(bound, columns):
    """From subnormal to infinite, and at the most units that fit beside the longest noise."""
    rng, shape = np.random.default_rng(0), (bound.rows, columns)
    drawn, first = rng.normal(size=shape), np.arange(columns) == 0
    forms = (drawn, np.ones(shape), np.broadcast_to(first, shape))
    with np.errstate(over="ignore", invalid="ignore"):
        messages = np.stack([sign * size * form for size in LARGE for sign in (1, -1)
                             for form in forms]).astype(np.float32)
    keys = jax.random.split(jax.random.key(0), len(messages))
    votes = np.asarray(jax.jit(jax.vmap(bound.project))(keys, messages)).astype(object)
    assert max(abs(int(entry)) for entry in votes.ravel()) <= bound.max_abs
    assert max(sum(int(entry)**2 for entry in vote.ravel()) for vote in votes) <= bound.squared_norm
    for noise in (RoundedGaussian(0.3), RoundedGaussian(65536.0), DiscreteLaplace(65536.0)):
        most = (2**31 - 1 - noise.max_abs) // bound.max_abs
        check_range(most, bound, noise)
        with pytest.raises(UserError, match="32-bit"):
            check_range(most + 1, bound, noise)


@pytest.mark.parametrize("noise", [RoundedGaussian(0.3), RoundedGaussian(64.0),
                                   RoundedGaussian(1000.3), DiscreteLaplace(65536.0)])
def test_the_longest_noise_is_within_what_is_declared(noise):
    bits = np.zeros((2, *noise.bits_shape(())), np.uint32)
    bits[0] = 0xFFFFFFFF
    bits[1, 0] = 0x7FFFFFFF if bits[1].ndim == 1 else 0xFFFFFFFF
    drawn = np.asarray(jax.jit(noise.sample)(bits), np.int64)
    assert 0 < np.abs(drawn).max() <= noise.max_abs
