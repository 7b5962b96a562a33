"""Claimed epsilons of papers, proven epsilons of the same settings, and accuracies reached here.

    python -m benchmarks.claimed

For each published setting of GS-WGAN and DP-GAN-DPAC it computes the epsilon of the published
accounting, as `dp_accounting` adds it up and with the classic conversion of the papers' scripts;
the epsilon of the same noise and steps under a public rotation (exact Gaussian composition over
the critic with the most participations); and under the published random schedule, if the sampled
critics become known. Beside them stand the accuracies in the results of `benchmarks.images` at a
proven epsilon, for every paper what its accounting gives by either conversion, for every setting
of the PATE-style papers the rounds that its budget buys, and for codes that people run what is
wrong in each (`claimed_codes`). It reads no data, and writes benchmarks/results/claimed.json.
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
from scipy.stats import binom

from benchmarks import claimed_codes, common
from dpgen_jax import presets
from dpgen_jax.accountant import composition, published
from dpgen_jax.accountant.events import GaussianEvent
from dpgen_jax.accountant.published import Published
from dpgen_jax.methods import dpcgan

DELTA = 1e-5


def composed(sigma: float, samples: int, delta: float = DELTA) -> float:
    """Return the exact epsilon of `samples` per-sample Gaussians of multiplier sigma."""
    return composition.epsilon_of(((GaussianEvent(sigma, 1), samples),), delta)


def revealed(sigma: float, batch: int, steps: int, critics: int, delta: float = DELTA) -> float:
    """Return the epsilon where each step queries a random critic and the choices become known.

    A record's critic participates Binomial(steps, 1 / critics) times whatever the records are, so
    delta(epsilon) is the mean over that number of participations.

    Args:
      sigma: The noise multiplier.
      batch: The samples of a step.
      steps: The number of steps.
      critics: The number of critics.
      delta: The delta of the guarantee.

    Returns:
      Epsilon.
    """
    participations = np.arange(10 * math.ceil(steps / critics))
    weights = binom.pmf(participations, steps, 1 / critics)

    def exceeds(epsilon: float) -> bool:
        deltas = [composition.gaussian_delta(math.sqrt(n * batch) / sigma, epsilon)
                  for n in participations]
        return weights @ deltas + binom.sf(participations[-1], steps, 1 / critics) > delta

    low, high = 0.0, 1e5
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return high


def claims(paper: Published, steps: int) -> dict[str, float]:
    """Return the epsilon of a paper's accounting, by either conversion."""
    return {"claimed": paper.epsilon(steps), "claimed_classic": paper.epsilon(steps, "classic")}


def conversions() -> list[dict[str, Any]]:
    """Return a row for each paper: its accounting by either conversion.

    The steps are those that its target allows by the classic conversion, or that the paper ran.
    """
    datalens, gpate = published.datalens, published.gpate
    wor = published
    cases: list[tuple[str, Published, float, int | None]] = [
        ("datalens, MNIST, epsilon 1", datalens(200, 15, 5000, DELTA), 1.0, None),
        ("datalens, MNIST, epsilon 10 (its table: k 350, sigma 900)",
         datalens(350, 15, 900, DELTA), 10.0, None),
        ("datalens, MNIST, epsilon 10 (its README: k 300, sigma 800)",
         datalens(300, 15, 800, DELTA), 10.0, None),
        ("gpate, MNIST, epsilon 1", gpate(15, 10, 1000, 3000, DELTA), 1.0, 232),
        ("gpate, MNIST, epsilon 10", gpate(30, 10, 100, 600, DELTA), 10.0, None),
        ("gswgan, MNIST", wor.gswgan(1000, 32, 1.07, DELTA), 10.0, 20000),
        ("gswgan, CelebA", wor.gswgan(2543, 32, 0.61135, DELTA), 10.0, 20000),
        ("gswgan, federated", wor.gswgan_federated(866, 32, 1.07, 1 / 866), 600.0, 30000),
        ("dpcgan, MNIST", published.dpcgan(60000, 600, 1.1, 1.12, DELTA), 9.6, 30000),
        ("dpmerf, epsilon 1", published.dpmerf(5, DELTA), 1.0, 1),
        ("dpmerf, epsilon 0.2", published.dpmerf(25, DELTA), 0.2, 1),
        ("dpmerf_ae, MNIST", wor.dpmerf_ae(60000, 500, 0.686, DELTA), 10.0, 2040),
        ("fedavg_gan, Federated EMNIST", wor.fedavg_gan(866, 10, 0.01, 1 / 866), 1e7, 1000)]
    rows = []
    for name, paper, target, run in cases:
        allowed = {"steps_allowed": paper.max_steps(target),
                   "steps_allowed_classic": paper.max_steps(target, "classic")}
        steps = run or allowed["steps_allowed_classic"]
        rows.append({"setting": name, "target": target, "steps": steps, **claims(paper, steps),
                     **allowed})
    return rows


def settings() -> list[dict[str, Any]]:
    """Return a row for each published setting."""
    mnist = {"critics": 1000, "steps": 20000, "batch": 32, "sigma": 1.07}
    celeba = {"critics": 2543, "steps": 20000, "batch": 32, "sigma": 0.61135}
    rows = []
    for name, s in (("MNIST, Fashion-MNIST", mnist), ("CelebA", celeba)):
        claim = claims(published.gswgan(
            s["critics"], s["batch"], s["sigma"], DELTA), s["steps"])
        rotation = math.ceil(s["steps"] / s["critics"])
        rows.append({"system": "gswgan", "data": name, **s, **claim,
                     "proven_rotation": composed(s["sigma"], rotation * s["batch"]),
                     "visits_rotation": rotation,
                     "proven_draws_revealed": revealed(
                         s["sigma"], s["batch"], s["steps"], s["critics"])})
    # DPAC queries 1,000 fakes from step t_c on, and sanitises two gradients for one charge.
    for name, s, t_c in (("MNIST, Fashion-MNIST", mnist, 6000), ("CelebA", celeba, 1000)):
        before = math.ceil(t_c / s["critics"])
        after = math.ceil((s["steps"] - t_c) / s["critics"])
        claim = claims(published.dpac(
            s["critics"], s["batch"], s["sigma"], DELTA), s["steps"])
        rows.append({"system": "dpac", "data": name, **s, "t_c": t_c, **claim,
                     "visits_rotation": before + after,
                     "proven_rotation": composed(s["sigma"], before * 32 + after * 2 * 1000),
                     "proven_rotation_as_the_paper_says": composed(
                         s["sigma"], math.ceil(s["steps"] / s["critics"]) * 32)})
    visits, delta = math.ceil(30000 / 866), 1 / 866
    claim = claims(published.gswgan_federated(866, 32, 1.07, delta), 30000)
    rows.append({"system": "gswgan, federated", "data": "Federated EMNIST", "critics": 866,
                 "steps": 30000, "batch": 32, "sigma": 1.07, "visits_rotation": visits,
                 **claim,
                 "proven_rotation": composed(1.07, visits * 32, delta)})
    return rows


def baselines() -> list[dict[str, Any]]:
    """Return a row for each baseline whose noise and steps its paper prints.

    The DP-SGD GAN of GS-WGAN (appendix C.4, Table 1) is the DP-CGAN code, which clips each of its
    four weight tensors by itself; what is proven is with one clip over all, as it is here.
    """
    preset = presets.get("dpcgan", "mnist-gswgan")[1]
    config = dataclasses.replace(preset.config, records=preset.records)
    events = dpcgan.mechanism(config, preset.spec).events(config.steps)
    formula = published.dpcgan(preset.records, config.batch, config.clip, config.sigma, DELTA)
    return [{"system": "dpcgan", "preset": "mnist-gswgan", "data": "MNIST, Fashion-MNIST",
             "paper": "GS-WGAN, appendix C.4", "steps": config.steps, "batch": config.batch,
             "sigma": config.sigma, "clip": config.clip, "stated": 10.0,
             "by_its_code": formula.epsilon(config.steps, "classic"),
             "proven": composition.epsilon_of(events, DELTA)}]


def reached() -> list[dict[str, Any]]:
    """Return the accuracies at a proven epsilon, from the results in this folder."""
    rows = []
    for path in sorted(common.RESULTS.glob("*.json")):
        record = json.loads(path.read_text())
        if record["benchmark"] != "images" or not path.name.startswith(("gswgan", "dpac")):
            continue
        results = record["results"]
        rows.append({"file": path.name, "system": results["privacy"]["method"],
                     "data": results["dataset"], "preset": results["privacy"]["preset"],
                     "proven": results["privacy"]["epsilon"],
                     **{task: {net: values["accuracy"]["mean"] for net, values in nets.items()}
                        for task, nets in results["evaluation"].items()
                        if task in ("gen2real", "real2gen")}})
    return rows


def main() -> None:
    """Run the benchmark and write its record."""
    where = common.machine()
    print(common.write(common.record("claimed", [], [], {
        "delta": DELTA, "settings": settings(), "baselines": baselines(),
        "conversions": conversions(), "reached": reached(),
        **claimed_codes.rows()}, where)))


if __name__ == "__main__":
    main()
