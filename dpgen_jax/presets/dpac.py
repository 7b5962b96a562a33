"""Named configurations of DP-GAN-DPAC, each with its source: those of GS-WGAN with a classifier.

The published settings (t_c 6,000 of 20,000 steps, CelebA 1,000; beta 0.8; 10 steps on fakes and 10
on records) are the defaults of `Config`. In the presets named by an epsilon the classifier
comes in after a fifth of the steps. `-long` presets are GS-WGAN's: more critics, and more steps.
"""

import dataclasses
import math
from typing import Any

from dpgen_jax.methods.dpac import Config
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.resnet import CriticNet
from dpgen_jax.presets import Preset, gswgan, photographs, stated
from dpgen_jax.presets.gswgan import GENDER, GLYPHS, MNIST

PUBLISHED = "Chen et al. 2023, section 5.1; defaults of the authors' code"
OURS = ("this library: classifier and networks chosen on glyphs (benchmarks/images.py), the "
        "slope and at epsilon 1 the class weight as GS-WGAN has them for MNIST")
AT_10 = ("this library: networks, slope and critics as GS-WGAN has them for MNIST; with fewer "
         "steps of the classifier the best of three trainings on MNIST, tested on a sixth of its "
         "training images; benchmarks/results/sweep-dpac-mnist-eps10-class.json")
WARPED = "{}; that images are moved from two more, of half of the critics and steps; " \
    "benchmarks/results/sweep-dpac-mnist-eps10-warp.json"
AT_1 = ("this library: GS-WGAN's of the same name, the better of two trainings on MNIST, tested on "
        "a sixth of its training images; benchmarks/results/sweep-dpac-mnist-eps1.json")
VALIDATED = ("this library: GS-WGAN's of the same name, the better of two trainings on MNIST, "
             "tested on a sixth of its training images; "
             "benchmarks/results/sweep-dpac-mnist-eps10-critics.json")


def with_classifier(config: gswgan.Config, **fields: Any) -> Config:
    """Returns the configuration of GS-WGAN with the fields that DPAC adds to it."""
    return Config(**{f.name: getattr(config, f.name) for f in dataclasses.fields(config)} | fields)


def small(config: gswgan.Config, real_steps: int = 4) -> Config:
    """Returns it with a classifier of the critic's size, which learns fast and from few records."""
    return with_classifier(config, t_c=(config.steps or 0) // 5, real_steps=real_steps,
                           fake_batch=80, c_penalty=0.0, c_optimiser=Adam(5e-3, 0.5, 0.9),
                           classifier=CriticNet(8))


ORIGINAL = with_classifier(gswgan.ORIGINAL)
ORIGINAL_GENDER = with_classifier(gswgan.ORIGINAL_GENDER, t_c=1000)
ROTATING = with_classifier(gswgan.rotating(gswgan.ORIGINAL))
ROTATING_GENDER = with_classifier(gswgan.rotating(gswgan.ORIGINAL_GENDER), t_c=1000)
SMALL, LONG = small(gswgan.SMALL), small(gswgan.LONG)
MANY, DIGITS, TIGHT, LARGE_TIGHT = (small(config, real_steps=2) for config in (
    gswgan.MANY, gswgan.of_digits(gswgan.MANY), gswgan.TIGHT, gswgan.LARGE_TIGHT))

MESSAGE = (
    "the critic's and the classifier's gradients are one message, clipped and charged once; the "
    "authors' code sanitises both and charges once",
    "a query is of 32 fakes in all steps; once the classifier is in, the authors' code queries "
    "1,000 and charges 32")
IN_TURN = gswgan.ROTATION[:1] + (
    "the critics of a step and its classifier share one pool of 1,000 fakes for all their steps",)

PRESETS = stated({
    "glyphs": Preset(dataclasses.replace(SMALL, critics=200), GLYPHS, 10.0, 1e-5, 30000, OURS),
    "mnist-eps10": Preset(DIGITS, MNIST, 10.0, 1e-5, 60000, WARPED.format(AT_10)),
    "mnist-eps1": Preset(TIGHT, MNIST, 1.0, 1e-5, 60000, AT_1),
    "fashion-eps10": Preset(MANY, MNIST, 10.0, 1e-5, 60000, AT_10),
    "fashion-eps1": Preset(TIGHT, MNIST, 1.0, 1e-5, 60000, AT_1),
    "mnist-eps10-long": Preset(LONG, MNIST, 10.0, 1e-5, 60000, VALIDATED),
    "fashion-eps10-long": Preset(LONG, MNIST, 10.0, 1e-5, 60000, VALIDATED),
    **gswgan.of_photographs(MANY, TIGHT, LARGE_TIGHT),
    "mnist-eps10-rotation": Preset(dataclasses.replace(ROTATING, pool=100), MNIST, 10.0, 1e-5,
                                   60000, PUBLISHED, differs=IN_TURN),
    "gender-eps10-rotation": photographs.preset(
        dataclasses.replace(ROTATING_GENDER, pool=500), GENDER, 10.0, PUBLISHED, *IN_TURN),
    "mnist-published": Preset(ORIGINAL, MNIST, math.inf, 1e-5, 60000, PUBLISHED,
                              differs=gswgan.NOTHING),
    "fashion-published": Preset(ORIGINAL, MNIST, math.inf, 1e-5, 60000, PUBLISHED,
                                differs=gswgan.NOTHING),
    "gender-published": dataclasses.replace(
        photographs.preset(ORIGINAL_GENDER, GENDER, math.inf, PUBLISHED), delta=1e-5,
        differs=gswgan.NOTHING),
}, {PUBLISHED: (*gswgan.PROVEN, *MESSAGE)})
PRESETS = gswgan.serving_images(PRESETS)
