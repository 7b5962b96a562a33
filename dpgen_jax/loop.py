"""THE loop: afford? -> reserve in the ledger -> compiled block of steps -> settle -> log -> save.

Written once for all methods. It handles private values sealed, and tells the world only what the
method's public side computed from released values.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpgen_jax.accountant import gaussian
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.bits import BitSource, SeededBits
from dpgen_jax.aggregation.mechanism import Releases, kept, release
from dpgen_jax.private.teachers import Layout, Units, bounded_sum, on_devices, rows, stack
from dpgen_jax.types import Array, Method, Private, Records, UserError

CALL_SECONDS = 1.0
LONGEST_BLOCK = 16
MOST_SECRETS = 2**28


@dataclasses.dataclass
class State:
    """Everything that a run carries from step to step. key: public randomness; polished: the state
    of `Method.polish` once that has begun, after `polish_step` of its steps."""

    public: Any
    units: Private[Units] | None
    key: Array
    step: int = 0
    polished: Any = None
    polish_step: int = 0

    @property
    def done(self) -> int:
        """Steps of both sorts."""
        return self.step + self.polish_step


def require_32_bits() -> None:
    """What is drawn and summed is proven for 32 bits. Errors: UserError where JAX is set to 64."""
    if jax.config.jax_enable_x64:
        raise UserError("JAX is set to 64 bits (jax_enable_x64, JAX_ENABLE_X64); switch that off, "
                        "as noise and sums are of 32")


def initial_state(method: Method, key: Array, layout: Layout) -> State:
    """The state before the first step."""
    k_public, k_units, k_steps = jax.random.split(key, 3)
    # Replicated from the start: the compiled block takes its own output without a second trace.
    public = jax.jit(method.init, out_shardings=layout.replicated)(k_public)
    return State(public, stack(method, k_units, layout), k_steps)


def compile_block(method: Method, layout: Layout) -> Callable:
    """(public, units, records, secrets [R, S, ...], bits uint32 [S, *bits_shape], groups int32 [S],
    key, step, n) -> (public, units, metrics, answered, votes).

    Runs n <= S steps in one call; public state and units are updated in place. Compiled once,
    whatever n. metrics are those of the last step; answered int32 [S, ...], of which the first n
    count, says what decides the cost of each; votes: the sums that the data holder keeps, sealed.
    """
    mechanism = method.mechanism
    schedule = mechanism.schedule
    if (layout.groups, layout.drawn) != (schedule.groups, schedule.places is not None):
        raise ValueError(f"the layout is for {layout.groups} groups of units, drawn: "
                         f"{layout.drawn}; the schedule is not")

    def block(public, units, records, secrets, bits, groups, key, step, n):
        def one(i, carry):
            public, units, _, answered, votes = carry
            k_ask, k_absorb = jax.random.split(jax.random.fold_in(key, step + i))
            query = method.ask(k_ask, public)
            told = lax.dynamic_index_in_dim(secrets, i, 1, keepdims=False)
            units, total = bounded_sum(method, layout, units, records, told, query, step + i,
                                       groups[i])
            outcome = release(mechanism, bits[i], total)
            public, metrics = method.absorb(k_absorb, public, query, mechanism.value(outcome))
            answered = answered.at[i].set(mechanism.answered(outcome))
            votes = jax.tree.map(lambda a, new: a.at[i].set(new), votes, kept(mechanism, total))
            return public, units, metrics, answered, votes

        nothing = jax.tree.map(lambda a: jnp.zeros((len(bits), *a.shape), a.dtype), empty[1:])
        return lax.fori_loop(0, n, one, (public, units, no_metrics, *nothing))

    def of_a_step(key):
        public = method.init(key)
        query = method.ask(key, public)
        total = jnp.zeros(mechanism.shape, jnp.int32)
        outcome = mechanism.decide(total, jnp.zeros(mechanism.bits_shape, jnp.uint32))
        metrics = method.absorb(key, public, query, mechanism.value(outcome))[1]
        return metrics, mechanism.answered(outcome), kept(mechanism, Private(total))

    empty = jax.eval_shape(of_a_step, jax.random.key(0))
    no_metrics = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), empty[0])
    return on_devices(block, layout, (False, True, not layout.drawn, True, *[False] * 5),
                      (False, True, False, False, False), donate=(0, 1))


def train(method: Method, records: Private[Records], state: State, layout: Layout, ledger: Ledger,
          bits: BitSource, *, steps: int, steps_per_call: int = 0,
          on_block: Callable[[State, dict[str, float]], None],
          keep: Callable[[Private[Array], np.ndarray], None] = lambda votes, answered: None,
          stop: Callable[[], bool] = lambda: False) -> State:
    """Runs until `steps` releases were made, the budget allows no further one, or `stop()`.

    bits: the source of the noise (`aggregation.bits`). on_block(state, metrics) is called after
    each block, with public metrics; keep(votes [S, B, D], answered [n, ...]) before the block is
    settled, with the sums that the data holder keeps. Errors: BudgetExceeded and UserError from the
    ledger, before anything is drawn; those of `keep` and of the settlement, after `on_block`;
    UserError when the generator is no longer finite (what was spent is spent).
    """
    mechanism = method.mechanism
    block = compile_block(method, layout)
    longest = steps_per_call or longest_block(mechanism)
    n = steps_per_call or 1
    while state.step < steps and not stop():
        n = affordable(method, ledger, min(n, steps - state.step), steps - state.step)
        if n < 1:
            break
        turn = ledger.steps_charged
        charged = mechanism.due(ledger.spent(), turn, n)
        ticket = ledger.reserve(charged, n)
        drawn = draw(mechanism, layout, bits, turn, n, longest)
        started = time.perf_counter()
        public, units, metrics, answered, votes = block(
            state.public, state.units, records, *drawn, state.key, state.step, n)
        state = dataclasses.replace(state, public=public, units=units, step=state.step + n)
        metrics = _floats(metrics)
        answered = np.asarray(answered)[:n]
        fault = None
        try:
            keep(votes, answered)
            ledger.settle(ticket, mechanism.settled(answered, charged), n)
        except (UserError, OSError) as error:
            fault = error  # what is not settled stays charged in full: the block is paid for
        _refuse_infinite(metrics, state)
        on_block(state, metrics)
        if fault:
            raise fault
        if not steps_per_call:
            n = min(longest, _next_length(n, started))
    return state


def polish(method: Method, state: State, key: Array, steps_per_call: int = 0, *,
           on_block: Callable[[State, dict[str, float]], None],
           stop: Callable[[], bool] = lambda: False) -> State:
    """The public training of `Method.polish`, from its start to its end or until `stop()`.

    It reads released values alone and costs nothing. key: that of `refine`; on_block: as in
    `train`. Errors: UserError when the generator is no longer finite.
    """
    training = method.polish
    # On one device: replicated, each would do the same.
    polished = jax.jit(training.init)(key, jax.device_get(state.public))
    state = dataclasses.replace(state, polished=polished)
    shapes = jax.eval_shape(training.step, key, polished, 0)[1]

    @jax.jit
    def block(polished, first, n):
        nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
        return lax.fori_loop(first, first + n, lambda i, carry: training.step(key, carry[0], i),
                             (polished, nothing))

    n = steps_per_call or 1
    while state.polish_step < training.steps and not stop():
        n = min(n, training.steps - state.polish_step)
        started = time.perf_counter()
        polished, metrics = block(state.polished, state.polish_step, n)
        metrics = _floats(metrics)
        state = dataclasses.replace(state, polished=polished, polish_step=state.polish_step + n)
        _refuse_infinite(metrics, state)
        on_block(state, metrics)
        n = steps_per_call or _next_length(n, started)
    return state


def _floats(metrics: dict[str, Array]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}


def _refuse_infinite(metrics: dict[str, float], state: State) -> None:
    if not all(math.isfinite(value) for value in metrics.values()):
        raise UserError(f"the generator diverged at step {state.done} (public metrics are not "
                        "finite); lower g_optimiser.learning_rate or step_size")


def _next_length(n: int, started: float) -> int:
    """Steps of the next call, where one of n began at `started`: up to twice as many."""
    seconds = (time.perf_counter() - started) / n
    return max(1, min(2 * n, int(CALL_SECONDS / seconds)))


def draw(mechanism: Releases, layout: Layout, bits: BitSource, turn: int, n: int, longest: int
         ) -> tuple[Array, np.ndarray, np.ndarray]:
    """Fresh (secrets, noise bits, groups) of a block of n steps from turn `turn` on, with zeros up
    to `longest` steps, so that blocks of any length are compiled once."""
    def padded(array, axis):
        padding = [(0, 0)] * array.ndim
        padding[axis] = (0, longest - n)
        return np.pad(array, padding)

    groups = mechanism.schedule.turns(bits, turn, n)
    secrets = rows(padded(mechanism.secrets(bits, groups, turn), 1), layout)
    return secrets, padded(bits.draw((n, *mechanism.bits_shape)), 0), padded(groups, 0)


def longest_block(mechanism: Releases) -> int:
    """Steps of the longest block: fewer where a step needs many secret bits."""
    one = (mechanism.secrets(SeededBits(0), np.zeros(1, np.int32), 0).nbytes
           + 4 * math.prod(mechanism.bits_shape))
    return max(1, min(LONGEST_BLOCK, MOST_SECRETS // max(1, one)))


def affordable(method: Method, ledger: Ledger, steps: int, planned: int = 0) -> int:
    """The most steps, up to `steps`, that the budget allows on top of all that is charged.

    planned: steps that are to come. Where the budget allows them all it allows fewer, and one sum,
    the same for every block, is enough.
    """
    target, delta = ledger.target, ledger.header["delta"]
    spent, turn = ledger.spent(), ledger.steps_charged

    def total(n):
        return gaussian.epsilon((*spent, *method.mechanism.due(spent, turn, n)), delta)

    if planned > steps and total(planned) <= target:
        return steps
    while steps and total(steps) > target:
        steps -= 1
    return steps
