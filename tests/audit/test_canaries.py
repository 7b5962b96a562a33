"""Canaries of every kind of release: coins are guessed as well as the charge allows, or nearly, and
better where the noise is half of what is charged."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

from dpgen_jax.aggregation.clip import GradientL2
from dpgen_jax.aggregation.mechanism import LocalMechanism, SumMechanism
from dpgen_jax.aggregation.moments import SHIFT, Moments
from dpgen_jax.aggregation.noise import OsBits, RoundedGaussian, SeededBits
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.aggregation.teacher_votes import ConfidentGNMax, OneHot
from dpgen_jax.audit import attacks, canaries
from dpgen_jax.audit.attacks import as_it_is
from dpgen_jax.core.terms import Unit
from dpgen_jax.core.types import Method, Records

UNITS, N, MU, ROUNDS, COLUMNS = 400, 150, 1.6, 4, 200


@dataclasses.dataclass(frozen=True)
class HalfDrawn(RoundedGaussian):
    def sample(self, bits):
        return RoundedGaussian(self.sigma / 2).sample(bits)


def noise_of(bound, kind):
    return kind(np.sqrt(ROUNDS * bound.squared_sensitivity()) / MU)


def winners(kind):
    bound = OneHot(4, 30, 2, 1.0)
    # The tests, too, cost something: little beside the answers.
    return ConfidentGNMax(bound=bound, noise=noise_of(bound, kind), test_noise=kind(60.0),
                          schedule=FullParticipation(), n_units=UNITS, threshold=1e-9)


def clients(kind):
    bound = GradientL2(1.0, COLUMNS, 255, unit=Unit.CLIENT)
    return LocalMechanism(bound=bound, noise=noise_of(bound, kind), schedule=FullParticipation(),
                          n_units=UNITS, shape=(1, COLUMNS), decode=as_it_is)


def blocks(kind):
    bound = Moments(blocks=20, square_blocks=20, length=9, shades=0, levels=40,
                    first=9 * 2**SHIFT, square=5 * 2**SHIFT, count=20,
                    tint=0, columns=1200, limit=2**30)
    bound = dataclasses.replace(bound, limit=bound.exact)
    return SumMechanism(bound=bound, noise=noise_of(bound, kind), schedule=FullParticipation(),
                        n_units=UNITS, shape=(1, 1200), decode=as_it_is)


KINDS = {winners: (2, 30), clients: (1, COLUMNS), blocks: (1, 10)}


def right(kind, noise) -> tuple[int, float]:
    """How many coins are guessed after some rounds, and the mu that these are charged."""
    mechanism, shape, rng = kind(noise), KINDS[kind], np.random.default_rng(3)
    method = Method(mechanism=mechanism, init=None, ask=None, absorb=None,
                    answer=lambda key, unit, records, query: jnp.ones(shape))
    made = canaries.chosen(method, [shape], 3, N, rng)
    seen, coins = canaries.seen(mechanism), rng.integers(0, 2, N)
    y, source = made.labels(np.zeros(UNITS, np.int32), coins), SeededBits(3)

    @jax.jit
    def ratio(step, inputs, bits):
        def unit(key, label, private_input):
            records = Records(jnp.zeros(1), label[None])
            message = made.answer(key, (), records, canaries.Query((), step))
            return seen.contribution(key, message, private_input)

        said = jax.vmap(unit)(jax.random.split(jax.random.key(step), UNITS), y, inputs)
        outcome = seen.decide(seen.added(jnp.zeros(seen.shape, jnp.int32), said), bits)
        return made.evidence(seen.value(outcome), step)

    ratios = sum(ratio(i, seen.private_inputs(source, np.zeros(1, np.int32), i)[:, 0],
                       source.draw(seen.bits_shape)) for i in range(ROUNDS))
    return int(((np.asarray(ratios) > 0) == (coins > 0)).sum()), attacks.gaussian_mu(
        mechanism.events(ROUNDS))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_coins_are_guessed_as_the_charge_allows_and_better_with_half_the_noise(kind):
    sound, mu = right(kind, RoundedGaussian)
    assert binom.sf(sound - 1, N, ndtr(mu / 2)) > 1e-6
    assert binom.cdf(sound, N, ndtr(0.6 * mu / 2)) > 1e-6 and sound > 0.55 * N
    assert right(kind, HalfDrawn)[0] > sound


def test_a_server_sees_of_a_client_what_its_canary_may_set():
    seen = canaries.seen(clients(RoundedGaussian))
    message = jnp.zeros((1, COLUMNS)).at[0, 7].set(5.0)
    bits = OsBits().draw(seen.client_bits_shape)
    sent = clients(RoundedGaussian).contribution(jax.random.key(0), message, bits)
    kept = np.asarray(seen.contribution(jax.random.key(0), message, bits))
    assert kept[0, 7] == sent[0, 7] and np.count_nonzero(kept) <= 1
