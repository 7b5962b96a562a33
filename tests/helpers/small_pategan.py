"""A PATE-GAN of five teachers on a table, compiled once for a test session, in the real loop.

What the tests vary is data: `told` is 1 for the method itself and 0 for one whose student hears
nothing of what was released; the noisy counts of every step are on view in `seen`. Zero bits are
noise of 0.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import loops
import numpy as np
import pytest
import small_datalens
from planted import toy as adversary

from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.core.types import Array, Column, Method, Private, TableSpec, unseal
from dpgen_jax.methods import pategan
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.private import records as sealing
from dpgen_jax.private import teachers
from dpgen_jax.private.teachers import Units
from dpgen_jax.run import loop

TABLE = TableSpec((Column("age", "continuous", 0, 99), Column("height", "integer", 50, 220),
                   Column("weight", "continuous", 0, 300, nullable=True),
                   Column("eyes", "categorical", categories=("blue", "brown", "green"))),
                  Column("class", "categorical", categories=("a", "b", "c")), 0)
F, N, UNITS, ROWS, STEPS, RECORD = 7, 23, 5, 4, 4, 11
CONFIG = pategan.Config(
    teachers=UNITS, batch=ROWS, sigma=4.0, steps=STEPS, d_steps=2, d_steps_first=3, s_steps=2,
    g_steps=2, memory=3, s_hidden=8, d_optimiser=Adam(2e-2), generator=GeneratorNet(4, 16, 8),
    discriminator=DiscriminatorNet(4, 8, 8))
DEALT = sealing.assign(N, UNITS, small_datalens.KEY)
OWNER = int(np.argwhere(DEALT.index == RECORD)[0][0])
WHERE = small_datalens.layout(chunk=1, units=UNITS)
block = functools.cache(loop.compile_block)  # what is compared are runs of one program


def rows(n=N, seed=0):
    """Encoded rows float32 [n, F] and labels."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, F)).astype(np.float32)
    x[:, 3] = x[:, 3] < 0.3
    x[:, 4:] = np.eye(3)[rng.integers(0, 3, n)]
    return x, rng.integers(0, 3, n)


def neighbour(data):
    """The content and the label of one record replaced."""
    x, y = (a.copy() for a in data)
    x[RECORD] = rows(1, seed=9)[0][0] if x.dtype == np.float32 else 255 - x[RECORD]
    y[RECORD] = (y[RECORD] + 1) % 3
    return x, y


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Seen:
    """inner: the method's public state; seen float32 [STEPS, B, 1]: the noisy counts; labels
    [STEPS, B]: of the queries."""

    inner: Any
    seen: Array
    labels: Array
    shares: Array


def watched(method: Method) -> Method:
    """The same method, with `Seen` as its public state."""
    built = method.mechanism

    def absorb(key, public, query, released):
        at = public.inner.step
        shares = public.shares * built.decode(released.astype(jnp.int32), built.n_units)
        inner, metrics = method.absorb(key, public.inner, query, shares)
        return Seen(inner, public.seen.at[at].set(released),
                    public.labels.at[at].set(query.labels), public.shares), metrics

    def init(key):
        return Seen(method.init(key), jnp.zeros((STEPS, ROWS, 1)),
                    jnp.zeros((STEPS, ROWS), jnp.int32), jnp.float32(1))

    return dataclasses.replace(
        method, absorb=absorb, init=init,
        mechanism=dataclasses.replace(built, decode=lambda noised, n: noised.astype(jnp.float32)),
        ask=lambda key, public: method.ask(key, public.inner),
        finalize=lambda key, public: method.finalize(key, public.inner))


METHOD = watched(pategan.build(CONFIG, TABLE))
DATA = rows()


@functools.cache
def fresh(method: Method):
    """(public, units, key) before the first step, on the host: donated buffers are used up. Weights
    are random, which takes less long than to compile their initial values; the rest is zeros."""
    rng, key = np.random.default_rng(0), jax.random.key(7)

    def weights(tree):
        return jax.tree.map(lambda a: rng.normal(0, 0.3, a.shape).astype(np.float32), tree)

    shapes = jax.eval_shape(lambda: (method.init(key), method.init_unit(key)))
    public, (params, adam) = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), shapes)
    generator = dataclasses.replace(public.inner.generator, params=weights(
        public.inner.generator.params))
    inner = dataclasses.replace(public.inner, generator=generator,
                                student=weights(public.inner.student))
    each = jax.tree.map(lambda a: np.zeros((UNITS, *a.shape), a.dtype), (params, adam))
    units = Units((weights(each[0]), each[1]), np.asarray(jax.random.key_data(
        jax.random.split(key, UNITS))), np.arange(UNITS, dtype=np.int32), np.zeros(UNITS, np.uint8))
    return dataclasses.replace(public, inner=inner), units, key


def start(method: Method = METHOD, shares: float = 1.0) -> loop.State:
    public, units, key = fresh(method)
    public = dataclasses.replace(public, shares=np.float32(shares))
    return loop.State(jax.device_put(public, WHERE.replicated), adversary.lay(units, WHERE), key)


def placed(data, deal: sealing.Partition = DEALT, spec=TABLE):
    return teachers.place(sealing.deal(sealing.seal(*data, spec), deal, WHERE.local_units), WHERE)


def train(path, data=DATA, *, method=METHOD, spec=TABLE, shares=1.0, steps=STEPS, deal=DEALT,
          deal_later=None, epsilon=math.inf, bits=None):
    """The real loop and ledger: (public on the host, units [U, ...], ledger). deal_later: the
    records are dealt anew after half of the steps."""
    state, (bits, layout) = start(method, shares), (bits or SeededBits(0), WHERE)
    path.mkdir(exist_ok=True)
    with Ledger.create(path / "ledger", {"epsilon": epsilon, "delta": 1e-5}) as book, \
            pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop, "compile_block", block)
        for dealt, until in ((deal, steps // 2), (deal_later or deal, steps)):
            state = loops.train(method, placed(data, dealt, spec), state, layout, book, bits,
                                steps=until, steps_per_call=2,
                                on_block=lambda state, metrics: None)
    return *small_datalens.opened(state, layout), book


def alone(unit: int, data=DATA, steps: int = 1) -> np.ndarray:
    """The votes int [steps, B] of one unit without noise, on the transcript of no votes: the others
    get ids beyond the last, as padding."""
    state = start(shares=0.0)
    ids = np.where(np.arange(UNITS) == unit, np.arange(UNITS), UNITS).astype(np.int32)
    units = Private(dataclasses.replace(unseal(state.units), id=jax.device_put(
        ids, WHERE.by_unit)))
    bits = np.zeros((2, *METHOD.mechanism.bits_shape), np.uint32)
    state = dataclasses.replace(state, units=units)
    public = adversary.call(block(METHOD, WHERE), state, placed(data), WHERE, bits, steps)[0]
    return np.asarray(public.seen)[:steps, :, 0].astype(int)
