"""Rounded Gaussian noise against its law, its table against mpmath, and the sources of bits."""

import dataclasses
import importlib
import math
import os

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy import stats

from dpgen_jax.aggregation.noise import (
    NoNoise,
    OsBits,
    RoundedGaussian,
    SeededBits,
    distance,
    draw_bits,
    draw_one,
    thresholds,
)

ALPHA = 1e-6
SIGMAS = [0.3, 1.0, 20.0, 63.9, 64.0, 800.0, 5000.0, 65536.0]


def draw(noise, draws, seed):
    bits = np.random.default_rng(seed).integers(2**32, size=(draws, 3), dtype=np.uint32)
    return np.asarray(jax.jit(noise.sample)(bits))


def probability_within(sigma, m):
    return mpmath.erf((m + mpmath.mpf(0.5)) / (mpmath.mpf(sigma) * mpmath.sqrt(2)))


@pytest.mark.parametrize("sigma", SIGMAS)
def test_thresholds_agree_with_mpmath_to_one_unit(sigma):
    table = thresholds(sigma)
    last = len(table) - 1
    sampled = {*range(min(5, last + 1)), last, *np.random.default_rng(0).integers(0, last + 1, 60)}
    with mpmath.workprec(256):
        for m in sampled:
            ideal = mpmath.ldexp(probability_within(sigma, int(m)), 95)
            assert abs(table[m] - ideal) <= 1
        assert 1 - probability_within(sigma, last + 1) <= mpmath.ldexp(1, -95)
    assert all(a <= b for a, b in zip(table, table[1:], strict=False))
    assert table[0] > 0 and table[last] < 2**95


@pytest.mark.parametrize("sigma", SIGMAS)
def test_the_search_counts_the_thresholds_at_most_the_draw(sigma):
    """Bits that lie on, one below and one above a threshold, all zeros, and all ones."""
    noise, table = RoundedGaussian(sigma), thresholds(sigma)
    near = np.random.default_rng(1).integers(0, len(table), 50)
    words = {0, 2**95 - 1, *(table[i] + j for i in near for j in (-1, 0, 1))}
    numbers = [w + (sign << 95) for w in sorted(words) if w < 2**95 for sign in (0, 1)]
    bits = np.array([[n >> 64, n >> 32 & 0xFFFFFFFF, n & 0xFFFFFFFF] for n in numbers], np.uint32)
    magnitudes = np.searchsorted(np.array(table, object), [n % 2**95 for n in numbers], "right")
    expected = [-m if n >> 95 else m for m, n in zip(magnitudes, numbers, strict=True)]
    samples = np.asarray(jax.jit(noise.sample)(bits))
    assert samples.dtype == np.int32
    np.testing.assert_array_equal(samples, expected)
    assert samples[0] == 0 and samples[-1] == -len(table) == -samples[-2]
    assert len(table) <= noise.max_abs <= 1.05 * len(table) + 2


def check_tail(sample, sigma, ones):
    """Draws given that the first `ones` bits of the 95-bit number are set: |X| in its upper tail
    of weight 2^-ones, whose own quantiles at 1/2 and 1/16 are known."""
    bits = np.random.default_rng(ones).integers(2**32, size=(100_000, 3), dtype=np.uint32)
    prefix = ((1 << ones) - 1) << (95 - ones)
    bits |= np.array([prefix >> 64, prefix >> 32 & 0xFFFFFFFF, prefix & 0xFFFFFFFF], np.uint32)
    samples = np.abs(np.asarray(jax.jit(sample)(bits)))
    for share in (1 / 2, 1 / 16):
        first = round(sigma * stats.norm.isf(share * 2.0**-ones / 2))
        tail = 2 * stats.norm.sf((first - 0.5) / sigma) * 2.0**ones
        assert stats.binomtest(int((samples >= first).sum()), len(samples), tail).pvalue > ALPHA


@pytest.mark.parametrize("sigma", [100.0, 5000.0])
@pytest.mark.parametrize("ones", [10, 25, 31, 45, 60, 75])
def test_the_tail_follows_the_law_to_ten_sigma(sigma, ones):
    check_tail(RoundedGaussian(sigma).sample, sigma, ones)


def test_the_short_tail_of_float32_normals_is_caught():
    def clipped(bits):
        return jnp.clip(RoundedGaussian(800.0).sample(bits), -4336, 4336)

    check_tail(clipped, 800.0, 10)
    with pytest.raises(AssertionError):
        check_tail(clipped, 800.0, 25)


def check_law(samples, sigma):
    """Chi-square over about 40 bins, and the counts beyond 4 and 5 sigma, each at ALPHA."""
    edges = np.unique(np.round(sigma * np.linspace(-4, 4, 41))) + 0.5
    p = np.diff(np.concatenate([[0], stats.norm.cdf(edges / sigma), [1]]))
    observed = np.bincount(np.searchsorted(edges, samples), minlength=len(p))
    assert stats.chisquare(observed, p * len(samples)).pvalue > ALPHA
    for cut in (4, 5):
        first = math.ceil(cut * sigma)
        tail = 2 * stats.norm.sf((first - 0.5) / sigma)
        count = int((np.abs(samples) >= first).sum())
        assert stats.binomtest(count, len(samples), tail).pvalue > ALPHA
    assert abs(np.sign(samples).sum()) < 5 * math.sqrt(len(samples))


@pytest.mark.parametrize("sigma", [1.0, 20.0, 800.0, 5000.0])
def test_draws_follow_the_law(sigma):
    check_law(draw(RoundedGaussian(sigma), 2_000_000, 7), sigma)


def test_small_sigma_has_the_right_probabilities():
    samples = draw(RoundedGaussian(0.3), 1_000_000, 8)
    for value in (-2, -1, 0, 1, 2):
        p = float(stats.norm.cdf((value + 0.5) / 0.3) - stats.norm.cdf((value - 0.5) / 0.3))
        count = int((samples == value).sum())
        assert stats.binomtest(count, len(samples), p).pvalue > ALPHA


@dataclasses.dataclass(frozen=True)
class Halved(RoundedGaussian):
    """The mutant: half the noise that it says."""

    def sample(self, bits):
        return super().sample(bits) // 2


@dataclasses.dataclass(frozen=True)
class OneSigned(RoundedGaussian):
    """The mutant: the sign bit is ignored."""

    def sample(self, bits):
        return jnp.abs(super().sample(bits))


@pytest.mark.parametrize("mutant", [Halved, OneSigned])
def test_a_wrong_law_is_caught(mutant):
    with pytest.raises(AssertionError):
        check_law(draw(mutant(800.0), 200_000, 7), 800.0)


def test_draws_are_symmetric_and_independent_of_the_shape():
    noise = RoundedGaussian(800.0)
    bits = np.random.default_rng(2).integers(2**32, size=(4, 5, 3), dtype=np.uint32)
    flipped = bits ^ np.array([1 << 31, 0, 0], np.uint32)
    sample = jax.jit(noise.sample)
    samples = np.asarray(sample(bits))
    np.testing.assert_array_equal(sample(flipped), -samples)
    np.testing.assert_array_equal(jax.vmap(sample)(bits), samples)
    np.testing.assert_array_equal([[sample(b) for b in row] for row in bits], samples)


# (epsilon, sigma, B, D, steps): steps are more than each preset can afford
PRESETS = [(1, 5000.0, 15, 784, 149), (10, 800.0, 15, 784, 250), (10, 900.0, 30, 12288, 1000)]


@pytest.mark.parametrize("epsilon,sigma,rows,columns,steps", PRESETS)
def test_what_the_table_adds_to_delta_is_negligible(epsilon, sigma, rows, columns, steps):
    distance = RoundedGaussian(sigma).total_variation(rows * columns)
    assert 0 < (1 + math.exp(epsilon)) * steps * distance < 1e-8


@pytest.mark.parametrize("sigma", [0.3, 1.0, 20.0])
def test_total_variation_bounds_the_distance_of_the_drawn_law(sigma):
    """The distance itself, summed over all values in exact arithmetic."""
    noise, table = RoundedGaussian(sigma), [0, *thresholds(sigma), 2**95]
    with mpmath.workprec(300):
        within = [mpmath.mpf(0)] + [probability_within(sigma, m) for m in range(len(table) - 1)]
        masses = [mpmath.mpf(b - a) / 2**95 for a, b in zip(table, table[1:], strict=False)]
        ideal = [b - a for a, b in zip(within, within[1:], strict=False)]
        differences = [abs(a - b) for a, b in zip(masses, ideal, strict=True)]
        distance = (sum(differences) + 1 - within[-1]) / 2
        assert 0 < distance <= noise.total_variation(1)
    assert noise.total_variation(10) == pytest.approx(10 * noise.total_variation(1))
    assert noise.total_variation(2**100) == 1.0


@pytest.mark.parametrize("sigma", [0, -1.0, 0.29, 65537.0, math.inf, math.nan])
def test_sigma_out_of_range_is_refused(sigma):
    with pytest.raises(ValueError):
        RoundedGaussian(sigma)


def test_no_noise_needs_no_bits_and_adds_nothing():
    noise = NoNoise()
    bits = draw_bits(noise.bits_shape((2, 3)))
    np.testing.assert_array_equal(jax.jit(noise.sample)(bits), np.zeros((2, 3), np.int32))
    assert noise.max_abs == 0 == noise.total_variation(100)


def test_bits_of_the_operating_system_are_fresh_uniform_and_read_only(monkeypatch):
    # The system's own, instead of what is seeded for tests.
    monkeypatch.setattr(os, "urandom", importlib.import_module(os.name).urandom)
    source = OsBits()
    first, second = source.draw((200, 50, 3)), source.draw((200, 50, 3))
    assert first.dtype == np.uint32 and first.shape == (200, 50, 3)
    assert not first.flags.writeable and not vars(source)
    assert (first == second).mean() < 1e-3
    ones = np.unpackbits(first.view(np.uint8)).sum()
    assert stats.binomtest(int(ones), first.size * 32, 0.5).pvalue > ALPHA
    assert source.label == "os-entropy"


@pytest.mark.parametrize("broken", [lambda n: b"\0" * (n - 1), lambda n: b""])
def test_a_short_answer_of_the_operating_system_is_an_error(monkeypatch, broken):
    monkeypatch.setattr(os, "urandom", broken)
    with pytest.raises(OSError):
        OsBits().draw((2, 3))


def test_a_failing_operating_system_is_an_error(monkeypatch):
    def fail(n):
        raise NotImplementedError

    monkeypatch.setattr(os, "urandom", fail)
    with pytest.raises(NotImplementedError):
        draw_bits((2, 3))


def test_seeded_bits_depend_on_seed_incarnation_and_step_alone():
    whole = SeededBits(1).draw((5, 4, 3))
    parts = SeededBits(1)
    np.testing.assert_array_equal(np.concatenate([parts.draw((2, 4, 3)), parts.draw((3, 4, 3))]),
                                  whole)
    others = [SeededBits(2).draw((5, 4, 3)), SeededBits(1, incarnation=1).draw((5, 4, 3)),
              SeededBits(1, step=5).draw((5, 4, 3))]
    assert all((other == whole).mean() < 0.1 for other in others)
    assert len({whole[i].tobytes() for i in range(5)}) == 5
    assert "no privacy claim" in SeededBits(1).label
    assert "12345" not in repr(SeededBits(12345))


@pytest.mark.parametrize("sigma", [0.3, 20.0, 800.0])
def test_a_draw_on_the_host_is_that_of_the_table(sigma):
    bits = np.random.default_rng(3).integers(2**32, size=(200, 3), dtype=np.uint32)
    bits[0], bits[1] = [2**31 - 1, 2**32 - 1, 2**32 - 1], [2**31, 0, 0]
    wanted = np.asarray(jax.jit(RoundedGaussian(sigma).sample)(bits))
    assert [draw_one(sigma, words) for words in bits] == wanted.tolist()


def test_a_draw_on_the_host_may_have_any_sigma():
    sigma = 1e7
    bits = np.random.default_rng(4).integers(2**32, size=(300, 3), dtype=np.uint32)
    samples = np.array([draw_one(sigma, words) for words in bits])
    assert stats.kstest(samples / sigma, "norm").pvalue > ALPHA
    top = np.array([2**31 - 1, 2**32 - 1, 2**32 - 1], np.uint32)
    assert draw_one(sigma, top) <= math.ceil(11.5 * sigma) + 1
    assert distance(sigma, 2) * 2**95 >= 2 * (math.ceil(11.5 * sigma) + 2)
