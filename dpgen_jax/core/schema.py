"""The declared, public schema of a data set: `ImageSpec`, `TableSpec`. It does not use JAX."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, Literal, TypeVar


@dataclasses.dataclass(frozen=True)
class ImageSpec:
    """The declared, public schema of an image data set: nothing here is read from the records.

    Attributes:
        height: H, pixels.
        width: W, pixels.
        channels: ch: 1 for grey, 3 for colour.
        classes: C.
        class_names: Names of the classes 0..C-1, or none. They do not affect training, and schemas
            that differ only in them are equal.
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


Sort = Literal["value", "flag", "onehot"]
"""A run of encoded features: a number in [0, 1], a null flag, or the places of a one-hot."""
Written = Literal["plain", "boolean", "codes", "date", "datetime", "time", "duration"]
"""How the values of a column are written: as their codes, or as in `data.table.transform`."""


T = TypeVar("T")


def later(default: T) -> T:
    """Returns a field of a schema or configuration that earlier versions did not have.

    It is written if it is not the default, so runs of earlier versions can continue. The default
    must be what those versions did.
    """
    field: T = dataclasses.field(default=default, metadata={"later": True})
    return field


def _shown(default: object) -> Any:
    """Returns such a field for the display of values only: equality ignores it."""
    return dataclasses.field(default=default, compare=False, repr=False, metadata={"later": True})


@dataclasses.dataclass(frozen=True)
class Column:
    """One declared column of a table.

    Encoded, a number or an ordinal is one value in [0, 1], followed by a null flag if it is
    nullable; a category is a one-hot, whose last place means null if it is nullable. A number with
    special values is one value, followed by a one-hot: a place for "none of them", then one for
    each, and one for null if it is nullable. `parts` describes the encoding of a column.

    Attributes:
        name: Its name in the header of the file.
        kind: The kind of values.
        low: The lower bound of a number, except for special values.
        high: The upper bound of a number, except for special values.
        categories: The values of a category, the lowest first if they are ordinal.
        nullable: Whether a value may be missing.
        special: Values of a number that are codes outside its range, such as 0 or 99.
        scale: Whether [0, 1] is linear in the value or in its logarithm
            (`data.table.transform.unit`).
        written: The meaning of the texts of the column; a date is a number of days; a date with a
            time, a time and a duration are numbers of seconds.
        format: The format of a date, time or duration.
        zone: The time zone in which a date with a time is written, whose codes are then seconds of
            UTC; "" for one without.
        unit: The text around a number, with {} in its place.
        decimals: The digits of a number after its decimal mark; -1 for as many as it needs.
        marks: The decimal mark, and then the mark between thousands, if any.
        dtype: The type in frames and Parquet files (`data.table.columns`); "" for the default of
            the kind. It does not affect training, and columns that differ only in it are equal.
    """

    name: str
    kind: Literal["continuous", "integer", "categorical", "ordinal"]
    low: float = 0.0
    high: float = 0.0
    categories: tuple[str, ...] = ()
    nullable: bool = False
    special: tuple[float, ...] = later(())
    scale: Literal["linear", "log"] = later("linear")
    written: Written = later("plain")
    format: str = later("")
    unit: str = later("")
    decimals: int = later(-1)
    marks: str = later(".")
    dtype: str = _shown("")
    zone: str = later("")

    @property
    def outside(self) -> tuple[float, ...]:
        """The special values outside the bounds: codes such as 999 that are not numbers."""
        return tuple(value for value in self.special if not self.low <= value <= self.high)

    @property
    def parts(self) -> tuple[tuple[Sort, int], ...]:
        """The sort and the number of features of each run of the encoding, in order."""
        if self.kind == "categorical":
            return (("onehot", len(self.categories) + self.nullable),)
        if self.special:
            return ("value", 1), ("onehot", 1 + len(self.special) + self.nullable)
        return (("value", 1), ("flag", 1)) if self.nullable else (("value", 1),)

    @property
    def width(self) -> int:
        """The number of encoded features."""
        return sum(size for _, size in self.parts)


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The values of a column that meet a condition.

    Attributes:
        codes: indices of a category, an ordinal or the label; special values of a number; NaN for
            null.
        low: the lower end of a range of a number, encoded as by `data.table.transform.unit`.
        high: its upper end, inclusive; a value below `low` means no range. For whole numbers the
            ends are the numbers themselves.
    """

    codes: tuple[float, ...] = ()
    low: float = 1.0
    high: float = 0.0


@dataclasses.dataclass(frozen=True)
class Identifier:
    """A column of the file whose cells are never read; a release writes new ones.

    Attributes:
        name: Its name in the header of the file.
        pattern: The text of an identifier; each # is a digit, and each @ a capital letter. Without
            them it is a placeholder, the same in all rows.
        position: Its place among all columns of the file, from 0.
        dtype: The type in frames and Parquet files, as in `Column`.
    """

    name: str
    pattern: str
    position: int
    dtype: str = _shown("")

    @property
    def numbered(self) -> bool:
        """Whether each row has another text, and no placeholder."""
        return not {"#", "@"}.isdisjoint(self.pattern)


NO_LABEL = Column("", "categorical", categories=("",))
"""The label of a table without one: a single class for all rows, and not a column of the file."""


@dataclasses.dataclass(frozen=True)
class TableSpec:
    """The declared, public schema of a table: nothing here is read from the records.

    Attributes:
        columns: The features, in the order of the file.
        label: The class, whose categories are the classes 0..C-1; `NO_LABEL` if there is none.
        label_position: The place of the label among all columns of the file except identifiers,
            from 0.
        identifiers: The columns that are never read, in the order of the file.
        constraints: Relations between the columns of every row (`data.table.constraints`).
        targets: Names of columns that an evaluation predicts in addition to the label. They do not
            affect training, and schemas that differ only in them are equal.
        derived: Names of columns that the constraints make functions of others: no method needs to
            learn them, as synthetic rows take them from their definitions.
        gaps: The lower and the higher of two columns, by name, whose order a constraint keeps: a
            method may learn how far the higher one lies above the lower one, in its place. The
            lower one of a pair is the higher one of an earlier pair or of none.
        left_out: Names of columns of the file that are neither read nor released.
        numbered: Names of columns that were whole numbers in the frame that was trained on. They
            change nothing that is trained, and schemas that differ only in them are equal.
    """

    columns: tuple[Column, ...]
    label: Column
    label_position: int
    identifiers: tuple[Identifier, ...] = later(())
    constraints: tuple[str, ...] = later(())
    targets: tuple[str, ...] = dataclasses.field(default=(), compare=False, repr=False)
    derived: tuple[str, ...] = later(())
    gaps: tuple[tuple[str, str], ...] = later(())
    left_out: tuple[str, ...] = later(())
    numbered: tuple[str, ...] = _shown(())

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
        """(start, stop) of each run of features that belong together: a one-hot or a value."""
        blocks: list[tuple[int, int]] = []
        start = 0
        for column in self.columns:
            for _, size in column.parts:
                blocks.append((start, start + size))
                start += size
        return tuple(blocks)


Spec = ImageSpec | TableSpec
