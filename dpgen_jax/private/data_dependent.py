"""What the votes of a finished run tell the data holder: agreement, and a data-dependent epsilon.

All of it is as private as the records. It decides nothing and is exported nowhere; `Reading` leaves
this folder through `for_the_holder` alone, to be shown on the data holder's own terminal. The one
way to publish a data-dependent number is `aggregation.sanitise`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from dpgen_jax.accountant import pate
from dpgen_jax.private.votes import Votes
from dpgen_jax.types import Private, unseal

ORDERS = np.concatenate([1 + np.geomspace(0.05, 1, 10), np.arange(2.5, 10, 0.5),
                         np.geomspace(10, 500, 25)])


@dataclasses.dataclass(frozen=True)
class Reading:
    """epsilon: data-dependent, at the run's delta; order: of its Renyi bound; answered: share of
    the queries; first, second: mean share of the votes in the most voted bin and in the next;
    queries: that were kept; lost: steps that were charged and kept no votes."""

    epsilon: float
    order: float
    answered: float
    first: float
    second: float
    queries: int
    lost: int


def read(votes: Private[Votes], mechanism: Any, delta: float, charged: int) -> Private[Reading]:
    """The reading of a Confident-GNMax mechanism with noise, of which `charged` steps stand in the
    ledger; those without votes count at their worst."""
    held = unseal(votes)
    lost = max(0, charged - held.steps)
    rdp = _renyi(held, mechanism, ORDERS) + lost * mechanism.queries * ORDERS * _worst(mechanism)
    best = int(np.argmin([pate.epsilon_of(rdp[i:i + 1], ORDERS[i:i + 1], delta)
                          for i in range(len(ORDERS))]))
    ordered = np.sort(held.counts, 1)[:, ::-1] / mechanism.n_units
    first, second = ordered[:, :2].mean(0)
    return Private(Reading(pate.epsilon_of(rdp, ORDERS, delta), float(ORDERS[best]),
                           float(held.answered.mean()), float(first), float(second),
                           len(held.counts), lost))


def _renyi(held: Votes, mechanism: Any, orders: np.ndarray) -> np.ndarray:
    return pate.confident_gnmax_rdp(held.counts, held.answered, mechanism.votes_needed,
                                    mechanism.test_noise.sigma, mechanism.noise.sigma, orders)


def _worst(mechanism: Any) -> float:
    """Renyi divergence of one answered query over its order, data-independent."""
    return 1 / (2 * mechanism.test_noise.sigma**2) + 1 / mechanism.noise.sigma**2


def for_the_holder(reading: Private[Reading]) -> Reading:
    """Opens a reading, for the data holder's own eyes."""
    return unseal(reading)
