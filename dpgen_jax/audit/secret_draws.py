"""Attacks on schedules that draw units in secret: several rounds, and the frequencies of draws."""

from __future__ import annotations

import dataclasses
import math
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.special import ndtri
from scipy.stats import chi2

from dpgen_jax.aggregation.bits import OsBits
from dpgen_jax.aggregation.mechanism import Mechanism, SumMechanism, release
from dpgen_jax.aggregation.sampling import PoissonSampling
from dpgen_jax.audit import attacks, lowered, pairs
from dpgen_jax.audit.findings import Findings
from dpgen_jax.core.terms import Relation
from dpgen_jax.core.types import Array, Private

ROUNDS = 8
"""rounds of one transcript"""
LONGEST = 256
"""transcripts that are made at once"""
MOST = 2**20
"""trials of each sum, at most"""


def answers(mechanism: Mechanism, messages: np.ndarray, inputs: Array, key: Array) -> Array:
    """Returns the sum of one round, in which units answer as a run lets them: int32 [B, D].

    Args:
        mechanism: One whose schedule draws units in secret.
        messages: float32 [U, B, M].
        inputs: int32 [R, 1], of the round, as the schedule sampled them: the unit of each place, or
            whether each unit is counted.
        key: Of rounding.
    """
    sampled = mechanism.schedule.batch_capacity is not None
    units = inputs[:, 0] if sampled else jnp.arange(len(messages))
    said = jax.vmap(mechanism.contribution)(
        jax.random.split(key, len(inputs)), jnp.asarray(messages)[units], inputs)
    return mechanism.added(jnp.zeros(mechanism.shape, jnp.int32), said)


def transcripts(mechanism: Mechanism, messages: np.ndarray, seconds: float, most: int
                ) -> np.ndarray:
    """Returns the column of each unit in the releases of rounds in which units answer if sampled.

    Args:
        mechanism: One whose schedule draws units in secret.
        messages: float32 [U, B, M]; unit i moves column i alone.
        seconds: How long.
        most: Transcripts of the rounds of all units, at most.

    Returns:
        float [n, `ROUNDS`, D], in integers of the grid, over the root of B rows.
    """
    @jax.jit
    def block(inputs: Array, bits: Array) -> Array:
        def one(i: Array, out: Array) -> Array:
            total = answers(mechanism, messages, inputs[:, i], jax.random.key(i))
            value = mechanism.value(release(mechanism, bits[i], Private(total)))
            return out.at[i].set(value.sum(0) / math.sqrt(len(value)))

        return lax.fori_loop(0, len(bits), one, jnp.zeros((len(bits), mechanism.shape[1])))

    size = 4 * math.prod(mechanism.bits_shape) * ROUNDS
    n = max(1, min(LONGEST, most, 2**25 // size)) * ROUNDS
    made: list[np.ndarray] = []
    until = math.inf
    while not made or (len(made) * n < most * ROUNDS and time.monotonic() < until):
        cohorts = mechanism.schedule.cohorts(OsBits(), 0, n)
        inputs = np.asarray(mechanism.private_inputs(OsBits(), cohorts, 0), np.int32)
        made.append(np.asarray(block(inputs, OsBits().draw((n, *mechanism.bits_shape)))))
        until = min(until, time.monotonic() + seconds)  # compilation is not drawing
    return np.concatenate(made).reshape(-1, ROUNDS, mechanism.shape[1])


def audit(mechanism: SumMechanism, seconds: float, found: Findings, name: str) -> None:
    """Adds the attack on several rounds of secret draws.

    Each unit says one of two opposite things in a column of its own. Where units are drawn
    independently of each other each is a trial; else the first one is the only trial, and the
    others say nothing.

    Args:
        mechanism: One whose schedule draws units in secret.
        seconds: How long.
        found: Where findings are added.
        name: Of the mechanism.
    """
    plain = dataclasses.replace(lowered.drawn(mechanism), decode=attacks.as_it_is)
    independent = isinstance(plain.schedule, PoissonSampling)
    trials = plain.n_units if independent else 1
    messages = spikes(plain, trials)
    add = jax.jit(pairs.adder(plain))
    lengths = [float(np.sum(np.asarray(add(jax.random.key(0), side[0]))))
               / math.sqrt(plain.shape[0]) for side in messages]
    sigma, rate = lowered.gaussian(plain.noise).sigma, lowered.SAMPLED / lowered.UNITS
    shifts = np.array(lengths) / sigma

    def scores(side: np.ndarray) -> np.ndarray:
        z = transcripts(plain, side, seconds / 2, MOST // trials)[..., :trials] / sigma
        one, other = (np.log1p(rate * np.expm1(np.clip(z * shift - shift**2 / 2, -50, 50)))
                      for shift in shifts)
        return (one - other).sum(1).ravel()

    ones, zeros = (scores(side) for side in messages)
    n = min(len(zeros), len(ones))
    attacks.judge(
        found, f"{name}: {ROUNDS} rounds of {type(plain.schedule).__name__}",
        plain.events(ROUNDS), attacks.Scores(zeros[:n], ones[:n]),
        f"{lowered.SAMPLED} of {lowered.UNITS} units drawn, mu {shifts[0] - shifts[1]:.3g} where "
        f"it is known who, {trials} trials a transcript")


def spikes(mechanism: Mechanism, units: int) -> np.ndarray:
    """Returns messages float32 [2, U, B, M] of which those of unit i are in column i alone.

    Args:
        mechanism: One whose bound clips rows; its messages have a column for each unit.
        units: How many units say something.
    """
    rows, columns = mechanism.shape
    one = np.zeros((mechanism.n_units, rows, columns), np.float32)
    one[units:] = np.nan
    one[np.arange(units), :, np.arange(units)] = pairs.HUGE * lowered.clipping(mechanism).clip
    left_out = mechanism.bound.relation == Relation.ZERO_OUT
    return np.stack([one, np.full_like(one, np.nan) if left_out else -one])


def frequencies(mechanism: Mechanism, seconds: float, found: Findings, name: str, alarm: float
                ) -> None:
    """Adds whether units are drawn as often as is charged, and each as often as any other."""
    schedule, units = lowered.secret(mechanism), mechanism.n_units
    counts, rounds, until = np.zeros(units), 0, time.monotonic() + seconds
    while not rounds or time.monotonic() < until:
        n = max(1, min(64, 2**22 // units))
        participation = schedule.participation(OsBits(), units, 0, n)
        if schedule.batch_capacity is None:
            counts += (participation > 0).sum(1)
        else:
            counts += np.bincount(participation[participation >= 0], minlength=units)
        rounds += n
    rate = getattr(schedule, "rate", None) or schedule.expected_answers(units) / units
    spread = rounds * rate * (1 - rate)
    total = float((counts - rounds * rate).sum() / math.sqrt(spread * units))
    each = float(((counts - rounds * rate)**2 / spread).sum())
    # Of a binomial number with few expected hits the fourth moment is larger than of a normal one.
    slack = math.sqrt(1 + 1 / (2 * spread))
    most = units + 1.2 * slack * (float(chi2.isf(alarm / 2, units)) - units)
    fixed = schedule.batch_capacity is None
    found.found(
        f"{name}: how often units are drawn",
        (abs(total) < 1e-6 if fixed else abs(total) < -ndtri(alarm / 4)) and each < most,
        f"{rounds} rounds of {units} units: in all {total:+.2f} standard deviations from the law, "
        f"among units a sum of squares of {each:.4g}, at most {most:.4g}")
