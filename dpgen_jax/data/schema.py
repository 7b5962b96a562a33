"""Schemas of tables: YAML files of columns with their kinds, bounds and categories.

    label: Class
    columns:
      Amount: {kind: continuous, min: 0, max: 2000}
      Class: {kind: categorical, categories: ["0", "1"]}

`name: NAME` is what reports call the data. Without `label` rows have no classes. `targets: [PAY]`
names the columns that an evaluation predicts beside the label, numbers among them.

Nothing in it may come from private records unless it says so: `read_from_data` lists the entries
that do, and `bought` those that were bought under differential privacy.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from dpgen_jax.core.errors import nearest
from dpgen_jax.core.types import NO_LABEL, Column, TableSpec, UserError
from dpgen_jax.data import yaml_text
from dpgen_jax.data.base import Uncovered
from dpgen_jax.data.schema_label import label_position, targets

PACKAGED = Path(__file__).parent / "schemas"
NAMES = tuple(sorted(path.stem for path in PACKAGED.glob("*.yaml")))
TOP = ("name", "label", "targets", "columns", "read_from_data", "bought")
NUMBER, CATEGORY = ("min", "max"), ("categories",)
Kind = Literal["continuous", "integer", "categorical", "ordinal"]
KINDS: dict[Kind, tuple[str, ...]] = {"continuous": NUMBER, "integer": NUMBER,
                                      "categorical": CATEGORY, "ordinal": CATEGORY}
ENTRIES = ("kind", "nullable", "min", "max", "categories", "other")
MAX_RANGE = 2**23  # whole numbers that a float32 in [0, 1] keeps apart
PRIVATE = "private"  # in place of an entry: to be bought
NULLS = frozenset({"", "NA", "NaN", "nan", "null", "NULL", "?"})
TRUTH = {"true": True, "yes": True, "false": False, "no": False}
TERMS = {"min": "bounds", "max": "bounds", "nullable": "nullability"}
BUYABLE = ("bounds", "categories")
DECLARE = "in the schema, by what is known without the data, and remove it from read_from_data"
BUY = (", or write `private` in its place and buy it with `python -m dpgen_jax.schema` and "
       "--schema-epsilon")


@dataclasses.dataclass(frozen=True)
class Schema:
    """A checked schema.

    Attributes:
        spec: The columns and the label.
        others: The category that takes all undeclared texts, by column, where one is declared.
        notes: Lines on the entries that were bought under differential privacy; published.
        bought: The purchases made for it, as rows of `accountant.events.to_json`.
        uncovered: The entries that were read from private records (its `read_from_data`).
        name: The name of the data set; "" where none is declared.
    """

    spec: TableSpec
    others: Mapping[str, str] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    bought: tuple[dict[str, Any], ...] = ()
    uncovered: tuple[Uncovered, ...] = ()
    name: str = ""


def read(source: str) -> Schema:
    """Reads a schema.

    The order of its columns is the order of the table, whatever the order in a CSV file. All
    values are read as text: a category `1` is the text 1, and `yes` stays yes.

    Args:
        source: The path of a file, or the name of a packaged schema (`NAMES`) where there is no
            such file.

    Returns:
        The schema, checked.

    Raises:
        UserError: Naming the column and the mend.
    """
    if source in NAMES and not Path(source).is_file():
        return packaged(source)
    return parse(yaml_text.document(source), source)


def packaged(name: str) -> Schema:
    """Reads the schema of a public data set.

    Args:
        name: One of `NAMES`.
    """
    return parse(yaml_text.document(str(PACKAGED / f"{name}.yaml")), name)


def parse(document: Any, name: str) -> Schema:
    """Checks a document of texts, as `yaml_text.document` reads it.

    Args:
        document: The document.
        name: Its name, for errors.

    Returns:
        The schema.

    Raises:
        UserError: As `read`.
    """
    try:
        return _parse(document)
    except UserError as error:
        raise UserError(f"{name}: {error}") from error


def _parse(document: Any) -> Schema:
    """Checks a document; errors name the column alone."""
    if not isinstance(document, dict) or not isinstance(document.get("columns"), dict):
        raise UserError("a schema has `columns:`, with one entry a column, and `label: NAME` where "
                        "rows have classes")
    for key in document:
        if key not in TOP:
            raise UserError(f"unknown key {key!r}{nearest(key, TOP)}; known: {', '.join(TOP)}")
    columns = [_column(name, entries) for name, entries in document["columns"].items()]
    names = [column.name for column in columns]
    if "" in names:
        raise UserError("a column has no name; name it as the file does")
    position = label_position(document["label"], columns) if "label" in document else len(columns)
    label = columns[position] if "label" in document else NO_LABEL
    features = tuple(c for i, c in enumerate(columns) if i != position)
    if not features:
        raise UserError("the label is the only column; declare the others too" if names else
                        "there are no columns; declare 1 at least")
    others = {name: entries["other"] for name, entries in document["columns"].items()
              if "other" in entries}
    if label.name in others:
        raise UserError(f"column {label.name}: a label takes no `other`; declare every class")
    read_entries, rows = document.get("read_from_data", []), _bought(document.get("bought", []))
    if not isinstance(read_entries, list):
        raise UserError("read_from_data is no list; write [COLUMN.min, COLUMN.max, ...]")
    uncovered = [Uncovered(f"{sort} of {columns} read from private data",
                           DECLARE + BUY * (sort in BUYABLE))
                 for sort, columns in _grouped(read_entries, names)]
    notes = [f"bought under differential privacy on the same records: {sort} of {columns}"
             for sort, columns in _grouped([row.pop("entry", "") for row in rows], names)]
    if label == NO_LABEL:
        notes.append("no label is declared: all rows are of one class")
    spec = TableSpec(features, label, position, targets(document.get("targets", []), names))
    return Schema(spec, others, tuple(notes), tuple(rows), tuple(uncovered),
                  str(document.get("name", "")))


def _column(name: str, entries: Any) -> Column:
    """Checks the entries of a column."""
    if not isinstance(entries, dict):
        raise UserError(f"column {name}: give its entries, as in {{kind: integer, min: 0, max: 9}}")
    kind = str(entries.get("kind", ""))
    if kind not in KINDS:
        problem = f"unknown kind {kind!r}{nearest(kind, KINDS)}" if kind else "kind is missing"
        raise UserError(f"column {name}: {problem}; known: {', '.join(KINDS)}")
    _check_keys(name, kind, entries)
    nullable = TRUTH.get(str(entries.get("nullable", "false")).lower())
    if nullable is None:
        raise UserError(f"column {name}: nullable is {entries['nullable']!r}; write true or false")
    if KINDS[kind] is NUMBER:
        return Column(name, kind, *_bounds(name, kind, entries), nullable=nullable)
    return Column(name, kind, categories=_categories(name, entries, nullable), nullable=nullable)


def _check_keys(name: str, kind: Kind, entries: dict[str, Any]) -> None:
    """Checks that a column has the keys of its kind and no other."""
    allowed = ("kind", "nullable", *KINDS[kind], *(["other"] if kind == "categorical" else []))
    for key, value in entries.items():
        if key not in ENTRIES:
            raise UserError(f"column {name}: unknown key {key!r}{nearest(key, allowed)}; known: "
                            f"{', '.join(allowed)}")
        if key not in allowed:
            raise UserError(f"column {name}: {key} does not belong to a column of kind {kind}; "
                            "remove it or change the kind")
        if value == PRIVATE and key in (*NUMBER, *CATEGORY):
            raise UserError(f"column {name}: {key} is still `private`; declare it, or buy it with "
                            "`python -m dpgen_jax.schema DATA --schema DRAFT --schema-epsilon E "
                            "--out NEW`")
    for key in KINDS[kind]:
        if key not in entries:
            raise UserError(f"column {name}: {key} is missing; declare it from public knowledge")


def distinguishable(low: float, high: float) -> bool:
    """Returns whether the integers low..high survive their encoding as float32 in [0, 1].

    Args:
        low: The lowest of them.
        high: The highest of them.
    """
    return high - low <= MAX_RANGE and max(-low, high) <= 2**53


def number(text: Any) -> float | None:
    """Returns the finite number that a text is, else None.

    Args:
        text: A text; anything else is no number.
    """
    with contextlib.suppress(ValueError):
        if isinstance(text, str) and "_" not in text and math.isfinite(value := float(text)):
            return value
    return None


def _bounds(name: str, kind: str, entries: dict[str, Any]) -> tuple[float, float]:
    """Returns the bounds of a column of numbers."""
    values = []
    for key in NUMBER:
        value = number(entries[key])
        if value is None:
            raise UserError(f"column {name}: {key} is {entries[key]!r}; give a finite number")
        if kind == "integer" and not value.is_integer():
            raise UserError(f"column {name}: {key} is {entries[key]}; an integer column has whole "
                            "bounds, or declare it continuous")
        values.append(value)
    low, high = values
    if low > high:
        raise UserError(f"column {name}: min {entries['min']} is above max {entries['max']}; "
                        "swap them")
    if kind == "integer" and not distinguishable(low, high):
        raise UserError(f"column {name}: the integers {entries['min']}..{entries['max']} exceed "
                        f"the {MAX_RANGE} that are told apart; declare it continuous, or narrow it")
    if not math.isfinite(high - low):
        raise UserError(f"column {name}: the range from {entries['min']} to {entries['max']} is "
                        "too large; narrow it")
    return low, high


def _categories(name: str, entries: dict[str, Any], nullable: bool) -> tuple[str, ...]:
    """Returns the categories of a column."""
    texts = entries["categories"]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UserError(f'column {name}: categories is no list of texts; write ["a", "b"]')
    categories = tuple(texts)
    if not categories:
        raise UserError(f"column {name}: no categories; declare at least 1")
    earlier: set[str] = set()
    for text in categories:
        if not text or (nullable and text in NULLS):
            raise UserError(f"column {name}: the category {text!r} means null; remove it" + (
                "" if nullable else " and declare nullable: true"))
        if text in earlier:
            raise UserError(f"column {name}: category {text!r} is given twice; remove one")
        earlier.add(text)
    if "other" in entries and entries["other"] not in categories:
        raise UserError(f"column {name}: other is {entries['other']!r}; name one of its categories")
    return categories


def _grouped(entries: list[Any], names: list[str]) -> list[tuple[str, str]]:
    """Returns ('bounds', 'V1, V2'), ('categories', 'Class'): a pair for each sort of entry."""
    sorts: dict[str, dict[str, None]] = {}
    columns = set(names)
    for entry in map(str, entries):
        column, _, what = entry.rpartition(".")
        if column not in columns or what not in (*ENTRIES, *TERMS.values()):
            raise UserError(f"{entry!r} names no entry; write {names[0]}.min, or another column "
                            "and entry, or remove it")
        sorts.setdefault(TERMS.get(what, what), {})[column] = None
    return [(sort, ", ".join(members)) for sort, members in sorts.items()]


def _bought(rows: Any) -> list[dict[str, Any]]:
    """Returns the purchases: rows of `entry` and the fields of its event, numbers as numbers."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError("bought is no list of purchases; leave this block as it was written")
    return [{key: _plain(value) for key, value in row.items()} for row in rows]


def _plain(text: Any) -> Any:
    """Returns the number that a text is, whole if it is written so; else the text."""
    value = None if isinstance(text, (list, dict)) else number(str(text))
    if value is None:
        return text
    return int(text) if str(text).lstrip("+-").isdigit() else value
