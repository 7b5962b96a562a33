"""Drafts the schema of a table, or buys entries of it under differential privacy.

    python -m dpgen_jax.schema DATA.csv --label COLUMN --out SCHEMA.yaml

A draft says of every entry that it was read from private records. An entry that is replaced by the
word `private` is bought under differential privacy instead:

    python -m dpgen_jax.schema DATA.csv --schema DRAFT --schema-epsilon E --out NEW
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import tyro

from dpgen_jax.cli import parser, terminal
from dpgen_jax.core import files
from dpgen_jax.core.errors import UserError, listed
from dpgen_jax.core.files import Json
from dpgen_jax.core.terms import at_most
from dpgen_jax.core.types import Private, TableSpec
from dpgen_jax.data import tfds
from dpgen_jax.data.base import locate
from dpgen_jax.data.table import draft as table_draft
from dpgen_jax.data.table import frames, parsing, patterns, schema, subjects
from dpgen_jax.data.table.parsing import Cells
from dpgen_jax.data.table.schema import Dialect, declared_dialect
from dpgen_jax.release import contents
from dpgen_jax.run import purchase
from dpgen_jax.run.progress import Notices

DESCRIPTION = ("Drafts the schema of a CSV or Parquet file from its data, or buys, under "
               "differential privacy, the entries of a draft that are marked `private`.")


@dataclasses.dataclass(frozen=True)
class Flags:
    """Without --schema a schema is drafted, with it and --schema-epsilon entries are bought."""

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA.csv")]
    """the CSV file, or tfds:NAME"""
    out: Path
    """the schema to write; must not exist"""
    label: str | None = None
    """draft: the column of the classes; left out where rows have none"""
    unit: str | None = None
    """draft: the column that names the person or household of each row, as `train --unit` takes it;
    it is left out of the schema"""
    multiline: bool = False
    """draft: quoted cells may contain line ends"""
    schema: str | None = None
    """buy: a draft, with `private` for the entries to buy"""
    schema_epsilon: float | None = None
    """buy: split evenly over the bought entries"""
    schema_delta: float = 0.0
    """buy: split evenly over bought categories"""
    max_gb: float | None = None
    """memory for reading the data, in GB; by default all of the machine"""


def command(argv: list[str]) -> None:
    """Runs the command. Raises: UserError."""
    run(parser.parse(Flags, argv, "python -m dpgen_jax.schema", DESCRIPTION))


def run(flags: Flags, log: Callable[[str], None] = print) -> None:
    """Writes the schema to `out`, readable by its owner only.

    Args:
        flags: The parsed flags.
        log: Prints a line.

    Raises:
        UserError: One line, which may quote the data. An `out` that exists is refused. Where some
            entry was bought of which no value came out, `out` is written nevertheless.
    """
    if flags.out.exists() or not flags.out.parent.is_dir():
        raise UserError(f"--out {flags.out} exists; give a new file" if flags.out.exists() else
                        f"--out {flags.out}: there is no "
                        f"folder {flags.out.parent}; create it first")
    contents.refuse_shared(flags.out, "a draft contains values read from real records")
    drafted = _drafted(flags)
    document = drafted.document
    flags.out.touch(mode=0o600, exist_ok=False)
    flags.out.write_text(table_draft.render(
        document, flags.source, remarks=drafted.remarks), "utf-8")
    if flags.schema_epsilon is not None:
        log(f"note: epsilon {at_most(flags.schema_epsilon)} is spent on these records, whether or "
            "not a run uses this schema; every run that uses it charges it as part of its own "
            "epsilon")
        _require_values(document, flags)
    for line in drafted.lines():
        log(f"note: {line}")
    log(f"schema: {flags.out}")


def _require_values(document: Json, flags: Flags) -> None:
    """Says of which entries no value came out, once all that was bought is written."""
    if missing := purchase.without_value(document):
        raise UserError(f"nothing stands out from the noise for {listed(missing)}: declare the "
                        f"entries that are still `private` in {flags.out}, which contains "
                        "everything that was bought, and keep its block `bought`")


def _drafted(flags: Flags) -> table_draft.Drafted:
    """The schema that is drafted from the data, or the draft with its purchases."""
    buys = (flags.schema, flags.schema_epsilon) != (None, None) or flags.schema_delta
    if not buys:
        cells, described = _cells(flags)
        if flags.unit is not None:
            cells, _ = subjects.split(cells, flags.unit)
        types = frames.parquet_types(locate(flags.source)) if _is_parquet(flags.source) else {}
        return table_draft.draft(cells, flags.label, described, types).condensed()
    if flags.unit is not None:
        raise UserError("--unit is for drafts only: buying protects single rows, not all rows of a "
                        "unit; declare these entries")
    if flags.label is None and flags.schema is not None and flags.schema_epsilon is not None:
        price = purchase.Price(flags.schema_epsilon, flags.schema_delta)
        draft = schema.document(flags.schema)
        entries = draft if isinstance(draft, dict) else {}
        columns, form = entries.get("columns"), declared_dialect(entries.get("file", {}))
        schema.refuse_multiline(form, flags.schema)
        cells, _ = _cells(flags, columns if isinstance(columns, dict) else {}, form)
        entries = patterns.expanded(entries, [*cells.columns])
        return table_draft.Drafted(purchase.buy_entries(
            entries, cells, price, flags.schema, lambda bought: purchase.remembered(
                bought, _content(flags.source), flags.out.absolute(), Notices().private)))
    raise UserError("give --schema DRAFT with --schema-epsilon E to buy its private entries, or "
                    "neither to draft a schema, with --label COLUMN if rows have classes")


def _content(source: str) -> Private[str]:
    """A sealed digest of the data's file; of an empty text, where they are a table of tfds."""
    kind, _, name = source.partition(":")
    return Private("" if kind == "tfds" and name else files.content_of(locate(source)))


def _is_parquet(source: str) -> bool:
    """Whether the data are a Parquet file, whose columns have types."""
    return Path(source).suffix == ".parquet" and not source.startswith("tfds:")


def _durations(path: Path, label: str | None) -> TableSpec:
    """The columns of durations of a Parquet file, but for the label, which is a category."""
    return table_draft.with_durations(name for name in frames.parquet_durations(path)
                                      if name != label)


def _cells(flags: Flags, columns: Iterable[str] = (), dialect: Dialect | None = None
           ) -> tuple[Cells, dict[str, Json]]:
    """The cells of the file, or of a table of tfds, and the entries that its description has."""
    with files.limited(flags.max_gb):
        kind, _, name = flags.source.partition(":")
        if kind == "tfds" and name:
            return tfds.training_cells(name, columns)
        path = locate(flags.source)
        return (frames.read_parquet(path, _durations(path, flags.label))
                if _is_parquet(flags.source)
                else parsing.drafted(path, flags.multiline) if dialect is None
                else parsing.read_csv(path, dialect=dialect)), {}


if __name__ == "__main__":
    terminal.main(command)
