"""A table as it is read before all of its columns are declared: names, cells, and a digest."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Collection, Iterator
from typing import Any

from dpgen_jax.core.files import Json, content_of
from dpgen_jax.core.types import TableSpec, UserError
from dpgen_jax.data.base import Dataset, locate
from dpgen_jax.data.table import frames, parsing, patterns, subjects, tables
from dpgen_jax.data.table import schema as schemas
from dpgen_jax.data.table.parsing import Cells, coded, each_once
from dpgen_jax.data.table.schema import (
    DEFAULT_DIALECT,
    Dialect,
    declared_dialect,
    dialect_of_header,
)

FRAME = "frame"
"""The kind and the name of a frame; the other kinds are those of files, as `data.SOURCES` has them.
"""


@dataclasses.dataclass(frozen=True)
class Table:
    """A CSV file, a Parquet file, or a pandas frame.

    Attributes:
        kind: csv, parquet or `FRAME`.
        place: The path of the file, or the frame.
    """

    kind: str
    place: Any

    @property
    def name(self) -> str:
        """Its name, of which a data set and a run folder are called."""
        return FRAME if self.kind == FRAME else self.place.name.partition(".")[0]

    def __str__(self) -> str:
        return "the frame" if self.kind == FRAME else str(self.place)

    @functools.cached_property
    def content(self) -> str:
        """A digest of what it holds, for the journal; as private as the rows."""
        return (frames.content_of_frame(self.place) if self.kind == FRAME else
                content_of(self.place))

    def dialect(self) -> Dialect:
        """Returns how it is written, by its header alone."""
        return dialect_of_header(self.place) if self.kind == "csv" else DEFAULT_DIALECT

    def header(self, dialect: Dialect) -> list[str]:
        """Returns the names of its columns, which are public; no row is read for them.

        Raises:
            UserError: A name is missing or there twice.
        """
        if self.kind == "csv":
            return parsing.csv_header(self.place, dialect)
        names = (frames.parquet_names(self.place) if self.kind == "parquet" else
                 frames.names_of_frame(self.place))
        return each_once(str(self), names)

    def written_out(self, document: Json, apart: Collection[str | None] = ()) -> Json:
        """Returns a schema's document in which each column of this table stands by itself.

        Args:
            document: The document, of texts.
            apart: Names that its `default` does not declare.

        Raises:
            UserError: A pattern fits no column, or two fit the same one.
        """
        if not patterns.has_patterns(document):
            return document
        dialect = declared_dialect(document["file"]) if "file" in document else self.dialect()
        return patterns.expanded(document, self.header(dialect), apart)

    def cells(self, dialect: Dialect, declared: TableSpec | None = None) -> Cells:
        """Reads all of its cells, each by itself.

        Args:
            dialect: How it is written.
            declared: The columns of typed values that are declared, by whose formats these become
                texts.

        Raises:
            UserError: It cannot be read, or has no rows.
        """
        if self.kind == "csv":
            cells = parsing.read_csv(self.place, dialect=dialect)
        elif self.kind == "parquet":
            cells = frames.read_parquet(self.place, declared, is_draft=False)
        else:
            cells = frames.cells_of_frame(FRAME, self.place, declared)
        if not cells.rows:
            raise UserError(f"{self}: no rows; at least 1 is needed")
        return cells

    def beside(self, path_text: str) -> Table:
        """Returns another file, as that of a held-out part, which is read as this one is."""
        return dataclasses.replace(self, place=locate(path_text))

    def encoded(self, cells: Cells, test: Cells | None, schema: schemas.Schema | str,
                unit: tuple[str, int] | None) -> Dataset:
        """Returns the data set of cells that were read, by the schema of all columns.

        Args:
            cells: The cells.
            test: Those of the held-out part, or None.
            schema: The schema; with a unit the path of its file.
            unit: The column of the subjects, and the most rows of one that are kept; or None.

        Raises:
            UserError: As `tables.csv`.
        """
        name = FRAME if self.kind == FRAME else re.sub(
            r"(\.csv|\.parquet)?(\.gz)?$", "", self.place.name)
        if unit is not None:
            return subjects.table(name, str(schema), self._blocks(cells),
                                  None if test is None else self._blocks(test), *unit)
        made = schemas.of(schema)
        train, held_out = ((coded(made, block) for block in self._blocks(part)) if part else None
                           for part in (cells, test))
        assert train is not None
        return tables.table(made.name or name, made, train, held_out)

    def _blocks(self, cells: Cells) -> Iterator[Cells]:
        """The cells, of a file some rows at a time: then its encoded rows may lie on the disk."""
        return iter((cells,)) if self.kind == FRAME else parsing.blocks(cells)


def of_file(kind: str, path_text: str) -> Table:
    """Returns the table of a file.

    Raises:
        UserError: There is no such file.
    """
    return Table(kind, locate(path_text))
