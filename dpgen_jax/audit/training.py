"""The audit of a whole training in one run: canaries, and guesses from all that is public."""

from __future__ import annotations

from typing import Any

from dpgen_jax.audit.findings import Log, Report
from dpgen_jax.core.data_options import DataOptions
from dpgen_jax.core.types import UserError
from dpgen_jax.presets import Preset


def of_method(method: str, preset: Preset, config: Any, epsilon: float, delta: float, place: str,
              options: DataOptions, canaries: int, log: Log) -> Report:
    """Trains once on records with canaries, and certifies what their guesses tell.

    Args:
        method: The name of the method.
        preset: Its preset.
        config: The method's configuration; its steps or sigma may be open.
        epsilon: The promise.
        delta: Of the same promise.
        place: The data set, as `data.load` takes it.
        options: How it is read.
        canaries: How many canaries are put among the records.
        log: Prints a line of the audit.

    Returns:
        The report.

    Raises:
        UserError: Data that cannot be read, or more canaries than records.
    """
    raise UserError("whole trainings are not audited by this version; leave out --dataset and "
                    "--canaries")
