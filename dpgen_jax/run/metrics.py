"""metrics.jsonl: one line of public scalars a block of steps, and TensorBoard if asked for.

Rows of steps that were lost stay, marked {"superseded": true}: they prove that those steps were
made. Where a row says `charged`, the steps that the ledger charged when it was written, a resume
refuses a ledger that charges fewer.
"""

from __future__ import annotations

import json
import math
import numbers
import os
from pathlib import Path
from typing import Any

import numpy as np

from dpgen_jax.core import reading
from dpgen_jax.core.strict_json import Json, parse_json
from dpgen_jax.core.types import UserError

OF_SAMPLES = ("nearest_mean_accuracy", "synthetic_accuracy", "public_accuracy", "contrast",
              "spread")
"""measures of samples, between 0 and 1, which the monitor takes now and then"""
EPSILON, BUDGET_EPSILON = "epsilon", "budget_epsilon"
"""what was charged so far: of a run that promises it, and of one that promises nothing"""
NO_METRICS = ("step", "charged", EPSILON, BUDGET_EPSILON, "seconds")
"""columns that are no metric of the method"""


class MetricsWriter:
    """Appends rows to a JSONL file, each flushed, so that a run can be watched and interrupted.

    resume_step: the step a run goes on from; later rows are marked as superseded, for their steps
    will be written again. None leaves all rows as they are. A torn last line, as a crash leaves it,
    goes either way. tensorboard: a folder to mirror the scalars to.

    Raises:
        UserError: Where the file cannot be read or written, or where tensorboard is asked for and
            tensorboardX is not installed.
    """

    def __init__(self, path: str | Path, resume_step: int | None = None,
                 tensorboard: str | Path | None = None):
        path = Path(path)
        self._board = _board(tensorboard, resume_step) if tensorboard is not None else None
        try:
            _supersede(path, math.inf if resume_step is None else resume_step)
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from error

    def write(self, row: Json) -> None:
        """Writes one line.

        Args:
            row: JSON values and scalars, `step` among them; NaN and infinities become null.

        Raises:
            UserError: For anything else, before a byte is written.
        """
        row = _strict(row)
        self._file.write(_line(row))
        self._file.flush()
        if self._board:
            for name, value in row.items():
                if name not in ("step", "charged") and isinstance(value, int | float):
                    self._board.add_scalar(name, value, row["step"])

    def show(self, name: str, image: np.ndarray, step: int) -> None:
        """A picture uint8 [H, W, 3] for TensorBoard; nothing without it."""
        if self._board:
            self._board.add_image(name, image, step, dataformats="HWC")

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
        if self._board:
            self._board.close()

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: str | Path) -> list[Json]:
    """Reads the rows that count, without superseded ones.

    A missing file has none, and a torn last line is left out.

    Args:
        path: The file.

    Raises:
        UserError: For a damaged line before the last, naming it.
    """
    return [row for row in every(path) if not row.get("superseded")]


def charged(path: str | Path) -> int:
    """The most steps that any row says were charged, superseded ones included; 0 if none does.

    Raises:
        UserError: As `read`.
    """
    return max((row.get("charged", 0) for row in every(path)), default=0)


def every(path: str | Path) -> list[Json]:
    """Reads all rows, superseded ones included.

    Args:
        path: The file.

    Raises:
        UserError: As `read`.
    """
    path = Path(path)
    if not path.exists():
        return []
    lines = reading.read_bytes(path, reading.JSON_BYTES).splitlines()
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(_row(line))
        except ValueError as error:
            if number == len(lines):
                break
            raise UserError(f"{path}, line {number} is damaged ({str(error)[:80]}); delete that "
                            "line") from error
    return rows


def _row(line: bytes) -> Json:
    row = parse_json(line)
    for name in ("step", "charged"):
        value = row.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"{name} is no number of steps")
    return row


def _supersede(path: Path, step: float) -> None:
    """Marks later rows, drops a torn line; through another file, so a crash leaves old or new."""
    rows = [row | {"superseded": True} if row.get("step", 0) > step else row for row in every(path)]
    kept = "".join(map(_line, rows))
    if not path.exists() or kept.encode() == path.read_bytes():
        return
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8") as out:
        out.write(kept)
        out.flush()
        os.fsync(out.fileno())
    os.replace(temporary, path)


def _line(row: Json) -> str:
    return json.dumps(row, allow_nan=False) + "\n"


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _strict(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(v) for v in value]
    if value is None or isinstance(value, bool | str):
        return value
    if getattr(value, "shape", None) == ():  # scalars of numpy and JAX
        return _strict(value.item())
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value) if math.isfinite(value) else None
    raise UserError(f"a metric is {type(value).__name__}; expected a number, a text or a scalar")


def _board(folder: str | Path, resume_step: int | None) -> Any:
    # Hides what an interrupted run wrote after the step that is resumed from.
    return summary_writer()(str(folder), purge_step=resume_step + 1 if resume_step else None)


def summary_writer() -> Any:
    """The class that writes for TensorBoard.

    Raises:
        UserError: Where tensorboardX is missing.
    """
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise UserError("TensorBoard output needs tensorboardX; install it with "
                        "pip install 'dpgen_jax[tensorboard]', or leave it out") from error
    return SummaryWriter
