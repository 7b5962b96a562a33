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
from dpgen_jax.aggregation.mechanism import release
from dpgen_jax.private.teachers import Layout, Units, bounded_sum, on_devices, stack
from dpgen_jax.types import Array, Method, Private, Records, UserError

CALL_SECONDS = 1.0
LONGEST_BLOCK = 16


@dataclasses.dataclass
class State:
    """Everything that a run carries from step to step. key: public randomness."""

    public: Any
    units: Private[Units] | None
    key: Array
    step: int = 0


def initial_state(method: Method, key: Array, layout: Layout) -> State:
    """The state before the first step."""
    k_public, k_units, k_steps = jax.random.split(key, 3)
    # Replicated from the start: the compiled block takes its own output without a second trace.
    public = jax.jit(method.init, out_shardings=layout.replicated)(k_public)
    return State(public, stack(method, k_units, layout), k_steps)


def compile_block(method: Method, layout: Layout) -> Callable:
    """(public, units, records, bits uint32 [S, B, D, 3], key, step, n) -> (public, units, metrics).

    Runs n <= S steps in one call; public state and units are updated in place. Compiled once,
    whatever n. metrics are those of the last step.
    """
    def block(public, units, records, bits, key, step, n):
        def one(i, carry):
            public, units, _ = carry
            k_ask, k_absorb = jax.random.split(jax.random.fold_in(key, step + i))
            query = method.ask(k_ask, public)
            units, total = bounded_sum(method, layout, units, records, query, step + i)
            released = release(method.mechanism, bits[i], total)
            public, metrics = method.absorb(k_absorb, public, query, released)
            return public, units, metrics

        return lax.fori_loop(0, n, one, (public, units, no_metrics))

    def metrics_of_a_step(key, public):
        released = jnp.zeros(method.mechanism.shape, jnp.float32)
        return method.absorb(key, public, method.ask(key, public), released)[1]

    shapes = jax.eval_shape(lambda k: metrics_of_a_step(k, method.init(k)), jax.random.key(0))
    no_metrics = {name: jnp.zeros(a.shape, a.dtype) for name, a in shapes.items()}
    return on_devices(block, layout, (False, True, True, False, False, False, False),
                      (False, True, False), donate=(0, 1))


def train(method: Method, records: Private[Records], state: State, layout: Layout, ledger: Ledger,
          bits: Any, *, steps: int, steps_per_call: int = 0,
          on_block: Callable[[State, dict[str, float]], None],
          stop: Callable[[], bool] = lambda: False) -> State:
    """Runs until `steps` releases were made, the budget allows no further one, or `stop()`.

    bits: the source of the noise (`aggregation.bits`). on_block(state, metrics) is called after
    each block, with public metrics. Errors: BudgetExceeded and OSError from the ledger, before
    anything is drawn; UserError when the generator is no longer finite (what was spent is spent).
    """
    block = compile_block(method, layout)
    longest = steps_per_call or LONGEST_BLOCK
    n = steps_per_call or 1
    while state.step < steps and not stop():
        n = affordable(method, ledger, min(n, steps - state.step))
        if n < 1:
            break
        ticket = ledger.reserve(method.mechanism.events(n), n)
        noise = np.zeros((longest, *method.mechanism.noise.bits_shape(method.mechanism.shape)),
                         np.uint32)
        noise[:n] = bits.draw(noise[:n].shape)
        started = time.perf_counter()
        public, units, metrics = block(state.public, state.units, records, noise, state.key,
                                       state.step, n)
        state = dataclasses.replace(state, public=public, units=units, step=state.step + n)
        metrics = {name: float(value) for name, value in metrics.items()}
        ledger.settle(ticket, method.mechanism.events(n), n)
        if not all(math.isfinite(value) for value in metrics.values()):
            raise UserError(f"the generator diverged at step {state.step} (public metrics are not "
                            "finite); lower g_optimiser.learning_rate or step_size")
        on_block(state, metrics)
        if not steps_per_call:
            seconds = (time.perf_counter() - started) / n
            n = max(1, min(longest, 2 * n, int(CALL_SECONDS / seconds)))
    return state


def affordable(method: Method, ledger: Ledger, steps: int) -> int:
    """The most steps, up to `steps`, that the budget allows on top of all that is charged."""
    target, delta = ledger.header["epsilon"], ledger.header["delta"]
    spent = ledger.spent()
    while steps and gaussian.epsilon((*spent, *method.mechanism.events(steps)), delta) > target:
        steps -= 1
    return steps
