"""Schemas of tables: YAML files of columns with their kinds, bounds and categories.

    label: Class
    columns:
      Amount: {kind: continuous, min: 0, max: 2000}
      Class: {kind: categorical, categories: ["0", "1"]}

`schema_columns` has the kinds and their entries, `constraints` what may hold between columns.
`name: NAME` is what reports call the data. Without `label` rows have no classes. `targets: [PAY]`
names the columns that an evaluation predicts beside the label, numbers among them.

Nothing in it may come from private records unless it says so: `read_from_data` lists the entries
that do, and `bought` those that were bought under differential privacy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpgen_jax.core import reading
from dpgen_jax.core.errors import nearest
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import NO_LABEL, TableSpec, UserError
from dpgen_jax.data import derived, finishing, forms, yaml_text
from dpgen_jax.data.base import Uncovered, listed, locate
from dpgen_jax.data.dialect import DEFAULT, ENCODING, Dialect, declared
from dpgen_jax.data.schema_columns import ENTRIES, IDENTIFIER, column, identifier, kind_of
from dpgen_jax.data.schema_label import label_position, targets
from dpgen_jax.data.schema_odd import odd_texts

PACKAGED = Path(__file__).parent / "schemas"
NAMES = tuple(sorted(path.stem for path in PACKAGED.glob("*.yaml")))
TOP = ("name", "file", "label", "targets", "columns", "constraints", "read_from_data", "bought")
MAX_BYTES = 2**26
"""of a file of categories"""
TERMS = {"min": "bounds", "max": "bounds", "nullable": "nullability", "special": "special values",
         "kind": "kinds", "odd": "odd values", "dtype": "types",
         "decimal_mark": "format", "thousands": "format", "unit": "format", "decimals": "format"}
BUYABLE = ("bounds", "categories")
DECLARE = "in the schema, by what is known without the data, and remove it from read_from_data"
BUY = (", or write `private` in its place and buy it with `python -m dpgen_jax.schema` and "
       "--schema-epsilon")

MULTILINE = ("where a record ends, and so how many there are, is read from the quotes of single "
             "records (file: multiline)",
             "no `multiline`, and write the file without line ends in its cells")


@dataclasses.dataclass(frozen=True)
class Schema:
    """A checked schema.

    Attributes:
        spec: The columns and the label.
        others: The category that takes all undeclared texts, by column, where one is declared.
        odd: By column, where it is declared, the text by which every cell is read that has no value
            of the column; of the label a null one: the row is left out.
        notes: Lines on the entries that were bought under differential privacy; published.
        bought: The purchases made for it, as rows of `accountant.events.to_json`.
        uncovered: The entries that were read from private records (its `read_from_data`), and where
            records end if cells may hold line ends.
        name: The name of the data set; "" where none is declared.
        dialect: How its CSV files are written.
    """

    spec: TableSpec
    others: Mapping[str, str] = dataclasses.field(default_factory=dict)
    odd: Mapping[str, str] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    bought: tuple[Json, ...] = ()
    uncovered: tuple[Uncovered, ...] = ()
    name: str = ""
    dialect: Dialect = DEFAULT


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
    return parse(document(source), source)


def of(source: str | Path | Mapping[str, Any] | Schema) -> Schema:
    """Returns the schema that a caller of Python gave.

    Args:
        source: The path of a file, the name of a packaged schema, a dict as such a file holds it
            (numbers and truth values may be Python's), or a schema.

    Raises:
        UserError: As `read`.
    """
    if isinstance(source, Schema):
        return source
    if isinstance(source, Mapping):
        return parse(texts(source), "schema")
    if isinstance(source, str | Path):
        return read(str(source))
    raise UserError(f"schema is a {type(source).__name__}; give the path of a file, a dict, or "
                    "what draft_schema returned")


def refuse_multiline(dialect: Dialect, name: str) -> None:
    """Refuses to buy entries from a file whose cells may hold line ends.

    Args:
        dialect: How the file is written.
        name: The name of the schema.

    Raises:
        UserError: They may.
    """
    if dialect.multiline:
        raise UserError(f"{name}: {MULTILINE[0]}, so that nothing can be bought; declare "
                        f"{MULTILINE[1]}, or declare every entry (nothing was spent)")


def texts(value: object) -> Any:
    """Returns a document of Python's values as one of texts, as `yaml_text` reads it."""
    if isinstance(value, Mapping):
        return {str(key): texts(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [texts(part) for part in value]
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).strip()


def document(source: str) -> Any:
    """Reads a schema as texts, with the categories that lie in files of their own.

    Args:
        source: The path of a file.

    Returns:
        The document, not checked.

    Raises:
        UserError: A file cannot be read.
    """
    loaded = yaml_text.document(source)
    columns = loaded.get("columns") if isinstance(loaded, dict) else None
    for entries in columns.values() if isinstance(columns, dict) else ():
        place = entries.get("categories") if isinstance(entries, dict) else None
        if isinstance(place, dict) and list(place) == ["file"] and isinstance(place["file"], str):
            beside = locate(source).parent / place["file"]
            path = beside if beside.is_file() else locate(place["file"])
            try:
                text = reading.read_bytes(path, MAX_BYTES).decode("utf-8-sig")
            except UnicodeDecodeError as error:
                raise UserError(f"{path} cannot be read ({error}); give a text file in UTF-8 with "
                                "a category a line") from error
            entries["categories"] = [line.strip() for line in text.splitlines() if line.strip()]
    return loaded


def packaged(name: str) -> Schema:
    """Reads the schema of a public data set.

    Args:
        name: One of `NAMES`.
    """
    return parse(yaml_text.document(str(PACKAGED / f"{name}.yaml")), name)


def parse(document: object, name: str) -> Schema:
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


def _parse(document: object) -> Schema:
    """Checks a document; errors name the column alone."""
    if not isinstance(document, dict) or not isinstance(document.get("columns"), dict):
        raise UserError("a schema has `columns:`, with one entry a column, and `label: NAME` where "
                        "rows have classes")
    for key in document:
        if key not in TOP:
            raise UserError(f"unknown key {key!r}{nearest(key, TOP)}; known: {', '.join(TOP)}")
    entries, names = document["columns"], list(document["columns"])
    identifiers = tuple(identifier(name, entries[name], i) for i, name in enumerate(names)
                        if kind_of(name, entries[name]) == IDENTIFIER)
    unread = {made.name for made in identifiers}
    columns = [column(name, entries[name]) for name in names if name not in unread]
    if "" in names:
        raise UserError("a column has no name; name it as the file does")
    position = label_position(document["label"], columns) if "label" in document else len(columns)
    label = columns[position] if "label" in document else NO_LABEL
    features = tuple(c for i, c in enumerate(columns) if i != position)
    if not features:
        raise UserError("the label is the only column; declare the others too" if columns else
                        "there are no columns to learn; declare 1 at least")
    others = {name: entries[name]["other"] for name in names if "other" in entries[name]}
    if label.name in others:
        raise UserError(f"column {label.name}: a label takes no `other`; declare every class")
    odd = odd_texts(columns, entries, label.name)
    read_entries, rows = document.get("read_from_data", []), _bought(document.get("bought", []))
    if not isinstance(read_entries, list):
        raise UserError("read_from_data is no list; write [COLUMN.min, COLUMN.max, ...]")
    uncovered = [Uncovered(f"{sort} of {columns} read from private data",
                           DECLARE + BUY * (sort in BUYABLE))
                 for sort, columns in _grouped(read_entries, names)]
    dialect = declared(document.get("file", {}))
    if dialect.multiline:
        uncovered.append(Uncovered(*MULTILINE))
    notes = [note for n in dict.fromkeys(row.get("records") for row in rows)
             for note in _bought_notes([row for row in rows if row.get("records") == n], n, names)]
    notes += _declared_beside(document.get("bought", []), names)
    if label == NO_LABEL:
        notes.append("no label is declared: all rows are of one class")
    predicted = targets(document.get("targets", []), [column.name for column in columns])
    spec = TableSpec(features, label, position, identifiers,
                     _constraints(document.get("constraints", [])), predicted)
    finishing.check(spec)
    spec = dataclasses.replace(spec, derived=derived.names(spec))
    spec = dataclasses.replace(spec, gaps=derived.gaps(spec))
    return Schema(spec, others, odd, tuple(notes), tuple(rows), tuple(uncovered),
                  str(document.get("name", "")), dialect)


def _constraints(texts: object) -> tuple[str, ...]:
    """Returns the texts of the constraints."""
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UserError("constraints is no list; write one a line, as - a <= b")
    return tuple(dict.fromkeys(texts))


def _grouped(entries: list[Any], names: list[str]) -> list[tuple[str, str]]:
    """Returns ('bounds', 'V1, V2'), ('categories', 'Class'): a pair for each sort of entry."""
    sorts: dict[str, dict[str, None]] = {}
    columns = set(names)
    for entry in map(str, entries):
        column, _, what = entry.rpartition(".")
        if entry == ENCODING:
            sorts.setdefault(what, {})["the file"] = None
            continue
        if column not in columns or what not in (*ENTRIES, *TERMS.values()):
            raise UserError(f"{entry!r} names no entry; write {names[0]}.min, or another column "
                            "and entry, or remove it")
        sorts.setdefault(TERMS.get(what, what), {})[column] = None
    return [(sort, listed(members)) for sort, members in sorts.items()]


def _bought(rows: Any) -> list[Json]:
    """Returns the purchases: rows of `entry` and the fields of its event, numbers as numbers."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError("bought is no list of purchases; leave this block as it was written")
    return [{key: _plain(value) for key, value in row.items()} for row in rows]


def _bought_notes(rows: list[Json], n: object, names: list[str]) -> list[str]:
    """Returns the notes on purchases from n records; None where an earlier version noted no n."""
    source = "on the same records" if n is None else f"from {n:,} records" if isinstance(
        n, int) else f"from {n} records"
    return [f"bought under differential privacy {source}: {sort} of {columns}"
            for sort, columns in _grouped(_each_entry(rows), names)]


def purchases(rows: Any) -> list[Json]:
    """Returns the events of a document's `bought`, as `Schema.bought` has them.

    Args:
        rows: The block of the document.

    Raises:
        UserError: It is no list of purchases.
    """
    return [{key: value for key, value in row.items() if key != "entry"} for row in _bought(rows)]


def _each_entry(rows: list[Json]) -> list[Any]:
    """Takes from purchases the entries that they are of: one, or a list of them."""
    entries = [row.pop("entry", "") for row in rows]
    return [entry for one in entries for entry in (one if isinstance(one, list) else [one])]


def _declared_beside(rows: list[Json], names: list[str]) -> list[str]:
    """Returns a line on the columns that are declared where the kinds of others were bought."""
    entries = {str(entry) for row in rows for entry in _each_entry([dict(row)])}
    others = [name for name in names if f"{name}.kind" not in entries]
    partly = 0 < len(others) < len(names)
    return [f"declared without the records: {listed(others)}"] if partly else []


def _plain(text: Any) -> Any:
    """Returns the number that a text is, whole if it is written so; else the text."""
    value = None if isinstance(text, (list, dict)) else forms.number(str(text))
    if value is None:
        return text
    return int(text) if str(text).lstrip("+-").isdigit() else value
