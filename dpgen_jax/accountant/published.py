"""The accounting that each paper used, for the column "as published" next to "proven".

The papers define the events, and the Renyi accountant of `dp_accounting` adds up their cost, at its
orders and with its conversion. The papers' codes searched other orders and used the classic
conversion, which gives larger values: `Published.epsilon(steps, "classic")`. The scripts of GS-WGAN
and of the papers that build on it sample units without replacement and call the package autodp,
which uses the same theorem as `dp_accounting`.

No budget is based on this module: a run is accounted by `composition.epsilon_of`. The function
`published(config, delta)` of a method's module has the formula of its paper. Without noise its
epsilon is inf.
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

    The paper defines the events of a round; the Renyi accountant of `dp_accounting` computes their
    cost, at its own orders.

    Attributes:
        formula: The events of a round in one line, with their source.
        event: The cost of one round by the paper; None for a round without noise.
        delta: The stated delta.
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
            BudgetExceeded: The paper's formula does not allow any round.
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


def gaussians(squared: float, sigma: float = 1.0) -> DpEvent | None:
    """The event of Gaussian releases that together are one release; None without noise.

    Args:
        squared: The sum of their squared sensitivities, or of 2 rho for releases of rho-zCDP.
    """
    from dp_accounting import GaussianDpEvent

    return GaussianDpEvent(sigma / math.sqrt(squared)) if sigma else None


def poisson_sampled(rate: float, sigma: float) -> DpEvent | None:
    """The event of a Gaussian release over a Poisson sample; None without noise."""
    import dp_accounting as dp

    return dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(sigma)) if sigma else None


def without_replacement(units: int, sample: int, sigma: float, releases: int = 1
                        ) -> DpEvent | None:
    """Several Gaussian releases, each over a separate sample; None without noise."""
    import dp_accounting as dp

    if not sigma:
        return None
    return dp.SelfComposedDpEvent(
        dp.SampledWithoutReplacementDpEvent(units, sample, dp.GaussianDpEvent(sigma)), releases)
