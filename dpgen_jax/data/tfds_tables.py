"""Tables of tensorflow-datasets: cells of their records, and what their description declares.

The names of a `ClassLabel` are public, and so is that a feature is a number or a boolean. Bounds of
numbers are in no description: where no schema declares them they are read from the records, and
`uncovered`. Features that are texts are left out unless a schema declares them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from dpgen_jax.core.reading import require_memory
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import UserError
from dpgen_jax.data import csv_files, schema, schema_draft, tables
from dpgen_jax.data.base import Dataset, listed
from dpgen_jax.data.parsing import Cells, coded, joined

MAX_LENGTH = 10_000
"""The most numbers of one feature, each of which is a column."""
NOTE = "columns, kinds and categories are those of the data set's description"


def leaves(features: Mapping[str, Any], before: tuple[str, ...] = ()
           ) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields the path and the feature of each part of a description, in the order of their names.

    The description itself has another order in each process.

    Args:
        features: The description.
        before: The path to it.
    """
    for name, feature in sorted(features.items()):
        if hasattr(feature, "items"):
            yield from leaves(feature, (*before, name))
        else:
            yield (*before, name), feature


class Description:
    """The columns that the description of a data set declares.

    Attributes:
        entries: Entries of each column's schema that are known without the data.
        texts: The columns that are texts.
        label: The column of the classes: the one that is meant to be predicted, or else the last
            one of names; None where there is none.
    """

    def __init__(self, name: str, info: Any) -> None:
        """Reads a description.

        Args:
            name: The name of the data set, for errors.
            info: The description.

        Raises:
            UserError: It has a feature that is no cell of a table.
        """
        self.entries: dict[str, Json] = {}
        self.texts: list[str] = []
        self._places: dict[str, tuple[tuple[str, ...], Any, int | None]] = {}
        for path, feature in leaves(info.features):
            shape = getattr(feature, "shape", None)
            kind = np.dtype(getattr(feature, "np_dtype", object)).kind
            if shape is None or len(shape) > 1 or None in shape or kind not in "biufOSU":
                raise UserError(f"tfds:{name} has a feature {'/'.join(path)} that is neither a "
                                "number nor a category; an image data set has `image` and `label`")
            if math.prod(shape) > MAX_LENGTH:
                raise UserError(f"tfds:{name}: the feature {'/'.join(path)} holds "
                                f"{math.prod(shape):,} numbers, and at most {MAX_LENGTH:,} are "
                                "columns")
            column = path[-1] if path[-1] not in self._places else "/".join(path)
            for i in range(shape[0]) if shape else [None]:
                self._add(column if i is None else f"{column}[{i}]", path, feature, i, kind)
        wanted = (info.supervised_keys or (None, None))[1]
        classes = sorted((column for column, made in self.entries.items() if "categories" in made),
                         key=lambda column: self.entries[column]["kind"] == "categorical")
        self.label = wanted if wanted in classes else classes[-1] if classes else None

    def _add(self, column: str, path: tuple[str, ...], feature: Any, i: int | None, kind: str
             ) -> None:
        """Adds a column, by the kind of type that numpy has for it."""
        self._places[column] = path, feature, i
        self.entries[column] = {}
        if getattr(feature, "names", None):
            self.entries[column] = {"kind": "categorical", "categories": list(feature.names),
                                    "nullable": "false"}
        elif kind == "b":
            self.entries[column] = {"kind": "boolean", "categories": ["false", "true"],
                                    "nullable": "false"}
        elif kind == "f":
            self.entries[column] = {"kind": "continuous"}
        elif kind in "iu":
            self.entries[column] = {"nullable": "false"}
        else:
            self.texts.append(column)

    def cells(self, source: str, records: Iterable[Any], count: int, texts: Iterable[str] = ()
              ) -> Cells:
        """Returns all cells of records; it takes what `blocks` does.

        Raises:
            UserError: As `blocks`, and where they are too many for the memory.
        """
        columns = tuple(texts)
        cells = count * len(self._wanted(columns))
        require_memory(f"{source}: a table of {cells:,} cells", csv_files.CELL_BYTES * cells)
        return joined(list(self.blocks(source, records, count, columns)))

    def blocks(self, source: str, records: Iterable[Any], count: int, texts: Iterable[str] = ()
               ) -> Iterator[Cells]:
        """Yields the cells of records, some at a time; of no records an empty block.

        Args:
            source: The name of the table, for errors.
            records: Nested dicts of values, as the reader of tensorflow-datasets gives them.
            count: How many there are.
            texts: The columns of texts that are wanted.

        Yields:
            The cells of the next records.

        Raises:
            UserError: There are more or fewer records.
        """
        wanted, rest, read = self._wanted(texts), iter(records), 0
        size = max(1, csv_files.BLOCK_CELLS // max(1, len(wanted)))
        block = list(itertools.islice(rest, size))
        while True:
            yield Cells(source, {column: [self._cell(record, column) for record in block]
                                 for column in wanted},
                        [f"record {read + i}" for i in range(len(block))])
            read += len(block)
            if not (block := list(itertools.islice(rest, size))):
                break
        if read != count:
            raise UserError(f"{source} holds {read} records and states {count}; prepare it again")

    def _wanted(self, texts: Iterable[str]) -> list[str]:
        """Returns the columns that are read; of those of texts these alone."""
        known = set(texts)
        return [column for column in self._places
                if column not in self.texts or column in known]

    def _cell(self, record: Any, column: str) -> str:
        """Returns a value of a record as a cell."""
        path, feature, i = self._places[column]
        for key in path:
            record = record[key]
        return _text(record if i is None else record[i], feature)


def _text(value: Any, feature: Any) -> str:
    """Returns a value as a cell of a table."""
    names = getattr(feature, "names", None)
    if names:
        return str(names[value]) if 0 <= value < len(names) else ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").strip()
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    return str(value).strip()


def load(name: str, info: Any, read: Callable[[str], Iterable[Any]], schema_file: str | None
         ) -> Dataset:
    """Loads a table of tensorflow-datasets.

    Args:
        name: The name of the data set.
        info: Its description.
        read: From the name of a split to its records.
        schema_file: A schema; None for that of the description, with bounds read from the records.

    Returns:
        The data set.

    Raises:
        UserError: Naming the data set and the mend.
    """
    described = Description(name, info)
    declared = None if schema_file is None else schema.read(schema_file)
    texts = () if declared is None else [
        column.name for column in declared.spec.all_columns]

    def blocks(split: str) -> Iterator[Cells]:
        return described.blocks(f"tfds:{name}, {split}", read(split),
                                info.splits[split].num_examples, texts)

    train: Iterable[Cells] = blocks("train")
    if declared is None:
        whole = described.cells(f"tfds:{name}, train", read("train"),
                                info.splits["train"].num_examples)
        document, train = schema_draft.draft(whole, described.label, described.entries), [whole]
        declared = schema.parse(document, f"tfds:{name}")
    notes = [NOTE] if schema_file is None else []
    if described.texts and schema_file is None:
        notes.append(f"features that are texts are left out: {listed(described.texts)}")
    code = partial(coded, declared)
    test = map(code, blocks("test")) if "test" in info.splits else None
    return tables.table(name, declared, map(code, train), test, notes)
