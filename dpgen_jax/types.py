"""The types that every part shares: `Private`, `Records`, `ImageSpec`, `TableSpec`, `Method`.

Shape legend, used in every docstring of the package:
  U units (teachers, clients)   m records of one unit   B fakes of one query
  D coordinates of one message  C classes               n records in all
  H, W, ch height, width and channels of an image;  F features of an encoded table row
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import jax

from dpgen_jax.errors import BudgetExceeded, UserError

if TYPE_CHECKING:
    from dpgen_jax.aggregation.mechanism import Releases

__all__ = ["EMPTY", "Array", "BudgetExceeded", "Column", "ImageSpec", "Method", "Polish", "Private",
           "Records", "Spec", "TableSpec", "UserError", "Warm", "unseal"]

T = TypeVar("T")
Array = jax.Array
EMPTY = -1
"""the label of an empty slot: a record that was left out, and keeps its place"""


@jax.tree_util.register_pytree_node_class
class Private(Generic[T]):
    """A value computed from private records; only `private/` and `aggregation/` open it.

    A pytree with one child, so it passes through `jit` and checkpoints unopened; its repr shows
    shapes and never values. `tests/test_boundary.py` walks the source for uses of `unseal`.
    """

    __slots__ = ("_sealed",)

    def __init__(self, value: T):
        self._sealed = value

    def tree_flatten(self):
        return (self._sealed,), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(children[0])

    def __repr__(self) -> str:
        shapes = [f"{getattr(a, 'dtype', type(a).__name__)}{list(getattr(a, 'shape', ()))}"
                  for a in jax.tree.leaves(self._sealed)]
        return f"Private({', '.join(shapes)})"


def unseal(private: Private[T]) -> T:
    """Opens a sealed value. Only `private/` and `aggregation/` may import this."""
    return private._sealed


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Records:
    """Records: y int32 [..., m], and x as the schema says: images uint8 [..., m, H, W, ch], table
    rows float32 [..., m, F] in [0, 1]. An empty slot has y = EMPTY and x = 0."""

    x: Array
    y: Array


@dataclasses.dataclass(frozen=True)
class ImageSpec:
    """The declared, public schema of an image data set: nothing here is read from the records.

    class_names: of the classes 0..classes-1, or none; they change nothing that is computed, and
    schemas that differ in them alone are equal.
    """

    height: int
    width: int
    channels: int
    classes: int
    class_names: tuple[str, ...] = dataclasses.field(default=(), compare=False, repr=False)

    dtype: ClassVar[str] = "uint8"
    """of a sealed record"""

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.height, self.width, self.channels)


@dataclasses.dataclass(frozen=True)
class Column:
    """One declared column of a table.

    low, high: bounds of a number; categories: of a category, lowest first if they are ordinal.
    Encoded, a number or an ordinal is one value in [0, 1], followed by a null flag if it is
    nullable; a category is a one-hot, whose last place means null if it is nullable.
    """

    name: str
    kind: Literal["continuous", "integer", "categorical", "ordinal"]
    low: float = 0.0
    high: float = 0.0
    categories: tuple[str, ...] = ()
    nullable: bool = False

    @property
    def width(self) -> int:
        """Encoded features."""
        return (len(self.categories) if self.kind == "categorical" else 1) + self.nullable


@dataclasses.dataclass(frozen=True)
class TableSpec:
    """The declared, public schema of a table: nothing here is read from the records.

    columns: the features, in the order of the file; label: the class, whose categories are the
    classes 0..classes-1; label_position: where the label stands among all columns of the file.
    """

    columns: tuple[Column, ...]
    label: Column
    label_position: int

    dtype: ClassVar[str] = "float32"

    @property
    def classes(self) -> int:
        return len(self.label.categories)

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.label.categories

    @functools.cached_property
    def shape(self) -> tuple[int]:
        """(F,): features of an encoded row."""
        return (sum(column.width for column in self.columns),)

    @functools.cached_property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """(start, stop) of each group of features that belongs together: a one-hot or a value."""
        blocks, start = [], 0
        for column in self.columns:
            sizes = [column.width] if column.kind == "categorical" else [1] * column.width
            for size in sizes:
                blocks.append((start, start + size))
                start += size
        return tuple(blocks)


Spec = ImageSpec | TableSpec


@dataclasses.dataclass(frozen=True)
class Warm:
    """A warm start, written for ONE unit: `steps` steps on its own records, before the first step.

    init(key) -> state;  step(key, state, records) -> state;  finish(state) -> unit, as `init_unit`
    shapes it. Everything is private, and only the unit outlives it.
    """

    steps: int
    init: Callable[[Array], Any]
    step: Callable[[Array, Any, Records], Any]
    finish: Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class Polish:
    """Public training after the last release: `steps` steps on released values, which cost nothing.

    init(key, public) -> state;  step(key, state, i) -> (state, {name: public scalar}), the i-th.
    Every call gets the key that `refine` gets, which takes the state in place of `public`.
    """

    steps: int
    init: Callable[[Array, Any], Any]
    step: Callable[[Array, Any, Array], tuple[Any, dict[str, Array]]]


@dataclasses.dataclass(frozen=True)
class Method:
    """One system, written for ONE unit, unbatched; the library stacks, chunks and shards.

    Public:  init(key) -> public;  ask(key, public) -> query;
             absorb(key, public, query, released) -> (public, {name: public scalar});
             refine(key, public) -> model, the arrays that are released;  polish: before that;
             sample(model, key, labels int32 [N]) -> images [N, H, W, ch] in [0, 1], or None;
             predict(model, x float32 [N, *spec.shape] in [0, 1]) -> logits [N, C], or None.
    Private: init_unit(key) -> unit;  learn(key, unit, records, query) -> unit;
             answer(key, unit, records, query) -> message float [B, D];  warm: a warm start.
    The mechanism bounds the message, sums it over units, adds noise and decodes it; its privacy
    events are the only thing that the accountant is told. Where its schedule draws the units of
    each step, what `learn` returns is not kept. A generator has `sample`, a classifier `predict`.
    """

    mechanism: Releases
    init: Callable[[Array], Any]
    init_unit: Callable[[Array], Any]
    ask: Callable[[Array, Any], Any]
    learn: Callable[[Array, Any, Records, Any], Any]
    answer: Callable[[Array, Any, Records, Any], Array]
    absorb: Callable[[Array, Any, Any, Array], tuple[Any, dict[str, Array]]]
    refine: Callable[[Array, Any], Any]
    sample: Callable[[Any, Array, Array], Array] | None = None
    warm: Warm | None = None
    predict: Callable[[Any, Array], Array] | None = None
    polish: Polish | None = None
