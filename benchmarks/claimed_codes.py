"""Published settings beside their proof, and codes that people run with what is wrong in each.

Part of `benchmarks.claimed`. The settings are the presets that follow a paper or its code; what is
said of a code is what its source shows, and a number of others is marked as theirs.
"""

from __future__ import annotations

import math
from typing import Any

from dpgen_jax import methods, presets
from dpgen_jax.accountant import composition
from dpgen_jax.accountant.events import GaussianEvent, PoissonGaussianEvent
from dpgen_jax.core.config import Budget
from dpgen_jax.core.terms import Relation
from dpgen_jax.run.calibrate_config import complete

DELTA = 1e-5
PAPERS = ("Wang et al. 2021", "Long et al. 2021, ", "README command of AI-secure")
"""The beginnings of the sources of settings whose noise is printed, and whose steps are found"""
SHARED = ("its optimiser's state is shared by all teachers that take turns in one place of the "
          "graph, so one record moves up to {} teachers, and each of them a vote")
AUDIT = "their audit, arXiv 2406.13985"
PATEGANS = (
    ("the original code", 4.68, "it has no teachers: noise is added to the labels of one "
     "discriminator, and its scale is made with an operator that is no power"),
    ("the updated code", 2.18, "all teachers see the slice of one, and the noise is of "
     "scale lambda where it should be of 1 / lambda"),
    ("synthcity", 4.68, "records are dealt to teachers anew in each round, and a bracket of the "
     "accountant counts too little"),
    ("turing", 4.68, "it has no teachers: noise is added to the labels of one discriminator, and "
     "all of the data trains it"),
    ("borealis", 4.53, "its epsilon depends on the votes and is published as it is; a missing "
     "logarithm counts too much"),
    ("smartnoise", 4.68, "its epsilon depends on the votes and is published as it is, and the "
     "budget is compared after the round that exceeds it"),
)
"""Six codes, the epsilon that their audit certified at a claimed 1, and what is wrong; 4.68 is the
most that its 400 runs can show"""


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
    """Return the exact epsilon of Gaussian releases."""
    return composition.epsilon_of(((GaussianEvent(sigma, squared_sensitivity), count),), delta)


def codes() -> list[dict[str, Any]]:
    """Return a row for each code: what it claims, what is sound, and what is wrong."""
    votes, teachers = 4 * 200 * 15, 80
    drawn = GaussianEvent(1.12 / 2, 1)  # four tensors of norm C each: 2 C together
    counted = {relation: composition.epsilon_of(((PoissonGaussianEvent(
        drawn, 600 / 55_000, relation), 30_000),), DELTA)
        for relation in (Relation.ZERO_OUT, Relation.REPLACE_ONE)}
    rows = [
        {"code": "AI-secure/DataLens, MNIST", "claimed": 1.0,
         "sound": exact(5000.0, votes * teachers**2, 86),
         "how": f"its 86 steps, {teachers} teachers in one place",
         "wrong": SHARED.format(teachers) + "; the seed of its noise is fixed and public"},
        {"code": "reihaneh-torkzadehmahani/DP-CGAN, MNIST", "claimed": 9.6,
         "sound": counted[Relation.REPLACE_ONE],
         "how": "30,000 steps, replace-one; a record more or less: "
                f"{counted[Relation.ZERO_OUT]:.1f}",
         "wrong": "each of four weight tensors is clipped by itself, which together are twice as "
                  "long, and the accountant takes the noise for larger by the clip"},
        {"code": "2019ChenGong/DPImageBench, its GS-WGAN at 10", "claimed": 10.0,
         "sound": exact(0.470, 1, 20 * 32), "how": "20 visits of 32 fakes",
         "wrong": "the noise is calibrated to the steps and not to the fakes of a step, and every "
                  "critic begins with the weights of the last one"},
        {"code": "frhrdr/dp-merf, images", "claimed": 1.0, "sound": exact(5.0, 1, 1),
         "how": "one release of multiplier 5", "wrong": "nothing that is known here, with labels "
         "drawn uniformly"}]
    return rows + [
        {"code": f"{name} (PATE-GAN)", "claimed": 1.0, "certified_by_others": certified,
         "how": AUDIT, "wrong": wrong} for name, certified, wrong in PATEGANS]


def rows() -> dict[str, Any]:
    """Return both lists, as the results file has them; no number is infinite."""
    lists = {"papers": settings_of_papers(), "codes": codes()}
    assert all(math.isfinite(row.get("sound", 0.0)) for row in lists["codes"])
    return lists

