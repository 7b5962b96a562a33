"""Who is protected by a run, which unit gets whose records, and what of the data may be public."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from dpgen_jax.accountant import calibrate
from dpgen_jax.aggregation.bits import OsBits, SeededBits
from dpgen_jax.core.config import Budget
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.subjects import Subjects
from dpgen_jax.core.terms import Unit
from dpgen_jax.core.types import Method, UserError
from dpgen_jax.data import Dataset
from dpgen_jax.data import clients as federations
from dpgen_jax.methods.shared.config import MethodConfig
from dpgen_jax.private import partition
from dpgen_jax.release import guarantee
from dpgen_jax.release.statement import Protected
from dpgen_jax.run import side_releases


def federated(data: Dataset, config: MethodConfig, clients: int | None = None,
              alpha: float | None = None) -> tuple[Dataset, MethodConfig]:
    """The data set and the configuration of a federated run; both as they are for any other.

    Clients that the data set names stay. Otherwise as many as `clients` says (or the configuration,
    where units are always clients) are simulated: evenly, by the run's secret key, or by class with
    shares from Dirichlet(alpha).

    Args:
        data: The data set.
        config: The method's configuration.
        clients: The number of clients to simulate, or None.
        alpha: How alike the simulated clients are, or None for an even split.

    Returns:
        The data set with its clients, and the configuration with their number.

    Raises:
        UserError: Clients that this method or data set cannot have.
    """
    if data.subjects is not None and config.protects_clients:
        return data, config  # `refuse_subjects` names the method
    if not config.protects_clients:
        if clients is not None or alpha is not None:
            raise UserError("--clients and --alpha need --federated, and a method that has it")
        return data, config
    if config.units_are_clients and clients is None and data.clients is None:
        clients = config.n_clients
    if data.clients is not None and not data.simulated:
        data = federations.with_declared_clients(data, clients, alpha)
    elif data.clients is None and alpha is not None:
        data = federations.split(data, clients, alpha, seed=0)
    if data.clients is not None:
        return data, config.with_clients(int(data.clients.max()) + 1)
    count = federations.client_count(data, clients)
    note = f"{count} simulated clients: records are dealt evenly, by a secret key"
    return (dataclasses.replace(data, notes=(*data.notes, note)),
            config.with_clients(count))


def protected(method: Method, data: Dataset) -> Protected:
    """Who is protected: records, also those of simulated clients, or clients, or subjects.

    The numbers of records of protected clients and subjects are private.

    Args:
        method: The method.
        data: The data set.

    Returns:
        Who is protected, and what is public.

    Raises:
        UserError: The records cannot be split between the units.
    """
    units, records = method.mechanism.n_units, {"records": len(data.y_train)}
    uncovered, bought = tuple(part.what for part in data.uncovered), bought_from(data)
    if data.subjects is not None:
        partition.check(data.count, units, "subjects")
        return protected_subjects(data.subjects, data.notes, uncovered)
    if method.mechanism.unit == "record":
        partition.check(len(data.y_train), units)
        return Protected("record", records, data.notes, uncovered, data.simulated,
                         bought_from=bought)
    if data.clients is not None:
        if int(data.clients.max()) + 1 != units:
            raise UserError(f"{data.name} does not name {units} clients; pass --clients N")
        partition.by_client(data.clients, units, 1)  # refuses a client without records
        if not data.simulated:
            return Protected("client", {"clients": units}, data.notes, uncovered)
    return Protected("record", records | {"simulated_clients": units}, data.notes, uncovered,
                     data.simulated, bought_from=bought)


def bought_from(data: Dataset) -> Json:
    """Says how many records the description of the data was bought from, as a statement has it.

    They are all records of the file, those that are held out for tests among them, or those of
    another file.

    Args:
        data: The data set.

    Returns:
        `records`, their number, and `held_out`, how many of them are held out, where the numbers
        say that they are those of this data set; empty where nothing was bought at the level of
        records, or no number was noted.
    """
    records = side_releases.records(data.bought)
    if not records or data.bought_unit != Unit.RECORD:
        return {}
    these = records == len(data.y_train) + data.held_out
    return {"records": records} | ({"held_out": data.held_out} if these else {})


def protected_subjects(subjects: Subjects, notes: tuple[str, ...] = (),
                       uncovered: tuple[str, ...] = ()) -> Protected:
    """Says that subjects are protected.

    Args:
        subjects: The subjects.
        notes: Notes on the data.
        uncovered: Public facts that were read from private records.
    """
    return Protected(Unit.SUBJECT, {"subjects": subjects.count}, notes, uncovered,
                     unit_column=subjects.column, rows_per_unit=subjects.rows)


def owners(data: Dataset, who: Protected) -> np.ndarray | None:
    """Returns the client or subject of each training record, where such are protected.

    Args:
        data: The data set.
        who: Who is protected.

    Returns:
        int [n]; None where each record is protected by itself, as those of simulated clients are.
    """
    if data.subjects is not None:
        return data.subjects.train
    return data.clients if who.unit == Unit.CLIENT else None


def refuse_subjects(method: str, config: MethodConfig, data: Dataset) -> None:
    """Refuses subjects where a run is not proven to protect all rows of one.

    Args:
        method: The name of the method.
        config: Its configuration.
        data: The data set.

    Raises:
        UserError: The method is not proven for subjects, or a side release covers records alone.
    """
    if data.subjects is None:
        return
    flag = f"--unit {data.subjects.column}"
    if not config.protects_subjects or config.protects_clients:
        raise UserError(f"{flag}: {method} is not proven to protect all rows of a unit; take "
                        "another method, or leave the option out and protect single records")
    if data.clients is not None:
        raise UserError(f"{flag}: {data.name} has clients; leave the option out")
    if data.bought:
        raise UserError(f"{flag}: entries of the schema were bought at the level of single rows, "
                        "which does not cover all rows of a unit; declare them")


def refuse_uncovered(data: Dataset, budget: Budget, seed: int | None) -> None:
    """Refuses public fields that were read from private records, unless nothing is promised anyway.

    Args:
        data: The data set.
        budget: The budget; an infinite epsilon promises nothing.
        seed: The seed of the noise; one promises nothing.

    Raises:
        UserError: One line that names the fields.
    """
    if data.uncovered and seed is None and math.isfinite(budget.epsilon):
        ways: dict[str, list[str]] = {}
        for part in data.uncovered:
            ways.setdefault(part.declare, []).append(part.what)
        what = ". ".join(f"{'; '.join(parts)} (declare {'them' if parts[1:] else 'it'}: {way})"
                         for way, parts in ways.items())
        raise UserError(f"{data.name}: this would be published, and no epsilon covers it: {what}. "
                        "Declare it from what is known without the records, or pass "
                        "--accept-uncovered, and the statement will say `not covered`")


def dealt(method: Method, config: MethodConfig, data: Dataset, key: bytes) -> partition.Partition:
    """Splits the records between the units.

    Args:
        method: The method.
        config: Its configuration.
        data: The data set.
        key: The run's secret key.

    Returns:
        Which unit has which record.
    """
    units, n = method.mechanism.n_units, len(data.y_train)
    if data.subjects is not None:
        return partition.by_subject(data.subjects, data.x_train, data.y_train, units, key)
    if method.mechanism.unit == "record":
        return partition.assign(n, units, key)
    if data.clients is None:
        return partition.simulated(n, units, key, config.client_records)
    return partition.by_client(data.clients, units, config.client_records)


def slots(method: Method, config: MethodConfig, data: Dataset) -> int:
    """Returns the places for records that all units have in `dealt`, by public numbers but for n.

    Args:
        method: The method.
        config: Its configuration.
        data: The data set.
    """
    units, n = method.mechanism.n_units, len(data.y_train)
    if data.subjects is not None:
        return units * -(-data.count // units) * data.subjects.rows
    if method.mechanism.unit == "record":
        return units * -(-n // units)
    return units * config.client_records


def stamp(budget: Budget, seed: int | None, config: MethodConfig, who: Protected
          ) -> guarantee.Guarantee:
    """The guarantee that a run will be able to state, as far as that is known before it.

    Args:
        budget: The budget.
        seed: The seed of the noise, or None.
        config: The method's configuration.
        who: Who is protected.

    Returns:
        The guarantee, without its relation.
    """
    noise = OsBits.label if seed is None else SeededBits.label
    return guarantee.stamped("", guarantee.faults(
        budget.epsilon, noise, config.accounting, who.simulated), who.uncovered)


def warnings(budget: Budget, seed: int | None, config: MethodConfig, who: Protected
             ) -> tuple[str, ...]:
    """Lines about the guarantee for a terminal, before anything is spent.

    Args:
        budget: The budget.
        seed: The seed of the noise, or None.
        config: The method's configuration.
        who: Who is protected.

    Returns:
        One line each; none where all is well.

    Raises:
        UserError: A budget that is no protection.
    """
    known = stamp(budget, seed, config, who)
    lines = [] if known.kind == "valid" else [f"guarantee: {known.text}"]
    if math.isfinite(budget.epsilon):
        n = next(iter(who.counts.values()))
        lines += calibrate.check_budget(budget.epsilon, budget.delta, n)
    return tuple(lines)
