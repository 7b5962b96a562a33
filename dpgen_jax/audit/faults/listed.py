"""All planted faults, by name."""

from __future__ import annotations

from dpgen_jax.audit.faults import charges, noise, sums, units
from dpgen_jax.audit.faults.catalogue import FAULTS

__all__ = ["FAULTS"]
assert charges and noise and sums and units  # each registers its faults when it is imported
