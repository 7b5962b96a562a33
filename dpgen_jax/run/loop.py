"""The loop of a run: afford, reserve in the ledger, run a compiled block of rounds, settle, log.

It is written once for all methods. It handles private values sealed, and tells the world only what
the method's public side computed from released values.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable

import jax
import numpy as np

from dpgen_jax.accountant import gaussian
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.bits import BitSource, SeededBits
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.core import hosts
from dpgen_jax.core.types import Array, Method, Metrics, Private, Records, UserError
from dpgen_jax.private import streaming, teachers
from dpgen_jax.private.layout import Layout, padded_rows
from dpgen_jax.run.noise_digests import Remembered, secret_bits
from dpgen_jax.run.rounds import (
    Block,
    Draws,
    State,
    compile_block,
    compile_post_block,
    run_block,
)

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
        method: The method.
        layout: How its units lie on devices.
        ledger: Where rounds are charged, before anything is drawn for them.
        bits: The source of the noise.
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hooks:
    """The functions that are called while a run goes on.

    Attributes:
        on_block: Called after each block with the state and its public metrics.
        keep_votes: Called before a block is settled, with the sums that are kept, sealed int32
            [S, B, D], and what was answered, int32 [n, ...].
        stop: Whether the run was asked to stop.
        on_bits: Called while a block is computed, before it is settled, with its first round and
            its secret bits, each uint32 [n, ...].
        on_state: Called with a state that takes the place of the last one, whose arrays are gone,
            where `on_block` is not called.
    """

    on_block: Callable[[State, dict[str, float]], None] = lambda state, metrics: None
    keep_votes: Callable[[Private[Array], np.ndarray], None] = lambda votes, answered: None
    stop: Callable[[], bool] = lambda: False
    on_bits: Callable[[int, list[np.ndarray]], None] = lambda first_round, bits: None
    on_state: Callable[[State], None] = lambda state: None


def require_32_bits() -> None:
    """Refuses JAX with 64 bits: noise and sums are proven for 32.

    Raises:
        UserError: JAX is set to 64 bits.
    """
    # JAX 0.10 adds its options at run time, where mypy does not see them.
    if jax.config.jax_enable_x64:  # type: ignore[attr-defined, unused-ignore]
        raise UserError("JAX is set to 64 bits (jax_enable_x64, JAX_ENABLE_X64); switch that off, "
                        "as noise and sums are of 32")


def initial_state(method: Method, key: Array, layout: Layout) -> State:
    """Returns the state before the first round, made of the random key of the run."""
    k_public, k_units, k_steps = jax.random.split(key, 3)
    # Replicated from the start: the compiled block takes its own output without a second trace.
    public = jax.jit(method.init, out_shardings=layout.replicated)(k_public)
    stack = streaming.stack if layout.slab else teachers.stack
    return State(public, stack(method, k_units, layout), k_steps)


def train(job: Job, records: Private[Records], state: State, steps: int, hooks: Hooks = Hooks()
          ) -> State:
    """Runs until `steps` rounds are done, the budget allows no further one, or the hooks stop it.

    Args:
        job: The method, its layout, the ledger and the source of the noise.
        records: Sealed records on their devices, as `private.teachers.place` puts them.
        state: The state to start from; its arrays are used up.
        steps: Rounds in all, those of `state.step` included.
        hooks: What is called after each block.

    Returns:
        The state after the last round.

    Raises:
        BudgetExceeded: By the ledger, before anything is drawn.
        UserError: By the ledger likewise; by `hooks.keep_votes` and the settlement, after
            `hooks.on_block`; where the generator is no longer finite (what was spent is spent).
        OSError: As the second.
    """
    ledger, phase = job.ledger, None
    n = job.steps_per_call or 1
    while state.step < steps and not hooks.stop():
        before, (phase, alike) = phase, job.method.at(state.step)
        if phase is not before:
            block, n = compile_block(phase, job.layout), job.steps_per_call or 1
        left = steps - state.step
        n = affordable(job.method, ledger, int(min(n, left, alike)), left)
        if n < 1:
            break
        started = time.perf_counter()
        if phase is not before:
            state = _prepared(job, block, records, state)
            hooks.on_state(state)
        state = _run_block(job, block, records, state, n, hooks)
        if not job.steps_per_call:
            n = min(job.longest, _next_length(n, started))
    return state


def _prepared(job: Job, block: Block, records: Private[Records], state: State) -> State:
    """Returns the state after a block of no round, which costs nothing.

    It is compiled for that, and gets its memory: where either fails nothing is charged yet.
    """
    draws = draw(job.method.mechanism, job.layout, SeededBits(0), 0, 1, job.longest)
    hosts.tell("block", {"n": 0}, **draws._asdict())
    state, *_ = run_block(block, records, state, job.layout, draws, 0)
    jax.block_until_ready(state.public)
    return state


def _run_block(job: Job, block: Block, records: Private[Records], state: State, n: int,
               hooks: Hooks) -> State:
    """Reserves the worst cost of n rounds, runs them, and settles what they cost."""
    mechanism, ledger = job.method.mechanism, job.ledger
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
        hooks.on_bits(first_round, secret_bits(mechanism, draws, source.drawn, n))
        released, answered = jax.device_get((released, answered))
        metrics, outcomes = _floats(released), answered[:n]
        try:
            hooks.keep_votes(votes, outcomes)
            ledger.settle(ticket, mechanism.actual_charge(outcomes, charged), n)
        except Exception as error:  # of any kind: a mechanism's own code is called
            fault = error  # what is not settled stays charged in full: the block is paid for
    except (KeyboardInterrupt, SystemExit):  # a second signal, which does not wait for the block
        hooks.on_state(state)
        raise
    _refuse_infinite(metrics, state)
    hooks.on_block(state, metrics)
    if fault:
        raise fault
    return state


def post_train(method: Method, state: State, key: Array, steps_per_call: int = 0,
               hooks: Hooks = Hooks()) -> State:
    """Runs the public training of `Method.post_training`, from its start to its end or to a stop.

    It reads released values alone and costs nothing.

    Args:
        method: A method that has post-training.
        state: The state after the last round.
        key: The key that `Method.finalize` gets.
        steps_per_call: Steps of one compiled call, or 0: as many as take about a second.
        hooks: What is called after each block; no votes are kept.

    Raises:
        ValueError: The method has no post-training.
        UserError: The generator is no longer finite.
    """
    training = method.post_training
    if training is None:
        raise ValueError("the method has no post-training")
    # On one device: replicated, each would do the same.
    post_state = jax.jit(training.init)(key, jax.device_get(state.public))
    state = dataclasses.replace(state, post_state=post_state)
    block, n = compile_post_block(training), steps_per_call or 1
    while state.post_step < training.steps and not hooks.stop():
        n = min(n, training.steps - state.post_step)
        started = time.perf_counter()
        post_state, released = block(key, state.post_state, state.post_step, n)
        metrics = _floats(jax.device_get(released))
        state = dataclasses.replace(state, post_state=post_state, post_step=state.post_step + n)
        _refuse_infinite(metrics, state)
        hooks.on_block(state, metrics)
        n = steps_per_call or _next_length(n, started)
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

    Args:
        mechanism: The mechanism.
        layout: How units lie on devices.
        bits: The source of secret bits.
        first_round: The number of the first round of the block.
        n: The rounds of the block.
        longest: S, the rounds of the longest block.

    Returns:
        The private inputs, the bits of the noise and the cohorts.
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


def longest_block(mechanism: Mechanism) -> int:
    """Returns the rounds of the longest block: fewer where a round needs many secret bits."""
    one = (mechanism.private_inputs(SeededBits(0), np.zeros(1, np.int32), 0).nbytes
           + 4 * math.prod(mechanism.bits_shape))
    return max(1, min(LONGEST_BLOCK, MOST_SECRETS // max(1, one)))


def affordable(method: Method, ledger: Ledger, steps: int, planned: int = 0) -> int:
    """Returns how many rounds the budget allows on top of all that is charged, up to `steps`.

    Args:
        method: The method.
        ledger: The ledger, which knows the budget.
        steps: The rounds that are wanted.
        planned: All rounds that are to come. Where the budget allows them all it allows fewer, and
            one sum, the same for every block, is enough.
    """
    target, delta = ledger.target, ledger.header["delta"]
    spent, first_round = ledger.spent(), ledger.steps_charged

    def total(n: int) -> float:
        pending = method.mechanism.pending_charge(spent, first_round, n)
        return gaussian.epsilon((*spent, *pending), delta)

    if planned > steps and total(planned) <= target:
        return steps
    while steps and total(steps) > target:
        steps -= 1
    return steps
