"""Named configurations of DataLens, each with its source.

The presets named after data and epsilon are the paper's settings; `-code` presets are the command
lines in the authors' README, which has uniform latents and, for epsilon 10, another k, noise or
clip. Batch is min(30, n / teachers), as there. The published networks are the defaults of
`nets.image`. CelebA and Places365 are read as `presets.photographs` says.
"""

import dataclasses
from typing import Any

from dpgen_jax.core.types import ImageSpec
from dpgen_jax.methods.datalens import Config
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.presets import GLYPHS, Preset, photographs, serving
from dpgen_jax.presets.photographs import GENDER_L, GENDER_S, HAIR, HAIR_S, PLACES

PAPER = "Wang et al. 2021 (DataLens), section 5.1 and Table 4"
COMMAND = "README command of AI-secure/DataLens"
MNIST = ImageSpec(28, 28, 1, 10)

SOUND = (
    "teachers learn from one public pool of fakes, so that no private label reaches the generator",
    "each teacher keeps its own optimiser state, and records are dealt to teachers at random",
    "steps are those that exact Gaussian accounting allows, with all fakes of a query counted")
"""The lines on differences from paper and code for the sake of the guarantee."""
UNPRINTED = (
    "2 teacher steps a round, and more before the first, as in the authors' code; Algorithm 1 has "
    "one for each fake",
    "a teacher's gradient is that of its mean loss over the batch, and the generator's loss a sum "
    "over it, as in the authors' code; Algorithm 1 has the reverse",
    "Adam at 1e-3 and steps of 1e-3 for the fakes are the authors' code's; the paper prints none")
"""The lines on settings that the paper leaves out, or that the code has otherwise."""


def _published(epsilon: float, spec: ImageSpec, records: int, latent: int = 50, **fields: Any
               ) -> Preset:
    """A preset with the settings of the authors' command lines."""
    config = Config(generator=GeneratorNet(latent=latent), **fields)
    return Preset(config, spec, epsilon, 1e-5, records, COMMAND, differs=SOUND)


def _printed(preset: Preset, **fields: Any) -> Preset:
    """The paper's settings: Gaussian latents, and what else differs from the command line."""
    net = dataclasses.replace(preset.config.generator, latent_distribution="gaussian")
    differs = UNPRINTED if preset.epsilon == 1 else (
        *UNPRINTED, "the threshold is the command line's; the paper prints none for epsilon 10")
    return dataclasses.replace(
        preset, config=dataclasses.replace(preset.config, generator=net, **fields), source=PAPER,
        differs=(*preset.differs, *differs))


def _mean(preset: Preset, steps: int) -> Preset:
    """The published teachers and votes at the same budget, spent in fewer steps.

    The noisy votes are used as they are, by a generator with a falling learning rate that is
    averaged.
    """
    config = dataclasses.replace(
        preset.config, decode="mean", sigma=None, steps=steps, g_optimiser=Adam(4e-3),
        g_final_rate=0.1, ema=0.9, generator=GeneratorNet(latent=10))
    return dataclasses.replace(preset, config=config, differs=(), source="this library, teachers "
                               "and votes as in the " + preset.source)


def _compressed(name: str, aggregate: str) -> Preset:
    """The same teachers, steps and budget with another compression; the noise is found."""
    preset = PRESETS[name]
    config = dataclasses.replace(preset.config, aggregate=aggregate, sigma=None,
                                 sketch_columns=40 if name == "glyphs" else 256)
    return dataclasses.replace(preset, config=config, source=f"this library: {name} with another "
                               "compression, to compare as in Table 5 of Wang et al. 2021")


_codes = {
    "mnist-eps1": _published(1.0, MNIST, 60000, top_k=200, sigma=5000.0, threshold=0.7),
    "mnist-eps10": _published(10.0, MNIST, 60000, top_k=300, sigma=800.0, threshold=0.2),
    "fashion-eps1": _published(1.0, MNIST, 60000, top_k=200, sigma=5000.0, threshold=0.9),
    "fashion-eps10": _published(10.0, MNIST, 60000, latent=64, top_k=350, sigma=1000.0,
                                threshold=0.27),
}


def _of_photographs(epsilon: float, data: photographs.Photographs, *differs: str,
                    **fields: Any) -> Preset:
    """A preset with the settings of the authors' command lines for photographs."""
    config = Config(d_steps_first=30, generator=GeneratorNet(latent=100), **fields)
    return photographs.preset(config, data, epsilon, COMMAND, *SOUND, *differs)


_FACES_1: dict[str, Any] = {"top_k": 700, "sigma": 9000.0}
_FACES_10: dict[str, Any] = {"top_k": 500, "sigma": 700.0, "clip": float("inf")}
_GENDER: dict[str, Any] = {"teachers": 6000, "batch": 30}
_HAIR_1: dict[str, Any] = {"teachers": 8000, "batch": 15, "threshold": 0.9} | _FACES_1
_HAIR_10: dict[str, Any] = {"teachers": 4000, "batch": 30, "threshold": 0.25} | _FACES_10
_SMALLER = "the paper has 64 x 64 pixels; its settings for those"
_HAIRS = "the paper prints the latents and k of Places365; all else is that of CelebA-Hair"

_photographs = {
    "gender-eps1": _of_photographs(1.0, GENDER_L, threshold=0.85, **_GENDER, **_FACES_1),
    "gender-eps10": _of_photographs(10.0, GENDER_L, threshold=0.12, **_GENDER, **_FACES_10),
    "gender-s-eps1": _of_photographs(1.0, GENDER_S, _SMALLER, threshold=0.85, **_GENDER,
                                     **_FACES_1),
    "gender-s-eps10": _of_photographs(10.0, GENDER_S, _SMALLER, threshold=0.12, **_GENDER,
                                      **_FACES_10),
    "hair-eps1": _of_photographs(1.0, HAIR, **_HAIR_1),
    "hair-eps10": _of_photographs(10.0, HAIR, **_HAIR_10),
    "hair-s-eps1": _of_photographs(1.0, HAIR_S, _SMALLER, **_HAIR_1),
    "hair-s-eps10": _of_photographs(10.0, HAIR_S, _SMALLER, **_HAIR_10),
    "places-eps1": _of_photographs(1.0, PLACES, _HAIRS, **_HAIR_1),
    "places-eps10": _of_photographs(10.0, PLACES, _HAIRS, **_HAIR_10 | {"top_k": 700}),
}
_codes |= {name: _photographs[name] for name in (
    "gender-eps1", "gender-eps10", "hair-eps1", "hair-eps10")}  # of which there are command lines

PRESETS = {
    "glyphs": Preset(
        Config(teachers=1500, batch=15, top_k=60, steps=100, decode="mean", d_steps=1,
               d_steps_first=5, g_optimiser=Adam(4e-3), g_final_rate=0.05, ema=0.9,
               generator=GeneratorNet(8, 256, 32), discriminator=DiscriminatorNet(8, 16, 32)),
        GLYPHS, 10.0, 1e-5, 30000,
        "this library: chosen on glyphs, whose records are public; benchmarks/images.py"),
    "mnist-eps1": _printed(_codes["mnist-eps1"]),
    "mnist-eps10": _printed(_codes["mnist-eps10"], top_k=350, sigma=900.0),
    "fashion-eps1": _printed(_codes["fashion-eps1"]),
    "fashion-eps10": _printed(_codes["fashion-eps10"], sigma=900.0),
    **{name: _printed(preset, clip=1e-5) for name, preset in _photographs.items()},
    **{f"{name}-code": preset for name, preset in _codes.items()},
}
PRESETS |= {f"{name}-mean": _mean(_codes[name], steps) for name, steps in (
    ("mnist-eps1", 50), ("mnist-eps10", 25), ("fashion-eps1", 50), ("fashion-eps10", 25))}
PRESETS |= {f"{name.removesuffix('-mean')}-{aggregate}": _compressed(name, aggregate)
            for name in ("glyphs", *(f"{data}-{epsilon}-mean" for data in ("mnist", "fashion")
                                     for epsilon in ("eps1", "eps10")))
            for aggregate in ("d2p", "fetchsgd")}
PRESETS = serving(
    PRESETS, ("glyphs", *_photographs, *(name for name in PRESETS if name.endswith("-mean"))),
    {"images-eps10": "mnist-eps10-mean", "images-eps1": "mnist-eps1-mean"})
