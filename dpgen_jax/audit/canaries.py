"""Canaries: records of which each makes its unit say one of two opposite things, by a fair coin.

A method with canaries is the method itself, its own mechanism, loop and ledger, but for what units
with a canary answer. Which of the two values a canary has stands in its label, as numbers beyond
the classes; so the two values are those of one record that was replaced, or left out.

Where messages are gradients, each canary has a coordinate of its own, which the gradients of all
other records leave free. Elsewhere each canary has a code of its own, another in each round, and
units without one are silent. Where only the winners of votes are released, units without one make
ties. An adversary of the definition may choose all other records, so all are attacks that it
allows, and what is certified is certified for the mechanism and the loop.

Where clients add noise of their own, the adversary is the server, who sees what each of them sends:
`Server` keeps of what a client sent the entries in which its canary speaks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.aggregation.clip import GradientL2, RowL2
from dpgen_jax.aggregation.confident_gnmax import ConfidentGNMax
from dpgen_jax.aggregation.local import LocalMechanism
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.aggregation.sampling import PoissonSampling
from dpgen_jax.audit import evidence
from dpgen_jax.audit.attacks import as_it_is
from dpgen_jax.audit.lowered import NoisySum, attackable, clipping, gaussian
from dpgen_jax.audit.pairs import HUGE, adder, opposites
from dpgen_jax.core.terms import Relation
from dpgen_jax.core.types import Array, Method, Metrics, PyTree, Records, UserError


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Watched:
    """The public state: that of the method, and how likely each coin has become.

    Attributes:
        inner: The method's own.
        ratio: float32 [N], log likelihood ratios of heads to tails.
        step: int32 [], rounds so far.
    """

    inner: PyTree
    ratio: Array
    step: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Query:
    """The method's own query, and the number of the round, int32 []."""

    inner: PyTree
    step: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class Server(LocalMechanism):
    """Clients as a server sees them who looks at one client in each entry: it knows who sent what.

    Guarantee:
        That of `LocalMechanism`, of which this is post-processing, message by message: what is kept
        of a message are the entries that its sender may set, whichever way the coin fell.

    Source:
        As `LocalMechanism`.
    """

    def contribution(self, key: Array, message: Array, private_input: Array) -> Array:
        """Returns what the client sent, in the entries where it has something to say."""
        return super().contribution(key, message, private_input) * (message != 0)


def seen(mechanism: NoisySum | ConfidentGNMax) -> Mechanism:
    """Returns the mechanism with all that it releases in sight, before any of it is decoded."""
    if isinstance(mechanism, ConfidentGNMax):
        return mechanism
    if isinstance(mechanism, LocalMechanism):
        fields = {field.name: getattr(mechanism, field.name)
                  for field in dataclasses.fields(mechanism)}
        return Server(**fields | {"decode": as_it_is})
    return dataclasses.replace(mechanism, decode=as_it_is)


@dataclasses.dataclass(frozen=True)
class Canaries:
    """The messages of canaries, and the units that have them.

    Attributes:
        method: The method that is attacked.
        shape: (B, M) of a message.
        classes: C; the label C + 2 i + coin is that of canary i, of N; where winners of votes
            are released, units without one have C + 2 N + their side of a tie.
        units: int [N], the unit of each canary.
        places: int [N], the coordinate of each canary, where messages are gradients.
        shapes: Of the messages of each phase, where the method has several.
    """

    method: Method
    shape: tuple[int, int]
    classes: int
    units: np.ndarray
    places: np.ndarray
    shapes: tuple[tuple[int, int], ...] = ()

    @property
    def mechanism(self) -> NoisySum | ConfidentGNMax:
        """The method's mechanism."""
        return attackable(self.method.mechanism)

    @property
    def spikes(self) -> bool:
        """Whether each canary has a coordinate of its own."""
        return (isinstance(self.mechanism.bound, GradientL2 | RowL2)
                and len(self.units) <= self.shape[1])

    @property
    def rate(self) -> float:
        """The chance that a canary is counted in a round in which its unit is queried."""
        schedule, n = self.mechanism.schedule, self.mechanism.n_units
        if isinstance(schedule, PoissonSampling):
            return schedule.rate
        return min(1.0, schedule.expected_answers(n) * schedule.n_cohorts / n)

    def pair(self, i: Array, step: Array) -> Array:
        """Returns what canary i says in a round, for tails and for heads: float32 [2, B, M]."""
        bound = self.mechanism.bound
        if self.spikes:
            place = jnp.arange(self.shape[1]) == jnp.asarray(self.places)[i]
            a = jnp.where(place, HUGE * clipping(self.mechanism).clip, 0.0) * jnp.ones(self.shape)
            b = -a
        else:
            a, b = opposites(bound, jax.random.fold_in(jax.random.key(i), step), self.shape)
        if bound.relation == Relation.ZERO_OUT:
            b = jnp.full_like(a, jnp.nan)
        return jnp.stack([b, a])

    def added(self, i: Array, step: Array) -> Array:
        """Returns what canary i adds for tails and for heads: float32 [2, B, D]."""
        add = adder(self.mechanism)
        pair = self.pair(i, step)
        return jnp.stack([add(jax.random.key(0), pair[0]), add(jax.random.key(0), pair[1])]
                         ).astype(jnp.float32)

    def answer(self, key: Array, unit: PyTree, records: Records, query: Query) -> Array:
        """The answer of a unit: its canary's message if it has one, else its own."""
        tag, last = jnp.max(records.y) - self.classes, len(self.units) - 1
        i, coin = jnp.clip(tag // 2, 0, last), tag % 2
        said = self.pair(i, query.step)[coin]
        if isinstance(self.mechanism, ConfidentGNMax):
            usual = HUGE * (2.0 * coin - 1) * jnp.ones(self.shape)
        elif self.spikes:
            usual = self.method.answer(key, unit, self.plain(records), query.inner)
            usual = usual * jnp.ones(self.shape[1]).at[jnp.asarray(self.places)].set(0)
        else:
            usual = jnp.full(self.shape, jnp.nan)
        return jnp.where((tag >= 0) & (tag // 2 <= last), said, usual)

    def plain(self, records: Records) -> Records:
        """Returns records with labels that the method knows."""
        return Records(records.x, jnp.where(records.y >= self.classes, 0, records.y))

    def labels(self, usual: np.ndarray, coins: np.ndarray) -> np.ndarray:
        """Returns labels, one of each unit, that tell what it has to say: int32 [U].

        Args:
            usual: int32 [U], the labels of records that are no canaries.
            coins: int [N].
        """
        n, y = len(self.units), usual.copy()
        if isinstance(self.mechanism, ConfidentGNMax):
            y[:] = self.classes + 2 * n + np.arange(len(y)) % 2
        y[self.units] = self.classes + 2 * np.arange(n) + coins
        return y

    def evidence(self, noised: Array, step: Array) -> Array:
        """Returns the log likelihood ratios [N] of heads that one release adds.

        Args:
            noised: float32 [B, D], a noisy sum; of votes of which the winners alone are released
                float32 [B, k], and then the ratios are right but for a factor.
            step: Of the round.
        """
        mechanism, n = self.mechanism, len(self.units)
        if isinstance(mechanism, ConfidentGNMax):
            return jax.vmap(lambda i: jnp.sum(jnp.sign(noised) * jnp.sign(self.pair(i, step)[1])))(
                jnp.arange(n))
        cohort = step % mechanism.schedule.n_cohorts
        queried = jnp.asarray(self.units) % mechanism.schedule.n_cohorts == cohort
        if self.spikes:
            numbers = noised[:, jnp.asarray(self.places)].sum(0)
            ratios = evidence.of_spikes(numbers, self.added(jnp.int32(0), jnp.int32(0)),
                                        gaussian(mechanism.noise).sigma, self.rate)
        else:
            ratios = evidence.of_codes(noised, queried, lambda i: self.added(i, step),
                                       mechanism.noise, self.rate)
        return jnp.where(queried, ratios, 0)

    def watched(self) -> Method:
        """Returns the method with canaries, whose public state tells how likely each coin is."""
        phases = tuple(
            dataclasses.replace(self, method=phase, shape=shape, shapes=())._watched()
            for phase, shape in zip(self.method.phases, self.shapes, strict=True))
        return dataclasses.replace(self._watched(), phases=phases)

    def _watched(self) -> Method:
        """Returns one phase of it."""
        method, mechanism = self.method, self.mechanism
        answers = mechanism.schedule.expected_answers(mechanism.n_units)

        def init(key: Array) -> Watched:
            return Watched(method.init(key), jnp.zeros(len(self.units)), jnp.zeros((), jnp.int32))

        def ask(key: Array, public: Watched) -> Query:
            return Query(method.ask(key, public.inner), public.step)

        def learn(key: Array, unit: PyTree, records: Records, query: Query) -> PyTree:
            return method.learn(key, unit, self.plain(records), query.inner)

        def absorb(key: Array, public: Watched, query: Query, released: Array
                   ) -> tuple[Watched, Metrics]:
            usual = (released if isinstance(mechanism, ConfidentGNMax)
                     else mechanism.decode(released.astype(jnp.int32), answers))
            inner, metrics = method.absorb(key, public.inner, query.inner, usual)
            ratio = public.ratio + self.evidence(released, public.step)
            return Watched(inner, ratio, public.step + 1), metrics

        return dataclasses.replace(
            method, mechanism=seen(mechanism), init=init, ask=ask, answer=self.answer, learn=learn,
            absorb=absorb, pretraining=None, post_training=None, phases=())


def chosen(method: Method, shapes: Sequence[tuple[int, int]], classes: int, canaries: int,
           rng: np.random.Generator) -> Canaries:
    """Chooses the units of canaries, at most one in each, and their coordinates.

    Args:
        method: The method.
        shapes: (B, M) of a message, of each of its phases.
        classes: C.
        canaries: How many.
        rng: Of the choice, which may be public.

    Raises:
        UserError: There are more canaries than units; or than coordinates, where each client is
            looked at by itself.
    """
    n_units = method.mechanism.n_units
    made = Canaries(method, shapes[0], classes, rng.permutation(n_units)[:canaries],
                    rng.permutation(shapes[0][1])[:canaries],
                    tuple(shapes) if method.phases else ())
    if not 1 <= canaries <= most(method, shapes):
        apart = isinstance(method.mechanism, LocalMechanism)
        raise UserError(f"--canaries is {canaries}; 1 to {most(method, shapes)} have a unit"
                        + " and a coordinate" * apart + " of their own here")
    return made


def most(method: Method, shapes: Sequence[tuple[int, int]]) -> int:
    """Returns how many canaries there can be, as `chosen` takes them."""
    n_units = method.mechanism.n_units
    apart = isinstance(method.mechanism, LocalMechanism)
    return min(n_units, shapes[0][1]) if apart else n_units
