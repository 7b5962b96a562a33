"""Trainings with Laplace noise: their law of guesses, what is certified, and too little noise."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom

from dpgen_jax.accountant import composition
from dpgen_jax.accountant.events import LaplaceEvent
from dpgen_jax.aggregation.noise import DiscreteLaplace, SeededBits
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.aggregation.teacher_votes import LabelMechanism, LabelVotes, Majority
from dpgen_jax.audit import canaries
from dpgen_jax.audit.findings import ALARM, Findings, Verdict
from dpgen_jax.core.types import Method, Records

UNITS, N, ROUNDS, ROWS, SCALE, DELTA = 400, 300, 4, 1600, 60.0, 1e-5


@dataclasses.dataclass(frozen=True)
class QuarterDrawn(DiscreteLaplace):
    def sample(self, bits):
        wider = DiscreteLaplace(self.scale / 4)
        return wider.sample(bits[..., :wider.digits, :])


def draws(scale, shape, rng):
    """Discrete Laplace noise, as the difference of two geometric numbers."""
    chance = -np.expm1(-1 / scale)
    return rng.geometric(chance, shape) - rng.geometric(chance, shape)


@pytest.mark.parametrize("times", [1, 6, 25])
def test_the_law_is_the_best_guess_of_many_noisy_counts_and_no_attack_beats_it(times):
    rng, scale, tried = np.random.default_rng(0), 2.5, 40_000
    law = canaries.Law.of_laplace(LaplaceEvent(scale, 1), times, rng)
    coins = rng.integers(0, 2, (tried, 1))
    noised = coins + draws(scale, (tried, times), rng)
    ratio = (np.abs(noised) - np.abs(noised - 1)).sum(1)
    ties = ratio == 0
    right = ((ratio > 0) == coins[:, 0])[~ties].sum() + ties.sum() / 2
    assert abs(right - tried * law.right) < 5 * np.sqrt(tried * law.right * (1 - law.right))
    assert (law.ratios > 0).mean() + (law.ratios == 0).mean() / 2 == pytest.approx(
        law.right, abs=0.02)


def findings(law, coins, ratio, events):
    found = Findings()
    canaries.judge(found, law, canaries.Guesses(coins, ratio), events, DELTA, "toy")
    return found.made


def test_a_bound_covers_the_truth_as_often_as_it_says_and_is_near_it():
    """200 trainings of one release, each canary with a count of its own: no alarm in any."""
    rng, n, event = np.random.default_rng(1), 400, LaplaceEvent(0.8, 1)
    law, certified = canaries.Law.of_laplace(event, 1, rng), []
    truth = composition.epsilon_of(((event, 1),), DELTA)
    for _ in range(200):
        coins = rng.integers(0, 2, n)
        noised = coins + draws(event.scale, n, rng)
        right = int(((np.abs(noised) > np.abs(noised - 1)) == coins).sum())
        assert binom.sf(right - 1, n, law.right) > ALARM
        assert not canaries.rejected(canaries.of_pairs([(truth, DELTA)]), n, n, right, ALARM)
        certified.append(canaries.certified_epsilon(n, n, right, DELTA))
    made = findings(law, coins, (np.abs(noised) - np.abs(noised - 1)) / event.scale, ((event, 1),))
    assert made[0].claimed == law.right and made[-1].certified == certified[-1]
    assert {finding.verdict for finding in made} == {Verdict.HOLDS}
    assert binom.sf((np.array(certified) > truth).sum() - 1, 200, 0.05) > ALARM
    assert 0.7 * truth < np.median(certified) < truth


def guessed(noise):
    """The findings on guesses of canaries among the votes of teachers, in some rounds."""
    rng, source = np.random.default_rng(3), SeededBits(3)
    mechanism = LabelMechanism(bound=LabelVotes(ROWS), noise=noise(SCALE), n_units=UNITS,
                               schedule=FullParticipation(), shape=(ROWS, 1), decode=Majority())
    method = Method(mechanism=mechanism, init=None, ask=None, absorb=None,
                    answer=lambda key, unit, records, query: jnp.ones((ROWS, 1)))
    made = canaries.chosen(method, [(ROWS, 1)], 2, N, rng)
    seen, coins = canaries.seen(mechanism), rng.integers(0, 2, N)
    y = made.labels(np.zeros(UNITS, np.int32), coins)

    @jax.jit
    def ratio(step, bits):
        def unit(key, label):
            message = made.answer(key, (), Records(jnp.zeros(1), label[None]),
                                  canaries.Query((), step))
            return seen.contribution(key, message, jnp.zeros(0, jnp.int32))

        said = jax.vmap(unit)(jax.random.split(jax.random.key(step), UNITS), y)
        outcome = seen.decide(seen.added(jnp.zeros(seen.shape, jnp.int32), said), bits)
        return made.evidence(seen.value(outcome), step)

    ratios = sum(np.asarray(ratio(i, source.draw((1, *seen.bits_shape))[0]))
                 for i in range(ROUNDS))
    return findings(canaries.Law.of(made, ROUNDS), coins, ratios, mechanism.events(ROUNDS))


@pytest.mark.slow
def test_votes_with_laplace_noise_leak_what_is_charged_and_a_quarter_of_the_noise_is_caught():
    sound, caught = guessed(DiscreteLaplace), guessed(QuarterDrawn)
    assert all(finding.verdict == Verdict.HOLDS for finding in sound)
    assert sound[0].claimed == pytest.approx(0.747, abs=0.01)  # 6,400 counts at scale 60
    assert sound[0].certified > 0.6
    assert caught[0].verdict == Verdict.FAILS
