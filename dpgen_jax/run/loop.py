"""The loop of a run: afford, reserve in the ledger, run a compiled block of rounds, settle, log.

One loop serves all methods. It passes private values on sealed, and publishes only what the
method's public side computed from released values.

Digests of the random bits of each round reveal later whether bits were used twice. A run appends a
line for each round to private/noise_digests.txt. The line has the number of the round; 128 bits of
BLAKE2b of the bits of its noise, and of the bits that sampled its units, if any did, keyed with the
secret key of private/identity.json; and how many random numbers of the round were the same as
another one of it. It is written while the round is computed, before the ledger counts the round as
made and before anybody learns what it released. The line of a round that a crash loses may be
missing. A client in a process of its own keeps such a file of its answers.

What a digest reveals. Bits are drawn uniformly, 96 of them or more for each number, and no function
of them but the digest and the noisy sum is kept. Without the key, nobody can distinguish digests
from random numbers. Whoever has the key, and so all of private/, would have to try 2^96 bit strings
of the smallest release there is before one fits, so the noise cannot be removed from a released
sum. Such a person also has the records, and learns nothing from the noise.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import math
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpgen_jax.accountant import composition
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.mechanism import Mechanism, kept, release, rows_of
from dpgen_jax.aggregation.noise import BitSource, SeededBits
from dpgen_jax.core import files, hosts
from dpgen_jax.core.files import BINARY
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
from dpgen_jax.private import streaming, teachers
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

    Args:
        block: The compiled block.
        records: Sealed records on their devices.
        state: The state before it; its arrays are used up.
        layout: How units lie on devices.
        draws: As `draw` makes them.
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


LINE = re.compile(r"(\d{1,18})((?: [0-9a-f]{32})+)(?: (\d{1,18}))?\n")
DIGEST_BYTES = 16
LONGEST_LINE = 2**12
"""Bytes of a line, at most, and more than there are."""
LARGEST = 2**30
"""Bytes of a file, at most: a line is below 100."""
WORDS = 3
"""uint32 of one random number"""
BY_VALUE, BY_PLACE = 2**16, 2**12
"""random numbers of a round that are compared with each other, about"""


class Line(NamedTuple):
    """The line of a round.

    Attributes:
        number: The round, as the ledger counts them.
        digests: Of its bits.
        twice: How many of its random numbers were the same as another one; None in files of earlier
            versions, which did not look for them.
    """

    number: int
    digests: tuple[str, ...]
    twice: int | None


@dataclasses.dataclass
class Remembered:
    """A source of bits that remembers what was drawn from it, for a block of rounds.

    Attributes:
        source: The source itself.
        drawn: uint32 [n, ...] of each draw, by round.
    """

    source: BitSource
    drawn: list[np.ndarray] = dataclasses.field(default_factory=list)

    @property
    def label(self) -> str:
        """The name of the source."""
        return self.source.label

    def draw(self, shape: tuple[int, ...]) -> np.ndarray:
        """Returns new bits: uint32 of the shape."""
        bits = self.source.draw(shape)
        self.drawn.append(bits)
        return bits

    def draw_for(self, units: np.ndarray, first_round: int, shape: tuple[int, ...]) -> np.ndarray:
        """Returns new bits for each unit in each round: uint32 [R, n, *shape]."""
        bits = self.source.draw_for(units, first_round, shape)
        self.drawn.append(np.moveaxis(bits, 1, 0))
        return bits


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
    sampled = [bits for bits in drawn[:-1] if bits[0].size >= WORDS]  # fewer are the same by chance
    return [*sampled, draws.bits[:n]]


def append_digests(path: Path, key: bytes, first_round: int, blocks: Sequence[np.ndarray]) -> None:
    """Adds the digests of some rounds to the file; of no bits there are none.

    Args:
        path: The file.
        key: The secret key of the run, up to 64 bytes.
        first_round: The number of the first of these rounds, as the ledger counts them.
        blocks: Each uint32 [n, ...], bits of each round.

    Raises:
        OSError: The file cannot be written.
    """
    filled = [block for block in blocks if block.size]
    lines = [f"{first_round + i} {' '.join(_digest(key, row) for row in rows)} "
             f"{sum(map(twice, rows))}\n" for i, rows in enumerate(zip(*filled, strict=True))]
    if not lines:
        return
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | BINARY, 0o600), "r+b") as out:
        size = out.seek(0, os.SEEK_END)
        out.seek(max(0, size - LONGEST_LINE))
        end = out.read()
        out.seek(size - len(end) + end.rfind(b"\n") + 1)
        out.truncate()  # of a line that a full disk or a crash cut off
        out.write("".join(lines).encode())


def _digest(key: bytes, row: np.ndarray) -> str:
    data = np.ascontiguousarray(row, "<u4").data
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES, key=key,
                           person=b"dpgen noise bits").hexdigest()


def twice(bits: np.ndarray) -> int:
    """Returns how many 96-bit numbers are the same as another one, of those that are compared.

    If there are n > 2^16 numbers, a share f = 2^16 / n of them is compared: those below a
    threshold, which selects both or neither of two equal numbers, and 2^12 more at even distances.
    So if k numbers occur twice, none of them is seen with a chance of (1 - f)^k; and if fewer than
    2^12 different numbers fill all places, some repetition is always seen. Among n fresh numbers
    any two are the same with a chance below n^2 / 2^97.

    Args:
        bits: uint32 [..., 3]; of bits in another form nothing is compared.
    """
    if bits.shape[-1] != WORDS:
        return 0
    words = bits.reshape(-1, WORDS)
    if len(words) > BY_VALUE:
        chosen = words[:, 0] < 2**32 * BY_VALUE // len(words)
        chosen[::len(words) // BY_PLACE] = True
        words = words[chosen]
    first = words[:, 0].astype(np.uint64) << np.uint64(32) | words[:, 1]
    ordered = np.sort(first)
    if not (ordered[1:] == ordered[:-1]).any():  # nearly always; what follows takes longer
        return 0
    order = np.argsort(first, kind="stable")
    same = (np.diff(first[order]) == 0) & (np.diff(words[order, 2].astype(np.int64)) == 0)
    return int(same.sum())


def read_digests(path: Path) -> list[Line]:
    """Returns the lines of all rounds, in the order in which they were drawn.

    A last line that a crash cut off is left out.

    Args:
        path: The file.

    Raises:
        UserError: A line that is not a round with its digest.
    """
    text = files.read_bytes(path, LARGEST).decode("ascii", "replace")
    whole, _, _ = text.rpartition("\n")
    lines = []
    for i, line in enumerate(whole.splitlines()):
        match = LINE.fullmatch(line + "\n")
        if match is None:
            raise UserError(f"{path} is damaged at line {i + 1}")
        lines.append(Line(int(match[1]), tuple(match[2].split()),
                          None if match[3] is None else int(match[3])))
    return lines


def repeated_digests(lines: Sequence[Line]) -> list[tuple[int, ...]]:
    """Returns the rounds that had the same bits, as tuples of their numbers.

    Args:
        lines: As `read_digests` returns them.
    """
    by_digest: dict[str, list[int]] = collections.defaultdict(list)
    for line in lines:
        for digest in line.digests:
            by_digest[digest].append(line.number)
    return [tuple(numbers) for numbers in by_digest.values() if len(numbers) > 1]


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

    It reads released values only and costs nothing.

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
        return composition.epsilon_of((*spent, *pending), delta)

    if planned > steps and total(planned) <= target:
        return steps
    while steps and total(steps) > target:
        steps -= 1
    return steps
