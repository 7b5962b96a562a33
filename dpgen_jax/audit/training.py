"""The audit of a whole training in one run: canaries, and guesses from all that is public.

The method's own mechanism, compiled loop, ledger and bits of the operating system are used. What is
released in each round adds to the likelihood of each coin, and the coins are guessed in the end.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dpgen_jax import data, methods
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.bits import OsBits
from dpgen_jax.aggregation.laplace import DiscreteLaplace
from dpgen_jax.audit import guesses
from dpgen_jax.audit.canaries import Canaries, chosen
from dpgen_jax.audit.findings import Findings, Log, Report, Verdict
from dpgen_jax.audit.mechanism import message_shape, promises_nothing
from dpgen_jax.audit.target import Target
from dpgen_jax.core.config import Runtime, to_json
from dpgen_jax.core.data_options import DataOptions
from dpgen_jax.core.types import Private, Records, UserError
from dpgen_jax.methods.shared.config import MethodConfig
from dpgen_jax.private import partition, teachers
from dpgen_jax.private import records as sealing
from dpgen_jax.run import capacity, loop
from dpgen_jax.run.calibrate_config import complete, with_records

LIMITS = (
    "what other canaries would show: a certified number is a lower bound",
    "pretraining and post-training, which read no private value or no released one",
    "bits of the operating system that are not random: the audit draws from the same source")


def of_method(target: Target, place: str, options: DataOptions, canaries: int, log: Log) -> Report:
    """Trains once on records with canaries, and certifies what their guesses tell.

    Args:
        target: The method and its promise.
        place: The data set, as `data.load` takes it.
        options: How it is read.
        canaries: How many canaries are put among the records.
        log: Prints a line of the audit.

    Returns:
        The report.

    Raises:
        UserError: Data that cannot be read, more canaries than units, or Laplace noise.
    """
    loop.require_32_bits()
    dataset = data.load(place, **vars(options))
    method, epsilon, delta = target.method, target.epsilon, target.delta
    config = with_records(target.config, dataset.count)
    config = complete(method, config, dataset.spec, target.budget)
    built, found = methods.get(method).build(config, dataset.spec, Runtime()), Findings(log)
    facts = {"method": method, "config": to_json(config), "epsilon": epsilon, "delta": delta,
             "dataset": dataset.name, "canaries": canaries}
    mechanism: Any = built.mechanism
    if refused := promises_nothing(config, mechanism):
        found.add(method, Verdict.UNCHECKED, refused)
    else:
        if isinstance(mechanism.noise, DiscreteLaplace):
            raise UserError(f"{method} has Laplace noise with these settings, and its training is "
                            f"not audited; attack its mechanism: audit {method}")
        shapes = [message_shape(phase, dataset.spec, dataset.count)
                  for phase in built.phases or (built,)]
        rng = np.random.default_rng()
        made = chosen(built, shapes, dataset.spec.classes, canaries, rng)
        law = guesses.Law.of(made, config.planned_steps)
        guessed, ledger = trained(made, dataset, config, epsilon, delta, rng)
        guesses.judge(found, law, guessed, mechanism.events(config.planned_steps), delta, method)
        found.found(f"{method}: what was charged", ledger <= epsilon and np.isfinite(ledger),
                    f"epsilon {ledger:.4g} of {epsilon:g}, in {config.planned_steps} steps")
    return Report(subject=f"a training of {method} with {canaries} canaries", limits=LIMITS,
                  findings=tuple(found.made), facts=facts)


def trained(made: Canaries, dataset: data.Dataset, config: MethodConfig, epsilon: float,
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
    sealed = sealing.deal(Private(Records(np.asarray(dataset.x_train), y)), dealt)  # type: ignore
    placed = teachers.place(sealed, layout)
    state = loop.initial_state(method, jax.random.key(int(rng.integers(2**32))), layout)
    with tempfile.TemporaryDirectory() as folder, Ledger.create(
            Path(folder) / "ledger.jsonl", {"epsilon": epsilon, "delta": delta}) as ledger:
        job = loop.Job(method, layout, ledger, OsBits())
        state = loop.train(job, placed, state, config.planned_steps)
        return guesses.Guesses(coins, np.asarray(state.public.ratio)), ledger.epsilon()


