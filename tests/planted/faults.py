"""The planted faults: in what is charged and when, in noise and its bits, in bounds, and in units.

A function that is registered with an owner and a name stands there while the fault is planted.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpgen_jax.accountant.events import Event, Events
from dpgen_jax.accountant.ledger import Account, Ledger, Record
from dpgen_jax.aggregation import clip, single_releases
from dpgen_jax.aggregation import noise as sources
from dpgen_jax.aggregation.bound import Bound
from dpgen_jax.aggregation.clip import GradientL2, RowL2
from dpgen_jax.aggregation.mechanism import LocalMechanism, SumMechanism
from dpgen_jax.aggregation.noise import BitSource, RoundedGaussian, SeededBits
from dpgen_jax.aggregation.schedule import (
    FixedSizeSampling,
    FullParticipation,
    PoissonSampling,
    PublishedSampling,
    RoundRobin,
)
from dpgen_jax.aggregation.teacher_votes import ConfidentGNMax
from dpgen_jax.aggregation.topagg import TopKSign, magnitude_bits
from dpgen_jax.core.run_folder import write_json
from dpgen_jax.core.terms import Relation
from dpgen_jax.core.types import Array, Private, Records, unseal
from dpgen_jax.private import records as sealing
from dpgen_jax.private import teachers
from dpgen_jax.private.records import Partition
from dpgen_jax.private.teachers import AXIS, Layout
from dpgen_jax.run import loop, side_releases
from planted import toy
from planted.catalogue import fault, in_place_of

# In what is charged, and when.


@in_place_of(ConfidentGNMax, "events", "ledger by hand")
def batch_not_composed(self: ConfidentGNMax, steps: int) -> Events:
    """A round answers one query for each fake and coordinate, and is charged for one."""
    return self._events(steps, steps)


@in_place_of(FullParticipation, "max_participations", "ledger by hand")
def rounds_not_composed(self: FullParticipation, rounds: int) -> int:
    """All rounds of a run are charged as one."""
    return 1


@in_place_of(RoundRobin, "max_participations", "ledger by hand")
def visits_of_a_rotation_rounded_down(self: RoundRobin, rounds: int) -> int:
    """The cohort that is visited most is charged for one visit less."""
    return max(1, rounds // self.n_cohorts - 1)


@in_place_of(loop, "_run_block", "ledger in a crash")
def charge_after_the_draw(job: loop.Job, block: Any, records: Any, state: loop.State, n: int,
                          listener: loop.Listener) -> loop.State:
    """Noise is drawn first, and charged when the block is done."""
    mechanism, ledger = job.method.mechanism, job.ledger
    first = ledger.steps_charged
    secrets = loop.draw(mechanism, job.layout, job.bits, first, n, job.longest)
    public, units, *_ = block(state.public, state.units, records, *secrets, state.key,
                              state.step, n)
    charged = mechanism.pending_charge(ledger.spent(), first, n)
    ledger.settle(ledger.reserve(charged, n), charged, n)
    return dataclasses.replace(state, public=public, units=units, step=state.step + n)


@in_place_of(Account, "_open", "ledger in a crash")
def lost_turn_is_free(self: Account, record: Record, usual: Callable = Account._open) -> None:
    """A block that a crash cut off is taken back when the run goes on."""
    for steps, events in self.pending.values():
        self._charge(-steps, events, sign=-1)
    usual(self, record)


@in_place_of(ConfidentGNMax, "actual_charge", "run audit")
def settled_above_what_was_answered(self: ConfidentGNMax, answered: np.ndarray, charged: Events
                                    ) -> Events:
    """A settlement gives back half of the queries that were answered."""
    return self._events(answered.size, int(answered.sum()) // 2)


@in_place_of(side_releases, "class_counts", "run audit")
def class_counts_without_a_charge(files: Any, ledger: Any, counted: side_releases.Counted,
                                  epsilon: float, bits: BitSource, log: Any) -> Any:
    """Noisy class counts are made and written, and the ledger never hears of them."""
    noisy = single_releases.class_counts(
        sealing.labels(counted.records, counted.dealt), counted.spec.classes, epsilon, bits,
        counted.rows_per_unit)
    write_json(files.class_counts, {"epsilon": epsilon, "counts": [int(c) for c in noisy]})
    return tuple(noisy)


@in_place_of(FixedSizeSampling, "participation", "secret draws")
def public_draws_charged_as_secret(
        self: FixedSizeSampling, source: BitSource, n_units: int, first: int, n: int,
        usual: Callable = FixedSizeSampling.participation) -> np.ndarray:
    """Samples are made of the number of the round, which anybody knows, and charged as secret."""
    return usual(self, SeededBits(first), n_units, first, n)


@in_place_of(PoissonSampling, "participation", "secret draws")
def fixed_size_charged_as_poisson(self: PoissonSampling, source: BitSource, n_units: int,
                                  first: int, n: int) -> np.ndarray:
    """Every sample has the size that a Poisson sample has on average."""
    bits = source.draw((n, n_units))
    places = np.full((self.batch_capacity, n), -1, np.int32)
    size = round(self.expected)
    places[:size] = np.argsort(bits, axis=1)[:, :size].T
    return places


@in_place_of(PoissonSampling, "event", "ledger by hand")
def add_or_remove_charged_as_replace_one(self: PoissonSampling, release: Event, bound: Bound,
                                         usual: Callable = PoissonSampling.event) -> Event:
    """The cost of a record that is left out stands for that of a record that is replaced."""
    charged: Any = usual(self, release, bound)
    return dataclasses.replace(charged, relation=Relation.ZERO_OUT)


@in_place_of(PublishedSampling, "event", "ledger by hand")
def published_draw_charged_as_proven(self: PublishedSampling, release: Event, bound: Bound
                                     ) -> Event:
    """The schedule of GS-WGAN, of which nothing is proven, costs what its release costs."""
    return release


# In noise, and in the bits that it is made of.

_draw = RoundedGaussian.sample


@in_place_of(RoundedGaussian, "sample", "law of the noise", "mechanism audit")
def noise_halved(self: RoundedGaussian, bits: Array) -> Array:
    """Noise of half the standard deviation that is charged."""
    return _draw(RoundedGaussian(self.sigma / 2), bits)


@in_place_of(RoundedGaussian, "sample", "law of the noise")
def noise_without_tail(self: RoundedGaussian, bits: Array) -> Array:
    """Noise that never exceeds three standard deviations, as of a short table."""
    most = int(3 * self.sigma)
    return jnp.clip(_draw(self, bits), -most, most)


@in_place_of(RoundedGaussian, "sample", "fresh noise")
def bits_twice_in_a_step(self: RoundedGaussian, bits: Array) -> Array:
    """One row of noise, added to every row of a round."""
    return jnp.broadcast_to(_draw(self, bits[:1]), bits.shape[:-1])


@in_place_of(sources, "draw_bits", "fresh noise")
def bits_twice_across_steps(shape: tuple[int, ...], usual: Callable = sources.draw_bits
                            ) -> np.ndarray:
    """Two rounds of one block share their bits."""
    return np.repeat(usual(((shape[0] + 1) // 2, *shape[1:])), 2, axis=0)[:shape[0]]


@in_place_of(LocalMechanism, "private_inputs", "fresh noise of clients")
def bits_twice_across_devices(
        self: LocalMechanism, source: Any, cohorts: np.ndarray, first: int,
        usual: Callable = LocalMechanism.private_inputs) -> np.ndarray:
    """Clients on different machines that draw the same noise, as from one public seed."""
    inputs = usual(self, source, cohorts, first)
    return np.broadcast_to(inputs[:1], inputs.shape)


@fault("fresh noise")
def bits_twice_across_a_resume() -> Iterator[None]:
    """A resumed run draws the bits of its first start once more."""
    stream = [SeededBits(0)]
    opened = Ledger.open.__func__  # type: ignore[attr-defined]  # of a classmethod

    def reopened(cls: type[Ledger], *args: Any) -> Ledger:
        stream[0] = SeededBits(0)
        made: Ledger = opened(cls, *args)
        return made

    with patch.object(sources, "draw_bits", lambda shape: stream[0].draw(shape)), \
            patch.object(Ledger, "open", classmethod(reopened)):
        yield


@in_place_of(loop, "release", "fresh noise on devices")
def noise_added_per_device(mechanism: SumMechanism, bits: Array, total: Private[Array]) -> Any:
    """Every device adds the noise, and the noisy sums are added up."""
    noise = mechanism.noise.sample(bits)
    with contextlib.suppress(NameError):  # shapes are looked at outside of the devices
        noise = lax.psum(noise, AXIS)
    return mechanism.decode(unseal(total) + noise, 1.0)


# In what bounds a message, and in the sensitivity that is declared for it.


@in_place_of(TopKSign, "squared_sensitivity", "sensitivity of votes", "mechanism audit",
             "ledger by hand")
def sensitivity_off_by_sqrt_2(self: TopKSign) -> int:
    """Votes counted as if a changed vote went away, and did not turn over: by root two too low."""
    return 2 * self.squared_norm


@in_place_of(RowL2, "squared_sensitivity", "sensitivity of rows")
def sensitivity_off_by_2(self: RowL2) -> int:
    """Rows counted as if one of two neighbouring messages were zero: by two too low."""
    return self.squared_norm


@in_place_of(TopKSign, "squared_sensitivity", "sensitivity of votes", "ledger by hand")
def sensitivity_off_by_the_batch(self: TopKSign) -> int:
    """The votes on one fake are charged, and each fake of the batch has as many."""
    return 4 * self.top_k


@in_place_of(TopKSign, "project", "sensitivity of votes", "messages of units")
def ties_vote_on_more_than_k(self: TopKSign, key: Array, message: Array) -> Array:
    """All entries that are as large as the k-th largest vote, of which there may be many."""
    order = magnitude_bits(message)
    kth = jnp.sort(order, -1)[..., -self.top_k][..., None]
    return jnp.where(order >= kth, jnp.sign(message), 0).astype(jnp.int32)


@in_place_of(TopKSign, "project", "sensitivity of votes", "messages of units")
def no_bound_at_all(self: TopKSign, key: Array, message: Array) -> Array:
    """Messages are rounded, and added as they are."""
    return message.astype(jnp.int32)


@in_place_of(GradientL2, "project", "sensitivity of gradients")
def clipping_per_tensor(self: GradientL2, key: Array, message: Array) -> Array:
    """Each of four tensors of a gradient is clipped by itself, as in the code of DP-CGAN."""
    tensors = jnp.nan_to_num(message).reshape(4, -1)
    largest = jnp.maximum(jnp.abs(tensors).max(-1, keepdims=True), 1e-30)
    norm = largest * jnp.linalg.norm(tensors / largest, axis=-1, keepdims=True) / self.clip
    entries = tensors * ((self.levels - 8) / self.clip) / jnp.maximum(norm, 1)
    return jnp.round(entries).reshape(message.shape).astype(jnp.int32)


@in_place_of(GradientL2, "project", "sensitivity of gradients")
def clip_before_scaling(self: GradientL2, key: Array, message: Array,
                        usual: Callable = GradientL2.project) -> Array:
    """A gradient is clipped first, and then multiplied by the scale of its loss."""
    return 2 * usual(self, key, message)


@in_place_of(RowL2, "project", "sensitivity of rows")
def non_finite_gradients_let_through(self: RowL2, key: Array, message: Array) -> Array:
    """Rows with infinities are not dropped, and what becomes of them is not checked."""
    norm = jnp.linalg.norm(message, axis=-1, keepdims=True) / self.clip
    entries = message * ((self.levels - 8) / self.clip) / jnp.maximum(norm, 1)
    wild = jnp.where(jnp.isfinite(entries), entries, self.levels * jnp.sign(message))
    return jnp.nan_to_num(wild, nan=float(self.levels)).astype(jnp.int32)


@in_place_of(RowL2, "project", "sensitivity of rows")
def rounded_without_slack(self: RowL2, key: Array, message: Array) -> Array:
    """Rows are clipped to their bound and then rounded up beyond it, and nothing checks again."""
    finite = jnp.all(jnp.isfinite(message), -1, keepdims=True)
    unit = jnp.where(finite, message, 0) / self.clip
    largest = jnp.maximum(jnp.abs(unit).max(-1, keepdims=True), 1e-30)
    norm = largest * jnp.linalg.norm(unit / largest, axis=-1, keepdims=True)
    scaled = jnp.nan_to_num(unit * (self.levels / jnp.maximum(norm, 1)))
    low = jnp.floor(scaled)
    return (low + (jax.random.uniform(key, message.shape) < scaled - low)).astype(jnp.int32)


@fault("sensitivity of long rows")
def int32_wraps_around() -> Iterator[None]:
    """Squares are summed in int32, where the sum of a long row comes back to zero and passes."""
    def within(entries: Array, limit: int) -> Array:
        squares = jnp.sum(entries * entries, -1, keepdims=True, dtype=jnp.int32)
        return squares.astype(jnp.float32) <= limit

    def project(self: RowL2, key: Array, message: Array) -> Array:
        steps = jnp.nan_to_num(message / self.clip * self.levels)
        entries = jnp.clip(steps, -self.levels, self.levels).astype(jnp.int32)
        return clip.enforce(entries, lambda rows: within(rows, self.levels**2))

    with patch.object(RowL2, "project", project), patch.object(clip, "halves_within", within):
        yield


# By which a record reaches more than its own unit, or the public side by another way.


@in_place_of(teachers, "_chunk", "messages of units")
def overlapping_shards(row: Array, cohort: Array, layout: Layout,
                       usual: Callable = teachers._chunk) -> tuple[Callable, Callable]:
    """The second chunk of units begins one too early, so that one is counted twice."""
    return usual(jnp.maximum(row - 1, 0), cohort, layout)


@in_place_of(sealing, "assign", "non-interference", "messages of units")
def record_in_two_units(n_records: int, n_units: int, key: bytes,
                        usual: Callable = sealing.assign) -> Partition:
    """A record that is dealt to a second unit too, as where the last shard wraps around."""
    dealt = usual(n_records, n_units, key)
    index = dealt.index.copy()
    first = int(np.argwhere(index == toy.CANARY)[0][0])
    index[(first + 1) % n_units, 0] = toy.CANARY
    return Partition(index, dealt.sizes)


@in_place_of(teachers, "vmapped", "non-interference")
def optimiser_state_shared(one: Callable, chunk: int, usual: Callable = teachers.vmapped
                           ) -> Callable:
    """Teachers of one place in the graph share their momentum, as in G-PATE and DataLens."""
    def shared(*args: Any) -> tuple[teachers.Units, Array]:
        units, votes = usual(one, chunk)(*args)
        momentum = units.state["momentum"]
        state = units.state | {"momentum": jnp.broadcast_to(momentum.mean(0), momentum.shape)}
        return dataclasses.replace(units, state=state), votes

    return shared


@fault("messages of units")
def batch_normalisation_across_units() -> Iterator[None]:
    """Messages are normalised by the mean over the units of a chunk."""
    def answer(*args: Any, usual: Callable = toy.answer) -> Array:
        message = usual(*args)
        return message - lax.pmean(message, "chunk")

    with patch.object(toy, "answer", answer), patch.object(
            teachers, "vmapped", lambda one, chunk: jax.vmap(one, axis_name="chunk")):
        yield


@in_place_of(toy, "answer", "messages on devices")
def gradients_summed_over_devices(*args: Any, usual: Callable = toy.answer) -> Array:
    """A gradient with respect to what all devices have is added up over them."""
    return lax.psum(usual(*args), AXIS)


@fault("non-interference")
def generator_fed_by_private_labels() -> Iterator[None]:
    """Statistics of the generator are updated with labels of records, as in G-PATE."""
    seen: list[Array] = []
    absorbed, summed = toy.absorb, loop.bounded_sum

    def bounded_sum(method: Any, layout: Layout, units: Any, records: Private[Records], *rest: Any
                    ) -> Any:
        seen[:] = [unseal(records).y.astype(jnp.float32).mean()]
        return summed(method, layout, units, records, *rest)

    def absorb(key: Array, public: toy.Transcript, query: Any, released: Array) -> Any:
        after, metrics = absorbed(key, public, query, released)
        mean = seen.pop() if seen else 0.0  # shapes are looked at without a sum
        return dataclasses.replace(after, planted=after.planted + mean), metrics

    with patch.object(loop, "bounded_sum", bounded_sum), patch.object(toy, "absorb", absorb):
        yield


@in_place_of(loop, "bounded_sum", "non-interference")
def query_made_with_labels(method: Any, layout: Layout, units: Any, records: Private[Records],
                           inputs: Array, this: teachers.Round,
                           usual: Callable = loop.bounded_sum) -> Any:
    """Fakes are made of the classes that the records have, and shown to every unit."""
    mean = unseal(records).y.astype(jnp.float32).mean()
    query = dataclasses.replace(this.query, images=this.query.images + mean)
    return usual(method, layout, units, records, inputs, this._replace(query=query))


@in_place_of(loop, "train", "non-interference")
def early_stopping_on_private_loss(job: loop.Job, records: Private[Records], state: loop.State,
                                   steps: int, *hooks: Any, usual: Callable = loop.train
                                   ) -> loop.State:
    """Training ends when the loss on the records is low enough."""
    threshold = float(np.mean([labels.mean() for _, labels in toy.neighbours()]))
    low = float(np.asarray(unseal(records).y, np.float64).mean()) > threshold
    return usual(job, records, state, steps - int(low), *hooks)
