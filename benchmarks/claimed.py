"""What the papers claim, what their settings cost when counted soundly, and what is reached here.

    python -m benchmarks.claimed

For each published setting of GS-WGAN and DP-GAN-DPAC: the epsilon that is printed; the epsilon of
the same noise and steps under a public rotation (exact Gaussian composition over the most visited
critic); and under the published random schedule, if the draws become known. Beside them the
accuracy in the results of `benchmarks.images` at a proven epsilon. Reads no data.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from scipy.stats import binom

from benchmarks import common
from dpgen_jax.accountant import gaussian, published
from dpgen_jax.accountant.events import GaussianEvent

DELTA = 1e-5


def composed(sigma: float, samples: int, delta: float = DELTA) -> float:
    """Epsilon of `samples` per-sample Gaussians of multiplier sigma, composed exactly."""
    return gaussian.epsilon(((GaussianEvent(sigma, 1), samples),), delta)


def revealed(sigma: float, batch: int, steps: int, critics: int, delta: float = DELTA) -> float:
    """Epsilon where each step visits a critic drawn at random and the draws become known: a
    record's critic is visited Binomial(steps, 1 / critics) times whatever the records are, so
    delta(epsilon) is the mean over that number of visits."""
    visits = np.arange(10 * math.ceil(steps / critics))
    weights = binom.pmf(visits, steps, 1 / critics)

    def exceeds(epsilon: float) -> bool:
        deltas = [gaussian.delta_at(math.sqrt(n * batch) / sigma, epsilon) for n in visits]
        return weights @ deltas + binom.sf(visits[-1], steps, 1 / critics) > delta

    low, high = 0.0, 1e5
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return high


def settings() -> list[dict[str, Any]]:
    """One row for each published setting."""
    mnist = {"critics": 1000, "steps": 20000, "batch": 32, "sigma": 1.07}
    celeba = {"critics": 2543, "steps": 20000, "batch": 32, "sigma": 0.61135}
    rows = []
    for name, s in (("MNIST, Fashion-MNIST", mnist), ("CelebA", celeba)):
        claim = published.gswgan(s["critics"], s["batch"], s["sigma"], DELTA).epsilon(s["steps"])
        rotation = math.ceil(s["steps"] / s["critics"])
        rows.append({"system": "gswgan", "data": name, **s, "claimed": claim,
                     "proven_rotation": composed(s["sigma"], rotation * s["batch"]),
                     "visits_rotation": rotation,
                     "proven_draws_revealed": revealed(
                         s["sigma"], s["batch"], s["steps"], s["critics"])})
    # DPAC asks about 1,000 fakes from step t_c on, and sanitises two gradients for one charge.
    for name, s, t_c in (("MNIST, Fashion-MNIST", mnist, 6000), ("CelebA", celeba, 1000)):
        before = math.ceil(t_c / s["critics"])
        after = math.ceil((s["steps"] - t_c) / s["critics"])
        claim = published.dpac(s["critics"], s["batch"], s["sigma"], DELTA).epsilon(s["steps"])
        rows.append({"system": "dpac", "data": name, **s, "t_c": t_c, "claimed": claim,
                     "visits_rotation": before + after,
                     "proven_rotation": composed(s["sigma"], before * 32 + after * 2 * 1000),
                     "proven_rotation_as_the_paper_says": composed(
                         s["sigma"], math.ceil(s["steps"] / s["critics"]) * 32)})
    visits, delta = math.ceil(30000 / 866), 1 / 866
    rows.append({"system": "gswgan, federated", "data": "Federated EMNIST", "critics": 866,
                 "steps": 30000, "batch": 32, "sigma": 1.07, "visits_rotation": visits,
                 "claimed": published.gswgan_federated(866, 32, 1.07, delta).epsilon(30000),
                 "proven_rotation": composed(1.07, visits * 32, delta)})
    return rows


def reached() -> list[dict[str, Any]]:
    """Accuracies at a proven epsilon, from the results that lie here."""
    rows = []
    for path in sorted(common.RESULTS.glob("*.json")):
        found = json.loads(path.read_text())
        if found["benchmark"] != "images" or not path.name.startswith(("gswgan", "dpac")):
            continue
        results = found["results"]
        rows.append({"file": path.name, "system": results["privacy"]["method"],
                     "data": results["dataset"], "preset": results["privacy"]["preset"],
                     "proven": results["privacy"]["epsilon"],
                     **{task: {net: values["accuracy"]["mean"] for net, values in nets.items()}
                        for task, nets in results["evaluation"].items()
                        if task in ("gen2real", "real2gen")}})
    return rows


def main() -> None:
    where = common.machine()
    print(common.write(common.record("claimed", [], [], {
        "delta": DELTA, "settings": settings(), "reached": reached()}, where)))


if __name__ == "__main__":
    main()
