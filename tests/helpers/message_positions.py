"""A unit's message, wherever it lies: in each place of a draw, or in each row of the stacked units,
in any chunk and beside whomever. One compiled program sums; who lies where is data."""

from __future__ import annotations

import dataclasses

import as_in_a_run
import jax
import jax.numpy as jnp
import numpy as np
import small_datalens
import test_battery

from dpgen_jax.core.types import Method, Private, Records, unseal
from dpgen_jax.private import records, teachers

CHUNK, TRIALS = 3, 6


def sampled_sums(method: Method, x, y, query, rng) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pairs (the sum of drawn units in places by chance, what it should be)."""
    where = as_in_a_run.layout(method, CHUNK)
    add, places = as_in_a_run.summed(method, where), where.padded
    units = teachers.stack(method, jax.random.key(3), where)
    own = Private(Records(jnp.asarray(x[:, None]), jnp.asarray(y[:, None], jnp.int32)))

    def total(at: dict[int, int]):
        participation = np.full((places, 1), -1, np.int32)
        for place, unit in at.items():
            participation[place] = unit
        return add(units, own, participation, query)

    alone = np.stack([total({0: unit}) for unit in range(len(x))])
    found = [(total({place: 5}), alone[5]) for place in range(places)]
    for trial in range(TRIALS):
        counted = rng.permutation(len(x))[:min(places, 3 + 2 * trial)]
        spots = rng.permutation(places)[:len(counted)]
        found.append((total(dict(zip(spots, counted, strict=True))), alone[counted].sum(0)))
    return found


def stacked(method: Method, x, y, query, rng) -> list[tuple[np.ndarray, np.ndarray]]:
    """The same of units that keep their records and are laid in any order."""
    where = as_in_a_run.layout(method, CHUNK)
    add = as_in_a_run.summed(method, where)
    deal = records.assign(len(x), where.n_units, small_datalens.KEY).index
    deal = np.concatenate([deal, deal[:where.padded - len(deal)]])
    units = jax.device_get(unseal(teachers.stack(method, jax.random.key(3), where)))

    def total(order, counted):
        """order: which unit lies in which row; only those of `heard` count."""
        ids = np.where(np.isin(order, counted), order, where.n_units).astype(np.int32)
        moved = dataclasses.replace(jax.tree.map(lambda a: a[order], units), id=ids)
        index = deal[order]
        own = Private(Records(jnp.asarray(x[index]), jnp.asarray(y[index], jnp.int32)))
        return add(Private(moved), own, np.zeros((where.padded, 0), np.int32), query)

    usual = np.arange(where.padded)
    alone = np.stack([total(usual, [unit]) for unit in range(where.n_units)])
    found = [(total(np.roll(usual, by), [1]), alone[1]) for by in range(where.padded)]
    for trial in range(TRIALS):
        counted = rng.permutation(where.n_units)[:1 + trial % where.n_units]
        found.append((total(rng.permutation(where.padded), counted), alone[counted].sum(0)))
    return found


def differing(name: str) -> int:
    """Entries that differ, over all trials, of a method of `test_battery`."""
    method, _, query = test_battery.built(name)
    places = method.mechanism.schedule.batch_capacity is not None
    pairs = (sampled_sums if places else stacked)(method, *test_battery.neighbours(name)[0], query,
                                                  np.random.default_rng(0))
    assert any(np.any(wanted) for _, wanted in pairs), "nobody says anything"
    return int(sum(np.sum(got != wanted) for got, wanted in pairs))
