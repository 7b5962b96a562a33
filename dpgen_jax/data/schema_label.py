"""The label of a schema, and the columns that an evaluation predicts beside it."""

from __future__ import annotations

from collections.abc import Sequence

from dpgen_jax.core.errors import nearest
from dpgen_jax.core.types import Column, UserError
from dpgen_jax.data.base import listed

MAX_CLASSES = 1000  # of a label: training and evaluation class by class grow with them


def label_position(label: object, columns: Sequence[Column]) -> int:
    """Returns the position of the label, which must be a column of classes.

    Args:
        label: What the schema says.
        columns: All columns of the schema.

    Raises:
        UserError: There is no such column, or it holds no classes.
    """
    names = [column.name for column in columns]
    if not isinstance(label, str) or label not in names:
        problem = f"label {label!r} is no column{nearest(str(label), names)}" if label else \
            "the label has no name"
        raise UserError(f"{problem}; write `label: NAME`, one of: {listed(names)}; or leave the "
                        "line out where rows have no classes")
    column = columns[names.index(label)]
    if not column.categories or column.nullable:
        fault = "nullable" if column.categories else f"of kind {column.kind}"
        raise UserError(f"column {label}: the label is {fault}; declare it categorical, not "
                        "nullable, with its classes as categories, or write `targets: [...]` in "
                        "place of `label:`")
    if len(column.categories) < 2:
        raise UserError(f"column {label}: the label has 1 class; declare 2 or more")
    if len(column.categories) > MAX_CLASSES:
        raise UserError(f"column {label}: the label has {len(column.categories):,} classes, and at "
                        f"most {MAX_CLASSES:,} can be trained; make another column the label")
    return names.index(label)


def targets(names: object, columns: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the columns that an evaluation predicts, each once.

    Args:
        names: What the schema says.
        columns: The names of all columns.

    Raises:
        UserError: It is no list, or names something else.
    """
    if not isinstance(names, list):
        raise UserError("targets is no list; write [COLUMN, ...]")
    for name in map(str, names):
        if name not in columns:
            raise UserError(f"target {name!r} is no column{nearest(name, columns)}; known: "
                            f"{listed(columns)}")
    return tuple(dict.fromkeys(map(str, names)))
