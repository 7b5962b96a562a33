"""Who is protected by a run, which unit gets whose records, and what of the data may be public."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from dpgen_jax import guarantee
from dpgen_jax.accountant import calibrate
from dpgen_jax.aggregation.bits import OsBits, SeededBits
from dpgen_jax.config import Budget
from dpgen_jax.data import Dataset
from dpgen_jax.data import clients as federations
from dpgen_jax.private import partition
from dpgen_jax.run.statement import Protected
from dpgen_jax.types import Method, UserError


def federated(data: Dataset, config: Any, clients: int | None = None, alpha: float | None = None
              ) -> tuple[Dataset, Any]:
    """The data set and the configuration of a federated run; both as they are for any other.

    Clients that the data set names stay. Else as many as `clients` says (or the configuration,
    where units are always clients) are simulated: evenly, by the run's secret key, or by class with
    shares drawn from Dirichlet(alpha). Errors: UserError.
    """
    if not config.protects_clients:
        if clients is not None or alpha is not None:
            raise UserError("--clients and --alpha need --federated, and a method that has it")
        return data, config
    if config.of_clients and clients is None and data.clients is None:
        clients = config.critics
    if data.clients is not None and not data.simulated:
        data = federations.named(data, clients, alpha)
    elif data.clients is None and alpha is not None:
        data = federations.split(data, clients, alpha, seed=0)
    if data.clients is not None:
        return data, dataclasses.replace(config, critics=int(data.clients.max()) + 1)
    count = federations.counted(data, clients)
    note = f"{count} simulated clients: records are dealt evenly, by a secret key"
    return (dataclasses.replace(data, notes=(*data.notes, note)),
            dataclasses.replace(config, critics=count))


def protected(method: Method, data: Dataset) -> Protected:
    """Who is protected: records, also those of simulated clients, or clients, whose own numbers of
    records are private then. Errors: UserError where the records cannot be dealt."""
    units, records = method.mechanism.n_units, {"records": len(data.y_train)}
    about = {"notes": data.notes, "uncovered": tuple(part.what for part in data.uncovered),
             "simulated": data.simulated}
    if method.mechanism.unit == "record":
        partition.check(len(data.y_train), units)
        return Protected("record", records, **about)
    if data.clients is not None:
        if int(data.clients.max()) + 1 != units:
            raise UserError(f"{data.name} does not name {units} clients; pass --clients N")
        partition.by_client(data.clients, units, 1)  # refuses a client without records
        if not data.simulated:
            return Protected("client", {"clients": units}, **about)
    return Protected("record", records | {"simulated_clients": units}, **about)


def refuse_uncovered(data: Dataset, budget: Budget, seed: int | None) -> None:
    """Errors: UserError, one line, where public fields were read from private records, unless
    nothing is promised anyway."""
    if data.uncovered and seed is None and math.isfinite(budget.epsilon):
        what = "; ".join(f"{part.what} (declare it: {part.declare})" for part in data.uncovered)
        raise UserError(f"{data.name}: this would be published, and no epsilon covers it: {what}. "
                        "Declare it from what is known without the records, or pass "
                        "--accept-uncovered, and the statement will say `not covered`")


def dealt(method: Method, config: Any, data: Dataset, key: bytes) -> partition.Partition:
    """Which unit holds which record."""
    units, n = method.mechanism.n_units, len(data.y_train)
    if method.mechanism.unit == "record":
        return partition.assign(n, units, key)
    if data.clients is None:
        return partition.simulated(n, units, key, config.client_records)
    return partition.by_client(data.clients, units, config.client_records)


def stamp(budget: Budget, seed: int | None, config: Any, who: Protected) -> guarantee.Guarantee:
    """What a run will be able to guarantee, as far as that is known before it."""
    noise = OsBits.label if seed is None else SeededBits.label
    return guarantee.stamped("", guarantee.faults(
        budget.epsilon, noise, config.accounting, who.simulated), who.uncovered)


def warnings(budget: Budget, seed: int | None, config: Any, who: Protected) -> tuple[str, ...]:
    """What a terminal says of the guarantee before anything is spent."""
    known = stamp(budget, seed, config, who)
    said = () if known.kind == "valid" else (f"guarantee: {known.text}",)
    if math.isfinite(budget.epsilon):
        n = next(iter(who.counts.values()))
        said += tuple(calibrate.check_budget(budget.epsilon, budget.delta, n))
    return said
