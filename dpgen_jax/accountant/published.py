"""The accounting that each paper used, for the column "as published" beside "proven".

Nothing here decides a budget: a run is accounted by `gaussian.epsilon`. A method adds one function
that returns its `Published`, and its line in PUBLISHED.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dpgen_jax.accountant import sampling
from dpgen_jax.accountant.gaussian import zcdp_epsilon
from dpgen_jax.errors import BudgetExceeded


@dataclasses.dataclass(frozen=True)
class Published:
    """A paper's accounting of one configuration.

    epsilon: number of steps -> epsilon, not decreasing; 0.0 for 0 steps.
    formula: what it computes, in one line, with its source.
    """

    formula: str
    epsilon: Callable[[int], float]

    def max_steps(self, epsilon: float) -> int:
        """The largest number of steps within `epsilon`, at most 2^40.

        Raises BudgetExceeded where the paper's formula does not allow one step.
        """
        if not self.epsilon(1) <= epsilon:
            raise BudgetExceeded(f"epsilon {epsilon:g} allows no step by the published accounting; "
                                 f"one step costs {self.epsilon(1):.4g}")
        steps = 1
        for bit in (1 << k for k in range(39, -1, -1)):
            if self.epsilon(steps + bit) <= epsilon:
                steps += bit
        return steps


ORDERS = np.asarray([1.1, *range(2, 200)])
"""of both the DataLens and the G-PATE code"""


def datalens(top_k: int, batch: int, sigma: float, delta: float) -> Published:
    """DataLens (Wang et al., "DataLens: Scalable Privacy Preserving Training via Gradient
    Compression and Aggregation", CCS 2021): Theorem 3 for one fake, added up over the batch as the
    authors' code does.

    top_k: coordinates a teacher votes on; batch: fakes of one step; sigma: noise, in votes; without
    noise epsilon is inf.
    """
    def epsilon(steps: int) -> float:
        if steps == 0:
            return 0.0
        if sigma == 0:
            return math.inf
        rdp_per_order = 2 * top_k * batch * steps / sigma**2
        return zcdp_epsilon(rdp_per_order, delta, "classic", ORDERS)

    return Published(
        formula=f"min over a in [1.1, 2, 3, ..., 199] of T * 2 k B a / sigma^2 + ln(1/delta)/(a-1),"
                f" k={top_k}, B={batch}, sigma={sigma:g}, delta={delta:g} (DataLens, Theorem 3)",
        epsilon=epsilon)


PAPER_ANSWER_RATE = 0.55
"""share of answered queries at which G-PATE's 232 MNIST steps come to its epsilon of 1"""


def gpate(batch: int, projection: int, sigma: float, sigma_threshold: float, delta: float,
          answer_rate: float = PAPER_ANSWER_RATE) -> Published:
    """G-PATE (Long et al., "G-PATE: Scalable Differentially Private Data Generator via Private
    Aggregation of Teacher Discriminators", NeurIPS 2021) as its code adds up: for each fake and
    each projected coordinate a threshold test, and a noisy argmax where that answers.

    batch: fakes of one step; projection: coordinates of one fake; sigma, sigma_threshold: noise of
    the votes and of the test, in votes; without noise epsilon is inf. answer_rate: the expected
    share of answered queries; it depends on the records, so below 1 this is no guarantee.
    """
    def epsilon(steps: int) -> float:
        if steps == 0:
            return 0.0
        if sigma == 0 or sigma_threshold == 0:
            return math.inf
        query = 1 / (2 * sigma_threshold**2) + answer_rate / sigma**2
        return zcdp_epsilon(steps * batch * projection * query, delta, "classic", ORDERS)

    return Published(
        formula="min over a in [1.1, 2, 3, ..., 199] of T * B k a (1 / (2 sigma1^2) + P / sigma2^2)"
                f" + ln(1/delta)/(a-1), B={batch}, k={projection}, sigma1={sigma_threshold:g}, "
                f"sigma2={sigma:g}, P={answer_rate:g}, delta={delta:g} (G-PATE's code)",
        epsilon=epsilon)


WOR_ORDERS = tuple(range(2, 801))
"""The grid of `autodp`, which GS-WGAN's code calls: whole orders to 100, doubled while that helps.
Orders between two whole ones cannot win, as its bound interpolates there."""


def gswgan(critics: int, batch: int, sigma: float, delta: float,
           source: str = "GS-WGAN's privacy_analysis.py") -> Published:
    """GS-WGAN (Chen, Orekondy and Fritz, "GS-WGAN: A Gradient-Sanitized Approach for Learning
    Differentially Private Generators", NeurIPS 2020) as the authors' privacy_analysis.py counts:
    ONE Gaussian per sample, amplified by drawing 1 of the critics without replacement (Wang, Balle
    and Kasiviswanathan, AISTATS 2019, Theorem 27), composed steps * batch times.

    No guarantee: all samples of a step share one draw, so that the step is to be amplified as a
    whole, and a critic that learns only when drawn remembers the draws.

    critics: K; batch: samples of one step; sigma: noise multiplier of one sample (standard
    deviation 2 sigma C where a gradient is clipped to C); without noise epsilon is inf.
    """
    def epsilon(steps: int) -> float:
        if steps == 0:
            return 0.0
        if sigma == 0:
            return math.inf
        rdp = sampling.without_replacement(1 / critics, 1 / sigma**2, WOR_ORDERS)
        return float(np.min(steps * batch * rdp + math.log(1 / delta) / (np.array(WOR_ORDERS) - 1)))

    return Published(
        formula="min over a = 2, 3, ... of T * B * R(a) + ln(1/delta)/(a-1), R of a Gaussian "
                f"amplified by 1/K, K={critics}, B={batch}, sigma={sigma:g}, delta={delta:g} "
                f"({source})",
        epsilon=epsilon)


def gswgan_federated(clients: int, batch: int, sigma: float, delta: float) -> Published:
    """Federated GS-WGAN as published: one of the clients a step, T / clients visits to each without
    amplification, B Gaussians a visit, the classic conversion at the best real order.

    sigma: as in `gswgan`; without noise epsilon is inf.
    """
    def epsilon(steps: int) -> float:
        rdp_per_order = steps / clients * batch / (2 * sigma**2) if sigma else math.inf
        return zcdp_epsilon(rdp_per_order, delta, "classic") if steps else 0.0

    return Published(
        formula=f"min over a of (T / K) * B * a / (2 sigma^2) + ln(1/delta)/(a-1), K={clients}, "
                f"B={batch}, sigma={sigma:g}, delta={delta:g} (GS-WGAN's federated experiment)",
        epsilon=epsilon)


def dpac(critics: int, batch: int, sigma: float, delta: float) -> Published:
    """DP-GAN-DPAC (its repository chenchen-usyd/DP-GAN-DPAC): the script of GS-WGAN, unchanged.

    It knows of one batch size and of one sanitised gradient a step, where the code turns to
    batches of 1,000 and sanitises the critic's and the classifier's gradient.
    """
    return gswgan(critics, batch, sigma, delta, "DP-GAN-DPAC's privacy_analysis.py")


def _gswgan_of(config: Any, delta: float) -> Published | None:
    if config.critics_per_step != 1:  # 0: all of them
        return None
    formula = gswgan_federated if getattr(config, "federated", False) else gswgan
    return formula(config.critics, config.batch, config.sigma, delta)


# method name -> (its complete configuration, delta) -> what its paper would say, None for a part
# of a method that no paper has
PUBLISHED: dict[str, Callable[[Any, float], Published | None]] = {
    "datalens": lambda config, delta: datalens(config.top_k, config.batch, config.sigma, delta),
    "gpate": lambda config, delta: gpate(config.batch, config.projection, config.sigma,
                                         config.sigma_threshold, delta)
    if config.aggregate == "gnmax" and config.projection else None,
    "gswgan": _gswgan_of,
    "dpac": lambda config, delta: dpac(config.critics, config.batch, config.sigma, delta)
    if config.critics_per_step == 1 else None,
}
