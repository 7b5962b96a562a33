"""Floating-point operations of a teacher's step, from the shapes of the networks."""

from __future__ import annotations

from dpgen_jax.core.types import ImageSpec
from dpgen_jax.methods.datalens import Config
from dpgen_jax.nets.image import DiscriminatorNet


def published_macs(net: DiscriminatorNet, spec: ImageSpec) -> int:
    """Count the multiplications of one image's forward pass through the published discriminator.

    It has 5x5 convolutions at half and at a quarter of the size and two linear layers, with the
    label joined to the input of each as constant maps or a one-hot vector.

    Args:
      net: The discriminator.
      spec: The images.

    Returns:
      The number of multiplications.
    """
    c1, c2, hidden = net.resolve(spec)
    half, quarter = ((spec.height // n) * (spec.width // n) for n in (2, 4))
    return (half * 25 * (spec.channels + spec.classes) * c1
            + quarter * 25 * (c1 + spec.classes) * c2
            + (quarter * c2 + spec.classes) * hidden
            + hidden + spec.classes)


def published_flops(config: Config, spec: ImageSpec, records: int) -> int:
    """Count the floating-point operations of one teacher's step, of the networks as published.

    A multiplication and an addition are two, however they are computed.

    A discriminator step goes forward and twice that backward through real and fake records; the
    answer goes forward through a batch of fakes and back to the images. The optimiser, the votes
    and the generator are not counted.

    Args:
      config: The configuration.
      spec: The images.
      records: The records of a teacher.

    Returns:
      The number of operations.
    """
    real = min(config.batch, records)
    passes = config.d_steps * 3 * 2 * real + 2 * config.batch
    return 2 * published_macs(config.discriminator, spec) * passes
