"""The ranges in which numbers of a configuration lie: each check names the field and the range."""

from __future__ import annotations

import numpy as np

from dpgen_jax.core.types import UserError

SMALLEST, LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


def require_positive(**fields: float) -> None:
    """Raises UserError unless every field, given by its name, is a float32 above 0."""
    _require({name: SMALLEST <= value <= LARGEST for name, value in fields.items()}, fields,
             "must be above 0 and finite, as a float32")


def require_not_negative(**fields: float) -> None:
    """Raises UserError unless every field, given by its name, is a float32 of 0 or above."""
    _require({name: 0 <= value <= LARGEST for name, value in fields.items()}, fields,
             "must be 0 or above and finite, as a float32")


def require_share(**fields: float) -> None:
    """Raises UserError unless every field, given by its name, lies between 0 and 1."""
    _require({name: 0 <= value <= 1 for name, value in fields.items()}, fields,
             "must lie between 0 and 1")


def require_decay(**fields: float) -> None:
    """Raises UserError unless every field, given by its name, lies in 0 <= field < 1."""
    _require({name: 0 <= value < 1 for name, value in fields.items()}, fields,
             "must lie in 0 <= {} < 1")


def _require(valid: dict[str, bool], fields: dict[str, float], rule: str) -> None:
    """Raises UserError for the first field that is not valid."""
    for name, value in fields.items():
        if not valid[name]:
            raise UserError(f"{name} is {value}; it {rule.format(name)}")
