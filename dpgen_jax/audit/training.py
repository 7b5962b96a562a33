"""The audit of a whole training in one run: canaries, and guesses from all that is public.

The method's own mechanism, compiled loop, ledger and bits of the operating system are used. What is
released in each round adds to the likelihood of each coin, and the coins are guessed in the end.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import jax
import numpy as np

from dpgen_jax import methods
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.bits import OsBits
from dpgen_jax.audit import guesses
from dpgen_jax.audit.canaries import Canaries, chosen, most
from dpgen_jax.audit.findings import Findings, Log, Report, Verdict
from dpgen_jax.audit.mechanism import message_shape, promises_nothing
from dpgen_jax.audit.target import Target
from dpgen_jax.core.at_most import at_most
from dpgen_jax.core.config import Runtime, to_json
from dpgen_jax.core.types import Method, Private, Records
from dpgen_jax.data import Dataset
from dpgen_jax.methods.shared.config import MethodConfig
from dpgen_jax.private import partition, teachers
from dpgen_jax.private import records as sealing
from dpgen_jax.run import capacity, loop
from dpgen_jax.run.calibrate_config import complete, with_records

LIMITS = (
    "what other canaries would show: a certified number is a lower bound",
    "pretraining and post-training, which read no private value or no released one",
    "bits of the operating system that are not random: the audit draws from the same source")


def of_dataset(target: Target, dataset: Dataset, canaries: int, log: Log) -> Report:
    """Trains once on records with canaries, and certifies what their guesses tell.

    Args:
        target: The method and its promise.
        dataset: The records.
        canaries: How many canaries are put among the records.
        log: Prints a line of the audit.

    Returns:
        The report.

    Raises:
        UserError: More canaries than units.
    """
    loop.require_32_bits()
    method, epsilon, delta, found = target.method, target.epsilon, target.delta, Findings(log)
    config, built, shapes = prepared(target, dataset)
    facts = {"method": method, "config": to_json(config), "epsilon": epsilon, "delta": delta,
             "dataset": dataset.name, "canaries": canaries}
    mechanism = built.mechanism
    if refused := promises_nothing(config, mechanism):
        found.add(method, Verdict.UNCHECKED, refused)
    else:
        rng = np.random.default_rng()
        made = chosen(built, shapes, dataset.spec.classes, canaries, rng)
        law = guesses.Law.of(made, config.planned_steps)
        guessed, ledger = trained(made, dataset, config, epsilon, delta, rng)
        guesses.judge(found, law, guessed, mechanism.events(config.planned_steps), delta, method)
        found.found(f"{method}: what was charged", ledger <= epsilon and np.isfinite(ledger),
                    f"epsilon {at_most(ledger, 4)} of {at_most(epsilon)}, in "
                    f"{config.planned_steps} steps")
    return Report(subject=f"a training of {method} with {canaries} canaries", limits=LIMITS,
                  findings=tuple(found.made), facts=facts)


def prepared(target: Target, dataset: Dataset
             ) -> tuple[MethodConfig, Method, list[tuple[int, int]]]:
    """Returns the complete configuration, the method, and (B, M) of a message of each phase.

    Args:
        target: The method and its promise.
        dataset: The records.
    """
    config = complete(target.method, with_records(target.config, dataset.count), dataset.spec,
                      target.budget)
    built: Method = methods.get(target.method).build(config, dataset.spec, Runtime())
    return config, built, [message_shape(phase, dataset.spec, dataset.count)
                           for phase in built.phases or (built,)]


def room(target: Target, dataset: Dataset) -> int:
    """Returns how many canaries have a unit of their own, and a coordinate where they need one."""
    _, built, shapes = prepared(target, dataset)
    return most(built, shapes)


def trained(made: Canaries, dataset: Dataset, config: MethodConfig, epsilon: float,
            delta: float, rng: np.random.Generator) -> tuple[guesses.Guesses, float]:
    """Trains once through the real loop.

    Args:
        made: The canaries.
        dataset: The records.
        config: The method's complete configuration.
        epsilon: The promise.
        delta: Of the same promise.
        rng: Of the coins and the dealing.

    Returns:
        The coins and what was released of them, and the epsilon of the ledger.
    """
    method = made.watched()
    n, u = dataset.count, method.mechanism.n_units
    dealt = partition.assign(n, u, rng.bytes(32))
    coins = rng.integers(0, 2, len(made.units))
    y = np.array(dataset.y_train, np.int32)
    first = dealt.index[:, 0]  # of the records of each unit
    y[first] = made.labels(y[first], coins)
    layout = capacity.choose_layout(method, Runtime())
    sealed = sealing.deal(Private(Records(np.asarray(dataset.x_train), y)),  # type: ignore
                          dealt, layout.dealt_units)
    placed = teachers.place(sealed, layout)
    state = loop.initial_state(method, jax.random.key(int(rng.integers(2**32))), layout)
    with tempfile.TemporaryDirectory() as folder, Ledger.create(
            Path(folder) / "ledger.jsonl", {"epsilon": epsilon, "delta": delta}) as ledger:
        job = loop.Job(method, layout, ledger, OsBits())
        state = loop.train(job, placed, state, config.planned_steps)
        return guesses.Guesses(coins, np.asarray(state.public.ratio)), ledger.epsilon()


