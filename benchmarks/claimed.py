"""Claimed epsilons of papers, proven epsilons of the same settings, and accuracies reached here.

    python -m benchmarks.claimed

For each published setting of GS-WGAN and DP-GAN-DPAC it computes the epsilon of the published
accounting, as `dp_accounting` adds it up and with the classic conversion of the papers' scripts;
the epsilon of the same noise and steps under a public rotation (exact Gaussian composition over
the critic with the most participations); and under the published random schedule, if the sampled
critics become known. Beside them stand the accuracies in the results of `benchmarks.images` at a
proven epsilon, for every paper what its accounting gives by either conversion, for every setting
of the PATE-style papers the rounds that its budget buys, and for codes that people run what is
wrong in each (`codes`). It reads no data, and writes benchmarks/results/claimed.json.
"""

import dataclasses
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import yaml
from scipy.stats import binom

from benchmarks import common
from dpgen_jax import methods, presets
from dpgen_jax.accountant import composition
from dpgen_jax.accountant.events import GaussianEvent, PoissonGaussianEvent
from dpgen_jax.accountant.published import Published
from dpgen_jax.core.config import Budget
from dpgen_jax.core.terms import Relation
from dpgen_jax.methods import dpcgan
from dpgen_jax.run.calibrate_config import complete

# Published settings beside their proof, and codes that people run with what is wrong in each.

DELTA = 1e-5
PAPERS = ("Wang et al. 2021", "Long et al. 2021, ", "README command of AI-secure")
"""The beginnings of the sources of settings whose noise is printed, and whose steps are found"""
SHARED = ("its optimiser's state is shared by all teachers that take turns in one place of the "
          "graph, so one record moves up to {} teachers, and each of them a vote")


def settings_of_papers() -> list[dict[str, Any]]:
    """Return a row for each setting of the PATE-style papers: the rounds that its budget buys.

    Settings that cost alike are one row.
    """
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for method in ("datalens", "gpate"):
        for name, preset in presets.all_of(method).items():
            if not (preset.source.startswith(PAPERS) and preset.config.sigma
                    and math.isfinite(preset.epsilon)):
                continue
            formula = methods.published(method, preset.config, preset.delta)
            if formula is None:
                continue
            mechanism = methods.get(method).mechanism(preset.config, preset.spec)
            budget = Budget(preset.epsilon, preset.delta, preset.class_epsilon)
            proven = complete(method, preset.config, preset.spec, budget).steps
            key = (method, budget, str(mechanism.events(1)))
            row = rows.setdefault(key, {
                "method": method, "presets": [], "epsilon": preset.epsilon, "delta": preset.delta,
                "sigma": preset.config.sigma, "paper": formula.max_steps(preset.epsilon, "classic"),
                "dp_accounting": formula.max_steps(preset.epsilon), "proven": proven})
            row["presets"].append(name)
    return list(rows.values())


def exact(sigma: float, squared_sensitivity: int, count: int, delta: float = DELTA) -> float:
    return composition.epsilon_of(((GaussianEvent(sigma, squared_sensitivity), count),), delta)


def codes() -> list[dict[str, Any]]:
    votes, teachers = 4 * 200 * 15, 80
    drawn = GaussianEvent(1.12 / 2, 1)  # four tensors of norm C each: 2 C together
    counted = {relation: composition.epsilon_of(((PoissonGaussianEvent(
        drawn, 600 / 55_000, relation), 30_000),), DELTA)
        for relation in (Relation.ZERO_OUT, Relation.REPLACE_ONE)}
    sound = {"AI-secure/DataLens, MNIST": exact(5000.0, votes * teachers**2, 86),
             "reihaneh-torkzadehmahani/DP-CGAN, MNIST": counted[Relation.REPLACE_ONE],
             "2019ChenGong/DPImageBench, its GS-WGAN at 10": exact(0.470, 1, 20 * 32),
             "frhrdr/dp-merf, images": exact(5.0, 1, 1)}
    fill = {"teachers": teachers, "zero_out": f"{counted[Relation.ZERO_OUT]:.1f}"}
    rows = []
    for code, row in common.read_yaml(__file__, "codes.yaml").items():
        certified = row.get("certified_by_others")
        rows.append({"code": code, "claimed": float(row["claimed"]),
                     **({"sound": sound[code]} if certified is None else
                        {"certified_by_others": float(certified)}),
                     "how": row["how"].format(**fill), "wrong": row["wrong"].format(**fill)})
    return rows


def rows() -> dict[str, Any]:
    """Return both lists, as the results file has them; no number is infinite."""
    lists = {"papers": settings_of_papers(), "codes": codes()}
    assert all(math.isfinite(row.get("sound", 0.0)) for row in lists["codes"])
    return lists


def composed(sigma: float, samples: int, delta: float = DELTA) -> float:
    """Return the exact epsilon of `samples` per-sample Gaussians of multiplier sigma."""
    return composition.epsilon_of(((GaussianEvent(sigma, 1), samples),), delta)


def revealed(sigma: float, batch: int, steps: int, critics: int, delta: float = DELTA) -> float:
    """Return the epsilon where each step queries a random critic and the choices become known.

    A record's critic participates Binomial(steps, 1 / critics) times whatever the records are, so
    delta(epsilon) is the mean over that number of participations.
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


def published(method: str, delta: float = DELTA, **numbers: Any) -> Published:
    """Return the accounting of a paper at these numbers."""
    paper = methods.published(method, SimpleNamespace(**numbers), delta)
    assert paper is not None
    return paper


def gswgan(critics: int, sigma: float, method: str = "gswgan") -> Published:
    """Return the accounting of GS-WGAN, or of DPAC, for batches of 32."""
    return published(method, critics=critics, critics_per_step=1, batch=32, sigma=sigma,
                     federated=False)


def federated_gswgan() -> Published:
    """Return the accounting of GS-WGAN's federated experiment."""
    return published("gswgan", 1 / 866, critics=866, critics_per_step=1, batch=32, sigma=1.07,
                     federated=True)


def claims(paper: Published, steps: int) -> dict[str, float]:
    """Return the epsilon of a paper's accounting, by either conversion."""
    return {"claimed": paper.epsilon(steps), "claimed_classic": paper.epsilon(steps, "classic")}


def conversions() -> list[dict[str, Any]]:
    """Return a row for each entry of conversions.yaml: its accounting by either conversion.

    The steps are those that its target allows by the classic conversion, or that the paper ran.
    """
    rows = []
    entries = yaml.safe_load(Path(__file__).with_name("conversions.yaml").read_text())
    for name, numbers in entries.items():
        method, target, run, delta = (numbers.pop(key, None) for key in (
            "method", "target", "steps", "one_over_delta"))
        paper = published(method, 1 / delta if delta else DELTA, **numbers)
        allowed = {"steps_allowed": paper.max_steps(target),
                   "steps_allowed_classic": paper.max_steps(target, "classic")}
        steps = run or allowed["steps_allowed_classic"]
        rows.append({"setting": name, "target": target, "steps": steps, **claims(paper, steps),
                     **allowed})
    return rows


def settings() -> list[dict[str, Any]]:
    mnist = {"critics": 1000, "steps": 20000, "batch": 32, "sigma": 1.07}
    celeba = {"critics": 2543, "steps": 20000, "batch": 32, "sigma": 0.61135}
    rows = []
    for name, s in (("MNIST, Fashion-MNIST", mnist), ("CelebA", celeba)):
        claim = claims(gswgan(s["critics"], s["sigma"]), s["steps"])
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
        claim = claims(gswgan(s["critics"], s["sigma"], "dpac"), s["steps"])
        rows.append({"system": "dpac", "data": name, **s, "t_c": t_c, **claim,
                     "visits_rotation": before + after,
                     "proven_rotation": composed(s["sigma"], before * 32 + after * 2 * 1000),
                     "proven_rotation_as_the_paper_says": composed(
                         s["sigma"], math.ceil(s["steps"] / s["critics"]) * 32)})
    visits = math.ceil(30000 / 866)
    claim = claims(federated_gswgan(), 30000)
    rows.append({"system": "gswgan, federated", "data": "Federated EMNIST", "critics": 866,
                 "steps": 30000, "batch": 32, "sigma": 1.07, "visits_rotation": visits,
                 **claim,
                 "proven_rotation": composed(1.07, visits * 32, 1 / 866)})
    return rows


def baselines() -> list[dict[str, Any]]:
    """Return a row for each baseline whose noise and steps its paper prints.

    The DP-SGD GAN of GS-WGAN (appendix C.4, Table 1) is the DP-CGAN code, which clips each of its
    four weight tensors by itself; what is proven is with one clip over all, as it is here.
    """
    preset = presets.get("dpcgan", "mnist-gswgan")[1]
    config = dataclasses.replace(preset.config, records=preset.records)
    events = dpcgan.mechanism(config, preset.spec).events(config.steps)
    formula = methods.published("dpcgan", config, DELTA)
    return [{"system": "dpcgan", "preset": "mnist-gswgan", "data": "MNIST, Fashion-MNIST",
             "paper": "GS-WGAN, appendix C.4", "steps": config.steps, "batch": config.batch,
             "sigma": config.sigma, "clip": config.clip, "stated": 10.0,
             "by_its_code": formula.epsilon(config.steps, "classic"),
             "proven": composition.epsilon_of(events, DELTA)}]


def reached() -> list[dict[str, Any]]:
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


def main(argv: list[str] | None = None) -> None:
    script = common.Script("claimed", __doc__)
    script.begin(argv)
    print(script.save({"delta": DELTA, "settings": settings(), "baselines": baselines(),
                       "conversions": conversions(), "reached": reached(), **rows()}))


if __name__ == "__main__":
    main()
