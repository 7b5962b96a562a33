"""The accounting of papers that sample units without replacement: GS-WGAN and what builds on it.

As in `published`, the papers decide the events and `dp_accounting` what they cost. The papers'
scripts call `autodp`, whose bound is the same theorem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgen_jax.accountant.published import gaussians
from dpgen_jax.accountant.published_formula import Published

if TYPE_CHECKING:
    from dp_accounting import DpEvent


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
        critics: K.
        batch: Samples of one round.
        sigma: Noise multiplier of one sample (standard deviation 2 sigma C where a gradient is
            clipped to C); without noise epsilon is inf.
        delta: The delta that is stated.
        source: The script, as the formula names it.

    Returns:
        The paper's accounting.
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

    Args:
        clients: K.
        batch: Samples of one round, B.
        sigma: As in `gswgan`; without noise epsilon is inf.
        delta: The delta that is stated.

    Returns:
        The paper's accounting.
    """
    return Published(
        formula=f"(T / K) * B Gaussians of multiplier sigma, K={clients}, B={batch}, "
                f"sigma={sigma:g}, delta={delta:g} (GS-WGAN's federated experiment)",
        event=gaussians(batch / clients, sigma), delta=delta)


def dpac(critics: int, batch: int, sigma: float, delta: float) -> Published:
    """DP-GAN-DPAC (its repository chenchen-usyd/DP-GAN-DPAC): the script of GS-WGAN, unchanged.

    It counts one batch size and one sanitised gradient a round, where the code turns to batches of
    1,000 and sanitises the critic's and the classifier's gradient.

    Args:
        critics: As in `gswgan`.
        batch: As in `gswgan`.
        sigma: As in `gswgan`.
        delta: As in `gswgan`.

    Returns:
        The paper's accounting.
    """
    return gswgan(critics, batch, sigma, delta, "DP-GAN-DPAC's privacy_analysis.py")


def dpmerf_ae(records: int, batch: int, sigma: float, delta: float) -> Published:
    """DP-MERF with a private autoencoder, as GS-WGAN counts it.

    Each round is a Gaussian release over records sampled without replacement.

    Source: Harder et al., first version of arXiv 2002.11603.

    Args:
        records: Number of records.
        batch: Records of a round.
        sigma: Noise multiplier of a round; without noise epsilon is inf.
        delta: The delta that is stated.

    Returns:
        The paper's accounting.
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

    Args:
        clients: K.
        clients_per_round: Clients of a round, m.
        sigma: Noise multiplier of a round; without noise epsilon is inf.
        delta: The delta that is stated.

    Returns:
        The paper's accounting.
    """
    return Published(
        formula=f"T Gaussians of multiplier sigma, amplified by m/K, m={clients_per_round}, "
                f"K={clients}, sigma={sigma:g}, delta={delta:g} (GS-WGAN's federated experiment)",
        event=_without_replacement(clients, clients_per_round, sigma, 1), delta=delta)
