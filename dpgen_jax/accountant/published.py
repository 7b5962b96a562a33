"""The accounting that each paper used, for the column "as published" next to "proven".

The papers decide the events and `dp_accounting` what they cost: its Renyi accountant adds them up,
at its orders and with its conversion. The papers' own codes searched other orders and used the
classic conversion, which gives more: `Published.epsilon(steps, "classic")`. The scripts of GS-WGAN
and of the papers that build on it sample units without replacement and call the package autodp,
whose bound is the same theorem as that of `dp_accounting`.

Nothing here decides a budget: a run is accounted by `composition.epsilon_of`. A method's file
has a function `published(config, delta)` that chooses among these formulas.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TYPE_CHECKING

import numpy as np

from dpgen_jax.accountant.composition import Conversion, convert_renyi
from dpgen_jax.core.errors import BudgetExceeded

if TYPE_CHECKING:
    from dp_accounting import DpEvent


@dataclasses.dataclass(frozen=True)
class Published:
    """A paper's accounting of one configuration.

    The paper decides which events a round consists of; the Renyi accountant of `dp_accounting`
    decides what they cost, at its own orders.

    Attributes:
        formula: The events of a round in one line, with their source.
        event: What one round costs by the paper; None for a round without noise.
        delta: The delta that is stated.
    """

    formula: str
    event: DpEvent | None
    delta: float

    def epsilon(self, steps: int, conversion: Conversion = "improved") -> float:
        """Epsilon of a number of rounds; it does not fall when rounds are added.

        Args:
            conversion: "improved" is the accountant's own; "classic" is that of the papers' codes.

        Returns:
            Epsilon: 0.0 for 0 rounds, inf without noise.
        """
        if steps == 0:
            return 0.0
        if self.event is None:
            return math.inf
        orders, rdp = _curve(self.event)
        if conversion == "classic":
            return max(0.0,
                       float(np.min(convert_renyi(steps * rdp, orders, self.delta, conversion))))
        from dp_accounting.rdp import compute_epsilon

        return float(compute_epsilon(orders, steps * rdp, self.delta)[0])

    def max_steps(self, epsilon: float, conversion: Conversion = "improved") -> int:
        """The largest number of rounds within an epsilon, at most 2^40.

        Raises:
            BudgetExceeded: The paper's formula does not allow one round.
        """
        if not self.epsilon(1, conversion) <= epsilon:
            raise BudgetExceeded(f"epsilon {epsilon:g} allows no step by the published accounting; "
                                 f"one step costs {self.epsilon(1, conversion):.4g}")
        steps = 1
        for bit in (1 << k for k in range(39, -1, -1)):
            if self.epsilon(steps + bit, conversion) <= epsilon:
                steps += bit
        return steps


@functools.lru_cache(maxsize=64)
def _curve(event: DpEvent) -> tuple[np.ndarray, np.ndarray]:
    """The accountant's orders, and the Renyi divergence of one round at each."""
    import dp_accounting as dp
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant()
    if not accountant.supports(event):  # it counts sampling without replacement only so
        accountant = RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    accountant.compose(event)
    return accountant.orders, accountant.rdp


def datalens(top_k: int, batch: int, sigma: float, delta: float) -> Published:
    """DataLens: Theorem 3 for one fake, added up over the batch as the authors' code does.

    Source: Wang et al., "DataLens: Scalable Privacy Preserving Training via Gradient Compression
    and Aggregation", CCS 2021.
    """
    return Published(
        formula="T * B Gaussians of multiplier sigma / (2 sqrt(k)), "
                f"k={top_k}, B={batch}, sigma={sigma:g}, delta={delta:g} (DataLens, Theorem 3)",
        event=gaussians(4 * top_k * batch, sigma), delta=delta)


PAPER_ANSWER_RATE = 0.55
"""share of answered queries at which G-PATE's 232 MNIST steps come to its epsilon of 1 by the
classic conversion"""


def gpate(batch: int, projection: int, sigma: float, sigma_threshold: float, delta: float,
          answer_rate: float = PAPER_ANSWER_RATE) -> Published:
    """G-PATE as its code adds up.

    For each fake and each projected coordinate it counts a threshold test, and a noisy argmax where
    that answers.

    Source: Long et al., "G-PATE: Scalable Differentially Private Data Generator via Private
    Aggregation of Teacher Discriminators", NeurIPS 2021.

    Args:
        answer_rate: The expected share of answered queries; it depends on the records, so below 1
            this is no guarantee.
    """
    event = None
    if sigma and sigma_threshold:
        query = 1 / sigma_threshold**2 + 2 * answer_rate / sigma**2
        event = gaussians(batch * projection * query)
    return Published(
        formula="T * B k threshold tests, Gaussians of multiplier sigma1, and a share P of as many "
                f"noisy argmaxes, of sigma2 / sqrt(2), B={batch}, k={projection}, "
                f"sigma1={sigma_threshold:g}, sigma2={sigma:g}, P={answer_rate:g}, "
                f"delta={delta:g} (G-PATE's code)",
        event=event, delta=delta)


def dpcgan(records: int, batch: int, clip: float, sigma: float, delta: float) -> Published:
    """DP-CGAN as the authors' code counts.

    It counts Poisson sampling of rate batch / records, and a noise multiplier of sigma * clip. This
    is no guarantee: the noise has the standard deviation sigma * clip where clip is the
    sensitivity, so its multiplier is sigma; and each of the four weight tensors is clipped by
    itself, which doubles the sensitivity.

    Source: Torkzadehmahani, Kairouz and Paten, "DP-CGAN: Differentially Private Synthetic Data and
    Label Generation", CVPR workshops 2019.

    Args:
        sigma: Standard deviation of the noise over clip; without noise epsilon is inf.
    """
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

    event = PoissonSampledDpEvent(batch / records, GaussianDpEvent(sigma * clip)) if sigma else None
    return Published(
        formula="T Poisson-sampled Gaussians of multiplier sigma * C, "
                f"sigma={sigma:g}, C={clip:g}, q={batch}/{records}, delta={delta:g} (DP-CGAN's "
                "DP_CGAN_RdpAcc.py)", event=event, delta=delta)


def dpmerf(sigma: float, delta: float) -> Published:
    """DP-MERF as its dp_analysis.py counts: one Gaussian release of the mean embedding of images.

    Source: Harder, Adamczewski and Park, "DP-MERF: Differentially Private Mean Embeddings with
    Random Features for Practical Privacy-Preserving Data Generation", AISTATS 2021.

    Args:
        sigma: Standard deviation of the noise over the sensitivity 2 / n; without noise epsilon is
            inf. The paper's are 5 for epsilon 1 and 25 for 0.2.
    """
    return Published(
        formula=f"T Gaussians of multiplier sigma, T=1 release, sigma={sigma:g}, delta={delta:g} "
                "(DP-MERF's dp_analysis.py)", event=gaussians(1, sigma), delta=delta)


def pategan(batch: int, scale: float, delta: float) -> Published:
    """PATE-GAN: the moments of one noisy majority for each fake.

    They are those of the bound that holds whatever the votes, 2 lambda^2 l (l + 1) at moment l,
    which is 2 lambda^2-zCDP. The paper's own number is the smaller one of this and a bound that
    depends on the records, so that it is itself no guarantee.

    Source: Jordon, Yoon and van der Schaar, "PATE-GAN: Generating Synthetic Data with Differential
    Privacy Guarantees", ICLR 2019.

    Args:
        scale: Scale of the Laplace noise on each of two counts, 1 / lambda in the paper; without
            noise epsilon is inf.
    """
    return Published(
        formula=f"T * B releases of 2 lambda^2-zCDP, B={batch}, 1/lambda={scale:g}, "
                f"delta={delta:g} (PATE-GAN, Algorithm 1, without its data-dependent bound)",
        event=gaussians(4 * batch, scale), delta=delta)


def gaussians(squared: float, sigma: float = 1.0) -> DpEvent | None:
    """The event of Gaussian releases that are one release together.

    Args:
        squared: The sum of their squared sensitivities; for releases of rho-zCDP, of 2 rho.

    Returns:
        The event; None without noise.
    """
    from dp_accounting import GaussianDpEvent

    return GaussianDpEvent(sigma / math.sqrt(squared)) if sigma else None


def gswgan(critics: int, batch: int, sigma: float, delta: float,
           source: str = "GS-WGAN's privacy_analysis.py") -> Published:
    """GS-WGAN as the authors' privacy_analysis.py counts.

    It counts ONE Gaussian per sample, amplified by sampling 1 of the critics without replacement
    (Wang, Balle and Kasiviswanathan, AISTATS 2019, Theorem 27), composed steps * batch times. This
    is no guarantee: all samples of a round share one choice of a critic, so that the round is to be
    amplified as a whole, and a critic that learns only when it is chosen remembers the choices.

    Source: Chen, Orekondy and Fritz, "GS-WGAN: A Gradient-Sanitized Approach for Learning
    Differentially Private Generators", NeurIPS 2020.

    Args:
        sigma: Noise multiplier of one sample (standard deviation 2 sigma C where a gradient is
            clipped to C); without noise epsilon is inf.
        source: The script, as the formula names it.
    """
    return Published(
        formula="T * B Gaussians of multiplier sigma, each amplified by 1/K, "
                f"K={critics}, B={batch}, sigma={sigma:g}, delta={delta:g} ({source})",
        event=_without_replacement(critics, 1, sigma, batch), delta=delta)


def _without_replacement(units: int, sample: int, sigma: float, releases: int) -> DpEvent | None:
    """So many Gaussian releases, each over a sample of its own; None without noise."""
    import dp_accounting as dp

    if not sigma:
        return None
    return dp.SelfComposedDpEvent(
        dp.SampledWithoutReplacementDpEvent(units, sample, dp.GaussianDpEvent(sigma)), releases)


def gswgan_federated(clients: int, batch: int, sigma: float, delta: float) -> Published:
    """Federated GS-WGAN as published.

    One of the clients takes part in a round: T / clients participations of each without
    amplification, B Gaussians each.
    """
    return Published(
        formula=f"(T / K) * B Gaussians of multiplier sigma, K={clients}, B={batch}, "
                f"sigma={sigma:g}, delta={delta:g} (GS-WGAN's federated experiment)",
        event=gaussians(batch / clients, sigma), delta=delta)


def dpac(critics: int, batch: int, sigma: float, delta: float) -> Published:
    """DP-GAN-DPAC (its repository chenchen-usyd/DP-GAN-DPAC): the script of GS-WGAN, unchanged.

    It counts one batch size and one sanitised gradient a round, where the code turns to batches of
    1,000 and sanitises the critic's and the classifier's gradient.
    """
    return gswgan(critics, batch, sigma, delta, "DP-GAN-DPAC's privacy_analysis.py")


def dpmerf_ae(records: int, batch: int, sigma: float, delta: float) -> Published:
    """DP-MERF with a private autoencoder, as GS-WGAN counts it.

    Each round is a Gaussian release over records sampled without replacement.

    Source: Harder et al., first version of arXiv 2002.11603.
    """
    return Published(
        formula=f"T Gaussians of multiplier sigma, amplified by B/n, B={batch}, n={records}, "
                f"sigma={sigma:g}, delta={delta:g} (GS-WGAN)",
        event=_without_replacement(records, batch, sigma, 1), delta=delta)


def fedavg_gan(clients: int, clients_per_round: int, sigma: float, delta: float) -> Published:
    """Fed-Avg GAN as GS-WGAN counts it; client-level.

    Each round is one Gaussian release over clients that are sampled without replacement.

    Source: Augenstein et al., "Generative Models for Effective ML on Private, Decentralized
    Datasets", ICLR 2020.
    """
    return Published(
        formula=f"T Gaussians of multiplier sigma, amplified by m/K, m={clients_per_round}, "
                f"K={clients}, sigma={sigma:g}, delta={delta:g} (GS-WGAN's federated experiment)",
        event=_without_replacement(clients, clients_per_round, sigma, 1), delta=delta)
