"""Synthetic rows: decoded, mended where they break a constraint, written.

All rows that a method drew are decoded by `finished`, which also mends the rows that break a
constraint (`rules`). It reads the declared schema and the rows only, so it is post-processing and
costs no privacy.

Columns that are functions of others are computed. A row that breaks an implication or a list of
combinations exchanges a value with a row of its class and block where both then keep all
constraints: columns keep the shares that the method gave them, which they would not if the values
were overwritten. Only what no exchange can mend is overwritten.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from string import ascii_uppercase, digits

import numpy as np

from dpgen_jax.core.types import Column, Identifier, TableSpec, UserError
from dpgen_jax.data.table import transform
from dpgen_jax.data.table.rules import (
    Among,
    Compare,
    Field,
    Implies,
    Plain,
    Rule,
    Sum,
    functions,
    near,
    plain_rules,
    read_rules,
)

MOMENTS = ("date", "datetime", "time")
"""The ways of writing columns whose distance a method may learn."""


def constrained_columns(spec: TableSpec) -> frozenset[str]:
    """Returns the names of the columns that stand in a constraint: mending changes no other."""
    return frozenset(field.column.name for rule in read_rules(spec) for field in rule.fields)


def determined_names(spec: TableSpec) -> tuple[str, ...]:
    """Returns the names of the columns that are functions of others, by equations only.

    A sum without nulls and special values is one, and so is a category where each value of another
    column, or of the label, implies one value of it. A definition reads no column that is defined
    after it, so that computing them in their order ends.
    """
    found: list[str] = []
    read: set[int] = set()
    computed = functions(spec)
    apart = {name for pair in _gaps(spec, {rule.computed.column.name for rule in computed
                                           if rule.name != "date"}) for name in pair}
    for function in computed:
        # A date that a gap is learned from is learned itself, and its moment moved to that day.
        if function.computed.column.name not in apart:
            found.append(function.computed.column.name)
            read |= {field.at for field in function.read}
    for rule in plain_rules(spec):
        if isinstance(rule, Sum):
            target, sources = rule.total, [part for _, part in rule.parts]
            is_function = not any(field.column.nullable or field.column.outside
                                  for field in (target, *sources))
        elif isinstance(rule, Implies):
            target, sources = rule.then.field, [one.field for one in rule.first]
            is_function = _is_map(rule, plain_rules(spec))
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
    return _gaps(spec, {*determined_names(spec)})


def _gaps(spec: TableSpec, computed: set[str]) -> tuple[tuple[str, str], ...]:
    """Returns the gaps between columns that are not computed."""
    found: dict[str, str] = {}
    for rule in plain_rules(spec):
        if not isinstance(rule, Compare):
            continue
        low, high = rule.low.column, rule.high.column
        if computed & {low.name, high.name}:
            continue
        once = high.name not in {*found, *found.values()}
        moments = low.written in MOMENTS  # and so is the other: they are of one kind
        always = not (low.nullable or low.special) and len(high.special) == len(high.outside)
        overlap = max(low.low, high.low) < min(low.high, high.high)
        if once and moments and always and overlap:
            found[high.name] = low.name
    return tuple((low, high) for high, low in found.items())


def _is_map(rule: Implies, among: tuple[Plain, ...]) -> bool:
    """Whether these rules give each value of a category exactly one value of another."""
    source, target = rule.first[0].field, rule.then.field
    if source.column.kind != "categorical" or target.column.kind != "categorical":
        return False
    others = [other for other in among if isinstance(other, Implies) and other.then.field == target]
    wanted = {*range(len(source.column.categories)), *([None] if source.column.nullable else [])}
    if any(len(other.first) > 1 for other in others):
        return False
    values = [None if np.isnan(other.first[0].value) else other.first[0].value for other in others]
    return (not target.column.nullable and set(values) == wanted and len(values) == len(wanted)
            and all(other.first[0].field == source for other in others))


def computed_columns(spec: TableSpec, table: np.ndarray) -> np.ndarray:
    """Returns rows [n, K] whose derived columns are what their definitions say, within bounds."""
    table = table.copy()
    left = {*spec.derived}
    for function in functions(spec):
        if function.computed.column.name in left:
            table = function.with_computed(table)
            left.remove(function.computed.column.name)
        elif function.name == "date":
            table = function.with_moment(table)
    for rule in plain_rules(spec):
        if isinstance(rule, Sum) and rule.total.column.name in left:
            total = rule.total
            table[:, total.at] = np.clip(near(rule.sum(table), total.column),
                                         *transform.bounds(total.column))
        elif isinstance(rule, Implies) and rule.then.field.column.name in left:
            rows = rule.first[0].holds(table)
            table[rows, rule.then.field.at] = rule.then.value
    return table


BLOCK = 500
"""Rows that exchange values with each other: as many as are drawn at once."""
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
    table = _mended(spec, _exchanged(spec, table))
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


def _exchanged(spec: TableSpec, table: np.ndarray) -> np.ndarray:
    """Returns rows [n, K] of which those that break a rule exchanged a value with others."""
    rules = plain_rules(spec)
    exchanging = [rule for rule in rules if isinstance(rule, Implies | Among)]
    fixed = {*spec.derived, spec.label.name}
    table = table.copy()
    for start in range(0, len(table), BLOCK) if exchanging else ():
        block = table[start:start + BLOCK]
        for rule in exchanging:
            for field in rule.fields:
                if field.column.name not in fixed and rule.broken(block).any():
                    _exchange(spec, block, rule, field)
    return table


def _exchange(spec: TableSpec, block: np.ndarray, rule: Plain, field: Field) -> None:
    """Exchanges values of a column between rows that break a rule and others, in place."""
    rules = read_rules(spec)
    broken = _broken(rules, block)
    for label in np.unique(block[rule.broken(block), -1]):
        others = np.flatnonzero(block[:, -1] == label)
        rows = others[rule.broken(block[others])]
        left, right = np.repeat(rows, len(others)), np.tile(others, len(rows))
        mine, theirs = block[left], block[right]
        mine[:, field.at], theirs[:, field.at] = block[right, field.at], block[left, field.at]
        good = ~(_broken(rules, computed_columns(spec, mine))
                 | _broken(rules, computed_columns(spec, theirs)))
        used: set[int] = set()
        for row, may in zip(rows.tolist(), good.reshape(len(rows), -1), strict=True):
            free = [at for at in others[may].tolist() if at not in used] if row not in used else []
            if free:  # one that is broken too, or else the next one, so that partners are spread
                partner = min(free, key=lambda at: (not broken[at], at < row, at))
                used |= {row, partner}
                pair = [row, partner]
                block[pair, field.at] = block[pair[::-1], field.at]
                block[pair] = computed_columns(spec, block[pair])


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
