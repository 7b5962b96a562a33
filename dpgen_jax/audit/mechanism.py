"""The audit of a mechanism: neighbouring sums, the law of its noise, and its secret draws.

The mechanism is built as in a run, and releases are made by the same function. Its declared
sensitivity, its releases, its secret draws and its noise are attacked.

The distribution of the noise is compared with the charged one: noise is drawn through the
mechanism, with new bits, on sums of zeros. If all is correct, each of these tests fails with a
probability of at most `findings.ALARM`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.special import ndtri
from scipy.stats import binom, chi2

from dpgen_jax import methods
from dpgen_jax.accountant.events import (
    Event,
    GaussianEvent,
    LaplaceEvent,
    PoissonGaussianEvent,
    SampledGaussianEvent,
)
from dpgen_jax.aggregation.mechanism import LocalMechanism, Mechanism, SumMechanism, release
from dpgen_jax.aggregation.noise import DiscreteLaplace, NoNoise, OsBits, RoundedGaussian
from dpgen_jax.aggregation.schedule import FixedSizeSampling, PoissonSampling
from dpgen_jax.aggregation.teacher_votes import ConfidentGNMax
from dpgen_jax.audit import attacks, pairs
from dpgen_jax.audit.attacks import as_it_is
from dpgen_jax.audit.findings import ALARM, Findings, Log, Report, Verdict
from dpgen_jax.core.config import Budget, DataOptions, Runtime, to_json
from dpgen_jax.core.files import Json
from dpgen_jax.core.terms import Relation
from dpgen_jax.core.types import Array, Method, Private, Records, Spec, UserError
from dpgen_jax.data import Dataset
from dpgen_jax.methods.shared.config import MethodConfig, RecordUnits
from dpgen_jax.presets import Preset
from dpgen_jax.run.calibrate_config import complete, with_records
from dpgen_jax.run.loop import require_32_bits


@dataclasses.dataclass(frozen=True)
class Target:
    """A method with its configuration and its promise.

    Attributes:
        method: The name of the method.
        preset: Its preset.
        config: The method's configuration; its steps or sigma may be unset.
        epsilon: The epsilon of the promise.
        delta: The delta of the promise.
    """

    method: str
    preset: Preset
    config: MethodConfig
    epsilon: float
    delta: float

    @property
    def budget(self) -> Budget:
        """The promise; the preset sets the part for class counts."""
        return Budget(self.epsilon, self.delta, self.preset.class_epsilon)


@dataclasses.dataclass(frozen=True)
class Attack:
    """The settings of an attack on a method.

    Attributes:
        seconds: The time for an attack on the mechanism, if no training is attacked.
        dataset: The records of a training, or their place; None attacks the mechanism, without
            data.
        options: How they are read.
        canaries: The number of canaries among the records.
        black_box: Whether to attack samples of a release too, in a separate training.
    """

    seconds: float = 100.0
    dataset: str | Dataset | None = None
    options: DataOptions = DataOptions()
    canaries: int | None = None
    black_box: bool = False


BLOCK = 2**20
"""numbers drawn at once"""
MOST_DRAWS = 2**24
"""numbers drawn in all"""
BINS = 40
FEWEST = 50
"""fewest expected draws in a bin of the chi-square test"""
Law = RoundedGaussian | DiscreteLaplace


def charged_law(event: Event) -> Law | None:
    """Returns the distribution of the noise for which an event is charged."""
    match event:
        case SampledGaussianEvent() | PoissonGaussianEvent():
            return RoundedGaussian(event.gaussian.sigma)
        case GaussianEvent():
            return RoundedGaussian(event.sigma)
        case LaplaceEvent():
            return DiscreteLaplace(event.scale)
    return None


def noise_maker(mechanism: Mechanism) -> tuple[Callable[[Array], Array], tuple[int, ...]]:
    """Returns the function from the bits of one release to its noise, and the shape of the bits."""
    mechanism = attacks.attackable(mechanism)
    zeros = jnp.zeros(mechanism.shape, jnp.int32)
    if isinstance(mechanism, LocalMechanism):
        nothing = jnp.full(mechanism.shape, jnp.nan)  # no message at all
        return lambda bits: mechanism.contribution(jax.random.key(0), nothing, bits), (
            mechanism.client_bits_shape)
    if isinstance(mechanism, ConfidentGNMax):  # each histogram's bins, behind its test
        noise = mechanism.noise
        return lambda bits: noise.sample(bits[:, 1:]), mechanism.bits_shape
    plain = dataclasses.replace(mechanism, decode=as_it_is)
    return lambda bits: release(plain, bits, Private(zeros)), mechanism.bits_shape


def drawn(mechanism: Mechanism, seconds: float) -> tuple[np.ndarray, int]:
    """Draws noise through the mechanism, on all devices in turn.

    Returns:
        int64 [rounds, entries], and how many of its 96-bit numbers equal another one.
    """
    make, shape = noise_maker(mechanism)
    compiled = jax.jit(jax.vmap(make))
    at_once = max(2, BLOCK // max(1, math.prod(shape)))
    rows: list[np.ndarray] = []
    repeats, devices = 0, jax.devices()
    for i in pairs.within(seconds):
        bits = OsBits().draw((at_once, *shape))
        words = np.ascontiguousarray(bits.reshape(-1, 3)).view("V12").ravel()
        repeats += len(words) - len(np.unique(words))
        row = compiled(jax.device_put(bits, devices[i % len(devices)]))
        rows.append(np.asarray(row).reshape(at_once, -1).astype(np.int64))
        if (i + 1) * rows[0].size >= MOST_DRAWS:
            break
    return np.concatenate(rows), repeats


def chi_square(values: np.ndarray, law: Law) -> tuple[float, float]:
    """Returns the chi-square statistic of draws over its degrees of freedom, and its p-value."""
    far = -law.log_tail(np.arange(1, law.max_abs + 1))
    ks = 1 + np.searchsorted(far, -np.log(np.linspace(0.5, 0, BINS // 2, endpoint=False)))
    edges = np.unique(np.concatenate([1 - ks, ks]))
    tails = np.concatenate([[1.0], np.exp(law.log_tail(edges)), [0.0]])
    expected = len(values) * -np.diff(tails)
    counted = np.diff(np.concatenate([[0], np.searchsorted(np.sort(values), edges),
                                      [len(values)]]))
    rare = expected < FEWEST
    expected = np.append(expected[~rare], max(expected[rare].sum(), 1e-9))
    counted = np.append(counted[~rare], counted[rare].sum())
    usable = expected >= FEWEST
    statistic = float(((counted - expected)[usable]**2 / expected[usable]).sum())
    freedom = max(1, int(usable.sum()) - (1 if usable.all() else 0))
    return statistic / freedom, float(chi2.sf(statistic, freedom))


def tail_p(values: np.ndarray, law: Law) -> tuple[float, str]:
    """Returns the smallest p-value of the counts of far draws, times their number, and its text."""
    magnitudes, worst, words = np.abs(values), 1.0, []
    levels = [10.0**-i for i in range(2, 8) if 10.0**-i * len(values) >= 10]
    for level in levels:
        k = int(np.searchsorted(-law.log_tail(np.arange(1, 2**21)), -math.log(level / 2))) + 1
        chance = 2 * math.exp(float(law.log_tail(np.array(k))))
        beyond = int((magnitudes >= k).sum())
        p = 2 * min(binom.cdf(beyond, len(values), chance),
                    binom.sf(beyond - 1, len(values), chance))
        worst = min(worst, p)
        words.append(f"{beyond} beyond {k} of {chance * len(values):.4g}")
    return min(1.0, worst * max(1, len(levels))), ", ".join(words)


def correlations(rows: np.ndarray) -> dict[str, float]:
    """Returns correlations in standard deviations of those of independent draws."""
    x = rows / max(float(rows.std()), 1e-12)
    pairs = {"neighbouring entries": (x[:, 1:], x[:, :-1]),
             "entries from both ends": (x[:, :x.shape[1] // 2], x[:, ::-1][:, :x.shape[1] // 2]),
             "one round and the next": (x[1:], x[:-1]),
             "one round and the last": (x[:len(x) // 2], x[::-1][:len(x) // 2])}
    return {name: float((a * b).sum() / math.sqrt(a.size)) for name, (a, b) in pairs.items()
            if a.size >= 100}


def audit_law(mechanism: Mechanism, seconds: float, found: Findings, name: str) -> None:
    """Adds findings: whether noise has the charged distribution, and is independent.

    The mechanism has the noise of its preset, which is drawn for the given seconds.
    """
    event = mechanism.events(1)[-1][0]
    law = charged_law(event)
    if law is None:
        return
    rows, repeats = drawn(mechanism, seconds)
    values = rows.ravel()
    ratio, p = chi_square(values, law)
    found.found(f"{name}: law of the noise", p > ALARM, f"{values.size:,} draws, chi-square "
                f"{ratio:.3g} for each degree of freedom, p {p:.3g}")
    p, words = tail_p(values, law)
    found.found(f"{name}: tails of the noise", p > ALARM, f"{words or 'too few draws'}, p {p:.3g}")
    apart = correlations(rows)
    limit = float(-ndtri(ALARM / 2 / max(1, len(apart))))
    found.found(f"{name}: independence of the noise",
                all(abs(z) < limit for z in apart.values()),
                ", ".join(f"{what} {z:+.2f}" for what, z in apart.items())
                + f" standard deviations, at most {limit:.2f}")
    found.found(f"{name}: no random number is drawn twice", not repeats, f"{repeats} repeats")


UNITS, SAMPLED = 64, 16
"""number of units, and of sampled ones, for attacks on several rounds of secret draws"""
ROUNDS = 8
"""rounds of one transcript"""
LONGEST = 256
"""transcripts made at once"""
MOST_TRANSCRIPTS = 2**20
"""the most trials of each sum"""


def answers(mechanism: Mechanism, messages: np.ndarray, inputs: Array, key: Array) -> Array:
    """Returns the sum of one round, in which units answer as in a run: int32 [B, D].

    Args:
        mechanism: A mechanism whose schedule draws units in secret.
        messages: float32 [U, B, M].
        inputs: int32 [R, 1], from the schedule's sample of the round: the unit of each place, or
            whether each unit is counted.
    """
    sampled = mechanism.schedule.batch_capacity is not None
    units = inputs[:, 0] if sampled else jnp.arange(len(messages))
    said = jax.vmap(mechanism.contribution)(
        jax.random.split(key, len(inputs)), jnp.asarray(messages)[units], inputs)
    return mechanism.added(jnp.zeros(mechanism.shape, jnp.int32), said)


def transcripts(mechanism: Mechanism, messages: np.ndarray, seconds: float, most: int
                ) -> np.ndarray:
    """Returns the column of each unit in the releases of rounds in which sampled units answer.

    Args:
        mechanism: A mechanism whose schedule draws units in secret.
        messages: float32 [U, B, M]; unit i changes column i only.
        most: The most transcripts of the rounds of all units.

    Returns:
        float [n, `ROUNDS`, D], in integers of the grid, divided by the root of the number of rows
        B.
    """
    @jax.jit
    def block(inputs: Array, bits: Array) -> Array:
        def one(i: Array, out: Array) -> Array:
            total = answers(mechanism, messages, inputs[:, i], jax.random.key(i))
            value = mechanism.value(release(mechanism, bits[i], Private(total)))
            return out.at[i].set(value.sum(0) / math.sqrt(len(value)))

        return lax.fori_loop(0, len(bits), one, jnp.zeros((len(bits), mechanism.shape[1])))

    size = 4 * math.prod(mechanism.bits_shape) * ROUNDS
    n = max(1, min(LONGEST, most, 2**25 // size)) * ROUNDS
    made: list[np.ndarray] = []
    for _ in pairs.within(seconds, most=math.ceil(most * ROUNDS / n)):
        cohorts = mechanism.schedule.cohorts(OsBits(), 0, n)
        inputs = np.asarray(mechanism.private_inputs(OsBits(), cohorts, 0), np.int32)
        made.append(np.asarray(block(inputs, OsBits().draw((n, *mechanism.bits_shape)))))
    return np.concatenate(made).reshape(-1, ROUNDS, mechanism.shape[1])


def of_few_units(mechanism: SumMechanism, mu: float = 2.5) -> SumMechanism:
    """Returns the mechanism with a schedule of `UNITS` units, a quarter of them drawn in secret.

    A release in which the unit is known to be drawn has about this mu. Messages have one column for
    each unit, to save time.

    Raises:
        UserError: The schedule draws no unit in secret, or the bound does not clip vectors.
    """
    rows, columns = mechanism.shape[0], UNITS
    bound = dataclasses.replace(attacks.clipping(mechanism), columns=columns)
    sensitivity = math.sqrt(bound.squared_sensitivity())
    schedule = type(secret(mechanism))(UNITS, SAMPLED)
    return dataclasses.replace(
        mechanism, noise=attacks.gaussian_noise(mechanism.noise, sensitivity / mu), bound=bound,
        schedule=schedule, n_units=UNITS, shape=(rows, columns))


def secret(mechanism: Mechanism) -> PoissonSampling | FixedSizeSampling:
    """Returns the schedule of the mechanism, which must draw units in secret.

    Raises:
        UserError: It does not.
    """
    if isinstance(mechanism.schedule, PoissonSampling | FixedSizeSampling):
        return mechanism.schedule
    raise UserError(f"this attack is on secret draws, and the schedule of the mechanism is "
                    f"{type(mechanism.schedule).__name__}")


def audit_secret_draws(mechanism: SumMechanism, seconds: float, found: Findings, name: str) -> None:
    """Adds the attack on several rounds of secret draws.

    Each unit sends one of two opposite messages in a separate column. If units are drawn
    independently of each other, each is a trial; otherwise the first one is the only trial, and the
    others send nothing.
    """
    plain = dataclasses.replace(of_few_units(mechanism), decode=attacks.as_it_is)
    independent = isinstance(plain.schedule, PoissonSampling)
    trials = plain.n_units if independent else 1
    messages = spikes(plain, trials)
    add = jax.jit(pairs.adder(plain))
    lengths = [float(np.sum(np.asarray(add(jax.random.key(0), side[0]))))
               / math.sqrt(plain.shape[0]) for side in messages]
    sigma, rate = attacks.gaussian(plain.noise).sigma, SAMPLED / UNITS
    shifts = np.array(lengths) / sigma

    def scores(side: np.ndarray) -> np.ndarray:
        z = transcripts(plain, side, seconds / 2, MOST_TRANSCRIPTS // trials)[..., :trials] / sigma
        one, other = (np.log1p(rate * np.expm1(np.clip(z * shift - shift**2 / 2, -50, 50)))
                      for shift in shifts)
        return (one - other).sum(1).ravel()

    ones, zeros = (scores(side) for side in messages)
    n = min(len(zeros), len(ones))
    attacks.judge(
        found, f"{name}: {ROUNDS} rounds of {type(plain.schedule).__name__}",
        plain.events(ROUNDS), attacks.Scores(zeros[:n], ones[:n]),
        f"{SAMPLED} of {UNITS} units drawn, mu {shifts[0] - shifts[1]:.3g} where "
        f"it is known who, {trials} trials a transcript")


def spikes(mechanism: Mechanism, units: int) -> np.ndarray:
    """Returns messages float32 [2, U, B, M]; those of unit i are in column i only.

    The bound clips rows, and messages have a column for each unit. `units` of them send non-zero
    messages.
    """
    rows, columns = mechanism.shape
    one = np.zeros((mechanism.n_units, rows, columns), np.float32)
    one[units:] = np.nan
    one[np.arange(units), :, np.arange(units)] = pairs.HUGE * attacks.clipping(mechanism).clip
    left_out = mechanism.bound.relation == Relation.ZERO_OUT
    return np.stack([one, np.full_like(one, np.nan) if left_out else -one])


def frequencies(mechanism: Mechanism, seconds: float, found: Findings, name: str, alarm: float
                ) -> None:
    """Adds findings: whether units are drawn as often as charged, and all equally often."""
    schedule, units = secret(mechanism), mechanism.n_units
    counts, rounds, n = np.zeros(units), 0, max(1, min(64, 2**22 // units))
    for _ in pairs.within(seconds):
        participation = schedule.participation(OsBits(), units, 0, n)
        if schedule.batch_capacity is None:
            counts += (participation > 0).sum(1)
        else:
            counts += np.bincount(participation[participation >= 0], minlength=units)
        rounds += n
    rate = getattr(schedule, "rate", None) or schedule.expected_answers(units) / units
    spread = rounds * rate * (1 - rate)
    total = float((counts - rounds * rate).sum() / math.sqrt(spread * units))
    each = float(((counts - rounds * rate)**2 / spread).sum())
    # Of a binomial number with few expected hits the fourth moment is larger than of a normal one.
    slack = math.sqrt(1 + 1 / (2 * spread))
    most = units + 1.2 * slack * (float(chi2.isf(alarm / 2, units)) - units)
    fixed = schedule.batch_capacity is None
    found.found(
        f"{name}: how often units are drawn",
        (abs(total) < 1e-6 if fixed else abs(total) < -ndtri(alarm / 4)) and each < most,
        f"{rounds} rounds of {units} units: in all {total:+.2f} standard deviations from the law, "
        f"among units a sum of squares of {each:.4g}, at most {most:.4g}")


LINEAR = {"GridMean", "Mean", "function"}
"""types of decoders that lose no information of a noisy sum"""
LIMITS = (
    "what two sums that were not tried would show: a certified number is a lower bound",
    "bits of the operating system that are not random: the audit draws from the same source",
    "what happens before the mechanism: which unit has which record, and what units keep")


def of_preset(target: Target, seconds: float, log: Log) -> Report:
    """Attacks the mechanism of a configuration, for data of the preset's schema and size.

    Raises:
        UserError: An invalid configuration or budget.
    """
    require_32_bits()
    found, method, config, preset = Findings(log), target.method, target.config, target.preset
    if isinstance(config, RecordUnits) and config.records is None:
        config = with_records(config, preset.records)
    config = complete(method, config, preset.spec, target.budget)
    curves = of_config(method, config, preset.spec, preset.records, seconds, found)
    facts = {"method": method, "config": to_json(config), "epsilon": target.epsilon,
             "delta": target.delta, "seconds": seconds}
    return Report(subject=f"the mechanism of {method}", findings=tuple(found.made), limits=LIMITS,
                  facts=facts, curves=curves)


def of_config(method: str, config: Any, spec: Spec, records: int, seconds: float,
              found: Findings) -> Json:
    """Adds all attacks on the mechanism of a complete configuration and number of records.

    Returns trade-off curves for the picture.
    """
    phases = distinct(methods.get(method).build(config, spec, Runtime()))
    curves: Json = {}
    for i, phase in enumerate(phases):
        name = method if len(phases) == 1 else f"{method}, round {i + 1}"
        refused = promises_nothing(config, phase.mechanism)
        if refused:
            found.add(name, Verdict.UNCHECKED, refused)
            continue
        shape = message_shape(phase, spec, records)
        made = of_mechanism(phase.mechanism, shape, seconds / len(phases), found, name, i > 0)
        curves = curves or made
    return curves


def distinct(method: Method) -> list[Method]:
    """Returns the method, or those of its phases that bound messages differently."""
    kept: list[Method] = []
    for phase in method.phases or (method,):
        if all(phase.mechanism.bound != other.mechanism.bound for other in kept):
            kept.append(phase)
    return kept


def promises_nothing(config: MethodConfig, mechanism: Mechanism) -> str:
    """Returns why a mechanism has no promise to attack; empty if it has one."""
    if config.accounting != "proven":
        return "accounting as published: no epsilon is promised"
    if isinstance(mechanism.noise, NoNoise):
        return "there is no noise, and no epsilon is promised"
    return ""


def message_shape(method: Method, spec: Spec, records: int) -> tuple[int, int]:
    """Returns (B, M), the shape of an unbounded message of a method or one of its phases."""
    m = max(1, records // method.mechanism.n_units)

    def answer() -> jax.Array:
        key = jax.random.key(0)
        records_of_one = Records(jnp.zeros((m, *spec.shape), spec.dtype), jnp.zeros(m, jnp.int32))
        return method.answer(key, method.init_unit(key), records_of_one,
                             method.ask(key, method.init(key)))

    rows, columns = jax.eval_shape(answer).shape
    return rows, columns


def of_mechanism(mechanism: Mechanism, shape: tuple[int, int], seconds: float, found: Findings,
                 name: str, further: bool = False) -> Json:
    """Adds all attacks on one mechanism; returns trade-off curves for the picture.

    Args:
        shape: (B, M) of a message, before it is bounded.
        seconds: The approximate time for everything.
        further: Whether it is a later phase of a method, with the noise of the first: then only its
            sensitivity and its noisy sum are attacked.
    """
    mechanism = attacks.attackable(mechanism)
    pair = pairs.search(mechanism, shape, 0.1 * seconds, np.random.default_rng())
    attacks.sensitivity(mechanism, pair, found, name)
    if isinstance(mechanism, ConfidentGNMax):
        events, scores = attacks.confident(mechanism, 0.6 * seconds, found, name)
        what = "answers"
    else:
        post_processed = type(mechanism.decode).__name__ not in LINEAR
        events, scores = attacks.noisy_sum(mechanism, pair, (0.8 if further else 0.35) * seconds,
                                           found, name)
        what = "noisy sum"
        if further:
            return {}
        if post_processed:
            attacks.decoded(mechanism, pair, 0.2 * seconds, found, name)
        if isinstance(mechanism, SumMechanism) and isinstance(
                mechanism.schedule, PoissonSampling | FixedSizeSampling):
            audit_secret_draws(mechanism, 0.2 * seconds, found, name)
            frequencies(mechanism, 0.05 * seconds, found, name, ALARM)
        attacks.own_noise(mechanism, pair, 0.15 * seconds, found, name)
    audit_law(mechanism, 0.1 * seconds, found, name)
    return {f"{what}: promised": attacks.promised(events),
            f"{what}: certified (95 %)": scores.curve()}
