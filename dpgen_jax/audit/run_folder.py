"""The audit of a run folder: whether everything that it says of itself is so."""

from __future__ import annotations

from pathlib import Path

from dpgen_jax.audit.findings import Log, Report
from dpgen_jax.core.data_options import DataOptions
from dpgen_jax.core.types import UserError


def of_folder(root: Path, place: str | None, options: DataOptions, log: Log) -> Report:
    """Checks a run folder.

    Args:
        root: The folder.
        place: The data set that was trained on, as `data.load` takes it; None for none.
        options: How it is read.
        log: Prints a line of the audit.

    Returns:
        The report.

    Raises:
        UserError: A folder that is no run.
    """
    raise UserError(f"{root}: run folders are not audited by this version; see "
                    "python -m dpgen_jax.account RUN")
