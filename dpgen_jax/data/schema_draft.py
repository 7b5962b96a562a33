"""A draft of a table's schema: what is read from the data, and how a schema is written.

A draft says of every entry that it was read from private records. An entry that is replaced by the
word `private` can be bought under differential privacy instead (`run.schema_purchase`).
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping

import yaml

from dpgen_jax.core.console import tell
from dpgen_jax.core.errors import UserError, nearest
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import NO_LABEL, Column, TableSpec
from dpgen_jax.data import column_types, forms, schema
from dpgen_jax.data.base import listed, quoted
from dpgen_jax.data.dialect import ENCODING
from dpgen_jax.data.draft_columns import entries
from dpgen_jax.data.parsing import Cells
from dpgen_jax.data.schema_columns import IDENTIFIER, NULLS, column

HEADER = """\
# The schema of {source}: edit it, then pass it with --schema.
# Replace an entry by what you know without the data and remove it from read_from_data, or write
# `private` in its place (min and max together, or categories) and buy it:
#   python -m dpgen_jax.schema {source} --schema THIS --schema-epsilon E --out NEW"""
LEAKS = """\
# KEEP IT PRIVATE: entries read from private records are covered by no epsilon. A run refuses them,
# or with --accept-uncovered it publishes them, and its statement says so."""
NEARLY_ALL = 0.9
"""The share of cells that are numbers, from which a text among them is pointed out."""
READ = "  # read from private data"
PAID = "  # bought under differential privacy"
BOUGHT = "# Leave `bought` as it is: every training run with this schema charges it."


def draft(cells: Cells, label: str | None, described: Mapping[str, Json] | None = None,
          types: Mapping[str, str] | None = None) -> Json:
    """Drafts a schema whose kinds, bounds, categories and nulls are READ FROM THE DATA.

    Args:
        cells: The cells of a CSV file.
        label: The column of the classes; None for rows without classes.
        described: Entries of columns that are known without the data.
        types: The types in which columns came, by name (`column_types`).

    Returns:
        The document, whose `read_from_data` lists what was read.

    Raises:
        UserError: Naming the column at fault.
    """
    if label is not None and label not in cells.columns:
        raise UserError(f"--label {label}: no such column{nearest(label, cells.columns)}; known: "
                        f"{listed(cells.columns)}")
    if not cells.rows:
        raise UserError(f"{cells.source}: no rows; at least 1 is needed")
    known, came = described or {}, types or {}
    columns = {name: _described(name, texts, name == label, known.get(name, {}), came.get(name, ""))
               for name, texts in cells.columns.items()}
    read = [f"{name}.{entry}" for name, made in columns.items() for entry in made
            if (name, entry) != (label, "kind") and made[entry] != known.get(name, {}).get(entry)]
    document = ({} if label is None else {"label": label}) | {
        "columns": columns, "read_from_data": [*[ENCODING] * cells.rows_told, *read]}
    if cells.dialect.entries:
        document = {"file": cells.dialect.entries} | document
    schema.parse(document, cells.source)
    for name in columns:
        if name != label and columns[name]["kind"] == "categorical" and name not in known:
            _point_out_odd_cells(name, cells)
    return document


def _point_out_odd_cells(name: str, cells: Cells) -> None:
    """Points out, to the data holder, a text that makes categories of a column of numbers."""
    texts = cells.columns[name]
    odd = [i for i, text in enumerate(texts) if text not in NULLS and forms.number(text) is None]
    numbers = sum(text not in NULLS for text in texts) - len(odd)
    if odd and numbers >= NEARLY_ALL * (numbers + len(odd)):
        tell(f"private: {cells.source}, {cells.rows[odd[0]]}: column {name} is drafted as "
             f"categories, since {quoted(texts[odd[0]])} is no number, as nearly all other cells "
             "are; if it should be none, empty the cell, or declare kind: integer or continuous, "
             "with nullable: true and odd: null", sys.stderr)


def with_durations(names: Iterable[str]) -> TableSpec:
    """Returns a schema by which the durations of typed cells become texts of the default format.

    Args:
        names: The columns, whose durations are whole seconds.
    """
    form = forms.DEFAULTS["duration"]
    return TableSpec(tuple(Column(name, "continuous", written="duration", format=form)
                           for name in names), NO_LABEL, 0)


def _described(name: str, texts: list[str], is_label: bool, known: Json, dtype: str) -> Json:
    """Returns the entries of a column, of which the cells are read for what is not known."""
    made = _of_cells(name, texts, is_label, known, dtype)
    return made | _typed(name, made, dtype) if dtype else made


def _of_cells(name: str, texts: list[str], is_label: bool, known: Json, dtype: str) -> Json:
    """Returns such entries but for the type."""
    if "categories" in known:
        null = "true" if any(text in NULLS for text in texts) else "false"
        return {"kind": "categorical"} | ({} if is_label else {"nullable": null}) | known
    read = entries(name, texts, is_label, dtype)
    if read["kind"] == "continuous" and column_types.is_whole(dtype):
        return read | known | {"kind": "continuous"}  # of a range too large for an integer
    made = read | known
    if "kind" in known and "decimals" not in known:
        made.pop("decimals", None)  # of texts that were made of numbers
    return made


def _typed(name: str, made: Json, dtype: str) -> Json:
    """Returns the entries by which a column comes out in the type in which it came in."""
    if made["kind"] == IDENTIFIER:
        return {"dtype": dtype} if dtype == "string" else {}
    more = {}
    if made["kind"] == "continuous" and column_types.is_whole(dtype):
        more = {"decimals": "0"}  # whole numbers of a range too large for an integer
    declared = column_types.declared(column(name, made | more), dtype)
    return more | {"dtype": declared} if declared else {}


def render(document: Json, source: str, remark: str = "") -> str:
    """Writes a schema as YAML, with a comment beside each entry that comes from the records.

    Args:
        document: The schema.
        source: The name of the CSV file that it was drafted from.
        remark: What stands in front; by default how a draft is finished.
    """
    read, purchases = document.get("read_from_data", []), document.get("bought", [])
    from_data, paid = set(read), {entry for row in purchases for entry in (
        row["entry"] if isinstance(row["entry"], list) else [row["entry"]])}
    warnings = [LEAKS] * bool(read) + [BOUGHT] * bool(purchases)
    written = [f"  {key}: {_text(value)}{READ * (f'file.{key}' in from_data)}"
               for key, value in document.get("file", {}).items()]
    above = "\n".join(f"# {line}" for line in remark.splitlines())
    lines = [above or HEADER.format(source=source), *warnings,
             *(["file:", *written] if written else []),
             *([f"name: {_text(document['name'])}"] if "name" in document else []),
             *([f"label: {_text(document['label'])}"] if "label" in document else []),
             *([f"targets: {_value(document['targets'])}"] if "targets" in document else []),
             "columns:"]
    for name, made in document["columns"].items():
        whole = f"{name}.kind" in paid
        lines.append(f"  {_text(name)}:{PAID * whole}")
        for key, value in made.items():
            spoken = f"{name}.{schema.TERMS.get(key, key)}"
            remark = (READ if f"{name}.{key}" in from_data else
                      PAID if spoken in paid and not whole else "")
            lines.append(f"    {key}: {_value(value)}{remark}")
    if document.get("constraints"):
        lines += ["constraints:", *(f"  - {_quoted(text)}" for text in document["constraints"])]
    if read:
        lines += ["read_from_data:", *(f"  - {_text(entry)}" for entry in read)]
    if purchases:
        lines += ["bought:", *(f"  - {{{', '.join(f'{k}: {_value(v)}' for k, v in row.items())}}}"
                               for row in purchases)]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_quoted(text) for text in value)}]"
    return _text(str(value))


def _text(text: str) -> str:
    return text if re.fullmatch(r"[+-]?\w[\w.+-]*", text, re.ASCII) else _quoted(text)


def _quoted(text: str) -> str:
    return yaml.safe_dump(text, default_style='"', allow_unicode=True, width=math.inf).strip()
