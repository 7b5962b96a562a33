"""Named configurations of DP-GAN-DPAC, each with its source."""

from dpgen_jax.methods.dpac import Config
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.critic import CriticNet
from dpgen_jax.nets.resnet import ResNetNet
from dpgen_jax.presets import Preset
from dpgen_jax.types import ImageSpec

PRESETS = {
    "glyphs": Preset(
        Config(critics=1000, batch=16, steps=100, critic_steps=1, critic_steps_first=5,
               records_per_step=16, pool=8, warm_steps=0, penalty=1.0, t_c=20,
               fake_steps=10, real_steps=5, fake_batch=80, c_penalty=0.0,
               c_optimiser=Adam(5e-3, 0.5, 0.9), classifier=CriticNet(8),
               generator=ResNetNet(8, 24), critic=CriticNet(8), warm_generator=ResNetNet(4, 8),
               g_optimiser=Adam(3e-3, 0.5, 0.9), d_optimiser=Adam(2e-3, 0.5, 0.9),
               g_final_rate=0.05, ema=0.9),
        ImageSpec(12, 12, 1, 10), 10.0, 1e-5, 30000,
        "this library: chosen on glyphs, whose records are public; benchmarks/images.py"),
}
