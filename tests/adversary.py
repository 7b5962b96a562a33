"""The toy method of the audit (`planted.toy`), with the states of its units opened."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from planted.toy import *  # noqa: F403  all of it, under the name that tests use
from planted.toy import UNITS, fresh

from dpgen_jax.core.types import unseal
from dpgen_jax.private import partition, records  # noqa: F401
from dpgen_jax.run import loop


def arrays(state: loop.State, units: int = UNITS) -> Any:
    """Units' arrays [U, ...] of a state."""
    return jax.tree.map(
        lambda a, unit: np.asarray(a).reshape(-1, *unit.shape[1:])[:units],
        unseal(state.units).state, fresh(units)[0].state)
