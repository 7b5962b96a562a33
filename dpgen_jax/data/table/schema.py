"""Schemas of tables: YAML files of columns with their kinds, bounds and categories.

    label: Class
    columns:
      Amount: {kind: continuous, min: 0, max: 2000}
      Class: {kind: categorical, categories: ["0", "1"]}

The module `columns` has the kinds of columns and their entries, and `constraints` the rules between
columns. `name: NAME` is the name of the data in reports. `file` declares how a CSV file is written.
Without `label`, rows have no classes. `targets: [PAY]` names further columns that an evaluation
predicts.

Nothing in a schema may come from private records unless the schema says so: `read_from_data` lists
the entries that were read from them, and `bought` those that were bought under differential
privacy.
"""

from __future__ import annotations

import codecs
import dataclasses
import functools
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from dpgen_jax.core import files
from dpgen_jax.core.errors import listed, nearest, option, quoted
from dpgen_jax.core.files import Json
from dpgen_jax.core.types import NO_LABEL, Column, Identifier, TableSpec, UserError
from dpgen_jax.data.base import Uncovered, locate
from dpgen_jax.data.table import constraints, rules, transform
from dpgen_jax.data.table.columns import (
    ENTRIES,
    UNDECIDED,
    UNREAD,
    column,
    kind_of,
    odd_texts,
    unread,
)

MOST_BYTES, MAX_DEPTH = 2**26, 20
LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # the same, and ten times as fast

Mark = Any
"""A position in a file: yaml's own, or that of its C library, which share no type."""


def yaml_document(path: str) -> Any:
    """Reads a YAML file as dicts, lists and texts: all scalars as text, None for an empty file.

    A UserError where it is not YAML, or has a key twice, an alias, or too many levels.
    """
    try:
        text = files.read_bytes(locate(path), MOST_BYTES).decode("utf-8-sig")
        return _built(yaml.parse(text, LOADER))
    except UnicodeDecodeError as error:
        raise UserError(f"{path} cannot be read ({error}); give a YAML file") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "no text of YAML"
        raise UserError(f"{path}{line}: {problem}; correct the YAML") from error


def _built(events: Iterable[yaml.Event]) -> Any:
    """Returns the dicts, lists and texts of a stream of YAML events.

    Time and memory are linear in the file. Every scalar is the text that the user typed, less the
    spaces around it. Aliases, by which a short file could stand for an endless one, are refused,
    and nesting beyond `MAX_DEPTH`; both are a yaml.MarkedYAMLError.
    """
    open_parts: list[list[tuple[Any, Mark]]] = [[]]
    for event in events:
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _fault("anchors (&) and aliases (*) are not read; write the value out", event)
        if isinstance(event, yaml.CollectionStartEvent):
            if len(open_parts) > MAX_DEPTH:
                raise _fault(f"more than {MAX_DEPTH} levels of nesting", event)
            open_parts.append([])
        elif isinstance(event, yaml.CollectionEndEvent):
            parts = open_parts.pop()
            value = (_mapping(parts) if isinstance(event, yaml.MappingEndEvent)
                     else [part for part, _ in parts])
            open_parts[-1].append((value, event.start_mark))
        elif isinstance(event, yaml.ScalarEvent):
            if re.search(r"[\ud800-\udfff]", event.value):
                raise _fault("half a surrogate pair is not text", event)
            open_parts[-1].append((event.value.strip(), event.start_mark))
        elif isinstance(event, yaml.DocumentStartEvent) and open_parts[0]:
            raise _fault("a second document; a schema is one", event)
    return open_parts[0][0][0] if open_parts[0] else None


def _mapping(parts: list[tuple[Any, Mark]]) -> Json:
    mapping: Json = {}
    for (key, mark), (value, _) in zip(parts[::2], parts[1::2], strict=True):
        if not isinstance(key, str):
            raise yaml.MarkedYAMLError(problem="found unhashable key", problem_mark=mark)
        if key in mapping:
            raise yaml.MarkedYAMLError(problem=f"{quoted(key)} is given twice", problem_mark=mark)
        mapping[key] = value
    return mapping


def _fault(problem: str, event: yaml.Event) -> yaml.MarkedYAMLError:
    mark: Mark = event.start_mark
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}
LONGEST_LINE = 2**24
"""The bytes of a line, at most: one that never ends would fill the memory."""
MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32",
         codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
"""The encodings that the first bytes of a file identify."""
WESTERN = "cp1252"
"""The encoding of texts that are not UTF-8."""
WIDE_ENDS = {"utf-16-le": b"\n\0", "utf-16-be": b"\0\n", "utf-32-le": b"\n\0\0\0",
             "utf-32-be": b"\0\0\0\n"}
"""How a line ends in the encodings whose characters have several bytes each."""
WIDE = ("utf-16", "utf-32", *WIDE_ENDS)
"""Encodings in which a byte too many moves all bytes after it: they are read strictly."""
STATEFUL = ("hz", "iso2022", "utf-7")
"""Beginnings of encodings in which a byte may change what all after it in a line mean."""
BEFORE_HEADER = 1000
"""Empty lines that are skipped for the header, at most."""
ENCODING = "file.encoding"
"""The entry of `read_from_data` for an encoding that a draft read from rows."""


@dataclasses.dataclass(frozen=True)
class Dialect:
    """How a CSV file is written. Nothing of it is published.

    Attributes:
        separator: The name of the sign between cells, of `SEPARATORS`.
        encoding: The name of the encoding, as Python knows it.
        errors: What happens to bytes that are none of the encoding: `strict`, an error, or
            `replace`, by a sign for them.
        multiline: Whether a cell in quotes may hold line ends. Then a quote that one record leaves
            open takes others into its cell, so that a schema with it is `uncovered`.
    """

    separator: str = "comma"
    encoding: str = "utf-8"
    errors: str = "strict"
    multiline: bool = False

    @property
    def entries(self) -> dict[str, str]:
        """The entries that a schema has for it: those that are not the default."""
        return {field.name: "true" if value is True else value
                for field in dataclasses.fields(self)
                if (value := getattr(self, field.name)) != field.default}


DEFAULT_DIALECT = Dialect()


def declared_dialect(entries: object) -> Dialect:
    """Returns the dialect that a schema declares in its block `file`."""
    known = [field.name for field in dataclasses.fields(Dialect)]
    if not isinstance(entries, dict) or not all(isinstance(v, str) for v in entries.values()):
        raise UserError("file is not a block of entries; write {separator: semicolon}")
    for key in entries:
        if key not in known:
            raise UserError(f"file: unknown key {key!r}{nearest(key, known)}; known: "
                            f"{', '.join(known)}")
    spans = entries.get("multiline", "false")
    if spans not in ("true", "false"):
        raise UserError(f"file: multiline is {spans!r}; write true or false")
    made = Dialect(**entries | {"multiline": spans == "true"})
    names = {sign: name for name, sign in SEPARATORS.items()}
    made = dataclasses.replace(made, separator=names.get(made.separator, made.separator))
    if made.errors not in ("strict", "replace"):
        raise UserError(f"file: errors is {made.errors!r}; write strict or replace")
    if made.separator not in SEPARATORS:
        raise UserError(f"file: separator is {made.separator!r}; known: {', '.join(SEPARATORS)}")
    if not _is_known(made.encoding):
        raise UserError(f"file: encoding {made.encoding!r} is not known; utf-8, utf-16 and cp1252 "
                        "are")
    if made.errors == "replace" and not replaces(made.encoding):
        raise UserError(f"file: errors: replace is not for {made.encoding}, in which one wrong "
                        "byte changes what the bytes after it mean; leave errors out, or save the "
                        "file as UTF-8")
    return made


def _is_known(encoding: str) -> bool:
    """Returns whether Python knows an encoding of texts whose lines can be found (`WIDE_ENDS`)."""
    try:
        if not codecs.lookup(encoding).encode("a")[0] or not "a".encode(encoding):
            return False
        # The dots keep out idna, which is for names of hosts.
        return _named(encoding) in WIDE or "..\n".encode(_named(encoding)) == b"..\n"
    except (LookupError, TypeError, ValueError):
        return False


def _named(encoding: str) -> str:
    """Returns Python's name of an encoding; UTF-8 may always begin with its mark."""
    name = codecs.lookup(encoding).name
    return "utf-8" if name == "utf-8-sig" else name


def replaces(encoding: str) -> bool:
    """Returns whether wrong bytes may be replaced one by one in an encoding that is known."""
    return _named(encoding) not in WIDE and not _named(encoding).startswith(STATEFUL)


def of_lines(encoding: str, start: bytes) -> str:
    """Returns the encoding by which each line of a file is decoded by itself: one without a mark.

    The file begins with the bytes `start`. A UnicodeError where the mark is missing that says how
    UTF-16 or UTF-32 is written.
    """
    name = _named(encoding)
    if name not in ("utf-16", "utf-32"):
        return name
    for order in ("le", "be"):
        if start.startswith("\ufeff".encode(f"{name}-{order}")):
            return f"{name}-{order}"
    raise UnicodeError(f"no {name}")


def detected(text: bytes) -> Dialect:
    """Returns how a text is written, as far as it can be recognised.

    Its first line decides the separator.
    """
    encoding = next((name for mark, name in MARKS.items() if text.startswith(mark)), "")
    if not encoding:
        start = text[:4096]
        if start[1::2].count(0) > len(start) / 4 or start[::2].count(0) > len(start) / 4:
            encoding = "utf-16-le" if start[1::2].count(0) > start[::2].count(0) else "utf-16-be"
        else:
            try:
                text.decode("utf-8")
                encoding = "utf-8"
            except UnicodeDecodeError:
                encoding = WESTERN
    lines = text[:2**20].decode(encoding, "replace").lstrip("\ufeff\r\n").splitlines() or [""]
    counts = {name: lines[0].count(sign) for name, sign in SEPARATORS.items()}
    return Dialect(max(counts, key=lambda name: counts[name]), encoding)


def dialect_of_header(path: Path) -> Dialect:
    """Returns how a file is written, by its header only, which is public.

    No row may decide how others are read. So bytes that do not fit are replaced one by one, and in
    an encoding where that cannot be done they are an error.
    """
    with files.opened(path) as file:
        lines = iter(functools.partial(file.readline, LONGEST_LINE), b"")
        line = next((line for line in itertools.islice(lines, BEFORE_HEADER)
                     if line.strip(b"\r\n")), b"")
    made = detected(line)
    return dataclasses.replace(
        made, errors="replace" if replaces(made.encoding) else "strict")


def dialect_fault(line: bytes, number: int, dialect: Dialect, error: UnicodeError) -> str:
    """Returns where a line is not of its encoding, and the mend.

    Args:
        line: The bytes of the line.
        number: Its number, from 1.
        dialect: How its file is said to be written.
        error: The error of its decoding.
    """
    is_wide = _named(dialect.encoding) in WIDE
    other = dialect.encoding if is_wide and number > 1 else detected(line).encoding
    mend = "save the file as UTF-8" if other == dialect.encoding else (
        f"save it as UTF-8, or declare file: {{encoding: {other}}} in a schema")
    if is_wide:
        return (f"line {number}: no {dialect.encoding}: a byte there is missing or superfluous, or "
                f"the file has another encoding; correct the line, or {mend}")
    if not isinstance(error, UnicodeDecodeError):
        return f"line {number}: no {dialect.encoding}; {mend}"
    cell = line[:error.start].count(SEPARATORS[dialect.separator].encode()) + 1
    return (f"line {number}, cell {cell}: byte 0x{line[error.start]:02x} is not "
            f"{dialect.encoding}; {mend}")


MAX_CLASSES = 1000  # of a label: training and evaluation class by class grow with them


def label_position(label: object, columns: Sequence[Column]) -> int:
    """Returns the position of the label among all columns: a column of classes."""
    names = [column.name for column in columns]
    if not isinstance(label, str) or label not in names:
        problem = f"label {label!r} is not a column{nearest(str(label), names)}" if label else \
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


def declared_targets(names: object, columns: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the columns that an evaluation predicts, each once."""
    if not isinstance(names, list):
        raise UserError("targets is not a list; write [COLUMN, ...]")
    for name in map(str, names):
        if name not in columns:
            raise UserError(f"target {name!r} is not a column{nearest(name, columns)}; known: "
                            f"{listed(columns)}")
    return tuple(dict.fromkeys(map(str, names)))


PACKAGED = Path(__file__).parent.parent / "schemas"
NAMES = tuple(sorted(path.stem for path in PACKAGED.glob("*.yaml")))
TOP = ("name", "file", "label", "targets", "columns", "default", "constraints", "read_from_data",
       "bought")
TERMS = {"min": "bounds", "max": "bounds", "nullable": "nullability", "special": "special values",
         "kind": "kinds", "odd": "odd values", "dtype": "types", "zone": "format",
         "decimal_mark": "format", "thousands": "format", "unit": "format", "decimals": "format"}
BUYABLE = ("bounds", "categories")
DECLARE = "in the schema, by what is known without the data, and remove it from read_from_data"

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
    dialect: Dialect = DEFAULT_DIALECT


def read(source: str) -> Schema:
    """Reads a schema: a file, or a packaged schema (`NAMES`) where there is no such file.

    The order of its columns is the order of the table, whatever the order in a CSV file. All values
    are read as text: a category `1` is the text 1, and `yes` stays yes. A UserError names the
    column and the mend.
    """
    if source in NAMES and not Path(source).is_file():
        return packaged(source)
    return parse(document(source), source)


def of(source: str | Path | Mapping[str, Any] | Schema) -> Schema:
    """Returns the schema that a caller of Python gave.

    It is the path of a file, the name of a packaged schema, a dict as such a file holds it (numbers
    and truth values may be Python's), or a schema.
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
    """Refuses to buy entries from a file whose cells may hold line ends."""
    if dialect.multiline:
        raise UserError(f"{name}: {MULTILINE[0]}, so that nothing can be bought; declare "
                        f"{MULTILINE[1]}, or declare every entry (nothing was spent)")


def texts(value: object) -> Any:
    """Returns a document of Python's values as one of texts, as `yaml_document` reads it."""
    if isinstance(value, Mapping):
        return {str(key): texts(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [texts(part) for part in value]
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).strip()


def document(source: str) -> Any:
    """Reads a schema as texts, with the categories that lie in files of their own, unchecked."""
    loaded = yaml_document(source)
    columns = loaded.get("columns") if isinstance(loaded, dict) else None
    for entries in columns.values() if isinstance(columns, dict) else ():
        match entries:
            case {"categories": {"file": str(place), **more}} if not more:
                entries["categories"] = _category_lines(_beside(source, place))
    stated = loaded.get("constraints") if isinstance(loaded, dict) else None
    if isinstance(loaded, dict) and isinstance(stated, list):
        loaded["constraints"] = [_with_file(rule, source) for rule in stated]
    return loaded


def _with_file(rule: Any, source: str) -> Any:
    """Returns a rule with the combinations that lie in a file."""
    if not isinstance(rule, str) or " in file " not in rule:
        return rule
    names, place = rule.split(" in file ", 1)
    return rules.listing(names, _category_lines(_beside(source, place)))


def _beside(source: str, place: str) -> Path:
    """Returns a file that a schema names: in the folder of the schema, or else where it says."""
    beside = locate(source).parent / place
    return beside if beside.is_file() else locate(place)


def _category_lines(path: Path) -> list[str]:
    try:
        text = files.read_bytes(path, MOST_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} cannot be read ({error}); give a text file in UTF-8 with "
                        "a category a line") from error
    return [line.strip() for line in text.splitlines() if line.strip()]


def packaged(name: str) -> Schema:
    """Reads the schema of a public data set, one of `NAMES`."""
    return parse(yaml_document(str(PACKAGED / f"{name}.yaml")), name)


def parse(document: object, name: str) -> Schema:
    """Checks a document of texts, as `yaml_document` reads it; errors begin with its name."""
    try:
        return _parse(document)
    except UserError as error:
        raise UserError(f"{name}: {error}") from error


def _parse(document: object) -> Schema:
    if not isinstance(document, dict) or not isinstance(document.get("columns"), dict):
        raise UserError("a schema has `columns:`, with one entry a column, and `label: NAME` where "
                        "rows have classes")
    for key in document:
        if key not in TOP:
            raise UserError(f"unknown key {key!r}{nearest(key, TOP)}; known: {', '.join(TOP)}")
    if "default" in document:
        raise UserError("default is for a table whose columns are known; declare each column here")
    entries, names = document["columns"], list(document["columns"])
    _require_decided(entries)
    apart = {name for name in names if kind_of(name, entries[name]) in UNREAD}
    left_out: list[str] = []
    identifiers: list[Identifier] = []
    for i, name in enumerate(names):
        made = unread(name, entries[name], i - len(left_out)) if name in apart else None
        identifiers += [made] if made else []
        left_out += [name] * (name in apart and made is None)
    columns = [column(name, entries[name]) for name in names if name not in apart]
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
        raise UserError("read_from_data is not a list; write [COLUMN.min, COLUMN.max, ...]")
    uncovered = [Uncovered(f"{sort} of {columns} read from private data",
                           DECLARE + _buy() * (sort in BUYABLE))
                 for sort, columns in _grouped(read_entries, names)]
    dialect = declared_dialect(document.get("file", {}))
    if dialect.multiline:
        uncovered.append(Uncovered(*MULTILINE))
    notes = _bought_notes(rows, names)
    if label == NO_LABEL:
        notes.append("no label is declared: all rows are of one class")
    predicted = declared_targets(document.get("targets", []), [column.name for column in columns])
    stated = document.get("constraints", [])
    if not isinstance(stated, list) or not all(isinstance(text, str) for text in stated):
        raise UserError("constraints is not a list; write one per line, as - a <= b")
    spec = TableSpec(features, label, position, tuple(identifiers), tuple(dict.fromkeys(stated)),
                     predicted, left_out=tuple(left_out))
    spec = dataclasses.replace(spec, derived=constraints.determined_names(spec))
    constraints.check(spec)
    spec = dataclasses.replace(spec, gaps=constraints.determined_gaps(spec))
    return Schema(spec, others, odd, tuple(notes), tuple(purchases(rows)), tuple(uncovered),
                  str(document.get("name", "")), dialect)


def _require_decided(columns: Json) -> None:
    """Refuses a draft of which some columns have no kind yet, and names all of them."""
    names = [name for name, entries in columns.items()
             if isinstance(entries, dict) and entries.get("kind") == UNDECIDED]
    if names:
        raise UserError(f"the kind of {listed(names)} is still `?`: write the entries of "
                        f"{'this column' if len(names) == 1 else 'these columns'}, as the draft "
                        "suggests, or kind: left_out")


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
    if not isinstance(rows, list) or not all(
            isinstance(row, dict) and not isinstance(row.get("records"), list | dict)
            for row in rows):
        raise UserError("bought is not a list of purchases; leave this block as it was written")
    return [{key: _plain(value) for key, value in row.items()} for row in rows]


def _entries(row: Json) -> list[Any]:
    """Returns the entries that a purchase is of: one, or a list of them."""
    entry = row.get("entry", "")
    return entry if isinstance(entry, list) else [entry]


def _bought_notes(rows: list[Json], names: list[str]) -> list[str]:
    """Returns the lines on purchases, and on the columns that are declared without one."""
    notes = []
    for n in dict.fromkeys(row.get("records") for row in rows):  # None of an earlier version
        source = "on the same records" if n is None else (
            f"from {n:,} records" if isinstance(n, int) else f"from {n} records")
        entries = [entry for row in rows if row.get("records") == n for entry in _entries(row)]
        notes += [f"bought under differential privacy {source}: {sort} of {columns}"
                  for sort, columns in _grouped(entries, names)]
    bought = {str(entry) for row in rows for entry in _entries(row)}
    others = [name for name in names if f"{name}.kind" not in bought]
    if 0 < len(others) < len(names):
        notes.append(f"declared without the records: {listed(others)}")
    return notes


def purchases(rows: Any) -> list[Json]:
    """Returns the events of a document's `bought`, as `Schema.bought` has them."""
    return [{key: value for key, value in row.items() if key != "entry"} for row in _bought(rows)]


def _plain(text: Any) -> Any:
    """Returns the number that a text is, whole if it is written so; else the text."""
    value = None if isinstance(text, (list, dict)) else transform.number(str(text))
    if value is None:
        return text
    return int(text) if str(text).lstrip("+-").isdigit() else value


def _buy() -> str:
    """How to buy an entry that was read from the records."""
    return (", or write `private` in its place and buy it with `python -m dpgen_jax.schema` and "
            f"{option('schema_epsilon')}")
