"""Named configurations of DP-Sinkhorn with teachers, the example of `docs/how-to/add-a-method.md`.

They were not tuned: the method is here to show how one is added.
"""

from dpgen_jax.methods.dpsinkhorn import Config
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.image import GeneratorNet
from dpgen_jax.presets import GLYPHS, Preset, numbers

OURS = "this library: not tuned"

PRESETS = {
    "glyphs": Preset(Config(teachers=300, generator=GeneratorNet(16, 64, 32),
                            g_optimiser=Adam(2e-3)),
                     GLYPHS, 10.0, 1e-5, 30000, OURS, dataset="glyphs"),
    "table": Preset(Config(teachers=200, generator=GeneratorNet(latent=16, hidden=128),
                           g_optimiser=Adam(2e-3)),
                    numbers(29), 1.0, 1e-5, 45569, OURS, dataset="table"),
}
