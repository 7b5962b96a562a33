"""Entries of a table's schema that are bought under differential privacy.

The journal knows of a purchase before anything is drawn for it. The schema file holds its events,
and every run on the same records charges them.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dpgen_jax.accountant import events
from dpgen_jax.accountant.events import Events
from dpgen_jax.accountant.rounding import add_up
from dpgen_jax.aggregation import schema_queries
from dpgen_jax.aggregation.bits import OsBits
from dpgen_jax.core.config import Budget
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.terms import Relation, Unit
from dpgen_jax.core.types import Column, Private, UserError
from dpgen_jax.data import column_types, forms, parsing, schema, schema_columns
from dpgen_jax.data.draft_columns import numbers, ordered
from dpgen_jax.data.parsing import Cells
from dpgen_jax.run import side_releases, spending

OTHER = "other"
"""the category of undeclared texts"""
LEAST_CLASSES = 2
"""The classes of a label, at least."""


@dataclasses.dataclass(frozen=True)
class Price:
    """The privacy that all entries of a schema may cost together.

    Attributes:
        epsilon: Split evenly over the entries.
        delta: Split evenly over the entries that are categories.
    """

    epsilon: float
    delta: float


Charge = Callable[[Events], Events]
"""Remembers events before anything is drawn, and returns them with the name of who buys."""


def buy(draft: Any, cells: Cells, price: Price, source: str, charge: Charge) -> Json:
    """Buys every entry `private` of a draft.

    Args:
        draft: The document of the draft.
        cells: The cells of the CSV file.
        price: The cost of all entries together.
        source: The name of the draft, for messages.
        charge: Is called once, before anything is drawn.

    Returns:
        The document, with the value of each entry, and its event in `bought`. An entry of which no
        value came out is still `private`; a label of fewer than two classes is a column as any
        other, and rows have no label.

    Raises:
        UserError: Where the draft, the data or the price do not fit, before anything is spent.
    """
    entries = _private_entries(draft)
    columns = _check(draft, entries, cells, price, source)
    document = copy.deepcopy(draft)
    epsilon = price.epsilon / len(entries)
    delta = price.delta / max(1, list(entries.values()).count("categories"))
    paid = charge(tuple((_event(what, epsilon, delta), 1) for what in entries.values()))
    for (name, what), charged in zip(entries.items(), paid, strict=True):
        entry: str | list[str] = []
        with contextlib.suppress(UserError):  # no bounds came out, and what is bought is kept
            values = _buy(columns[name], what, name == document.get("label"), cells, epsilon, delta)
            made = document["columns"][name] | values
            if name == document.get("label") and "other" in values:
                del document["label"]
                made |= {"odd": OTHER} if "odd" in made else {}
            document["columns"][name] = _of_a_type_that_fits(name, made)
            entry = f"{name}.{what}"
        (row,) = events.to_json((charged,))
        document.setdefault("bought", []).append(
            {"entry": entry, "records": len(cells.rows), **row})
    no_longer = {f"{name}.{entry}" for name in entries for entry in _private(draft, name)}
    document["read_from_data"] = [entry for entry in draft.get("read_from_data", [])
                              if entry not in no_longer]
    return document


def remembered(bought: Events, content: Private[str], out: Path, log: Callable[[str], None]
               ) -> Events:
    """Tells the journal of a purchase, before anything is drawn for it.

    Args:
        bought: Its events.
        content: A sealed digest of the data; of an empty text, where it is not known.
        out: The file that is to hold what is bought.
        log: Tells the data holder alone what was spent on these records before.

    Returns:
        The events, with the name of this purchase.

    Raises:
        UserError: The journal cannot be written, or is damaged.
    """
    pairs = events.of_kind(events.EpsilonDeltaEvent, bought)
    epsilon = add_up((event.epsilon, count) for event, count in pairs)
    delta = add_up((event.delta, count) for event, count in pairs)
    promise = spending.Promise(Relation.REPLACE_ONE, Unit.RECORD, "")
    start = spending.Start(Budget(epsilon, delta), guarantee=True)
    name = secrets.token_hex(16)
    with spending.before(spending.Identity(None, content), promise, start, log) as witness:
        witness(spending.Purchase(name, out)).bought(
            {"unit": promise.unit, "relation": promise.relation, "delta": delta}, epsilon)
    return side_releases.named(bought, name)


def _event(what: str, epsilon: float, delta: float) -> events.Event:
    """The cost of the entries of one column."""
    return (schema_queries.bounds_event(epsilon) if what == "bounds" else
            schema_queries.categories_event(epsilon, delta))


def _buy(column: Column, what: str, is_label: bool, cells: Cells, epsilon: float, delta: float
         ) -> Json:
    """The bought entries of one column."""
    if what == "bounds":
        codes = parsing.parse(column, cells)
        values = Private(np.where(np.isin(codes, column.special), np.nan, codes))
        low, high = schema_queries.bounds(values, epsilon, OsBits())
        return _bounds(column, *column_types.clipped(column.dtype, low, high))
    texts = Private([None if text in schema_columns.NULLS else text
                     for text in cells.columns[column.name]])
    released = schema_queries.categories(texts, epsilon, delta, OsBits())
    return _categories(released, is_label)


def _bounds(column: Column, low: float, high: float) -> dict[str, str]:
    """The entries of bounds that were bought, as a schema has them."""
    if column.written != "plain":
        return dict(zip(schema_columns.NUMBER, forms.bounds_texts(column, low, high), strict=True))
    made = numbers(low, high, column.kind == "integer")
    if column.decimals < 0:
        return made
    size = 10.0**column.decimals
    return made | {"min": f"{math.floor(low * size) / size:.{column.decimals}f}",
                   "max": f"{math.ceil(high * size) / size:.{column.decimals}f}"}


def _of_a_type_that_fits(name: str, entries: Json) -> Json:
    """The entries of a column, without a type that does not hold the values that were bought."""
    try:
        schema_columns.column(name, entries)
    except UserError:
        return {key: value for key, value in entries.items() if key != "dtype"}
    return entries


def _private(draft: Json, name: str) -> set[str]:
    """The entries of a column that hold the word `private`."""
    entries = draft["columns"][name]
    return {key for key in (*schema_columns.NUMBER, *schema_columns.CATEGORY)
            if isinstance(entries, dict) and entries.get(key) == schema_columns.PRIVATE}


def _private_entries(draft: Any) -> dict[str, str]:
    """Column -> "bounds" or "categories", for each that holds the word `private`."""
    columns = draft.get("columns") if isinstance(draft, dict) else None
    entries: dict[str, str] = {}
    if not isinstance(columns, dict):
        columns = {}
    for name in columns:
        private = _private(draft, name)
        if len(private) == 1 and private < set(schema_columns.NUMBER):
            raise UserError(f"column {name}: min and max are bought together; write `private` for "
                            "both, or declare both")
        if private == {"categories"} and columns[name].get("kind") == "ordinal":
            raise UserError(f"column {name}: an order cannot be bought; declare the categories, or "
                            "make the column categorical")
        if private:
            entries[name] = "bounds" if private == set(schema_columns.NUMBER) else "categories"
    if not entries:
        raise UserError("the draft holds no entry `private`; there is nothing to buy")
    return entries


def _check(draft: Json, entries: dict[str, str], cells: Cells, price: Price,
           source: str) -> dict[str, Column]:
    """Finds all that can be wrong before anything is spent, and returns the columns by name.

    It looks at the declared part of the draft, at the price, and at the data against both.
    """
    if not 0 < price.epsilon < math.inf:
        raise UserError(f"--schema-epsilon {price.epsilon}; give a finite number above 0")
    needs_delta = "categories" in entries.values()
    if needs_delta != (price.delta > 0) or not 0 <= price.delta < 1:
        raise UserError(f"--schema-delta {price.delta}: categories need one above 0 and "
                        "below 1, as 1e-6" if needs_delta else
                        "--schema-delta is for categories only; drop the option")
    trial = copy.deepcopy(draft)
    types = {name: trial["columns"][name].pop("dtype", "") for name, what in entries.items()
             if what == "categories"}
    for name, what in entries.items():
        trial["columns"][name] |= (schema_columns.placeholders(name, trial["columns"][name])
                                   if what == "bounds" else
                                   {"categories": ["a", OTHER], **(
                                       {} if name == draft.get("label") else {"other": OTHER})})
    parsed = schema.parse(trial, source)
    columns = {column.name: column for column in parsed.spec.all_columns}
    for name, dtype in types.items():
        if dtype:
            column_types.check_name(dataclasses.replace(columns[name], dtype=dtype))
    others = {name: OTHER for name, what in entries.items() if what == "categories"}
    parsing.coded(dataclasses.replace(parsed, others={**parsed.others, **others}), cells)
    return columns


def _categories(released: tuple[str, ...], is_label: bool) -> Json:
    """The entries of a column of categories.

    Rare texts are not released, so undeclared ones need a place; a label with classes has none.
    """
    if is_label and len(released) >= LEAST_CLASSES:
        return {"categories": ordered(released)}
    return {"categories": [*ordered(set(released) - {OTHER}), OTHER], "other": OTHER}


def without_value(document: Json) -> tuple[str, ...]:
    """Returns the names of the columns that still have an entry `private`.

    Args:
        document: A schema, as `buy` returns it.
    """
    return tuple(name for name in document["columns"] if _private(document, name))
