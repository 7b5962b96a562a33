"""Every method through the block of the real loop, compiled once: one record changes one unit's
state and one unit's message, and reaches the public side through the released sum alone.

The block's public state also keeps the exact sum of the messages, and a switch: where `hears` is 0
the method is told zeros, whatever was released. What a test varies is data, so nothing is compiled
twice.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import as_in_a_run
import jax
import jax.numpy as jnp
import numpy as np
import people_table
import pytest
import small_datalens
import test_battery
from planted import toy as adversary
from private.test_empty_arrays import taken

from dpgen_jax import methods
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.core.types import Array, Method, Private, unseal
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.resnet import ResNetNet
from dpgen_jax.private import records
from dpgen_jax.private.teachers import Layout
from dpgen_jax.run import loop

STEPS, N, RECORD = 3, test_battery.N, test_battery.RECORD
TABLES = ("pategan", "gpate", "projected_dpgan", "datalens-d2p",
          "marginals")  # the others are on images
VARIANTS = {"datalens-d2p": ("datalens", {"aggregate": "d2p"}),
            "datalens-fetchsgd": ("datalens", {"aggregate": "fetchsgd", "sketch_columns": 24}),
            "dcgan-wasserstein": ("dcgan", {"networks": "gs-wgan", "resnet": ResNetNet(4, 8)})}
NO_PENALTY = {"penalty": 0.0, "c_penalty": 0.0}  # whose second derivatives take long to compile
FAST_UNITS = {"d_optimiser": Adam(0.05)}  # so that a record moves a vote within these few steps
cases = pytest.mark.parametrize("case", [*test_battery.PRIVATE, *(
    pytest.param(name, marks=pytest.mark.long) for name in ("dcgan", *VARIANTS))])


class OpenSum:
    """A mechanism whose release is a pair: the sum of the messages, and its own release."""

    def __init__(self, inner: Mechanism):
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def decide(self, votes: Array, bits: Array) -> Any:
        return votes, self.inner.decide(votes, bits)

    def value(self, outcome: Any) -> Any:
        return outcome[0], self.inner.value(outcome[1])

    def answered(self, outcome: Any) -> Array:
        return self.inner.answered(outcome[1])


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Watched:
    """inner: the method's public state; total int32 [B, D]: the last sum; hears: 0 or 1."""

    inner: Any
    total: Array
    hears: Array


def watch(method: Method) -> Method:
    def absorb(key, public, query, released):
        total, value = released
        inner, metrics = method.absorb(key, public.inner, query,
                                       jnp.where(public.hears > 0, value, 0))  # and no -0
        return Watched(inner, total, public.hears), metrics

    return dataclasses.replace(
        method, mechanism=OpenSum(method.mechanism), absorb=absorb,
        init=lambda key: Watched(method.init(key), jnp.zeros(method.mechanism.shape, jnp.int32),
                                 jnp.float32(1)),
        ask=lambda key, public: method.ask(key, public.inner))


@dataclasses.dataclass(frozen=True)
class Compiled:
    """public, units: before the first step, on the host, since a call uses up its buffers."""

    method: Method
    layout: Layout
    block: Any
    public: Watched
    units: Any

    def run(self, data, hears: float = 1.0, only: int | None = None, steps: int = STEPS):
        """(public, units' state [U, ...]) after some steps. only: the one unit that counts."""
        public, units, *_ = self.block(*self.arguments(data, hears, only, steps))
        return jax.device_get((public, unseal(units).state))

    def arguments(self, data, hears: float = 1.0, only: int | None = None, steps: int = STEPS):
        """The arguments of the block."""
        where, n = self.layout, self.layout.n_units
        public = dataclasses.replace(self.public, hears=np.float32(hears))
        units, ids = self.units, self.units.id
        private_inputs, bits, cohorts = self.inputs(only)
        if only is not None and not where.sampled:
            units = dataclasses.replace(units, id=np.where(ids == only, ids, n).astype(np.int32))
        return (jax.device_put(public, where.replicated),
                Private(jax.device_put(units, where.by_unit)),
                data, private_inputs, bits, cohorts, jax.random.key(5), 0, steps)

    def inputs(self, only: int | None):
        """Private inputs, noise bits and cohorts of all steps. Where units are sampled they are all
        of them, or `only` one."""
        mechanism = self.method.mechanism
        rng = np.random.default_rng(0)
        cohorts = np.zeros(STEPS, np.int32)
        bits = rng.integers(2**32, size=(STEPS, *mechanism.bits_shape), dtype=np.uint32)
        if not self.layout.sampled:
            return adversary.untold(self.layout, STEPS)[0], bits, cohorts
        units = np.arange(self.layout.padded)
        chosen = (units < self.layout.n_units) if only is None else units == only
        who = np.where(chosen, units, -1).astype(np.int32)
        return np.repeat(who[:, None, None], STEPS, 1), bits, cohorts


def spec_of(case: str):
    return people_table.THREE if case in TABLES else small_datalens.SPEC


@functools.cache
def compiled(case: str) -> Compiled:
    name, fields = VARIANTS.get(case, (case, {}))
    config = test_battery.small(name)
    fields = fields | {field: value for field, value in (NO_PENALTY | FAST_UNITS).items()
                       if hasattr(config, field)}
    config = dataclasses.replace(config, **fields)
    method = watch(methods.get(name).build(config, spec_of(case)))
    where = as_in_a_run.layout(method, 1)
    state = loop.initial_state(method, jax.random.key(0), where)
    return Compiled(method, where, loop.compile_block(method, where),
                    *jax.device_get((state.public, unseal(state.units))))


@functools.cache
def placed(case: str, changed: bool) -> tuple[Private, int]:
    """The records on their devices, with one of them changed or not, and the unit that has it."""
    where, spec = compiled(case).layout, spec_of(case)
    if spec is small_datalens.SPEC:
        data = test_battery.neighbours()[changed]
    else:
        x, y = (a.copy() for a in people_table.table(N, spec=spec))
        if changed:
            x[RECORD], y[RECORD] = 1 - x[RECORD], (y[RECORD] + 1) % spec.classes
        data = x, y
    owner = np.argwhere(records.assign(N, where.n_units, small_datalens.KEY).index == RECORD)[0][
        0
    ]
    return small_datalens.placed(*data, where, spec), int(owner)


def check_public(case: str, hears: float) -> None:
    """One record changes one unit's state, and no public state but the sum that is looked at."""
    (data, owner), (other, _) = (placed(case, changed) for changed in (False, True))
    built = compiled(case)
    (public, units), (public2, units2) = (built.run(d, hears) for d in (data, other))
    assert not small_datalens.equal(public.total, public2.total), (
        "the record has no say: nothing is tested"
    )
    assert small_datalens.equal(public.inner, public2.inner), "a record reached the public side"
    learns = not small_datalens.equal(units, built.units.state)
    assert small_datalens.differing_units(units, units2) == ({owner} if learns else set())


@cases
def test_muted_one_record_changes_one_unit_and_no_public_state(case):
    check_public(case, hears=0.0)


@cases
def test_the_public_side_hears_the_released_sum(case):
    """So that the test above would see a record that reached the public side by another way."""
    with pytest.raises(AssertionError, match="reached the public side"):
        check_public(case, hears=1.0)


@cases
def test_one_record_changes_one_message(case):
    """Each unit counted alone, in the last step; together they are the sum."""
    built, (_, owner) = compiled(case), placed(case, False)
    totals, alone = zip(*((built.run(data, hears=0.0)[0].total, np.stack([
        built.run(data, hears=0.0, only=unit)[0].total for unit in range(built.layout.n_units)]))
        for data in (placed(case, changed)[0] for changed in (False, True))), strict=True)
    assert [total.tolist() for total in totals] == [each.sum(0).tolist() for each in alone]
    assert set(np.flatnonzero((alone[0] != alone[1]).any((1, 2)))) == {owner}
    bound = built.method.mechanism.inner.bound
    moved = (alone[0][owner].astype(np.int64) - alone[1][owner]) ** 2
    assert moved.sum() <= bound.squared_sensitivity()


@cases
def test_a_block_lowers_for_accelerators(case):
    """On a machine that has none; nothing in it waits for the host, and no device takes an empty
    array (`test_empty_arrays`)."""
    built = compiled(case)
    traced = built.block.trace(*built.arguments(placed(case, False)[0]))
    text = traced.lower(lowering_platforms=("cuda", "tpu")).as_text()
    assert "stablehlo.while" in text and "callback" not in text
    assert not [shape for shape in taken(traced) if 0 in shape]
