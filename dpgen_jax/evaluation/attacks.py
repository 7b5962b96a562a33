"""Distances between synthetic and real records, and what they tell of who was in the training data.

Records are flattened to float32 [n, F] in [0, 1] and labels int [n]. An attack sees synthetic
records alone and scores candidates: the higher, the more it takes them for training records. All
three compare a candidate with the records of its own class, or with all where its class has none.

`nearest` and `closeness` quote and measure real records: they are for the data holder only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.extmath import randomized_svd

Records = tuple[np.ndarray, np.ndarray]

ATTACKS = ("closest_record", "density", "density_ratio")
COMPONENTS = 20
CHUNK = 500
"""Records whose distances to all others are held at once."""


BLOCK = 20_000
"""Real records that are searched at once: large images would not all fit as floats."""


def flat(x: np.ndarray) -> np.ndarray:
    """float32 [n, F] in [0, 1], from images uint8 or float in [0, 1] or from encoded rows."""
    x = np.asarray(x)
    scale = 255 if x.dtype == np.uint8 else 1
    return np.divide(x.reshape(len(x), -1), scale, dtype=np.float32)


def scores(candidates: Records, synthetic: Records, reference: Records, seed: int = 0
           ) -> dict[str, np.ndarray]:
    """Each attack's score of each candidate: {name of `ATTACKS`: float [n]}.

    closest_record: minus the distance to the closest synthetic record.
    density: the log-density under the synthetic records (Hilprecht et al., "Monte Carlo and
      Reconstruction Membership Inference Attacks against Generative Models", PETS 2019): a Gaussian
      kernel estimate along at most `COMPONENTS` principal components of the synthetic records, with
      Scott's bandwidth, n^(-1 / (d + 4)) standard deviations of each of the d components.
    density_ratio: that minus the log-density under `reference`, real records that are neither
      members nor judged (DOMIAS; van Breugel et al., AISTATS 2023): a record that is typical of the
      population is no longer taken for a member. seed: of the search for components.
    """
    project = _components(synthetic[0], seed)
    judged, made, usual = ((project(x), y) for x, y in (candidates, synthetic, reference))
    density = _by_class(_log_density, judged, made)
    closest = _by_class(lambda x, records: nearest(x, records)[1][:, 0], candidates, synthetic)
    found = (-closest, density, density - _by_class(_log_density, judged, usual))
    return dict(zip(ATTACKS, found, strict=True))


def _by_class(score: Callable[[np.ndarray, np.ndarray], np.ndarray], candidates: Records,
              records: Records) -> np.ndarray:
    x, y = candidates
    found = np.empty(len(x))
    for label in np.unique(y):
        own = records[1] == label
        found[y == label] = score(x[y == label], records[0][own] if own.any() else records[0])
    return found


def _components(x: np.ndarray, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """Records to float64 [n, d]: coordinates along the leading principal components of x, each in
    standard deviations of x; components without spread are left out."""
    centre = x.mean(0)
    _, size, axes = randomized_svd(x - centre, min(COMPONENTS, *x.shape), random_state=seed)
    kept = size > 1e-4 * max(size.max(), 1e-6)
    axes = axes[kept] / (size[kept, None] / np.sqrt(max(1, len(x) - 1)))
    return lambda records: ((records - centre) @ axes.T).astype(np.float64)


def _log_density(x: np.ndarray, records: np.ndarray) -> np.ndarray:
    """float [n]: the kernel estimate from `records` [N, d] at x [n, d]."""
    n, d = records.shape
    width = n ** (-1 / (d + 4))
    logs = [logsumexp(-cdist(part, records, "sqeuclidean") / (2 * width**2), axis=1)
            for part in _chunks(x)] if d else [np.zeros(len(x))]
    return np.concatenate(logs) - np.log(n) - d * np.log(width)


def nearest(x: np.ndarray, real: np.ndarray, k: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest of the records `real` to each record of x: their places int [n, k] and
    Euclidean distances float [n, k], nearest first.

    Exact; a copy has distance 0. Shapes as `flat` takes them; k is at most len(real). For the data
    holder only.
    """
    parts = [_nearest(flat(x), flat(real[start:start + BLOCK]), k)
             for start in range(0, len(real), BLOCK)]
    places = np.concatenate([places + i * BLOCK for i, (places, _) in enumerate(parts)], 1)
    distances = np.concatenate([distances for _, distances in parts], 1)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(places, order, 1), np.take_along_axis(distances, order, 1)


def _nearest(x: np.ndarray, real: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """`nearest` of flat records, in no order."""
    search = NearestNeighbors(n_neighbors=min(k, len(real)), algorithm="brute").fit(real)
    places = search.kneighbors(x, return_distance=False)
    # Found by products, whose rounding gives a copy a distance; measured by differences.
    return places, np.concatenate([
        np.linalg.norm(part[:, None] - real[its], axis=2)
        for part, its in zip(_chunks(x), _chunks(places), strict=True)])


def _chunks(x: np.ndarray) -> list[np.ndarray]:
    return [x[start:start + CHUNK] for start in range(0, len(x), CHUNK)]


def closeness(synthetic: np.ndarray, training: np.ndarray, held_out: np.ndarray) -> dict[str, Any]:
    """How near synthetic records lie to training records, beside how near held-out ones do.

    Held-out records are what real ones look like that were not trained on. Returns
    {"synthetic", "held_out": each {"percentile_1", "median", "copies"} of the distance to the
    nearest training record, copies being the share at distance 0; "closer_than_held_out": the share
    of synthetic records that are closer than the held-out ones' first percentile: about 0.01 for
    records that lie as held-out ones do, 1 for copies}. Takes time in proportion to all three
    counts: pass a few thousand synthetic and held-out records. For the data holder only.
    """
    made, held = (nearest(x, training)[1][:, 0] for x in (synthetic, held_out))
    first = float(np.percentile(held, 1))
    found = {name: {"percentile_1": float(np.percentile(distances, 1)),
                    "median": float(np.median(distances)),
                    "copies": float(np.mean(distances == 0))}
             for name, distances in (("synthetic", made), ("held_out", held))}
    return found | {"closer_than_held_out": float(np.mean(made < first))}
