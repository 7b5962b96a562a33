"""Rows of DP-GAN-DPAC: Chen et al., CVPR 2023."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.papers import gswgan, trainings
from benchmarks.papers.rows import Command, Nothing, Row, Training
from benchmarks.papers.trainings import CNN, FID, MLP, SCORE, hours, small_rows, training
from dpgen_jax.nets.resnet import CriticNet, ResNetNet

OURS = "dpac"
BACK = ("real2gen.mlp.accuracy", "real2gen.cnn.accuracy")
# IS and FID on MNIST, F-MNIST and CelebA (Table 1); gen2real MLP and CNN (Table 2), the same data.
TABLE_1 = {
    "pategan": "1.46 253.55 2.35 229.25 - -", "dpcgan": "- 179.20 - 243.80 - -",
    "gpate": "5.16 150.62 4.33 171.90 1.37 350.92", "datalens": "5.78 137.50 4.58 167.70 1.42 "
    "320.84", "dpmerf": "- 121.40 - 110.40 - -", "gswgan": "9.23 61.34 5.32 131.34 1.85 297.35",
    "dpsinkhorn": "- 55.56 - 129.40 - 168.40", "dpac": "9.71 54.06 6.60 90.77 1.90 139.99"}
TABLE_2 = {
    "dpcgan": "0.60 0.63 0.50 0.46 - -", "gpate": "- 0.81 - 0.69 - 0.71",
    "datalens": "- 0.81 - 0.71 - 0.73", "dpmerf": "0.81 0.82 0.71 0.73 - -",
    "gswgan": "0.79 0.80 0.65 0.65 0.68 0.66", "dpsinkhorn": "0.80 0.83 0.73 0.71 0.76 0.76",
    "dpac": "0.85 0.88 0.75 0.73 0.80 0.85"}
TABLE_3 = {"gswgan": "0.99 0.99 0.85 0.85 0.66 0.60", "dpac": "1.00 1.00 0.97 0.98 0.99 0.98"}
DATA = ("mnist", "fashion", "gender-s")
NIGHT = gswgan.NETWORKS | {
    "critics": 100, "steps": 100, "critic_steps": 2, "class_weight": 0.0, "warm_steps": 200,
    "warm_generator": ResNetNet(), "logit_slope": "sigmoid", "t_c": 20, "real_steps": 4,
    "classifier": CriticNet()}
PRINTED = {data: dict(zip((MLP, CNN), TABLE_2["dpac"].split()[2 * i:2 * i + 2], strict=True))
           for i, data in enumerate(DATA)}
QUOTED = ("the paper quotes it from Cao et al., DP-Sinkhorn, NeurIPS 2021; dpsinkhorn here is an "
          "example of a method, without a preset for these data")
VALIDATION = "the paper evaluates on CelebA's validation part (its 5.1); here on the test part"


def _table(place: str, metrics: tuple[str, str], systems: dict[str, str]) -> Iterator[Row]:
    """Yield the rows of Table 1, 2 or 3."""
    for system, text in systems.items():
        values = text.split()
        for i, data in enumerate(DATA):
            printed = {metric: value for metric, value in zip(
                metrics, values[2 * i:2 * i + 2], strict=True) if value != "-"}
            if not printed:
                continue
            name = f"dpac:{place}:{data}" + (f"-{system}" if system != OURS else "")
            if system == "dpsinkhorn":
                yield Row(name, Nothing(QUOTED), printed)
                continue
            yield Row(name, training(system, data, 10, "both"), printed, hours(system, data),
                      VALIDATION if data == "gender-s" else "")


def _pictures() -> Iterator[Row]:
    """Yield Figures 3 and 4."""
    for figure, data in (("figure3", "mnist"), ("figure3", "fashion"), ("figure4", "gender-s")):
        for system in ("datalens", "gswgan", "dpac"):
            name = f"dpac:{figure}:{data}" + (f"-{system}" if system != OURS else "")
            yield Row(name, training(system, data, 10, "both"), {}, hours(system, data),
                      "a picture of samples, written beside the results of Table 1")


ROWS = [
    Row("dpac:figure1:loop", Nothing("a drawing of the training loop; dpgen_jax/methods/dpac.py is "
                                     "what it shows")),
    Row("dpac:figure2:architecture", Nothing("a drawing of the networks; dpgen_jax/nets/resnet.py "
                                             "is what it shows")),
    *_pictures(),
    *_table("table1", (SCORE, FID), TABLE_1), *_table("table2", (MLP, CNN), TABLE_2),
    *_table("table3", BACK, TABLE_3),
    *(row for data in DATA[:2] for row in small_rows("dpac:table2", OURS, data, PRINTED[data])),
    Row("dpac:section5.1:epsilon", Command("claimed", (), "claimed", "none", (
        "settings", {"system": "dpac", "data": "MNIST, Fashion-MNIST"})),
        {"claimed_classic": "10"}, 0.1, "epsilon of the published noise and steps on MNIST; "
        "proven is that of its code, with two gradients and 1,000 fakes from step 6,000 on",
        ("claimed", "proven_rotation", "proven_rotation_as_the_paper_says")),
    Row("dpac:table2:mnist-night", Training("dpac", "mnist-eps10", "mnist", "both", NIGHT),
        PRINTED["mnist"], 9.0, gswgan.A_NIGHT),
    *trainings.sweep_rows("dpac:table4"), *trainings.sweep_rows("dpac:table5"),
]
