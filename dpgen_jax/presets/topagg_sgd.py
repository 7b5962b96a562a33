"""Named configurations of TopAgg-SGD, each with its source.

The paper's (Table 11) are the best of its grids at an epsilon of adding or removing a record; it
does not say how many steps they took. Here these are as many as the paper's noise affords by its
own accounting (Renyi), 1,707, 508, 9,941, 17,370 and 12,338, rounded; epsilon is that of replacing
a record, and the noise that it needs is found.

`-dpdl` is the baseline DPDL (Abadi et al., "Deep Learning with Differential Privacy", CCS 2016,
section 5.2), of which DataLens prints the figures of its own paper: batch 600, clip 4, noise 8, 4
and 2, and 1,000 hidden units. The steps are those that the noise affords. What differs: no private
PCA to 60 features comes before it (which that paper pays for), one clip is over all weights and not
one for each layer, the activation is tanh, and the learning rate does not fall.

The features of CIFAR-10 are those of a public ResNet-18, which `python -m dpgen_jax.features`
computes.
"""

import dataclasses

from dpgen_jax.core.types import ImageSpec
from dpgen_jax.methods.topagg_sgd import Config
from dpgen_jax.presets import GLYPHS, Preset, numbers, serving, stated

OURS = "this library; learning rates tried on glyphs, digits and MNIST, whose records are public"
WANG = "Wang et al. 2021 (DataLens), Table 11: kappa, clip, batch and learning rate; noise found"
ABADI = ("Abadi et al. 2016 (DPDL in Wang et al. 2021, Figure 3), without its PCA, see "
         "presets/topagg_sgd.py")
MNIST = ImageSpec(28, 28, 1, 10)
FEATURES = numbers(512, 10)

_ours = Config(batch=300, clip=1.0, learning_rate=4.0, steps=100)
_mnist = dataclasses.replace(_ours, batch=600, steps=600)
_mnist_eps1 = dataclasses.replace(_ours, batch=1200, learning_rate=3.0, steps=300)
_grid = Config(network="opacus", kappa=0.6, clip=12.0, batch=512, learning_rate=0.1, steps=500)
_dpdl = Config(kappa=1.0, network="mlp", hidden=(1000,), clip=4.0, batch=600, learning_rate=0.1)
_linear = Config(network="mlp", clip=0.5, batch=2048, learning_rate=0.2, steps=12000)

TABLE = ("steps are those that the table's noise affords by its accounting; it prints none",
         "noise is found for replacing a record; the paper's is for adding or removing one")
DPDL = ("no private PCA comes before the network", "one clip is over all weights, not one a layer",
        "the activation is tanh, and the learning rate does not fall",
        "steps are those that the noise affords")

PRESETS = stated({
    "glyphs": Preset(_ours, GLYPHS, 10.0, 1e-5, 30000, OURS, dataset="glyphs"),
    "digits": Preset(dataclasses.replace(_ours, network="mlp", hidden=(32,), batch=200),
                     ImageSpec(8, 8, 1, 10), 10.0, 1e-5, 1437, OURS, dataset="digits"),
    "mnist-eps1": Preset(_mnist_eps1, MNIST, 1.0, 1e-5, 60000, OURS),
    "mnist-eps10": Preset(_mnist, MNIST, 10.0, 1e-5, 60000, OURS),
    "mnist-eps0.05-published": Preset(
        dataclasses.replace(_grid, clip=10.0, batch=128, learning_rate=0.01, steps=1700),
        MNIST, 0.05, 1e-5, 60000, WANG),
    "mnist-eps0.2-published": Preset(_grid, MNIST, 0.2, 1e-5, 60000, WANG),
    "features-eps0.025-published": Preset(
        dataclasses.replace(_linear, clip=0.8, batch=24, learning_rate=0.001, steps=9900),
        FEATURES, 0.025, 1e-5, 50000, WANG),
    **{f"mnist-eps{epsilon:g}-dpdl": Preset(dataclasses.replace(_dpdl, sigma=sigma), MNIST, epsilon,
                                            1e-5, 60000, ABADI)
       for epsilon, sigma in ((0.5, 8.0), (2.0, 4.0), (8.0, 2.0))},
    "features-eps0.4-published": Preset(
        dataclasses.replace(_linear, clip=1.0, batch=96, learning_rate=0.005, steps=17000),
        FEATURES, 0.4, 1e-5, 50000, WANG),
    "features-eps8-published": Preset(_linear, FEATURES, 8.0, 1e-5, 50000, WANG),
}, {WANG: TABLE, ABADI: DPDL})
PRESETS = serving(
    PRESETS, ("mnist-eps1", "mnist-eps10"),
    {"images-eps10": "mnist-eps10", "images-eps1": "mnist-eps1", "images-few": "digits"})
