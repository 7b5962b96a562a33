"""Synthetic records in blocks: as many as one likes, in memory that does not grow with them.

Conditions on the label are exact: only classes that meet them are drawn, in the shares that the
release has for them. What else a model was not told (`exact`) is met by rejection: records are
drawn until enough of them meet the conditions, which gives what filtering the records would give.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np

from dpgen_jax.core.types import Spec, TableSpec, UserError
from dpgen_jax.data import finishing
from dpgen_jax.data.finishing import Finished
from dpgen_jax.release.conditions import Condition, Conditions

CHUNK = 500
"""Records that are made, or told apart, in one call."""
SEEDS = 2**32
"""Seeds are below it, and so is what is folded into a key at once."""
MOST = 10**15
"""Records that can be asked for at once."""
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
        narrowed: The places of the columns that the model was told the conditions of.
        share: The share of such records among all that the release makes.
    """

    draw: Callable[[int, np.ndarray], np.ndarray]
    finish: Callable[[np.ndarray, np.ndarray], Finished]
    prior: np.ndarray | None
    narrowed: tuple[int, ...] = ()
    share: float = 1.0


def finished(spec: Spec, x: np.ndarray, y: np.ndarray) -> Finished:
    """Returns records as a user takes them, from records as a method draws them.

    Args:
        spec: The schema.
        x: float32 [n, *spec.shape].
        y: Labels int [n].
    """
    if isinstance(spec, TableSpec):
        return finishing.finished(spec, x, y)
    return Finished(np.round(x * 255).astype(np.uint8))


Key = TypeVar("Key")


def key_at(fold_in: Callable[[Key, int], Key], key: Key, start: int) -> Key:
    """Returns the key of the records from a place on; 32 bits are folded in at once.

    Args:
        fold_in: From a key and a number below `SEEDS` to another key.
        key: The key of a seed.
        start: The place of the first record, a multiple of `CHUNK`.
    """
    high, low = divmod(start, SEEDS)
    if high:  # no block of records starts at the last of these places
        key = fold_in(fold_in(key, SEEDS - 1), high)
    return fold_in(key, low)


class Sampler:
    """Draws n records in blocks, and counts what it drew.

    Attributes:
        n: The records that were asked for.
        tries: The records that were drawn so far.
        met: Those of them that met the conditions.
        found: Those of them that were taken, n in the end.
    """

    def __init__(self, source: Source, conditions: Conditions, n: int,
                 labels: np.ndarray | None = None, seed: int = 0,
                 max_tries: int | None = None) -> None:
        """Checks what is asked for; nothing is drawn.

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
            lines.append(f"{_texts(by_model)}: exact, by the model, which makes "
                         f"{100 * self._source.share:.3g} % of its records so; {accepted}")
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
                f"{_texts(self._conditions.on_columns)} were found in {self.tries:,} tries; ask "
                "for fewer, widen the conditions, or raise --max-tries")


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
