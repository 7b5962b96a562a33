"""The audit of a mechanism: many releases of two neighbouring sums, and who can tell them apart."""

from __future__ import annotations

from typing import Any

from dpgen_jax.audit.findings import Log, Report
from dpgen_jax.core.types import UserError
from dpgen_jax.presets import Preset


def of_preset(method: str, preset: Preset, config: Any, epsilon: float, delta: float,
              seconds: float, log: Log) -> Report:
    """Attacks the mechanism of a configuration.

    Args:
        method: The name of the method.
        preset: Its preset, for the schema of the data and the number of records.
        config: The method's configuration; its steps or sigma may be open.
        epsilon: The promise.
        delta: Of the same promise.
        seconds: How long it is attacked.
        log: Prints a line of the audit.

    Returns:
        The report.

    Raises:
        UserError: A configuration or a budget that means nothing.
    """
    raise UserError("mechanisms are not audited by this version; audit a run folder")
