"""The request for a training as the user states it: by flags, a call, or a run folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpgen_jax.core import files
from dpgen_jax.core.config import DataOptions, from_json, to_json
from dpgen_jax.core.errors import UserError
from dpgen_jax.core.files import Json

VERSION = 1
"""The version of the JSON form."""
PARTS = ("settings", "data", "monitor", "runtime")
"""The fields whose values are objects."""
LOCAL = ("out", "resume")
"""The fields that belong to one start and not to the run."""
PATHS = ("schema", "test_csv", "class_names")
"""The fields of `data` that may be the path of a file."""


@dataclasses.dataclass(frozen=True)
class Request:
    """Everything that was stated about a training.

    A field that is None, or missing from an object, was not stated: `run.resolve` fills it in from
    public facts about the data. Objects contain plain JSON values, by the names of fields.

    Attributes:
        method: The name of a method.
        preset: The name of one of its presets.
        epsilon: The epsilon of the budget.
        delta: The delta of the budget.
        class_epsilon: The part of epsilon for noisy class counts.
        settings: Fields of the method's `Config`, and objects for its parts.
        source: The data: KIND, KIND:PLACE, or a path; None if they were given in Python.
        data: Fields of `DataOptions`; a schema may be the document itself.
        schema_share: The part of epsilon and delta for estimating undeclared columns of a table.
        accept_uncovered: Whether public fields that were read from private records may be released.
        clients: The number of simulated clients.
        alpha: How much they differ (Dirichlet).
        seed: Makes a run repeatable, without a privacy claim.
        total_epsilon: The largest epsilon of all runs on these records together.
        release_to: The address to which the release is copied.
        made_by: The person or organisation that the statement names as its maker.
        monitor: Fields of `MonitorOptions`.
        runtime: Fields of `Runtime`.
        resume: Whether to continue the run in `out`.
    """

    method: str | None = None
    preset: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    class_epsilon: float | None = None
    settings: Json = dataclasses.field(default_factory=dict)
    source: str | None = None
    data: Json = dataclasses.field(default_factory=dict)
    schema_share: float | None = None
    accept_uncovered: bool | None = None
    clients: int | None = None
    alpha: float | None = None
    seed: int | None = None
    total_epsilon: float | None = None
    release_to: str | None = None
    made_by: str | None = None
    monitor: Json = dataclasses.field(default_factory=dict)
    runtime: Json = dataclasses.field(default_factory=dict)
    out: Path | None = None
    resume: bool = False

    def changed(self, **stated: Any) -> Request:
        """Returns the request with newly stated fields in place of earlier ones.

        Args:
            **stated: Fields; for an object, only its stated fields.
        """
        fields: Json = {name: _over(getattr(self, name), value) if name in PARTS else value
                        for name, value in stated.items()}
        return dataclasses.replace(self, **fields)

    def options(self) -> DataOptions:
        """Returns how the data are read; a schema that is not a file is left out."""
        stated = {name: value for name, value in self.data.items() if not isinstance(value, dict)}
        options: DataOptions = from_json(DataOptions, stated, "data")
        return options

    def to_json(self) -> Json:
        """Returns the request for a run folder, with full paths for existing files."""
        data = {name: _in_full(value) if name in PATHS and isinstance(value, str) else value
                for name, value in self.data.items()}
        kind, colon, place = (self.source or "").partition(":")
        kept = to_json(dataclasses.replace(
            self, data=data, source=self.source and f"{kind}{colon}{_in_full(place)}"))
        return {"version": VERSION} | {name: value for name, value in kept.items()
                                       if name not in LOCAL and value is not None and value != {}}

    @classmethod
    def from_json(cls, value: Any, name: str) -> Request:
        """Returns the request from a run folder.

        Args:
            value: From `to_json`.
            name: Its name in errors.

        Raises:
            UserError: It is damaged, or from a later version.
        """
        version = value.get("version") if isinstance(value, Mapping) else None
        if version != VERSION:
            raise UserError(f"{name} is of version {version!r}, and this version of dpgen_jax "
                            f"reads {VERSION}; use the version that wrote it")
        request: Request = from_json(
            cls, {key: part for key, part in value.items() if key != "version"}, name)
        return request


def _over(before: Json, now: Json) -> Json:
    """An object with its fields replaced by those of another."""
    return before | {name: _over(before[name], value) if isinstance(value, dict) and isinstance(
        before.get(name), dict) else value for name, value in now.items()}


def _in_full(place: str) -> str:
    """The full path of an existing file or folder; any other text unchanged."""
    if place and not Path(place).is_absolute() and files.exists(place):
        return str(Path(place).resolve())
    return place
