"""Damaged ledgers, and what may be said of one that is still accepted.

Without a new chain of hashes, a file that is accepted consists of the first k lines of the true one
and a torn tail: it charges, of every event, at least what those k lines charge. Somebody who writes
a new chain can write whatever he likes; there only the sums must still be sums.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.fuzzing.case import Case, misplaced, some
from benchmarks.fuzzing.damage import changed, damaged, junk, odd
from benchmarks.fuzzing.read_ledger import STEP, totals
from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.events import EpsilonDeltaEvent, GaussianEvent, PoissonGaussianEvent
from dpgen_jax.accountant.ledger import Ledger

NAME = "ledger.jsonl"
COUNTS = EpsilonDeltaEvent(0.01, mechanism="class-counts")


@functools.cache
def valid(kind: int) -> bytes:
    """A true ledger: 0 plain; 1 with a purchase, an extension and a resume; 2 of drawn records."""
    header = {"epsilon": 3.0, "delta": 1e-5, "relation": "replace-one", "unit": "record",
              "config_hash": "abc"}
    sampled = PoissonGaussianEvent(GaussianEvent(20.0, 40), 0.01, "replace-one")
    step = sampled if kind == 2 else STEP
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / NAME
        with Ledger.create(path, header) as book:
            if kind == 1:
                book.charge(((COUNTS, 1),))
            book.settle(book.reserve(((step, 10),), 10), ((step, 7),), 7)
            book.reserve(((step, 5),), 5)
        if kind:
            with Ledger.open(path) as book:
                if kind == 1:
                    book.extend(4.0)
                book.settle(book.reserve(((step, 3),), 3), ((step, 3),), 3)
                book.settle(book.reserve(((step, 6),), 6), (), 0)
                book.reserve(((step, 2),), 2)
        return path.read_bytes()


def ledger(draw: Random) -> Case:
    data = valid(draw.randrange(3))
    files: dict[str, bytes | str] = {NAME: data}
    kind = draw.randrange(10)
    if kind == 0:
        misplaced(draw, files)
    elif kind < 3:
        files[NAME] = lines(draw, data)
    elif kind < 5:
        files[NAME] = _rechained(draw, data)
    elif kind < 7:  # as a crash leaves it, or nearly
        files[NAME] = data[:draw.randrange(len(data) + 1)] + (junk(draw) if kind == 6 else b"")
    else:
        files[NAME] = damaged(draw, data)
    return Case(files, known={"true": data, "forged": kind in (3, 4)})


def lines(draw: Random, data: bytes) -> bytes:
    """Whole lines left out, repeated, swapped."""
    parts = data.splitlines(keepends=True)
    for kind in some(draw, ("drop", "repeat", "swap", "cut")):
        if not parts:
            break
        i, j = (draw.randrange(len(parts)) for _ in range(2))
        if kind == "drop":
            del parts[i]
        elif kind == "repeat":
            parts.insert(j, parts[i])
        elif kind == "swap":
            parts[i], parts[j] = parts[j], parts[i]
        else:
            del parts[i:]
    return b"".join(parts)


def _rechained(draw: Random, data: bytes) -> bytes:
    """Other records in a chain that is sound, as far as they can be written at all."""
    records = [json.loads(line) for line in data.splitlines()]
    for record in records:
        del record["prev"], record["hash"]
    i = draw.randrange(len(records))
    records[i] = changed(draw, records[i]) if draw.randrange(4) else odd(draw)
    out, previous = b"", books.CHAIN_START
    for record in records:
        try:
            line, previous = books.chained_line(previous, record)
        except (ValueError, TypeError, AttributeError):  # NaN, or no record: a torn line of it
            return out + repr(record).encode(errors="replace")[:500]
        out += line
    return out


def check_ledger(case: Case, value: dict[str, Any]) -> str | None:
    """Returns what is wrong with an accepted ledger, or None."""
    if value["jax"]:
        return "the accountant imported JAX"
    sums = [value[name] for name in ("before", "after", "again")]
    if not all(float(s["epsilon"]) >= 0 and s["steps"] >= 0 and min(s["counts"].values(), default=0)
               >= 0 for s in sums):
        return f"sums that are none: {sums}"
    if value["before"] != value["after"]:
        return f"a resume charges other than what is read: {value['before']}, {value['after']}"
    if falls_short(value["after"], value["again"]):
        return "a step more charged less"
    return None if case.known["forged"] else below_prefix(case, value["after"])


def below_prefix(case: Case, found: dict[str, Any]) -> str | None:
    """Whether an accepted file charges less than the lines of the true one that it begins with."""
    kept = longest_prefix(case.known["true"], case.files[NAME])
    if not kept:
        return "the first line is not the true one"
    floor = charged(kept)
    if falls_short(floor, found):
        return f"charges {found}, and its first {len(kept.splitlines())} lines charge {floor}"
    return None


def longest_prefix(true: bytes, found: bytes) -> bytes:
    """The whole lines that both begin with."""
    kept = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(
        true.split(b"\n")[:-1], found.split(b"\n"), strict=False))
    return b"".join(line + b"\n" for line, _ in kept)


def falls_short(floor: dict[str, Any], found: dict[str, Any]) -> bool:
    """Whether `found` charges fewer steps than `floor`, fewer of an event, or less epsilon."""
    least = float(floor["epsilon"])
    return (found["steps"] < floor["steps"]
            or any(found["counts"].get(event, 0) < n for event, n in floor["counts"].items())
            or (math.isfinite(least) and float(found["epsilon"]) < least))


def charged(data: bytes) -> dict[str, Any]:
    """The totals of whole lines."""
    return totals(books.account(books.replay_lines(Path(NAME), data)[0]))
