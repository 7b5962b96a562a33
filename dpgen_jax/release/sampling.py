"""Synthetic records in blocks, in memory that does not grow, and conditions on their columns.

Conditions are texts such as `age>=60`, `city=Rome|Oslo` and `pay=null`, of which `and` joins
several. They are checked against
the schema first: a condition that no record of the schema can meet is refused. Null meets no
comparison, not even `!=`; only `=null`, and a set that names null, includes it.

Conditions on the label are exact: only classes that meet them are drawn, in the shares that the
release has for them. Some models can be restricted by conditions on other columns (`narrowed`):
for each column to a set of values that contains all wanted ones. Such a model may draw a few
others, by rounding or where the wanted values are not a range, and they are rejected. All other
conditions are met by rejection: records are drawn until enough of them meet the conditions. The
result has the law of filtered records.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from dpgen_jax.core.errors import nearest, option
from dpgen_jax.core.types import Column, ImageSpec, Spec, TableSpec, UserError, Wanted
from dpgen_jax.data.table import constraints, transform
from dpgen_jax.data.table.constraints import Finished

if TYPE_CHECKING:  # an exported folder has this module, and no methods
    from dpgen_jax.core.types import Method, PyTree

LABEL = "label"
"""The name by which conditions call the class of an image."""
OPERATOR = re.compile(r"\s*(!=|>=|<=|==|=|>|<)\s*")
AND = re.compile(r"\s+and\s+", re.IGNORECASE)
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
NULL, NULLS = "null", ("None", "nan", "NaT", "<NA>")
Where = str | Iterable[str] | Mapping[str, object] | None
"""Conditions as users write them, which `parse_conditions` reads."""
Labels = int | str | Sequence[int] | Sequence[str] | np.ndarray | None
"""Classes as users name them; None: all."""
HOW = ("write COLUMN=VALUE, COLUMN=A|B, COLUMN!=VALUE, COLUMN>=VALUE, COLUMN=LOW..HIGH or "
       "COLUMN=null")


@dataclasses.dataclass(frozen=True)
class Condition:
    """One condition on one column.

    Attributes:
        text: As the user wrote it.
        place: The place of the column among the codes; -1 for the label.
        column: The column.
        test: From codes float64 [n] without null to bool [n].
        null: Whether null meets it.
        points: Codes at which the test may change.
    """

    text: str
    place: int
    column: Column
    test: Callable[[np.ndarray], np.ndarray]
    null: bool = False
    points: tuple[float, ...] = ()

    def met(self, values: np.ndarray) -> np.ndarray:
        """Returns which codes [n], NaN for null, meet the condition."""
        return np.where(np.isnan(values), self.null, self.test(np.nan_to_num(values)))


@dataclasses.dataclass(frozen=True)
class Conditions:
    """Conditions that a record meets all of.

    Attributes:
        spec: The schema of the records.
        all: The conditions.
    """

    spec: Spec
    all: tuple[Condition, ...] = ()

    @property
    def on_columns(self) -> tuple[Condition, ...]:
        """The conditions on other columns than the label."""
        return tuple(condition for condition in self.all if condition.place >= 0)

    @property
    def on_label(self) -> tuple[Condition, ...]:
        """The conditions on the label."""
        return tuple(condition for condition in self.all if condition.place < 0)

    def classes(self) -> np.ndarray:
        """Returns which classes meet the conditions on the label, bool [C]."""
        return _all(self.on_label, np.arange(self.spec.classes, dtype=np.float64))

    def met(self, codes: np.ndarray) -> np.ndarray:
        """Returns which rows [n, columns] meet them, as they are and as written: bool [n]."""
        kept = np.ones(len(codes), bool)
        for condition in self.on_columns:
            values = codes[:, condition.place]
            kept &= condition.met(values)
            if condition.column.kind == "continuous":  # six digits are written
                kept &= condition.met(transform.rounded(condition.column, values))
        return kept


def parse_conditions(where: Where, spec: Spec) -> Conditions:
    """Reads conditions.

    Args:
        where: A text of conditions, or several texts; or a dict from the names of columns to a
            value, to several values of which one must be met, or to the text of a condition
            without its column, such as ">=60". None stands for null.
        spec: The schema. Images have one column, `label`.

    Returns:
        The conditions, in the order of the input.

    Raises:
        UserError: For a column or value that the schema does not have, and for conditions that no
            record can meet together.
    """
    if where is None:
        return Conditions(spec)
    texts = [where] if isinstance(where, str) else where
    if not isinstance(texts, Iterable):
        raise UserError(f"where is a {type(where).__name__}; give a dict of columns and values, or "
                        "a list of conditions")
    identifiers = [] if isinstance(spec, ImageSpec) else [i.name for i in spec.identifiers]
    columns = Named({one.name: (place, one) for place, one in _columns(spec)}, identifiers)
    if isinstance(texts, Mapping):
        read = [_of_value(str(name), value, columns) for name, value in texts.items()]
    else:
        read = [_of_text(one, columns) for text in texts for one in _parts(str(text))]
    conditions = Conditions(spec, tuple(read))
    for place, column in columns.places.values():
        _require_possible(column, [c for c in conditions.all if c.place == place])
    return conditions


class Named(NamedTuple):
    """The place and the column of each name; and the names of identifiers, which have neither."""

    places: dict[str, tuple[int, Column]]
    identifiers: list[str]


def _columns(spec: Spec) -> list[tuple[int, Column]]:
    """Returns the columns with their places; the label has -1."""
    if isinstance(spec, ImageSpec):
        names = spec.class_names or tuple(map(str, range(spec.classes)))
        return [(-1, Column(LABEL, "categorical", categories=names))]
    return [*enumerate(spec.columns), *([(-1, spec.label)] if spec.label.name else [])]


def _parts(text: str) -> Iterator[str]:
    """Yields the conditions between `and`; where no operator follows, it is part of a value."""
    pieces = AND.split(text)
    whole = pieces[0]
    for piece in pieces[1:]:
        if OPERATOR.search(piece):
            yield whole
            whole = piece
        else:
            whole = f"{whole} and {piece}"
    yield whole


def _of_text(text: str, columns: Named) -> Condition:
    """Reads `COLUMN OPERATOR VALUE`; a name may hold operators itself, and the longest counts."""
    text = text.strip()
    for name in sorted(columns.places, key=len, reverse=True):
        if text.startswith(name) and (sign := OPERATOR.match(text, len(name))):
            return _compared(text, *columns.places[name], sign[1], text[sign.end():])
    sign = OPERATOR.search(text)
    if sign is None:
        raise UserError(f"condition {text!r} has no comparison; {HOW}")
    raise _unknown(text[:sign.start()], columns)


def _of_value(name: str, value: object, columns: Named) -> Condition:
    """Reads the value, the values or the comparison that a dict gives for a column."""
    if name not in columns.places:
        raise _unknown(name, columns)
    place, column = columns.places[name]
    if isinstance(value, str):
        sign = OPERATOR.match(value)
        if sign and value not in column.categories:
            return _compared(name + value, place, column, sign[1], value[sign.end():])
        return _compared(f"{name}={value}", place, column, "=", value)
    if isinstance(value, list | tuple | set | frozenset | np.ndarray):
        texts = [_text(one, column) for one in value]
        return _one_of(f"{name}={'|'.join(texts)}", place, column, texts)
    return _one_of(f"{name}={_text(value, column)}", place, column, [_text(value, column)])


def _text(value: object, column: Column) -> str:
    """Returns a value as a file holds it."""
    is_null = str(value) in NULLS and not isinstance(value, str)
    return NULL if is_null else transform.python_text(value, column)


def _unknown(name: str, columns: Named) -> UserError:
    name, known = name.strip(), ", ".join([*columns.places][:20])
    if name in columns.identifiers:
        return UserError(f"column {name} is never read: every record has a new identifier there, "
                         "or a placeholder")
    return UserError(f"no column is named {name!r}{nearest(name, columns.places)}; known: {known}")


def _compared(text: str, place: int, column: Column, sign: str, value: str) -> Condition:
    """Makes a condition of an operator and the text after it."""
    value = value.strip()
    if sign in COMPARE:
        _require_order(text, column)
        bound, compare = _code(text, column, value), COMPARE[sign]
        return Condition(text, place, column, lambda codes: compare(codes, bound) & ~np.isin(
            codes, column.outside), points=(bound,))
    low, dots, high = value.partition("..")
    if dots and value not in column.categories:
        _require_order(text, column)
        if sign == "!=":
            raise UserError(f"{text}: a range has no !=; write two conditions")
        first, last = _code(text, column, low.strip()), _code(text, column, high.strip())
        return Condition(text, place, column,
                         lambda codes: (codes >= first) & (codes <= last) & ~np.isin(
                             codes, column.outside), points=(first, last))
    # A category may itself hold a bar.
    values = [value] if value in column.categories else [part.strip() for part in value.split("|")]
    condition = _one_of(text, place, column, values)
    if sign != "!=":
        return condition
    equal = condition.test
    return dataclasses.replace(condition, test=lambda codes: ~equal(codes), null=False)


def _one_of(text: str, place: int, column: Column, values: list[str]) -> Condition:
    """Makes the condition that a column has one of these values."""
    null = NULL in values and NULL not in column.categories
    if null and not column.nullable:
        raise UserError(f"{text}: column {column.name} is not nullable in the schema, so no record "
                        "has null there")
    codes = np.array([_code(text, column, value) for value in values
                      if not (null and value == NULL)], np.float64)
    return Condition(text, place, column, lambda coded: np.isin(coded, codes), null,
                     tuple(codes.tolist()))


def _require_order(text: str, column: Column) -> None:
    if column.kind == "categorical":
        raise UserError(f"{text}: the values of column {column.name} have no order; name the "
                        f"values you want, as in {column.name}=A|B")


def _code(text: str, column: Column, value: str) -> float:
    """Returns the code of a value, as a file of the schema would have it."""
    if column.categories:
        if column.written == "boolean":  # in small or capital letters, as in a file
            named = {name.casefold(): name for name in column.categories}
            value = named.get(value.casefold(), value)
        if value not in column.categories:
            raise UserError(f"{text}: {value!r} is not a value of column "
                            f"{column.name}{nearest(value, column.categories)}; known: "
                            f"{', '.join(column.categories[:20])}")
        return float(column.categories.index(value))
    code = transform.reader(column)(value)
    if code is None and column.unit:  # a number may be without its unit
        code = transform.number(value)
    if code is None or (column.kind == "integer" and not code.is_integer()):
        kind = column.kind if transform.is_plain(column) else f"a {transform.what(column)}"
        raise UserError(f"{text}: {value!r} is not a value "
                        f"of column {column.name}, which is {kind}")
    return code


def _require_possible(column: Column, conditions: list[Condition]) -> None:
    """Refuses conditions on one column that no record of the schema meets together."""
    if not conditions or all(c.null for c in conditions) or _all(
            conditions, candidates(column, conditions)).any():
        return
    texts = " and ".join(condition.text for condition in conditions)
    within = (f"is one of {', '.join(column.categories[:20])}" if column.categories
              else f"lies from {column.low:g} to {column.high:g}" if transform.is_plain(column)
              else "lies from {} to {}".format(*transform.texts(column, np.array(
                  [column.low, column.high]))))
    raise UserError(f"no record can meet {texts}: column {column.name} {within} in the schema")


def candidates(column: Column, conditions: list[Condition]) -> np.ndarray:
    """Returns codes of a column, without null: float64 [n].

    The ends of every part that the conditions distinguish are among them.
    """
    if column.categories:
        return np.arange(len(column.categories), dtype=np.float64)
    ends = {column.low, column.high, *(p for c in conditions for p in c.points)}
    if column.kind == "continuous":
        steps = [np.nextafter(end, to) for end in ends for to in (-math.inf, math.inf)]
    else:
        steps = [end + step for end in ends for step in (-1.0, 1.0)]
    codes = np.array([*ends, *steps])
    return np.array([*codes[(codes >= column.low) & (codes <= column.high)], *column.special])


def _all(conditions: Iterable[Condition], codes: np.ndarray) -> np.ndarray:
    """Returns which codes meet all conditions, bool [n]."""
    return np.all([np.ones(len(codes), bool), *(one.met(codes) for one in conditions)], 0)


@dataclasses.dataclass(frozen=True)
class Narrowed:
    """A model that is restricted by conditions.

    Attributes:
        model: Its arrays [...].
        prior: The share of each class among the records that meet them, float64 [C]; None: equal.
        columns: The places of the columns that are restricted.
        share: The share of all records that meet them.
    """

    model: PyTree
    prior: np.ndarray | None
    columns: tuple[int, ...] = ()
    share: float = 1.0


def narrowed(method: Method, model: PyTree, prior: np.ndarray | None, conditions: Conditions
             ) -> Narrowed:
    """Restricts a model by the conditions on columns, if its method supports it.

    Conditions on columns that stand in a constraint of the schema are left to rejection: mended
    rows have other values there than the model's. Mending reads no other column. So the law of
    mended rows that meet conditions on other columns is the law of the model's own rows that meet
    them, mended. `prior` is the share of each class, float64 [C], or None for equal shares.

    Raises:
        UserError: Where the model makes no such record.
    """
    spec = conditions.spec
    if (method.conditional is None or method.class_shares is None or prior is None
            or not isinstance(spec, TableSpec)):
        return Narrowed(model, prior)
    mended = constraints.constrained_columns(spec)
    places = tuple(sorted({condition.place for condition in conditions.on_columns
                           if spec.columns[condition.place].name not in mended}))
    if not places:
        return Narrowed(model, prior)
    wanted = {spec.columns[place].name: _wanted(spec.columns[place], place, conditions)
              for place in places}
    new, share = method.conditional(model, wanted)
    before, after = (np.asarray(method.class_shares(arrays), np.float64)
                     for arrays in (model, new))
    # By Bayes, after / before is how likely the records of a class meet them, over all records'.
    weights = prior * np.divide(after, before, where=before > 0, out=np.zeros(len(before)))
    return Narrowed(new, weights / weights.sum(), places, float(share * weights.sum()))


def _wanted(column: Column, place: int, conditions: Conditions) -> Wanted:
    """Returns a set of values that holds all that meet the conditions on a column."""
    mine = [condition for condition in conditions.on_columns if condition.place == place]
    codes = np.array([*candidates(column, mine), np.nan])
    met = codes[_all(mine, codes)]
    if column.categories:
        return Wanted(tuple(met.tolist()))
    apart = np.isnan(met) | np.isin(met, column.special)
    inside = met[~apart]
    if not len(inside):
        return Wanted(tuple(met.tolist()))
    # What is rounded to the ends belongs to them; of whole numbers the ends are themselves.
    size = 0.0 if column.kind == "integer" and column.scale == "linear" else (
        1.0 if column.kind == "integer" else transform.step(column) or 0.0)
    ends = np.array([inside.min() - size / 2, inside.max() + size / 2])
    low, high = transform.unit(column, ends).tolist()
    return Wanted(tuple(met[apart].tolist()), low, high)


CHUNK = 500
"""Records that are made, or checked, in one call."""
SEEDS = 2**32
"""Seeds are below it, and so is what is folded into a key at once."""
MOST = 10**15
"""The most records of one call."""
TRIES_EACH, LEAST_TRIES = 1_000, 1_000_000
"""The records that may be drawn for one that meets the conditions, and at least altogether."""

Blocks = Iterator[tuple[np.ndarray, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Source:
    """Where records come from.

    Attributes:
        draw: From the number of records drawn before, and labels int32 [n], n <= `CHUNK`, to
            records as the method makes them, float32 [n, ...].
        finish: From these and their labels to records as a user takes them [n, ...], which keep
            the constraints of a table, and how many were mended for it.
        prior: The share of each class, float64 [C]; None: all classes in equal shares, in turn.
        narrowed: The places of the columns whose conditions restrict the model.
        share: The share of such records among all that the release makes.
    """

    draw: Callable[[int, np.ndarray], np.ndarray]
    finish: Callable[[np.ndarray, np.ndarray], Finished]
    prior: np.ndarray | None
    narrowed: tuple[int, ...] = ()
    share: float = 1.0


def finished(spec: Spec, x: np.ndarray, y: np.ndarray) -> Finished:
    """Returns records as a user takes them, from [n, *spec.shape] as a method draws them."""
    if isinstance(spec, TableSpec):
        return constraints.finished(spec, x, y)
    return Finished(np.round(x * 255).astype(np.uint8))


Key = TypeVar("Key")


def key_at(fold_in: Callable[[Key, int], Key], key: Key, start: int) -> Key:
    """Returns the key of the records from a place on, a multiple of `CHUNK`.

    `fold_in` makes another key of a key and a number below `SEEDS`: 32 bits at once.
    """
    high, low = divmod(start, SEEDS)
    if high:  # no block of records starts at the last of these places
        key = fold_in(fold_in(key, SEEDS - 1), high)
    return fold_in(key, low)


class Sampler:
    """Draws n records in blocks, and counts what it drew.

    Attributes:
        n: The records that were requested.
        tries: The records that were drawn so far.
        met: Those of them that met the conditions.
        found: Those of them that were taken, n in the end.
    """

    def __init__(self, source: Source, conditions: Conditions, n: int,
                 labels: np.ndarray | None = None, seed: int = 0,
                 max_tries: int | None = None) -> None:
        """Checks the request; nothing is drawn.

        Args:
            source: Where records come from.
            conditions: The conditions on every record.
            n: How many.
            labels: Classes int [k] to draw from in equal shares; None: all, as the prior says.
            seed: Of the labels.
            max_tries: The records that may be drawn where conditions reject some; None:
                `TRIES_EACH` for each that is asked for, and at least `LEAST_TRIES`.

        Raises:
            UserError: For n below 1, and for labels that are unknown or that conditions exclude.
        """
        if not isinstance(n, int | np.integer):
            raise UserError(f"n is {n!r}; give a whole number of records")
        if n < 1:
            raise UserError(f"cannot sample {n} records; at least 1 is needed")
        if n > MOST:
            raise UserError(f"cannot sample {n:,} records; at most {MOST:,} can be numbered")
        if max_tries is not None and max_tries < 1:
            raise UserError(f"max_tries is {max_tries}; at least 1 is needed")
        self.n, self.tries, self.met, self.found = n, 0, 0, 0
        self._source, self._conditions = source, conditions
        self._most = max_tries or max(LEAST_TRIES, TRIES_EACH * n)
        self._labels = _labels(source.prior, conditions, n, labels, seed)
        self._made = Finished(np.zeros(0))

    def __iter__(self) -> Blocks:
        """Yields blocks of at most `CHUNK` records as a user takes them, and labels int32."""
        for x, y, finished in self._chunks():
            yield self._finished(x, y) if finished is None else finished, y

    def encoded(self) -> Blocks:
        """Yields blocks of records as the method makes them, and labels int32."""
        for x, y, _ in self._chunks():
            yield x, y

    def report(self) -> list[str]:
        """Returns lines on how conditions were met, and how many records a constraint changed."""
        by_model = [c for c in self._conditions.on_columns if c.place in self._source.narrowed]
        rest = [c for c in self._conditions.on_columns if c not in by_model]
        accepted = (f"{self.met:,} of {self.tries:,} drawn records met all conditions "
                    f"({100 * self.met / max(self.tries, 1):.3g} %)")
        lines = []
        if self._conditions.on_label:
            lines.append(f"{_texts(self._conditions.on_label)}: exact, by the model")
        if by_model:
            lines.append(f"{_texts(by_model)}: exact, by the model "
                         f"({100 * self._source.share:.3g} % of its records lie in this range); "
                         f"{accepted}")
        if rest:
            lines.append(f"{_texts(rest)}: by rejection, {accepted}")
        return [*lines, *self._made.lines()]

    def _finished(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Returns records as a user takes them, and counts those that were mended."""
        made = self._source.finish(x, y)
        self._made = self._made.added(made)
        return made.codes

    def _chunks(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
        """Records as the method makes them, labels, and the finished records if it made them."""
        rejects = bool(self._conditions.on_columns)
        while (missing := self.n - self.found) > 0:
            y = self._labels.next(CHUNK if rejects else min(CHUNK, missing))
            x, finished = self._source.draw(self.tries, y), None
            self.tries += len(y)
            if rejects:
                finished = self._finished(x, y)
                met = self._conditions.met(finished)
                self.met += int(met.sum())
                kept = self._labels.take(y, met, missing)
                x, y, finished = x[kept], y[kept], finished[kept]
            self.found += len(y)
            if len(y):
                yield x, y, finished
            if rejects:
                self._require_hope()

    def _require_hope(self) -> None:
        """Ends a search that is over its bound, or that will not come to half of n within it."""
        least = min(LEAST_TRIES, self._most)
        if self.found >= self.n or self.tries < least:
            return
        if self.tries >= self._most or 2 * self.found * self._most < self.n * self.tries:
            raise UserError(
                f"{self.found:,} of {self.n:,} records that meet "
                f"{_texts(self._conditions.on_columns)} were found in {self.tries:,} tries; draw "
                f"fewer, widen the conditions, or raise {option('max_tries')}")


class _Shares:
    """Labels by a prior."""

    def __init__(self, prior: np.ndarray, seed: int) -> None:
        self._prior, self._rng = prior, np.random.default_rng([seed, 1])

    def next(self, count: int) -> np.ndarray:
        """Draws labels int32 [count]."""
        return self._rng.choice(len(self._prior), count, p=self._prior).astype(np.int32)

    def take(self, labels: np.ndarray, met: np.ndarray, most: int) -> np.ndarray:
        """Returns the places of the accepted records, at most so many."""
        return np.flatnonzero(met)[:most]


class _Turns:
    """Labels in turn, of each as many as its share of n."""

    def __init__(self, wanted: np.ndarray, n: int) -> None:
        self._wanted, self._place = wanted, 0
        rounds, rest = divmod(n, len(wanted))
        most = int(wanted.max()) + 1
        self._missing = (rounds * np.bincount(wanted, minlength=most)
                         + np.bincount(wanted[:rest], minlength=most))

    def next(self, count: int) -> np.ndarray:
        """Returns labels int32 [count] of the classes that are still missing."""
        wanted = self._wanted[self._missing[self._wanted] > 0]
        places = (self._place + np.arange(count)) % len(wanted)
        self._place = (self._place + count) % len(wanted)
        return wanted[places].astype(np.int32)

    def take(self, labels: np.ndarray, met: np.ndarray, most: int) -> np.ndarray:
        """Returns the places of the accepted records, of no class more than are missing."""
        for label in np.unique(labels[met]):
            places = np.flatnonzero(met & (labels == label))
            met[places[self._missing[label]:]] = False
            self._missing[label] -= min(len(places), self._missing[label])
        return np.flatnonzero(met)


def _labels(prior: np.ndarray | None, conditions: Conditions, n: int, wanted: np.ndarray | None,
            seed: int) -> _Shares | _Turns:
    """Returns the labels that the conditions on the label allow."""
    allowed = conditions.classes()
    if wanted is None and prior is not None:
        shares = np.where(allowed, prior, 0)
        return _Shares(prior if allowed.all() else shares / shares.sum(), seed)
    if wanted is None:
        if conditions.on_columns:  # equal shares of all records, not of those that are accepted
            return _Shares(allowed / allowed.sum(), seed)
        return _Turns(np.flatnonzero(allowed), n)
    bad = [int(label) for label in wanted if not 0 <= label < len(allowed)]
    if bad or not len(wanted):
        raise UserError(f"label {bad[0] if bad else '(none)'} is not in 0..{len(allowed) - 1}")
    excluded = [int(label) for label in wanted if not allowed[label]]
    if excluded:
        raise UserError(f"label {excluded[0]} does not meet {_texts(conditions.on_label)}; leave "
                        "one of the two out")
    return _Turns(wanted, n)


def _texts(conditions: Iterable[Condition]) -> str:
    return " and ".join(condition.text for condition in conditions)
