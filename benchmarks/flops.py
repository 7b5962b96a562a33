"""What a teacher's step costs in floating-point operations, from the shapes of the networks."""

from __future__ import annotations

from dpgen_jax.methods.datalens import Config
from dpgen_jax.nets.image import DiscriminatorNet
from dpgen_jax.types import ImageSpec


def published_macs(net: DiscriminatorNet, spec: ImageSpec) -> int:
    """Multiplications of one image's way forward through the discriminator as published: 5x5
    convolutions at half and at a quarter of the size and two linear layers, with the label joined
    to the input of each as constant maps or a one-hot vector."""
    c1, c2, hidden = net.resolve(spec)
    half, quarter = ((spec.height // n) * (spec.width // n) for n in (2, 4))
    return (half * 25 * (spec.channels + spec.classes) * c1
            + quarter * 25 * (c1 + spec.classes) * c2
            + (quarter * c2 + spec.classes) * hidden
            + hidden + spec.classes)


def published_flops(config: Config, spec: ImageSpec, records: int) -> int:
    """Floating-point operations of one teacher's step, of the networks as published, however they
    are computed; a multiplication and an addition are two.

    A discriminator step goes forward and twice that backward through real and fake records; the
    answer goes forward through a batch of fakes and back to the images. The optimiser, the votes
    and the generator are not counted.
    """
    real = min(config.batch, records)
    passes = config.d_steps * 3 * 2 * real + 2 * config.batch
    return 2 * published_macs(config.discriminator, spec) * passes
