"""Constraints between the columns of every row, and synthetic rows: decoded, mended, written.

A schema lists its constraints as texts:

    constraints:
      - admitted <= discharged
      - total = price + tax - rebate
      - sex = male -> pregnant = no
      - age < 18 -> pay = null

Operators stand between spaces; a name that contains an operator stands in double quotes. A row
satisfies a comparison or a sum if one of its cells in it is null, or special outside the bounds.
The label may stand on the left of an implication only, and is never changed. A table is float64
[n, K]: codes, the class last.

All rows that a method drew are decoded by `finished`, which also mends the rows that break a
constraint. It reads the declared schema and the rows only, so it is post-processing and costs no
privacy.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import re
from collections.abc import Callable
from string import ascii_uppercase, digits

import numpy as np

from dpgen_jax.core.errors import nearest
from dpgen_jax.core.types import Column, Identifier, TableSpec, UserError
from dpgen_jax.data.table import transform

TOKEN = re.compile(r'"([^"]*)"|(->|<=|>=|<|>|=|\+|-)(?=\s|$)|(\S+)')
ORDER: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt, "=": operator.eq}
SWAPPED = {">=": "<=", ">": "<"}


@dataclasses.dataclass(frozen=True)
class Field:
    """A column, and its place in a table."""

    column: Column
    at: int

    @property
    def step(self) -> float:
        """The distance of neighbouring codes; 0 for numbers that have none."""
        return 1.0 if self.column.kind != "continuous" else transform.step(self.column) or 0.0

    def values(self, table: np.ndarray) -> np.ndarray:
        """Returns the codes [n], NaN for null and for special ones outside the bounds."""
        codes = table[:, self.at]
        outside = self.column.outside
        return np.where(np.isin(codes, outside), np.nan, codes) if outside else codes


@dataclasses.dataclass(frozen=True)
class Compare:
    """low <= high, or low < high, of two columns. Broken rows swap them, and keep their bounds."""

    low: Field
    high: Field
    strict: bool

    def broken(self, table: np.ndarray) -> np.ndarray:
        """Returns which rows of a table break it: bool [n]."""
        a, b = self.low.values(table), self.high.values(table)
        return (a >= b) if self.strict else (a > b)

    def mended(self, table: np.ndarray) -> np.ndarray:
        """Returns broken rows, float64 [n, K], mended."""
        table, step = table.copy(), max(self.low.step, self.high.step)
        a, b = table[:, self.low.at], table[:, self.high.at]
        low = np.maximum(np.minimum(a, b), transform.bounds(self.low.column)[0])
        most = transform.bounds(self.high.column)[1]
        high = np.minimum(np.maximum(a, b), most)
        if self.strict:
            equal, room = low >= high, high + step <= most
            high = np.where(equal & room, high + step, high)
            low = np.where(equal & ~room, low - step, low)
        table[:, self.low.at], table[:, self.high.at] = low, high
        return table


@dataclasses.dataclass(frozen=True)
class Sum:
    """total = a + b - c. Broken rows take the sum, after its parts keep it within its bounds."""

    total: Field
    parts: tuple[tuple[int, Field], ...]

    def sum(self, table: np.ndarray) -> np.ndarray:
        """Returns the sum of the parts: float64 [n]."""
        return np.sum([sign * part.values(table) for sign, part in self.parts], 0)

    def broken(self, table: np.ndarray) -> np.ndarray:
        """Returns which rows break it: bool [n]."""
        apart = np.abs(self.total.values(table) - self.sum(table))
        return apart > self.total.step / 2

    def mended(self, table: np.ndarray) -> np.ndarray:
        """Returns broken rows, float64 [n, K], mended."""
        table = table.copy()
        least, most = transform.bounds(self.total.column)
        for up in (1, -1):  # what is above the bounds, then what is below
            over = np.maximum(up * (self.sum(table) - (most if up > 0 else least)), 0)
            for sign, part in self.parts:
                low, high = transform.bounds(part.column)
                values = table[:, part.at]
                room = values - low if sign == up else high - values
                change = np.minimum(np.ceil(over / part.step - 1e-9) * part.step, room)
                table[:, part.at] = near(values - sign * up * change, part.column)
                over = np.maximum(over - change, 0)
        table[:, self.total.at] = near(self.sum(table), self.total.column)
        return table


@dataclasses.dataclass(frozen=True)
class Condition:
    """A column compared with a value; NaN, with =, is null."""

    field: Field
    sign: str
    value: float

    def holds(self, table: np.ndarray) -> np.ndarray:
        """Returns in which rows it holds: bool [n]. A special value is equal only to itself."""
        if self.sign == "=":
            codes = table[:, self.field.at]
            return np.isnan(codes) if np.isnan(self.value) else codes == self.value
        return ORDER[self.sign](self.field.values(table), self.value)


@dataclasses.dataclass(frozen=True)
class Implies:
    """Where `first` holds `then` holds. Broken rows take the value of `then`."""

    first: Condition
    then: Condition

    def broken(self, table: np.ndarray) -> np.ndarray:
        """Returns which rows break it: bool [n]."""
        unknown = np.isnan(self.then.field.values(table)) & (self.then.sign != "=")
        return self.first.holds(table) & ~self.then.holds(table) & ~unknown

    def mended(self, table: np.ndarray) -> np.ndarray:
        """Returns broken rows, float64 [n, K], mended."""
        table, then = table.copy(), self.then
        beside = {"<": -then.field.step, ">": then.field.step}.get(then.sign, 0.0)
        table[:, then.field.at] = then.value + beside
        return table


Rule = Compare | Sum | Implies


def near(values: np.ndarray, column: Column) -> np.ndarray:
    """Returns numbers rounded to the decimals that the column has."""
    return np.round(values, max(column.decimals, 0)) + 0.0


@functools.lru_cache(maxsize=64)
def read_rules(spec: TableSpec) -> tuple[Rule, ...]:
    """Returns the constraints of a schema as rules.

    A UserError quotes the constraint that cannot be read, and the mend.
    """
    fields = {column.name: Field(column, i) for i, column in enumerate(spec.all_columns)}
    made = []
    for text in spec.constraints:
        try:
            made.append(_rule(text, fields, spec.label.name))
        except UserError as error:
            raise UserError(f"constraint {text!r}: {error}") from error
    return tuple(made)


def _rule(text: str, fields: dict[str, Field], label: str) -> Rule:
    words = _words(text)
    if "->" in words:
        at = words.index("->")
        first, then = (_condition(part, fields) for part in (words[:at], words[at + 1:]))
        if then.field.column.name == label:
            raise UserError("the label is never changed; write it on the left of ->")
        _check_then(then)
        return Implies(first, then)
    if len(words) < 3 or words[1] not in ORDER or len(words) % 2 == 0:
        raise UserError("write a <= b, total = a + b, or a = x -> b = y, with spaces between")
    named = [_field(word, fields) for word in words[::2]]
    if any(field.column.name == label for field in named):
        raise UserError("the label stands on the left of -> only")
    if words[1] == "=":
        return _sum(named, words[3::2])
    if len(named) > 2:
        raise UserError("a comparison is of two columns")
    return _compare(named, words[1])


def _words(text: str) -> list[str]:
    """Returns names, values and operators in turn; a name may be several words."""
    words: list[str] = []
    joined = False
    for match in TOKEN.finditer(text):
        quoted, sign, word = match.groups()
        if sign is not None:
            words.append(sign)
        elif joined:
            words[-1] += f" {word if quoted is None else quoted}"
        else:
            words.append(word if quoted is None else quoted)
        joined = sign is None
    return words


def _field(word: str, fields: dict[str, Field]) -> Field:
    if word not in fields:
        raise UserError(f"{word!r} is not a column with values{nearest(word, fields)}")
    return fields[word]


def _condition(words: list[str], fields: dict[str, Field]) -> Condition:
    if len(words) != 3 or words[1] not in ORDER:
        raise UserError("each side of -> is a column, an operator and a value, as a = x")
    field, (_, sign, text) = _field(words[0], fields), words
    column = field.column
    if text in column.categories:
        value: float | None = float(column.categories.index(text))
    elif text == "null" and sign == "=" and column.nullable:
        value = np.nan
    elif column.categories:
        raise UserError(f"{text!r} is not a category of "
                        f"{column.name}{nearest(text, column.categories)}")
    else:
        value = (transform.number(text) if column.written == "plain" else
                 transform.reader(column)(text))
    if value is None:
        raise UserError(f"{text!r} is not a {transform.what(column)}, as {column.name} has")
    if column.kind == "categorical" and sign != "=":
        raise UserError(f"the categories of {column.name} have no order; write =")
    return Condition(field, sign, value)


def _check_then(then: Condition) -> None:
    """Checks that what follows can be made to hold."""
    field, column = then.field, then.field.column
    low, high = transform.bounds(column)
    if then.sign in ("<", ">") and not field.step:
        raise UserError(f"{column.name} has no nearest number; write {then.sign}=")
    inside = low <= then.value <= high or then.value in column.special or np.isnan(then.value)
    beside = {"<": -1, ">": 1}.get(then.sign, 0) * field.step
    is_written = (column.kind != "continuous" or np.isnan(then.value)
                  or transform.rounded(column, np.array([then.value]))[0] == then.value)
    whole = column.kind == "continuous" or np.isnan(then.value) or then.value.is_integer()
    if not (inside and is_written and whole) or (beside and not low <= then.value + beside <= high):
        raise UserError(f"{column.name} has no such value within its bounds")


def _compare(named: list[Field], sign: str) -> Compare:
    if sign in SWAPPED:
        named, sign = named[::-1], SWAPPED[sign]
    low, high = named
    kinds = [(field.column.written, field.column.categories) for field in named]
    if kinds[0] != kinds[1] or "categorical" in (low.column.kind, high.column.kind) or low == high:
        raise UserError("both columns must be numbers, or both dates, both times, or both ordinal "
                        "with the same categories")
    if sign == "<" and not (low.step and high.step):
        raise UserError("numbers without declared decimals have no next one; write <=")
    step = max(low.step, high.step) if sign == "<" else 0.0
    if transform.bounds(low.column)[0] + step > transform.bounds(high.column)[1]:
        raise UserError("no values within the bounds fulfil it")
    return Compare(low, high, sign == "<")


def _sum(named: list[Field], signs: list[str]) -> Sum:
    total, parts = named[0], named[1:]
    if set(signs) - {"+", "-"}:
        raise UserError("columns are added by + and -")
    if len({field.at for field in named}) < len(named):
        raise UserError("a column stands in it twice")
    for field in named:
        column = field.column
        if column.categories or column.written not in ("plain", "duration"):
            raise UserError(f"{column.name} is not a number that can be added")
        if column.kind == "continuous" and column.decimals < 0 and column.written == "plain":
            raise UserError(f"{column.name} has no declared decimals, without which a sum is not "
                            "exact; add decimals: 2, or as many as it has")
    if total.step > min(part.step for part in parts):
        raise UserError(f"{total.column.name} has fewer decimals than its parts; declare as many")
    made = Sum(total, tuple((-1 if sign == "-" else 1, part)
                            for sign, part in zip(["+", *signs], parts, strict=True)))
    ends = [sum(sign * transform.bounds(part.column)[(sign > 0) == most]
                for sign, part in made.parts) for most in (False, True)]
    if ends[0] > total.column.high or ends[1] < total.column.low:
        raise UserError("no values within the bounds fulfil it")
    return made


MOMENTS = ("date", "datetime", "time")
"""The ways of writing columns whose distance a method may learn."""


def constrained_columns(spec: TableSpec) -> frozenset[str]:
    """Returns the names of the columns that stand in a constraint: mending changes no other."""
    found: set[str] = set()
    for rule in read_rules(spec):
        fields = ((rule.low, rule.high) if isinstance(rule, Compare) else
                  (rule.first.field, rule.then.field) if isinstance(rule, Implies) else
                  (rule.total, *(part for _, part in rule.parts)))
        found |= {field.column.name for field in fields}
    return frozenset(found)


def determined_names(spec: TableSpec) -> tuple[str, ...]:
    """Returns the names of the columns that are functions of others, by equations only.

    A sum without nulls and special values is one, and so is a category where each value of another
    column, or of the label, implies one value of it. A definition reads no column that is defined
    after it, so that computing them in their order ends.
    """
    found: list[str] = []
    read: set[int] = set()
    for rule in read_rules(spec):
        if isinstance(rule, Sum):
            target, sources = rule.total, [part for _, part in rule.parts]
            is_function = not any(field.column.nullable or field.column.outside
                                  for field in (target, *sources))
        elif isinstance(rule, Implies):
            target, sources = rule.then.field, [rule.first.field]
            is_function = _is_map(rule, read_rules(spec))
        else:
            continue
        if is_function and target.at not in read and target.column.name not in found:
            found.append(target.column.name)
            read |= {source.at for source in sources}
    return tuple(found)


def determined_gaps(spec: TableSpec) -> tuple[tuple[str, str], ...]:
    """Returns the lower and the higher column, by name, of comparisons that are learned as a gap.

    Both are dates or times: two moments of one event are close to each other compared with their
    bounds, which need not hold of two amounts. The bounds overlap, and the lower one always has a
    value. A column is the higher one once, and the lower one of no earlier pair, so that rows are
    made in the order of the pairs.
    """
    found: dict[str, str] = {}
    for rule in read_rules(spec):
        if not isinstance(rule, Compare):
            continue
        low, high = rule.low.column, rule.high.column
        once = high.name not in {*found, *found.values()}
        moments = low.written in MOMENTS  # and so is the other: they are of one kind
        always = not (low.nullable or low.special) and len(high.special) == len(high.outside)
        overlap = max(low.low, high.low) < min(low.high, high.high)
        if once and moments and always and overlap:
            found[high.name] = low.name
    return tuple((low, high) for high, low in found.items())


def _is_map(rule: Implies, among: tuple[Rule, ...]) -> bool:
    """Whether these rules give each value of a category exactly one value of another."""
    source, target = rule.first.field, rule.then.field
    if source.column.kind != "categorical" or target.column.kind != "categorical":
        return False
    others = [other for other in among if isinstance(other, Implies) and other.then.field == target]
    wanted = {*range(len(source.column.categories)), *([None] if source.column.nullable else [])}
    values = [None if np.isnan(other.first.value) else other.first.value for other in others]
    return (not target.column.nullable and set(values) == wanted and len(values) == len(wanted)
            and all(other.first.field == source for other in others))


def computed_columns(spec: TableSpec, table: np.ndarray) -> np.ndarray:
    """Returns rows [n, K] whose derived columns are what their definitions say, within bounds."""
    table = table.copy()
    for rule in read_rules(spec):
        if isinstance(rule, Sum) and rule.total.column.name in spec.derived:
            total = rule.total
            table[:, total.at] = np.clip(near(rule.sum(table), total.column),
                                         *transform.bounds(total.column))
        elif isinstance(rule, Implies) and rule.then.field.column.name in spec.derived:
            rows = rule.first.holds(table)
            table[rows, rule.then.field.at] = rule.then.value
    return table


PASSES = 12
"""How often all constraints are looked at: mending one may break another."""
NUMBERS = 2**24
"""The most numbers that `check` draws for its random rows."""
TRIED = 512
"""Rows drawn at random that must be mended before a schema is taken."""


@dataclasses.dataclass(frozen=True)
class Finished:
    """Rows that keep the schema and its constraints.

    Attributes:
        codes: float64 [n, columns], as `transform` says.
        mended: How many rows broke each constraint as they were drawn, once columns that are
            functions of others were computed.
        replaced: How many rows could not be mended, and are copies of others of their class.
        before: How many further rows the numbers include.
    """

    codes: np.ndarray
    mended: dict[str, int] = dataclasses.field(default_factory=dict)
    replaced: int = 0
    before: int = 0

    def added(self, other: Finished) -> Finished:
        """Returns the numbers of these rows and of others, without the rows."""
        rows = sum(len(made.codes) + made.before for made in (self, other))
        counts = {text: count + self.mended.get(text, 0) for text, count in other.mended.items()}
        return Finished(self.codes[:0], counts, self.replaced + other.replaced, rows)

    def lines(self) -> tuple[str, ...]:
        """Returns a line for each constraint, on how many of the rows were mended for it."""
        n = len(self.codes) + self.before
        more = (f"constraints: {self.replaced:,} of {n:,} rows could not be mended, and are copies "
                "of others of their class",) if self.replaced else ()
        return (*(f"constraint {text}: {count:,} of {n:,} rows mended"
                  for text, count in self.mended.items()), *more)


def finished(spec: TableSpec, encoded: np.ndarray, y: np.ndarray) -> Finished:
    """Decodes features [n, F] that a method drew, and mends the rows that break a constraint.

    Classes y, int [n], are never changed. A row depends on itself only, unless it cannot be mended.
    Where no row of a class that is there fulfils all constraints, it is a UserError.
    """
    return mended(spec, transform.decode(spec, encoded), y)


def mended(spec: TableSpec, codes: np.ndarray, y: np.ndarray) -> Finished:
    """Does as `finished`, from codes [n, columns].

    Numbers without declared decimals that stand in a schema with constraints are rounded as they
    are written, so that constraints hold in the file too.
    """
    if not spec.constraints:
        return Finished(codes)
    rules = read_rules(spec)
    table = computed_columns(spec, _written(spec, np.column_stack([codes, y])))
    counts = {text: int(rule.broken(table).sum())
              for text, rule in zip(spec.constraints, rules, strict=True)}
    table = _mended(spec, table)
    rows = np.flatnonzero(_broken(rules, table))
    table[rows] = _copies(table, rows, spec)
    return Finished(table[:, :-1], counts, len(rows))


def check(spec: TableSpec) -> None:
    """Checks that random rows of every class can be mended, before anything is spent on a schema.

    A UserError names a constraint that cannot be read, or a class whose rows cannot fulfil all.
    """
    if read_rules(spec):
        rng = np.random.default_rng(0)
        n = max(TRIED // 8, min(max(TRIED, 8 * spec.classes), NUMBERS // spec.shape[0]))
        encoded = rng.random((n, *spec.shape))
        made = finished(spec, encoded, np.arange(n) % spec.classes)
        if made.replaced > n // 2:
            raise UserError(f"constraints {', '.join(spec.constraints)}: most rows that are drawn "
                            "at random cannot fulfil all of them; drop or widen one")


def _mended(spec: TableSpec, table: np.ndarray) -> np.ndarray:
    rules = read_rules(spec)
    for _ in range(PASSES):
        rows = np.flatnonzero(_broken(rules, table))
        if not len(rows):
            break
        part = table[rows]
        for rule in rules:
            wrong = rule.broken(part)
            part[wrong] = rule.mended(part[wrong])
        table[rows] = _written(spec, part)
    return table


def _written(spec: TableSpec, table: np.ndarray) -> np.ndarray:
    """Rounds numbers as they are written: float64 [n, K]."""
    for i, column in enumerate(spec.columns):
        if column.kind == "continuous" and column.written == "plain":
            table[:, i] = transform.rounded(column, table[:, i])
    return table


def _broken(rules: tuple[Rule, ...], table: np.ndarray) -> np.ndarray:
    return np.any([rule.broken(table) for rule in rules], axis=0)


def _copies(table: np.ndarray, rows: np.ndarray, spec: TableSpec) -> np.ndarray:
    """Returns rows in place of those that cannot be mended: the next ones of their class."""
    good = np.setdiff1d(np.arange(len(table)), rows)
    copies = table[rows]
    for i, row in enumerate(rows.tolist()):
        alike = good[table[good, -1] == table[row, -1]]
        copies[i] = (table[alike[np.searchsorted(alike, row) % len(alike)]] if len(alike)
                     else _any_row(spec, int(table[row, -1])))
    return copies


@functools.lru_cache(maxsize=1024)
def _any_row(spec: TableSpec, label: int) -> np.ndarray:
    """Returns a row of a class, float64 [K], which fulfils all constraints, of random ones."""
    encoded = np.random.default_rng(0).random((TRIED, *spec.shape))
    y = np.full(TRIED, float(label))
    table = _mended(spec, np.column_stack([transform.decode(spec, encoded), y]))
    good = table[~_broken(read_rules(spec), table)]
    if not len(good):
        of_class = f" of class {spec.label.categories[label]!r}" if spec.labelled else ""
        raise UserError(f"constraints {', '.join(spec.constraints)}: no row{of_class} fulfils all "
                        "of them; drop or widen one")
    row: np.ndarray = good[0]
    return row


def written_cells(spec: TableSpec, codes: np.ndarray, y: np.ndarray, first: int = 0
                  ) -> tuple[list[str], list[list[str]]]:
    """Writes codes [n, columns] and classes [n] as cells of text; `tables.csv` reads them back.

    The columns are those of the schema in its order, as `transform` writes them: whole numbers
    without a point, other numbers to their decimals or to 6 significant digits, within their
    bounds, null as an empty cell. Identifiers are new ones, counted from `first`, the number of
    rows that were written before: parts of a long table differ. Synthetic rows come from
    `finished`.

    Returns:
        The column names, and the rows.

    Raises:
        UserError: A pattern has not as many identifiers.
    """
    columns = [(column.name, transform.texts(column, values))
               for column, values in in_order(spec, codes, y)]
    for identifier in spec.identifiers:
        columns.insert(identifier.position, (identifier.name, written_identifiers(
            identifier, first, len(y))))
    return [name for name, _ in columns], [
        list(row) for row in zip(*(texts for _, texts in columns), strict=True)]


def written_identifiers(identifier: Identifier, first: int, n: int) -> list[str]:
    """Returns n identifiers that no other row has: the pattern's, in the order of their numbers.

    The first number is that of the identifiers that were made before. A UserError where the pattern
    has fewer.
    """
    require_identifiers(identifier, first + n)
    signs = _signs(identifier)
    made = []
    for number in range(first, first + n):
        text = []
        for choices in reversed(signs):
            number, place = divmod(number, len(choices))
            text.append(choices[place])
        made.append("".join(reversed(text)))
    return made


def require_identifiers(identifier: Identifier, n: int) -> None:
    """Refuses more rows of a whole table than a pattern has identifiers."""
    most = math.prod(map(len, _signs(identifier)))
    if n > most and identifier.numbered:
        raise UserError(f"column {identifier.name}: the pattern {identifier.pattern!r} has "
                        f"{most:,} identifiers, and {n:,} are needed; sample fewer rows, or "
                        "declare a longer one")


def _signs(identifier: Identifier) -> list[str]:
    """Returns what may stand at each place of a pattern."""
    return [{"#": digits, "@": ascii_uppercase}.get(sign, sign) for sign in identifier.pattern]


def in_order(spec: TableSpec, codes: np.ndarray, y: np.ndarray) -> list[tuple[Column, np.ndarray]]:
    """Returns all columns but identifiers, in the order of the file, with their codes [n]."""
    columns = list(zip(spec.columns, np.asarray(codes, np.float64).T, strict=True))
    if spec.labelled:
        columns.insert(spec.label_position, (spec.label, np.asarray(y, np.float64)))
    return columns
