"""The declared, public schema of a data set: `ImageSpec`, `TableSpec`. No JAX in here."""

from __future__ import annotations

import dataclasses
import functools
from typing import ClassVar, Literal


@dataclasses.dataclass(frozen=True)
class ImageSpec:
    """The declared, public schema of an image data set: nothing here is read from the records.

    Attributes:
        height: H, pixels.
        width: W, pixels.
        channels: ch: 1 for grey, 3 for colour.
        classes: C.
        class_names: Names of the classes 0..C-1, or none. They change nothing that is computed,
            and schemas that differ in them alone are equal.
    """

    height: int
    width: int
    channels: int
    classes: int
    class_names: tuple[str, ...] = dataclasses.field(default=(), compare=False, repr=False)

    dtype: ClassVar[str] = "uint8"
    """The type of a sealed record."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, W, ch): the shape of one record."""
        return (self.height, self.width, self.channels)


@dataclasses.dataclass(frozen=True)
class Column:
    """One declared column of a table.

    Encoded, a number or an ordinal is one value in [0, 1], followed by a null flag if it is
    nullable; a category is a one-hot, whose last place means null if it is nullable.

    Attributes:
        name: The name in the header of the file.
        kind: The kind of values.
        low: The lower bound of a number.
        high: The upper bound of a number.
        categories: The values of a category, the lowest first if they are ordinal.
        nullable: Whether a value may be missing.
    """

    name: str
    kind: Literal["continuous", "integer", "categorical", "ordinal"]
    low: float = 0.0
    high: float = 0.0
    categories: tuple[str, ...] = ()
    nullable: bool = False

    @property
    def width(self) -> int:
        """The number of encoded features."""
        return (len(self.categories) if self.kind == "categorical" else 1) + self.nullable


NO_LABEL = Column("", "categorical", categories=("",))
"""The label of a table without one: the only class of all its rows, and no column of the file."""


@dataclasses.dataclass(frozen=True)
class TableSpec:
    """The declared, public schema of a table: nothing here is read from the records.

    Attributes:
        columns: The features, in the order of the file.
        label: The class, whose categories are the classes 0..C-1; `NO_LABEL` where there is none.
        label_position: The place of the label among all columns of the file, from 0.
        targets: Names of columns that an evaluation predicts beside the label. They change nothing
            that is trained, and schemas that differ in them alone are equal.
    """

    columns: tuple[Column, ...]
    label: Column
    label_position: int
    targets: tuple[str, ...] = dataclasses.field(default=(), compare=False, repr=False)

    dtype: ClassVar[str] = "float32"
    """The type of a sealed record."""

    @property
    def classes(self) -> int:
        """C: the number of classes, 1 without a label."""
        return len(self.label.categories)

    @property
    def labelled(self) -> bool:
        """Whether a column of the file is the label."""
        return self.label != NO_LABEL

    @property
    def all_columns(self) -> tuple[Column, ...]:
        """The features, then the label, if there is one."""
        return (*self.columns, self.label) if self.labelled else self.columns

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes 0..C-1; none without a label."""
        return self.label.categories if self.labelled else ()

    @functools.cached_property
    def shape(self) -> tuple[int]:
        """(F,): the shape of an encoded row."""
        return (sum(column.width for column in self.columns),)

    @functools.cached_property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """(start, stop) of each run of features that belongs together: a one-hot or a value."""
        blocks: list[tuple[int, int]] = []
        start = 0
        for column in self.columns:
            sizes = [column.width] if column.kind == "categorical" else [1] * column.width
            for size in sizes:
                blocks.append((start, start + size))
                start += size
        return tuple(blocks)


Spec = ImageSpec | TableSpec
