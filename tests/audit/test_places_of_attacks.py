"""Many trials in one release: each has entries of its own, and together they certify the claim."""

import dataclasses

import numpy as np
import pytest

from dpgen_jax.aggregation.clip import GradientL2
from dpgen_jax.aggregation.mechanism import SumMechanism
from dpgen_jax.aggregation.moments import SHIFT, Moments
from dpgen_jax.aggregation.noise import RoundedGaussian
from dpgen_jax.aggregation.schedule import FullParticipation, PoissonSampling
from dpgen_jax.audit import attacks, pairs
from dpgen_jax.audit import mechanism as audit_mechanism
from dpgen_jax.audit.findings import Findings, Verdict

COLUMNS, LEVELS = 60, 255


def mechanism(bound, columns, noise=RoundedGaussian, **fields):
    sigma = np.sqrt(bound.squared_sensitivity()) / attacks.MU
    return SumMechanism(**{
        "bound": bound, "noise": noise(sigma), "schedule": FullParticipation(), "n_units": 50,
        "shape": (1, columns), "decode": attacks.as_it_is, "relation": bound.relation} | fields)


def gradients(**fields):
    return mechanism(GradientL2(1.0, COLUMNS, LEVELS), COLUMNS, **fields)


def moments(square_blocks):
    bound = Moments(blocks=5, square_blocks=square_blocks, length=6, shades=0, levels=40,
                    first=9 * 2**SHIFT, square=5 * 2**SHIFT,
                    count=20, tint=0, columns=200, limit=2**30)
    return mechanism(dataclasses.replace(bound, limit=bound.exact), 200)


def best(made, shape):
    return pairs.search(made, shape, 0, np.random.default_rng(0))


@pytest.mark.parametrize(("made", "shape", "fewest"), [
    (gradients(), (1, COLUMNS), 40), (moments(0), (1, 7), 20), (moments(5), (1, 7), 5)],
    ids=["gradients", "moments", "products"])
def test_each_trial_moves_entries_of_its_own_as_far_as_it_says(made, shape, fewest):
    trials = attacks.found_places(made, best(made, shape), 10, np.random.default_rng(1))
    assert trials.count >= fewest and len(set(trials.entries)) == len(trials.entries)
    one, other = trials.totals.reshape(2, -1)[:, trials.entries].astype(float)
    distances = np.bincount(trials.owner, (one - other)**2)
    assert len(distances) == trials.count and distances.min() == trials.nearest
    assert 0.7 * made.bound.squared_sensitivity() < distances.min()
    assert distances.max() <= made.bound.squared_sensitivity()


@dataclasses.dataclass(frozen=True)
class HalfDrawn(RoundedGaussian):
    def sample(self, bits):
        return RoundedGaussian(self.sigma / 2).sample(bits)


def verdict(made, check):
    found = Findings()
    if check == "noisy sum":
        attacks.noisy_sum(made, best(made, (1, COLUMNS)), 60, found, "toy")
    else:
        audit_mechanism.audit_secret_draws(made, 0, found, "toy")
    return found.made


def test_a_few_releases_certify_nearly_all_and_half_the_noise_is_caught():
    sound, = verdict(gradients(), "noisy sum")
    assert sound.verdict == Verdict.HOLDS and 0.88 < sound.share < 1.1
    assert "trials a release" in sound.detail and "best test would certify" in sound.detail
    assert verdict(gradients(noise=HalfDrawn), "noisy sum")[0].verdict == Verdict.FAILS


@dataclasses.dataclass(frozen=True)
class Charged(PoissonSampling):
    """The planted fault: three in four are sampled where a quarter is charged."""

    def participation(self, source, n_units, first_round, n):
        often = PoissonSampling(self.units, 3 * self.expected)
        drawn = often.participation(source, n_units, first_round, n)
        return drawn[:self.batch_capacity]


@pytest.mark.slow
@pytest.mark.parametrize(("schedule", "outcome"), [(PoissonSampling, Verdict.HOLDS),
                                                   (Charged, Verdict.FAILS)])
def test_every_unit_is_a_trial_of_secret_draws(schedule, outcome):
    findings = verdict(gradients(schedule=schedule(50, 10)), "draws")
    assert findings[0].verdict == outcome and "64 trials a transcript" in findings[0].detail
    if outcome == Verdict.HOLDS:
        assert all(finding.share > 0.5 for finding in findings[:2])  # 0.70, deviation 0.02
