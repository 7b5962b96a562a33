"""Generated images moved by affine maps that are read off the latents.

Turning, shearing, scaling and moving is how images of one thing differ, whatever the thing; a
generator that collapses to a few shapes for each class still shows each in all of these ways
(Simard, Steinkraus and Platt, ICDAR 2003, move training images so). It is knowledge about images
that is put in by hand: nothing about it is read from records.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpgen_jax.core.types import Array, Spec, TableSpec, UserError
from dpgen_jax.nets.image import GeneratorNet

ENTRIES = 6
SHIFT = 0.25
"""The largest shift, in halves of the image's sides, over the largest entry of the matrix."""


class Warped(nn.Module):
    """A generator of images whose images are moved by `affine`.

    The first six latents, times net.warp, are the entries in which the map differs from the
    identity. The generator sees these latents too, so shape and place may depend on each other.

    Attributes:
        net: Sizes of the generator.
        images: The generator whose images are moved.
        outside: As for `affine`.

    Raises:
        UserError: for fewer than six latents.
    """

    net: GeneratorNet
    images: nn.Module
    outside: str = "constant"

    def __post_init__(self) -> None:
        if self.net.latent < ENTRIES:
            raise UserError(f"latent is {self.net.latent}; warp takes {ENTRIES} latents: make it "
                            f"{ENTRIES} or more, or set warp to 0")
        super().__post_init__()

    def __call__(self, z: Array, labels: Array, train: bool) -> Array:
        """Generates images [N, H, W, ch] in [0, 1] from z float [N, latent], labels int [N]."""
        return affine(self.images(z, labels, train), self.net.warp * z[:, :ENTRIES],
                      self.outside)


def moved(net: GeneratorNet, module: nn.Module, spec: Spec) -> nn.Module:
    """Returns the generator `module`, `Warped` where net.warp is above 0.

    Raises:
        UserError: for a table with net.warp above 0.
    """
    if not net.warp:
        return module
    if isinstance(spec, TableSpec):
        raise UserError(f"warp is {net.warp}, which moves images; set it to 0 for a table")
    return Warped(net, module, beyond(spec.channels))


def beyond(channels: int) -> str:
    """Returns how pixels beyond an image are read: a background of 0 goes on, as of digits.

    A scene in colour does not end in a black frame.
    """
    return "nearest" if channels == 3 else "constant"


def affine(images: Array, entries: Array, outside: str = "constant") -> Array:
    """Moves images by affine maps.

    The pixel at (y, x), in halves of the sides from the centre, is read bilinearly at
    (y, x) + A (y, x) + SHIFT b.

    Args:
        images: [N, H, W, ch].
        entries: [N, 6]: A, row by row, and b.
        outside: How pixels beyond the image are read: "constant", as 0, or "nearest".

    Returns:
        [N, H, W, ch].
    """
    _, height, width, _ = images.shape
    y, x = jnp.meshgrid(jnp.linspace(-1, 1, height), jnp.linspace(-1, 1, width), indexing="ij")

    def one(image: Array, e: Array) -> Array:
        rows = (1 + e[0]) * y + e[1] * x + SHIFT * e[4]
        columns = e[2] * y + (1 + e[3]) * x + SHIFT * e[5]
        at = [(rows + 1) * (height - 1) / 2, (columns + 1) * (width - 1) / 2]
        return jax.vmap(lambda channel: jax.scipy.ndimage.map_coordinates(
            channel, at, order=1, mode=outside), 2, 2)(image)

    return jax.vmap(one)(images, entries)
