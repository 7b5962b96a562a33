"""Faults in noise and in the bits that it is made of."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation import noise as sources
from dpgen_jax.aggregation.mechanism import LocalMechanism, SumMechanism
from dpgen_jax.aggregation.noise import RoundedGaussian, SeededBits
from dpgen_jax.core.types import Array, Private, unseal
from dpgen_jax.private.teachers import AXIS
from dpgen_jax.run import loop
from planted.catalogue import fault
from planted.planting import all_replaced, replaced

_draw = RoundedGaussian.sample


@fault("law of the noise", "mechanism audit")
def noise_halved() -> Iterator[None]:
    """Noise of half the standard deviation that is charged."""
    def sample(self: RoundedGaussian, bits: Array) -> Array:
        return _draw(RoundedGaussian(self.sigma / 2), bits)

    with replaced(RoundedGaussian, "sample", sample):
        yield


@fault("law of the noise")
def noise_without_tail() -> Iterator[None]:
    """Noise that never exceeds three standard deviations, as of a short table."""
    def sample(self: RoundedGaussian, bits: Array) -> Array:
        most = int(3 * self.sigma)
        return jnp.clip(_draw(self, bits), -most, most)

    with replaced(RoundedGaussian, "sample", sample):
        yield


@fault("fresh noise")
def bits_twice_in_a_step() -> Iterator[None]:
    """One row of noise, added to every row of a round."""
    def sample(self: RoundedGaussian, bits: Array) -> Array:
        return jnp.broadcast_to(_draw(self, bits[:1]), bits.shape[:-1])

    with replaced(RoundedGaussian, "sample", sample):
        yield


@fault("fresh noise")
def bits_twice_across_steps() -> Iterator[None]:
    """Two rounds of one block share their bits."""
    draw = sources.draw_bits

    def again(shape: tuple[int, ...]) -> np.ndarray:
        return np.repeat(draw(((shape[0] + 1) // 2, *shape[1:])), 2, axis=0)[:shape[0]]

    with replaced(sources, "draw_bits", again):
        yield


@fault("fresh noise of clients")
def bits_twice_across_devices() -> Iterator[None]:
    """Clients on different machines that draw the same noise, as from one public seed."""
    def same(self: LocalMechanism, source: Any, cohorts: np.ndarray, first: int) -> np.ndarray:
        inputs = drawn(self, source, cohorts, first)
        return np.broadcast_to(inputs[:1], inputs.shape)

    drawn = LocalMechanism.private_inputs
    with replaced(LocalMechanism, "private_inputs", same):
        yield


@fault("fresh noise")
def bits_twice_across_a_resume() -> Iterator[None]:
    """A resumed run draws the bits of its first start once more."""
    starts = itertools.count()
    stream = [SeededBits(0)]
    opened = Ledger.open.__func__  # type: ignore[attr-defined]  # of a classmethod

    def reopened(cls: type[Ledger], *args: Any) -> Ledger:
        next(starts)
        stream[0] = SeededBits(0)
        made: Ledger = opened(cls, *args)
        return made

    with all_replaced((sources, "draw_bits", lambda shape: stream[0].draw(shape)),
                      (Ledger, "open", classmethod(reopened))):
        yield


@fault("fresh noise on devices")
def noise_added_per_device() -> Iterator[None]:
    """Every device adds the noise, and the noisy sums are added up."""
    def release(mechanism: SumMechanism, bits: Array, total: Private[Array]) -> Any:
        noise = mechanism.noise.sample(bits)
        return mechanism.decode(unseal(total) + lax.psum(noise, AXIS), 1.0)

    with replaced(loop, "release", release):
        yield
