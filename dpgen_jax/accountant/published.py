"""The accounting that each paper used, for the column "as published" beside "proven".

A paper's events are added up by the Renyi accountant of `dp_accounting`, at its orders and with its
conversion. The papers' own codes searched other orders and used the classic conversion, which gives
more: `Published.epsilon(steps, "classic")`.

Nothing here decides a budget: a run is accounted by `gaussian.epsilon`. A method's file
has a function `published(config, delta)` that chooses among these formulas.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dpgen_jax.accountant.published_formula import Published

if TYPE_CHECKING:
    from dp_accounting import DpEvent


def datalens(top_k: int, batch: int, sigma: float, delta: float) -> Published:
    """DataLens: Theorem 3 for one fake, added up over the batch as the authors' code does.

    Source: Wang et al., "DataLens: Scalable Privacy Preserving Training via Gradient Compression
    and Aggregation", CCS 2021.

    Args:
        top_k: Coordinates a teacher votes on.
        batch: Fakes of one round.
        sigma: Noise, in votes; without noise epsilon is inf.
        delta: The delta that is stated.

    Returns:
        The paper's accounting.
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
        batch: Fakes of one round.
        projection: Coordinates of one fake.
        sigma: Noise of the votes, in votes; without noise epsilon is inf.
        sigma_threshold: Noise of the test, in votes; without noise epsilon is inf.
        delta: The delta that is stated.
        answer_rate: The expected share of answered queries; it depends on the records, so below 1
            this is no guarantee.

    Returns:
        The paper's accounting.
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
        records: Number of records.
        batch: Records of a round on average.
        clip: The largest norm of a gradient.
        sigma: Standard deviation of the noise over clip; without noise epsilon is inf.
        delta: The delta that is stated.

    Returns:
        The paper's accounting.
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
        delta: The delta that is stated.

    Returns:
        The paper's accounting.
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
        batch: Fakes of a query.
        scale: Scale of the Laplace noise on each of two counts, 1 / lambda in the paper; without
            noise epsilon is inf.
        delta: The delta that is stated.

    Returns:
        The paper's accounting.
    """
    return Published(
        formula=f"T * B releases of 2 lambda^2-zCDP, B={batch}, 1/lambda={scale:g}, "
                f"delta={delta:g} (PATE-GAN, Algorithm 1, without its data-dependent bound)",
        event=gaussians(4 * batch, scale), delta=delta)


def gaussians(squared: float, sigma: float = 1.0) -> DpEvent | None:
    """The event of Gaussian releases that are one release together.

    Args:
        squared: The sum of their squared sensitivities; for releases of rho-zCDP, of 2 rho.
        sigma: The standard deviation of the noise.

    Returns:
        The event; None without noise.
    """
    from dp_accounting import GaussianDpEvent

    return GaussianDpEvent(sigma / math.sqrt(squared)) if sigma else None
