"""Rows of GS-WGAN: Chen et al., NeurIPS 2020 (arXiv 2006.08265), central and federated."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from benchmarks.papers import trainings
from benchmarks.papers.rows import Command, Nothing, Row, Training
from benchmarks.papers.trainings import (
    CNN,
    FID,
    MLP,
    SCORE,
    WITHOUT_PRIVACY,
    hours,
    small_rows,
    training,
)
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.resnet import CriticNet, ResNetNet

OURS = "gswgan"
ALL = ("gpate", "dpcgan", "dpmerf", "dpmerf_ae", "gswgan")
NAMES = ("mlp", "cnn", "adaboost", "bagging", "bernoulli_nb", "decision_tree", "gaussian_nb",
         "gradient_boosting", "lda", "linear_svc", "logistic_regression", "random_forest",
         "xgboost", "average")
TABLE_1 = {  # IS, FID, MLP, CNN, average and calibrated accuracy
    "mnist": {"gpate": "3.85 177.16 0.25 0.51 0.34 40%", "dpcgan": "4.76 179.16 0.60 0.63 0.52 59%",
              "dpmerf": "2.91 247.53 0.63 0.63 0.57 66%",
              "dpmerf_ae": "3.06 161.11 0.54 0.68 0.42 47%",
              "gswgan": "9.23 61.34 0.79 0.80 0.60 69%"},
    "fashion": {"gpate": "3.35 205.78 0.30 0.50 0.40 54%",
                "dpcgan": "3.55 243.80 0.50 0.46 0.43 53%",
                "dpmerf": "2.32 267.78 0.56 0.62 0.51 65%",
                "dpmerf_ae": "3.68 213.59 0.56 0.62 0.45 55%",
                "gswgan": "5.32 131.34 0.65 0.65 0.53 67%"}}
METRICS = (SCORE, FID, MLP, CNN, "average.gen2real.accuracy",
           "average.gen2real.calibrated_accuracy")
TABLE_A = {  # Tables A1 and A2, in the order of NAMES
    "mnist": {
        "dcgan": ".84 .84 .28 .46 .80 .40 .71 .50 .84 .81 .83 .39 .44 .63",
        "gpate": ".25 .51 .11 .36 .71 .13 .61 .11 .60 .24 .26 .33 .15 .34",
        "dpcgan": ".60 .64 .32 .44 .62 .36 .37 .45 .59 .56 .60 .63 .60 .52",
        "dpmerf": ".63 .63 .38 .43 .76 .29 .57 .36 .72 .58 .66 .66 .70 .57",
        "dpmerf_ae": ".54 .68 .21 .33 .50 .27 .17 .20 .55 .43 .55 .45 .54 .42",
        "gswgan": ".79 .80 .21 .45 .77 .35 .64 .39 .78 .76 .79 .52 .50 .60"},
    "fashion": {
        "dcgan": ".77 .73 .41 .57 .59 .53 .55 .44 .77 .77 .76 .69 .65 .61",
        "gpate": ".30 .50 .42 .38 .57 .24 .57 .25 .55 .30 .35 .33 .49 .40",
        "dpcgan": ".50 .46 .21 .32 .50 .33 .28 .38 .55 .39 .51 .51 .52 .42",
        "dpmerf": ".56 .54 .33 .40 .62 .25 .59 .27 .67 .46 .59 .61 .62 .50",
        "dpmerf_ae": ".56 .62 .26 .45 .54 .36 .12 .30 .65 .40 .50 .55 .55 .45",
        "gswgan": ".65 .64 .25 .47 .55 .40 .48 .38 .67 .65 .68 .54 .47 .53"}}
NETWORKS = {"generator": ResNetNet(), "critic": CriticNet()}
NIGHT = NETWORKS | {
    "critics": 200, "steps": 100, "critic_steps": 1, "class_weight": 10.0,
    "g_optimiser": Adam(1e-3, 0.5, 0.9), "d_optimiser": Adam(2e-3, 0.0, 0.99)}
"""The published networks, in 24,000 critic steps. The slope stays straight-through, and there are
no warm steps: with the sigmoid's slope, DPAC's images stayed black (dpac:table2:mnist-night)."""
FEMNIST = ("--dataset", "femnist:fed_emnist_train.h5", "--classes", "36", "--out", "runs/federated")
PAID = "cost.as_published.epsilon"
SIMULATED_NOISE = ("0.01", "0.1", "0.5")
CNN_OF_SOUND = "gen2real_cnn.accuracy"


def _name(place: str, data: str, system: str) -> str:
    return f"gswgan:{place}:{data}" + (f"-{system}" if system != OURS else "")


def _training(system: str, data: str) -> Training:
    """Return a training of Tables 1, A1 and A2, with the settings of its appendix C.4."""
    if system in ("dpcgan", "dcgan"):
        return Training(system, f"{data}-gswgan", data, "all")
    if system == "gpate":  # its authors' code: 2,000 teachers, projections to 10
        return Training(system, f"{data}-eps10-code", data, "all")
    return training(system, data, 10, "all")


def _hours(system: str, data: str) -> float:
    """Return an estimate of the hours of such a training."""
    return hours("dpcgan-gswgan" if system == "dpcgan" else system, data, code=True)


A_NIGHT = ("this library: the published networks, and as many critics and steps as a night on two "
           "cores allows, epsilon 10")
OF_SMALL = "; slope, class weight and no warm steps as in the presets of small networks"
NOTES = {
    "dpmerf": "as Harder et al. 2021 print it, with one noisy release; the paper's appendix C.4 "
              "has 600 noisy steps of batches, of noise 0.588",
    "dpmerf_ae": "settings of this library: 350 noisy steps of batches of 600, of which the last "
                 "50 release the embedding, and noise found for epsilon 10; the paper's appendix "
                 "C.4 has 2,040 steps, of noise 0.686, and prints no networks",
    "dcgan": WITHOUT_PRIVACY}
"""Notes on baselines that are not here as the paper ran them."""


def _tables() -> Iterator[Row]:
    """Yield Tables 1, A1 and A2, all of the same runs."""
    for data, systems in TABLE_1.items():
        for system, values in systems.items():
            yield Row(_name("table1", data, system), _training(system, data),
                      dict(zip(METRICS, values.split(), strict=True)), _hours(system, data),
                      NOTES.get(system, ""))
    for place, (data, systems) in zip(("tableA1", "tableA2"), TABLE_A.items(), strict=True):
        for system, values in systems.items():
            paths = [CNN.replace("cnn", name) for name in NAMES[:-1]]
            printed = dict(zip((*paths, "average.gen2real.accuracy"),
                               (f"0{value}" for value in values.split()), strict=True))
            yield Row(_name(place, data, system), _training(system, data), printed,
                      _hours(system, data), NOTES.get(system, ""))


def _small() -> Iterator[Row]:
    """Yield the small networks of this library, and the published ones in fewer steps."""
    for data in TABLE_1:
        values = dict(zip(METRICS, TABLE_1[data][OURS].split(), strict=True))
        yield from small_rows("gswgan:table1", "gswgan", data, {m: values[m] for m in (MLP, CNN)})
        yield Row(f"gswgan:table1:{data}-night",
                  Training("gswgan", f"{data}-eps10", data, "both", NIGHT),
                  {m: values[m] for m in (MLP, CNN, SCORE, FID)}, 1.0, A_NIGHT + OF_SMALL)


def _federation(method: str, *noise: str) -> Command:
    """Return the command of a method on Federated EMNIST, at the papers' noise."""
    stem = f"federated-femnist-{method}"
    return Command("federated", (
        *FEMNIST, "--methods", method, "--presets", f"{method}=femnist-published", "--noise",
        *noise, "--json", f"benchmarks/results/{stem}.json"), stem, "femnist",
        ("runs", {"method": method, "federation": "sound", "noise": float(noise[0])}))


def _simulated(method: str, noise: str) -> Command:
    """Return the command of both methods at the noise of Figure 5, and which run is meant."""
    stem = "federated-mnist-noise"
    return Command("federated", (
        "--methods", "fedavg_gan", "gswgan", "--noise", *SIMULATED_NOISE, "--fast", "--json",
        f"benchmarks/results/{stem}.json"), stem, "mnist",
        ("runs", {"method": method, "federation": "sound", "noise": float(noise)}))


def _federated() -> Iterator[Row]:
    """Yield Table 2 and Figure 5."""
    ours = _federation("gswgan", "1.07")
    average = _federation("fedavg_gan", "0.01", "0.1", "0.5")
    small = Command("federated", (), "federated-mnist", "mnist",
                    ("runs", {"method": "gswgan", "federation": "sound"}))
    yield Row("gswgan:table2:femnist", ours, {SCORE: "11.25", FID: "60.76"}, 40.0)
    yield Row("gswgan:table2:femnist-fedavg", average, {SCORE: "10.88", FID: "218.24"}, 40.0)
    yield Row("gswgan:table2:mnist", small, {}, 0.5, "simulated clients of MNIST; this library",
              (SCORE,))
    for method, noise in itertools.product(("fedavg_gan", "gswgan"), SIMULATED_NOISE):
        yield Row(f"gswgan:table2:mnist-{method}-{noise}", _simulated(method, noise), {}, 0.5,
                  f"simulated clients of MNIST, noise {noise}, without a useful guarantee; this "
                  "library", (SCORE, CNN_OF_SOUND))
    for name, method, noise, printed in (
            ("cost", "gswgan", 1.07, {PAID: "5.99e2"}),
            ("cost-fedavg", "fedavg_gan", 0.01, {PAID: "9.99e6"}),
            ("cost-fedavg-0.1", "fedavg_gan", 0.1, {}), ("cost-fedavg-0.5", "fedavg_gan", 0.5, {})):
        yield Row(f"gswgan:table2:{name}", Command(
            "federated_cost", (), "federated_cost", "none",
            ("rows", {"method": method, "noise": noise})), printed, 0.1,
            f"noise {noise:g}, epsilon by dp-accounting, and the bytes of a step"
            + "; that noise is Figure 5's" * (not printed),
            (PAID, "cost.as_published.epsilon_classic", "cost.epsilon_of_ideal_noise",
             "bytes_of_a_step.to_a_client", "bytes_of_a_step.from_a_client"))
    for part, work in (("ab", ours), ("cdef", average), ("mnist", small)):
        yield Row(f"gswgan:figure5:{part}", work, {}, 40.0 if part != "mnist" else 0.5,
                  "samples of sound and suspect clients: the picture of gswgan:table2")


CLAIMED = Command("claimed", (), "claimed", "none", (
    "settings", {"system": "gswgan", "data": "MNIST, Fashion-MNIST"}))
ROWS = [
    Row("gswgan:figure1:outline", Nothing("a drawing of the system; dpgen_jax/methods/gswgan.py is "
                                          "what it shows")),
    *trainings.norms("gswgan:figure2"),
    Row("gswgan:theorem4.1:epsilon", CLAIMED, {"claimed_classic": "10"}, 0.1,
        "epsilon of the published noise and steps on MNIST",
        ("claimed", "proven_rotation", "proven_draws_revealed")),
    *_tables(), *_small(),
    *(Row(f"gswgan:figure3:{data}" + (f"-{system}" if system != OURS else ""),
          _training(system, data), {}, _hours(system, data),
          "a picture of samples, written beside the results of Table 1")
      for data in ("mnist", "fashion") for system in ALL),
    *trainings.sweep_rows("gswgan:figure4"), *_federated(),
    *trainings.norms("gswgan:figureA1"), *trainings.sweep_rows("gswgan:figureA2"),
]
