"""Attacks on one mechanism: its sensitivity, its releases, and what errors of guesses certify.

An attack makes many releases of two neighbouring sums and reduces each release to a score. A
threshold on the score guesses which of the two sums was released. The errors of the guesses certify
a lower bound on the privacy loss.

Releases: each is made by `aggregation.mechanism.release`, as in a run: in a compiled loop, with new
bits from the operating system. Only a few numbers of each are kept, so a sum may have millions of
entries.

Trials: a release of a sum of a million entries is slow, and one message changes only a few of them.
So one sum contains many units, each of which changes entries that no other unit changes. Either all
send the first of two messages, or all the second, and each unit is judged by its own entries only.
The release of these entries has the same distribution as if only one unit changed, so every unit is
a trial of the claim for one unit. Trials are independent if the noise of different entries is. An
alarm needs no more than that, since the charged noise has independent entries.

Noise: one release of a preset has a mu near 0.02, and certifying most of that takes millions of
releases. The code makes a claim for any noise, so most attacks use the mechanism with less noise
and its claim for that noise; all other code is the same.

Bounds: those of Clopper and Pearson, from draws of both sums. Each function takes scores of
releases of two neighbouring sums; the last axis counts releases, and axes before it are independent
repetitions. The first quarter of the releases chooses a threshold, which is then evaluated on the
others: on the draws that chose it, a threshold looks better than it is.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.special import ndtri
from scipy.stats import beta

from dpgen_jax.accountant import composition
from dpgen_jax.accountant.events import Events, GaussianEvent
from dpgen_jax.aggregation.clip import GradientL2, RowL2
from dpgen_jax.aggregation.mechanism import LocalMechanism, Mechanism, SumMechanism, release
from dpgen_jax.aggregation.noise import (
    MIN_SCALE,
    MIN_SIGMA,
    DiscreteLaplace,
    Noise,
    OsBits,
    RoundedGaussian,
)
from dpgen_jax.aggregation.schedule import FixedSizeSampling, FullParticipation, PoissonSampling
from dpgen_jax.aggregation.teacher_votes import Answers, ConfidentGNMax, Majority, Share
from dpgen_jax.aggregation.topagg import Threshold, votes_needed
from dpgen_jax.audit import pairs
from dpgen_jax.audit.findings import ALARM, Finding, Findings
from dpgen_jax.core.errors import UserError
from dpgen_jax.core.types import Array, Private

TAIL = np.logspace(-6, -1.7, 30)
LEVELS = np.concatenate([TAIL, np.linspace(0.03, 0.97, 81), 1 - TAIL])
"""Quantiles of the scores to try as thresholds."""
SHOWN = 0.05
"""1 - confidence of the displayed bounds; an alarm needs `ALARM`"""
Value = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""A function from rates of false positives and false negatives to what they certify."""


def above(hits: np.ndarray, n: int, alpha: float) -> np.ndarray:
    """Returns Clopper and Pearson's upper bound on a probability, at confidence 1 - alpha.

    `hits`, int [...], is the number of events in n trials.
    """
    hits = np.asarray(hits)
    return np.where(hits >= n, 1.0, beta.ppf(1 - alpha, hits + 1, np.maximum(n - hits, 1)))


def training_part(n: int) -> int:
    """Returns how many of n releases choose the threshold."""
    return max(1, n // 4)


def in_reach(curve: Mapping[str, Sequence[float]], n: int, alpha: float, value: Value) -> float:
    """Returns approximately what the best test of a trade-off curve certifies with n releases.

    They include those that choose the threshold; `alpha` and `value` are as in `certified`.
    """
    judged = n - training_part(n)
    points = [np.asarray(curve[name]) for name in ("false_positives", "false_negatives")]
    found = value(*(above(np.ceil(judged * rate), judged, alpha / 2) for rate in points))
    return max(0.0, float(np.max(found[np.isfinite(found)], initial=0)))


def certified(zeros: np.ndarray, ones: np.ndarray, value: Value, alpha: float = SHOWN
              ) -> np.ndarray:
    """Returns a lower bound at confidence 1 - alpha, for either direction of the scores.

    Args:
        zeros: Scores of releases of the first sum, float [..., n].
        ones: Scores of releases of the second one, float [..., n]; higher if the attack works.
        value: A function from both error rates to what they certify, such as `mu_of` and
            `epsilon_of`. The threshold is the one that certifies most on the part that chooses it.
        alpha: The probability that the truth is below the bound.
    """
    first = training_part(zeros.shape[-1])
    judged = zeros.shape[-1] - first
    pooled = np.concatenate([zeros[..., :first], ones[..., :first]], -1)
    tried = np.moveaxis(np.quantile(pooled, LEVELS, axis=-1), 0, -1)

    def pessimist(hits: np.ndarray) -> np.ndarray:
        # Of many thresholds in the tails, some look good by chance on the part that chooses.
        share = np.minimum((hits + np.sqrt(hits + 1) + 1) / first, 1)
        return np.minimum(share + 2 * np.sqrt(share * (1 - share) / judged) + 2 / judged, 1 - 1e-9)

    false_positives = (zeros[..., None, :first] > tried[..., None]).sum(-1)
    false_negatives = (ones[..., None, :first] <= tried[..., None]).sum(-1)
    best = np.argmax(value(pessimist(false_positives), pessimist(false_negatives)), -1)
    threshold = np.take_along_axis(tried, best[..., None], -1)
    found = value(above((zeros[..., first:] > threshold).sum(-1), judged, alpha / 2),
                  above((ones[..., first:] <= threshold).sum(-1), judged, alpha / 2))
    return np.where(np.isfinite(found), np.maximum(found, 0), 0)


def mu_of(false_positives: np.ndarray, false_negatives: np.ndarray) -> np.ndarray:
    """Returns the mu whose trade-off curve contains both error rates."""
    return -ndtri(false_positives) - ndtri(false_negatives)


def epsilon_of(delta: float) -> Value:
    """Returns the function from both error rates to the epsilon at delta that they imply."""
    def epsilon(false_positives: np.ndarray, false_negatives: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            either = [np.log((1 - one - delta) / other) for one, other in (
                (false_negatives, false_positives), (false_positives, false_negatives))]
        return np.fmax(0, np.fmax(*either))

    return epsilon


MU = 3.0
"""mu of one release after its noise is lowered: nine tenths of it take the fewest draws"""
LAPLACE_MU = 1.2
"""Approximately the same for Laplace noise, for which epsilon is certified, which grows faster."""
DELTAS = (0.1, 0.01, 0.001)
"""the deltas of certified epsilons: a smaller one takes more releases"""
NoisySum = SumMechanism | LocalMechanism
"""mechanisms that release a noisy sum, or a noisy message of each client"""


def attackable(mechanism: Mechanism) -> NoisySum | ConfidentGNMax:
    """Returns the mechanism if it is of a type that can be attacked.

    Raises:
        UserError: It is of another type.
    """
    if isinstance(mechanism, SumMechanism | LocalMechanism | ConfidentGNMax):
        return mechanism
    raise UserError(f"{type(mechanism).__name__} is a mechanism for which there is no attack")


def with_noise(mechanism: NoisySum, noise: Noise) -> NoisySum:
    """Returns the mechanism with another noise, and without secret draws."""
    schedule = mechanism.schedule
    if isinstance(schedule, PoissonSampling | FixedSizeSampling):
        schedule = FullParticipation()
    return dataclasses.replace(mechanism, noise=noise, schedule=schedule)


def lowered(mechanism: NoisySum, mu: float = MU) -> NoisySum:
    """Returns the mechanism with noise such that one release has this mu.

    Its noise is Gaussian or discrete Laplace, and it has no test before its answers.
    """
    sensitivity = math.sqrt(mechanism.bound.squared_sensitivity())
    if isinstance(mechanism.noise, DiscreteLaplace):
        scale = max(sensitivity / LAPLACE_MU, MIN_SCALE)
        return with_noise(mechanism, dataclasses.replace(mechanism.noise, scale=scale))
    return with_noise(mechanism, gaussian_noise(mechanism.noise, sensitivity / mu))


def gaussian(noise: Noise) -> RoundedGaussian:
    """Returns the noise, which must be Gaussian.

    Raises:
        UserError: It is not.
    """
    if isinstance(noise, RoundedGaussian):
        return noise
    raise UserError("this attack needs Gaussian noise, and the mechanism has "
                    f"{type(noise).__name__}")


def gaussian_noise(noise: Noise, sigma: float) -> RoundedGaussian:
    """Returns Gaussian noise of the same type, including its faults, with another sigma."""
    return dataclasses.replace(gaussian(noise), sigma=max(sigma, MIN_SIGMA))


def clipping(mechanism: Mechanism) -> GradientL2 | RowL2:
    """Returns the bound of the mechanism, which must clip vectors.

    Raises:
        UserError: It does not.
    """
    if isinstance(mechanism.bound, GradientL2 | RowL2):
        return mechanism.bound
    raise UserError("this attack needs clipped vectors, and the mechanism bounds messages by "
                    f"{type(mechanism.bound).__name__}")


def gaussian_mu(events: Events) -> float | None:
    """Returns the mu of events that are all Gaussian, else None."""
    if not all(isinstance(event, GaussianEvent) for event, _ in events):
        return None
    return math.sqrt(composition.mu_squared(events))


BLOCK_BYTES = 2**25
"""Bytes of the bits of one block of releases."""
LONGEST = 256
"""The most releases of one block."""

Features = Callable[[Any], Array]
"""A function from the outcome of a release to a few numbers, float32 [F]."""


@functools.singledispatch
def near(decode: object, n_units: int, apart: np.ndarray) -> np.ndarray:
    """Returns the sum of all other units for which the change of one is most visible: int32 [B, D].

    Args:
        apart: bool [B, D], the entries in which the two sums differ.
    """
    return np.zeros(apart.shape, np.int32)


@near.register
def _(decode: Threshold, n_units: int, apart: np.ndarray) -> np.ndarray:
    return np.where(apart, votes_needed(n_units, decode.beta), 0).astype(np.int32)


@near.register(Majority)
@near.register(Share)
def _(decode: Majority | Share, n_units: int, apart: np.ndarray) -> np.ndarray:
    return np.full(apart.shape, n_units // 2, np.int32)


def linear_features(mechanism: Mechanism, totals: np.ndarray) -> Features:
    """Returns two likelihood ratios, for Gaussian and for Laplace noise, up to a factor.

    `totals` are two sums, int32 [2, B, D].
    """
    silent = jnp.zeros(mechanism.bits_shape, jnp.uint32)
    quiet = [np.asarray(jax.jit(lambda total: mechanism.value(mechanism.decide(total, silent)))(
        total)) for total in totals]
    one, other = (jnp.asarray(value) for value in quiet)

    def features(outcome: Any) -> Array:
        value = mechanism.value(outcome)
        projection = jnp.sum((value - (one + other) / 2) * (other - one))
        return jnp.stack([projection, jnp.sum(jnp.abs(value - one) - jnp.abs(value - other))])

    return features


def answer_features(mechanism: ConfidentGNMax) -> Features:
    """Returns how many queries were not answered, and how many each bin won."""
    midpoints = mechanism.bound.midpoints

    def features(outcome: Answers) -> Array:
        winner = jnp.argmin(jnp.abs(outcome.value[..., None] - midpoints), -1)
        place = jnp.where(outcome.answered == 1, 1 + winner, 0)
        return jnp.sum(place[..., None] == jnp.arange(len(midpoints) + 1), (0, 1)).astype(
            jnp.float32)

    return features


def compiled(mechanism: Mechanism, features: Features) -> Callable[[Array, Array], Array]:
    """Compiles a block of releases of one sum: from int32 [B, D] and bits to float32 [S, F].

    Noise of clients is drawn by `contribution`; the sum is then the message of one client.
    """
    local = isinstance(mechanism, LocalMechanism)

    def once(total: Array, bits: Array) -> Any:
        if local:
            noised = mechanism.contribution(jax.random.key(0), total, bits)
            return release(mechanism, jnp.zeros(mechanism.bits_shape, jnp.uint32),
                           Private(mechanism.added(jnp.zeros(mechanism.shape, jnp.int32),
                                                   noised[None])))
        return release(mechanism, bits, Private(total))

    @jax.jit
    def block(total: Array, bits: Array) -> Array:
        shape = jax.eval_shape(lambda: features(once(total, bits[0]))).shape
        return lax.fori_loop(0, len(bits), lambda i, out: out.at[i].set(
            features(once(total, bits[i]))), jnp.zeros((len(bits), *shape)))

    return block


def draw_releases(mechanism: Mechanism, totals: np.ndarray, seconds: float, most: int,
                  features: Features | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Makes releases of two sums until there are enough or the time is over.

    Args:
        totals: int32 [2, B, D]; for clients that add noise float32 [2, B, M], messages.
        most: The most releases of each sum; at least 16 are made.
        features: The numbers to keep of a release; by default those that separate both sums.

    Returns:
        float32 [n, F] for each sum.
    """
    shape = (mechanism.client_bits_shape if isinstance(mechanism, LocalMechanism)
             else mechanism.bits_shape)
    size = max(1, min(LONGEST, most, BLOCK_BYTES // max(1, 4 * math.prod(shape))))
    block = compiled(mechanism, features or (
        answer_features(mechanism) if isinstance(mechanism, ConfidentGNMax)
        else linear_features(mechanism, totals)))
    devices, source = jax.devices(), OsBits()

    def side(i: int) -> np.ndarray:
        device = devices[i % len(devices)]
        total = jax.device_put(totals[i], device)
        return np.concatenate([
            np.asarray(block(total, jax.device_put(source.draw((size, *shape)), device)))
            for _ in pairs.within(seconds, math.ceil(min(16, most) / size),
                                  math.ceil(most / size))])

    with ThreadPoolExecutor(2) as pool:
        zeros, ones = pool.map(side, (0, 1))
    n = min(len(zeros), len(ones), most)
    return zeros[:n], ones[:n]


def release_scores(zeros: np.ndarray, ones: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns one number for each release: the linear discriminant fitted to the training part.

    From features float32 [n, F] of releases of either sum to float [n] each, higher for the second.
    """
    first = training_part(len(zeros))
    a, b = zeros[:first].astype(float), ones[:first].astype(float)
    spread = np.concatenate([a - a.mean(0), b - b.mean(0)])
    scale = np.maximum(spread.std(0), 1e-12)
    covariance = (spread / scale).T @ (spread / scale) / len(spread)
    weights = np.linalg.solve(covariance + 1e-6 * np.eye(len(covariance)),
                              (b.mean(0) - a.mean(0)) / scale) / scale
    return zeros @ weights, ones @ weights


MOST_PLACES = 512
"""The most trials in one release."""
AS_FAR = 0.9
"""The pair of a trial has at least this share of the squared distance of the best pair."""
SHARED = 0.1
"""At most this share of a trial's squared distance is in entries that other trials change too."""
FRUITLESS = 2
"""Consecutive calls for worst cases without a further trial, after which the search ends."""


@dataclasses.dataclass(frozen=True)
class Trials:
    """Two sums, and the trials in them.

    Attributes:
        totals: int32 [2, B, D].
        entries: int64 [K], entries of the flattened sum that only one trial changes.
        owner: int64 [K], the trial that changes an entry, below `count`.
        count: T.
        nearest: The smallest squared distance of a trial in its own entries.
    """

    totals: np.ndarray
    entries: np.ndarray
    owner: np.ndarray
    count: int
    nearest: float

    def features(self) -> Features:
        """Returns the projection of a released sum on the difference of each trial: [T, 1]."""
        one, other = self.totals.reshape(2, -1)[:, self.entries].astype(float)
        weights, middle = jnp.asarray(other - one, jnp.float32), jnp.asarray((one + other) / 2)
        entries, owner = jnp.asarray(self.entries), jnp.asarray(self.owner)

        def features(released: Array) -> Array:
            apart = (released.reshape(-1)[entries] - middle) * weights
            return jax.ops.segment_sum(apart, owner, self.count)[:, None]

        return features


def found_places(mechanism: pairs.Mechanism, pair: pairs.Pair, seconds: float,
                 rng: np.random.Generator) -> Trials:
    """Puts as many trials into one sum as fit in its entries.

    If no worst case of the bound is as far as the best pair, that pair is the only trial. The
    search takes the given seconds.
    """
    most = min(MOST_PLACES, mechanism.n_units)  # a sum over more units could overflow int32
    call = pairs.worst_cases(mechanism, pair.messages.shape[1:])
    fruitless, places = 0, _Places(pair)
    for _ in pairs.within(seconds):
        before = len(places.kept)
        for added in call(rng)[1][:most - before]:
            places.offer(added)
        fruitless = 0 if len(places.kept) > before else fruitless + 1
        if fruitless == FRUITLESS or len(places.kept) == most:
            break
    made = places.trials()
    if not made.count:
        single = _Places(pair)
        single.offer(pair.added)
        made = single.trials()
    return made


class _Places:
    """The trials so far, and the entries that they change.

    Attributes:
        kept: For each trial the entries that it changes, int64, and the squared changes.
    """

    def __init__(self, pair: pairs.Pair):
        self.kept: list[tuple[np.ndarray, np.ndarray]] = []
        self._least, self._shape = AS_FAR * pair.squared, pair.added.shape
        self._moved = np.zeros(pair.added[0].size, np.int64)
        self._totals = np.zeros((2, pair.added[0].size), np.int64)

    def offer(self, added: np.ndarray) -> None:
        """Keeps two sums, int32 [2, B, D], if they are far apart and have separate entries."""
        one, other = added.reshape(2, -1)
        entries = np.flatnonzero(one != other)
        squared = (other[entries].astype(float) - one[entries])**2
        shared = squared[self._moved[entries] > 0].sum()
        if squared.sum() >= self._least and shared <= SHARED * squared.sum():
            self._moved[entries] += 1
            self._totals += one, other
            self.kept.append((entries, squared))

    def trials(self) -> Trials:
        """Returns the trials with entries that only they change, except those with few of these."""
        entries, owner = [np.zeros(0, int)], [np.zeros(0, int)]
        distances: list[float] = []
        for places, squared in self.kept:
            unshared = self._moved[places] == 1
            if squared[unshared].sum() >= (1 - 2 * SHARED) * squared.sum():
                owner.append(np.full(unshared.sum(), len(distances)))
                entries.append(places[unshared])
                distances.append(float(squared[unshared].sum()))
        return Trials(self._totals.reshape(self._shape).astype(np.int32), np.concatenate(entries),
                      np.concatenate(owner), len(distances), min(distances, default=0.0))


ENOUGH, MOST = 2**16, 2**20
"""The most trials of each sum: with lowered noise, and with the noise of a preset."""
FEWEST = 16
"""The fewest releases of each sum, however many trials are in one."""


def as_it_is(noised: Array, n_units: float) -> Array:
    """Returns a noisy sum undecoded: the release that the proofs are about."""
    del n_units
    return noised.astype("float32")


@dataclasses.dataclass(frozen=True)
class Scores:
    """Scores of releases of two sums, higher for the second one.

    Attributes:
        zeros: float [n].
        ones: float [n].
    """

    zeros: np.ndarray
    ones: np.ndarray

    def curve(self) -> dict[str, list[float]]:
        """Returns points of the trade-off curve that are certified jointly, at 95 %."""
        first = training_part(len(self.zeros))
        tried = np.quantile(self.ones[:first], np.linspace(0.02, 0.98, 25))
        alpha = SHOWN / (2 * len(tried))
        zeros, ones = self.zeros[first:], self.ones[first:]
        return {"false_positives": above(
                    (zeros[:, None] > tried).sum(0), len(zeros), alpha).tolist(),
                "false_negatives": above(
                    (ones[:, None] <= tried).sum(0), len(ones), alpha).tolist()}


def attacked(mechanism: Mechanism, totals: np.ndarray, seconds: float, most: int = ENOUGH
             ) -> Scores:
    """Makes releases of two sums, and scores them."""
    return Scores(*release_scores(*draw_releases(mechanism, totals, seconds, most)))


def totals_of(mechanism: NoisySum, pair: pairs.Pair) -> np.ndarray:
    """Returns the two sums int32 [2, B, D], or the messages of clients that add noise."""
    if isinstance(mechanism, LocalMechanism):
        return pair.messages
    others = near(mechanism.decode, mechanism.n_units, pair.added[0] != pair.added[1])
    return (others + pair.added).astype(np.int32)


def sensitivity(mechanism: Mechanism, pair: pairs.Pair, found: Findings, name: str) -> Finding:
    """Adds a finding: whether any two messages change the sum by more than is declared."""
    declared = mechanism.bound.squared_sensitivity()
    return found.found(
        f"{name}: sensitivity", pair.squared <= declared,
        f"of {pair.tried} pairs of messages", measure="squared sensitivity",
        claimed=float(declared), certified=float(pair.squared), confidence=1.0)


def tried(mechanism: Mechanism, trials: Trials, seconds: float, most: int) -> Scores:
    """Makes releases of sums with many trials, and scores each trial by the entries it changes."""
    releases_of_each = max(FEWEST, most // trials.count)
    return Scores(*(features.astype(float).ravel() for features in draw_releases(
        mechanism, trials.totals, seconds, releases_of_each, trials.features())))


def judge(found: Findings, check: str, events: Events, scores: Scores, detail: str) -> None:
    """Adds what scores certify about the claim of events: mu, or epsilon if they are not Gaussian.

    It fails if the claim is exceeded at a confidence of 1 - `ALARM`.
    """
    mu, n = gaussian_mu(events), len(scores.zeros)
    claims: list[tuple[str, float, Value]] = [("mu", mu, mu_of)] if mu is not None else [
        (f"epsilon at delta {delta:g}", composition.epsilon_of(events, delta), epsilon_of(delta))
        for delta in DELTAS]
    for measure, claimed, value in claims:
        shown, alarm = (float(np.max(certified(scores.zeros, scores.ones, value, alpha)))
                        for alpha in (SHOWN, ALARM))
        reach = in_reach(promised(events), n, SHOWN, value)
        found.found(check, alarm <= claimed, f"{detail}, {n} trials of each sum, of which the best "
                    f"test would certify {reach:.3g}", measure=measure, claimed=claimed,
                    certified=shown, confidence=1 - SHOWN)


def noisy_sum(mechanism: NoisySum, pair: pairs.Pair, seconds: float, found: Findings, name: str
              ) -> tuple[Events, Scores]:
    """Adds the attack on the noisy sum, which the proofs are about, with its noise lowered."""
    plain = lowered(mechanism)
    scores, detail = of_sum(plain, pair, seconds, ENOUGH)
    judge(found, f"{name}: noisy sum", plain.events(1), scores, detail)
    return plain.events(1), scores


def of_sum(plain: NoisySum, pair: pairs.Pair, seconds: float, most: int) -> tuple[Scores, str]:
    """Attacks one undecoded release of a noisy sum, or one message of clients that add noise.

    No draw of the mechanism is secret, and there are at most `most` trials of each sum. Returns the
    scores, and a description of what was attacked.
    """
    if isinstance(plain, LocalMechanism):
        return attacked(plain, totals_of(plain, pair), seconds, most), _noise(plain)
    plain = dataclasses.replace(plain, decode=as_it_is)
    trials = found_places(plain, pair, seconds / 4, np.random.default_rng())
    scores = (tried(plain, trials, 0.75 * seconds, most) if trials.count > 1
              else attacked(plain, totals_of(plain, pair), seconds, most))
    share = math.sqrt(trials.nearest / plain.bound.squared_sensitivity())
    return scores, (f"{_noise(plain)}, {trials.count} trials a release, whose messages are "
                    f"{share:.1%} of the declared distance apart")


def decoded(mechanism: NoisySum, pair: pairs.Pair, seconds: float, found: Findings, name: str
            ) -> None:
    """Adds the attack on the released value: the decoded noisy sum, with its noise lowered."""
    plain = lowered(mechanism)
    scores = attacked(plain, totals_of(plain, pair), seconds)
    judge(found, f"{name}: what is released ({type(mechanism.decode).__name__})", plain.events(1),
          scores, _noise(plain))


def _lowered_tests(mechanism: ConfidentGNMax, mu: float = MU) -> ConfidentGNMax:
    """Confident-GNMax whose tests have about this mu in a round, without the answers."""
    return dataclasses.replace(mechanism, test_noise=gaussian_noise(
        mechanism.test_noise, math.sqrt(mechanism.queries) / mu))


def _lowered_answers(mechanism: ConfidentGNMax, mu: float = MU) -> ConfidentGNMax:
    """Confident-GNMax that always answers, and whose answers have about this mu.

    The threshold is lowered if two bins with half of the votes each would not reach it.
    """
    reached = (mechanism.n_units // 2 - 6 * mechanism.test_noise.sigma) / mechanism.n_units
    noise = gaussian_noise(mechanism.noise, math.sqrt(2 * mechanism.queries) / mu)
    return dataclasses.replace(mechanism, noise=noise,
                               threshold=max(min(mechanism.threshold, reached), 1e-9))


def confident(mechanism: ConfidentGNMax, seconds: float, found: Findings, name: str
              ) -> tuple[Events, Scores]:
    """Adds the attacks on the tests and on the answers of Confident-GNMax."""
    u, (rows, bins) = mechanism.n_units, (mechanism.queries, mechanism.bound.bins)
    tie, test = (np.zeros((2, rows, bins), np.int32) for _ in range(2))
    half = (u - 1) // 2
    tie[:, :, 0], tie[:, :, -1] = [[half + 1], [half]], [[half], [half + 1]]
    needed = mechanism.votes_needed
    test[:, :, 0], test[:, :, -1] = [[needed - 1], [needed]], [[1], [0]]
    for what, plain, sums in (("one round at the preset's own noise", mechanism, test),
                              ("tests", _lowered_tests(mechanism), test),
                              ("answers", _lowered_answers(mechanism), tie)):
        scores = attacked(plain, sums.reshape(2, *mechanism.shape), seconds / 3)
        events = plain.events(1)
        judge(found, f"{name}: {what}", events, scores,
              f"sigma {plain.noise.sigma:.3g}, of the tests {plain.test_noise.sigma:.3g}, "
              f"threshold {plain.threshold:.3g}; which side of a tie a noisy count lies on keeps "
              "0.8 of its mu where there are many")
    return events, scores


def own_noise(mechanism: NoisySum, pair: pairs.Pair, seconds: float, found: Findings, name: str
              ) -> None:
    """Adds what one release with the noise of a run certifies in the given time."""
    plain = with_noise(mechanism, mechanism.noise)
    scores, detail = of_sum(plain, pair, seconds, MOST)
    mu, limit = gaussian_mu(plain.events(1)), ""
    if mu is not None:
        needed = 2 * (2 * 1.96 * 1.2533 / (0.1 * mu))**2  # errors of 1/2: the widest interval
        limit = (f"; nine tenths of mu {mu:.3g} would take about {needed:.2g} trials of each sum"
                 if needed > len(scores.zeros) else "")
    judge(found, f"{name}: one release at the preset's own noise", plain.events(1), scores,
          detail + limit)


def _noise(mechanism: Mechanism) -> str:
    noise = mechanism.noise
    return f"{type(noise).__name__} of {getattr(noise, 'sigma', getattr(noise, 'scale', 0.0)):.4g}"


@functools.lru_cache(8)
def promised(events: Events) -> dict[str, list[float]]:
    """Returns the trade-off curve that events promise: no test has smaller errors."""
    deltas = np.concatenate([np.logspace(-6, -1, 11), np.linspace(0.15, 0.99, 29)])
    pairs_ = [(composition.epsilon_of(events, float(delta)), delta) for delta in deltas]
    alphas = np.concatenate([np.logspace(-7, -1, 80), np.linspace(0.1, 1, 46)[1:]])
    floor = np.zeros_like(alphas)
    for epsilon, delta in pairs_:
        if math.isfinite(epsilon):
            floor = np.maximum(floor, np.maximum(
                1 - delta - np.exp(min(epsilon, 700)) * alphas,
                np.exp(-epsilon) * (1 - delta - alphas)))
    return {"false_positives": alphas.tolist(), "false_negatives": floor.tolist()}
