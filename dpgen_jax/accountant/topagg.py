"""Data-dependent Renyi-DP of TopAgg: sums of top-k sign votes with noise, of which signs are left.

Source: Wang et al., "DataLens", CCS 2021 (arXiv 2103.11109), Algorithm 3, Theorems 4 and 5.

Unit: one teacher. Neighbouring: one teacher changes all its votes in a row, at most k of +1 or -1
before and at most k after: L2 sensitivity 2 sqrt(k) of a row of sums (Lemma 1).

For the sums of the true data D, each bound holds for D_a(M(D) || M(D')) with every neighbour D', in
that direction, where the thresholded signs are all that is released: never for the noisy sums. It
depends on the votes, so it is itself private: it decides nothing and is not an epsilon.

Theorem 5 is wrong as printed, in two of its three factors (the last line of its proof drops the
sign of beta N). A sum f becomes -1 with probability Phi((-beta N - f) / sigma), where the paper has
Phi((beta N - f) / sigma); and 0 with Phi((beta N - f) / sigma) - Phi((-beta N - f) / sigma), where
it has erf((beta N - f) / (sqrt(2) sigma)), which is the same for f = 0 alone. For sums below zero
both are too large, and q would be too small: no bound at all. `TopAgg.laws` has the right ones.

Theorem 4 leaves out a condition of its proof, q e^alpha2 < 1 (`pate.likely_outcome`). With it, it
says nothing unless the likeliest outcome of a row has a probability above 1 - e^(-2 k / sigma^2).
At all published settings it has less over the entries of an image, whatever the teachers vote
(`TopAgg.most_log_peak`); in fewer dimensions, with little noise, the theorem can be the tighter
bound. So the paper's finding that the data-dependent bound is the looser one is right, and a
property of this bound. It is none of the data: the laws of all outcomes are known, and the
divergence that they give (`TopAgg.by_entries`) is never above the data-independent one.

Shapes: Q rows of sums (one for each queried fake), D entries, A orders. Logarithms are natural.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr

from dpgen_jax.accountant.pate import likely_outcome
from dpgen_jax.accountant.pate_laplace import renyi_of_laws
from dpgen_jax.accountant.pate_votes import ROUNDED, Rounding, require_orders, require_positive
from dpgen_jax.core.errors import UserError

_ABOVE_ONE = 1 + np.geomspace(1e-2, 1e6, 33)
"""candidates for mu1 and mu2: which ones are tried changes how tight a bound is, not its truth"""


@dataclasses.dataclass(frozen=True)
class TopAgg:
    """The public numbers of one release of thresholded votes.

    Attributes:
        n_units: Teachers.
        top_k: Votes of a teacher in a row.
        needed: The sum from which an entry becomes 1, and minus which -1; in votes, above 0.
        sigma: Noise on each sum, in votes.
        rounding: ROUNDED, or IDEAL for the noise of the paper.

    Raises:
        UserError: A number is not positive.
    """

    n_units: int
    top_k: int
    needed: float
    sigma: float
    rounding: Rounding = ROUNDED

    def __post_init__(self) -> None:
        for name in ("n_units", "top_k", "needed", "sigma"):
            require_positive(name, getattr(self, name))

    @property
    def slope(self) -> float:
        """The divergence of one row at order 1, whatever the votes: 2 k / sigma^2 (Theorem 3)."""
        return 2 * self.top_k / self.sigma**2

    def laws(self, sums: ArrayLike) -> np.ndarray:
        """The law of the sign that each sum becomes.

        Args:
            sums: Votes [...], whole numbers.

        Returns:
            Logarithms of the probabilities of -1, 0 and 1, float64 [..., 3].
        """
        f, at = np.asarray(sums, float), self.rounding.threshold(self.needed)
        # By symmetry in the left tail, where a difference of two tails keeps its digits.
        below, above = (log_ndtr((side * at - np.abs(f)) / self.sigma) for side in (-1, 1))
        zero = above + np.log1p(-np.exp(below - above))
        return np.stack([log_ndtr((-at - f) / self.sigma), zero,
                         log_ndtr((f - at) / self.sigma)], axis=-1)

    def log_match(self, sums: ArrayLike, signs: ArrayLike) -> np.ndarray:
        """Theorem 5, mended: the logarithm of the probability that these very signs are released.

        Args:
            sums: Votes [Q, D].
            signs: The outcome [Q, D] in {-1, 0, 1}.

        Returns:
            ln Pr[M = signs] for each row [Q]; 1 - Pr is the q of Theorem 4.
        """
        index = np.asarray(signs, int)[..., None] + 1
        return np.take_along_axis(self.laws(sums), index, -1)[..., 0].sum(-1)

    def log_q(self, sums: ArrayLike) -> np.ndarray:
        """The logarithm of q: the chance of another outcome than the likeliest one; it is exact.

        Args:
            sums: Votes [Q, D].

        Returns:
            ln q [Q].
        """
        return _log_not(self.laws(sums).max(-1).sum(-1))

    def most_log_peak(self, columns: int) -> float:
        """An upper bound on ln Pr of the likeliest outcome of a row, whatever the teachers vote.

        An entry is 0 with at most the probability it has where its votes cancel. Let m entries of
        the outcome not be 0: the magnitudes of their sums add up to at most k n_units, and
        ln Phi is concave, so they are likeliest where those are equal. It is public.

        Args:
            columns: D.
        """
        m = np.arange(columns + 1)
        lead = np.minimum(self.n_units, self.top_k * self.n_units / np.maximum(m, 1))
        return float(np.max(m * self.laws(lead)[:, 2] + (columns - m) * self.laws(0)[1]))

    def independent(self, orders: ArrayLike) -> np.ndarray:
        """The data-independent divergence of one row [A] (Theorem 3).

        Args:
            orders: Orders [A], > 1.
        """
        return self.slope * require_orders(orders)

    def theorem(self, log_q: ArrayLike, orders: ArrayLike) -> np.ndarray:
        """Theorem 4 with the best of many mu1 and mu2, on its own: not the smaller of two bounds.

        Args:
            log_q: ln of an upper bound on q [Q].
            orders: Orders [A], > 1.

        Returns:
            RDP [Q, A]; inf where the theorem says nothing.
        """
        orders, log_q = require_orders(orders), np.asarray(log_q, float)
        best = np.full((len(log_q), len(orders)), np.inf)
        some = -log_q > self.slope  # or no mu2 > 1 has q e^alpha2 < 1
        if not some.any():
            return best
        for mu1, mu2 in itertools.product(_ABOVE_ONE, _ABOVE_ONE):
            bound = likely_outcome(log_q[some], self.slope, np.maximum(mu1, orders), mu2, orders)
            best[some] = np.minimum(best[some], bound)
        return best

    def by_entries(self, sums: ArrayLike, orders: ArrayLike) -> np.ndarray:
        """An upper bound on the divergence of each row from all its neighbours, from known laws.

        For given sums the entries of an outcome are independent, and divergences of independent
        entries add up. A teacher moves an entry by 0, 1 or 2, in all by at most 2 k: k votes before
        and k after. With D_j(s) the larger divergence of entry j from sums that lie s away, a unit
        of movement costs at most u_j = max(D_j(1), D_j(2) / 2), and no entry takes more than two:
        so a row costs at most the sum of the k largest 2 u_j. Signs are post-processing of the
        noisy sum, D_j(s) <= a s^2 / (2 sigma^2), so that this is at most 2 k a / sigma^2.

        Args:
            sums: Votes [Q, D], whole numbers from -n_units to n_units.
            orders: Orders [A], > 1.

        Returns:
            RDP [Q, A].

        Raises:
            UserError: Sums that so many teachers cannot have.
        """
        orders, sums = require_orders(orders), np.asarray(sums)
        if sums.dtype.kind not in "iu" or np.any(np.abs(sums) > self.n_units):
            raise UserError(f"sums of the votes of {self.n_units} teachers must be whole numbers "
                            f"from {-self.n_units} to {self.n_units}")
        table, index = self._twice_a_unit(orders), np.abs(sums)
        k = min(self.top_k, sums.shape[-1])
        rows = np.empty((len(sums), len(orders)))
        for i, costs in enumerate(table.T):
            each = costs[index]
            rows[:, i] = np.partition(each, -k, axis=-1)[:, -k:].sum(-1)
        return np.minimum(rows, self.slope * orders)

    def _twice_a_unit(self, orders: np.ndarray) -> np.ndarray:
        """2 u_j for sums of magnitude 0..n_units: [n_units + 1, A]."""
        f = np.arange(self.n_units + 1)
        here = self.laws(f)

        def away(distance: int) -> np.ndarray:
            return np.maximum(*(renyi_of_laws(here, self.laws(f + side * distance), orders)
                                for side in (-1, 1)))

        return np.maximum(2 * away(1), away(2))


def _log_not(log_p: np.ndarray) -> np.ndarray:
    """ln(1 - p) from ln p <= 0."""
    with np.errstate(divide="ignore"):  # p = 1: ln 0
        return np.where(log_p > -1, np.log(-np.expm1(log_p)), np.log1p(-np.exp(log_p)))
