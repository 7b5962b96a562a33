"""The types that every part shares: `Private`, `Records`, `ImageSpec`, `Method`.

Shape legend, used in every docstring of the package:
  U units (teachers, clients)   m records of one unit   B fakes of one query
  D coordinates of one message  C classes               n records in all
  H, W, ch height, width and channels of an image
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import jax

from dpgen_jax.errors import BudgetExceeded, UserError

if TYPE_CHECKING:
    from dpgen_jax.aggregation.mechanism import Mechanism

__all__ = ["Array", "BudgetExceeded", "ImageSpec", "Method", "Private", "Records", "UserError",
           "unseal"]

T = TypeVar("T")
Array = jax.Array


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
    """Records: x uint8 [..., m, H, W, ch], y int32 [..., m]."""

    x: Array
    y: Array


@dataclasses.dataclass(frozen=True)
class ImageSpec:
    """The declared, public schema of an image data set: nothing here is read from the records."""

    height: int
    width: int
    channels: int
    classes: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.height, self.width, self.channels)


@dataclasses.dataclass(frozen=True)
class Method:
    """One system, written for ONE unit, unbatched; the library stacks, chunks and shards.

    Public:  init(key) -> public;  ask(key, public) -> query;
             absorb(key, public, query, released) -> (public, {name: public scalar});
             refine(key, public) -> model, the arrays that are released;
             sample(model, key, labels int32 [N]) -> images [N, H, W, ch] in [0, 1].
    Private: init_unit(key) -> unit;  learn(key, unit, records, query) -> unit;
             answer(key, unit, records, query) -> message float [B, D].
    The mechanism bounds the message, sums it over units, adds noise and decodes it; its privacy
    events are the only thing that the accountant is told.
    """

    mechanism: Mechanism
    init: Callable[[Array], Any]
    init_unit: Callable[[Array], Any]
    ask: Callable[[Array, Any], Any]
    learn: Callable[[Array, Any, Records, Any], Any]
    answer: Callable[[Array, Any, Records, Any], Array]
    absorb: Callable[[Array, Any, Any, Array], tuple[Any, dict[str, Array]]]
    refine: Callable[[Array, Any], Any]
    sample: Callable[[Any, Array, Array], Array]
