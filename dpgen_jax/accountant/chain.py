"""The lines of a ledger file: canonical JSON in a hash chain, and the totals that follow from them.

A line holds its record, `prev`, the hash of the line before (64 zeros for the first), and `hash`,
SHA-256 over prev and the canonical JSON of the record (sorted keys, no spaces, ASCII). The chain
shows accidents and careless edits; it cannot show that an older copy of the whole file was put
back.

  header   epsilon ("inf" for none), delta and whatever else fixes the meaning of the run
  open     incarnation: the run was resumed; reservations left open before stay charged in full
  reserve  id, steps, events: the worst case of a block
  settle   id, steps, events: what it came to, never more than was reserved
  charge   events: one release that is not a step (a class histogram, bounds of a column)
  extend   epsilon: from here on the target is this, larger than the one before
  torn     raw (base64), steps, events: a crash cut the last line; its bytes, and what is charged
"""

from __future__ import annotations

import base64
import copy
import hashlib
import io
import json
import math
import operator
from pathlib import Path
from typing import Any

from dpgen_jax.accountant import gaussian
from dpgen_jax.accountant.events import Event, Events, from_json, merge, to_json
from dpgen_jax.errors import UserError

START = "0" * 64
MOST = 2**53  # that a float counts without rounding
Record = dict[str, Any]

# What a damaged line can raise while it is read
DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
_EVENTS_FIRST = b'{"events":'


def canonical(value: Any) -> str:
    """Strict JSON with one spelling. Raises ValueError for NaN, TypeError for what is not JSON."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def line(previous: str, record: Record) -> tuple[bytes, str]:
    """The line of a record that follows the hash `previous`, with its newline, and its hash."""
    if {"prev", "hash"} & record.keys():
        raise ValueError("the names prev and hash are the chain's own")
    digest = hashlib.sha256((previous + canonical(record)).encode()).hexdigest()
    return canonical({**record, "prev": previous, "hash": digest}).encode() + b"\n", digest


def parse(previous: str, text: bytes) -> tuple[Record, str]:
    """The inverse of `line`, without the newline; one of DAMAGE unless it is equal to the byte."""
    record = json.loads(text)
    record.pop("hash")
    record.pop("prev")
    expected, digest = line(previous, record)
    if expected != text + b"\n":
        raise ValueError("the line does not continue the chain")
    return record, digest


def no_resume(path: Path, why: str) -> UserError:
    return UserError(f"{path}: {why}; the run cannot be resumed, as what it spent is not known")


def replay(path: Path, data: bytes) -> tuple[list[Record], list[str], bytes, Account]:
    """Records, hashes, torn tail and totals of a file's bytes; `path` is only for messages.

    A last line that lacks nothing but its newline is whole, as its hash proves.
    Raises UserError, naming the line, if any other line is broken or the header is missing.
    """
    records, hashes, account, previous = [], [], Account(), START
    for number, text in enumerate(io.BytesIO(data), 1):
        try:
            record, digest = parse(previous, text.removesuffix(b"\n"))
            account.apply(record)
        except DAMAGE as error:
            if not text.endswith(b"\n") and account.header:
                return records, hashes, text, account
            raise no_resume(path, f"line {number} is broken ({_brief(error)})") from None
        previous = digest
        records.append(record)
        hashes.append(digest)
    if not records:
        raise no_resume(path, "line 1, the header, is missing")
    return records, hashes, b"", account


def torn(tail: bytes, account: Account) -> Record:
    """The record that charges a torn line after the records of `account`.

    A crash needs no charge at all, whatever line it tore: who appends waits until the line is on
    disk, so nothing was drawn on a torn reserve or charge; a torn settle leaves its reservation
    charged in full; a torn extend leaves the target; a torn open leaves what the run before it had;
    a torn `torn` is longer than the bytes it replaces, and is read as a torn line again.

    What is charged nevertheless is for a last line that was whole and was acted on, and that a disk
    or a hand cut later. Only a reserve or a charge allows anything, and only where one may follow
    is one charged: of each event as many as any reservation had so far, or as the line itself
    names, if that can still be read (sorted keys put its events first). A run settles a
    reservation before it reserves or charges again, so while one is open the line is its
    settlement; and after a `torn` comes an open. To charge there would count one draw twice.
    """
    steps, events = account.longest, account.largest
    if account.pending or account.recovering:
        steps, events = 0, ()
    elif tail.startswith(_EVENTS_FIRST):
        try:
            rows, _ = json.JSONDecoder().raw_decode(tail.decode("latin-1"), len(_EVENTS_FIRST))
            events = _larger(events, from_json(rows))
        except DAMAGE:
            pass  # not enough of it is left: the largest so far stands
    return {"kind": "torn", "raw": base64.b64encode(tail).decode(), "steps": steps,
            "events": to_json(events)}


def _larger(one: Events, other: Events) -> Events:
    """Of each event the larger count: costs no less than either, whatever the kinds of events."""
    counts = dict(one)
    for event, count in other:
        counts[event] = max(count, counts.get(event, 0))
    return tuple(counts.items())


def whole(value: Any, least: int) -> int:
    """A whole number of steps, at least `least`; ValueError or TypeError otherwise."""
    if isinstance(value, bool) or operator.index(value) < least:
        raise ValueError(f"steps must be a whole number, at least {least}, got {value!r}")
    return operator.index(value)


def _brief(error: BaseException) -> str:
    return str(error).splitlines()[0][:80] if str(error) else type(error).__name__


class Account:
    """Running totals over the records of a ledger; `apply` costs the same at any length."""

    def __init__(self) -> None:
        self.header: Record = {}
        self.target = 0.0
        self.incarnation = 0
        self.steps = 0
        self.next_id = 0
        self.counts: dict[Event, int] = {}
        self.pending: dict[int, tuple[int, Events]] = {}
        self.longest = 1  # steps of a reservation
        self.largest: Events = ()
        self.recovering = False  # the last record is a torn line

    def after(self, record: Record) -> Account:
        """A copy with one more record."""
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
        """The epsilon to state: the target, or what is charged where that is more, as it may be
        where a torn line was charged."""
        return max(self.target, self.epsilon())

    def apply(self, record: Record) -> None:
        """Takes in one record. Raises ValueError, KeyError or TypeError if it cannot come next."""
        kind = record["kind"]
        if (kind == "header") == bool(self.header):
            raise ValueError("a header must come first, and once")
        kinds = {"header": self._header, "open": self._open, "reserve": self._reserve,
                 "settle": self._settle, "charge": self._release, "extend": self._extend,
                 "torn": self._torn}
        kinds[kind](record)
        self.recovering = kind == "torn"

    def _header(self, record: Record) -> None:
        if not float(record["epsilon"]) > 0 or not 0 < record["delta"] < 1:
            raise ValueError("a header needs epsilon > 0 and 0 < delta < 1")
        self.target = float(record["epsilon"])
        self.header = {**record, "epsilon": self.target}

    def _open(self, record: Record) -> None:
        if record["incarnation"] != self.incarnation + 1:
            raise ValueError(f"incarnation {record['incarnation']} after {self.incarnation}")
        self.incarnation += 1
        self.pending = {}  # lost steps stay charged: nobody may settle them any more

    def _reserve(self, record: Record) -> None:
        steps, events = whole(record["steps"], 1), from_json(record["events"])
        if record["id"] != self.next_id:  # events may be none: a rotation's first turns pay for all
            raise ValueError("a reservation needs the next id")
        self._charge(steps, events)
        self.pending[self.next_id] = (steps, events)
        self.next_id += 1
        self.longest, self.largest = max(self.longest, steps), _larger(self.largest, events)

    def _settle(self, record: Record) -> None:
        steps, events = whole(record["steps"], 0), from_json(record["events"])
        if record["id"] not in self.pending:
            raise ValueError(f"reservation {record['id']} is not open")
        most, reserved = self.pending[record["id"]]
        allowed = dict(reserved)
        if steps > most or any(count > allowed.get(event, 0) for event, count in events):
            raise ValueError(f"reservation {record['id']} settled for more than was reserved")
        del self.pending[record["id"]]
        self._charge(-most, reserved, sign=-1)
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

    def _torn(self, record: Record) -> None:
        self._charge(whole(record["steps"], 0), from_json(record["events"]))

    def _charge(self, steps: int, events: Events, sign: int = 1) -> None:
        self.steps += steps
        for event, count in events:
            self.counts[event] = self.counts.get(event, 0) + sign * count
        if max(self.steps, *self.counts.values(), 0) > MOST:
            raise ValueError(f"more than {MOST} steps or events")
