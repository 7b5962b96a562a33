"""Attacks on one mechanism: its sensitivity, its releases, and its secret draws."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from dpgen_jax.accountant import gaussian
from dpgen_jax.accountant.events import Events
from dpgen_jax.aggregation.confident_gnmax import ConfidentGNMax
from dpgen_jax.aggregation.local import LocalMechanism
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.audit import lowered, pairs, places, releases, statistics
from dpgen_jax.audit.findings import ALARM, Finding, Findings
from dpgen_jax.audit.lowered import NoisySum
from dpgen_jax.core.types import Array

ENOUGH, MOST = 2**16, 2**20
"""trials of each sum, at most: with noise that was lowered, and at a preset's own"""
FEWEST = 16
"""releases of each sum, at least, however many trials are in one"""
SHOWN = 0.05
"""1 - confidence of the bounds that are shown; an alarm needs `ALARM`"""


def as_it_is(noised: Array, n_units: float) -> Array:
    """Decodes a noisy sum as it is: the release that proofs are about."""
    del n_units
    return noised.astype("float32")


@dataclasses.dataclass(frozen=True)
class Scores:
    """Scores of releases of two sums, higher for the second one.

    Attributes:
        zeros: float [n].
        ones: float [n].
    """

    zeros: np.ndarray
    ones: np.ndarray

    def curve(self) -> dict[str, list[float]]:
        """Returns points of the trade-off curve that are certified together, at 95 %."""
        first = statistics.training_part(len(self.zeros))
        tried = np.quantile(self.ones[:first], np.linspace(0.02, 0.98, 25))
        alpha = SHOWN / (2 * len(tried))
        zeros, ones = self.zeros[first:], self.ones[first:]
        return {"false_positives": statistics.above(
                    (zeros[:, None] > tried).sum(0), len(zeros), alpha).tolist(),
                "false_negatives": statistics.above(
                    (ones[:, None] <= tried).sum(0), len(ones), alpha).tolist()}


def attacked(mechanism: Mechanism, totals: np.ndarray, seconds: float, most: int = ENOUGH
             ) -> Scores:
    """Makes releases of two sums, and scores them."""
    return Scores(*releases.scores(*releases.draw(mechanism, totals, seconds, most)))


def totals_of(mechanism: NoisySum, pair: pairs.Pair) -> np.ndarray:
    """Returns the two sums int32 [2, B, D]; of clients with noise of their own the messages."""
    if isinstance(mechanism, LocalMechanism):
        return pair.messages
    others = releases.near(mechanism.decode, mechanism.n_units, pair.added[0] != pair.added[1])
    return (others + pair.added).astype(np.int32)


def sensitivity(mechanism: Mechanism, pair: pairs.Pair, found: Findings, name: str) -> Finding:
    """Adds whether any two messages move the sum further than is declared."""
    declared = mechanism.bound.squared_sensitivity()
    return found.found(
        f"{name}: sensitivity", pair.squared <= declared,
        f"of {pair.tried} pairs of messages", measure="squared sensitivity",
        claimed=float(declared), certified=float(pair.squared), confidence=1.0)


def tried(mechanism: Mechanism, trials: places.Trials, seconds: float, most: int) -> Scores:
    """Makes releases of sums with many trials, and scores each trial by the entries it moves."""
    releases_of_each = max(FEWEST, most // trials.count)
    return Scores(*(features.astype(float).ravel() for features in releases.draw(
        mechanism, trials.totals, seconds, releases_of_each, trials.features())))


def judge(found: Findings, check: str, events: Events, scores: Scores, detail: str) -> None:
    """Adds what scores certify of the claim of events: mu, and where they are not Gaussian epsilon.

    It fails where the claim is exceeded at a confidence of 1 - `ALARM`.
    """
    mu, n = lowered.mu_of(events), len(scores.zeros)

    def add(measure: str, claimed: float, value: statistics.Value) -> None:
        shown, alarm = (float(np.max(statistics.certified(scores.zeros, scores.ones, alpha, value)))
                        for alpha in (SHOWN, ALARM))
        reach = statistics.in_reach(promised(events), n, SHOWN, value)
        found.found(check, alarm <= claimed, f"{detail}, {n} trials of each sum, of which the best "
                    f"test would certify {reach:.3g}", measure=measure, claimed=claimed,
                    certified=shown, confidence=1 - SHOWN)

    if mu is not None:
        add("mu", mu, statistics.mu_of)
        return
    for delta in lowered.DELTAS:
        add(f"epsilon at delta {delta:g}", gaussian.epsilon(events, delta),
            statistics.epsilon_of(delta))


def noisy_sum(mechanism: NoisySum, pair: pairs.Pair, seconds: float, found: Findings, name: str
              ) -> tuple[Events, Scores]:
    """Adds the attack on the noisy sum, which proofs are about, with its noise lowered."""
    plain = lowered.single(mechanism)
    scores, detail = of_sum(plain, pair, seconds, ENOUGH)
    judge(found, f"{name}: noisy sum", plain.events(1), scores, detail)
    return plain.events(1), scores


def of_sum(plain: NoisySum, pair: pairs.Pair, seconds: float, most: int) -> tuple[Scores, str]:
    """Attacks one release of a noisy sum, as it is; of clients with noise of their own one message.

    Args:
        plain: The mechanism, of which no draw is secret.
        pair: The best pair of messages.
        seconds: How long.
        most: Trials of each sum, at most.

    Returns:
        The scores, and what was attacked in words.
    """
    if isinstance(plain, LocalMechanism):
        return attacked(plain, totals_of(plain, pair), seconds, most), _noise(plain)
    plain = dataclasses.replace(plain, decode=as_it_is)
    trials = places.found(plain, pair, seconds / 4, np.random.default_rng())
    scores = (tried(plain, trials, 0.75 * seconds, most) if trials.count > 1
              else attacked(plain, totals_of(plain, pair), seconds, most))
    share = math.sqrt(trials.nearest / plain.bound.squared_sensitivity())
    return scores, (f"{_noise(plain)}, {trials.count} trials a release, whose messages are "
                    f"{share:.1%} of the declared distance apart")


def decoded(mechanism: NoisySum, pair: pairs.Pair, seconds: float, found: Findings, name: str
            ) -> None:
    """Adds the attack on what is released: the noisy sum decoded, with its noise lowered."""
    plain = lowered.single(mechanism)
    scores = attacked(plain, totals_of(plain, pair), seconds)
    judge(found, f"{name}: what is released ({type(mechanism.decode).__name__})", plain.events(1),
          scores, _noise(plain))


def confident(mechanism: ConfidentGNMax, seconds: float, found: Findings, name: str
              ) -> tuple[Events, Scores]:
    """Adds the attacks on the tests and on the answers of Confident-GNMax."""
    u, (rows, bins) = mechanism.n_units, (mechanism.queries, mechanism.bound.bins)
    tie, test = (np.zeros((2, rows, bins), np.int32) for _ in range(2))
    half = (u - 1) // 2
    tie[:, :, 0], tie[:, :, -1] = [[half + 1], [half]], [[half], [half + 1]]
    needed = mechanism.votes_needed
    test[:, :, 0], test[:, :, -1] = [[needed - 1], [needed]], [[1], [0]]
    for what, plain, sums in (("one round at the preset's own noise", mechanism, test),
                              ("tests", lowered.tests(mechanism), test),
                              ("answers", lowered.answers(mechanism), tie)):
        scores = attacked(plain, sums.reshape(2, *mechanism.shape), seconds / 3)
        events = plain.events(1)
        judge(found, f"{name}: {what}", events, scores,
              f"sigma {plain.noise.sigma:.3g}, of the tests {plain.test_noise.sigma:.3g}, "
              f"threshold {plain.threshold:.3g}; which side of a tie a noisy count lies on keeps "
              "0.8 of its mu where there are many")
    return events, scores


def own_noise(mechanism: NoisySum, pair: pairs.Pair | None, seconds: float, found: Findings,
              name: str) -> None:
    """Adds what the time certifies of one release with the noise that a run has."""
    if pair is None:
        return
    plain = lowered.with_noise(mechanism, mechanism.noise)
    scores, detail = of_sum(plain, pair, seconds, MOST)
    mu, limit = lowered.mu_of(plain.events(1)), ""
    if mu is not None:
        needed = 2 * (2 * 1.96 * 1.2533 / (0.1 * mu))**2  # errors of 1/2: the widest interval
        limit = (f"; nine tenths of mu {mu:.3g} would take about {needed:.2g} trials of each sum"
                 if needed > len(scores.zeros) else "")
    judge(found, f"{name}: one release at the preset's own noise", plain.events(1), scores,
          detail + limit)


def _noise(mechanism: Mechanism) -> str:
    noise = mechanism.noise
    return f"{type(noise).__name__} of {getattr(noise, 'sigma', getattr(noise, 'scale', 0.0)):.4g}"


@functools.lru_cache(8)
def promised(events: Events) -> dict[str, list[float]]:
    """Returns the trade-off curve that events promise: the errors that no test goes below."""
    deltas = np.concatenate([np.logspace(-6, -1, 11), np.linspace(0.15, 0.99, 29)])
    pairs_ = [(gaussian.epsilon(events, float(delta)), delta) for delta in deltas]
    alphas = np.concatenate([np.logspace(-7, -1, 80), np.linspace(0.1, 1, 46)[1:]])
    floor = np.zeros_like(alphas)
    for epsilon, delta in pairs_:
        if math.isfinite(epsilon):
            floor = np.maximum(floor, np.maximum(
                1 - delta - np.exp(min(epsilon, 700)) * alphas,
                np.exp(-epsilon) * (1 - delta - alphas)))
    return {"false_positives": alphas.tolist(), "false_negatives": floor.tolist()}
