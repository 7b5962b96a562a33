"""Named configurations of the mixture of Gaussians.

What the presets of MNIST and Fashion-MNIST set beyond the formulas of `methods.mixture`, and the 8
rounds, were chosen on 10,000 of the training images, by single runs of which no file is kept where
none is named here. No test image was looked at. Fashion-MNIST at epsilon 1 has rounds of a
classifier in addition (`benchmarks/results/sweep-mixture-fashion-classifier.json`). Digits at
epsilon 10 have fewer `dimensions` than the formula has for all images, by a difference of little
more than the spread of two runs (`benchmarks/results/sweep-mixture-mnist-dimensions.json`). How far
images are moved (`warp`) is knowledge about digits and garments. How far images in colour may lie
from grey (`norm`) was chosen on training images of CIFAR-10, and compared with 0.6 on a part of
these on which nothing was fitted.
"""

from dpgen_jax.core.types import ImageSpec
from dpgen_jax.methods.mixture import Config
from dpgen_jax.presets import GLYPHS, Preset

OURS = ("this library: warp, trust, whitening, dimensions and rounds chosen on 10,000 training "
        "images")
MNIST = ImageSpec(28, 28, 1, 10)

GENERAL = "this library: sizes by formula; nothing chosen on these images"
OTHER = "this library: sizes by formula, carried over to other data"

PRESETS = {
    "glyphs": Preset(Config(), GLYPHS, 10.0, 1e-5, 30000, GENERAL,
                     dataset="glyphs"),
    "mnist-eps1": Preset(Config(warp=0.2), MNIST, 1.0, 1e-5, 60000, OURS, dataset="mnist"),
    "mnist-eps10": Preset(Config(warp=0.2, dimensions=60), MNIST, 10.0, 1e-5, 60000, OURS,
                          dataset="mnist"),
    "fashion-eps1": Preset(
        Config(warp=0.03, trust=0.5, whitening=0.05, steps=12, classifier=4), MNIST, 1.0, 1e-5,
        60000, OURS, dataset="fashion"),
    "fashion-eps10": Preset(Config(warp=0.03, trust=0.5, whitening=0.05), MNIST, 10.0, 1e-5, 60000,
                            OURS, dataset="fashion"),
    "digits": Preset(Config(), ImageSpec(8, 8, 1, 10), 10.0, 1e-5, 1437, GENERAL,
                     dataset="digits"),
    **{f"images-eps{epsilon}": Preset(Config(warp=0.05), MNIST, float(epsilon), 1e-5, 1000, OTHER,
                                      dataset="images") for epsilon in (1, 10)},
}
