"""The accounting that each paper used, for the column "as published" beside "proven".

Nothing here decides a budget: a run is accounted by `gaussian.epsilon`. A method adds one function
that returns its `Published`, and its line in PUBLISHED.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dpgen_jax.accountant import sampling
from dpgen_jax.accountant.gaussian import Conversion, _convert, zcdp_epsilon
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


def _counted(noise: float, epsilon: Callable[[int], float]) -> Callable[[int], float]:
    """epsilon, and 0 without steps, inf without noise."""
    return lambda steps: 0.0 if steps == 0 else epsilon(steps) if noise else math.inf


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
        rdp_per_order = 2 * top_k * batch * steps / sigma**2
        return zcdp_epsilon(rdp_per_order, delta, "classic", ORDERS)

    return Published(
        formula=f"min over a in [1.1, 2, 3, ..., 199] of T * 2 k B a / sigma^2 + ln(1/delta)/(a-1),"
                f" k={top_k}, B={batch}, sigma={sigma:g}, delta={delta:g} (DataLens, Theorem 3)",
        epsilon=_counted(sigma, epsilon))


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
        query = 1 / (2 * sigma_threshold**2) + answer_rate / sigma**2
        return zcdp_epsilon(steps * batch * projection * query, delta, "classic", ORDERS)

    return Published(
        formula="min over a in [1.1, 2, 3, ..., 199] of T * B k a (1 / (2 sigma1^2) + P / sigma2^2)"
                f" + ln(1/delta)/(a-1), B={batch}, k={projection}, sigma1={sigma_threshold:g}, "
                f"sigma2={sigma:g}, P={answer_rate:g}, delta={delta:g} (G-PATE's code)",
        epsilon=_counted(sigma * sigma_threshold, epsilon))


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
    return Published(
        formula="min over a = 2, 3, ... of T * B * R(a) + ln(1/delta)/(a-1), R of a Gaussian "
                f"amplified by 1/K, K={critics}, B={batch}, sigma={sigma:g}, delta={delta:g} "
                f"({source})",
        epsilon=_without_replacement(1 / critics, sigma, batch, delta))


def _without_replacement(rate: float, sigma: float, releases: int, delta: float
                         ) -> Callable[[int], float]:
    """Epsilon of steps of so many Gaussian releases, each amplified by itself."""
    def epsilon(steps: int) -> float:
        rdp = sampling.without_replacement(rate, 1 / sigma**2, WOR_ORDERS)
        costs = steps * releases * rdp + math.log(1 / delta) / (np.array(WOR_ORDERS) - 1)
        return float(np.min(costs))

    return _counted(sigma, epsilon)


def gswgan_federated(clients: int, batch: int, sigma: float, delta: float) -> Published:
    """Federated GS-WGAN as published: one of the clients a step, T / clients visits to each without
    amplification, B Gaussians a visit, the classic conversion at the best real order.

    sigma: as in `gswgan`; without noise epsilon is inf.
    """
    def epsilon(steps: int) -> float:
        return zcdp_epsilon(steps / clients * batch / (2 * sigma**2), delta, "classic")

    return Published(
        formula=f"min over a of (T / K) * B * a / (2 sigma^2) + ln(1/delta)/(a-1), K={clients}, "
                f"B={batch}, sigma={sigma:g}, delta={delta:g} (GS-WGAN's federated experiment)",
        epsilon=_counted(sigma, epsilon))


def dpac(critics: int, batch: int, sigma: float, delta: float) -> Published:
    """DP-GAN-DPAC (its repository chenchen-usyd/DP-GAN-DPAC): the script of GS-WGAN, unchanged.

    It knows of one batch size and of one sanitised gradient a step, where the code turns to
    batches of 1,000 and sanitises the critic's and the classifier's gradient.
    """
    return gswgan(critics, batch, sigma, delta, "DP-GAN-DPAC's privacy_analysis.py")


CGAN_ORDERS = (*(1 + x / 10 for x in range(1, 100)), *range(12, 64))
"""of the DP-CGAN code"""


def dpcgan(records: int, batch: int, clip: float, sigma: float, delta: float,
           conversion: Conversion = "classic") -> Published:
    """DP-CGAN (Torkzadehmahani, Kairouz and Paten, "DP-CGAN: Differentially Private Synthetic Data
    and Label Generation", CVPR workshops 2019) as the authors' code counts: Poisson draws of rate
    batch / records, and a noise multiplier of sigma * clip.

    No guarantee: the noise has the standard deviation sigma * clip where clip is the sensitivity,
    so its multiplier is sigma; and each of the four weight tensors is clipped by itself, which
    doubles the sensitivity.

    sigma: standard deviation of the noise over clip; without noise epsilon is inf. conversion: the
    code's is the classic one; today's tools would use the improved one.
    """
    def epsilon(steps: int) -> float:
        rdp = steps * _poisson_rdp(batch / records, sigma * clip)
        return max(0.0, float(np.min(_convert(rdp, np.array(CGAN_ORDERS), delta, conversion))))

    return Published(
        formula="min over a in [1.1, 1.2, ..., 63] of T * R(a) + ln(1/delta)/(a-1), R of a Gaussian"
                f" of multiplier sigma * C on Poisson draws, sigma={sigma:g}, C={clip:g}, "
                f"q={batch}/{records}, delta={delta:g} (DP-CGAN's DP_CGAN_RdpAcc.py)",
        epsilon=_counted(sigma, epsilon))


@functools.lru_cache(maxsize=64)
def _poisson_rdp(rate: float, multiplier: float) -> np.ndarray:
    """RDP of one step at CGAN_ORDERS (Mironov, Talwar and Zhang, "Renyi Differential Privacy of the
    Sampled Gaussian Mechanism", 2019)."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    event = PoissonSampledDpEvent(rate, GaussianDpEvent(multiplier))
    return np.asarray(RdpAccountant(CGAN_ORDERS).compose(event).rdp)


def dpmerf(sigma: float, delta: float, conversion: Conversion = "classic") -> Published:
    """DP-MERF (Harder, Adamczewski and Park, "DP-MERF: Differentially Private Mean Embeddings with
    Random Features for Practical Privacy-Preserving Data Generation", AISTATS 2021) as its
    dp_analysis.py counts: one Gaussian release of the mean embedding of images.

    sigma: standard deviation of the noise over the sensitivity 2 / n; without noise epsilon is inf.
    conversion: the code's is the classic one (sigma 5 for epsilon 1, 25 for 0.2).
    """
    def epsilon(steps: int) -> float:
        return zcdp_epsilon(steps / (2 * sigma**2), delta, conversion)

    return Published(
        formula="min over a of T * a / (2 sigma^2) + ln(1/delta)/(a-1), T=1 release, "
                f"sigma={sigma:g}, delta={delta:g} (DP-MERF's dp_analysis.py)",
        epsilon=_counted(sigma, epsilon))


def dpmerf_ae(records: int, batch: int, sigma: float, delta: float) -> Published:
    """DP-MERF with a private autoencoder (Harder et al., first version of arXiv 2002.11603) as
    GS-WGAN counts it: each step a Gaussian release over records drawn without replacement.

    sigma: noise multiplier of a step; without noise epsilon is inf.
    """
    return Published(
        formula="min over a = 2, 3, ... of T * R(a) + ln(1/delta)/(a-1), R of a Gaussian amplified "
                f"by B/n, B={batch}, n={records}, sigma={sigma:g}, delta={delta:g} (GS-WGAN)",
        epsilon=_without_replacement(batch / records, sigma, 1, delta))


def fedavg_gan(clients: int, clients_per_round: int, sigma: float, delta: float) -> Published:
    """Fed-Avg GAN (Augenstein et al., "Generative Models for Effective ML on Private, Decentralized
    Datasets", ICLR 2020) as GS-WGAN counts it: each round one Gaussian release over clients that
    are drawn without replacement. Client-level.

    sigma: noise multiplier of a round; without noise epsilon is inf.
    """
    return Published(
        formula="min over a = 2, 3, ... of T * R(a) + ln(1/delta)/(a-1), R of a Gaussian amplified "
                f"by m/K, m={clients_per_round}, K={clients}, sigma={sigma:g}, delta={delta:g} "
                "(GS-WGAN's federated experiment)",
        epsilon=_without_replacement(clients_per_round / clients, sigma, 1, delta))


def pategan(batch: int, scale: float, delta: float, moments: int = 100) -> Published:
    """PATE-GAN (Jordon, Yoon and van der Schaar, "PATE-GAN: Generating Synthetic Data with
    Differential Privacy Guarantees", ICLR 2019): the moments of one noisy majority for each fake,
    by the bound that holds whatever the votes. The paper's own number is the smaller one of this
    and a bound that depends on the records, so that it is itself no guarantee.

    batch: fakes of a query; scale: of the Laplace noise on each of two counts, 1 / lambda in the
    paper; without noise epsilon is inf. moments: how many are tracked; the published codes differ.
    """
    def epsilon(steps: int) -> float:
        orders = np.arange(1, moments + 1)
        alpha = steps * batch * 2 * orders * (orders + 1) / scale**2
        return float(np.min((alpha + math.log(1 / delta)) / orders))

    return Published(
        formula=f"min over l = 1..{moments} of (T * B * 2 lambda^2 l (l+1) + ln(1/delta)) / l, "
                f"B={batch}, 1/lambda={scale:g}, delta={delta:g} (PATE-GAN, Algorithm 1, without "
                "its data-dependent bound)",
        epsilon=_counted(scale, epsilon))


def _gswgan_of(config: Any, delta: float) -> Published | None:
    if config.critics_per_step != 1:  # 0: all of them
        return None
    formula = gswgan_federated if config.federated else gswgan
    return formula(config.critics, config.batch, config.sigma, delta)


# method name -> (its complete configuration, delta) -> what its paper would say, None for a part
# of a method that no paper has
PUBLISHED: dict[str, Callable[[Any, float], Published | None]] = {
    "datalens": lambda config, delta: datalens(config.top_k, config.batch, config.sigma, delta)
    if config.aggregate == "topk" else None,
    "gpate": lambda config, delta: gpate(config.batch, config.projection, config.sigma,
                                         config.sigma_threshold, delta)
    if config.aggregate == "gnmax" and config.projection else None,
    "gswgan": _gswgan_of,
    "dpac": lambda config, delta: dpac(config.critics, config.batch, config.sigma, delta)
    if config.critics_per_step == 1 else None,
    "dpcgan": lambda config, delta: dpcgan(config.records, config.batch, config.clip, config.sigma,
                                           delta) if config.records else None,
    "dpmerf": lambda config, delta: dpmerf(config.sigma, delta),
    "dpmerf_ae": lambda config, delta: dpmerf_ae(config.records, config.batch, config.sigma, delta)
    if config.records else None,
    "fedavg_gan": lambda config, delta: fedavg_gan(config.critics, config.clients_per_round,
                                                   config.sigma, delta)
    if config.clients_per_round and not config.federated else None,
    "pategan": lambda config, delta: pategan(config.batch, config.sigma, delta)
    if config.noise == "laplace" and config.decode == "majority" else None,
    "dpgan": lambda config, delta: None,  # its paper's theorem covers one generator step
}
