"""Membership attacks by the distances between synthetic and real records.

Records are flattened to float32 [n, F] in [0, 1] and labels int [n]. An attack sees synthetic
records alone and scores candidates: the higher, the more it takes them for training records. All
three compare a candidate with the records of its own class, or with all where its class has none.

`nearest` and `closeness` quote and measure real records: they are for the data holder only.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.extmath import randomized_svd

from dpgen_jax.core.strict_json import Json

Records = tuple[np.ndarray, np.ndarray]
"""Flattened records float32 [n, F] in [0, 1] and labels int [n]."""

ATTACKS = ("closest_record", "density", "density_ratio")
COMPONENTS = 20
"""The most principal components along which densities are estimated."""
CHUNK = 500
"""Records whose distances to all others are in memory at once."""
BLOCK = 20_000
"""The most real records that are searched at once."""
VALUES = 2**26
"""The most values of real records that are searched at once: 256 MB as floats."""


def flat(x: np.ndarray) -> np.ndarray:
    """Flatten records.

    Args:
      x: Images [n, H, W, ch], uint8 or float in [0, 1], or encoded rows float [n, F] in [0, 1].

    Returns:
      float32 [n, F] in [0, 1].
    """
    x = np.asarray(x)
    scale = 255 if x.dtype == np.uint8 else 1
    return np.divide(x.reshape(len(x), -1), scale, dtype=np.float32)


def scores(candidates: Records, synthetic: Records, reference: Records, seed: int = 0
           ) -> dict[str, np.ndarray]:
    """Score each candidate by each attack.

    The attacks are
    - closest_record: minus the distance to the closest synthetic record;
    - density: the log-density under the synthetic records, a Gaussian kernel estimate along at most
      `COMPONENTS` principal components of the synthetic records, with Scott's bandwidth,
      n^(-1 / (d + 4)) standard deviations of each of the d components;
    - density_ratio: that minus the log-density under `reference`, so that a record that is typical
      of the population is not taken for a member.

    Args:
      candidates: Records to judge, float32 [n, F], and their labels int [n].
      synthetic: Records of the release, float32 [m, F], and their labels int [m].
      reference: Real records that are neither members nor candidates, and their labels.
      seed: The seed of the search for principal components.

    Returns:
      {name of `ATTACKS`: scores float [n]}; the higher, the more likely a member.

    Source:
      density: Hilprecht et al., "Monte Carlo and Reconstruction Membership Inference Attacks
      against Generative Models", PETS 2019. density_ratio: DOMIAS; van Breugel et al., AISTATS
      2023.
    """
    project = _components(synthetic[0], seed)
    judged, released, population = (
        (project(x), y) for x, y in (candidates, synthetic, reference))
    density = _by_class(_log_density, judged, released)
    closest = _by_class(lambda x, records: nearest(x, records)[1][:, 0], candidates, synthetic)
    ratio = density - _by_class(_log_density, judged, population)
    return dict(zip(ATTACKS, (-closest, density, ratio), strict=True))


def _by_class(score: Callable[[np.ndarray, np.ndarray], np.ndarray], candidates: Records,
              records: Records) -> np.ndarray:
    """Score candidates against the records of their class, or against all if it has none."""
    x, y = candidates
    values = np.empty(len(x))
    for label in np.unique(y):
        same = records[1] == label
        values[y == label] = score(x[y == label], records[0][same] if same.any() else records[0])
    return values


def _components(x: np.ndarray, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return the map of records to their coordinates float64 [n, d] along principal components.

    The components are the leading ones of x; coordinates are in standard deviations of x, and
    components without spread are left out.
    """
    centre = x.mean(0)
    _, size, axes = randomized_svd(x - centre, min(COMPONENTS, *x.shape), random_state=seed)
    kept = size > 1e-4 * max(size.max(), 1e-6)
    axes = axes[kept] / (size[kept, None] / np.sqrt(max(1, len(x) - 1)))
    return lambda records: ((records - centre) @ axes.T).astype(np.float64)


def _log_density(x: np.ndarray, records: np.ndarray) -> np.ndarray:
    """Return the kernel estimate float [n] from `records` [N, d] at x [n, d]."""
    n, d = records.shape
    width = n ** (-1 / (d + 4))
    logs = [logsumexp(-cdist(part, records, "sqeuclidean") / (2 * width**2), axis=1)
            for part in _chunks(x)] if d else [np.zeros(len(x))]
    return np.concatenate(logs) - np.log(n) - d * np.log(width)


def nearest(x: np.ndarray, real: np.ndarray, k: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Find the nearest real records of each record; for the data holder only.

    The search is exact, and a copy has distance 0.

    Args:
      x: Records [n, ...], as `flat` takes them.
      real: Real records [N, ...] of the same kind.
      k: How many real records are found for each, at most N.

    Returns:
      The indices of the real records int [n, k] and their Euclidean distances float [n, k],
      nearest first.
    """
    block = _at_once(real, BLOCK)
    parts = [_nearest(flat(x), flat(real[start:start + block]), k)
             for start in range(0, len(real), block)]
    rows = np.concatenate([rows + i * block for i, (rows, _) in enumerate(parts)], 1)
    distances = np.concatenate([distances for _, distances in parts], 1)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(rows, order, 1), np.take_along_axis(distances, order, 1)


def _nearest(x: np.ndarray, real: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return `nearest` of flat records, in no order."""
    search = NearestNeighbors(n_neighbors=min(k, len(real)), algorithm="brute").fit(real)
    indices, size = search.kneighbors(x, return_distance=False), _at_once(x, CHUNK)
    # The search computes distances by products, whose rounding gives a copy a distance above 0;
    # they are measured again by differences.
    return indices, np.concatenate([
        np.linalg.norm(part[:, None] - real[rows], axis=2)
        for part, rows in zip(_chunks(x, size), _chunks(indices, size), strict=True)])


def _at_once(records: np.ndarray, most: int) -> int:
    """Return how many records may be taken at once: `most`, or fewer where they are large."""
    return max(1, min(most, VALUES // max(1, math.prod(records.shape[1:]))))


def _chunks(x: np.ndarray, size: int = CHUNK) -> list[np.ndarray]:
    return [x[start:start + size] for start in range(0, len(x), size)]


def closeness(synthetic: np.ndarray, training: np.ndarray, held_out: np.ndarray) -> Json:
    """Compare how near synthetic and held-out records lie to training records.

    Held-out records show how near real records lie that were not trained on. The time is in
    proportion to all three counts: pass a few thousand synthetic and held-out records. For the
    data holder only.

    Args:
      synthetic: Records of the release [n, ...], as `flat` takes them.
      training: Records that it was trained on.
      held_out: Real records that it was not trained on.

    Returns:
      {"synthetic", "held_out"}, each {"percentile_1", "median", "copies"} of the distance to the
      nearest training record, copies being the share at distance 0; and "closer_than_held_out",
      the share of synthetic records that are closer than the first percentile of held-out ones:
      about 0.01 for records that lie as held-out ones do, 1 for copies.
    """
    near, near_held_out = (nearest(x, training)[1][:, 0] for x in (synthetic, held_out))
    first = float(np.percentile(near_held_out, 1))
    result: Json = {
        name: {"percentile_1": float(np.percentile(distances, 1)),
               "median": float(np.median(distances)), "copies": float(np.mean(distances == 0))}
        for name, distances in (("synthetic", near), ("held_out", near_held_out))}
    return result | {"closer_than_held_out": float(np.mean(near < first))}
