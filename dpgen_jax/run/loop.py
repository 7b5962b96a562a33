"""The loop of a run: pretraining, blocks of rounds, post-training, and the way to listen to them.

One loop serves all methods. For each block of rounds it asks what the budget affords, reserves the
cost in the ledger, draws the secret bits, runs the compiled block, and settles what it cost.
Private values stay sealed. Public is only what the method's public side computes from released
values. A `Listener` hears of all that happens; `run.training` has that of a run with a folder.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpgen_jax.accountant import composition
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.mechanism import Mechanism, kept, release, rows_of
from dpgen_jax.aggregation.noise import BitSource, SeededBits
from dpgen_jax.core import hosts
from dpgen_jax.core.types import (
    Array,
    Method,
    Metrics,
    PostTraining,
    Private,
    PyTree,
    Records,
    UserError,
)
from dpgen_jax.private import pretraining, streaming, teachers
from dpgen_jax.private.teachers import (
    Layout,
    Round,
    Units,
    bounded_sum,
    check_public,
    check_query,
    on_devices,
    padded_rows,
    spread,
)
from dpgen_jax.run.noise_digests import WORDS, Remembered

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
        if not n:  # a round that nothing comes of: its programs are compiled, and get their memory
            at, query = (key, step), ask(public, key, step)
            total = add_up(units, records, private_inputs[:, 0],
                           Round(query, jnp.int32(step), cohorts[0]), is_trial=True)
            jax.block_until_ready(absorb(jax.tree.map(jnp.copy, public), query, total, bits[0], at))
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

    The arrays of the state are used up. It returns the state after the n rounds of the block, the
    public metrics, what was answered and the sums that are kept.
    """
    private_inputs = draws.private_inputs if layout.slab else spread(draws.private_inputs, layout)
    public, units, released, answered, votes = block(
        state.public, state.units, records, private_inputs, draws.bits, draws.cohorts, state.key,
        state.step, n)
    after = dataclasses.replace(state, public=public, units=units, step=state.step + n)
    return after, released, answered, votes


def check(method: Method, records: Records | None = None) -> None:
    """Checks what a method does in a round, by shapes and types, before anything is spent.

    `records` are the shapes of those of one unit; None where the units are elsewhere.

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
    """
    def block(key: Array, state: PyTree, first: Array, n: Array) -> tuple[PyTree, Metrics]:
        shapes = jax.eval_shape(training.step, key, state, first)[1]
        nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
        return lax.fori_loop(first, first + n, lambda i, carry: training.step(key, carry[0], i),
                             (state, nothing))

    return jax.jit(block, donate_argnums=1)


CALL_SECONDS = 1.0
"""Seconds that one call of a compiled block should take."""
LONGEST_BLOCK = 16
"""Rounds of the longest block."""
MOST_SECRETS = 2**28
"""Bytes of private inputs and noise bits of one block, at most."""


@dataclasses.dataclass(frozen=True)
class Job:
    """The values that stay the same over all rounds of a run.

    Attributes:
        ledger: Where rounds are charged, before anything is drawn for them.
        steps_per_call: Rounds of one compiled call, or 0: as many as take about a second.
    """

    method: Method
    layout: Layout
    ledger: Ledger
    bits: BitSource
    steps_per_call: int = 0

    @functools.cached_property
    def longest(self) -> int:
        """The rounds of the longest block, up to which every block is padded."""
        return self.steps_per_call or longest_block(self.method.mechanism)


class Listener:
    """Hears of what happens in a run. Every method does nothing until a subclass has its own."""

    def stop(self) -> bool:
        """Whether the run must stop; the loop looks at it between blocks."""
        return False

    def on_pretrained(self, state: State, share: float) -> None:
        """Called after each call of the pretraining, with the share of the units that is done."""

    def on_bits(self, first_round: int, bits: list[np.ndarray]) -> None:
        """Called while a block is computed, before it is settled.

        Args:
            first_round: The number of its first round, as the ledger counts them.
            bits: Its secret bits, each uint32 [n, ...].
        """

    def keep_votes(self, votes: Private[Array], answered: np.ndarray) -> None:
        """Called before a block is settled.

        Args:
            votes: The sums that the data holder keeps, sealed int32 [S, B, D]; n rows count.
            answered: What was answered, int32 [n, ...].
        """

    def on_block(self, state: State, metrics: dict[str, float]) -> None:
        """Called after each block of rounds or of post-training, with its public metrics."""

    def on_state(self, state: State) -> None:
        """Called with a state that has taken over the arrays of the last one, without a block."""


SILENT = Listener()
"""Hears of everything and does nothing."""

def require_32_bits() -> None:
    """Refuses JAX with 64 bits: noise and sums are proven for 32.

    Raises:
        UserError: JAX is set to 64 bits.
    """
    # JAX 0.10 adds its options at run time, where mypy does not see them.
    if jax.config.jax_enable_x64:  # type: ignore[attr-defined, unused-ignore]
        raise UserError("JAX is set to 64 bits (jax_enable_x64, JAX_ENABLE_X64); switch that off, "
                        "since noise and sums have 32")


def initial_state(method: Method, key: Array, layout: Layout) -> State:
    """Returns the state before the first round, made of the random key of the run."""
    k_public, k_units, k_steps = jax.random.split(key, 3)
    # Replicated from the start: the compiled block takes its own output without a second trace.
    public = jax.jit(method.init, out_shardings=layout.replicated)(k_public)
    stack = streaming.stack if layout.slab else teachers.stack
    return State(public, stack(method, k_units, layout), k_steps)


def pretrain(job: Job, records: Private[Records], state: State, listener: Listener) -> State:
    """Returns the state with all units pretrained, or as many as were before `Listener.stop`."""
    if state.units is None:
        return state
    for units, share in pretraining.pretrain(job.method, state.units, records, job.layout):
        state = dataclasses.replace(state, units=units)
        listener.on_pretrained(state, share)
        if listener.stop():
            break
    return state


def train(job: Job, records: Private[Records], state: State, steps: int,
          listener: Listener = SILENT) -> State:
    """Runs until `steps` rounds are done, the budget allows no further one, or it is to stop.

    Args:
        job: The method, its layout, the ledger and the source of the noise.
        records: Sealed records on their devices, as `private.teachers.place` puts them.
        state: The state to start from; its arrays are used up.
        steps: Rounds in all, those of `state.step` included.
        listener: Hears of each block.

    Raises:
        BudgetExceeded: By the ledger, before anything is drawn.
        UserError: By the ledger likewise; by `Listener.keep_votes` and the settlement, after
            `Listener.on_block`; where the generator is no longer finite (what was spent is spent).
        OSError: As the second.
    """
    phase, n = None, job.steps_per_call or 1
    while state.step < steps and not listener.stop():
        before, (phase, alike) = phase, job.method.at(state.step)
        if phase is not before:
            block, n = compile_block(phase, job.layout), job.steps_per_call or 1
        left = steps - state.step
        n = affordable(phase, job.ledger, int(min(n, left, alike)), left)
        if n < 1:
            break
        started = time.perf_counter()
        if phase is not before:
            state = _prepared(job, block, records, state)
            listener.on_state(state)
        state = _run_block(job, block, records, state, n, listener)
        if not job.steps_per_call:
            n = min(job.longest, _next_length(n, started))
    return state


def _prepared(job: Job, block: Block, records: Private[Records], state: State) -> State:
    """Returns the state after a block of no round, which costs nothing.

    It is compiled for that, and gets its memory: where either fails nothing is charged yet.
    """
    mechanism = job.method.at(state.step)[0].mechanism
    draws = draw(mechanism, job.layout, SeededBits(0), 0, 1, job.longest)
    hosts.tell("block", {"n": 0}, **draws._asdict())
    state, *_ = run_block(block, records, state, job.layout, draws, 0)
    jax.block_until_ready(state.public)
    return state


def _run_block(job: Job, block: Block, records: Private[Records], state: State, n: int,
               listener: Listener) -> State:
    """Reserves the worst cost of n rounds, runs them, and settles what they cost."""
    mechanism, ledger = job.method.at(state.step)[0].mechanism, job.ledger
    first_round = ledger.steps_charged
    # On the disk before anything is drawn: a crash can only leave too much charged.
    charged = mechanism.pending_charge(ledger.spent(), first_round, n)
    ticket = ledger.reserve(charged, n)
    source = Remembered(job.bits)
    draws = draw(mechanism, job.layout, source, first_round, n, job.longest)
    hosts.tell("block", {"n": n}, **draws._asdict())
    state, released, answered, votes = run_block(block, records, state, job.layout, draws, n)
    fault = None
    try:
        # The devices are at work, and what they make is not known yet.
        listener.on_bits(first_round, secret_bits(mechanism, draws, source.drawn, n))
        released, answered = jax.device_get((released, answered))
        metrics, outcomes = _floats(released), answered[:n]
        try:
            listener.keep_votes(votes, outcomes)
            ledger.settle(ticket, mechanism.actual_charge(outcomes, charged), n)
        except Exception as error:  # of any kind: a mechanism's own code is called
            fault = error  # what is not settled stays charged in full: the block is paid for
    except (KeyboardInterrupt, SystemExit):  # a second signal, which does not wait for the block
        listener.on_state(state)
        raise
    _refuse_infinite(metrics, state)
    listener.on_block(state, metrics)
    if fault:
        raise fault
    return state


def post_train(job: Job, state: State, key: Array, listener: Listener = SILENT) -> State:
    """Runs the public training of `Method.post_training`, from its start to its end or to a stop.

    It reads released values only and costs nothing.

    Args:
        job: That of a method with post-training.
        state: The state after the last round.
        key: The key that `Method.finalize` gets.
        listener: Hears of each block.

    Raises:
        ValueError: The method has no post-training.
        UserError: The generator is no longer finite.
    """
    training = job.method.post_training
    if training is None:
        raise ValueError("the method has no post-training")
    # On one device: replicated, each would do the same.
    post_state = jax.jit(training.init)(key, jax.device_get(state.public))
    state = dataclasses.replace(state, post_state=post_state)
    block, n = compile_post_block(training), job.steps_per_call or 1
    while state.post_step < training.steps and not listener.stop():
        n = min(n, training.steps - state.post_step)
        started = time.perf_counter()
        post_state, released = block(key, state.post_state, state.post_step, n)
        metrics = _floats(jax.device_get(released))
        state = dataclasses.replace(state, post_state=post_state, post_step=state.post_step + n)
        _refuse_infinite(metrics, state)
        listener.on_block(state, metrics)
        n = job.steps_per_call or _next_length(n, started)
    return state


def _floats(metrics: Metrics) -> dict[str, float]:
    """Returns metrics of the host as numbers: on a device each would be waited for by itself."""
    return {name: float(value) for name, value in metrics.items()}


def _refuse_infinite(metrics: dict[str, float], state: State) -> None:
    if not all(math.isfinite(value) for value in metrics.values()):
        raise UserError(f"the generator diverged at step {state.done} (public metrics are not "
                        "finite); lower g_optimiser.learning_rate or step_size")


def _next_length(n: int, started: float) -> int:
    """Returns the rounds of the next call, where one of n began at `started`: up to twice n."""
    seconds = (time.perf_counter() - started) / n
    return max(1, min(2 * n, int(CALL_SECONDS / seconds)))


def draw(mechanism: Mechanism, layout: Layout, bits: BitSource, first_round: int, n: int,
         longest: int) -> Draws:
    """Draws the secret bits and the cohorts of a block, fresh for every call.

    They are padded with zeros up to `longest` rounds: blocks of any length are compiled once. The
    bits of the noise are drawn last.
    """
    def padded(array: np.ndarray, axis: int) -> np.ndarray:
        padding = [(0, 0)] * array.ndim
        padding[axis] = (0, longest - n)
        return np.pad(array, padding)

    cohorts = mechanism.schedule.cohorts(bits, first_round, n)
    private_inputs = padded_rows(
        padded(mechanism.private_inputs(bits, cohorts, first_round), 1), layout)
    return Draws(private_inputs, padded(bits.draw((n, *mechanism.bits_shape)), 0),
                 padded(cohorts, 0))


def secret_bits(mechanism: Mechanism, draws: Draws, drawn: Sequence[np.ndarray], n: int
                ) -> list[np.ndarray]:
    """Returns the bits of a block: of the noise as it is used, and what units were sampled by.

    Args:
        mechanism: The mechanism.
        draws: As `draw` returns them; its private inputs are uint32 where they are bits of the
            units' own noise.
        drawn: All bits that were drawn for them, those of the noise last.
        n: The rounds of the block.

    Returns:
        Each uint32 [n, ...].
    """
    if draws.private_inputs.dtype == np.uint32:  # without the rows that pad the layout
        return [np.moveaxis(draws.private_inputs[:rows_of(mechanism), :n], 1, 0)]
    # Fewer bits than those of a number are the same by chance.
    sampled = [bits for bits in drawn[:-1] if bits[0].size >= WORDS]
    return [*sampled, draws.bits[:n]]


def longest_block(mechanism: Mechanism) -> int:
    """Returns the rounds of the longest block: fewer where a round needs many secret bits."""
    one = (mechanism.private_inputs(SeededBits(0), np.zeros(1, np.int32), 0).nbytes
           + 4 * math.prod(mechanism.bits_shape))
    return max(1, min(LONGEST_BLOCK, MOST_SECRETS // max(1, one)))


def affordable(method: Method, ledger: Ledger, steps: int, planned: int = 0) -> int:
    """Returns how many rounds the budget allows on top of all that is charged, up to `steps`.

    `planned` are all rounds that are to come. Where the budget allows them all it allows fewer, and
    one sum, the same for every block, is enough.
    """
    target, delta = ledger.target, ledger.header["delta"]
    spent, first_round = ledger.spent(), ledger.steps_charged

    def total(n: int) -> float:
        pending = method.mechanism.pending_charge(spent, first_round, n)
        return composition.epsilon_of((*spent, *pending), delta)

    if planned > steps and total(planned) <= target:
        return steps
    while steps and total(steps) > target:
        steps -= 1
    return steps
