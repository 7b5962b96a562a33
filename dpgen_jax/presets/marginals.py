"""Named configurations of noisy marginals."""

from dpgen_jax.methods.marginals import Config
from dpgen_jax.presets import Preset, numbers, serving

OURS = ("this library: chosen on a validation part of the training rows of Adult and "
        "breast_cancer; rare_share on those of two tables with rare classes")
CONFIG = Config(label_part=0.2, rare_share=0.05)
PRESETS = {
    "table": Preset(CONFIG, numbers(29), 1.0, 1e-5, 45569, OURS, dataset="table"),
    "breast_cancer": Preset(CONFIG, numbers(30), 1.0, 1e-5, 455, OURS, dataset="breast_cancer"),
    "adult": Preset(CONFIG, numbers(108), 1.0, 1e-5, 32561, OURS, dataset="adult"),
}
PRESETS = serving(PRESETS, (), {"table-few": "breast_cancer"})
