"""GS-WGAN: a Wasserstein GAN whose generator sees only sanitised gradients of its critics.

Source: Chen, Orekondy and Fritz, "GS-WGAN: A Gradient-Sanitized Approach for Learning
Differentially Private Generators", NeurIPS 2020, arXiv 2006.08265; Algorithm 1, and Algorithm 2
(federated). The published epsilon of 10 does not hold: at its noise the proven one is 379 for a
public rotation (`presets/gswgan.py`, mnist-published). `shared.critics` names the departures.
"""

from __future__ import annotations

import dataclasses

from dpgen_jax.accountant import published as formulas
from dpgen_jax.accountant.published import Published
from dpgen_jax.core.config import Runtime
from dpgen_jax.core.types import Method, Spec
from dpgen_jax.methods.shared.critics import CriticConfig, Extra, build_gan, images_only, mechanism

__all__ = ["Config", "build", "mechanism"]


@dataclasses.dataclass(frozen=True)
class Config(CriticConfig):
    """The configuration of GS-WGAN; the defaults are the published networks and optimisers."""


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """Returns the method for images of this schema.

    Raises:
        UserError: for a table.
    """
    return build_gan(config, images_only(spec), runtime, Extra())


def published(config: Config, delta: float) -> Published | None:
    """Returns the paper's own accounting; None for more than one critic in a step."""
    if config.critics_per_step != 1:  # 0: all of them
        return None
    formula = formulas.gswgan_federated if config.federated else formulas.gswgan
    return formula(config.critics, config.batch, config.sigma or 0.0, delta)
