"""The types that all parts share: `Private`, `Records`, `Subjects`, the schema and `Method`.

Letters for shapes, used in every docstring of the package:
  U units (teachers, critics, clients or records)
  R rows of units: one unit of every cohort, or places of a sampled batch
  S rounds of one compiled block         m records of one unit      n records in all
  B rows of a message (queried fakes)    M columns of a message     D columns of a bounded message
  C classes                              N samples                  F features of an encoded row
  H, W, ch height, width and channels of an image
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.errors import BudgetExceeded, UserError
from dpgen_jax.core.schema import (
    NO_LABEL,
    Column,
    Identifier,
    ImageSpec,
    Spec,
    TableSpec,
    Wanted,
    Written,
)
from dpgen_jax.core.terms import ProtectedUnit, Unit

if TYPE_CHECKING:
    from dpgen_jax.aggregation.mechanism import Mechanism

__all__ = ["Array", "BudgetExceeded", "Column", "CountTable", "EMPTY", "Identifier", "ImageSpec",
           "Method", "Metrics", "NO_LABEL", "PostTraining", "Pretraining", "Private", "PyTree",
           "Records", "Refinement", "Spec", "Subjects", "TableSpec", "UserError", "Wanted",
           "Written", "unseal"]


@dataclasses.dataclass(frozen=True)
class Refinement:
    """A public estimate on the host, after `Method.finalize`.

    It uses only released values and costs no privacy.

    Attributes:
        check: ``check() -> str``, a line with the most time that it takes; raises UserError if it
            is not possible here. Called before anything is spent.
        apply: ``apply(public, model) -> model``, on NumPy arrays, with the same names, shapes and
            types. If it raises, or changes one of these, the model of `Method.finalize` is
            released, and a resumed run refines it at no cost.
    """

    check: Callable[[], str]
    apply: Callable[[Any, Any], Any]


@dataclasses.dataclass(frozen=True)
class Subjects:
    """The subject of each row of a table.

    The column, the limit and the number of subjects of the training part are public. Everything
    else, including the number of rows, is as private as the records.

    Attributes:
        column: The name of the column whose values identify the subjects.
        rows: k, the most rows of a subject that are kept, chosen without looking at the records.
        ids: uint8 [U, 16], a hash of the name of each subject of the training part.
        train: int32 [n], the subject 0..U-1 of each training row.
        test: int32 [n'], the subject of each held-out row, 0..U'-1 (other subjects); None without a
            held-out part.
    """

    column: str
    rows: int
    ids: np.ndarray
    train: np.ndarray
    test: np.ndarray | None = None

    @property
    def unit(self) -> ProtectedUnit:
        """The unit of the guarantee."""
        return ProtectedUnit(Unit.SUBJECT, self.column, self.rows)

    @property
    def count(self) -> int:
        """U, the public number of subjects of the training part."""
        return len(self.ids)


T = TypeVar("T")
Array = jax.Array
PyTree = Any
"""Any nested tuples, dictionaries and registered dataclasses whose leaves are arrays."""
Metrics = dict[str, Array]
"""Names and public scalars, float32 []."""
EMPTY = -1
"""The label of an empty slot: a record that was left out and keeps its place."""


@jax.tree_util.register_pytree_node_class
class Private(Generic[T]):
    """A value computed from private records; only `private/` and `aggregation/` open it.

    It is a pytree with one child, so it passes through `jit` and checkpoints unopened. Its repr
    shows shapes, never values. `tests/test_boundary.py` walks the source for uses of `unseal`.
    """

    __slots__ = ("_sealed",)

    def __init__(self, value: T):
        self._sealed = value

    def tree_flatten(self) -> tuple[tuple[T], None]:
        """Returns the sealed value as the only child, for JAX."""
        return (self._sealed,), None

    @classmethod
    def tree_unflatten(cls, aux: None, children: tuple[T]) -> Private[T]:
        """Returns the pytree with this child, for JAX."""
        del aux
        return cls(children[0])

    def __repr__(self) -> str:
        shapes = [f"{getattr(a, 'dtype', type(a).__name__)}{list(getattr(a, 'shape', ()))}"
                  for a in jax.tree.leaves(self._sealed)]
        return f"Private({', '.join(shapes)})"


def unseal(private: Private[T]) -> T:
    """Opens a sealed value; only `private/` and `aggregation/` may import this function."""
    return private._sealed


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Records:
    """Records and their labels. An empty slot has y = EMPTY and x = 0.

    Attributes:
        x: By the schema: images uint8 [..., m, H, W, ch], or rows of a table float32 [..., m, F] in
            [0, 1].
        y: Labels int32 [..., m].
    """

    x: Array
    y: Array


@dataclasses.dataclass(frozen=True)
class Pretraining:
    """A warm start, written for one unit, which trains on its own records before the first round.

    Everything in it is private, and only the unit is kept. Nothing is released and nothing public
    is read, so it costs no privacy.

    Attributes:
        steps: Number of steps of every unit.
        init: ``init(key) -> state``, any pytree of arrays.
        step: ``step(key, state, records) -> state``, with the records of the unit only.
        finish: ``finish(state) -> unit state``, with the shapes of `Method.init_unit`.
    """

    steps: int
    init: Callable[[Array], PyTree]
    step: Callable[[Array, PyTree, Records], PyTree]
    finish: Callable[[PyTree], PyTree]


@dataclasses.dataclass(frozen=True)
class PostTraining:
    """Public training after the last release; it uses only released values and costs no privacy.

    Every call gets the same key as `Method.finalize`, which then takes the state instead of the
    public state.

    Attributes:
        init: ``init(key, public) -> state``, any pytree of arrays.
        step: ``step(key, state, i) -> (state, metrics)`` for the i-th step, i int32 []; metrics is
            a dictionary of public scalars, float32 [].
    """

    steps: int
    init: Callable[[Array, PyTree], PyTree]
    step: Callable[[Array, PyTree, Array], tuple[PyTree, Metrics]]


def no_state(key: Array) -> Array:
    """Returns the state of a unit without state: int32 [], a zero.

    It is not an empty tuple, since checkpoints contain one array for the state of all units.
    """
    del key
    return jnp.zeros((), jnp.int32)


def learn_nothing(key: Array, unit: PyTree, records: Records, query: PyTree) -> PyTree:
    """Returns the state of a unit unchanged, for units that do not learn."""
    del key, records, query
    return unit


def release_public(key: Array, public: PyTree) -> PyTree:
    """Returns the public state, for methods whose model is their public state."""
    del key
    return public


class CountTable(NamedTuple):
    """A noisy table of counts that a method releases; all of it is public.

    Attributes:
        name: The names of its columns.
        cells: The largest number of its counts.
        rounds: The number of releases that contain it.
        noise: The standard deviation of a count, in records, after all releases are combined.
    """

    name: str
    cells: int
    rounds: int
    noise: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method:
    """One system, written for one unit without a batch axis; the library stacks, chunks and shards.

    In a round, `ask` makes a query from the public state; every unit of the cohort runs `learn` and
    `answer` on its own records; the mechanism bounds each message, sums the messages over the
    units, adds noise and decodes; `absorb` updates the public state with the released value. The
    privacy events of the mechanism are the accountant's only input. If the schedule of the
    mechanism samples the units of a round, the result of `learn` is not kept. `learn` and `answer`
    must not multiply integer matrices, which `run.capacity` would round.

    A generator has `sample`, a classifier has `predict`.

    Attributes:
        mechanism: Bound, noise and schedule, and their cost.
        init: ``init(key) -> public``, any pytree of arrays. Public.
        ask: ``ask(key, public) -> query``, any pytree of arrays. Public.
        answer: ``answer(key, unit, records, query) -> message``, float32 [B, M], which the bound
            converts to int32 [B, D]. Private.
        absorb: ``absorb(key, public, query, released) -> (public, metrics)``; released is float32
            [B, ...], public keeps its shapes, metrics is a dictionary of scalars, float32 [].
            Public.
        init_unit: ``init_unit(key) -> unit``, any pytree of arrays. Private. Default: a unit keeps
            no state.
        learn: ``learn(key, unit, records, query) -> unit``, with the same shapes. Private. Default:
            a unit does not learn.
        finalize: ``finalize(key, public) -> model``, the released arrays: a dictionary, which may
            be nested, whose names do not contain "/". Public. Default: the public state.
        sample: ``sample(model, key, labels int32 [N]) -> x``, float32 [N, *spec.shape] in [0, 1]:
            a whole unit for each label, which is one record.
        predict: ``predict(model, x float32 [N, *spec.shape] in [0, 1]) -> logits``, float32 [N, C].
        class_shares: ``class_shares(model) -> float32 [C]``, for a generator with estimates of
            class frequencies, by which labels are drawn if no class counts were bought. None: equal
            shares. It is traced, like `sample` and `predict`.
        conditional: ``conditional(model, wanted) -> (model, probability)``, for a generator with
            `class_shares`: the model of the records whose columns, by name, meet conditions
            (`core.schema.Wanted`), and their share. None: not supported.
        tables: ``tables(model, steps)``, the noisy tables of these steps' releases. Public.
        pretraining: Private training of every unit before the first round, or None.
        post_training: Public training after the last round and before `finalize`, or None.
        refinement: `core.types.Refinement`, or None.
        phases: For a method whose rounds differ: the i-th of these makes the i-th round, the last
            one all further rounds. They differ in `ask`, `answer`, `absorb`, bounds and noise, and
            the loop charges a round by the mechanism of its phase.
        decomposes: Whether the public side decomposes matrices; a CPU then uses a single device.
        at_once: For units without a network, the number of records that a device processes at once
            unless `chunk` is set; it affects only speed and memory.

    Raises:
        ValueError: Phases whose mechanisms differ in units, schedule or shape.
    """

    mechanism: Mechanism
    init: Callable[[Array], PyTree]
    ask: Callable[[Array, PyTree], PyTree]
    answer: Callable[[Array, PyTree, Records, PyTree], Array]
    absorb: Callable[[Array, PyTree, PyTree, Array], tuple[PyTree, Metrics]]
    init_unit: Callable[[Array], PyTree] = no_state
    learn: Callable[[Array, PyTree, Records, PyTree], PyTree] = learn_nothing
    finalize: Callable[[Array, PyTree], PyTree] = release_public
    sample: Callable[[PyTree, Array, Array], Array] | None = None
    predict: Callable[[PyTree, Array], Array] | None = None
    class_shares: Callable[[PyTree], Array] | None = None
    conditional: Callable[[PyTree, Mapping[str, Wanted]], tuple[PyTree, float]] | None = None
    tables: Callable[[PyTree, int], tuple[CountTable, ...]] | None = None
    pretraining: Pretraining | None = None
    post_training: PostTraining | None = None
    refinement: Refinement | None = None
    phases: tuple[Method, ...] = ()
    decomposes: bool = False
    at_once: int = 256

    def __post_init__(self) -> None:
        mechanisms = [self.mechanism, *(phase.mechanism for phase in self.phases)]
        alike = [(m.shape, m.n_units, m.unit, m.relation, m.schedule)
                 for m in mechanisms if self.phases]
        if any(other != alike[0] for other in alike):
            raise ValueError("the phases of a method differ in units, schedule or shape")

    def at(self, step: int) -> tuple[Method, float]:
        """Returns the phase of a round, and the number of rounds from this one on that it makes."""
        if step >= len(self.phases) - 1:
            return (self.phases[-1] if self.phases else self), math.inf
        return self.phases[step], 1
