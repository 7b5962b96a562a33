"""The privacy faults that an audit found in public PATE-GAN codes: noise and accounting (7 to 13).

`test_pategan_audit` names the source and has the others.
"""

import dataclasses
import math

import jax
import numpy as np
import pytest
import small_pategan as small
from scipy import stats

from dpgen_jax.accountant import composition, pate
from dpgen_jax.aggregation.noise import DiscreteLaplace, RoundedGaussian
from dpgen_jax.methods import pategan

LAPLACE = dataclasses.replace(small.CONFIG, noise="laplace")


# c. The scale of the noise.

def check_noise(noise, deviation):
    """The deviation of the noise on a count, over 12,000 of them; its error is about 1 (Gaussian)
    or 1.6 (Laplace) in these units."""
    shape = noise.bits_shape((12_000,))
    bits = np.random.default_rng(0).integers(2**32, size=shape, dtype=np.uint32)
    samples = np.asarray(jax.jit(noise.sample)(bits)).astype(float)
    spread = (samples.std() / deviation - 1) * math.sqrt(2 * len(samples))
    assert abs(spread) < 8, f"noise of {samples.std():.3g}, not of {deviation:.3g}"
    assert abs(samples.mean()) < 6 * deviation / math.sqrt(len(samples))


@dataclasses.dataclass(frozen=True)
class Misread(RoundedGaussian):
    """The mutant: the deviation that is drawn is not the one in the event."""

    actual: float = 1.0

    def sample(self, bits):
        return RoundedGaussian(self.actual).sample(bits)


@pytest.mark.parametrize("fault", [10 ^ 5, 10**1e-5], ids=["7-xor", "8-power-of-delta"])
def test_07_08_the_noise_that_is_drawn_is_the_noise_that_is_charged(fault):
    """original.py:46 computes `10 ^ delta`, an exclusive or; turing.py:128 `10**delta`, about 1
    whatever the budget is: noise that has nothing to do with epsilon."""
    noise = pategan.mechanism(small.CONFIG, small.TABLE).noise
    ((event, _),) = pategan.mechanism(small.CONFIG, small.TABLE).events(1)
    assert event.sigma == small.CONFIG.sigma == noise.sigma
    check_noise(noise, event.sigma)
    with pytest.raises(AssertionError, match="noise of"):
        check_noise(Misread(4.0, fault), event.sigma)


def test_09_the_scale_of_laplace_noise_is_one_over_lambda():
    """updated.py:52, issue 36: noise of scale lambda where 1 / lambda belongs."""
    lam = 0.25
    built = pategan.mechanism(dataclasses.replace(LAPLACE, sigma=1 / lam), small.TABLE)
    ((event, count),) = built.events(1)
    assert event.epsilon == lam and count == small.ROWS
    deviation = math.sqrt(1 / (2 * math.sinh(lam / 2)**2))  # of the discrete law of scale 1 / lam
    check_noise(built.noise, deviation)
    with pytest.raises(AssertionError, match="noise of"):
        check_noise(DiscreteLaplace(lam), deviation)


# d. The accountant.

def exact_delta(epsilon, votes, scale):
    """The delta of counts that all move by 1: the loss of one is +-1 / scale, +1 with probability
    1 / (1 + e^(-1 / scale)), so that the loss of all is binomial."""
    ups = np.arange(votes + 1)
    loss = (2 * ups - votes) / scale
    weight = stats.binom.pmf(ups, votes, 1 / (1 + math.exp(-1 / scale)))
    return float(weight @ np.maximum(0, -np.expm1(epsilon - loss)))


def bisected(delta_of, delta):
    low, high = 0.0, 200.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle) > delta else (low, middle)
    return high


def gaussian_delta(epsilon, mu):
    """Balle and Wang (2018), Theorem 8."""
    return (stats.norm.cdf(mu / 2 - epsilon / mu)
            - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu))


CASES = [(4, 3, 20.0), (64, 60, 60.0), (128, 40, 400.0)]


@pytest.mark.parametrize(("batch", "steps", "scale"), CASES)
def test_10_every_vote_of_every_step_is_charged(batch, steps, scale):
    """synthcity.py:314, issue 276: a bracket at the wrong place charges too little. Both noises
    against calculations that share nothing with the accountant."""
    config = dataclasses.replace(small.CONFIG, batch=batch, sigma=scale, teachers=1000)
    found = composition.epsilon_of(pategan.mechanism(config, small.TABLE).events(steps), 1e-5)
    mu = math.sqrt(batch * steps) / scale
    assert found == pytest.approx(bisected(lambda e: gaussian_delta(e, mu), 1e-5), rel=1e-5)

    config = dataclasses.replace(config, noise="laplace")
    found = composition.epsilon_of(pategan.mechanism(config, small.TABLE).events(steps), 1e-5)
    exact = bisected(lambda e: exact_delta(e, batch * steps, scale), 1e-5)
    assert exact * (1 - 1e-6) <= found <= 1.02 * exact
    fewer = bisected(lambda e: exact_delta(e, steps, scale), 1e-5)  # the fault: a batch for a vote
    assert found > 1.1 * fewer


def test_11_delta_enters_by_its_logarithm():
    """borealis:98 and smartnoise:90, issues 11 and 596: the logarithm of 1 / delta is missing,
    which charges absurdly much, and hides what a run costs."""
    events = pategan.mechanism(LAPLACE, small.TABLE).events(10)
    spent = [composition.epsilon_of(events, delta) for delta in (1e-3, 1e-5, 1e-7)]
    rdp = 10 * small.ROWS / (2 * small.CONFIG.sigma**2)  # epsilon^2 / 2 a vote, at order 1
    for epsilon, delta in zip(spent, (1e-3, 1e-5, 1e-7), strict=True):
        assert epsilon <= rdp + math.sqrt(4 * rdp * math.log(1 / delta)) < 1 / delta
    assert 0 < spent[1] - spent[0] < 3 and 0 < spent[2] - spent[1] < 3


def check_charged(mechanism):
    """Whatever the votes were, a step costs the same, and what was charged stays charged."""
    charged = mechanism.events(3)
    for count in (0, 3, small.UNITS):
        votes = np.full(mechanism.shape, count, np.int32)
        bits = np.zeros(mechanism.bits_shape, np.uint32)
        answered = np.asarray(mechanism.answered(mechanism.decide(votes, bits)))
        assert mechanism.actual_charge(np.stack([answered] * 3), charged) == charged


def test_12_a_clear_majority_is_charged_too():
    """synthcity.py:276-280: the accounting is skipped where at least half of the teachers vote
    real."""
    for config in (small.CONFIG, LAPLACE):
        check_charged(pategan.mechanism(config, small.TABLE))
    mechanism = pategan.mechanism(small.CONFIG, small.TABLE)

    class Skipping(type(mechanism)):
        def answered(self, outcome):
            return outcome

        def actual_charge(self, answered, charged):
            return tuple((event, int((answered.mean(1) <= 0.5).sum())) for event, _ in charged)

    with pytest.raises(AssertionError):
        check_charged(Skipping(**vars(mechanism)))


def naive_moments(log_q, rate, moments):
    """The data-dependent bound of the papers, wherever it is not valid."""
    q, twice = np.exp(log_q)[:, None], 2 * rate
    with np.errstate(all="ignore"):
        return np.log((1 - q) * ((1 - q) / (1 - math.exp(twice) * q))**moments
                      + q * np.exp(twice * moments))


def test_13_the_moments_of_tied_votes_are_finite():
    """updated, issue 38: the data-dependent bound is used where it is not valid, beyond
    q = (e^(2 l) - 1) / (e^(4 l) - 1); its NaN ends the loop without a word."""
    noise, moments = DiscreteLaplace(2.0), np.arange(1, 101)
    assert not np.isfinite(naive_moments(np.log([0.4]), 0.5, moments)).all()
    found = pate.count_test_rdp(6, 10, noise.log_tail, moments + 1)
    assert np.isfinite(found).all() and (found > 0).all()
    assert (found <= (moments + 1) / (2 * 2.0**2) + 1e-12).all()
    # and it decides nothing: a run is charged without looking at its votes
    check_charged(pategan.mechanism(dataclasses.replace(LAPLACE, decode="majority"), small.TABLE))
