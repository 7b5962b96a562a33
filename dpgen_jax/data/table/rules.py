"""Rules between the columns of every row, as a schema lists them, one a line.

    constraints:
      - admitted <= seen <= discharged
      - total = price + tax - rebate
      - pregnant = yes -> age < 55 and sex = F
      - age < 18 -> pay = null
      - admitted = date(arrived)
      - age = years(admitted - born)
      - stay = discharged - admitted
      - country, city in DE, Bonn; DE, Jena; FR, Lyon

Operators stand between spaces; a name that contains an operator stands in double quotes. A row
satisfies a comparison, a sum or a list of combinations if one of its cells in it is null, or
special outside the bounds. The label may stand on the left of an implication only, and is never
changed. A table is float64 [n, K]: codes, the class last.

The functions of columns are computed: the date of a date with a time, in the zone of its column;
the completed years between two dates; the days between two dates. They are null where one of their
columns is.
"""

from __future__ import annotations

import csv
import dataclasses
import datetime
import functools
import itertools
import operator
import re
from collections.abc import Callable, Iterable

import numpy as np

from dpgen_jax.core.errors import nearest
from dpgen_jax.core.types import Column, TableSpec, UserError
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

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns that stand in it; those that are exchanged first come first."""
        return self.low, self.high

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

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns that stand in it."""
        return self.total, *(part for _, part in self.parts)

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
    """Requires `then` wherever all of `first` hold. Broken rows take the value of `then`."""

    first: tuple[Condition, ...]
    then: Condition

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns that stand in it."""
        return tuple(dict.fromkeys(one.field for one in (*self.first, self.then)))

    def broken(self, table: np.ndarray) -> np.ndarray:
        """Returns which rows break it: bool [n]."""
        unknown = np.isnan(self.then.field.values(table)) & (self.then.sign != "=")
        met = np.all([one.holds(table) for one in self.first], 0)
        return np.asarray(met & ~self.then.holds(table) & ~unknown)

    def mended(self, table: np.ndarray) -> np.ndarray:
        """Returns broken rows, float64 [n, K], mended."""
        table, then = table.copy(), self.then
        shift = {"<": -then.field.step, ">": then.field.step}.get(then.sign, 0.0)
        table[:, then.field.at] = then.value + shift
        return table


@dataclasses.dataclass(frozen=True)
class Among:
    """The combinations that columns may have. Broken rows take one with the same first value."""

    fields: tuple[Field, ...]
    combinations: tuple[tuple[float, ...], ...]

    def _keys(self, rows: np.ndarray) -> np.ndarray:
        sizes = [len(field.column.categories) for field in self.fields]
        return np.ravel_multi_index(tuple(rows.T.astype(np.int64)), sizes)

    def broken(self, table: np.ndarray) -> np.ndarray:
        """Returns which rows break it: bool [n]."""
        codes = table[:, [field.at for field in self.fields]]
        known = ~np.isnan(codes).any(1)
        allowed = np.isin(self._keys(np.where(known[:, None], codes, 0)),
                          self._keys(np.array(self.combinations)))
        return known & ~allowed

    def mended(self, table: np.ndarray) -> np.ndarray:
        """Returns broken rows, float64 [n, K], mended."""
        table, at = table.copy(), [field.at for field in self.fields]
        alike = np.array(self.combinations)
        for row in table:
            kept = alike[alike[:, 0] == row[at[0]]]
            row[at] = kept[0] if len(kept) else alike[0]
        return table


DAY_OF = {"date": 1.0, "datetime": 86_400.0}
"""The codes of a day, by the ways of writing moments."""
YEAR = 365.25


@dataclasses.dataclass(frozen=True)
class Function:
    """target = date(moment), years(later - earlier) or later - earlier.

    Broken rows take its value, after its columns keep it within its bounds.

    Attributes:
        name: "date", "years" or "difference".
        sources: The moment; or the later and the earlier one.
        turned: Whether the later moment is what is computed: a difference, which is exact, tells
            as much, and is learned better.
        later_first: Whether the later moment is moved first to keep the value within its bounds,
            since the earlier one is computed.
    """

    name: str
    target: Field
    sources: tuple[Field, ...]
    turned: bool = False
    later_first: bool = False

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns that stand in it."""
        return self.target, *self.sources

    @property
    def computed(self) -> Field:
        """The column that follows from the others."""
        return self.sources[0] if self.turned else self.target

    @property
    def read(self) -> tuple[Field, ...]:
        """The columns that the computed one follows from."""
        return tuple(field for field in self.fields if field != self.computed)

    @property
    def unit(self) -> float:
        """The codes of a source that one of the target stands for."""
        if self.name == "years":
            return YEAR
        codes = DAY_OF.get(self.sources[0].column.written, 86_400.0)
        return codes / 86_400 if self.target.column.written == "duration" else codes

    def value(self, table: np.ndarray) -> np.ndarray:
        """Returns the value that the target has, float64 [n], whatever its bounds."""
        codes = [field.values(table) for field in self.sources]
        if self.name == "difference":
            return near((codes[0] - codes[1]) / self.unit, self.target.column)
        days = [_days(field.column, of) for field, of in zip(self.sources, codes, strict=True)]
        if self.name == "date":
            return days[0]
        if self.target.column.kind == "integer":
            return _completed(*days)
        return near((days[0] - days[1]) / YEAR, self.target.column)

    def broken(self, table: np.ndarray) -> np.ndarray:
        """Returns which rows break it: bool [n]."""
        is_, must = self.target.values(table), self.value(table)
        apart = np.abs(is_ - must) > (self.target.step or 1e-9) / 2
        return apart | (np.isnan(is_) != np.isnan(must))

    def with_computed(self, table: np.ndarray) -> np.ndarray:
        """Returns rows, float64 [n, K], with the computed column, within its bounds."""
        table, field = table.copy(), self.computed
        value = (self.value(table) if not self.turned else
                 self.sources[1].values(table) + self.target.values(table) * self.unit)
        table[:, field.at] = np.clip(value, *transform.bounds(field.column))
        return table

    def with_moment(self, table: np.ndarray) -> np.ndarray:
        """Returns rows, float64 [n, K], whose moment is on the day of the target, at its time."""
        table, source = table.copy(), self.sources[0]
        for _ in range(2):  # the day may have another offset from UTC
            days = np.nan_to_num(self.target.values(table) - self.value(table))
            moved = table[:, source.at] + days * DAY_OF["datetime"]
            table[:, source.at] = np.where(days, np.clip(
                moved, *transform.bounds(source.column)), table[:, source.at])
        return table

    def mended(self, table: np.ndarray) -> np.ndarray:
        """Returns broken rows, float64 [n, K], mended."""
        table = table.copy()
        low, high = transform.bounds(self.target.column)
        moves = [*zip(self.sources, (1, -1), strict=False)][::1 if self.later_first else -1]
        for field, up in moves:
            value = self.value(table)
            beyond = np.nan_to_num(np.clip(value, low, high) - value)
            size = self.unit if len(self.sources) > 1 else DAY_OF[field.column.written]
            moved = table[:, field.at] + up * np.sign(beyond) * np.ceil(np.abs(beyond) * size)
            moved = np.clip(moved, *transform.bounds(field.column))
            table[:, field.at] = np.where(beyond == 0, table[:, field.at], moved)
        table[:, self.target.at] = np.clip(self.value(table), low, high)
        return table


def _days(column: Column, codes: np.ndarray) -> np.ndarray:
    """Returns the days since 1970-01-01 of dates, and of dates with a time in their zone: [n]."""
    if column.written == "date":
        return codes
    if column.zone:
        zone, epoch = transform.zone_of(column.zone), datetime.datetime(1970, 1, 1)
        utc = epoch.replace(tzinfo=datetime.UTC)
        known = {code: (utc + datetime.timedelta(seconds=code)).astimezone(zone).replace(
            tzinfo=None) - epoch for code in np.unique(codes[~np.isnan(codes)]).tolist()}
        codes = np.array([known[code].total_seconds() if code in known else np.nan
                          for code in codes.tolist()])
    return np.floor(codes / 86_400)


def _completed(later: np.ndarray, earlier: np.ndarray) -> np.ndarray:
    """Returns the completed years between days, float64 [n], below 0 where they are swapped."""
    unknown = np.isnan(later) | np.isnan(earlier)
    years, rest = [], []
    for days in (later, earlier):
        day = np.where(unknown, 0, days).astype("datetime64[D]")
        months = day.astype("datetime64[M]").astype(np.int64)
        years.append(months // 12)
        rest.append(months % 12 * 31 + (day - day.astype("datetime64[M]")).astype(np.int64))
    return np.where(unknown, np.nan, years[0] - years[1] - (rest[0] < rest[1]))


@dataclasses.dataclass(frozen=True)
class Every:
    """Several rules that one line states."""

    parts: tuple[Plain, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns that stand in it."""
        return tuple(dict.fromkeys(field for part in self.parts for field in part.fields))

    def broken(self, table: np.ndarray) -> np.ndarray:
        """Returns which rows break it: bool [n]."""
        return np.asarray(np.any([part.broken(table) for part in self.parts], 0))

    def mended(self, table: np.ndarray) -> np.ndarray:
        """Returns broken rows, float64 [n, K], mended."""
        table = table.copy()
        for part in self.parts:
            wrong = part.broken(table)
            table[wrong] = part.mended(table[wrong])
        return table


Plain = Compare | Sum | Implies | Among | Function
Rule = Plain | Every


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
    return _with_functions(made)


def plain_rules(spec: TableSpec) -> tuple[Plain, ...]:
    """Returns the rules of a schema, with those of one line each by itself."""
    return tuple(part for rule in read_rules(spec)
                 for part in (rule.parts if isinstance(rule, Every) else (rule,)))


def functions(spec: TableSpec) -> tuple[Function, ...]:
    """Returns the functions of columns, each after those that it reads."""
    return _ordered([rule for rule in read_rules(spec) if isinstance(rule, Function)])


def _with_functions(made: list[Rule]) -> tuple[Rule, ...]:
    """Returns the rules, with differences turned where that is exact and makes no circle."""
    of = {i: rule for i, rule in enumerate(made) if isinstance(rule, Function)}
    targets = [rule.target for rule in of.values()]
    twice = [target for target in targets if targets.count(target) > 1]
    if twice:
        raise UserError(f"constraints compute {twice[0].column.name} twice; leave one of them out")
    for i, rule in of.items():
        if _turns(rule, [other for j, other in of.items() if j != i]):
            turned = dataclasses.replace(rule, turned=True)
            if _ordered([*(other for j, other in of.items() if j != i), turned]):
                of[i] = turned
    computed = {rule.computed for rule in of.values()}
    for i, rule in of.items():
        made[i] = dataclasses.replace(rule, later_first=rule.sources[-1] in computed)
    return tuple(made)


def _turns(rule: Function, others: list[Function]) -> bool:
    """Whether a difference tells as much as its later moment, which nothing else computes."""
    later, earlier = rule.sources[0].column, rule.sources[-1].column
    exact = rule.name == "difference" and rule.target.step * rule.unit == rule.sources[0].step
    always = not any(column.nullable or column.special
                     for column in (later, earlier, rule.target.column))
    return exact and always and all(other.computed != rule.sources[0] for other in others)


def _ordered(left: list[Function]) -> tuple[Function, ...]:
    """Returns functions, each after those that it reads; none where they make a circle.

    No number or date is computed from itself as it is written, but turned differences may be.
    """
    made: list[Function] = []
    while left:
        waiting = {rule.computed.at for rule in left}
        free = [rule for rule in left if not waiting & {field.at for field in rule.read}]
        if not free:
            return ()
        made += free
        left = [rule for rule in left if rule not in free]
    return tuple(made)


CALL = re.compile(r"(.+?)\s+=\s+(\w+)\((.*)\)")
CELL = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^,;]*?))\s*([,;]|$)')


def _rule(text: str, fields: dict[str, Field], label: str) -> Rule:
    words = _words(text)
    if (call := CALL.fullmatch(text)) and words[-1] not in fields:
        return _called((call[1], call[2], call[3]), fields, label)
    if "->" in words:
        at = words.index("->")
        first, then = (_conditions(part, fields) for part in (words[:at], words[at + 1:]))
        for one in then:
            if one.field.column.name == label:
                raise UserError("the label is never changed; write it on the left of ->")
            _check_then(one)
        return _together(Implies(first, one) for one in then)
    if not set(words) & {*ORDER, "->"} and " in " in text:
        return _among(text, fields, label)
    if len(words) < 3 or words[1] not in ORDER or len(words) % 2 == 0:
        raise UserError("write a <= b, total = a + b, a = x -> b = y, a = date(b) or "
                        "a, b in x, y; p, q, with spaces between")
    named = [_field(word, fields) for word in words[::2]]
    _require_no_label(named, label)
    if words[1] == "=":
        moments = len(named) == 3 and words[3] == "-" and all(
            field.column.written in DAY_OF for field in named[1:])
        return _function("difference", named) if moments else _sum(named, words[3::2])
    if len(named) > 2 and not set(words[1::2]) <= {*ORDER} - {"="}:
        raise UserError("a comparison is of two columns, or of a chain: a <= b <= c")
    return _together(_compare([*pair], sign) for pair, sign in zip(
        itertools.pairwise(named), words[1::2], strict=True))


def _together(parts: Iterable[Plain]) -> Rule:
    found = tuple(parts)
    return found[0] if len(found) == 1 else Every(found)


def _require_no_label(named: Iterable[Field], label: str) -> None:
    if any(field.column.name == label for field in named):
        raise UserError("the label stands on the left of -> only")


def _called(call: tuple[str, str, str], fields: dict[str, Field], label: str) -> Function:
    """Returns target = date(moment), or target = years(later - earlier)."""
    target, name, inside = call
    words = _words(inside)
    sizes = {"date": 1, "years": 3}
    if name not in sizes:
        raise UserError(f"{name} is not a function{nearest(name, sizes)}; write a = date(b), "
                        "a = years(b - c) or a = b - c")
    if len(words) != sizes[name] or (words[1:2] or ["-"]) != ["-"]:
        raise UserError("write a = date(b), or a = years(b - c)")
    named = [_field(word, fields) for word in (*_words(target), *words[::2])]
    _require_no_label(named, label)
    return _function(name, named)


def _function(name: str, named: list[Field]) -> Function:
    """Returns a function of moments, which are checked."""
    target, *sources = named
    column = target.column
    if len({field.at for field in named}) < len(named):
        raise UserError("a column stands in it twice")
    kinds = [field.column.written for field in sources]
    if name == "date" and (column.written, kinds) != ("date", ["datetime"]):
        raise UserError("date() makes a date of a datetime; the columns are of other kinds")
    if name == "years" and not set(kinds) <= {*DAY_OF}:
        raise UserError("years() is of two dates, the later one first")
    if name == "difference" and kinds[0] != kinds[1]:
        raise UserError("both moments must be dates, or both datetimes")
    counts = column.written == "plain" and not column.categories and target.step
    if name != "date" and not (counts or (name == "difference" and column.written == "duration")):
        raise UserError(f"{column.name} is not a number with declared decimals, which can be "
                        "computed")
    if any(source.column.nullable for source in sources) and not column.nullable:
        raise UserError(f"{column.name} is null where its columns are; declare it nullable: true")
    return Function(name, target, tuple(sources))


def _among(text: str, fields: dict[str, Field], label: str) -> Among:
    """Returns the combinations that are listed: values with commas, semicolons between them."""
    left, right = text.split(" in ", 1)
    named = [_field(text.strip().strip('"'), fields) for text in left.split(",")]
    _require_no_label(named, label)
    if len(named) < 2:
        raise UserError("combinations are of two columns or more; list the categories of one")
    rows: list[list[str]] = [[]]
    for quoted, plain, sign in CELL.findall(right):
        rows[-1].append(quoted.replace('""', '"') or plain)
        if sign != ",":
            rows.append([])
    found: dict[tuple[float, ...], None] = {}
    for row in [row for row in rows if any(row)]:
        if len(row) != len(named):
            raise UserError(f"{', '.join(row)!r} has {len(row)} of {len(named)} values")
        found[tuple(_category(cell, field.column)
                    for cell, field in zip(row, named, strict=True))] = None
    return Among(tuple(named), tuple(found))


def listing(names: str, lines: list[str]) -> str:
    """Returns the rule of combinations that a file lists, with commas, below a header or none."""
    rows = list(csv.reader(lines, skipinitialspace=True))
    if rows and rows[0] == [name.strip().strip('"') for name in names.split(",")]:
        rows = rows[1:]
    text = "; ".join(", ".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows)
    return f"{names} in {text}"


def _category(text: str, column: Column) -> float:
    """Returns the code of a category."""
    if text not in column.categories:
        raise UserError(f"{text!r} is not a category of {column.name}"
                        f"{nearest(text, column.categories)}")
    return float(column.categories.index(text))


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


def _conditions(words: list[str], fields: dict[str, Field]) -> tuple[Condition, ...]:
    """Returns conditions with `and` between them."""
    made = []
    while len(words) > 3 and words[3] in ORDER:
        parts = words[2].split(" and ")
        cut = next((i for i in range(1, len(parts)) if " and ".join(parts[i:]) in fields), None)
        if cut is None:
            raise UserError(f"{words[2]!r} is not a value and a column; write a = x and b = y")
        made.append(_condition([*words[:2], " and ".join(parts[:cut])], fields))
        words = [" and ".join(parts[cut:]), *words[3:]]
    return (*made, _condition(words, fields))


def _condition(words: list[str], fields: dict[str, Field]) -> Condition:
    if len(words) != 3 or words[1] not in ORDER:
        raise UserError("each side of -> is a column, an operator and a value, as a = x")
    field, (_, sign, text) = _field(words[0], fields), words
    column = field.column
    value: float | None
    if text == "null" and text not in column.categories and sign == "=" and column.nullable:
        value = np.nan
    elif column.categories:
        value = _category(text, column)
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
    shift = {"<": -1, ">": 1}.get(then.sign, 0) * field.step
    is_written = (column.kind != "continuous" or np.isnan(then.value)
                  or transform.rounded(column, np.array([then.value]))[0] == then.value)
    whole = column.kind == "continuous" or np.isnan(then.value) or then.value.is_integer()
    if not (inside and is_written and whole) or (shift and not low <= then.value + shift <= high):
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
