"""Named configurations of projected DP-GAN, each with its source.

The paper prints accuracies (0.2026 at epsilon 1 and 0.5602 at epsilon 10, with its accounting) and
no settings, so all are this library's. Steps and k are what a few minutes on two CPU cores allow.
Three bins: the noise of a histogram's mean, sigma c sqrt((B - 1 / B) / 3) / n, grows with their
number B. The clip is about one standard deviation of a projected gradient at the start. The
generator learns more slowly than the discriminator, of whose weight space a step sees a few per
cent.
"""

import dataclasses

from dpgen_jax.core.types import ImageSpec
from dpgen_jax.methods.projected_dpgan import Config
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.image import GeneratorNet
from dpgen_jax.presets import GLYPHS, Preset, serving

OURS = ("this library, for the ablation on PATE of Long et al. 2021, section 6.2, which prints no "
        "settings")

_config = Config(batch=200, projection=1000, bins=3, clip=0.1, steps=500, ema=0.95,
                 generator=GeneratorNet(10, 256, 32), d_optimiser=Adam(2e-3),
                 g_optimiser=Adam(5e-4))
_eps1 = Preset(_config, ImageSpec(28, 28, 1, 10), 1.0, 1e-5, 60000, OURS)
_eps10 = dataclasses.replace(
    _eps1, epsilon=10.0, config=dataclasses.replace(_config, projection=1500, clip=0.08))

PRESETS = {
    "mnist-eps1": _eps1,
    "mnist-eps10": _eps10,
    "glyphs": dataclasses.replace(
        _eps10, spec=GLYPHS, records=30000, dataset="glyphs",
        config=dataclasses.replace(_eps10.config, steps=250)),
}
PRESETS = serving(PRESETS, ("mnist-eps10", "mnist-eps1"),
                  {"images-eps10": "mnist-eps10", "images-eps1": "mnist-eps1"})
