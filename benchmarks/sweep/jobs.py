"""Cells of a sweep as the commands of a user understand them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from benchmarks.sweep.cells import Cell, Sweep
from dpgen_jax import methods, presets, train
from dpgen_jax.core.config import Budget, DataOptions, digest
from dpgen_jax.core.errors import BudgetExceeded, UserError
from dpgen_jax.run.calibrate_config import complete, with_records
from dpgen_jax.run.flags import Train

DATA_FIELDS = ("dataset", *(field.name for field in dataclasses.fields(DataOptions)))
SPEED = ("runtime", "monitor", "out", "resume")
"""Parts of the training's flags that do not decide what a run means."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A cell as the training understands it.

    Attributes:
      cell: The cell.
      method: Its method.
      words: Its flags of the training.
      data_words: Those of them that the evaluation needs too.
      args: The flags, parsed.
    """

    cell: Cell
    method: str
    words: tuple[str, ...]
    data_words: tuple[str, ...]
    args: Train[Any]

    @property
    def folder(self) -> str:
        """The name of the folder of its runs."""
        means = {field.name: getattr(self.args, field.name)
                 for field in dataclasses.fields(self.args) if field.name not in SPEED}
        return f"{self.method}-{self.args.preset}-{digest({'method': self.method, **means})[:12]}"

    def planned(self) -> Any:
        """Return the configuration with noise and steps, for the data that the preset is for."""
        preset, args = presets.get(self.method, self.args.preset)[1], self.args
        return complete(self.method, with_records(args.config, preset.records), preset.spec,
                        Budget(args.epsilon, args.delta, args.class_epsilon))


def job(sweep: Sweep, cell: Cell) -> Job:
    """Parse a cell as the training parses its flags.

    Args:
      sweep: The sweep.
      cell: One of its cells.

    Returns:
      The job; what only the sweep's method has is left out where the cell is of another.

    Raises:
      UserError: There is no such method, preset or field, or no such value of it.
    """
    settings = {**sweep.settings, **cell.settings}
    method = settings.pop("method", sweep.method)
    foreign = _fields(sweep.method) - _fields(method)
    settings = {field: text for field, text in settings.items()
                if field.partition(".")[0] not in foreign}
    words = flags(settings)
    shared = flags({field: settings[field] for field in settings if field in DATA_FIELDS})
    try:
        return Job(cell, method, tuple(words), tuple(shared), train.parse(method, words))
    except UserError as error:
        raise UserError(f"cell {cell.label or method!r}: {error}") from error


def _fields(method: str) -> set[str]:
    return {field.name for field in dataclasses.fields(methods.get(method).Config)}


def flags(settings: Mapping[str, str]) -> list[str]:
    """Return settings as flags of a command.

    Args:
      settings: {field: value}, such as {"generator.latent": "10", "renewed": "false"}.

    Returns:
      The words, such as "--generator.latent=10" and "--no-renewed".
    """
    words: list[str] = []
    for field, text in settings.items():
        path, _, last = field.replace("_", "-").rpartition(".")
        start = f"--{path}." if path else "--"
        parts = text.split()
        if text.lower() in ("true", "false"):
            words.append(f"{start}{'no-' if text.lower() == 'false' else ''}{last}")
        elif len(parts) > 1:
            words += [start + last, *parts]
        else:
            words.append(f"{start}{last}={text}")
    return words


def refusal(one: Job) -> str:
    """Return why the budget does not allow a cell; empty where the preset's data would."""
    try:
        one.planned()
    except BudgetExceeded as error:
        return str(error)
    return ""
