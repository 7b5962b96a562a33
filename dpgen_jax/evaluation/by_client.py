"""Fidelity client by client: how near synthetic images are to the images of each client.

One generator serves all clients of a federation, and their records differ: an average may hide
clients whom it does not resemble. All scores are computed from the clients' real images: epsilon
covers none of them, and what is returned are quantiles over clients, not the score of one.
"""

from __future__ import annotations

import numpy as np

from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import EMPTY, UserError
from dpgen_jax.evaluation.fidelity import frechet_distance, inception_score, moments
from dpgen_jax.evaluation.judge import Judge

QUANTILES = {"least": 0.0, "quarter": 0.25, "median": 0.5, "three_quarters": 0.75, "most": 1.0}
LEAST_IMAGES = 2
"""A client with fewer images has no covariance, and is left out."""


def by_client(samples: np.ndarray, x: np.ndarray, y: np.ndarray, clients: np.ndarray, judge: Judge,
              seed: int = 0) -> Json:
    """Compare synthetic images with those of each client.

    A Frechet distance to few images is large however good the samples are. So each has a floor: the
    distance from as many real images of all clients as there are samples to the same client's.

    Args:
        samples: Synthetic images [m, H, W, ch].
        x: Real images of the clients [n, H, W, ch].
        y: Their labels int [n]; rows with the label `EMPTY` are no images.
        clients: int [n], the client 0..U-1 of each image.
        judge: The classifier whose features are compared.
        seed: Of the choice of the real images for the floor.

    Returns:
        `by_client`: quantiles over clients of {fid_features, floor, inception_score}, the last
        being that of the client's real images, with `clients`, the number of clients that have
        `LEAST_IMAGES` images; and `not_covered_by_epsilon`, its keys.

    Raises:
        UserError: No client has enough images.
    """
    present = y != EMPTY
    features, probabilities = judge.see(x[present])
    rows = _rows_of(clients[present])
    if not rows:
        raise UserError(f"no client has {LEAST_IMAGES} images: there is nothing to compare")
    synthetic = moments(judge.see(samples)[0])
    order = np.random.default_rng(seed).permutation(len(features))[:len(samples)]
    real = moments(features[order])
    scores: dict[str, list[float]] = {"fid_features": [], "floor": [], "inception_score": []}
    for part in rows:
        client = moments(features[part])
        scores["fid_features"].append(frechet_distance(synthetic, client))
        scores["floor"].append(frechet_distance(real, client))
        scores["inception_score"].append(inception_score(probabilities[part]))
    return {"by_client": {name: _quantiles(values) for name, values in scores.items()}
            | {"clients": len(rows)},
            "not_covered_by_epsilon": [f"by_client.{name}" for name in scores]}


def _rows_of(clients: np.ndarray) -> list[np.ndarray]:
    """Return the rows of each client that has enough of them."""
    order = np.argsort(clients, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(clients))[:-1])
    return [part for part in parts if len(part) >= LEAST_IMAGES]


def _quantiles(values: list[float]) -> dict[str, float]:
    """Return the named quantiles."""
    return {name: float(np.quantile(values, share)) for name, share in QUANTILES.items()}
