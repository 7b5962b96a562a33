"""Baselines as the papers print them: networks, noise and steps."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax import presets
from dpgen_jax.core.types import ImageSpec
from dpgen_jax.methods import dpgan
from dpgen_jax.nets.pair import Mlp


def test_the_linear_networks_are_those_of_the_paper():
    """Long et al., appendix E: 128-256-512-784 and 784-64-64-1, half of ReLU, labels in each."""
    config = presets.all_of("dpgan")["mnist-eps1-linear"].config
    spec = ImageSpec(28, 28, 1, 10)
    net_d, net_g = dpgan.scorer(config, spec), dpgan.generator(config, spec)
    d = jax.eval_shape(net_d.init, jax.random.key(0))
    assert [d[f"linear{i}"].shape for i in range(3)] == [(794, 64), (74, 64), (74, 1)]
    g = jax.eval_shape(net_g.init, jax.random.key(0))
    assert [g[f"Dense_{i}"]["kernel"].shape for i in range(4)] == [
        (110, 128), (138, 256), (266, 512), (522, 784)]
    assert net_d.slope == net_g.module.slope == 0.5 and net_d.leak == 0 and net_d.limit == 0.5
    assert (config.weight_clip, config.d_steps, config.batch, config.loss) == (
        0.1, 5, 64, "wasserstein")


def test_features_keep_within_their_limit():
    """However large the weights, the last layer reads features of at most a half."""
    net = Mlp((6,), ImageSpec(8, 12, 2, 4), slope=0.5, leak=0.0, limit=0.5)
    params = jax.tree.map(lambda w: 100 * jnp.ones(w.shape), net.init(jax.random.key(0)))
    x = np.ones((3, 8, 12, 2), np.float32)
    scores = jax.jit(net.apply)(params, x, np.zeros(3, np.int32))
    np.testing.assert_allclose(scores, 100 * (6 * 0.5 + 1 + 1))
    assert np.all(jax.jit(dataclasses.replace(net, limit=np.inf).apply)(
        params, x, np.zeros(3, np.int32)) > 1e5)


def test_the_dpsgd_gan_of_gswgan_proves_less_than_its_paper_states():
    """C.4: noise 2.1, clip 1.1, batch 600, 30,000 steps; Table 1 states epsilon 10."""
    preset = presets.all_of("dpcgan")["mnist-gswgan"]
    config = preset.config
    assert (config.sigma, config.clip, config.batch, config.steps) == (2.1, 1.1, 600, 30_000)
    assert preset.epsilon < 10


def test_dpdl_keeps_the_whole_gradient():
    """DataLens, Figure 3: with kappa 1 TopAgg-SGD is DP-SGD; Abadi et al. print the noise."""
    dpdl = {name: preset for name, preset in presets.all_of("topagg_sgd").items()
            if name.endswith("-dpdl")}
    assert {(p.epsilon, p.config.sigma) for p in dpdl.values()} == {(0.5, 8), (2, 4), (8, 2)}
    assert all((p.config.kappa, p.config.batch, p.config.clip, p.config.hidden) == (
        1, 600, 4, (1000,)) for p in dpdl.values())
