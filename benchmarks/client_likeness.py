"""Client by client: how near synthetic images are to the images of each client of a federation.

One generator serves all clients, whose records differ, so that an average may hide clients whom it
does not resemble. The result is quantiles over clients, not the score of one client.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpgen_jax.core.types import EMPTY, UserError
from dpgen_jax.evaluation.fidelity import (
    Features,
    Judge,
    frechet_distance,
    inception_score,
    moments,
)

QUANTILES = {"least": 0.0, "quarter": 0.25, "median": 0.5, "three_quarters": 0.75, "most": 1.0}
LEAST_IMAGES = 2
"""A client with fewer images has no covariance, and is left out."""
INCEPTION_CLIENTS = 20
"""The most clients that are compared by Inception's 2,048 features, drawn at random: a root of
their covariances takes seconds for each client."""


def by_client(samples: np.ndarray, x: np.ndarray, y: np.ndarray, clients: np.ndarray, judge: Judge,
              inception: Features | None = None) -> dict[str, Any]:
    """Compare synthetic images with those of each client.

    A Frechet distance to few images is large however good the samples are. So each has a floor: the
    distance from as many real images of all clients as there are samples to the same client's.

    Args:
        samples: Synthetic images [m, H, W, ch].
        x: Real images of the clients [n, H, W, ch].
        y: Their labels int [n]; rows with the label `EMPTY` are no images.
        clients: int [n], the client 0..U-1 of each image.
        judge: The classifier whose features are compared.
        inception: A function that returns Inception's features; None for no `fid`.

    Returns:
        `by_client`: quantiles over clients of {fid_features, floor,
        inception_score_of_real_images}, and with `inception` {fid, fid_floor} over at most
        `INCEPTION_CLIENTS` of them; the numbers of clients that have `LEAST_IMAGES`; and
        `not_covered_by_epsilon`, its keys.
    """
    present = y != EMPTY
    x, rows = x[present], _rows_of(clients[present])
    if not rows:
        raise UserError(f"no client has {LEAST_IMAGES} images: there is nothing to compare")
    rng = np.random.default_rng(0)
    order = rng.permutation(len(x))[:len(samples)]
    features, probabilities = judge.see(x)
    distances, floors = _distances_by_client(
        judge.see(samples)[0], features[order], [features[part] for part in rows])
    scores = {"fid_features": distances, "floor": floors, "inception_score_of_real_images": [
        inception_score(probabilities[part]) for part in rows]}
    counts = {"clients": len(rows)}
    if inception is not None:
        compared = [rows[i] for i in rng.permutation(len(rows))[:INCEPTION_CLIENTS]]
        ends = np.cumsum([len(part) for part in compared])[:-1]
        scores["fid"], scores["fid_floor"] = _distances_by_client(
            inception(samples), inception(x[order]),
            np.split(inception(x[np.concatenate(compared)]), ends))
        counts["fid_clients"] = len(compared)
    quantiles = {name: dict(zip(QUANTILES, np.quantile(values, list(QUANTILES.values())).tolist(),
                                strict=True)) for name, values in scores.items()}
    return {"by_client": quantiles | counts,
            "not_covered_by_epsilon": [f"by_client.{name}" for name in scores]}


def _distances_by_client(synthetic: np.ndarray, real: np.ndarray, clients: Sequence[np.ndarray]
                         ) -> tuple[list[float], list[float]]:
    """Return the distances of synthetic and of real images to each client's, by features [n, d]."""
    both, parts = (moments(synthetic), moments(real)), [moments(part) for part in clients]
    distances, floors = ([frechet_distance(one, part) for part in parts] for one in both)
    return distances, floors


def _rows_of(clients: np.ndarray) -> list[np.ndarray]:
    """Return the rows of each client that has enough of them."""
    order = np.argsort(clients, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(clients))[:-1])
    return [part for part in parts if len(part) >= LEAST_IMAGES]
