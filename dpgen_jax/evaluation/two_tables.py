"""Any two tables, one synthetic and one real, as the measures of an evaluation take them.

There is no schema: types are read from the real rows, and bounds and categories from both tables.
So the result is for the data holder only. A column of numbers or dates is one whose real cells are;
any other has categories, of which the `MOST_CATEGORIES` most common stay apart. A column of many
texts that hardly repeat, as names and keys of persons, is left out.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from dpgen_jax.core.errors import UserError, listed, nearest, option
from dpgen_jax.core.types import NO_LABEL, Column, TableSpec
from dpgen_jax.data.base import safe_name
from dpgen_jax.data.sources import kind_of
from dpgen_jax.data.table import draft, raw, transform
from dpgen_jax.data.table.columns import KINDS, NULLS
from dpgen_jax.data.table.columns import column as declared
from dpgen_jax.evaluation.results import Draw, Real, Records

if TYPE_CHECKING:
    import pandas as pd

Source: TypeAlias = "pd.DataFrame | str | Path"
"""A pandas frame, or the path of a CSV or Parquet file."""

MOST_CATEGORIES = 100
"""The categories of a column that stay apart."""
OTHERS = "(other texts)"
REPEATED = 3
"""How often a text is there at least, in the mean, or a column of many texts is left out."""
FEWEST = 40
"""The fewest rows of either table."""


class Compared(NamedTuple):
    """Two tables that can be compared."""

    name: str
    """The name of the real one."""
    real: Real
    draw: Draw
    n: int
    """The number of synthetic rows."""
    notes: tuple[str, ...]
    is_halved: bool
    """Whether the training rows are a half of the real rows, and the held-out rows the other."""


def read(synthetic: Source, real: Source, label: str | None = None, test: Source | None = None
         ) -> Compared:
    """Read two tables: pandas frames, or paths of CSV or Parquet files.

    Args:
      synthetic: The synthetic rows.
      real: The real rows.
      label: The column of the classes, if there is one.
      test: Held-out real rows; by default the real rows are halved with a fixed seed.

    Raises:
      UserError: A table cannot be read or has too few rows; or they have no column in common.
    """
    made, truth = _texts(synthetic, "synthetic"), _texts(real, "real")
    held_out = None if test is None else _texts(test, "held-out")
    notes = ["types of columns are read from the real rows, bounds and categories from both "
             "tables: without a schema no epsilon covers them"]
    names = [name for name in truth if name in made and (held_out is None or name in held_out)]
    if not names:
        raise UserError(f"the tables have no column in common; the real one has {listed(truth)}, "
                        f"the synthetic one {listed(made)}")
    if label is not None and label not in names:
        raise UserError(f"{option('label', label)}: not a column of both tables"
                        f"{nearest(label, names)}; known: {listed(names)}")
    missing = sorted({*truth, *made} - {*names})
    if missing:
        notes.append(f"only one of the tables has {listed(missing)}: left out")
    parts = [[texts[name] for name in names] for texts in (made, truth, *(
        [held_out] if held_out else []))]
    spec, kept, encoded = _encoded(names, label, parts)
    left = [name for name in names if name not in kept]
    if left:
        notes.append("keys, empty columns and columns whose texts hardly repeat are left out: "
                     f"{listed(left)}")
    train, rest = (encoded[1], encoded[2]) if held_out else _halves(encoded[1])
    return Compared(_name(real), Real(spec, rest, train), _draw(encoded[0]), len(encoded[0][1]),
                    tuple(notes), held_out is None)


def is_table(source: object) -> bool:
    """Return whether it is a frame, or the path of a CSV or Parquet file, not of a folder."""
    if not isinstance(source, str | Path):
        return hasattr(source, "columns")
    return (str(source).startswith(("csv:", "parquet:")) or Path(source).is_file()
            or Path(source).suffix in (".csv", ".parquet"))


def _texts(source: Source, what: str) -> Mapping[str, Sequence[str]]:
    """Return the cells of a table by column, null as an empty text."""
    if isinstance(source, str | Path):
        kind, _, place = str(source).partition(":")
        if kind not in ("csv", "parquet"):
            kind, place = kind_of(str(source)), str(source)
        if kind not in ("csv", "parquet"):
            raise UserError(f"{source}: {what} rows come from a CSV or Parquet file that exists, "
                            "or a pandas DataFrame")
        table = raw.of_file(kind, place)
    else:
        table = raw.Table(raw.FRAME, source)
    cells = table.cells(table.dialect())
    if len(cells.rows) < FEWEST:
        raise UserError(f"{len(cells.rows)} {what} rows; a comparison needs {FEWEST} or more")
    return {name: ["" if text in NULLS else text for text in texts]
            for name, texts in cells.columns.items()}


def _name(source: Source) -> str:
    if not isinstance(source, str | Path):
        return raw.FRAME
    return safe_name(Path(str(source).rpartition(":")[2]).name.partition(".")[0])


def _encoded(names: Sequence[str], label: str | None, parts: Sequence[Sequence[Sequence[str]]]
             ) -> tuple[TableSpec, list[str], list[Records]]:
    """Return the schema, the columns that are kept, and the encoded rows of each table."""
    columns, codes = [], []
    for name, *of_tables in zip(names, *parts, strict=True):
        made = _column(name, of_tables, name == label)
        if made is None and name == label:
            raise UserError(f"{option('label', name)}: some rows have no class, or classes hardly "
                            "repeat; name a column of classes")
        if made is not None:
            columns.append(made[0])
            codes.append(made[1])
    if not columns:
        raise UserError("the tables have no column that can be compared")
    kept = [column.name for column in columns]
    at = kept.index(label) if label is not None else len(columns)
    features = tuple(column for i, column in enumerate(columns) if i != at)
    spec = TableSpec(features, columns[at] if label is not None else NO_LABEL,
                     at if label is not None else 0)
    records = []
    for k in range(len(parts)):
        table = np.column_stack([of_column[k] for of_column in codes])
        y = table[:, at] if label is not None else np.zeros(len(table))
        records.append((transform.encode(spec, np.delete(table, at, 1) if label is not None
                                         else table), y.astype(np.int32)))
    return spec, kept, records


Coded = tuple[Column, list[np.ndarray]]


def _column(name: str, of_tables: Sequence[Sequence[str]], is_label: bool) -> Coded | None:
    """Return a column, and its codes float64 [n] in each table; None where it is left out."""
    made, *truth = of_tables
    present = [text for texts in truth for text in texts if text]
    if not present or (is_label and not all(text for texts in of_tables for text in texts)):
        return None
    if not is_label and draft.KEY.search(name) and all(
            len({*texts}) == len(texts) and all(map(str.isdecimal, texts)) for texts in truth):
        return None
    if not is_label and (numbers := _numbers(name, of_tables, present)) is not None:
        return numbers
    counts = Counter(present)
    if len(counts) > max(MOST_CATEGORIES, len(present) / REPEATED):
        return None
    everywhere = counts + Counter(filter(None, made))  # of both, so that neither is favoured
    known = draft.ordered(text for text, _ in everywhere.most_common(MOST_CATEGORIES))
    rest = {text for texts in of_tables for text in texts if text} - {*known}
    places = {text: float(i) for i, text in enumerate([*known, *[OTHERS] * bool(rest)])}
    places |= {text: float(len(known)) for text in rest} | {"": np.nan}
    codes = [np.array([places[text] for text in texts]) for texts in of_tables]
    nullable = any(np.isnan(one).any() for one in codes)
    return Column(name, "categorical", categories=(*known, *[OTHERS] * bool(rest)),
                  nullable=nullable), codes


def _numbers(name: str, of_tables: Sequence[Sequence[str]], present: Sequence[str]
             ) -> Coded | None:
    """Return a column of numbers or dates; None where the real cells are none."""
    try:
        drafted = draft.drafted_entries([*present], False)
        entries = drafted[0] if isinstance(drafted, tuple) else drafted
        made = declared(name, entries) if entries["kind"] in KINDS else None
    except UserError:
        return None
    if made is None or made.categories:
        return None
    read = transform.reader(made)
    values = {text: read(text) for text in {text for texts in of_tables for text in texts}}
    codes = [np.array([np.nan if (value := values[text]) is None else value for text in texts])
             for texts in of_tables]
    everything = np.concatenate(codes)
    known = everything[~np.isnan(everything)]
    whole = bool((known == np.rint(known)).all())
    decimals = next((d for d in range(7) if np.allclose(known, np.round(known, d), rtol=0,
                                                        atol=1e-9)), -1)
    return dataclasses.replace(
        made, low=float(known.min()), high=float(known.max()), special=(),
        kind="integer" if whole and made.kind == "integer" else "continuous",
        decimals=decimals if made.written == "plain" and not whole else -1,
        scale=made.scale if known.min() >= 0 else "linear",
        nullable=bool(np.isnan(everything).any())), codes


def _halves(rows: Records) -> tuple[Records, Records]:
    order = np.random.default_rng(0).permutation(len(rows[1]))
    first, second = np.array_split(order, 2)
    return (rows[0][first], rows[1][first]), (rows[0][second], rows[1][second])


def _draw(rows: Records) -> Draw:
    """Return rows in an order for each seed."""
    def draw(n: int, seed: int) -> Records:
        order = np.random.default_rng(seed).permutation(len(rows[1]))[:n]
        return rows[0][order], rows[1][order]

    return draw
