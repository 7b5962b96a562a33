"""The request of a training as a user states it: by flags, by a call, or in a run folder."""

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
"""The fields that hold objects."""
LOCAL = ("out", "resume")
"""The fields that belong to one start, and not to the run."""
PATHS = ("schema", "test_csv", "class_names")
"""The fields of `data` that may be the path of a file."""


@dataclasses.dataclass(frozen=True)
class Request:
    """All that was stated of a training.

    A field that is None, or is missing from an object, was not stated: `run.resolve` fills it in by
    public facts of the data. Objects hold plain JSON values, by the names of fields.

    Attributes:
        method: The name of a method.
        preset: The name of a preset of it.
        epsilon: The promise.
        delta: Of the same promise.
        class_epsilon: Of epsilon, for noisy class counts.
        settings: Fields of the method's `Config`, and objects for its parts.
        source: The data: KIND, KIND:PLACE, or a path; None where they were given in Python.
        data: Fields of `DataOptions`; a schema may be the document itself.
        schema_share: The part of epsilon and delta that buys what nobody declared of a table.
        accept_uncovered: Whether public fields that were read from private records are released.
        clients: The number of simulated clients.
        alpha: How much they differ.
        seed: Repeats a run, without a privacy claim.
        total_epsilon: The epsilon that all runs on these records may not exceed together.
        release_to: The address that the release is copied to.
        monitor: Fields of `MonitorOptions`.
        runtime: Fields of `Runtime`.
        resume: Whether to go on with the run in `out`.
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
    monitor: Json = dataclasses.field(default_factory=dict)
    runtime: Json = dataclasses.field(default_factory=dict)
    out: Path | None = None
    resume: bool = False

    def changed(self, **stated: Any) -> Request:
        """Returns the request with what is stated now in place of what was.

        Args:
            **stated: Fields; of an object those of its fields that are stated.
        """
        fields: Json = {name: _over(getattr(self, name), value) if name in PARTS else value
                        for name, value in stated.items()}
        return dataclasses.replace(self, **fields)

    def options(self) -> DataOptions:
        """Returns how the data are read; a schema that is no file is left out."""
        stated = {name: value for name, value in self.data.items() if not isinstance(value, dict)}
        options: DataOptions = from_json(DataOptions, stated, "data")
        return options

    def to_json(self) -> Json:
        """Returns the request as a run folder keeps it, with paths of what exists here in full."""
        data = {name: _in_full(value) if name in PATHS and isinstance(value, str) else value
                for name, value in self.data.items()}
        kind, colon, place = (self.source or "").partition(":")
        kept = to_json(dataclasses.replace(
            self, data=data, source=self.source and f"{kind}{colon}{_in_full(place)}"))
        return {"version": VERSION} | {name: value for name, value in kept.items()
                                       if name not in LOCAL and value is not None and value != {}}

    @classmethod
    def from_json(cls, value: Any, name: str) -> Request:
        """Returns the request that a run folder keeps.

        Args:
            value: As `to_json` returned it.
            name: What an error calls it.

        Raises:
            UserError: It is damaged, or of a later version.
        """
        version = value.get("version") if isinstance(value, Mapping) else None
        if version != VERSION:
            raise UserError(f"{name} is of version {version!r}, and this version of dpgen_jax "
                            f"reads {VERSION}; go on with the version that wrote it")
        request: Request = from_json(
            cls, {key: part for key, part in value.items() if key != "version"}, name)
        return request


def _over(before: Json, now: Json) -> Json:
    """An object with the fields of another in place of its own."""
    return before | {name: _over(before[name], value) if isinstance(value, dict) and isinstance(
        before.get(name), dict) else value for name, value in now.items()}


def _in_full(place: str) -> str:
    """The full path of what exists here; any other text as it is."""
    if place and not Path(place).is_absolute() and files.exists(place):
        return str(Path(place).resolve())
    return place
