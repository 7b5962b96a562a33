"""A schema that nobody declared, bought under differential privacy: kinds, nulls, bounds, names.

The header of the table is public. All counts come from one `Survey`, and all that follows is
computed from its noisy counts: once it is charged, no message and no error depends on a record.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from dpgen_jax.accountant.events import Events, to_json
from dpgen_jax.aggregation.bits import BitSource
from dpgen_jax.aggregation.survey import KINDS, NAMES, Survey
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import Private
from dpgen_jax.data import readings
from dpgen_jax.data.draft_columns import MAX_CATEGORIES, ordered
from dpgen_jax.data.parsing import Cells
from dpgen_jax.data.readings import READINGS, Reading
from dpgen_jax.data.schema_columns import NULLS
from dpgen_jax.data.schema_label import MAX_CLASSES
from dpgen_jax.run import table_columns
from dpgen_jax.run.schema_purchase import LEAST_CLASSES, OTHER
from dpgen_jax.run.side_releases import without_name
from dpgen_jax.run.table_price import CLEAR

NULLABLE = 2.0
"""Likewise, of nulls: a flag too many does less harm than one too few."""
COVERED = 0.5
"""The share of the rows of a label that its classes must have, if its values are numbers."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The columns whose entries are to be bought.

    Attributes:
        columns: The names of the columns that are not declared.
        label: The name of the label; None: rows without classes.
        declared: The document of a schema that declares the other columns.
    """

    columns: tuple[str, ...]
    label: str | None
    declared: Json

    @property
    def queries(self) -> int:
        """The queries of values: one a column, and one more of a label, which may be a number."""
        return len(self.columns) + (self.label in self.columns)


@dataclasses.dataclass(frozen=True)
class Typed:
    """A column after the first answer.

    Attributes:
        name: Its name.
        reading: How its cells are read.
        present: The noisy number of cells that are read so.
        nullable: Whether it is taken to hold nulls, or cells of another kind.
    """

    name: str
    reading: Reading
    present: float
    nullable: bool


def buy(cells: Cells, wanted: Wanted, survey: Survey, spent: Events, bits: BitSource) -> Json:
    """Buys the entries of a schema.

    Args:
        cells: The table.
        wanted: What is to be bought.
        survey: The queries, which are charged already.
        spent: All purchases that the ledger charges; those of a draw that was lost are among them.
        bits: The source of the noise.

    Returns:
        The document of the schema. Its label is a column as any other, and rows have no label,
        where that is a number with many values, or where fewer than two classes came out.

    Guarantee:
        That of `Survey`: a cell decides its reading and its bin by itself, and all else here
        follows from released counts.
    """
    codes = np.stack([readings.codes(cells.columns[name]) for name in wanted.columns], 1)
    counts = survey.kind_counts(Private(codes), len(READINGS), bits)
    typed = [_typed(name, row, survey.kinds.sigma)
             for name, row in zip(wanted.columns, counts, strict=True)]
    numbers = {column.name: table_columns.bins(column.reading, cells.columns[column.name])
               for column in typed if table_columns.has_bins(column.reading)}
    texts = {column.name: Private([None if text in NULLS else text
                                   for text in cells.columns[column.name]])
             for column in typed if column.reading == readings.TEXT or column.name == wanted.label}
    binned, names = survey.value_counts(numbers, texts, bits)
    made = {}
    label, document = wanted.label, dict(wanted.declared)
    for column in typed:
        if column.name == label and _is_number(column, names[label]):
            document["targets"] = list(dict.fromkeys([*document.get("targets", []), label]))
            label = None
        elif column.name == label and len(names[label]) < LEAST_CLASSES:
            label = None
        made[column.name] = _entries(column, label, binned, names, survey)
    document["columns"] = {name: made.get(name, wanted.declared.get("columns", {}).get(name))
                           for name in cells.columns}
    document.pop("label", None)
    if label is not None:
        document = {"label": label} | document
    if cells.dialect.entries:
        document = {"file": cells.dialect.entries} | document
    return document | {"bought": [
        *document.get("bought", []), *_rows(made, spent, len(cells.rows))]}


def _is_number(label: Typed, classes: dict[str, int]) -> bool:
    """Whether a label is a number with many values, by the noisy counts of its classes."""
    return label.reading in readings.NUMBERS and (
        len(classes) > MAX_CATEGORIES or sum(classes.values()) < COVERED * label.present)


def _typed(name: str, counts: np.ndarray, sigma: float) -> Typed:
    """The reading of a column, from the noisy counts of its readings."""
    reading, present, others = readings.chosen(counts, CLEAR * sigma)
    odd, noise = counts[0] + others, sigma
    if reading is not readings.TEXT:
        odd, noise = odd + counts[-1], math.sqrt(2) * sigma
    return Typed(name, reading, present, bool(odd >= NULLABLE * noise))


def _entries(column: Typed, label: str | None, binned: dict[str, np.ndarray],
             names: dict[str, dict[str, int]], survey: Survey) -> Json:
    """The entries of a column."""
    if column.name == label:
        counts = names[column.name]
        classes = ordered(sorted(counts, key=lambda text: -counts[text])[:MAX_CLASSES])
        return {"kind": "categorical", "categories": classes, "odd": "null"}
    nullable = {"nullable": "true" if column.nullable else "false"}
    if not table_columns.has_bins(column.reading) and column.reading is not readings.TEXT:
        made = dict(column.reading.entries)  # booleans and times need no query
        return made | nullable | {"odd": _odd(column, made, 0.0)}
    bounds = table_columns.bounded(column.reading, binned[column.name], survey.values.sigma,
                                   column.present) if column.name in binned else None
    if bounds is not None:
        entries, middle = bounds
        return entries | nullable | {"odd": _odd(column, entries, middle)}
    # Texts; or numbers none of which is in enough rows, so that the column cannot be learned.
    read = column.reading is readings.TEXT
    found = ordered(text for text in names.get(column.name, ()) if read and text != OTHER)
    return {"kind": "categorical", "categories": [*found, OTHER], "other": OTHER, **nullable,
            "odd": "null" if column.nullable else OTHER}


def _odd(column: Typed, entries: Json, code: float) -> str:
    """The text by which cells without a value are read."""
    return "null" if column.nullable else table_columns.typical(entries, code)


def _rows(made: dict[str, Json], spent: Events, records: int) -> list[Json]:
    """The purchases, as a schema lists them: each with its entries and its number of records."""
    kinds = [f"{name}.{entry}" for name, entries in made.items() for entry in ("kind", "nullable")
             if entry in entries]
    names = [f"{name}.categories" for name, entries in made.items() if "categories" in entries]
    values = [*(f"{name}.bounds" for name, entries in made.items() if "min" in entries), *names]
    of = {KINDS: kinds, NAMES: names}
    return [{"entry": of.get(without_name(event), values) or kinds, "records": records, **row}
            for event, count in spent for row in to_json(((event, count),))]
