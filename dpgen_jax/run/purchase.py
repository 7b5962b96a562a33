"""Entries of a table's schema that are bought under differential privacy, and their price.

There are two ways to buy. `buy_entries` buys the entries of a draft that are marked `private`.
`buy_schema` buys a schema that nobody declared: kinds, nulls, bounds, names. For it the header of
the table is public. All counts come from one `Survey`, and everything else is computed from its
noisy counts: once it is charged, no message and no error depends on a record.

The journal records a purchase before anything is drawn for it. The schema file lists its events,
and every run on the same records charges them.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri

from dpgen_jax.accountant import composition, events
from dpgen_jax.accountant.events import Events, add_up, to_json
from dpgen_jax.aggregation import single_releases
from dpgen_jax.aggregation.noise import MAX_SIGMA, MIN_SIGMA, BitSource, OsBits, RoundedGaussian
from dpgen_jax.aggregation.single_releases import KINDS, NAMES, Survey
from dpgen_jax.core.config import Budget
from dpgen_jax.core.console import program
from dpgen_jax.core.errors import option
from dpgen_jax.core.files import Json
from dpgen_jax.core.terms import Relation, Unit, at_most
from dpgen_jax.core.types import Column, Private, UserError
from dpgen_jax.data.table import columns as table_columns
from dpgen_jax.data.table import parsing, readings, schema, transform
from dpgen_jax.data.table.columns import NULLS
from dpgen_jax.data.table.columns import column as checked
from dpgen_jax.data.table.draft import AMONG, MAX_CATEGORIES, SPIKE, TAIL, drafted_numbers, ordered
from dpgen_jax.data.table.parsing import Cells
from dpgen_jax.data.table.readings import READINGS, SIGNED, YEARS, Reading
from dpgen_jax.data.table.schema import MAX_CLASSES
from dpgen_jax.run import side_releases, spending
from dpgen_jax.run.side_releases import without_name

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


def buy_entries(draft: Any, cells: Cells, price: Price, source: str, charge: Charge) -> Json:
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
        log: Tells only the data holder what was spent on these records before.

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
    return (single_releases.bounds_event(epsilon) if what == "bounds" else
            single_releases.categories_event(epsilon, delta))


def _buy(column: Column, what: str, is_label: bool, cells: Cells, epsilon: float, delta: float
         ) -> Json:
    """The bought entries of one column."""
    if what == "bounds":
        codes = parsing.parse(column, cells)
        values = Private(np.where(np.isin(codes, column.special), np.nan, codes))
        low, high = single_releases.bounds(values, epsilon, OsBits())
        return _bounds(column, *table_columns.clipped_to_type(column.dtype, low, high))
    texts = Private([None if text in table_columns.NULLS else text
                     for text in cells.columns[column.name]])
    released = single_releases.categories(texts, epsilon, delta, OsBits())
    return _categories(released, is_label)


def _bounds(column: Column, low: float, high: float) -> dict[str, str]:
    """The entries of bounds that were bought, as a schema has them."""
    if column.written != "plain":
        ends = transform.bounds_texts(column, low, high)
        return dict(zip(table_columns.NUMBER, ends, strict=True))
    made = drafted_numbers(low, high, column.kind == "integer")
    if column.decimals < 0:
        return made
    size = 10.0**column.decimals
    return made | {"min": f"{math.floor(low * size) / size:.{column.decimals}f}",
                   "max": f"{math.ceil(high * size) / size:.{column.decimals}f}"}


def _of_a_type_that_fits(name: str, entries: Json) -> Json:
    """The entries of a column, without a type that does not hold the values that were bought."""
    try:
        table_columns.column(name, entries)
    except UserError:
        return {key: value for key, value in entries.items() if key != "dtype"}
    return entries


def _private(draft: Json, name: str) -> set[str]:
    """The entries of a column that hold the word `private`."""
    entries = draft["columns"][name]
    return {key for key in (*table_columns.NUMBER, *table_columns.CATEGORY)
            if isinstance(entries, dict) and entries.get(key) == table_columns.PRIVATE}


def _private_entries(draft: Any) -> dict[str, str]:
    """Column -> "bounds" or "categories", for each that holds the word `private`."""
    columns = draft.get("columns") if isinstance(draft, dict) else None
    entries: dict[str, str] = {}
    if not isinstance(columns, dict):
        columns = {}
    for name in columns:
        private = _private(draft, name)
        if len(private) == 1 and private < set(table_columns.NUMBER):
            raise UserError(f"column {name}: min and max are bought together; write `private` for "
                            "both, or declare both")
        if private == {"categories"} and columns[name].get("kind") == "ordinal":
            raise UserError(f"column {name}: an order cannot be bought; declare the categories, or "
                            "make the column categorical")
        if private:
            entries[name] = "bounds" if private == set(table_columns.NUMBER) else "categories"
    if not entries:
        raise UserError("the draft holds no entry `private`; there is nothing to buy")
    return entries


def _check(draft: Json, entries: dict[str, str], cells: Cells, price: Price,
           source: str) -> dict[str, Column]:
    """Finds all that can be wrong before anything is spent, and returns the columns by name.

    It looks at the declared part of the draft, at the price, and at the data against both.
    """
    if not 0 < price.epsilon < math.inf:
        raise UserError(f"{option('schema_epsilon', price.epsilon)}; give a finite number above 0")
    needs_delta = "categories" in entries.values()
    if needs_delta != (price.delta > 0) or not 0 <= price.delta < 1:
        raise UserError(f"{option('schema_delta', price.delta)}: categories need one above 0 and "
                        "below 1, as 1e-6" if needs_delta else
                        f"{option('schema_delta')} is for categories only; drop the option")
    trial = copy.deepcopy(draft)
    types = {name: trial["columns"][name].pop("dtype", "") for name, what in entries.items()
             if what == "categories"}
    for name, what in entries.items():
        trial["columns"][name] |= (table_columns.placeholders(name, trial["columns"][name])
                                   if what == "bounds" else
                                   {"categories": ["a", OTHER], **(
                                       {} if name == draft.get("label") else {"other": OTHER})})
    parsed = schema.parse(trial, source)
    columns = {column.name: column for column in parsed.spec.all_columns}
    for name, dtype in types.items():
        if dtype:
            table_columns.check_type_name(dataclasses.replace(columns[name], dtype=dtype))
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
    """Returns the names of the columns that still have an entry `private`."""
    return tuple(name for name in document["columns"] if _private(document, name))


SCALES = (1, 2, 4, 8, 16)
"""How many bins are merged, where a single one does not stand out of the noise."""
KEPT = 0.95
"""The share of the values that bounds must contain, or more bins are merged."""
NEAR = 0.1
"""Bounds that begin below this share of their end begin at zero."""
DIGITS = 3
"""The digits of a bound; it is rounded outward."""
ZERO = len(SIGNED) // 2 - 1
"""The bin of zero."""


def has_bins(reading: Reading) -> bool:
    """Returns whether a column that is read so has bounds to be bought."""
    return reading.entries["kind"] in ("integer", "continuous", "date", "datetime", "duration")


def column_bins(reading: Reading, texts: list[str]) -> tuple[Private[np.ndarray], int]:
    """Returns the bins of the cells of a column, sealed, and how many bins there are.

    Args:
        reading: How its cells are read; a cell that is not has no bin.
        texts: The cells.
    """
    read: Callable[[str], float | None] = transform.reader(reading.column)
    one, edges = _day(reading), YEARS if _is_date(reading) else SIGNED
    known = {text: read(text) for text in dict.fromkeys(texts)}
    values = np.array([np.nan if (value := known[text]) is None else value / one
                       for text in texts], np.float64)
    return Private(readings.binned(edges, values)), len(edges) - 1


def _is_date(reading: Reading) -> bool:
    return reading.entries["kind"] in ("date", "datetime")


def _day(reading: Reading) -> int:
    """The code of one day."""
    return transform.DAY if reading.entries["kind"] == "datetime" else 1


def bounded_column(reading: Reading, noisy: np.ndarray, sigma: float, present: float
                   ) -> tuple[Json, float] | None:
    """Returns the entries of a column, and the code of a value from its middle.

    Args:
        reading: How its cells are read.
        noisy: The noisy counts of its bins.
        sigma: The standard deviation of their noise.
        present: The noisy number of values.

    Returns:
        Both; None where no bounds stand out of the noise.
    """
    if _is_date(reading):
        ends = _ends(noisy, sigma, present)
        return None if ends is None else _dates(reading, noisy, *ends)
    rest = noisy.copy()
    rest[ZERO] = 0
    ends = _ends(rest, sigma, present - noisy[ZERO])
    spike = ends is not None and noisy[ZERO] >= max(SPIKE * present, 3 * sigma) and (
        max(-SIGNED[ends[0]], SIGNED[ends[1] + 1]) > AMONG)
    if spike and ends is not None:
        return _numbers(reading, rest, *ends, [0.0])
    ends = _ends(noisy, sigma, present)
    return None if ends is None else _numbers(reading, noisy, *ends, [])


def _ends(noisy: np.ndarray, sigma: float, present: float) -> tuple[int, int] | None:
    """The first and the last bin of most values; where bins are too fine, of blocks of them."""
    widest = None
    for scale in SCALES:
        blocks = np.add.reduceat(noisy, np.arange(0, noisy.size, scale))
        found = single_releases.interval(blocks, partial(_least, sigma * math.sqrt(scale)))
        if found is None:
            continue
        first, last = found[0] * scale, min((found[1] + 1) * scale, noisy.size) - 1
        mass = noisy[first:last + 1].sum()
        if mass >= KEPT * present - 2 * sigma * math.sqrt(last - first + 1):
            return first, last
        widest = widest or (first, last)
    return widest


def _least(sigma: float, chance: float) -> int:
    """The count that rounded Gaussian noise reaches with this chance at most."""
    return math.ceil(0.5 - sigma * ndtri(chance))


def _middle(noisy: np.ndarray, first: int, last: int) -> int:
    """The bin of the median, as far as the noise lets it be seen."""
    below = np.cumsum(np.maximum(noisy[first:last + 1], 0))
    return first + int(np.searchsorted(below, below[-1] / 2))


def _numbers(reading: Reading, noisy: np.ndarray, first: int, last: int, special: list[float]
             ) -> tuple[Json, float]:
    """The entries of a column of numbers, or of durations in seconds."""
    median = _middle(noisy, first, last)
    low, high, middle = map(float, (
        SIGNED[first] * (first != ZERO), SIGNED[last + 1] * (last != ZERO),
        (SIGNED[median] + SIGNED[median + 1]) / 2))
    whole = reading.entries["kind"] == "integer"
    digits = int(str(reading.entries.get("decimals", 15)))
    if whole:
        low, high = math.ceil(low), max(math.ceil(low), math.ceil(high) - 1)
    else:
        low, high = _outward(low, math.floor, digits), _outward(high, math.ceil, digits)
    if 0 < low < NEAR * high and not special and middle - low >= TAIL * (high - low):
        low = 0  # bins get finer towards zero, until noise hides what they hold
    made = _written(reading, low, high, special)
    if middle - low < TAIL * (high - low):
        try:
            checked("", made | {"scale": "log"})
            made["scale"] = "log"
        except UserError:  # whole numbers that a log scale would not keep apart
            pass
    return made, min(max(math.floor(middle) if whole else middle, low), high)


def _written(reading: Reading, low: float, high: float, special: list[float]) -> Json:
    """The entries of a column with these bounds."""
    column = reading.column
    if column.written == "duration":
        least, most = transform.bounds_texts(column, low, high)
        made = {**reading.entries, "min": least, "max": most}
        texts = transform.texts(column, np.array(special))
    else:
        made = {**reading.entries,
                **drafted_numbers(low, high, reading.entries["kind"] == "integer")}
        texts = [repr(int(value)) for value in special]
    return made | ({"special": texts} if special else {})


def _outward(value: float, direction: Any, most: int) -> float:
    """Rounds a bound to few digits, of which no more than `most` follow the point."""
    if value == 0:
        return 0.0
    digits = min(most, DIGITS - 1 - math.floor(math.log10(abs(value))))
    return float(round(direction(value * 10.0**digits) / 10.0**digits, max(digits, 0)))


def _dates(reading: Reading, noisy: np.ndarray, first: int, last: int) -> tuple[Json, float]:
    """The entries of a column of dates."""
    shaped, one = reading.column, _day(reading)
    low, high = transform.bounds_texts(shaped, YEARS[first] * one, YEARS[last + 1] * one - 1)
    return ({**reading.entries, "min": low, "max": high},
            float(YEARS[_middle(noisy, first, last)] * one))


def typical(entries: Json, code: float) -> str:
    """Returns the text of a value, as a cell of its column has it."""
    return transform.texts(checked("", entries), np.array([code], np.float64))[0]


SHARE = 0.1
"""The part of epsilon that the training loses; the names cost this part of delta."""
KINDS_PART = 0.2
"""The part of the price, in mu squared, that goes to the kinds: these need large counts only."""
CLEAR = 4.0
"""A count that is so many standard deviations of its noise above 0 is taken for one."""
ENOUGH = 4
"""A name that makes up one part in so many of the records must be able to stand out."""


def priced_survey(columns: int, queries: int, n: int, epsilon: float, delta: float, share: float
                  ) -> Survey:
    """Returns the queries that cost a share of a budget.

    What is spent is what Gaussian releases lose by it: with mu of the whole budget and mu' of
    (1 - share) of its epsilon, the queries have sqrt(mu^2 - mu'^2). By itself that is more than the
    share of epsilon; together with a training it is the share, since the squares of Gaussian
    releases add up.

    Args:
        columns: The columns whose kinds are bought.
        queries: How many queries of values there are.
        n: The public number of records.
        epsilon: The budget of the run.
        delta: Likewise.
        share: The part of both, above 0 and below 1.

    Returns:
        The survey.

    Raises:
        UserError: The share means nothing, or there are so many columns that no noise will do.
    """
    if not 0 < share < 1:
        raise UserError(f"{option('schema_share')} is {share:g}; it is a part of epsilon, as 0.1")
    names_delta = share * delta
    left = delta - names_delta
    mu_squared = _mu(epsilon, left) ** 2 - _mu((1 - share) * epsilon, left) ** 2
    kinds = math.sqrt(2 * columns / (KINDS_PART * mu_squared))
    values = math.sqrt(2 * queries / ((1 - KINDS_PART) * mu_squared))
    if max(kinds, values) > MAX_SIGMA:
        raise hopeless(columns, n, epsilon, max(kinds, values))
    most = max(n, len(readings.READINGS), len(readings.SIGNED), len(readings.YEARS))
    return Survey(columns, queries, _noise(kinds), _noise(values), names_delta, most)


def refuse_useless_schema(made: Survey, n: int, epsilon: float) -> None:
    """Refuses a purchase that so few records cannot pay off, by public numbers only.

    Raises:
        UserError: It names the mend.
    """
    if n < ENOUGH * made.threshold:
        raise hopeless(made.columns, n, epsilon, made.threshold)


def hopeless(columns: int, n: int, epsilon: float, count: float) -> UserError:
    """Returns the error of a purchase that would be useless."""
    return UserError(
        f"{columns:,} {'column is' if columns == 1 else 'columns are'} not declared, and at "
        f"epsilon {epsilon:g} only what some {count:,.0f} rows share can be learnt of each, and "
        f"there are {n:,}; declare them, or most of them, by {option('schema', 'FILE')}, or raise "
        f"{option('epsilon')} or {option('schema_share')}; "
        f"{program('schema', 'CSV', label='COLUMN', out='FILE')} drafts a schema for you "
        "to edit (nothing was spent)")


def price_alone(made: Survey, delta: float) -> float:
    """Returns the epsilon of a survey by itself, at the delta of its run."""
    return composition.epsilon_of(made.events(), delta)


def price_lines(made: Survey, n: int, budget: Budget, share: float) -> tuple[str, ...]:
    """Returns the lines of a rehearsal: the price, the questions, and the noise of the answers."""
    kinds, values = made.kinds.sigma, made.values.sigma
    return (
        f"{made.columns} column{'s are' if made.columns > 1 else ' is'} not declared; the schema "
        f"of {'these' if made.columns > 1 else 'it'} would be bought for {share:.3g} of epsilon: "
        f"Gaussian training has what epsilon {(1 - share) * budget.epsilon:.3g} would give (by "
        f"itself the purchase is epsilon {at_most(price_alone(made, budget.delta), 3)}); what is "
        f"declared in {option('schema', 'FILE')} costs nothing",
        f"question 1, the kind and the nulls of each column: {len(readings.READINGS)} counts each, "
        f"with noise of standard deviation {kinds:.0f} beside {n:,} rows, from which a kind stands "
        f"out that {CLEAR * kinds:,.0f} cells have",
        f"question 2, the values of each column: bounds from {len(readings.SIGNED) - 1} bins of "
        f"numbers or {len(readings.YEARS) - 1} of years, and categories, with noise of standard "
        f"deviation {values:.0f}, from which a category stands out that some {made.threshold:,} "
        "rows share")


def _noise(sigma: float) -> RoundedGaussian:
    """The noise of a sigma, rounded up to four digits."""
    digits = 3 - math.floor(math.log10(sigma))
    return RoundedGaussian(max(MIN_SIGMA, math.ceil(sigma * 10**digits) / 10**digits))


def _mu(epsilon: float, delta: float) -> float:
    """The largest mu of Gaussian privacy, to six digits, that is (epsilon, delta)-private."""
    low, high = 0.0, 1.0
    while composition.exact_epsilon(high, 0.0, delta) <= epsilon:
        low, high = high, 2 * high
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = ((middle, high) if composition.exact_epsilon(middle, 0.0, delta) <= epsilon
                     else (low, middle))
    return low


NULLABLE = 2.0
"""As `CLEAR`, for counts of nulls: a flag too many does less harm than one too few."""
COVERED = 0.5
"""The share of the rows of a label that its classes must have, if its values are numbers."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The columns whose entries are to be bought.

    Attributes:
        columns: The names of the columns that are not declared.
        label: The name of the label; None: rows without classes.
        declared: The document of a schema that declares the other columns.
        share: The part of epsilon, and of the Gaussian budget, that buys them.
        parts: Entries that are declared of some of the columns.
    """

    columns: tuple[str, ...]
    label: str | None
    declared: Json
    share: float = SHARE
    parts: Json = dataclasses.field(default_factory=dict)

    @property
    def queries(self) -> int:
        """The queries of values: one a column, and one more of a label, which may be a number."""
        return len(self.columns) + (self.label in self.columns)


@dataclasses.dataclass(frozen=True)
class Typed:
    """A column after the first answer.

    Attributes:
        name: Its name.
        reading: How its cells are read.
        present: The noisy number of cells that are read so.
        nullable: Whether it is taken to hold nulls, or cells of another kind.
    """

    name: str
    reading: Reading
    present: float
    nullable: bool


def buy_schema(cells: Cells, wanted: Wanted, survey: Survey, spent: Events,
               bits: BitSource) -> Json:
    """Buys the entries of a schema.

    Args:
        cells: The table.
        wanted: What is to be bought.
        survey: The queries, which are charged already.
        spent: All purchases that the ledger charges; those of a draw that was lost are among them.
        bits: The source of the noise.

    Returns:
        The document of the schema. Its label is a column as any other, and rows have no label,
        where that is a number with many values, or where fewer than two classes came out.

    Guarantee:
        That of `Survey`: a cell decides its reading and its bin by itself, and all else here
        follows from released counts.
    """
    codes = np.stack([readings.codes(cells.columns[name]) for name in wanted.columns], 1)
    counts = survey.kind_counts(Private(codes), len(READINGS), bits)
    typed = [_typed(name, row, survey.kinds.sigma)
             for name, row in zip(wanted.columns, counts, strict=True)]
    numbers = {column.name: column_bins(column.reading, cells.columns[column.name])
               for column in typed if has_bins(column.reading)}
    texts = {column.name: Private([None if text in NULLS else text
                                   for text in cells.columns[column.name]])
             for column in typed if column.reading == readings.TEXT or column.name == wanted.label}
    binned, names = survey.value_counts(numbers, texts, bits)
    made = {}
    label, document = wanted.label, dict(wanted.declared)
    for column in typed:
        if column.name == label and _is_number(column, names[label]):
            document["targets"] = list(dict.fromkeys([*document.get("targets", []), label]))
            label = None
        elif column.name == label and len(names[label]) < LEAST_CLASSES:
            label = None
        made[column.name] = _entries(column, label, binned, names, survey)
    document["columns"] = {name: made.get(name, wanted.declared.get("columns", {}).get(name))
                           for name in cells.columns}
    document.pop("label", None)
    if label is not None:
        document = {"label": label} | document
    if cells.dialect.entries:
        document = {"file": cells.dialect.entries} | document
    return document | {"bought": [
        *document.get("bought", []), *_rows(made, spent, len(cells.rows))]}


def _is_number(label: Typed, classes: dict[str, int]) -> bool:
    """Whether a label is a number with many values, by the noisy counts of its classes."""
    return label.reading in readings.NUMBERS and (
        len(classes) > MAX_CATEGORIES or sum(classes.values()) < COVERED * label.present)


def _typed(name: str, counts: np.ndarray, sigma: float) -> Typed:
    """The reading of a column, from the noisy counts of its readings."""
    reading, present, others = readings.chosen(counts, CLEAR * sigma)
    odd, noise = counts[0] + others, sigma
    if reading is not readings.TEXT:
        odd, noise = odd + counts[-1], math.sqrt(2) * sigma
    return Typed(name, reading, present, bool(odd >= NULLABLE * noise))


def _entries(column: Typed, label: str | None, binned: dict[str, np.ndarray],
             names: dict[str, dict[str, int]], survey: Survey) -> Json:
    """The entries of a column."""
    if column.name == label:
        counts = names[column.name]
        classes = ordered(sorted(counts, key=lambda text: -counts[text])[:MAX_CLASSES])
        return {"kind": "categorical", "categories": classes, "odd": "null"}
    nullable = {"nullable": "true" if column.nullable else "false"}
    if not has_bins(column.reading) and column.reading is not readings.TEXT:
        made = dict(column.reading.entries)  # booleans and times need no query
        return made | nullable | {"odd": _odd(column, made, 0.0)}
    bounds = bounded_column(column.reading, binned[column.name], survey.values.sigma,
                            column.present) if column.name in binned else None
    if bounds is not None:
        entries, middle = bounds
        return entries | nullable | {"odd": _odd(column, entries, middle)}
    # Texts; or numbers none of which is in enough rows, so that the column cannot be learned.
    read = column.reading is readings.TEXT
    found = ordered(text for text in names.get(column.name, ()) if read and text != OTHER)
    return {"kind": "categorical", "categories": [*found, OTHER], "other": OTHER, **nullable,
            "odd": "null" if column.nullable else OTHER}


def _odd(column: Typed, entries: Json, code: float) -> str:
    """The text by which cells without a value are read."""
    return "null" if column.nullable else typical(entries, code)


def _rows(made: dict[str, Json], spent: Events, records: int) -> list[Json]:
    """The purchases, as a schema lists them: each with its entries and its number of records."""
    kinds = [f"{name}.{entry}" for name, entries in made.items() for entry in ("kind", "nullable")
             if entry in entries]
    names = [f"{name}.categories" for name, entries in made.items() if "categories" in entries]
    values = [*(f"{name}.bounds" for name, entries in made.items() if "min" in entries), *names]
    of = {KINDS: kinds, NAMES: names}
    return [{"entry": of.get(without_name(event), values) or kinds, "records": records, **row}
            for event, count in spent for row in to_json(((event, count),))]
