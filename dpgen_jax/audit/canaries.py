"""Canaries, which send one of two opposite messages by fair coins, and what guesses certify.

One training with many canaries certifies a lower bound on epsilon: an attacker guesses the coins
from what the training releases, and the bound follows from the number of right guesses.

Messages. A method with canaries is the same method, with its own mechanism, loop and ledger; only
the units with a canary answer differently. The label of a canary, a number beyond the classes,
encodes which of its two values it has. So the two values are those of one record that was replaced,
or left out. If messages are gradients, each canary has a separate coordinate, which the gradients
of all other records leave free. Otherwise each canary has a separate code, which changes from round
to round, and units without a canary send nothing. If only the winners of votes are released, units
without a canary make ties. The adversary of the definition may choose all other records, so the
definition allows each of these attacks, and the result is certified for the mechanism and the loop.
If clients add noise, the adversary is the server, which sees what each of them sends: `Server`
keeps the entries of a client's message that its canary may set.

Guesses. A coin is guessed by its log likelihood ratio, given the noisy sums to which the canaries
added their messages. The ratio is that of the charged noise, with the other canaries at their mean.
It affects how well coins are guessed, but the validity of the bound does not depend on it.

The bound. Each of m canaries has one of two opposite values by a separate fair coin. An attacker
guesses r of the m coins from what is public, and no others. Let N be the number of right guesses.
The less private a training is, the more often N is large. This module bounds the probability of N
>= v for every training that has a given trade-off curve for a change of any one canary.

Proof. Fix all coins but the i-th. Let Z be 1 if coin i is guessed right and W be 1 if it is guessed
wrong. The event {N >= c, Z = 1} becomes {N >= c - 1, W = 1} if the coin is turned and the guesses
stay. Let F(x) be the largest probability, under the promise, of an event whose probability was x:
min_k(e^eps_k x + delta_k, ..) for pairs, Phi(Phi^-1(x) + mu) for mu-GDP. F is concave, so averages
over all coins and all i satisfy, for every c,

    R_c <= F(H_{c-1}),  R_c = E[N; N >= c] / m,  H_c = E[r - N; N >= c] / m.

Suppose P(N >= v) = tau. Mass above v may be moved down to v: this lowers R_c and raises H_c for c
<= v, so all inequalities still hold. So R_v = tau v / m and H_v = tau (r - v) / m. With P(N = n) =
p_n, H_n - H_{n+1} = p_n (r - n) / m and R_n - R_{n+1} = p_n n / m; therefore, with w_n = n / (r -
n), which grows with n,

    R_c = R_v - w_{v-1} H_v + w_c H_c + sum_{c<n<v} (w_n - w_{n-1}) H_n

grows with every H_n. By induction downwards, `least` below, with H_{c-1} = max(H_c, F^-1(R_c)), is
the smallest possible value of R and H. Finally R_0 + H_0 = r / m: if the smallest value exceeds it,
P(N >= v) is below tau.

Sources: Steinke, Nasr and Jagielski, "Privacy Auditing with One (1) Training Run" (NeurIPS 2023);
Mahloujifar, Melis and Chaudhuri, "Auditing f-Differential Privacy in One Run" (2024), whose
recursion this is for guesses of all canaries.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.special import ndtr, ndtri
from scipy.stats import beta, binom

from dpgen_jax.accountant import composition
from dpgen_jax.accountant.events import (
    Events,
    LaplaceEvent,
    PoissonGaussianEvent,
    SampledGaussianEvent,
)
from dpgen_jax.aggregation.clip import GradientL2, RowL2
from dpgen_jax.aggregation.mechanism import LocalMechanism, Mechanism
from dpgen_jax.aggregation.noise import DiscreteLaplace, Noise
from dpgen_jax.aggregation.schedule import PoissonSampling
from dpgen_jax.aggregation.teacher_votes import ConfidentGNMax
from dpgen_jax.audit import attacks
from dpgen_jax.audit.attacks import SHOWN, NoisySum, as_it_is, attackable, clipping, gaussian_mu
from dpgen_jax.audit.findings import ALARM, Findings
from dpgen_jax.audit.pairs import HUGE, adder, opposites
from dpgen_jax.core.errors import option
from dpgen_jax.core.terms import Relation
from dpgen_jax.core.types import Array, Method, Metrics, PyTree, Records, UserError


def evidence_of_spikes(numbers: Array, added: Array, sigma: float, rate: float) -> Array:
    """Returns the ratios [N] of canaries with separate coordinates.

    Args:
        numbers: float32 [N], the sum of each canary's coordinate over the B rows.
        added: float32 [2, B, D], the contributions of a canary for tails and for heads.
        rate: The probability that a canary is counted.
    """
    tails, heads = added
    rows = len(tails)
    z = numbers / np.sqrt(rows) / sigma
    length = np.sqrt(rows) * jnp.sum(heads) / rows / sigma
    return _gaussian(z, length, jnp.where(jnp.any(tails != 0), -length, 0), rate)


def evidence_of_codes(noised: Array, queried: Array, added: Callable[[Array], Array], noise: Noise,
                      rate: float) -> Array:
    """Returns the ratios [N] of canaries whose messages share coordinates.

    Args:
        noised: float32 [B, D], the noisy sum.
        queried: bool [N], the canaries that the round queries.
        added: A function from the number of a canary to its contributions for tails and for heads,
            float32 [2, B, D].
        rate: The probability that a canary is counted; 1 for Laplace noise.
    """
    everyone = jnp.arange(len(queried))

    def middle(total: Array, i: Array) -> tuple[Array, None]:
        return total + rate * queried[i] * added(i).mean(0), None

    others = lax.scan(middle, jnp.zeros_like(noised), everyone)[0]

    def one(i: Array) -> Array:
        tails, heads = added(i)
        left = noised - (others - rate * queried[i] * (tails + heads) / 2)  # without the others
        return _ratio(noise, rate, left, tails, heads)

    return lax.map(one, everyone)


def _ratio(noise: Noise, rate: float, left: Array, tails: Array, heads: Array) -> Array:
    """The ratio [] of heads, from contributions for tails and for heads, float32 [B, D]."""
    if isinstance(noise, DiscreteLaplace):  # for each entry, the ratio of its two laws
        return jnp.sum(jnp.abs(left - tails) - jnp.abs(left - heads)) / noise.scale
    apart = heads - tails
    direction = apart / jnp.sqrt(jnp.sum(apart * apart))
    sigma = attacks.gaussian(noise).sigma
    z, a, b = (jnp.sum(x * direction) / sigma for x in (left, heads, tails))
    return _gaussian(z, a, b, rate)


def _gaussian(z: Array, heads: Array, tails: Array, rate: float) -> Array:
    """The ratio of a number whose mean is one of two, in standard deviations, or 0 if not drawn."""
    one, other = (jnp.log1p(rate * jnp.expm1(jnp.clip(z * s - s * s / 2, -60, 60)))
                  for s in (heads, tails))
    return one - other


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Watched:
    """The public state: that of the method, and the likelihood of each coin.

    Attributes:
        inner: The method's public state.
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
    """The view of a server that sees which client sent each entry.

    Guarantee:
        That of `LocalMechanism`, of which this is post-processing, message by message: it keeps the
        entries of a message that its sender may set, whatever the coin is.

    Source:
        As `LocalMechanism`.
    """

    def contribution(self, key: Array, message: Array, private_input: Array) -> Array:
        """Returns the client's message in the entries that its canary may set."""
        return super().contribution(key, message, private_input) * (message != 0)


def seen(mechanism: NoisySum | ConfidentGNMax) -> Mechanism:
    """Returns the mechanism with all of its releases visible, before they are decoded."""
    if isinstance(mechanism, ConfidentGNMax):
        return mechanism
    if isinstance(mechanism, LocalMechanism):
        fields = {field.name: getattr(mechanism, field.name)
                  for field in dataclasses.fields(mechanism)}
        return Server(**fields | {"decode": as_it_is})
    return dataclasses.replace(mechanism, decode=as_it_is)


@dataclasses.dataclass(frozen=True)
class Canaries:
    """The messages of canaries, and their units.

    Attributes:
        method: The attacked method.
        shape: (B, M) of a message.
        classes: C; the label C + 2 i + coin is that of canary i, of N; if winners of votes are
            released, units without a canary have C + 2 N + their side of a tie.
        units: int [N], the unit of each canary.
        places: int [N], the coordinate of each canary, if messages are gradients.
        shapes: The shapes of the messages of each phase, if there are several.
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
        """Whether each canary has a separate coordinate."""
        return (isinstance(self.mechanism.bound, GradientL2 | RowL2)
                and len(self.units) <= self.shape[1])

    @property
    def rate(self) -> float:
        """The probability that a canary is counted in a round that queries its unit."""
        schedule, n = self.mechanism.schedule, self.mechanism.n_units
        if isinstance(schedule, PoissonSampling):
            return schedule.rate
        return min(1.0, schedule.expected_answers(n) * schedule.n_cohorts / n)

    def pair(self, i: Array, step: Array) -> Array:
        """Returns the messages of canary i for tails and for heads: float32 [2, B, M]."""
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
        """Returns the contributions of canary i for tails and for heads: float32 [2, B, D]."""
        add = adder(self.mechanism)
        return jnp.stack([add(jax.random.key(0), message) for message in self.pair(i, step)]
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
        """Returns records with the method's labels."""
        return Records(records.x, jnp.where(records.y >= self.classes, 0, records.y))

    def labels(self, usual: np.ndarray, coins: np.ndarray) -> np.ndarray:
        """Returns labels that decide the message of each unit: int32 [U].

        `usual`, int32 [U], are the labels of records without a canary; there are N coins.
        """
        n, y = len(self.units), usual.copy()
        if isinstance(self.mechanism, ConfidentGNMax):
            y[:] = self.classes + 2 * n + np.arange(len(y)) % 2
        y[self.units] = self.classes + 2 * np.arange(n) + coins
        return y

    def evidence(self, noised: Array, step: Array) -> Array:
        """Returns the log likelihood ratios [N] of heads that one release adds.

        Args:
            noised: float32 [B, D], a noisy sum; or, if only the winners of votes are released,
                float32 [B, k], for which the ratios are correct up to a factor.
        """
        mechanism, n = self.mechanism, len(self.units)
        if isinstance(mechanism, ConfidentGNMax):
            return jax.vmap(lambda i: jnp.sum(jnp.sign(noised) * jnp.sign(self.pair(i, step)[1])))(
                jnp.arange(n))
        cohort = step % mechanism.schedule.n_cohorts
        queried = jnp.asarray(self.units) % mechanism.schedule.n_cohorts == cohort
        if self.spikes:
            numbers = noised[:, jnp.asarray(self.places)].sum(0)
            ratios = evidence_of_spikes(numbers, self.added(jnp.int32(0), jnp.int32(0)),
                                        attacks.gaussian(mechanism.noise).sigma, self.rate)
        else:
            ratios = evidence_of_codes(noised, queried, lambda i: self.added(i, step),
                                       mechanism.noise, self.rate)
        return jnp.where(queried, ratios, 0)

    def watched(self) -> Method:
        """Returns the method with canaries, whose public state has the likelihood of each coin."""
        phases = tuple(
            dataclasses.replace(self, method=phase, shape=shape, shapes=())._watched()
            for phase, shape in zip(self.method.phases, self.shapes, strict=True))
        return dataclasses.replace(self._watched(), phases=phases)

    def _watched(self) -> Method:
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

    Each phase of the method has messages of a shape (B, M). The choice may be public.

    Raises:
        UserError: There are more canaries than units, or than coordinates if each client is
            observed separately.
    """
    n_units = method.mechanism.n_units
    made = Canaries(method, shapes[0], classes, rng.permutation(n_units)[:canaries],
                    rng.permutation(shapes[0][1])[:canaries],
                    tuple(shapes) if method.phases else ())
    if not 1 <= canaries <= most(method, shapes):
        apart = isinstance(method.mechanism, LocalMechanism)
        raise UserError(f"{option('canaries')} is {canaries}; 1 to {most(method, shapes)} have a "
                        "unit"
                        + " and a coordinate" * apart + " of their own here")
    return made


def most(method: Method, shapes: Sequence[tuple[int, int]]) -> int:
    """Returns the largest number of canaries for `chosen`."""
    n_units = method.mechanism.n_units
    apart = isinstance(method.mechanism, LocalMechanism)
    return min(n_units, shapes[0][1]) if apart else n_units


Shrink = Callable[[float], float]
"""F^-1: from the probability of an event to its smallest probability on a neighbour."""
ROUNDING = 1 + 1e-9
"""The margin for float rounding by which a sum must exceed its largest possible value."""


def gaussian(mu: float) -> Shrink:
    """Returns F^-1 of mu-GDP."""
    return lambda x: float(ndtr(ndtri(min(x, 1.0)) - mu))


def of_pairs(pairs: Sequence[tuple[float, float]]) -> Shrink:
    """Returns F^-1 of a training that is (epsilon, delta)-private for each of some pairs."""
    both = [(math.exp(-epsilon), math.exp(min(epsilon, 700.0)), delta) for epsilon, delta in pairs]
    return lambda x: max(0.0, *(max(down * (x - delta), 1 - delta - up * (1 - x))
                                for down, up, delta in both))


def rejected(shrink: Shrink, canaries: int, guesses: int, right: int, alpha: float) -> bool:
    """Returns whether this many right guesses have probability at most alpha under a promise.

    Of m canaries r were guessed, a number fixed before the training, and v of the guesses are
    right. `shrink` is F^-1 of the promise; alpha is the probability of rejecting a promise that
    holds.
    """
    if not 0 <= right <= guesses <= canaries:
        raise ValueError(f"{right} right of {guesses} guesses on {canaries} canaries")
    possible = guesses / canaries * ROUNDING
    r, h = alpha * right / canaries, alpha * (guesses - right) / canaries
    for n in range(right - 1, -1, -1):
        least = max(h, shrink(r))
        r, h = r + (least - h) * n / (guesses - n), least
        if r + h > possible:
            return True
    return False


def certified(family: Callable[[float], Shrink], canaries: int, guesses: int, right: int,
              alpha: float = 0.05, most: float = 50.0) -> float:
    """Returns the largest parameter that is rejected: a lower bound at confidence 1 - alpha.

    `family` maps a parameter (mu, or epsilon) to F^-1; a larger parameter promises less, and the
    search ends at `most`. The numbers are as in `rejected`.
    """
    def fails(parameter: float) -> bool:
        return rejected(family(parameter), canaries, guesses, right, alpha)

    if not fails(0.0):
        return 0.0
    low, high = 0.0, 1e-3
    while high < most and fails(high):
        low, high = high, 2 * high
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if fails(middle) else (low, middle)
    return low


def certified_epsilon(canaries: int, guesses: int, right: int, delta: float, alpha: float = 0.05
                      ) -> float:
    """Returns a lower bound on epsilon at delta, at confidence 1 - alpha; see `certified`."""
    return certified(lambda epsilon: of_pairs([(epsilon, delta)]), canaries, guesses, right, alpha)


SIMULATED = 20_000
"""Number of coins in the simulation of a schedule with secret draws."""
SHARES = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02)
"""Shares of the canaries to guess; the best one is chosen before the training."""


@dataclasses.dataclass(frozen=True)
class Law:
    """The distribution of the guesses of the best attack on the mechanism as charged.

    It is computed from the events only, before the training.

    Attributes:
        ratios: float [K], simulated log likelihood ratios, positive if the guess is right.
        right: The largest probability of a right guess, including the error of the simulation.
    """

    ratios: np.ndarray
    right: float

    @classmethod
    def of(cls, made: Canaries, steps: int) -> Law:
        """Returns the distribution of the guesses for a training of some rounds."""
        mechanism, rng = made.method.mechanism, np.random.default_rng()
        rounds = mechanism.schedule.max_participations(steps)
        event, times = mechanism.events(steps)[0]
        mu = gaussian_mu(mechanism.events(steps))
        if mu is not None:
            ratios = mu * (rng.standard_normal(SIMULATED) + mu / 2)
            return cls(ratios, float(ndtr(mu / 2)))
        if isinstance(event, LaplaceEvent):
            return cls.of_laplace(event, times, rng)
        ratios = simulated(event, rounds, rng)
        hits = int((ratios > 0).sum())
        return cls(ratios, float(beta.ppf(1 - ALARM, hits + 1, len(ratios) - hits)))

    @classmethod
    def of_laplace(cls, event: LaplaceEvent, times: int, rng: np.random.Generator) -> Law:
        """Returns the distribution if each of some releases is (sensitivity / scale)-private.

        Such releases reveal at most as much as the same number of answers of randomised response
        (Kairouz, Oh and Viswanath, "The Composition Theorem for Differential Privacy", ICML 2015),
        which discrete Laplace noise of sensitivity 1 attains: each answer is right with probability
        e^eps / (1 + e^eps), and the best guess is that of the majority.
        """
        epsilon = event.sensitivity / event.scale
        chance = 1 / (1 + math.exp(-epsilon))
        ties = float(binom.pmf(times / 2, times, chance)) if times % 2 == 0 else 0.0
        right = float(binom.sf(times // 2, times, chance)) + ties / 2
        ratios = epsilon * (2.0 * rng.binomial(times, chance, SIMULATED) - times)
        return cls(ratios, min(1.0, right + times * event.total_variation))

    def guessed(self, canaries: int, delta: float) -> int:
        """Returns how many coins to guess to certify the largest epsilon at delta."""
        def expected(share: float) -> float:
            r = max(1, int(share * canaries))
            kept = np.abs(self.ratios) >= np.quantile(np.abs(self.ratios), 1 - share)
            right = int(r * (self.ratios[kept] > 0).mean())
            return certified_epsilon(canaries, r, right, delta / 2, SHOWN)

        return max(1, int(max(SHARES, key=expected) * canaries))


def simulated(event: object, rounds: int, rng: np.random.Generator) -> np.ndarray:
    """Returns log likelihood ratios of coins [K] after some rounds with secret draws."""
    match event:
        case PoissonGaussianEvent():
            shift, rate = event.gaussian.sensitivity / event.gaussian.sigma, event.rate
            other = -shift if event.relation == Relation.REPLACE_ONE else 0.0
        case SampledGaussianEvent():
            shift = event.gaussian.sensitivity / event.gaussian.sigma / 2
            rate, other = event.rate, -shift
        case _:
            raise ValueError(f"{event} does not draw units in secret")
    total = np.zeros(SIMULATED)
    heads = rng.integers(0, 2, SIMULATED).astype(bool)
    for _ in range(rounds):
        sampled = rng.random(SIMULATED) < rate
        z = rng.standard_normal(SIMULATED) + sampled * np.where(heads, shift, other)
        total += (np.log1p(rate * np.expm1(z * shift - shift**2 / 2))
                  - np.log1p(rate * np.expm1(z * other - other**2 / 2)))
    return np.where(heads, total, -total)


class Guesses(NamedTuple):
    """The coins of canaries, and the evidence on them in the releases of a training.

    Attributes:
        coins: int [N].
        ratio: float [N], log likelihood ratios of heads.
    """

    coins: np.ndarray
    ratio: np.ndarray


def judge(found: Findings, law: Law, guesses: Guesses, events: Events, delta: float, name: str
          ) -> None:
    """Adds what the guesses of a training certify; epsilon is certified at delta.

    `law` is the distribution of the guesses as charged, and the events are those of the whole
    training.
    """
    coins, ratio = guesses
    n, correct = len(coins), (ratio > 0) == (coins > 0)
    v = int(correct.sum())
    low = float(beta.ppf(SHOWN, v, n - v + 1)) if v else 0.0
    p = float(binom.sf(v - 1, n, law.right))
    found.found(f"{name}: coins that are guessed", p > ALARM,
                f"{v} of {n} guesses are right, p {p:.3g} of as many under the charged noise",
                measure="chance of a right guess", claimed=law.right, certified=low,
                confidence=1 - SHOWN)
    mu = gaussian_mu(events)
    if mu is not None:
        found.found(f"{name}: mu of the training, where noise of canaries is independent",
                    p > ALARM, "the noise of different entries is tested by the audit of the "
                    "mechanism", measure="mu", claimed=mu,
                    certified=max(0.0, 2 * float(ndtri(low))), confidence=1 - SHOWN)
    tied = "" if mu is None else (
        f"; of all {n} guesses together mu {certified(gaussian, n, n, v, SHOWN):.3g}")
    r = law.guessed(n, delta)
    likely = np.argsort(-np.abs(ratio), kind="stable")[:r]
    right = int(correct[likely].sum())
    curve = [(composition.epsilon_of(events, d), d)
             for d in np.append(10.0**-np.arange(2, 9), delta)]
    shrink = of_pairs([pair for pair in curve if math.isfinite(pair[0])])
    found.found(f"{name}: epsilon of the training, whatever depends on whatever",
                not rejected(shrink, n, r, right, ALARM),
                f"{right} of the {r} most likely guesses are right{tied}",
                measure=f"epsilon at delta {delta:g}", claimed=curve[-1][0],
                certified=certified_epsilon(n, r, right, delta, SHOWN),
                confidence=1 - SHOWN)
