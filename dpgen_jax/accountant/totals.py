"""The running totals over the records of a ledger."""

from __future__ import annotations

import copy
import math
import operator
from typing import Any

from dpgen_jax.accountant import gaussian
from dpgen_jax.accountant.events import Event, Events, from_json, merge

LARGEST_COUNT = 2**53  # the most that a float counts without rounding
Record = dict[str, Any]


class Account:
    """Running totals over the records of a ledger; `apply` costs the same at any length.

    Attributes:
        header: The header, with epsilon as a float.
        target: The epsilon that may be spent now.
        incarnation: How often the run was resumed.
        processes: How many processes made the run, at the start that had most.
        steps: Rounds that are charged.
        next_id: The id of the next reservation.
        counts: Charged events and their counts.
        pending: Reservations that are open: id to (rounds, events).
        longest: Rounds of the longest reservation so far.
        largest: Of each event the largest count of any reservation so far.
        recovering: Whether the last record is a torn line.
        meaning: The hash of the configuration: the header's, or the one that was declared after
            purchases; empty until then.
    """

    def __init__(self) -> None:
        self.header: Record = {}
        self.target = 0.0
        self.incarnation, self.processes = 0, 1
        self.steps = 0
        self.next_id = 0
        self.counts: dict[Event, int] = {}
        self.pending: dict[int, tuple[int, Events]] = {}
        self.longest = 1  # steps of a reservation
        self.largest: Events = ()
        self.recovering = False  # the last record is a torn line
        self.meaning = ""

    def after(self, record: Record) -> Account:
        """Returns a copy with one more record, which raises as `apply`."""
        account = copy.copy(self)
        account.counts, account.pending = dict(self.counts), dict(self.pending)
        account.apply(record)
        return account

    def spent(self) -> Events:
        """Settled blocks as settled, all others in full, equal events added up."""
        return merge(tuple(self.counts.items()))

    def epsilon(self) -> float:
        """Epsilon of `spent` at the header's delta; inf after a release without noise."""
        return gaussian.epsilon(self.spent(), self.header["delta"])

    def claim(self) -> float:
        """The epsilon to state: the target, or what is charged where that is more.

        It may be more where a torn line was charged.
        """
        return max(self.target, self.epsilon())

    def apply(self, record: Record) -> None:
        """Adds one record to the totals.

        Args:
            record: The record of the next line.

        Raises:
            ValueError: It cannot come next; also KeyError and TypeError for a malformed one.
        """
        kind = record["kind"]
        if (kind == "header") == bool(self.header):
            raise ValueError("a header must come first, and once")
        kinds = {"header": self._header, "open": self._open, "reserve": self._reserve,
                 "settle": self._settle, "charge": self._release, "extend": self._extend,
                 "torn": self._torn, "declare": self._declare}
        kinds[kind](record)
        self.recovering = kind == "torn"

    def _header(self, record: Record) -> None:
        if not float(record["epsilon"]) > 0 or not 0 < record["delta"] < 1:
            raise ValueError("a header needs epsilon > 0 and 0 < delta < 1")
        self.target = float(record["epsilon"])
        self.header = {**record, "epsilon": self.target}
        self.meaning = str(record.get("config_hash", ""))
        self._start(record)

    def _start(self, record: Record) -> None:
        self.processes = max(self.processes, whole(record.get("processes", 1), 1))

    def _open(self, record: Record) -> None:
        if record["incarnation"] != self.incarnation + 1:
            raise ValueError(f"incarnation {record['incarnation']} after {self.incarnation}")
        self.incarnation += 1
        self._start(record)
        self.pending = {}  # lost steps stay charged: nobody may settle them any more

    def _reserve(self, record: Record) -> None:
        steps, events = whole(record["steps"], 1), from_json(record["events"])
        if record["id"] != self.next_id:  # events may be none: a rotation's first turns pay for all
            raise ValueError("a reservation needs the next id")
        self._charge(steps, events)
        self.pending[self.next_id] = (steps, events)
        self.next_id += 1
        self.longest, self.largest = max(self.longest, steps), larger_counts(self.largest, events)

    def _settle(self, record: Record) -> None:
        steps, events = whole(record["steps"], 0), from_json(record["events"])
        if record["id"] not in self.pending:
            raise ValueError(f"reservation {record['id']} is not open")
        largest, reserved = self.pending[record["id"]]
        allowed = dict(reserved)
        if steps > largest or any(count > allowed.get(event, 0) for event, count in events):
            raise ValueError(f"reservation {record['id']} settled for more than was reserved")
        del self.pending[record["id"]]
        self._charge(-largest, reserved, sign=-1)
        self._charge(steps, events)

    def _release(self, record: Record) -> None:
        events = from_json(record["events"])
        if not events:
            raise ValueError("a charge needs at least one event")
        self._charge(0, events)

    def _extend(self, record: Record) -> None:
        if not self.target < float(record["epsilon"]) < math.inf:
            raise ValueError(f"epsilon {record['epsilon']} does not extend {self.target:g}")
        self.target = float(record["epsilon"])

    def _declare(self, record: Record) -> None:
        if self.meaning or self.next_id or not record["config_hash"]:
            raise ValueError("a configuration is declared once, before the first round")
        self.meaning = str(record["config_hash"])

    def _torn(self, record: Record) -> None:
        self._charge(whole(record["steps"], 0), from_json(record["events"]))

    def _charge(self, steps: int, events: Events, sign: int = 1) -> None:
        self.steps += steps
        for event, count in events:
            self.counts[event] = self.counts.get(event, 0) + sign * count
        if max(self.steps, *self.counts.values(), 0) > LARGEST_COUNT:
            raise ValueError(f"more than {LARGEST_COUNT} steps or events")


def whole(value: Any, least: int) -> int:
    """Checks a number of rounds.

    Args:
        value: What a file or a caller gives.
        least: The smallest number that is allowed.

    Returns:
        The number.

    Raises:
        ValueError: It is smaller, or a bool.
        TypeError: It is no whole number.
    """
    if isinstance(value, bool) or operator.index(value) < least:
        raise ValueError(f"steps must be a whole number, at least {least}, got {value!r}")
    return operator.index(value)


def larger_counts(one: Events, other: Events) -> Events:
    """Takes the larger count of each event, which costs no less than either argument.

    Args:
        one: Pairs (event, count).
        other: Pairs (event, count), of any kinds.

    Returns:
        One pair for each event of either.
    """
    counts = dict(one)
    for event, count in other:
        counts[event] = max(count, counts.get(event, 0))
    return tuple(counts.items())
