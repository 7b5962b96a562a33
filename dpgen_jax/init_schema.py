"""python -m dpgen_jax.train --init-schema DATA.csv --label COLUMN --out SCHEMA.yaml

Drafts a schema from the data, and says of every entry that it was read from private records. An
entry that is replaced by the word `private` is bought under differential privacy instead:

    python -m dpgen_jax.train --init-schema DATA.csv --schema DRAFT --schema-epsilon E --out NEW
"""

from __future__ import annotations

import copy
import dataclasses
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import tyro
import yaml

from dpgen_jax import cli, reading
from dpgen_jax.accountant import events
from dpgen_jax.aggregation import schema_queries
from dpgen_jax.aggregation.bits import OsBits
from dpgen_jax.data import parsing, schema, tables
from dpgen_jax.data.base import listed, locate, nearest
from dpgen_jax.data.parsing import Cells
from dpgen_jax.errors import UserError
from dpgen_jax.types import Column, Private

DESCRIPTION = ("Drafts the schema of a CSV file from its data, or buys the entries of a draft that "
               "hold the word `private`, under differential privacy.")
MAX_CATEGORIES = 100
OTHER = "other"
HEADER = """\
# The schema of {source}: edit it, then pass it with --schema.
# Replace an entry by what you know without the data and remove it from read_from_data, or write
# `private` in its place (min and max together, or categories) and buy it:
#   python -m dpgen_jax.train --init-schema {source} --schema THIS --schema-epsilon E --out NEW"""
LEAKS = """\
# KEEP IT PRIVATE: entries read from private records are covered by no epsilon. A run refuses them,
# or with --accept-uncovered it publishes them, and its statement says so."""
BOUGHT = "# Leave `bought` as it is: every training run with this schema charges it."

Say = Callable[[str], None]


def _flag(text: str) -> Any:
    return tyro.conf.arg(help=text)


@dataclasses.dataclass(frozen=True)
class Flags:
    """One of --label (draft) and --schema with --schema-epsilon (buy) is needed."""

    init_schema: Annotated[str, _flag("the CSV file")]
    out: Annotated[Path, _flag("the schema to write; must not exist")]
    label: Annotated[str | None, _flag("draft: the column of the classes")] = None
    schema: Annotated[str | None, _flag("buy: a draft, with `private` for what is bought")] = None
    schema_epsilon: Annotated[float | None, _flag("buy: split evenly over what is bought")] = None
    schema_delta: Annotated[float, _flag("buy: split evenly over bought categories")] = 0.0
    max_gb: Annotated[float | None, _flag("memory that reading may take; the machine's")] = None


def command(argv: list[str]) -> None:
    run(cli.parse(Flags, argv, "python -m dpgen_jax.train", DESCRIPTION))


def run(flags: Flags, say: Say = print) -> None:
    """Writes the schema to `out`, readable by its owner only, or nothing on an error.

    Errors: UserError, one line; it may quote the data. An `out` that exists is refused.
    """
    if flags.out.exists() or not flags.out.parent.is_dir():
        raise UserError(f"--out {flags.out} exists; give a new file" if flags.out.exists() else
                        f"--out {flags.out}: no folder {flags.out.parent}; make it first")
    buying = flags.schema is not None
    if (buying == (flags.label is not None) or buying != (flags.schema_epsilon is not None)
            or (flags.schema_delta and not buying)):
        raise UserError("give --label COLUMN to draft a schema, or --schema DRAFT with "
                        "--schema-epsilon E to buy its private entries")
    with reading.limited(flags.max_gb):
        cells = tables.read(locate(flags.init_schema))
    made = (_finish(schema.document(flags.schema), cells, flags) if buying
            else draft(cells, flags.label))
    text = _render(made, flags.init_schema)
    flags.out.touch(mode=0o600, exist_ok=False)
    flags.out.write_text(text, "utf-8")
    written = schema.read(str(flags.out))
    for line in (*(f"not covered by epsilon: {entry.what}" for entry in written.uncovered),
                 *written.notes):
        say(f"note: {line}")
    say(f"schema: {flags.out}")


def draft(cells: Cells, label: str) -> dict[str, Any]:
    """A schema document whose kinds, bounds, categories and nulls are READ FROM THE DATA, which
    its `read_from_data` lists. Errors: UserError naming the column."""
    if label not in cells.columns:
        raise UserError(f"--label {label}: no such column{nearest(label, cells.columns)}; known: "
                        f"{listed(cells.columns)}")
    columns = {name: _drafted(name, texts, name == label)
               for name, texts in cells.columns.items()}
    made = {"label": label, "columns": columns, "read_from_data": [
        f"{name}.{entry}" for name, entries in columns.items() for entry in entries
        if (name, entry) != (label, "kind")]}
    schema.parse(made, cells.source)
    return made


def _drafted(name: str, texts: list[str], is_label: bool) -> dict[str, Any]:
    present = [text for text in texts if text not in schema.NULLS]
    if not present or (is_label and len(present) < len(texts)):
        raise UserError(f"column {name} holds empty cells; every row needs its class" if present
                        else f"column {name} holds no values; remove it from the file")
    nullable = {} if is_label else {
        "nullable": "true" if len(present) < len(texts) else "false"}
    values = [schema.number(text) for text in present]
    if not is_label and None not in values:
        whole = all(value.is_integer() for value in values)
        return {**_numbers(min(values), max(values), whole), **nullable}
    categories = _ordered(present)
    if len(categories) > MAX_CATEGORIES:
        raise UserError(f"column {name} holds {len(categories)} different texts; remove it from "
                        "the file if it is an identifier or free text, or write its schema")
    return {"kind": "categorical", "categories": categories, **nullable}


def _ordered(texts: Iterable[str]) -> list[str]:
    """Each once, numbers by their value: 9 before 10."""
    return sorted(set(texts), key=lambda text: (schema.number(text) or 0.0, text))


def _numbers(low: float, high: float, whole: bool) -> dict[str, str]:
    """Kind and bounds: whole numbers that an integer column cannot tell apart are continuous."""
    if whole and schema.told_apart(math.floor(low), math.ceil(high)):
        return {"kind": "integer", "min": str(math.floor(low)), "max": str(math.ceil(high))}
    return {"kind": "continuous", "min": repr(float(low)), "max": repr(float(high))}


def _finish(held: Any, cells: Cells, flags: Flags) -> dict[str, Any]:
    """The document with every entry `private` bought: its value, and its event in `bought`."""
    wanted = _wanted(held)
    columns = _check_before(held, wanted, cells, flags)
    made = copy.deepcopy(held)
    epsilon = flags.schema_epsilon / len(wanted)
    delta = flags.schema_delta / max(1, list(wanted.values()).count("categories"))
    for name, what in wanted.items():
        try:
            entries, event = _buy(columns[name], what, name == made["label"], cells, epsilon, delta)
        except UserError as error:
            raise UserError(f"column {name}: {error} (count epsilon {flags.schema_epsilon:g} of "
                            "these records as spent)") from error
        made["columns"][name] |= entries
        (row,) = events.to_json(((event, 1),))
        made.setdefault("bought", []).append({"entry": f"{name}.{what}", **row})
    no_longer = {f"{name}.{entry}" for name in wanted for entry in _private(held, name)}
    made["read_from_data"] = [entry for entry in held.get("read_from_data", [])
                              if entry not in no_longer]
    return made


def _buy(column: Column, what: str, is_label: bool, cells: Cells, epsilon: float, delta: float
         ) -> tuple[dict[str, Any], events.Event]:
    """The bought entries of one column, and their event."""
    if what == "bounds":
        values = Private(parsing.parse(column, cells))
        bounds = schema_queries.bounds(values, epsilon, OsBits())
        return _numbers(*bounds, column.kind == "integer"), schema_queries.bounds_event(epsilon)
    texts = Private([None if text in schema.NULLS else text
                     for text in cells.columns[column.name]])
    found = schema_queries.categories(texts, epsilon, delta, OsBits())
    return _categories(found, is_label), schema_queries.categories_event(epsilon, delta)


def _categories(found: tuple[str, ...], is_label: bool) -> dict[str, Any]:
    """Rare texts are not released, so undeclared ones need a place; a label has none."""
    if is_label and len(found) < 2:
        raise UserError(f"{len(found)} classes came out and 2 are needed; declare them")
    if is_label:
        return {"categories": _ordered(found)}
    return {"categories": [*_ordered(set(found) - {OTHER}), OTHER], "other": OTHER}


def _private(held: dict[str, Any], name: str) -> set[str]:
    """The entries of a column that hold the word `private`."""
    entries = held["columns"][name]
    return {key for key in (*schema.NUMBER, *schema.CATEGORY)
            if isinstance(entries, dict) and entries.get(key) == schema.PRIVATE}


def _wanted(held: Any) -> dict[str, str]:
    """Column -> "bounds" or "categories", for each that holds the word `private`."""
    columns = held.get("columns") if isinstance(held, dict) else None
    wanted = {}
    for name in columns if isinstance(columns, dict) else ():
        private = _private(held, name)
        if len(private) == 1 and private < set(schema.NUMBER):
            raise UserError(f"column {name}: min and max are bought together; write `private` for "
                            "both, or declare both")
        if private == {"categories"} and columns[name].get("kind") == "ordinal":
            raise UserError(f"column {name}: an order cannot be bought; declare the categories, or "
                            "make the column categorical")
        if private:
            wanted[name] = "bounds" if private == set(schema.NUMBER) else "categories"
    if not wanted:
        raise UserError("the draft holds no entry `private`; there is nothing to buy")
    return wanted


def _check_before(held: dict[str, Any], wanted: dict[str, str], cells: Cells,
                  flags: Flags) -> dict[str, Column]:
    """Everything that can be wrong is found before anything is spent: the declared part of the
    draft, and the data against it. Returns the columns by name."""
    if not 0 < flags.schema_epsilon < math.inf:
        raise UserError(f"--schema-epsilon {flags.schema_epsilon}; give a finite number above 0")
    needs_delta = "categories" in wanted.values()
    if needs_delta != (flags.schema_delta > 0) or not 0 <= flags.schema_delta < 1:
        raise UserError(f"--schema-delta {flags.schema_delta}: categories need one above 0 and "
                        "below 1, as 1e-6" if needs_delta else
                        "--schema-delta is for categories only; drop the option")
    trial = copy.deepcopy(held)
    for name, what in wanted.items():
        trial["columns"][name] |= ({"min": "0", "max": "1"} if what == "bounds" else
                                   {"categories": ["a", OTHER], **(
                                       {} if name == held.get("label") else {"other": OTHER})})
    parsed = schema.parse(trial, flags.schema)
    others = {name: OTHER for name, what in wanted.items() if what == "categories"}
    parsing.coded(dataclasses.replace(parsed, others={**parsed.others, **others}), cells)
    return {column.name: column for column in (*parsed.spec.columns, parsed.spec.label)}


def _render(made: dict[str, Any], source: str) -> str:
    """The document as YAML, with a comment beside each entry that comes from the records."""
    read, purchases = made.get("read_from_data", []), made.get("bought", [])
    from_data, paid = set(read), {row["entry"] for row in purchases}
    warnings = [LEAKS] * bool(read) + [BOUGHT] * bool(purchases)
    lines = [HEADER.format(source=source), *warnings, f"label: {_text(made['label'])}", "columns:"]
    for name, entries in made["columns"].items():
        lines.append(f"  {_text(name)}:")
        for key, value in entries.items():
            spoken = f"{name}.{schema.SPOKEN.get(key, key)}"
            remark = ("  # read from private data" if f"{name}.{key}" in from_data else
                      "  # bought under differential privacy" if spoken in paid else "")
            lines.append(f"    {key}: {_value(value)}{remark}")
    if read:
        lines += ["read_from_data:", *(f"  - {_text(entry)}" for entry in read)]
    if purchases:
        lines += ["bought:", *(f"  - {{{', '.join(f'{k}: {_value(v)}' for k, v in row.items())}}}"
                               for row in purchases)]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_quoted(text) for text in value)}]"
    return _text(str(value))


def _text(text: str) -> str:
    return text if re.fullmatch(r"[+-]?\w[\w.+-]*", text, re.ASCII) else _quoted(text)


def _quoted(text: str) -> str:
    return yaml.safe_dump(text, default_style='"', allow_unicode=True, width=math.inf).strip()


def bought(rows: Iterable[dict[str, Any]]) -> events.Events:
    """What a schema cost, to be charged by a run on the same records: the events of the rows in
    `Schema.bought` or `Dataset.bought`. Errors: UserError where a row is no event."""
    try:
        return events.from_json(list(rows))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError("the schema's block `bought` was changed; finish the draft again, or "
                        "declare its entries") from error
