"""The JSON files of a release, as far as they are read again: their types, and checks.

A type states which fields a reader may rely on; other fields may have any JSON value.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Required, TypedDict

from dpgen_jax import methods
from dpgen_jax.core.config import from_json, to_json
from dpgen_jax.core.errors import option
from dpgen_jax.core.files import Json
from dpgen_jax.core.run_folder import read_json
from dpgen_jax.core.types import Column, ImageSpec, Spec, TableSpec, UserError
from dpgen_jax.data.table import columns, constraints, rules

MAX_SIDE, MAX_CLASSES = 2**14, 100_000
"""The largest side and number of classes of the images that a release may claim to make."""


class Event(TypedDict, total=False):
    """An event in a statement; its other fields describe the noise."""

    mechanism: str
    count: int
    sigma: float | None
    sensitivity: float | None


class Claim(TypedDict, total=False):
    """A further epsilon, and where it comes from."""

    epsilon: float
    steps: int
    formula: str
    kind: str


class Statement(TypedDict, total=False):
    """privacy.json."""

    epsilon: Required[float]
    delta: Required[float]
    relation: Required[str]
    unit: Required[str]
    unit_column: str
    rows_per_unit: int
    noise_source: Required[str]
    guarantee: str | None
    budget_epsilon: float | None
    not_covered: list[str]
    simulated_clients: int | None
    accountant: str
    events: list[Event]
    steps: int
    kept_step: int
    texts: int
    made_by: str
    started_on: str
    method: str
    preset: str | None
    records: int | None
    clients: int | None
    subjects: int | None
    not_accounted: list[str]
    data_notes: list[str]
    data_dependent_epsilon: Claim | None
    as_published: Claim | None


class Described(TypedDict, total=False):
    """config.json of a run or a release. A release also says what its file of arrays is."""

    method: Required[str]
    config: Required[Json]
    spec: Required[Json]
    dataset: str
    generator_sha256: str
    class_counts: list[int] | None
    seed: int | None
    data_options: Json
    not_covered: list[str]
    simulated: str


def statement(value: Json, name: str = "the privacy statement") -> Json:
    """Checks the content of privacy.json, and returns it.

    Raises:
        UserError: Unless it is a `Statement` whose epsilon is 0 or above, perhaps "inf", and whose
            delta is a probability.
    """
    read = checked(Statement, value, name, "take privacy.json as training wrote it")
    if not (read["epsilon"] >= 0 and 0 <= read["delta"] <= 1):
        raise UserError(f"{name}: epsilon is {read['epsilon']:g} and delta {read['delta']:g}; use "
                        "privacy.json as training wrote it")
    return value


def located(root: Path) -> Path:
    """Returns the release folder that a path names, which may be that of a run.

    Raises:
        UserError: Where it is neither, or a run without a release.
    """
    if (root / "release").is_dir():
        root = root / "release"
    if (root / "ledger.jsonl").is_file():
        raise UserError(f"the run in {root} has no release yet; finish it with train "
                        f"{option('resume', root)}")
    if not (root / "config.json").is_file():
        within = sorted(str(path.parent) for path in root.glob("*/ledger.jsonl"))
        hint = f"; there are runs in it: {', '.join(within[:3])}" if within else ""
        raise UserError(f"{root} is neither a run nor a release: it has no release/config.json or "
                        f"config.json{hint}")
    return root


def refuse_shared(place: Path, holds: str) -> None:
    """Refuses to write what is made of real records where others get it.

    Args:
        place: A file or folder, which need not exist.
        holds: What is written, and what that holds, for the message.

    Raises:
        UserError: It lies in a release, or in an exported one.
    """
    if any((path / "privacy.json").exists() for path in (place, *place.resolve().parents)):
        raise UserError(f"{option('out', place)} is in a release, which is shared, and {holds}; "
                        "name another place")


def described(path: Path) -> Json:
    """Reads config.json, whose spec is checked by `spec`.

    Raises:
        UserError: It is missing or damaged.
    """
    config = read_json(path)
    checked(Described, config, path, "it does not describe a run or a release")
    spec(config["spec"], str(path))
    return methods.as_named_now(config)


def spec(value: Json, name: str = "the schema") -> Spec:
    """The schema of records.

    Raises:
        UserError: For one that no data can have.
    """
    made = checked(TableSpec if "columns" in value else ImageSpec, value, name,
                    "use its spec as training wrote it")
    if isinstance(made, ImageSpec):
        sides = 1 <= min(made.height, made.width) <= max(made.height, made.width) <= MAX_SIDE
        sound = sides and made.channels in (1, 3) and 1 <= made.classes <= MAX_CLASSES
    else:
        columns = made.all_columns
        classes = not made.labelled or (len(made.label.categories) > 1 and not made.label.nullable)
        sound = (bool(made.columns) and classes
                 and 0 <= made.label_position <= len(made.columns) and all(map(_sound, columns))
                 and len({column.name for column in columns}) == len(columns)
                 and _sound_rules(made))
    if not sound:
        raise UserError(f"{name} is damaged: no records have such a spec")
    return made


def _sound_rules(made: TableSpec) -> bool:
    try:
        if made.derived and made.derived != constraints.determined_names(made):
            return False
        if made.gaps and made.gaps != constraints.determined_gaps(made):
            return False
        rules.read_rules(made)
        for identifier in made.identifiers:
            columns.type_of_identifier(identifier.name, identifier.pattern, identifier.dtype)
    except UserError:
        return False
    places = [identifier.position for identifier in made.identifiers]
    return places == sorted(set(places)) and all(
        0 <= place <= len(made.columns) + len(places) for place in places)


def _sound(column: Column) -> bool:
    if to_json(column).keys() - to_json(Column(column.name, column.kind)).keys():
        return columns.is_declarable(column)
    if column.kind in ("categorical", "ordinal"):
        return bool(column.categories) and len(set(column.categories)) == len(column.categories)
    return not column.categories and 0 <= column.high - column.low < math.inf


def checked(kind: object, value: Json, name: object, mend: str) -> Any:
    """Returns the content of a file as its type says, such as `Statement`.

    Raises:
        UserError: It is damaged; the error calls it by `name`, and says how to mend it.
    """
    try:
        return from_json(kind, value)
    except UserError as error:
        raise UserError(f"{name} is damaged: {error}; {mend}") from error
