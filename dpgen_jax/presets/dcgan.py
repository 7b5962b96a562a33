"""Named configurations of DCGAN, which promises nothing (epsilon inf), by data and networks.

`-published`, `-paper` and `-gswgan` are the rows without privacy of the papers: the DC-GAN of
DataLens and G-PATE with the networks of their codes; the GAN of G-PATE's appendix E, with the
networks that it prints and "the same hyper-parameters", of which steps are none; and the Real GAN
of GS-WGAN, of which appendix C prints nothing. `credit` is the GAN of G-PATE's Table 7, with one
discriminator that sees all records. What the papers do not print was chosen on glyphs. The first
preset, `-small` and the other tables' are this library's, for a machine without an accelerator.
"""

import dataclasses
import math

from dpgen_jax.core.types import ImageSpec, Spec
from dpgen_jax.methods.dcgan import Config
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.nets.resnet import CriticNet, ResNetNet
from dpgen_jax.presets import GLYPHS, Preset, gpate, numbers, photographs, serving, stated

OURS = "this library: the networks as published, the training chosen on glyphs"
CODES = ("Wang et al. 2021 (DataLens), Table 1, and Long et al. 2021, Table 1c: DC-GAN, with the "
         "networks of their codes")
LONG = "Long et al. 2021, appendix E (GAN)"
LONG_CREDIT = "Long et al. 2021, Table 7 and appendix E (GAN)"
REAL = "Chen et al. 2020, Tables A1 and A2 (Real GAN), with the networks and rates of its GS-WGAN"
MNIST = ImageSpec(28, 28, 1, 10)

_adversarial = Config(batch=16, steps=4000, d_steps=2, ema=0.99, g_final_rate=0.1)
_paper = dataclasses.replace(_adversarial, networks="paper", generator=GeneratorNet(channels=64))
_gswgan = dataclasses.replace(_adversarial, networks="gs-wgan", batch=32, d_steps=5,
                              d_optimiser=Adam(1e-4, 0.5, 0.9), g_optimiser=Adam(1e-4, 0.5, 0.9))
_small = dataclasses.replace(_adversarial, steps=1500, generator=GeneratorNet(16, 256, 32),
                             discriminator=DiscriminatorNet(16, 32, 64))
_small_gswgan = dataclasses.replace(
    _gswgan, steps=1500, batch=16, d_steps=2, resnet=ResNetNet(10, 24), critic=CriticNet(16),
    d_optimiser=Adam(1e-3, 0.5, 0.9), g_optimiser=Adam(1e-3, 0.5, 0.9))
_rows = dataclasses.replace(_adversarial, batch=32, steps=2000, generator=GeneratorNet(16, 128),
                            discriminator=DiscriminatorNet(hidden=128))

_credit = dataclasses.replace(_adversarial, networks="paper", batch=32, d_steps=1, steps=1000,
                              ema=0.0, g_final_rate=1.0, generator=GeneratorNet(7, 29),
                              discriminator=DiscriminatorNet(hidden=29))


POOL = ("the discriminator's steps of a round share one public pool of fakes, so that no private "
        "label reaches the generator")
OUR_TRAINING = ("steps are ours, 4,000, as are a generator's rate that falls to a tenth and the "
                "average of weights that is released; the paper prints none")
BARE = "gradients reach the generator as they are; the perturbations of G-PATE are clipped at 1e-4"
LATENTS = "latents are the authors' code's, uniform; the paper prints none"
DIFFERS = {
    CODES: (OUR_TRAINING, "a batch of 16 and two discriminator steps for one of the generator are "
            "ours; the papers print none for photographs, nor DataLens for its DC-GAN", POOL,
            "latents are uniform, of 50 dimensions; DataLens has Gaussian ones, for photographs of "
            "100"),
    LONG: (OUR_TRAINING, "a batch is 16 records and 16 fakes; G-PATE's is 15 at epsilon 1, and 30 "
           "at epsilon 10", "two discriminator steps for one of the generator; G-PATE's code has "
           "one", POOL, BARE, LATENTS, gpate.LAYERS),
    LONG_CREDIT: ("the number of steps is ours; the paper prints none", POOL, BARE, LATENTS,
                  "networks of PATE-GAN's code, as G-PATE's for this table"),
    REAL: ("the paper prints no settings for it: these are its GS-WGAN's, with one critic",
           OUR_TRAINING, POOL, "batches are drawn from the records with replacement; the authors' "
           "code goes through them")}


def _preset(config: Config, spec: Spec, records: int, dataset: str | None = None,
            source: str = OURS) -> Preset:
    return Preset(config, spec, math.inf, 1e-5, records, source, dataset=dataset)


def _images(name: str) -> dict[str, Preset]:
    return {f"{name}-{networks}": _preset(config, MNIST, 60000, source=source)
            for networks, config, source in (
                ("published", _adversarial, CODES), ("paper", _paper, LONG),
                ("gswgan", _gswgan, REAL), ("small", _small, OURS))}


def _photographs() -> dict[str, Preset]:
    """CelebA and Places365; no delta is of use without an epsilon."""
    made = {f"{name}-published": photographs.preset(_adversarial, data, math.inf, CODES)
            for name, data in photographs.ALL.items()}
    return {name: dataclasses.replace(preset, differs=tuple(
        line for line in preset.differs if line not in photographs.SMALLER_DELTA))
        for name, preset in made.items()}


PRESETS = stated({
    "glyphs": _preset(_small, GLYPHS, 30000, "glyphs"),
    "glyphs-gswgan": _preset(_small_gswgan, GLYPHS, 30000),
    **_images("mnist"), **_images("fashion"),
    **_photographs(),
    "table": _preset(_rows, numbers(29), 45569, "table"),
    "breast_cancer": _preset(_rows, numbers(30), 455, "breast_cancer"),
    "credit": _preset(_credit, numbers(29), 284807, source=LONG_CREDIT),
    "adult": _preset(_rows, numbers(108), 32561, "adult"),
}, DIFFERS)
PRESETS = serving(PRESETS, ("mnist-small", "fashion-small"),
                  {"images": "mnist-small", "table-few": "breast_cancer"})
