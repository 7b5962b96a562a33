"""Named configurations of DCGAN, which promises nothing (epsilon inf), by data and networks.

`-published` and `-paper` have the networks of G-PATE and DataLens (their code's, the paper's),
`-gswgan` those of GS-WGAN, at the published widths; the first, `-small` and the tables' are for a
machine without an accelerator. `credit` is the GAN of Table 7 of the G-PATE paper: its networks and
rates for tables, with one discriminator that sees all records. No paper prints the other settings
of its rows without privacy; these are ours.
"""

import dataclasses
import math

from dpgen_jax.core.types import ImageSpec, Spec
from dpgen_jax.methods.dcgan import Config
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.critic import CriticNet
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.nets.resnet import ResNetNet
from dpgen_jax.presets import Preset, numbers, photographs, serving

OURS = "this library: the networks as published, the training chosen on glyphs"
GLYPHS, MNIST = ImageSpec(12, 12, 1, 10), ImageSpec(28, 28, 1, 10)

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


def _preset(config: Config, spec: Spec, records: int, dataset: str | None = None) -> Preset:
    return Preset(config, spec, math.inf, 1e-5, records, OURS, dataset=dataset)


def _images(name: str) -> dict[str, Preset]:
    return {f"{name}-{networks}": _preset(config, MNIST, 60000) for networks, config in (
        ("published", _adversarial), ("paper", _paper), ("gswgan", _gswgan), ("small", _small))}


PRESETS = {
    "glyphs": _preset(_small, GLYPHS, 30000, "glyphs"),
    "glyphs-gswgan": _preset(_small_gswgan, GLYPHS, 30000),
    **_images("mnist"), **_images("fashion"),
    **{f"{name}-published": photographs.preset(_adversarial, data, math.inf, OURS)
       for name, data in photographs.ALL.items()},
    "table": _preset(_rows, numbers(29), 45569, "table"),
    "breast_cancer": _preset(_rows, numbers(30), 455, "breast_cancer"),
    "credit": _preset(_credit, numbers(29), 284807),
    "adult": _preset(_rows, numbers(108), 32561, "adult"),
}
PRESETS = serving(PRESETS, ("mnist-small", "fashion-small"),
                  {"images": "mnist-small", "table-few": "breast_cancer"})
