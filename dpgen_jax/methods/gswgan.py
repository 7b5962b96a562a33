"""GS-WGAN: a Wasserstein GAN whose generator sees its critics through sanitised gradients alone.

Source: Chen, Orekondy and Fritz, "GS-WGAN: A Gradient-Sanitized Approach for Learning
Differentially Private Generators", NeurIPS 2020, arXiv 2006.08265; Algorithm 1, and Algorithm 2
(federated). The published epsilon of 10 does not hold: at its noise the proven one is 379 for a
public rotation (`presets/gswgan.py`, mnist-published). What is changed is said in `_critics`.
"""

from __future__ import annotations

import dataclasses

from dpgen_jax.config import Runtime
from dpgen_jax.methods._critic_config import CriticConfig, mechanism
from dpgen_jax.methods._critics import Extra, converse
from dpgen_jax.types import Method, Spec

__all__ = ["Config", "build", "mechanism"]


@dataclasses.dataclass(frozen=True)
class Config(CriticConfig):
    """What GS-WGAN does; the defaults are the published networks and optimisers."""


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """The method for images of this schema. Errors: UserError for a table."""
    return converse(config, spec, runtime, Extra())
