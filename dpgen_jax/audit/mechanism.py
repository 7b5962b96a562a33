"""The audit of a mechanism: many releases of two neighbouring sums, and who can tell them apart.

The mechanism is the object that a run would build, and releases go through the door that a run
has. What is attacked is its declared sensitivity, its releases, its secret draws and its noise.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax import methods
from dpgen_jax.aggregation.confident_gnmax import ConfidentGNMax
from dpgen_jax.aggregation.mechanism import Mechanism, SumMechanism
from dpgen_jax.aggregation.sampling import FixedSizeSampling, PoissonSampling
from dpgen_jax.audit import attacks, law, lowered, pairs, secret_draws
from dpgen_jax.audit.findings import ALARM, Findings, Log, Report, Verdict
from dpgen_jax.audit.target import Target
from dpgen_jax.core.config import Runtime, to_json
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import Method, Records, Spec
from dpgen_jax.methods.shared.config import MethodConfig, RecordUnits
from dpgen_jax.run.calibrate_config import complete, with_records
from dpgen_jax.run.loop import require_32_bits

LINEAR = {"GridMean", "Mean", "function"}
"""types of decoders that lose nothing of a noisy sum"""
LIMITS = (
    "what two sums that were not tried would show: a certified number is a lower bound",
    "bits of the operating system that are not random: the audit draws from the same source",
    "what happens before the mechanism: which unit has which record, and what units keep")


def of_preset(target: Target, seconds: float, log: Log) -> Report:
    """Attacks the mechanism of a configuration.

    Args:
        target: The method and its promise; its preset has the schema of the data and the number of
            records.
        seconds: How long it is attacked.
        log: Prints a line of the audit.

    Returns:
        The report.

    Raises:
        UserError: A configuration or a budget that means nothing.
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
    """Adds all attacks on the mechanism of a complete configuration.

    Args:
        method: The name of the method.
        config: Its configuration.
        spec: The schema of the records.
        records: How many there are, about.
        seconds: How long it is attacked.
        found: Where findings are added.

    Returns:
        Trade-off curves for the picture.
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
    """Returns the method, or its phases, of which each bounds messages in its own way."""
    kept: list[Method] = []
    for phase in method.phases or (method,):
        if all(phase.mechanism.bound != other.mechanism.bound for other in kept):
            kept.append(phase)
    return kept


def promises_nothing(config: MethodConfig, mechanism: Mechanism) -> str:
    """Returns why a mechanism promises nothing that could be attacked; empty where it does."""
    if config.accounting != "proven":
        return "accounting as published: no epsilon is promised"
    if lowered.silent(mechanism):
        return "there is no noise, and no epsilon is promised"
    return ""


def message_shape(method: Method, spec: Spec, records: int) -> tuple[int, int]:
    """Returns (B, M) of what a unit answers, before it is bounded.

    Args:
        method: The method, or a phase of it.
        spec: The schema of the records.
        records: How many there are.
    """
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
    """Adds all attacks on one mechanism.

    Args:
        mechanism: The mechanism.
        shape: (B, M) of a message, before it is bounded.
        seconds: How long all of it may take, about.
        found: Where findings are added.
        name: Of the mechanism.
        further: Whether it is a further phase of a method, with the noise of the first: then only
            its sensitivity and its noisy sum are attacked.

    Returns:
        Trade-off curves for the picture.
    """
    mechanism = lowered.attackable(mechanism)
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
            secret_draws.audit(mechanism, 0.2 * seconds, found, name)
            secret_draws.frequencies(mechanism, 0.05 * seconds, found, name, ALARM)
        attacks.own_noise(mechanism, pair, 0.15 * seconds, found, name)
    law.audit(mechanism, 0.1 * seconds, found, name)
    return {f"{what}: promised": attacks.promised(events),
            f"{what}: certified (95 %)": scores.curve()}
