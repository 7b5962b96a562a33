"""Named configurations of TopAgg-SGD, each with its source.

The paper's (Table 11) are the best of its grids at an epsilon of adding or removing a record; it
does not say how many steps they took. Here these are as many as the paper's noise affords by its
own accounting (Renyi), 508, 12,338 and 17,370, rounded; epsilon is that of replacing a record, and
the noise that it needs is found.

Features of CIFAR-10 come from the user: an npz file of float images in [0, 1], such as
[n, 16, 32, 1] for the 512 features of a public ResNet-18, scaled by public bounds.
"""

import dataclasses

from dpgen_jax.methods.topagg_sgd import Config
from dpgen_jax.presets import Preset
from dpgen_jax.types import ImageSpec

OURS = "this library; learning rates tried on glyphs, digits and MNIST, whose records are public"
WANG = "Wang et al. 2021 (DataLens), Table 11: kappa, clip, batch and learning rate; noise found"
MNIST = ImageSpec(28, 28, 1, 10)
FEATURES = ImageSpec(16, 32, 1, 10)

_ours = Config(batch=300, clip=1.0, learning_rate=4.0, steps=100)
_mnist = dataclasses.replace(_ours, batch=600, steps=600)
_mnist_eps1 = dataclasses.replace(_ours, batch=1200, learning_rate=3.0, steps=300)
_grid = Config(kappa=0.6, clip=12.0, batch=512, learning_rate=0.1, steps=500)
_linear = Config(network="mlp", clip=0.5, batch=2048, learning_rate=0.2, steps=12000)

PRESETS = {
    "glyphs": Preset(_ours, ImageSpec(12, 12, 1, 10), 10.0, 1e-5, 30000, OURS, dataset="glyphs"),
    "digits": Preset(dataclasses.replace(_ours, network="mlp", hidden=(32,), batch=200),
                     ImageSpec(8, 8, 1, 10), 10.0, 1e-5, 1437, OURS, dataset="digits"),
    "mnist-eps1": Preset(_mnist_eps1, MNIST, 1.0, 1e-5, 60000, OURS, dataset="idx"),
    "mnist-eps10": Preset(_mnist, MNIST, 10.0, 1e-5, 60000, OURS),
    "mnist-eps0.2-published": Preset(_grid, MNIST, 0.2, 1e-5, 60000, WANG),
    "features-eps0.4-published": Preset(
        dataclasses.replace(_linear, clip=1.0, batch=96, learning_rate=0.005, steps=17000),
        FEATURES, 0.4, 1e-5, 50000, WANG),
    "features-eps8-published": Preset(_linear, FEATURES, 8.0, 1e-5, 50000, WANG),
}
