"""The method that is attacked, and what it promises."""

from __future__ import annotations

import dataclasses

from dpgen_jax.core.config import Budget
from dpgen_jax.methods.shared.config import MethodConfig
from dpgen_jax.presets import Preset


@dataclasses.dataclass(frozen=True)
class Target:
    """A method with its configuration and its promise.

    Attributes:
        method: The name of the method.
        preset: Its preset.
        config: The method's configuration; its steps or sigma may be open.
        epsilon: The promise.
        delta: Of the same promise.
    """

    method: str
    preset: Preset
    config: MethodConfig
    epsilon: float
    delta: float

    @property
    def budget(self) -> Budget:
        """The promise, of which the preset says what class counts may take."""
        return Budget(self.epsilon, self.delta, self.preset.class_epsilon)
