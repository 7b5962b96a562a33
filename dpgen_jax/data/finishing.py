"""Synthetic rows as users take them: decoded, and mended where they break a constraint.

Everything that decodes what a method drew comes through `finished`. It reads the declared schema
and the rows alone, so it is post-processing, and costs no privacy.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from dpgen_jax.core.types import TableSpec, UserError
from dpgen_jax.data import constraints, derived, forms, transform

PASSES = 12
"""How often all constraints are looked at: mending one may break another."""
NUMBERS = 2**24
"""At most so many are drawn for them."""
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
        before: How many rows, beside these, the numbers are of.
    """

    codes: np.ndarray
    mended: dict[str, int] = dataclasses.field(default_factory=dict)
    replaced: int = 0
    before: int = 0

    def added(self, other: Finished) -> Finished:
        """Returns the numbers of these rows and of others, without the rows.

        Args:
            other: Rows of the same schema.
        """
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
    """Decodes rows that a method drew, and mends those that break a constraint.

    Labels are never changed. A row depends on itself alone, unless it cannot be mended.

    Args:
        spec: The schema.
        encoded: [n, F], any values at all.
        y: Classes int [n].

    Raises:
        UserError: No row of a class that is there fulfils all constraints.
    """
    return mended(spec, transform.decode(spec, encoded), y)


def mended(spec: TableSpec, codes: np.ndarray, y: np.ndarray) -> Finished:
    """Does as `finished`, from codes.

    Numbers without declared decimals that stand in a schema with constraints are rounded as they
    are written, so that constraints hold in the file too.

    Args:
        spec: The schema.
        codes: float64 [n, columns].
        y: Classes int [n].

    Raises:
        UserError: As `finished`.
    """
    if not spec.constraints:
        return Finished(codes)
    rules = constraints.rules(spec)
    table = derived.computed(spec, _written(spec, np.column_stack([codes, y])))
    counts = {text: int(rule.broken(table).sum())
              for text, rule in zip(spec.constraints, rules, strict=True)}
    table = _mended(spec, table)
    rows = np.flatnonzero(_broken(rules, table))
    table[rows] = _copies(table, rows, spec)
    return Finished(table[:, :-1], counts, len(rows))


def check(spec: TableSpec) -> None:
    """Checks that random rows of every class can be mended, before anything is spent on a schema.

    Args:
        spec: The schema.

    Raises:
        UserError: A constraint cannot be read, or rows of a class cannot fulfil all.
    """
    if constraints.rules(spec):
        rng = np.random.default_rng(0)
        n = max(TRIED // 8, min(max(TRIED, 8 * spec.classes), NUMBERS // spec.shape[0]))
        encoded = rng.random((n, *spec.shape))
        made = finished(spec, encoded, np.arange(n) % spec.classes)
        if made.replaced > n // 2:
            raise UserError(f"constraints {', '.join(spec.constraints)}: most rows that are drawn "
                            "at random cannot fulfil all of them; drop or widen one")


def _mended(spec: TableSpec, table: np.ndarray) -> np.ndarray:
    """Mends rows, float64 [n, K], as far as they can be."""
    rules = constraints.rules(spec)
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
            table[:, i] = forms.rounded(column, table[:, i])
    return table


def _broken(rules: tuple[constraints.Rule, ...], table: np.ndarray) -> np.ndarray:
    """Returns which rows break any constraint: bool [n]."""
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
    good = table[~_broken(constraints.rules(spec), table)]
    if not len(good):
        of_class = f" of class {spec.label.categories[label]!r}" if spec.labelled else ""
        raise UserError(f"constraints {', '.join(spec.constraints)}: no row{of_class} fulfils all "
                        "of them; drop or widen one")
    row: np.ndarray = good[0]
    return row
