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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpgen_jax.accountant import composition, events
from dpgen_jax.accountant.events import Events, add_up, to_json
from dpgen_jax.aggregation import single_releases
from dpgen_jax.aggregation.noise import MAX_SIGMA, BitSource, OsBits
from dpgen_jax.aggregation.single_releases import KINDS, NAMES, Answer, Names, Numbers, Survey
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
from dpgen_jax.data.table.draft import KEY, MAX_CATEGORIES, drafted_numbers, ordered
from dpgen_jax.data.table.parsing import Cells
from dpgen_jax.data.table.readings import READINGS, Reading
from dpgen_jax.data.table.schema import MAX_CLASSES
from dpgen_jax.run import ranges, side_releases, spending
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


def typical(entries: Json, code: float) -> str:
    """Returns the text of a value, as a cell of its column has it."""
    return transform.texts(checked("", entries), np.array([code], np.float64))[0]


SHARE = 0.15
"""The part of epsilon that the training loses."""
NAMES_SHARE = 0.25
"""The part of delta that the names cost."""
KINDS_PART = 0.25
"""The part of the price, in mu squared, that goes to the kinds."""
CLEAR, STANDS_OUT = 4.0, 5.0
"""A count that is so many standard deviations of its noise above 0 is taken for one; and about as
many where it is one of all counts of kinds."""
ENOUGH = 4
"""A name that makes up one part in so many of the records must be able to stand out."""


def priced_survey(columns: int, n: int, epsilon: float, delta: float, share: float) -> Survey:
    """Returns the queries that cost a share of a budget.

    What is spent is what Gaussian releases lose by it: with mu of the whole budget and mu' of
    (1 - share) of its epsilon, the queries have sqrt(mu^2 - mu'^2). By itself that is more than the
    share of epsilon; together with a training it is the share, since the squares of Gaussian
    releases add up.

    Args:
        columns: The columns whose entries are bought.
        n: The public number of records.
        epsilon: The budget of the run.
        delta: Likewise.
        share: The part of epsilon, above 0 and below 1.

    Returns:
        The survey.

    Raises:
        UserError: The share means nothing, or there are so many columns that no noise will do.
    """
    if not 0 < share < 1:
        raise UserError(f"{option('schema_share')} is {share:g}; it is a part of epsilon, as 0.1")
    names_delta = NAMES_SHARE * delta
    left = delta - names_delta
    mu_squared = _mu(epsilon, left) ** 2 - _mu((1 - share) * epsilon, left) ** 2
    kinds = math.sqrt(2 * columns / (KINDS_PART * mu_squared))
    values = math.sqrt(2 * columns / ((1 - KINDS_PART) * mu_squared))
    if max(kinds, single_releases.COARSEST * values) > MAX_SIGMA:
        raise hopeless(columns, n, epsilon, max(kinds, values))
    most = max(n, readings.PLACES, len(readings.SIGNED), ranges.MOST_EXACT)
    return Survey(columns, single_releases.rounded_up(kinds), single_releases.rounded_up(values),
                  names_delta, most)


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
        f"epsilon {epsilon:g} only values that about {count:,.0f} rows share can be estimated; "
        f"there are {n:,} rows. Declare most columns with {option('schema', 'FILE')}, or raise "
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
        f"{made.columns} column{'s are' if made.columns > 1 else ' is'} not declared; estimating "
        f"the schema would use {100 * share:.3g} % of the budget (epsilon "
        f"{at_most(price_alone(made, budget.delta), 3)} by itself), and the training would get the "
        f"rest; columns that {option('schema', 'FILE')} declares cost nothing",
        f"query 1, the kind of each column, its decimals, its magnitude and whether it has nulls: "
        f"{readings.PLACES:,} counts of {n:,} rows each, with noise of standard deviation "
        f"{kinds:.0f}; a kind is found if about {STANDS_OUT * kinds:,.0f} cells have it",
        f"queries 2 and 3, the values of each column: ranges, few values, and categories, with "
        f"noise of standard deviation {values:.0f} on average; a category is found if about "
        f"{made.threshold:,} rows have it, and fewer where other columns need less")




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


@dataclasses.dataclass(frozen=True)
class Typed:
    """A column after the first answer.

    Attributes:
        name: Its name.
        reading: How its cells are read.
        present: The noisy number of cells that are read so.
        others: The noisy number of cells that are read otherwise, nulls apart.
        nullable: Whether it is taken to hold nulls, or cells of another kind.
        clear: By their places in READINGS, the noisy numbers of the readings that stand out.
        magnitudes: Noisy counts of the bins of OCTAVES, int [bins], and the noise of one; None
            where the reading has none.
        numerals: Of the sorts of numerals, by their texts, the noisy counts that stand out.
    """

    name: str
    reading: Reading
    present: float
    others: float
    nullable: bool
    clear: Mapping[int, float]
    magnitudes: tuple[np.ndarray, float] | None
    numerals: Mapping[str, float]

    @property
    def is_code(self) -> bool:
        """Whether its cells are numerals that are no numbers, as post codes are."""
        zeros = sum(count for text, count in self.numerals.items() if text[0] == "0")
        whole = self.reading in READINGS[1 + readings.WHOLE:2 + readings.POINTED]
        return (whole and zeros > CODES * self.present) or (self.reading is readings.TEXT and (
            sum(self.numerals.values()) > (1 - CODES) * self.present))


CODES = 0.02
"""The part of whole numbers with a zero in front from which all are codes."""
MIXED = 0.05
"""The part of cells of another kind from which a column may be one of categories."""
COVERED_TEXTS = 0.9
"""The part of the cells that the categories of a mixed column must have."""
OPEN = 0.02
"""From this part of texts without a name, another query of names is made."""
RARE = 0.1
"""Texts without a name count for at least this part of the rows, where names are asked for again.
"""
WEIGHTS = {"label": 1.5, "names": 1.0, "unknown": 0.6, "levels": 0.4, "bins": 0.25}
"""The weights of the queries of values."""


@dataclasses.dataclass(frozen=True)
class Bought:
    """A schema that was bought.

    Attributes:
        document: The document of the schema.
        lost: By column, the noisy number of cells that are of another kind than the column, nulls
            apart, where there are many of them.
    """

    document: Json
    lost: Mapping[str, int]


def buy_schema(cells: Cells, wanted: Wanted, survey: Survey, spent: Events,
               bits: BitSource) -> Bought:
    """Buys the entries of a schema.

    Args:
        cells: The table.
        wanted: What is to be bought.
        survey: The queries, which are charged already.
        spent: All purchases that the ledger charges; those of a draw that was lost are among them.
        bits: The source of the noise.

    Returns:
        The schema. Its label is a column as any other, and rows have no label, where that is a
        number with many values, or where fewer than two classes came out.

    Guarantee:
        That of `Survey`: a cell decides its place, its bin and its text by itself, and all else
        here follows from released counts.
    """
    texts = {name: cells.columns[name] for name in wanted.columns}
    places = np.stack([readings.places(column) for column in texts.values()], 1)
    counts = survey.kind_counts(Private(places), readings.PLACES, bits)
    found = [Found(_typed(name, row, survey.kinds.sigma, len(cells.rows)), name == wanted.label,
                   survey, len(cells.rows)) for name, row in zip(texts, counts, strict=True)]
    for turn in range(len(single_releases.ROUNDS)):
        open_ones = {one.typed.name: one for one in found}
        queries, weights = {}, {}
        for name, one in open_ones.items():
            if (query := one.query(turn, texts[name])) is not None:
                queries[name], weights[name] = query
        for name, answer in survey.value_counts(turn, queries, weights, bits).items():
            open_ones[name].answered(answer)
    made = {}
    label, document = wanted.label, dict(wanted.declared)
    for one in found:
        if one.is_label and one.is_number:
            document["targets"] = list(dict.fromkeys([*document.get("targets", []), label]))
            label = None
        elif one.is_label and len(one.names) < LEAST_CLASSES:
            label = None
        made[one.typed.name] = one.checked_entries(label)
    features = (wanted.declared.get("columns", {}) | made).items()
    if all(entries.get("kind") == table_columns.IDENTIFIER for name, entries in features
           if name != label):  # something is to be learnt
        made |= {one.typed.name: one.unnamed for one in found if one.typed.name != label}
    document["columns"] = {name: made.get(name, wanted.declared.get("columns", {}).get(name))
                           for name in cells.columns}
    document.pop("label", None)
    if label is not None:
        document = {"label": label} | document
    if cells.dialect.entries:
        document = {"file": cells.dialect.entries} | document
    document |= {"bought": [*document.get("bought", []), *_rows(made, spent, len(cells.rows))]}
    return Bought(document, {one.typed.name: round(one.typed.others) for one in found
                             if one.is_mixed and not one.is_categorical and not one.is_label})


def _typed(name: str, counts: np.ndarray, sigma: float, n: int) -> Typed:
    """The reading of a column, from the noisy counts of its places."""
    parts = np.split(counts, readings.STARTS[1:-1])
    seen = np.array([_standing_out(part, sigma) for part in parts])
    reading, _, others = readings.chosen(np.append(counts[0], seen[1:]), CLEAR * sigma)
    text = seen[-1] * (reading is not readings.TEXT)
    nulls = max(float(counts[0]), 0.0)
    nulls *= nulls >= NULLABLE * sigma
    clear = {place: float(seen[place]) for place in range(1, len(READINGS))
             if seen[place] >= CLEAR * sigma}
    magnitudes = None
    if READINGS.index(reading) in readings.DETAILED:
        read = [place for place in clear if place in readings.DETAILED
                and reading.reads(READINGS[place])]
        magnitudes = np.sum([parts[place] for place in read], 0), sigma * math.sqrt(len(read))
    numerals = {sort: float(count) for sort, count in zip(
        readings.NUMERALS, parts[-1], strict=False) if count >= CLEAR * sigma}
    others += text
    return Typed(name, reading, max(n - nulls - others, 1.0), others,
                 bool(counts[0] + others >= NULLABLE * sigma), clear, magnitudes, numerals)


def _standing_out(counts: np.ndarray, sigma: float) -> float:
    """The part of the counts of a reading that stands out of the noise, in blocks of places."""
    return max(sum(one.mass for one in ranges.regions(
        np.add.reduceat(counts, np.arange(0, counts.size, scale)), sigma * math.sqrt(scale), 0,
        readings.PLACES)) for scale in ranges.SCALES[::2])


class Found:
    """The released answers about a column so far.

    Attributes:
        typed: The column after the first answer.
        is_label: Whether it is to be the label.
        names: Its frequent texts, with their noisy counts.
    """

    def __init__(self, typed: Typed, is_label: bool, survey: Survey, rows: int):
        self._rows = rows
        self.typed, self.is_label, self.names = typed, is_label, dict[str, int]()
        self._survey, self._special = survey, dict[str, int]()
        self._question: ranges.Question | None = None
        self._pending = ""
        self._answer: Answer | None = None
        self._noise = survey.kinds.sigma

    def query(self, turn: int, texts: list[str]) -> tuple[Numbers | Names, float] | None:
        """Returns what a round asks, and its weight; None for nothing."""
        self._pending = self._next(turn)
        if self._pending == "names":
            present = Private([None if text in NULLS else text for text in texts])
            weight = WEIGHTS["label" if self.is_label else "names"]
            return Names(present), weight * (max(self._left() / self._rows, RARE) if turn else 1.0)
        if self._pending == "special" and self._question is not None:
            return self._question.names_outside(texts), WEIGHTS["levels"]
        if self._pending == "bins" and self._question is not None:
            known = "levels" if self._question.step else "bins"
            return self._question.query(texts), WEIGHTS[
                "unknown" if self.typed.magnitudes is None else known]
        return None

    def _next(self, turn: int) -> str:
        """The sort of the next query: names, values within bins, or names outside of these."""
        typed, among = self.typed, 3 * self._survey.values.sigma
        if turn == 0:
            text = typed.reading is readings.TEXT or typed.is_code
            if text or self.is_label or typed.others >= MIXED * (typed.present + typed.others):
                return "names"
            return self._bins(among)
        if self._answer is not None and self._question is not None:
            nearer = ranges.closer(self._question, self._answer, typed.present, among)
            if ranges.is_date(typed.reading):
                self._question = ranges.with_special_dates(self._question, self._answer)
            if self._question.outside:
                return "special"
            if nearer is not None:
                self._question = nearer
                return "bins"
            return ""
        if self.is_categorical and typed.reading is not readings.TEXT and not typed.is_code:
            return ""  # the names are all there is
        if typed.reading is readings.TEXT or typed.is_code or (
                self.is_label and not self.is_number):
            return "names" if self._open() else ""
        return self._bins(among)

    def _bins(self, among: float) -> str:
        typed = self.typed
        if not has_bins(typed.reading):
            return ""
        magnitudes, sigma = typed.magnitudes or (None, 0.0)
        self._question = ranges.question_for(typed.reading, magnitudes, sigma, typed.present, among)
        return "" if self._question is None else "bins"

    def answered(self, answer: Answer) -> None:
        """Takes the answer to the last query."""
        if self._pending == "names":
            self.names |= answer.names
            self._noise = answer.sigma
        elif self._pending == "special":
            self._special |= answer.names
        else:
            self._answer = answer

    def _left(self) -> float:
        """The noisy number of cells without a name."""
        typed = self.typed
        return typed.present + typed.others * self.is_mixed - sum(self.names.values())

    def _open(self) -> bool:
        noise = self._survey.kinds.sigma + self._noise * math.sqrt(len(self.names))
        return self._left() > max(OPEN * self.typed.present, noise)

    @property
    def is_mixed(self) -> bool:
        """Whether many of its cells are of another kind."""
        typed = self.typed
        return typed.others >= MIXED * (typed.present + typed.others)

    @property
    def is_number(self) -> bool:
        """Whether it is a number with many values, by the noisy counts of its texts."""
        typed = self.typed
        return typed.reading in readings.NUMBERS and (
            len(self.names) > MAX_CATEGORIES or sum(self.names.values()) < COVERED * typed.present)

    @property
    def is_categorical(self) -> bool:
        """Whether its frequent texts are nearly all of its cells, those of other kinds too."""
        typed = self.typed
        whole = typed.present + typed.others * self.is_mixed
        return sum(self.names.values()) >= COVERED_TEXTS * whole

    def checked_entries(self, label: str | None) -> Json:
        """Returns the entries of the column; none is an error, as it is paid for."""
        entries = self.entries(label)
        try:
            if entries["kind"] != table_columns.IDENTIFIER:
                checked(self.typed.name, entries)
        except UserError:
            return self.unnamed
        return entries

    def entries(self, label: str | None) -> Json:
        """Returns the entries of the column."""
        typed = self.typed
        if typed.name == label:
            classes = ordered(sorted(self.names, key=lambda text: -self.names[text])[:MAX_CLASSES])
            return {"kind": "categorical", "categories": classes, "odd": "null"}
        nullable = {"nullable": "true" if typed.nullable else "false"}
        if not has_bins(typed.reading) and typed.reading is not readings.TEXT and not (
                self.is_mixed and self.is_categorical):
            made = dict(typed.reading.entries)  # booleans and times need no query
            return made | nullable | {"odd": self._odd(made, 0.0)}
        described = self._described()
        if described is not None and self._is_key(described.entries):
            return {"kind": table_columns.IDENTIFIER,
                    "pattern": "#" * len(described.entries["max"].removesuffix(".0"))}
        if described is None or typed.is_code:
            return self._of_names(nullable)
        if "levels" in described.entries:
            levels = self._levels(described.entries["levels"])
            middle = self._levels([described.middle])[0]
            return {"kind": "ordinal", "categories": levels, **nullable,
                    "odd": "null" if typed.nullable else middle}
        odd = self._odd(described.entries, described.middle)
        return described.entries | nullable | {"odd": odd}

    def _described(self) -> ranges.Description | None:
        """The description of a number or a date; None for a column of categories."""
        typed = self.typed
        if typed.reading is readings.TEXT or (self.is_mixed and self.is_categorical) or (
                self._question is None or self._answer is None):
            return None
        return ranges.described(self._question, self._answer, typed.present, self._special)

    def _is_key(self, entries: Json) -> bool:
        """Whether it is named as a key, and holds whole numbers none of which is frequent."""
        if (self._question is None or self._answer is None or self.is_label or self.typed.nullable
                or ranges.decimals(self.typed.reading) != 0 or self.typed.magnitudes is None
                or "special" in entries or not KEY.search(self.typed.name)):
            return False
        width = np.diff(self._question.edges)
        noise = single_releases.FALSE_CORE / width.size
        return bool((self._answer.counts <= width + ranges.least(self._answer.sigma, noise)).all())

    def _odd(self, entries: Json, code: float) -> str:
        """The text by which cells without a value are read."""
        return "null" if self.typed.nullable else typical(entries, code)

    def _levels(self, values: list[float]) -> list[str]:
        """The texts of numbers, as most cells of the column are written."""
        counts = {place - 1: count for place, count in self.typed.clear.items()}
        digits = ranges.decimals(self.typed.reading) or 0
        plain = counts.get(readings.WHOLE, 0.0) > counts.get(readings.POINTED, 0.0)
        fewer = any(shape < len(readings.SHAPES) and readings.SHAPES[shape].entries.get(
            "decimals", "0") != str(digits) for shape in counts)
        texts = []
        for value in values:
            value = round(value, digits) + 0.0
            if digits == 0:
                texts.append(str(round(value)) if plain else f"{value:.1f}")
            elif not fewer:
                texts.append(f"{value:.{digits}f}")
            else:
                texts.append(str(round(value)) if plain and value.is_integer() else repr(value))
        return texts

    @property
    def unnamed(self) -> Json:
        """The entries of a column of texts of which none is known."""
        nullable = "true" if self.typed.nullable else "false"
        return {"kind": "categorical", "categories": [OTHER], "other": OTHER, "nullable": nullable,
                "odd": "null" if self.typed.nullable else OTHER}

    def _of_names(self, nullable: Json) -> Json:
        """The entries of a column of texts."""
        typed = self.typed
        found = ordered(self.names)
        if typed.is_code and not self.is_categorical:
            digits = max(typed.numerals, key=lambda sort: typed.numerals[sort]).lstrip("0")
            return {"kind": "identifier", "pattern": "#" * int(digits)}
        if not (typed.reading is readings.TEXT or typed.is_code or self.is_categorical):
            found = []  # numbers none of which is in enough rows
        if typed.reading.entries["kind"] == "integer" and len(found) == 1 and found[0] in "01":
            return {"kind": "integer", "min": "0", "max": "1", **nullable,
                    "odd": "null" if typed.nullable else found[0]}  # a rare one drowns in noise
        if found and not self._open() and self._left() <= max(
                self._survey.kinds.sigma, CODES * typed.present):
            common = max(found, key=lambda text: self.names[text])
            return {"kind": "categorical", "categories": found, **nullable,
                    "odd": "null" if typed.nullable else common}
        categories = [*(text for text in found if text != OTHER), OTHER]
        return {"kind": "categorical", "categories": categories, "other": OTHER, **nullable,
                "odd": "null" if typed.nullable else OTHER}


def has_bins(reading: Reading) -> bool:
    """Returns whether a column that is read so has bounds to be bought."""
    return reading.entries["kind"] in ("integer", "continuous", "date", "datetime", "duration")


def _rows(made: dict[str, Json], spent: Events, records: int) -> list[Json]:
    """The purchases, as a schema lists them: each with its entries and its number of records."""
    kinds = [f"{name}.{entry}" for name, entries in made.items() for entry in ("kind", "nullable")
             if entry in entries]
    names = [f"{name}.categories" for name, entries in made.items() if "categories" in entries]
    values = [*(f"{name}.bounds" for name, entries in made.items() if "min" in entries), *names]
    values += [f"{name}.special" for name, entries in made.items() if "special" in entries]
    of = {KINDS: kinds, NAMES: names}
    return [{"entry": of.get(without_name(event), values) or kinds, "records": records, **row}
            for event, count in spent for row in to_json(((event, count),))]
