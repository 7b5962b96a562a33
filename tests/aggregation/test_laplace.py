"""Discrete Laplace noise inside a compiled release: its law, its digits, its distance."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy import stats

from dpgen_jax.accountant.events import LaplaceEvent
from dpgen_jax.aggregation.noise import DiscreteLaplace, laplace_thresholds
from dpgen_jax.core.types import UserError

ALPHA = 1e-6
SCALES = [0.1, 0.5, 1.0, 20.0, 300.0, 65536.0]


def draw(noise, draws, seed=0):
    shape = noise.bits_shape((draws,))
    bits = np.random.default_rng(seed).integers(2**32, size=shape, dtype=np.uint32)
    return np.asarray(jax.jit(noise.sample)(bits))


def check_law(samples, scale):
    """Chi-square over about 40 bins, the share beyond 8 scales, and the sign, each at ALPHA."""
    law = stats.dlaplace(1 / scale)
    edges = np.unique(np.round(scale * np.linspace(-4, 4, 41)))
    p = np.diff(np.concatenate([[0], law.cdf(edges), [1]]))
    observed = np.bincount(np.searchsorted(edges, samples), minlength=len(p))
    assert stats.chisquare(observed, p * len(samples)).pvalue > ALPHA
    far = math.ceil(8 * scale)
    count = int((np.abs(samples) >= far).sum())
    assert stats.binomtest(count, len(samples), 2 * law.sf(far - 1)).pvalue > ALPHA
    assert abs(np.sign(samples).sum()) < 5 * math.sqrt(len(samples))


@pytest.mark.parametrize("scale", [0.5, 1.0, 20.0, 300.0])
def test_draws_follow_the_law(scale):
    check_law(draw(DiscreteLaplace(scale), 200_000), scale)


@dataclasses.dataclass(frozen=True)
class OneGeometric(DiscreteLaplace):
    """The mutant: half of the noise, all of one sign."""

    def sample(self, bits):
        samples = super().sample(bits)
        return jnp.abs(samples)


@dataclasses.dataclass(frozen=True)
class Inverted(DiscreteLaplace):
    """The mutant: 1 / scale where the scale belongs."""

    def sample(self, bits):
        return DiscreteLaplace(1 / self.scale).sample(
            bits[..., :DiscreteLaplace(1 / self.scale).digits, :])


@pytest.mark.parametrize("mutant", [OneGeometric, Inverted])
def test_a_wrong_law_is_caught(mutant):
    with pytest.raises(AssertionError):
        check_law(draw(mutant(2.0), 200_000), 2.0)


@pytest.mark.parametrize("scale", SCALES)
def test_thresholds_are_the_odds_of_the_digits(scale):
    """The odds of digit i are those of the numbers that have it: r^(2^i)."""
    noise = DiscreteLaplace(scale)
    for i, threshold in enumerate(laplace_thresholds(scale, noise.digits)):
        with mpmath.workprec(400):
            odds = mpmath.exp(-mpmath.mpf(2**i) / mpmath.mpf(scale))
            assert abs(mpmath.ldexp(odds / (1 + odds), 96) - threshold) <= 0.5
    assert 2**noise.digits / scale > 96 * math.log(2)
    assert noise.max_abs < 2**24


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_digits_are_ones_below_their_threshold(scale):
    """Words on, one below and one above each threshold; all zeros and all ones."""
    noise = DiscreteLaplace(scale)
    table = laplace_thresholds(scale, noise.digits)
    for step, expected in ((-1, 1), (0, 0), (1, 0)):
        words = np.zeros((noise.digits, 2, noise.digits, 3), np.uint32)
        words[...] = 0xFFFFFFFF  # other digits are 0
        for i, threshold in enumerate(table):
            n = threshold + step
            if n >= 0:
                words[i, 0, i] = [n >> 64, n >> 32 & 0xFFFFFFFF, n & 0xFFFFFFFF]
        samples = np.asarray(noise.sample(words))
        wanted = [expected << i if t + step >= 0 else 0 for i, t in enumerate(table)]
        np.testing.assert_array_equal(samples, wanted)
    zeros = np.zeros(noise.bits_shape((2,)), np.uint32)
    zeros[1, 1] = 0xFFFFFFFF
    some = sum(1 << i for i, threshold in enumerate(table) if threshold)
    assert noise.sample(zeros).tolist() == [0, some] and some <= noise.max_abs


@pytest.mark.parametrize("scale", [0.5, 1.0, 4.0])
def test_total_variation_bounds_the_distance_of_the_drawn_law(scale):
    """The distance of one geometric number, summed in exact arithmetic; a draw has two of them."""
    noise = DiscreteLaplace(scale)
    table = laplace_thresholds(scale, noise.digits)
    with mpmath.workprec(400):
        masses = [mpmath.mpf(1)]
        for threshold in table[::-1]:  # the highest digit first: numbers in order
            p = mpmath.mpf(threshold) / 2**96
            masses = [q * share for q in masses for share in (1 - p, p)]
        r = mpmath.exp(-1 / mpmath.mpf(scale))
        ideal = [(1 - r) * r**k for k in range(len(masses))]
        distance = (sum(abs(a - b) for a, b in zip(masses, ideal, strict=True))
                    + r**len(masses)) / 2
        assert 0 < 2 * distance <= noise.total_variation(1) < 1e-26
    assert noise.total_variation(10) == pytest.approx(10 * noise.total_variation(1))
    assert noise.total_variation(2**100) == 1.0


def test_the_event_is_that_of_one_entry():
    noise = DiscreteLaplace(20)
    event = noise.event(1, 1)
    assert event == LaplaceEvent(20.0, 1, noise.total_variation(1)) and event.epsilon == 1 / 20
    assert noise.event(4, 1).sensitivity == 2 and noise.event(5, 1).sensitivity == 3
    with pytest.raises(ValueError, match="charged for each"):
        noise.event(8, 8)


def test_draws_are_independent_of_the_shape_and_antisymmetric():
    noise = DiscreteLaplace(50.0)
    bits = np.random.default_rng(2).integers(2**32, size=noise.bits_shape((4, 5)), dtype=np.uint32)
    samples = np.asarray(noise.sample(bits))
    assert samples.dtype == np.int32 and samples.shape == (4, 5)
    np.testing.assert_array_equal(noise.sample(bits[:, :, ::-1]), -samples)
    np.testing.assert_array_equal([[noise.sample(b) for b in row] for row in bits], samples)


@pytest.mark.parametrize("scale", [0, -1.0, 0.09, 65537.0, math.inf, math.nan])
def test_a_scale_out_of_range_is_refused(scale):
    with pytest.raises(UserError, match="scale is"):
        DiscreteLaplace(scale)
