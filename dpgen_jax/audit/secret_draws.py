"""Attacks on schedules that draw units in secret: several rounds, and the frequencies of draws."""

from __future__ import annotations

import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.special import ndtri
from scipy.stats import chi2

from dpgen_jax.aggregation.bits import OsBits
from dpgen_jax.aggregation.mechanism import release
from dpgen_jax.audit import attacks, lowered, pairs
from dpgen_jax.audit.findings import Findings
from dpgen_jax.core.types import Array, Private

ROUNDS = 8
"""rounds of one transcript"""
LONGEST = 256
"""transcripts that are made at once"""
MOST = 6000
"""transcripts of each sum, at most"""


def told(mechanism: Any, n: int) -> np.ndarray:
    """Draws n rounds by the schedule itself, and returns what the first unit was given: int32 [n].

    Where places are sampled that is 0, its own number, if it has a place, and else -1.
    """
    cohorts = mechanism.schedule.cohorts(OsBits(), 0, n)
    inputs = mechanism.private_inputs(OsBits(), cohorts, 0)[..., 0]
    if mechanism.schedule.batch_capacity is None:
        return np.asarray(inputs[0], np.int32)
    return np.where((inputs == 0).any(0), 0, -1).astype(np.int32)


def transcripts(mechanism: Any, message: np.ndarray, direction: np.ndarray, seconds: float,
                most: int) -> np.ndarray:
    """Returns projections of releases, of rounds in which one unit answers where it is drawn.

    Args:
        mechanism: One whose schedule draws units in secret; the other units add nothing.
        message: float32 [B, M], of the unit.
        direction: int32 [B, D].
        seconds: How long.
        most: Transcripts at most.

    Returns:
        float [n, `ROUNDS`], in integers of the grid.
    """
    scale = mechanism.bound.grid / mechanism.schedule.expected_answers(mechanism.n_units)

    @jax.jit
    def block(participation: Array, bits: Array) -> Array:
        def one(i: Array, out: Array) -> Array:
            added = mechanism.contribution(jax.random.key(i), message, participation[i][None])
            total = mechanism.added(jnp.zeros(mechanism.shape, jnp.int32), added[None])
            outcome = release(mechanism, bits[i], Private(total))
            return out.at[i].set(jnp.sum(mechanism.value(outcome) / scale * direction))

        return lax.fori_loop(0, len(participation), one, jnp.zeros(len(participation)))

    size = 4 * math.prod(mechanism.bits_shape) * ROUNDS
    at_once = max(1, min(LONGEST, 2**25 // size))
    made: list[np.ndarray] = []
    until = math.inf
    while not made or (len(made) * at_once < most and time.monotonic() < until):
        n = at_once * ROUNDS
        made.append(np.asarray(block(told(mechanism, n), OsBits().draw(
            (n, *mechanism.bits_shape)))).reshape(at_once, ROUNDS))
        until = min(until, time.monotonic() + seconds)  # compilation is not drawing
    return np.concatenate(made)[:most]


def audit(mechanism: Any, seconds: float, found: Findings, name: str) -> None:
    """Adds the attack on several rounds of secret draws.

    Args:
        mechanism: One whose schedule draws units in secret.
        seconds: How long.
        found: Where findings are added.
        name: Of the mechanism.
    """
    plain = lowered.drawn(mechanism)
    pair = pairs.search(plain, plain.shape, 0, np.random.default_rng())
    length = math.sqrt(float((pair.added[0].astype(float)**2).sum()))
    direction, sigma = pair.added[0] / max(length, 1e-9), plain.noise.sigma
    shifts = [float((added * direction).sum()) / sigma for added in pair.added]
    rate = lowered.SAMPLED / lowered.UNITS

    def score(rounds: np.ndarray) -> np.ndarray:
        one, other = (np.log1p(rate * np.expm1(np.clip(
            rounds / sigma * shift - shift**2 / 2, -50, 50))) for shift in shifts)
        return (one - other).sum(1)

    ones, zeros = (score(transcripts(plain, message, direction, seconds / 2, MOST))
                   for message in pair.messages)
    n = min(len(zeros), len(ones))
    attacks.judge(
        found, f"{name}: {ROUNDS} rounds of {type(plain.schedule).__name__}",
        plain.events(ROUNDS), attacks.Scores(zeros[:n], ones[:n]),
        f"{lowered.SAMPLED} of {lowered.UNITS} units drawn, mu {shifts[0] - shifts[1]:.3g} where "
        "it is known who")


def frequencies(mechanism: Any, seconds: float, found: Findings, name: str, alarm: float) -> None:
    """Adds whether units are drawn as often as is charged, and each as often as any other."""
    schedule, units = mechanism.schedule, mechanism.n_units
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
