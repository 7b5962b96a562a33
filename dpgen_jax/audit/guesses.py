"""The epsilon that guesses of coins certify, and the guesses that the charged mechanism allows."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import beta, binom

from dpgen_jax.accountant import gaussian
from dpgen_jax.accountant.events import (
    Events,
    LaplaceEvent,
    PoissonGaussianEvent,
    SampledGaussianEvent,
)
from dpgen_jax.audit import lowered, one_run
from dpgen_jax.audit.attacks import SHOWN
from dpgen_jax.audit.canaries import Canaries
from dpgen_jax.audit.findings import ALARM, Findings
from dpgen_jax.core.terms import Relation

SIMULATED = 20_000
"""coins of the simulation of a schedule with secret draws"""
SHARES = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02)
"""of the canaries, that may be guessed; the one that should certify most is chosen beforehand"""


@dataclasses.dataclass(frozen=True)
class Law:
    """The guesses that the mechanism, as charged, allows to the best attack.

    It is computed from the events alone, before the training.

    Attributes:
        ratios: float [K], simulated log likelihood ratios, positive where the guess is right.
        right: The most that the chance of a right guess can be, with the error of the simulation.
    """

    ratios: np.ndarray
    right: float

    @classmethod
    def of(cls, made: Canaries, steps: int) -> Law:
        """Returns the law of the guesses of a training of some rounds."""
        mechanism, rng = made.method.mechanism, np.random.default_rng()
        rounds = mechanism.schedule.max_participations(steps)
        event, times = mechanism.events(steps)[0]
        mu = lowered.mu_of(mechanism.events(steps))
        if mu is not None:
            ratios = mu * (rng.standard_normal(SIMULATED) + mu / 2)
            return cls(ratios, float(ndtr(mu / 2)))
        if isinstance(event, LaplaceEvent):
            return cls.of_laplace(event, times, rng)
        ratios = simulated(event, rounds, rng)
        hits = int((ratios > 0).sum())
        return cls(ratios, float(beta.ppf(1 - ALARM, hits + 1, len(ratios) - hits)))

    @classmethod
    def of_laplace(cls, event: LaplaceEvent, times: int, rng: np.random.Generator) -> Law:
        """Returns the law where each of some releases is (sensitivity / scale)-private.

        No such releases tell more than as many answers of randomised response (Kairouz, Oh and
        Viswanath, "The Composition Theorem for Differential Privacy", ICML 2015), which discrete
        Laplace noise of sensitivity 1 attains: each answer is right with a chance of e^eps / (1 +
        e^eps), and the best guess is that of the majority.

        Args:
            event: Of one release.
            times: How many releases.
            rng: Of the simulation.
        """
        epsilon = event.sensitivity / event.scale
        chance = 1 / (1 + math.exp(-epsilon))
        ties = float(binom.pmf(times / 2, times, chance)) if times % 2 == 0 else 0.0
        right = float(binom.sf(times // 2, times, chance)) + ties / 2
        ratios = epsilon * (2.0 * rng.binomial(times, chance, SIMULATED) - times)
        return cls(ratios, min(1.0, right + times * event.total_variation))

    def guessed(self, canaries: int, delta: float) -> int:
        """Returns how many coins to guess, so that epsilon at delta is certified best."""
        def expected(share: float) -> float:
            r = max(1, int(share * canaries))
            kept = np.abs(self.ratios) >= np.quantile(np.abs(self.ratios), 1 - share)
            right = int(r * (self.ratios[kept] > 0).mean())
            return one_run.certified_epsilon(canaries, r, right, delta / 2, SHOWN)

        return max(1, int(max(SHARES, key=expected) * canaries))


def simulated(event: object, rounds: int, rng: np.random.Generator) -> np.ndarray:
    """Returns log likelihood ratios of coins [K] under a schedule with secret draws.

    Args:
        event: Of one round.
        rounds: How many.
        rng: Of the simulation.
    """
    match event:
        case PoissonGaussianEvent():
            shift, rate = event.gaussian.sensitivity / event.gaussian.sigma, event.rate
            other = -shift if event.relation == Relation.REPLACE_ONE else 0.0
        case SampledGaussianEvent():
            shift = event.gaussian.sensitivity / event.gaussian.sigma / 2
            rate, other = event.rate, -shift
        case _:
            raise ValueError(f"{event} draws nobody in secret")
    total = np.zeros(SIMULATED)
    heads = rng.integers(0, 2, SIMULATED).astype(bool)
    for _ in range(rounds):
        sampled = rng.random(SIMULATED) < rate
        z = rng.standard_normal(SIMULATED) + sampled * np.where(heads, shift, other)
        total += (np.log1p(rate * np.expm1(z * shift - shift**2 / 2))
                  - np.log1p(rate * np.expm1(z * other - other**2 / 2)))
    return np.where(heads, total, -total)


class Guesses(NamedTuple):
    """The coins of canaries, and what a training told of them.

    Attributes:
        coins: int [N].
        ratio: float [N], log likelihood ratios of heads.
    """

    coins: np.ndarray
    ratio: np.ndarray


def judge(found: Findings, law: Law, guesses: Guesses, events: Events, delta: float, name: str
          ) -> None:
    """Adds what the guesses of a training certify.

    Args:
        found: Where findings are added.
        law: Of the guesses, as charged.
        guesses: Of the training.
        events: Of the whole training.
        delta: At which epsilon is certified.
        name: Of the method.
    """
    coins, ratio = guesses
    n, correct = len(coins), (ratio > 0) == (coins > 0)
    v = int(correct.sum())
    low = float(beta.ppf(SHOWN, v, n - v + 1)) if v else 0.0
    p = float(binom.sf(v - 1, n, law.right))
    found.found(f"{name}: coins that are guessed", p > ALARM,
                f"{v} of {n} guesses are right, p {p:.3g} of as many under the charged noise",
                measure="chance of a right guess", claimed=law.right, certified=low,
                confidence=1 - SHOWN)
    mu = lowered.mu_of(events)
    if mu is not None:
        found.found(f"{name}: mu of the training, where noise of canaries is independent",
                    p > ALARM, "the noise of different entries is tested by the audit of the "
                    "mechanism", measure="mu", claimed=mu,
                    certified=max(0.0, 2 * float(ndtri(low))), confidence=1 - SHOWN)
    tied = "" if mu is None else (
        f"; of all {n} guesses together mu {one_run.certified_mu(n, n, v, SHOWN):.3g}")
    r = law.guessed(n, delta)
    likely = np.argsort(-np.abs(ratio), kind="stable")[:r]
    right = int(correct[likely].sum())
    curve = [(gaussian.epsilon(events, d), d) for d in np.append(10.0**-np.arange(2, 9), delta)]
    shrink = one_run.of_pairs([pair for pair in curve if math.isfinite(pair[0])])
    found.found(f"{name}: epsilon of the training, whatever depends on whatever",
                not one_run.rejected(shrink, n, r, right, ALARM),
                f"{right} of the {r} most likely guesses are right{tied}",
                measure=f"epsilon at delta {delta:g}", claimed=curve[-1][0],
                certified=one_run.certified_epsilon(n, r, right, delta, SHOWN),
                confidence=1 - SHOWN)
