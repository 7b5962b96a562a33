"""The paper's networks: the fast discriminator equals a plain convolution; the widths printed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy_compare import close

from dpgen_jax.core.types import ImageSpec, UserError
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet, PaperDiscriminator
from dpgen_jax.nets.pair import pair

MNIST = ImageSpec(28, 28, 1, 10)


def plain(p, x, labels, spec):
    """One group: label maps joined to the images, a convolution, plain batch normalisation."""
    onehot = jax.nn.one_hot(labels, spec.classes)
    maps = jnp.broadcast_to(onehot[:, None, None], (*x.shape[:3], spec.classes))

    def normed(h, scale, offset):
        axes = tuple(range(h.ndim - 1))
        h = (h - h.mean(axes)) / jnp.sqrt(h.var(axes) + 1e-5) * scale + offset
        return jnp.where(h > 0, h, 0.2 * h)

    h = jax.lax.conv_general_dilated(
        jnp.concatenate([x, maps], -1), jnp.concatenate([p["conv1"], p["label1"]], 2), (2, 2),
        "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) + p["bias1"]
    h = normed(h, p["scale1"], p["offset1"])
    n, height, width, c = h.shape  # the first linear layer reads 2x2 blocks of positions
    h = h.reshape(n, height // 2, 2, width // 2, 2, c).transpose(0, 1, 3, 2, 4, 5).reshape(n, -1)
    h = jnp.concatenate([h, onehot], 1) @ jnp.concatenate([p["linear1"], p["label2"]]) + p["bias2"]
    h = normed(h, p["scale2"], p["offset2"])
    return jnp.concatenate([h, onehot], 1) @ jnp.concatenate([p["linear2"], p["label3"]]) \
        + p["bias3"]


def test_discriminator_equals_the_plain_form(rng):
    spec = ImageSpec(8, 12, 3, 4)
    d = PaperDiscriminator(DiscriminatorNet(channels1=8, hidden=32), spec)
    params = {name: 0.1 * rng.normal(size=leaf.shape).astype(np.float32)
              for name, leaf in jax.eval_shape(d.init, jax.random.key(0)).items()}
    x = rng.uniform(size=(2, 6, *spec.shape)).astype(np.float32)
    labels = rng.integers(0, spec.classes, (2, 6))
    weight = rng.normal(size=(2, 6)).astype(np.float32)

    def value_and_grads(f):
        return f(params, x), jax.grad(lambda p, x: jnp.sum(weight * f(p, x)), (0, 1))(params, x)

    got = jax.jit(lambda: value_and_grads(lambda p, x: d.apply(p, x, labels)))()
    want = jax.jit(lambda: value_and_grads(lambda p, x: jnp.stack(
        [plain(p, x[g], labels[g], spec) for g in (0, 1)])))()
    close(got[0], want[0])
    # A bias before batch normalisation has no effect: its exact gradient is 0, both are rounding.
    for name in set(params) - {"bias1", "bias2"}:
        close(got[1][0][name], want[1][0][name])
    close(got[1][1], want[1][1])


def test_parameter_counts_are_those_of_the_printed_widths():
    g, d = pair(MNIST, GeneratorNet(channels=64), DiscriminatorNet(), "paper")
    sizes = [sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(net.init, jax.random.key(0))))
             for net in (g, d)]
    units = 21 * 7 * 7  # 1024, rounded to whole maps
    assert sizes[0] == ((50 + 10) * units + units + 2 * 21 * 49 + 25 * (21 + 10) * 64 + 64 + 2 * 64
                        + 25 * (64 + 10) + 1)
    assert sizes[1] == (25 * 11 * 32 + 32 + 2 * 32 + (14 * 14 * 32 + 10) * 256 + 256 + 2 * 256
                        + 256 + 10 + 1)


def test_other_sizes_are_refused_in_one_line():
    with pytest.raises(UserError, match="--image-size 28") as error:
        PaperDiscriminator(DiscriminatorNet(), ImageSpec(27, 27, 1, 10))
    assert "\n" not in str(error.value)
