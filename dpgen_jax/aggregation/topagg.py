"""TopAgg: thresholded sums of top-k sign votes (DataLens, Wang et al. 2021, arXiv 2103.11109)."""

from __future__ import annotations

import dataclasses

from dpgen_jax.aggregation.mechanism import SumMechanism
from dpgen_jax.aggregation.noise import NoNoise, RoundedGaussian
from dpgen_jax.aggregation.threshold import Threshold, votes_needed
from dpgen_jax.aggregation.topk_sign import TopKSign


@dataclasses.dataclass(frozen=True, kw_only=True)
class TopAggMechanism(SumMechanism):
    """A `SumMechanism` of `TopKSign` votes that releases the signs of the sums and nothing else.

    Guarantee:
        That of `SumMechanism`, by the noisy sums. The data-dependent reading of the votes
        (`accountant.topagg`) needs that the signs alone are released, and is for the data holder.

    Source:
        DataLens (arXiv 2103.11109), Algorithm 3.
    """

    bound: TopKSign
    noise: RoundedGaussian | NoNoise
    decode: Threshold

    @property
    def keeps_votes(self) -> bool:
        """True: the signs are all that is released, as data-dependent accounting needs."""
        return True

    @property
    def queries(self) -> int:
        """The number of sums of one round."""
        rows, columns = self.shape
        return rows * columns

    @property
    def votes_needed(self) -> int:
        """The least sum that becomes 1; minus it, the largest that becomes -1."""
        return votes_needed(self.n_units, self.decode.beta)
