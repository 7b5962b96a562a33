"""Named configurations of G-PATE, each with its source.

`mnist-` and `fashion-` presets are the settings of Long et al. 2021, appendix E and Tables 1, 2 and
4; `-code` presets are the README commands and defaults of AI-secure/G-PATE, which has other
networks, and the same bins and clip for both data sets. The batch is all records of a teacher, at
most 64. Neither prints settings for CelebA: those are MNIST's of the code, also for DataLens'
Places365. Photographs are read as `presets.photographs` says; these presets and `credit` have delta
1e-6, since the paper's 1e-5 is not below 1 / records.

The presets of this library: `-gnmax`, `-mean`, `-sum` and `-topk` compare what is released at one
proven budget, with small networks, and `-full` is the sum without projection. They were chosen on
public data.
"""

import dataclasses
import math
from typing import Any

from dpgen_jax.core.types import ImageSpec, Spec
from dpgen_jax.methods.gpate import Config
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.presets import GLYPHS, Preset, numbers, photographs, serving

CODE = "README command of AI-secure/G-PATE; noise and teachers of Long et al. 2021, appendix E"
APPENDIX = "Long et al. 2021, appendix E"
PAPER = f"{APPENDIX} and Table 4"
OURS = "this library: chosen on public data"
MNIST = ImageSpec(28, 28, 1, 10)


SOUND = (
    "teachers learn from one public pool of fakes, so that no private label reaches the generator",
    "each teacher keeps its own optimiser state, and records are dealt to teachers at random",
    "steps are those that data-independent accounting allows; the paper's epsilon depends on votes")
"""The lines on differences from paper and code for the sake of the guarantee."""
UNPRINTED = (
    "one teacher step a round, as in the authors' code; Algorithm 1 has one for each fake",
    "a teacher's gradient is that of its mean non-saturating loss over the batch, and the "
    "generator's loss a sum over it, as in the authors' code; Algorithm 1 has the reverse",
    "latents are the authors' code's, uniform; the paper prints none")
"""The lines on settings that the paper leaves out, or that the code has otherwise."""
LAYERS = "the last layers of the networks are read into the paper (nets.image), which names none"
SEARCHED = "bins and clip are the best of Table 4, which has epsilon 1 alone"

def _published(epsilon: float, spec: Spec, records: int, *, latent: int = 50,
               source: str = CODE, **fields: Any) -> Preset:
    """A preset with the settings of the authors' command lines."""
    config = Config(generator=GeneratorNet(latent=latent), **fields)
    return Preset(config, spec, epsilon, 1e-5, records, source, differs=SOUND)


_eps1: dict[str, Any] = {"teachers": 4000, "batch": 15, "sigma": 1000.0, "sigma_ratio": 3.0}
_eps10: dict[str, Any] = {"teachers": 2000, "batch": 30, "sigma": 100.0, "sigma_ratio": 6.0,
                          "latent": 100}


def _pair(name: str, spec: ImageSpec, records: int, **fields: Any) -> dict[str, Preset]:
    """The published settings for epsilon 1 and for 10."""
    return {f"{name}-eps1": _published(1.0, spec, records, **_eps1 | fields),
            f"{name}-eps10": _published(10.0, spec, records, **_eps10 | fields)}


def _small_budgets(name: str, preset: Preset) -> dict[str, Preset]:
    """The points of Table 2: the settings of epsilon 1, stopped earlier."""
    return {f"{name}-eps{epsilon}": dataclasses.replace(
        preset, epsilon=epsilon, source="Long et al. 2021, Table 2", paper_steps=None)
        for epsilon in (0.2, 0.4, 0.6, 0.8)}


def _printed(preset: Preset, **fields: Any) -> Preset:
    """The paper's settings: its networks, and the best bins and clip of Table 4."""
    net = dataclasses.replace(preset.config.generator, channels=64)
    config = dataclasses.replace(preset.config, layers="paper", generator=net, **fields)
    differs = (*SOUND, *UNPRINTED, LAYERS, *((SEARCHED,) if preset.epsilon > 1 else ()))
    return dataclasses.replace(preset, config=config, source=PAPER, differs=differs)


def _compared(name: str) -> dict[str, Preset]:
    """The aggregations at epsilon 1 with 4,000 teachers, everything else being equal."""
    config = Config(
        teachers=4000, batch=15, steps=50, d_steps_first=5, g_optimiser=Adam(4e-3),
        g_final_rate=0.1, ema=0.9, generator=GeneratorNet(10, 512, 64),
        discriminator=DiscriminatorNet(8, 16, 64))
    # Planned for 50 steps too; the budget that unanswered queries leave buys it more.
    ways: dict[str, dict[str, Any]] = {
        "gnmax": {"steps": None, "sigma": 469.5}, "mean": {}, "sum": {},
        "topk": {"projection": 200, "clip": 1e-5}, "full": {"aggregate": "sum", "projection": 0}}
    return {f"{name}-eps1-{way}": Preset(
        dataclasses.replace(config, **{"aggregate": way} | fields), MNIST, 1.0, 1e-5, 60000, OURS)
        for way, fields in ways.items()}


def _of_a_table(dataset: str, features: int, records: int, teachers: int) -> Preset:
    """A noisy sum of clipped gradients in few steps, as suits rows of some tens of features."""
    config = Config(
        aggregate="sum", projection=0, abstain=True, teachers=teachers, batch=32, steps=50,
        d_steps_first=5, d_optimiser=Adam(5e-3), g_optimiser=Adam(4e-3), g_final_rate=0.1, ema=0.9,
        generator=GeneratorNet(latent=8, hidden=64), discriminator=DiscriminatorNet(hidden=32))
    return Preset(config, numbers(features), 1.0, 1e-5, records, OURS, 0.01, dataset)


def _of_photographs() -> dict[str, Preset]:
    """CelebA and Places365, with the settings of MNIST."""
    return {name: photographs.preset(
        preset.config, data, preset.epsilon, preset.source, *SOUND,
        "neither paper nor code prints settings for photographs: those of MNIST")
        for kind, data in photographs.ALL.items()
        for name, preset in _pair(kind, data.spec, data.records).items()}


_codes = _pair("mnist", MNIST, 60000) | _pair("fashion", MNIST, 60000)
_mnist = {name: _printed(_codes[name], bins=5) for name in ("mnist-eps1", "mnist-eps10")}
_fashion = {name: _printed(_codes[name], clip=5e-5) for name in ("fashion-eps1", "fashion-eps10")}
# "reaches the privacy budget of epsilon = 1 at epoch 232" (appendix G)
_mnist["mnist-eps1"] = dataclasses.replace(_mnist["mnist-eps1"], paper_steps=232)
_credit = Preset(
    Config(teachers=2100, batch=32, projection=5, sigma=600.0, sigma_ratio=2.5, layers="paper",
           generator=GeneratorNet(latent=7, hidden=29), discriminator=DiscriminatorNet(hidden=29)),
    numbers(29), 1.0, 1e-5, 284807, APPENDIX, 0.01, differs=(
        *SOUND, *UNPRINTED, "networks of PATE-GAN's code; the bins, 10, are those of G-PATE's",
        "delta 1e-6: the paper's 1e-5 is not below 1 / records, and a run refuses it"))

PRESETS = {
    "glyphs": Preset(
        Config(aggregate="sum", teachers=1500, batch=15, steps=100, d_steps_first=5,
               g_optimiser=Adam(4e-3), g_final_rate=0.05, ema=0.9,
               generator=GeneratorNet(8, 256, 32), discriminator=DiscriminatorNet(8, 16, 32)),
        GLYPHS, 10.0, 1e-5, 30000, OURS),
    **_mnist, **_fashion,
    **_small_budgets("mnist", _mnist["mnist-eps1"]),
    **_small_budgets("fashion", _fashion["fashion-eps1"]),
    **{f"{name}-code": preset for name, preset in _codes.items()},
    **_compared("mnist"), **_compared("fashion"),
    **_of_photographs(),
    "table": _of_a_table("table", 29, 45569, 400),
    "breast_cancer": _of_a_table("breast_cancer", 30, 455, 455),
    "adult": _of_a_table("adult", 108, 32561, 4000),
    "credit-sample": _of_a_table("", 29, 45569, 2100),
    "credit": dataclasses.replace(_credit, delta=1e-6),
    "credit-nonprivate": dataclasses.replace(
        _credit, config=dataclasses.replace(_credit.config, teachers=10, sigma=0.0, steps=1000),
        epsilon=math.inf, class_epsilon=0.0,
        source="Long et al. 2021, Table 7",
        differs=(*_credit.differs[:-1], "the number of steps is ours; the paper prints none")),
}
PRESETS = serving(
    PRESETS, ("glyphs", "mnist-eps1-sum", "fashion-eps1-sum", *_of_photographs()),
    {"images-eps1": "mnist-eps1-sum", "table-few": "breast_cancer"})
RENAMED = {f"{name}-paper": name for name in _codes} | {"images": "images-eps1"}
