"""The state of a run, and a compiled block of rounds: ask, query the units, release, absorb."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpgen_jax.aggregation.bits import SeededBits
from dpgen_jax.aggregation.mechanism import kept, release
from dpgen_jax.core.types import Array, Method, Metrics, PostTraining, Private, PyTree, Records
from dpgen_jax.private import streaming, teachers
from dpgen_jax.private.checks import check_public, check_query
from dpgen_jax.private.layout import Layout, on_devices, spread
from dpgen_jax.private.teachers import Round, Units, bounded_sum

Block: TypeAlias = Callable[..., tuple[PyTree, Private[Units], Metrics, Array, Private[Array]]]
"""A compiled block of rounds, see `compile_block`."""


class Draws(NamedTuple):
    """The secret bits of a block, with zeros up to S rounds, on the host.

    Attributes:
        private_inputs: [R, S, ...], the secret bits of each unit, with padding up to R rows.
        bits: uint32 [S, *bits_shape], of the noise.
        cohorts: int32 [S], the cohort that each round queries.
    """

    private_inputs: np.ndarray
    bits: np.ndarray
    cohorts: np.ndarray


@dataclasses.dataclass
class State:
    """Everything that a run carries from round to round.

    Attributes:
        public: The public state of the method, any pytree of arrays.
        units: The state of all units, leaves [U, ...], sealed; None once they are not needed.
        key: Random key [] of the public side.
        step: Rounds that ended.
        post_state: The state of `Method.post_training` once that has begun, any pytree of arrays.
        post_step: Steps of post-training that ended.
    """

    public: PyTree
    units: Private[Units] | None
    key: Array
    step: int = 0
    post_state: PyTree = None
    post_step: int = 0

    @property
    def done(self) -> int:
        """Steps of both sorts."""
        return self.step + self.post_step


def compile_block(method: Method, layout: Layout) -> Block:
    """Compiles a block of rounds, once for blocks of any length up to S.

    The block takes (public, units, records, private inputs [R, S, ...], bits uint32
    [S, *bits_shape], cohorts int32 [S], key, step, n) and runs n <= S rounds in one call. It
    returns (public, units, metrics of the last round, answered int32 [S, ...], sums that the data
    holder keeps, sealed); the first n rows of the last two count. Public state and units are
    updated in place: the arrays that it was given are gone. Where the state of units lies outside
    of the devices, so do records and private inputs, and each round is several calls.

    Args:
        method: The method.
        layout: How units lie on devices.

    Raises:
        ValueError: The layout is for another schedule.
        TypeError: A function of the method returns a wrong shape or type; when it is first called.
    """
    mechanism = method.mechanism
    schedule = mechanism.schedule
    sampled = schedule.batch_capacity is not None
    if (layout.n_cohorts, layout.sampled) != (schedule.n_cohorts, sampled):
        raise ValueError(f"the layout is for {layout.n_cohorts} cohorts of units, sampled: "
                         f"{layout.sampled}; the schedule is not")
    metrics_of_none, *per_round = _outputs_of_a_round(method)
    no_metrics = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), metrics_of_none)
    if layout.slab:
        return _by_slabs(method, layout, no_metrics, per_round)

    def block(public: PyTree, units: Private[Units], records: Private[Records],
              private_inputs: Array, bits: Array, cohorts: Array, key: Array, step: Array, n: Array
              ) -> tuple[PyTree, Private[Units], Metrics, Array, Private[Array]]:
        def one(i: Array, carry: tuple) -> tuple:
            public, units, _, answered, votes = carry
            keys = _keys(key, step + i)
            query = _ask(method, public, keys)
            private_input = lax.dynamic_index_in_dim(private_inputs, i, 1, keepdims=False)
            units, total = bounded_sum(method, layout, units, records, private_input,
                                       Round(query, step + i, cohorts[i]))
            public, metrics, *now = _absorb(method, public, query, total, bits[i], keys)
            answered, votes = jax.tree.map(lambda a, new: a.at[i].set(new), [answered, votes], now)
            return public, units, metrics, answered, votes

        nothing = jax.tree.map(lambda a: jnp.zeros((len(bits), *a.shape), a.dtype), per_round)
        return lax.fori_loop(0, n, one, (public, units, no_metrics, *nothing))

    # A sampled row may be any unit's, so then every device has all records. Units and public state
    # are updated in place: at thousands of units a second copy would not fit.
    return on_devices(block, layout, (False, True, not layout.sampled, True, *[False] * 5),
                      (False, True, False, False, False), donate=(0, 1))


def _keys(key: Array, step: Array) -> Array:
    """Returns the keys of a round, to ask and to absorb: [2]."""
    return jax.random.split(jax.random.fold_in(key, step))


def _ask(method: Method, public: PyTree, keys: Array) -> PyTree:
    """Returns the query of a round."""
    query = method.ask(keys[0], public)
    check_query(query)
    return query


def _absorb(method: Method, public: PyTree, query: PyTree, total: Private[Array], bits: Array,
            keys: Array) -> tuple[PyTree, Metrics, Array, Private[Array]]:
    """Ends a round: returns the public state, metrics, what was answered, and the kept sum."""
    mechanism = method.mechanism
    outcome = release(mechanism, bits, total)
    after, metrics = method.absorb(keys[1], public, query, mechanism.value(outcome))
    check_public(public, after, metrics)
    return after, metrics, mechanism.answered(outcome), kept(mechanism, total)


def _by_slabs(method: Method, layout: Layout, no_metrics: Metrics, per_round: list) -> Block:
    """Returns a block whose rounds query the units slab by slab; see `compile_block`."""
    def begin(public: PyTree, key: Array, step: Array) -> PyTree:
        return _ask(method, public, _keys(key, step))

    def end(public: PyTree, query: PyTree, total: Private[Array], bits: Array,
            at: tuple[Array, Array]) -> tuple[PyTree, Metrics, Array, Private[Array]]:
        return _absorb(method, public, query, total, bits, _keys(*at))

    ask = on_devices(begin, layout, (False,) * 3, False, ())
    absorb = on_devices(end, layout, (False,) * 5, (False,) * 4, (0,))
    add_up = streaming.compile_sum(method, layout)

    def by_slabs(public: PyTree, units: Private[Units], records: Private[Records],
                 private_inputs: np.ndarray, bits: np.ndarray, cohorts: np.ndarray, key: Array,
                 step: int, n: int
                 ) -> tuple[PyTree, Private[Units], Metrics, Array, Private[Array]]:
        metrics, rounds = no_metrics, []
        try:
            for i in range(n):
                query = ask(public, key, step + i)
                total = add_up(units, records, private_inputs[:, i],
                               Round(query, jnp.int32(step + i), cohorts[i]))
                public, metrics, *now = absorb(public, query, total, bits[i], (key, step + i))
                rounds.append(now)
        except BaseException:
            # Some units have learnt and others not: that state is gone, as a donated one is.
            jax.tree.map(lambda a: a.delete(), public)
            raise
        if not rounds:
            rounds = [jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), per_round)]
        answered, votes = jax.tree.map(lambda *rows: jnp.stack(rows), *rounds)
        return public, units, metrics, answered, votes

    return by_slabs


def run_block(block: Block, records: Private[Records], state: State, layout: Layout, draws: Draws,
              n: int) -> tuple[State, Metrics, Array, Private[Array]]:
    """Runs one compiled block, which every process does with its own units.

    Args:
        block: The compiled block.
        records: Sealed records on their devices.
        state: The state before it; its arrays are used up.
        layout: How units lie on devices.
        draws: As `loop.draw` makes them.
        n: The rounds of the block.

    Returns:
        The state after it, the public metrics, what was answered and the sums that are kept.
    """
    private_inputs = draws.private_inputs if layout.slab else spread(draws.private_inputs, layout)
    public, units, released, answered, votes = block(
        state.public, state.units, records, private_inputs, draws.bits, draws.cohorts, state.key,
        state.step, n)
    after = dataclasses.replace(state, public=public, units=units, step=state.step + n)
    return after, released, answered, votes


def check(method: Method, records: Records | None = None) -> None:
    """Checks what a method does in a round, by shapes and types, before anything is spent.

    Args:
        method: The method, built.
        records: Shapes of those of one unit; None where the units are elsewhere.

    Raises:
        TypeError: A function of the method returns a wrong shape or type.
        Exception: From the method, of any kind.
    """
    for phase in method.phases or (method,):
        _outputs_of_a_round(phase)
        if records is not None:
            jax.eval_shape(functools.partial(_contribution, phase), jax.random.key(0), records)


def _contribution(method: Method, key: Array, records: Records) -> Array:
    """Returns a sum over one unit of a round."""
    mechanism = method.mechanism
    query = _ask(method, method.init(key), jax.random.split(key))
    secret = mechanism.private_inputs(SeededBits(0), np.zeros(1, np.int32), 0)[0, 0]
    _, contribution = teachers.query_unit(method, teachers.one_unit(method, key, jnp.int32(0)),
                                          records, query, jnp.int32(0), secret)
    return mechanism.added(jnp.zeros(mechanism.shape, jnp.int32), contribution[None])


def _outputs_of_a_round(method: Method) -> tuple[Metrics, Array, Private[Array]]:
    """Returns the shapes of the metrics, of what was answered and of the kept sum of one round."""
    mechanism = method.mechanism

    def outputs(key: Array) -> tuple[Metrics, Array, Private[Array]]:
        public, keys = method.init(key), jax.random.split(key)
        query = _ask(method, public, keys)
        total = Private(jnp.zeros(mechanism.shape, jnp.int32))
        bits = jnp.zeros(mechanism.bits_shape, jnp.uint32)
        return _absorb(method, public, query, total, bits, keys)[1:]

    return jax.eval_shape(outputs, jax.random.key(0))


def compile_post_block(training: PostTraining) -> Callable[..., tuple[PyTree, Metrics]]:
    """Compiles some steps of a post-training: (key, state, first, n) -> (state, metrics).

    The state is used up: there is no second copy of it.

    Args:
        training: The post-training.
    """
    def block(key: Array, state: PyTree, first: Array, n: Array) -> tuple[PyTree, Metrics]:
        shapes = jax.eval_shape(training.step, key, state, first)[1]
        nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
        return lax.fori_loop(first, first + n, lambda i, carry: training.step(key, carry[0], i),
                             (state, nothing))

    return jax.jit(block, donate_argnums=1)
