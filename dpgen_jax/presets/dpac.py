"""Named configurations of DP-GAN-DPAC, each with its source: those of GS-WGAN with a classifier.

The published settings (t_c 6,000 of 20,000 steps, CelebA 1,000; beta 0.8; 10 steps on fakes and 10
on records) are the defaults of `dpac.Config`. In the presets named by an epsilon the classifier
comes in after a fifth of the steps.
"""

import dataclasses
import math

from dpgen_jax.methods.dpac import Config
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.critic import CriticNet
from dpgen_jax.presets import Preset, gswgan
from dpgen_jax.presets.gswgan import GENDER, GLYPHS, MNIST, OURS

PUBLISHED = "Chen et al. 2023, section 5.1; defaults of the authors' code"


def with_classifier(config: gswgan.Config, **fields) -> Config:
    """The configuration of GS-WGAN and what DPAC adds to it."""
    return Config(**{f.name: getattr(config, f.name) for f in dataclasses.fields(config)} | fields)


def small(config: gswgan.Config) -> Config:
    """With a classifier of the critic's size, which learns fast and from few records."""
    return with_classifier(config, t_c=config.steps // 5, real_steps=4, fake_batch=80,
                           c_penalty=0.0, c_optimiser=Adam(5e-3, 0.5, 0.9),
                           classifier=CriticNet(8))


ORIGINAL = with_classifier(gswgan.ORIGINAL)
ORIGINAL_GENDER = with_classifier(gswgan.ORIGINAL_GENDER, t_c=1000)
SMALL, TIGHT = small(gswgan.SMALL), small(gswgan.TIGHT)

PRESETS = {
    "glyphs": Preset(dataclasses.replace(SMALL, critics=200), GLYPHS, 10.0, 1e-5, 30000, OURS),
    "mnist-eps10": Preset(SMALL, MNIST, 10.0, 1e-5, 60000, OURS, dataset="idx"),
    "mnist-eps1": Preset(TIGHT, MNIST, 1.0, 1e-5, 60000, OURS),
    "fashion-eps10": Preset(SMALL, MNIST, 10.0, 1e-5, 60000, OURS),
    "fashion-eps1": Preset(TIGHT, MNIST, 1.0, 1e-5, 60000, OURS),
    "gender-eps10": Preset(SMALL, GENDER, 10.0, 1e-6, 162770, OURS),
    "gender-eps1": Preset(TIGHT, GENDER, 1.0, 1e-6, 162770, OURS),
    "mnist-eps10-rotation": Preset(with_classifier(gswgan.rotating(gswgan.ORIGINAL)), MNIST, 10.0,
                                   1e-5, 60000, PUBLISHED),
    "mnist-published": Preset(ORIGINAL, MNIST, math.inf, 1e-5, 60000, PUBLISHED),
    "fashion-published": Preset(ORIGINAL, MNIST, math.inf, 1e-5, 60000, PUBLISHED),
    "gender-published": Preset(ORIGINAL_GENDER, GENDER, math.inf, 1e-5, 162770, PUBLISHED),
}
