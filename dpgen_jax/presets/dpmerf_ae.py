"""Named configurations of DP-MERF on codes.

The paper's first version prints only noise and steps, and its code is gone: all settings are this
library's.
"""

import dataclasses

from dpgen_jax.core.types import ImageSpec
from dpgen_jax.methods.dpmerf_ae import Config
from dpgen_jax.presets import GLYPHS, Preset, serving

OURS = ("this library, for the autoencoder variant of Harder, Adamczewski and Park, "
        "arXiv 2002.11603v1, whose settings are lost")

_config = Config(batch=600, steps=350, embedding_steps=50)
_eps10 = Preset(_config, ImageSpec(28, 28, 1, 10), 10.0, 1e-5, 60000, OURS)

PRESETS = {
    "glyphs": dataclasses.replace(_eps10, spec=GLYPHS, records=30000,
                                  dataset="glyphs"),
    "mnist-eps10": _eps10,
    "mnist-eps1": dataclasses.replace(_eps10, epsilon=1.0),
}
PRESETS = serving(PRESETS, ("mnist-eps10", "mnist-eps1"),
                  {"images-eps10": "mnist-eps10", "images-eps1": "mnist-eps1"})
