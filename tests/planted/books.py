"""The ledger of the toy: charged before anything is drawn, whatever crashes, and enough.

What is enough is computed by formulas that are written down here once more, and share no code with
the accountant.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from dpgen_jax.accountant import composition
from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.clip import GradientL2, GridMean
from dpgen_jax.aggregation.mechanism import SumMechanism
from dpgen_jax.aggregation.noise import OsBits, RoundedGaussian
from dpgen_jax.aggregation.schedule import (
    FixedSizeSampling,
    FullParticipation,
    PoissonSampling,
    PublishedSampling,
    RoundRobin,
)
from dpgen_jax.aggregation.teacher_votes import ConfidentGNMax, OneHot
from dpgen_jax.core.types import Method
from dpgen_jax.private.teachers import Layout
from dpgen_jax.run import loop
from planted import toy

DELTA, ROUNDS = 1e-5, 6
ANSWER_SIGMA = 40.0
SLACK = 1 - 1e-6
"""of an epsilon that is computed by hand: what rounding and integration may cost"""


class Killed(BaseException):
    """Ends a run at a moment; nothing catches it."""


class Watched(OsBits):
    """Bits of the operating system that look at the ledger's file whenever they are drawn."""

    def __init__(self, path: Path, killed_at: int):
        """Begins to count; the run is killed at this draw, from 1."""
        self._path, self._killed_at = path, killed_at
        self.draws, self.rounds, self.late = 0, 0, ""

    def draw(self, shape: tuple[int, ...]) -> np.ndarray:
        """Draws, and compares what was drawn so far with what is charged on the disk."""
        self.draws, self.rounds = self.draws + 1, self.rounds + shape[0]
        charged = books.account(books.read(self._path)).steps
        if charged < self.rounds and not self.late:
            self.late = f"round {self.rounds} was drawn when {charged} rounds were charged"
        if self.draws == self._killed_at:
            raise Killed
        return super().draw(shape)


def idle(method: Method, layout: Layout) -> Callable[..., Any]:
    """A block that computes nothing, in place of `loop.compile_block`."""
    return lambda public, units, *rest: (
        public, units, {}, np.zeros((loop.LONGEST_BLOCK, 0), np.int32), None)


def crash() -> str:
    """Kills a run as it draws, and goes on with it: a round that was drawn and not charged."""
    method, where = toy.build(), toy.layout()
    data = toy.neighbours()[0]
    with tempfile.TemporaryDirectory() as folder, patch.object(loop, "compile_block", idle):
        path = Path(folder, "ledger")
        bits = Watched(path, killed_at=3)
        with contextlib.suppress(Killed):
            toy.train(path, method, data, where, bits=bits, block=idle, steps_per_call=1)
        with Ledger.open(path) as ledger:
            job = loop.Job(method, where, ledger, bits, 1)
            loop.train(job, toy.placed(data, where), toy.start(where),
                       toy.STEPS - 2)
            if not bits.late and ledger.steps_charged < bits.rounds:
                return f"{bits.rounds} rounds were drawn, and {ledger.steps_charged} are charged"
            mu = math.sqrt(bits.rounds * 4 * toy.TOP_K * toy.ROWS) / toy.SIGMA
            return bits.late or _too_low(f"{bits.rounds} rounds that were drawn",
                                         composition.epsilon_of(
                ledger.spent(), DELTA), of_mu(mu))


def of_mu(mu: float) -> float:
    """Returns the epsilon of mu-GDP at DELTA (Balle and Wang, ICML 2018, Theorem 8)."""
    def excess(epsilon: float) -> float:
        a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        return float(norm.cdf(a) - math.exp(epsilon + norm.logcdf(b)) - DELTA)

    return float(brentq(excess, 0, 50 + 10 * mu**2)) if excess(0) > 0 else 0.0


def of_secret_draw(shift: float, rate: float) -> float:
    """Returns a lower bound on epsilon at DELTA of a round in which a unit is drawn in secret.

    All other units say 0, and the unit says + or - its whole norm: `shift` standard deviations of
    the noise. `rate` is the chance that it is drawn.
    """
    grid = np.linspace(-12 - shift, 12 + shift, 200_001)
    one, other = ((1 - rate) * norm.pdf(grid) + rate * norm.pdf(grid, sign * shift)
                  for sign in (1, -1))

    def excess(epsilon: float) -> float:
        return float(np.trapezoid(np.maximum(one - math.exp(epsilon) * other, 0), grid) - DELTA)

    return float(brentq(excess, 0, 100)) if excess(0) > 0 else 0.0


def hand_computed() -> str:
    """Returns the first epsilon that events cost too little, compared with one by hand."""
    rows, k, sigma = toy.ROWS, toy.TOP_K, toy.SIGMA
    votes = toy.mechanism()
    turns = toy.mechanism(schedule=RoundRobin(2))
    queries, confident = 3 * 2, _confident()
    test = 1 / (2 * ANSWER_SIGMA)**2 + 2 / ANSWER_SIGMA**2
    levels, clip_sigma = 4095, 2.0
    cases: dict[str, tuple[Any, int, float]] = {
        "every vote of each fake of each round":
            (votes, ROUNDS, of_mu(math.sqrt(ROUNDS * 4 * k * rows) / sigma)),
        "every second round of two cohorts":
            (turns, ROUNDS, of_mu(math.sqrt(ROUNDS / 2 * 4 * k * rows) / sigma)),
        "each query of Confident-GNMax, answered":
            (confident, ROUNDS, of_mu(math.sqrt(ROUNDS * queries * test))),
    } | {f"one round of {type(schedule).__name__}": (
        SumMechanism(bound=GradientL2(1.0, 32, levels), noise=RoundedGaussian(levels * clip_sigma),
                     schedule=schedule, n_units=40, shape=(1, 32), decode=GridMean(1 / levels)),
        1, of_secret_draw(1 / clip_sigma, 0.2))
        for schedule in (PoissonSampling(40, 8), FixedSizeSampling(40, 8))}
    for what, (mechanism, rounds, by_hand) in cases.items():
        if wrong := _too_low(what, composition.epsilon_of(mechanism.events(rounds), DELTA),
                             by_hand):
            return wrong
    published = toy.mechanism(schedule=PublishedSampling(toy.UNITS))
    epsilon = composition.epsilon_of(published.events(1), DELTA)
    return "" if epsilon == math.inf else (
        f"the published draw of GS-WGAN costs epsilon {epsilon:.4g}; nothing is proven for it")


def _too_low(what: str, charged: float, by_hand: float) -> str:
    return "" if charged >= SLACK * by_hand else (
        f"{what}: charged epsilon {charged:.4g} at delta {DELTA:g}, by hand {by_hand:.4g}")


def _confident() -> ConfidentGNMax:
    """Three fakes, two coordinates, four bins."""
    return ConfidentGNMax(bound=OneHot(4, 2, 3, 1.0), noise=RoundedGaussian(ANSWER_SIGMA),
                          test_noise=RoundedGaussian(2 * ANSWER_SIGMA), n_units=300,
                          schedule=FullParticipation(), threshold=0.5)
