"""Discrete Laplace noise against its exact law, and the class counts that it protects."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpgen_jax.aggregation import single_releases
from dpgen_jax.aggregation.noise import OsBits, SeededBits
from dpgen_jax.aggregation.single_releases import (
    Coins,
    class_counts,
    class_counts_event,
    laplace_scale_for,
    sample_discrete_laplace,
)
from dpgen_jax.core.types import Private, UserError

ALPHA = 1e-6


def law(x, scale):
    q = math.exp(-1 / scale)
    return (1 - q) / (1 + q) * q ** abs(x)


def p_value(samples, scale):
    """Chi-square of integers against the law; both tails from an expected count of 5 are one."""
    last = max(0, int(scale * math.log(len(samples) / 5)))
    cells = range(-last, last + 1)
    expected = np.array([len(samples) * law(x, scale) for x in cells])
    clipped = np.clip(samples, -last, last)
    seen = np.array([np.sum(clipped == x) for x in cells])
    tail = (len(samples) - expected.sum()) / 2
    expected[[0, -1]] += tail if last else 2 * tail
    return stats.chisquare(seen, expected * len(samples) / expected.sum()).pvalue


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(5, 2), Fraction(3, 7), Fraction(20)])
def test_draws_follow_the_law(scale):
    samples = np.array(sample_discrete_laplace(scale, 20_000, SeededBits(7)))
    assert p_value(samples, float(scale)) > ALPHA
    # a scale that is halved, or a tenth off, would show
    assert p_value(samples, float(scale) / 2) < ALPHA and p_value(samples, 2 * float(scale)) < ALPHA
    assert p_value(samples, 1.2 * float(scale)) < ALPHA


class Branch(Exception):
    """A choice that is not made yet: the probabilities of its outcomes."""


class Choices:
    """Coins that follow a list of outcomes, and ask for the next one."""

    def __init__(self, made):
        self.made = list(made)

    def choose(self, probabilities):
        if not self.made:
            raise Branch(probabilities)
        return self.made.pop(0)

    def below(self, n):
        return self.choose([1 / n] * n)

    def bits(self, n):
        return self.below(2**n)


class ExactChoices(Choices):
    def exp_minus(self, numerator, denominator):
        p = math.exp(-numerator / denominator)
        return bool(self.choose([1 - p, p]))


def enumerated(procedure, smallest):
    """Exact probability of each result over all sequences of choices, and what is left open."""
    decided, left, prefixes = {}, 0.0, [((), 1.0)]
    while prefixes:
        made, weight = prefixes.pop()
        try:
            result = procedure(made)
        except Branch as branch:
            for i, p in enumerate(branch.args[0]):
                if p * weight >= smallest:
                    prefixes.append(((*made, i), p * weight))
                else:
                    left += p * weight
        else:
            decided[result] = decided.get(result, 0.0) + weight
    assert sum(decided.values()) + left == pytest.approx(1, abs=1e-9)
    return decided, left


@pytest.mark.parametrize("quotient", [(0, 1), (1, 1), (1, 2), (2, 3)])
def test_a_coin_of_exp_minus_is_exact(quotient):
    decided, left = enumerated(lambda made: Coins.exp_minus(Choices(made), *quotient), 1e-6)
    expected = math.exp(-quotient[0] / quotient[1])
    assert left < 0.01 and decided[True] <= expected + 1e-12
    assert expected <= decided[True] + left + 1e-12


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(3), Fraction(3, 2)])
def test_the_law_is_exact(scale):
    """All sequences of choices, with their exact probabilities."""
    t, s = scale.numerator, scale.denominator
    decided, left = enumerated(lambda made: single_releases._draw(t, s, ExactChoices(made)), 2e-7)

    def fits(scale):
        return all(share - 1e-12 <= law(x, scale) <= share + left + 1e-12
                   for x, share in decided.items())

    assert left < 0.01 and {-2, -1, 0, 1, 2} <= decided.keys()
    assert fits(float(scale)) and not fits(1.05 * scale) and not fits(0.95 * scale)
    assert all(decided[x] == pytest.approx(decided[-x], rel=1e-9) for x in (1, 2))


def test_uniform_numbers_use_every_bit_once():
    coins, words = Coins(SeededBits(3)), SeededBits(3).draw((3, 64)).ravel()
    stream = "".join(f"{word:032b}"[::-1] for word in words)
    read = "".join(f"{coins.bits(n):0{n}b}"[::-1] for n in [1, 7, 32, 100, 2000, 5, 900])
    assert stream.startswith(read)
    samples = [coins.below(7) for _ in range(7000)]
    assert stats.chisquare(np.bincount(samples, minlength=7)).pvalue > ALPHA
    assert [coins.below(1) for _ in range(3)] == [0, 0, 0]


def test_epsilon_is_the_decimal_number_it_prints_as():
    assert laplace_scale_for(0.01, 2) == 200 and laplace_scale_for(0.01, 1) == 100
    assert laplace_scale_for(np.float64(0.3), 1) == Fraction(10, 3) and laplace_scale_for(1, 2) == 2
    for epsilon in (0, -1, math.inf, math.nan):
        with pytest.raises(UserError, match="epsilon"):
            laplace_scale_for(epsilon, 2)
    with pytest.raises(UserError, match="scale"):
        sample_discrete_laplace(Fraction(0), 1, OsBits())


# class counts

@pytest.fixture
def muted(monkeypatch):
    """No noise; the scales that were asked for."""
    scales = []

    def zeros(scale, draws, bits):
        scales.append(scale)
        return [0] * draws

    monkeypatch.setattr(single_releases, "sample_discrete_laplace", zeros)
    return scales


@pytest.mark.parametrize("classes, columns", [(2, [1]), (3, [0, 1, 2]), (4, [0, 1, 2, 3])])
def test_the_scale_is_the_sensitivity_by_brute_force(muted, classes, columns):
    """Over all labels of 3 records, all replacements: the largest move of the counts that are
    drawn is the declared sensitivity, no more and no less."""
    def counts(y):
        return class_counts(Private(np.array(y)), classes, 0.25, OsBits())

    moved = 0
    for y in itertools.product(range(classes), repeat=3):
        for i, new in itertools.product(range(3), range(classes)):
            other = [*y[:i], new, *y[i + 1:]]
            moved = max(moved, np.abs(counts(y) - counts(other))[columns].sum())
    assert set(muted) == {Fraction(moved * 4)}
    # the mutants: sensitivity 1 for three classes, and the scale halved
    assert moved == (1 if classes == 2 else 2)


@pytest.mark.parametrize("classes", [2, 3])
def test_what_is_released_is_epsilon_private(classes):
    """Exact ratios of what is released, from the law of the noise that is drawn."""
    epsilon, n = 0.5, 2
    coordinates = [1] if classes == 2 else range(classes)
    scale = float(laplace_scale_for(epsilon, 1 if classes == 2 else 2))

    def probability(y, released):
        return math.prod(law(k - sum(1 for v in y if v == c), scale)
                         for c, k in zip(coordinates, released, strict=True))

    worst = 0.0
    for y in itertools.product(range(classes), repeat=n):
        for new in range(classes):
            for released in itertools.product(range(-3, 5), repeat=len(coordinates)):
                ratio = probability(y, released) / probability((new, *y[1:]), released)
                worst = max(worst, ratio)
    assert worst == pytest.approx(math.exp(epsilon))


def test_counts_are_right_without_noise(muted):
    y = Private(np.array([0, 2, 2, 1, 2, 7]))
    counts = class_counts(y, 3, 1.0, OsBits())
    assert counts.tolist() == [1, 1, 3] and counts.dtype == np.int64
    two = class_counts(Private(np.array([0, 1, 1, 1])), 2, 1.0, OsBits())
    assert two.tolist() == [1, 3]


def test_counts_are_noised_each_by_itself():
    y = Private(np.repeat([0, 1, 2], [50, 100, 150]))
    noise = np.array([class_counts(y, 3, 0.5, SeededBits(seed)) - [50, 100, 150]
                      for seed in range(1000)])
    for column in noise.T:
        assert p_value(column, 4.0) > ALPHA and p_value(column, 2.0) < ALPHA
    assert np.abs(np.corrcoef(noise.T) - np.eye(3)).max() < 0.2
    two = np.array([class_counts(Private(np.array([0, 1, 1])), 2, 0.5, SeededBits(seed))
                    for seed in range(1000)])
    assert (two.sum(1) == 3).all() and two.min() < 0  # n is public, a negative count is kept
    assert p_value(two[:, 1] - 2, 2.0) > ALPHA


def test_the_operating_system_gives_new_noise():
    y = Private(np.zeros(5, int))
    draws = {tuple(class_counts(y, 3, 0.01, OsBits())) for _ in range(10)}
    assert len(draws) > 5


def test_the_event_is_pure():
    event = class_counts_event(0.01)
    assert (event.epsilon, event.delta) == (0.01, 0.0) and "class counts" in event.mechanism
