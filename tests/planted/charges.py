"""Faults in what is charged, and when."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from dpgen_jax.accountant.events import Event, Events
from dpgen_jax.accountant.ledger import Account, Record
from dpgen_jax.aggregation import single_releases
from dpgen_jax.aggregation.bound import Bound
from dpgen_jax.aggregation.noise import BitSource, SeededBits
from dpgen_jax.aggregation.schedule import (
    FixedSizeSampling,
    FullParticipation,
    PoissonSampling,
    PublishedSampling,
    RoundRobin,
)
from dpgen_jax.aggregation.teacher_votes import ConfidentGNMax
from dpgen_jax.core.run_folder import write_json
from dpgen_jax.core.terms import Relation
from dpgen_jax.private import records as sealing
from dpgen_jax.run import loop, side_releases
from planted.catalogue import fault
from planted.planting import replaced


@fault("ledger by hand")
def batch_not_composed() -> Iterator[None]:
    """A round answers one query for each fake and coordinate, and is charged for one."""
    def events(self: ConfidentGNMax, steps: int) -> Events:
        return self._events(steps, steps)

    with replaced(ConfidentGNMax, "events", events):
        yield


@fault("ledger by hand")
def rounds_not_composed() -> Iterator[None]:
    """All rounds of a run are charged as one."""
    with replaced(FullParticipation, "max_participations", lambda self, rounds: 1):
        yield


@fault("ledger by hand")
def visits_of_a_rotation_rounded_down() -> Iterator[None]:
    """The cohort that is visited most is charged for one visit less."""
    with replaced(RoundRobin, "max_participations",
                  lambda self, rounds: max(1, rounds // self.n_cohorts - 1)):
        yield


@fault("ledger in a crash")
def charge_after_the_draw() -> Iterator[None]:
    """Noise is drawn first, and charged when the block is done."""
    def run_block(job: loop.Job, block: Any, records: Any, state: loop.State, n: int,
                  listener: loop.Listener) -> loop.State:
        mechanism, ledger = job.method.mechanism, job.ledger
        first = ledger.steps_charged
        secrets = loop.draw(mechanism, job.layout, job.bits, first, n, job.longest)
        public, units, *_ = block(state.public, state.units, records, *secrets, state.key,
                                  state.step, n)
        charged = mechanism.pending_charge(ledger.spent(), first, n)
        ledger.settle(ledger.reserve(charged, n), charged, n)
        return dataclasses.replace(state, public=public, units=units, step=state.step + n)

    with replaced(loop, "_run_block", run_block):
        yield


@fault("ledger in a crash")
def lost_turn_is_free() -> Iterator[None]:
    """A block that a crash cut off is taken back when the run goes on."""
    def opened(self: Account, record: Record) -> None:
        for steps, events in self.pending.values():
            self._charge(-steps, events, sign=-1)
        usual(self, record)

    usual = Account._open
    with replaced(Account, "_open", opened):
        yield


@fault("run audit")
def settled_above_what_was_answered() -> Iterator[None]:
    """A settlement gives back half of the queries that were answered."""
    def actual_charge(self: ConfidentGNMax, answered: np.ndarray, charged: Events) -> Events:
        return self._events(answered.size, int(answered.sum()) // 2)

    with replaced(ConfidentGNMax, "actual_charge", actual_charge):
        yield


@fault("run audit")
def class_counts_without_a_charge() -> Iterator[None]:
    """Noisy class counts are made and written, and the ledger never hears of them."""
    def class_counts(files: Any, ledger: Any, counted: side_releases.Counted, epsilon: float,
                     bits: BitSource, log: Any) -> Any:
        noisy = single_releases.class_counts(
            sealing.labels(counted.records, counted.dealt), counted.spec.classes, epsilon, bits,
            counted.rows_per_unit)
        write_json(files.class_counts, {"epsilon": epsilon, "counts": [int(c) for c in noisy]})
        return tuple(noisy)

    with replaced(side_releases, "class_counts", class_counts):
        yield


@fault("secret draws")
def public_draws_charged_as_secret() -> Iterator[None]:
    """Samples are made of the number of the round, which anybody knows, and charged as secret."""
    def participation(self: FixedSizeSampling, source: BitSource, n_units: int, first: int, n: int
                      ) -> np.ndarray:
        return usual(self, SeededBits(first), n_units, first, n)

    usual = FixedSizeSampling.participation
    with replaced(FixedSizeSampling, "participation", participation):
        yield


@fault("secret draws")
def fixed_size_charged_as_poisson() -> Iterator[None]:
    """Every sample has the size that a Poisson sample has on average."""
    def participation(self: PoissonSampling, source: BitSource, n_units: int, first: int, n: int
                      ) -> np.ndarray:
        bits = source.draw((n, n_units))
        places = np.full((self.batch_capacity, n), -1, np.int32)
        size = round(self.expected)
        places[:size] = np.argsort(bits, axis=1)[:, :size].T
        return places

    with replaced(PoissonSampling, "participation", participation):
        yield


@fault("ledger by hand")
def add_or_remove_charged_as_replace_one() -> Iterator[None]:
    """The cost of a record that is left out stands for that of a record that is replaced."""
    def event(self: PoissonSampling, release: Event, bound: Bound) -> Event:
        charged: Any = usual(self, release, bound)
        return dataclasses.replace(charged, relation=Relation.ZERO_OUT)

    usual = PoissonSampling.event
    with replaced(PoissonSampling, "event", event):
        yield


@fault("ledger by hand")
def published_draw_charged_as_proven() -> Iterator[None]:
    """The schedule of GS-WGAN, of which nothing is proven, costs what its release costs."""
    with replaced(PublishedSampling, "event", lambda self, release, bound: release):
        yield

