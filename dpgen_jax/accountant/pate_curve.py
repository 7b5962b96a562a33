"""The cost of one GNMax query as a function of q, at one order, and how far a neighbour moves it.

Source: Papernot et al., "Scalable Private Learning with PATE", ICLR 2018 (arXiv 1802.08908),
appendix B: Algorithm 3 and Proposition 13 (local sensitivity), conditions C5 and C6 (B.4.2).
"""

from __future__ import annotations

import dataclasses
import math
from functools import cached_property

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from dpgen_jax.accountant import gdp, pate
from dpgen_jax.core.errors import UserError

_GRID = 4000
_DEEPEST = -3000.0
"""points, and smallest ln q, of the check of the conditions"""


@dataclasses.dataclass(frozen=True)
class Curve:
    """The cost b(q) of one GNMax query at one order, as a function of ln q, and how it moves.

    Below q0, b is the data-dependent bound; from q0 on it is data-independent. q0 is where the two
    cross, or, if they do not cross below the edge of the range in which all conditions of the
    data-dependent bound hold, that edge.

    Attributes:
        sigma: Noise on each count, in votes.
        classes: The number of classes, m.
        order: The order a > 1.

    Raises:
        UserError: A sigma, number of classes or order outside of its range.
    """

    sigma: float
    classes: int
    order: float

    def __post_init__(self) -> None:
        if not 0 < self.sigma < math.inf:
            raise UserError(f"sigma must be positive and finite, got {self.sigma}")
        if not 1 < self.order < math.inf:
            raise UserError(f"the order must be a number above 1, got {self.order}")
        if self.classes < 2:
            raise UserError(f"a vote needs at least two classes, got {self.classes}")

    @cached_property
    def log_q0(self) -> float:
        """The logarithm of q0, from which on the cost is data-independent."""
        edge = -max((1 + 1 / self.sigma)**2, ((self.order - 0.99) / self.sigma)**2)

        def below(log_q: float) -> bool:
            cost = pate.data_dependent(np.array([log_q]), self.sigma, np.array([self.order]))
            return bool(cost[0, 0] < self.independent)

        if below(edge):
            return edge
        small = 2 * edge
        while not below(small):
            small *= 2
        return gdp.bisect(below, edge, small)

    @cached_property
    def log_q1(self) -> float:
        """The logarithm of the smallest q that a neighbour of a vote with q0 can have."""
        return float(self.smallest(np.array(self.log_q0)))

    @property
    def independent(self) -> float:
        """The data-independent cost, a / sigma^2."""
        return self.order / self.sigma**2

    def rdp(self, log_q: np.ndarray) -> np.ndarray:
        """The cost b at ln q; any shape."""
        flat = pate.rdp_gaussian(np.ravel(log_q), self.sigma, self.order)
        return np.where(log_q >= self.log_q0, self.independent, flat.reshape(np.shape(log_q)))

    def largest(self, log_q: np.ndarray) -> np.ndarray:
        """The logarithm of B_U(q), the largest q of a neighbour: all leads are equal and two less.

        Moving a vote changes each lead by at most two. Phi_c(Phi_c^-1(p) - c) is concave in p and,
        with +c, convex, so equal leads are the extreme case (Jensen), whatever the leads are; a
        lead reduced for rounding is a lead like another.
        """
        return np.minimum(self._shifted(log_q, -math.sqrt(2) / self.sigma), 0.0)

    def smallest(self, log_q: np.ndarray) -> np.ndarray:
        """The logarithm of B_L(q), the least q of a neighbour: all leads are equal and two more."""
        return self._shifted(log_q, math.sqrt(2) / self.sigma)

    def _shifted(self, log_q: np.ndarray, by: float) -> np.ndarray:
        others = math.log(self.classes - 1)
        return others + log_ndtr(ndtri_exp(log_q - others) - by)

    def sensitivity(self, log_q: np.ndarray) -> np.ndarray:
        """Upper bound on |b(q) - b(q')| over neighbours; from q1 to q0 the largest of all.

        Where the neighbour has another leader, no lead is above two, so that both q are at least
        Phi_c(sqrt(2) / sigma) > e^-(1 + 1/sigma)^2 >= q0, and b is the same.
        """
        between = (self.log_q1 <= log_q) & (log_q <= self.log_q0)
        log_q = np.where(between, self.log_q1, log_q)
        here = self.rdp(log_q)
        # B_U(q1) is q0 itself, from which on b is data-independent: not left to rounding, since b
        # jumps there if q0 is no crossing
        above = np.where(between, self.independent, self.rdp(self.largest(log_q)))
        return np.maximum(above - here, here - self.rdp(self.smallest(log_q)))

    @cached_property
    def plateau(self) -> float:
        """The largest local sensitivity there is."""
        return float(self.sensitivity(np.array(self.log_q1)))

    def conditions(self) -> tuple[bool, bool]:
        """Checks C5, b(q) does not fall on (0, q0), and C6, b(B_U(q)) - b(q) does not on (0, q1).

        Without them `smooth_sensitivity` need not be a bound. They depend on public parameters only
        and are checked on a grid in ln q, which is a check and no proof.

        Returns:
            Whether C5 holds, and whether C6 does.
        """
        def rises(values: np.ndarray) -> bool:
            return bool(np.all(np.diff(values) >= -1e-12 * np.abs(values[1:])))

        to_q0, to_q1 = (end - np.geomspace(-_DEEPEST, 1e-9, _GRID)
                        for end in (self.log_q0, self.log_q1))
        return rises(self.rdp(to_q0)), rises(self.rdp(self.largest(to_q1)) - self.rdp(to_q1))

    def require_conditions(self) -> None:
        """Refuses parameters for which the smooth sensitivity is not proven.

        Raises:
            UserError: C5 or C6 fails.
        """
        c5, c6 = self.conditions()
        if not (c5 and c6):
            failing = " and ".join(name for name, holds in (("C5", c5), ("C6", c6)) if not holds)
            raise UserError(f"no sanitised release at order {self.order:g} with sigma "
                            f"{self.sigma:g} and {self.classes} classes: condition {failing} of "
                            "the smooth sensitivity fails; take a larger sigma or a smaller order")
