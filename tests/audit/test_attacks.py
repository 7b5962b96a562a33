"""The attacks on a mechanism at toy size: they certify most of what is claimed, raise no alarm
where all is well, and catch planted faults."""

import dataclasses
import functools
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from planted import toy as adversary

from dpgen_jax.aggregation.noise import RoundedGaussian
from dpgen_jax.aggregation.topagg import TopKSign, magnitude_bits
from dpgen_jax.audit import attacks, pairs
from dpgen_jax.audit import mechanism as audit_mechanism
from dpgen_jax.audit.findings import ALARM, Findings, Verdict

pytestmark = pytest.mark.slow
SOUND = adversary.mechanism()


@functools.cache
def worst(mechanism):
    """The best pair after 40 rounds of search: seconds are counted by how often they are read."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pairs, "time", SimpleNamespace(monotonic=itertools.count().__next__))
        return pairs.search(mechanism, adversary.SHAPE, 80, np.random.default_rng(0))


def scores(mechanism, n):
    plain = dataclasses.replace(attacks.lowered(mechanism), decode=attacks.as_it_is)
    return plain, attacks.attacked(plain, attacks.totals_of(plain, worst(mechanism)), 60, n)


def failing(mechanism, n=2000) -> set[str]:
    """The checks that fail, of those that look at one mechanism."""
    found = Findings()
    attacks.sensitivity(mechanism, worst(mechanism), found, "")
    plain, made = scores(mechanism, n)
    attacks.judge(found, ": noisy sum", plain.events(1), made, "")
    audit_mechanism.audit_law(mechanism, 0, found, "")
    return {finding.check[2:] for finding in found.made if finding.verdict == Verdict.FAILS}


def test_a_sound_mechanism_passes_and_most_of_it_is_certified():
    found = Findings()
    plain, made = scores(SOUND, 4000)
    attacks.judge(found, "", plain.events(1), made, "")
    assert found.made[0].share > 0.8  # 0.947 with a deviation of 0.021
    assert worst(SOUND).squared == SOUND.bound.squared_sensitivity()
    assert failing(SOUND) == set()


def test_no_alarm_in_200_sound_audits():
    _, made = scores(SOUND, 200 * 200)
    zeros, ones = (side.reshape(200, -1) for side in (made.zeros, made.ones))
    alarms = attacks.certified(zeros, ones, attacks.mu_of, ALARM)
    assert alarms.max() <= attacks.MU and alarms.min() > 0.5


@dataclasses.dataclass(frozen=True)
class HalfDrawn(RoundedGaussian):
    def sample(self, bits):
        return RoundedGaussian(self.sigma / 2).sample(bits)


@dataclasses.dataclass(frozen=True)
class SqrtTwo(TopKSign):
    def squared_sensitivity(self):
        return super().squared_sensitivity() // 2


@dataclasses.dataclass(frozen=True)
class AllTies(TopKSign):
    def project(self, key, message):
        import jax.numpy as jnp

        order = magnitude_bits(message)
        kth = jnp.sort(order, -1)[..., -self.top_k][..., None]
        return jnp.where(order >= kth, jnp.sign(message), 0).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class SameTwice(RoundedGaussian):
    """Two neighbouring entries have the same noise."""

    def sample(self, bits):
        return super().sample(bits).at[..., 1::2].set(super().sample(bits)[..., ::2])


@pytest.mark.parametrize(("fields", "caught"), [
    ({"noise": HalfDrawn(adversary.SIGMA)}, {"noisy sum", "law of the noise"}),
    ({"bound": SqrtTwo(adversary.TOP_K, adversary.ROWS)}, {"sensitivity", "noisy sum"}),
    ({"bound": AllTies(adversary.TOP_K, adversary.ROWS)}, {"sensitivity", "noisy sum"}),
    ({"noise": SameTwice(adversary.SIGMA)}, {"independence of the noise"}),
], ids=lambda value: "" if isinstance(value, set) else type(next(iter(value.values()))).__name__)
def test_a_planted_fault_is_caught(fields, caught):
    assert caught <= failing(adversary.mechanism(**fields))
