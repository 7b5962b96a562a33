"""The lines of a ledger file: canonical JSON in a hash chain.

A line holds its record, `prev`, the hash of the line before (64 zeros for the first), and `hash`,
SHA-256 over prev and the canonical JSON of the record (sorted keys, no spaces, ASCII). The chain
shows accidents and careless edits; it cannot show that an older copy of the whole file was put
back.

  header   epsilon ("inf" for none), delta and whatever else fixes the meaning of the run
  open     incarnation: the run was resumed; reservations left open before stay charged in full;
           processes: by how many, as in the header, if by several
  reserve  id, steps, events: the worst case of a block
  settle   id, steps, events: what it came to, never more than was reserved
  charge   events: one release that is not a step (a class histogram, bounds of a column)
  extend   epsilon: from here on the target is this, larger than the one before
  torn     raw (base64), steps, events: a crash cut the last line; its bytes, and its charge
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
from pathlib import Path

from dpgen_jax.accountant.events import from_json, to_json
from dpgen_jax.accountant.totals import Account, Record, larger_counts
from dpgen_jax.core.errors import UserError

START = "0" * 64

# The errors that a damaged line can raise while it is read
DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
_EVENTS_FIRST = b'{"events":'


def canonical(value: object) -> str:
    """The one spelling of a value in strict JSON.

    Args:
        value: Plain JSON values.

    Returns:
        The text: sorted keys, no spaces, ASCII.

    Raises:
        ValueError: NaN or an infinite number.
        TypeError: A value that is not JSON.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def line(previous: str, record: Record) -> tuple[bytes, str]:
    """The line of a record that follows another line.

    Args:
        previous: Hash of the line before, 64 hex digits.
        record: Plain JSON values, without the names `prev` and `hash`.

    Returns:
        The line with its newline, and its hash.

    Raises:
        ValueError: A record that uses those names, or holds NaN.
    """
    if {"prev", "hash"} & record.keys():
        raise ValueError("the names prev and hash are the chain's own")
    digest = hashlib.sha256((previous + canonical(record)).encode()).hexdigest()
    return canonical({**record, "prev": previous, "hash": digest}).encode() + b"\n", digest


def several(processes: int) -> Record:
    """Returns what the line of a start says of the processes that make it: nothing of one.

    Args:
        processes: How many they are.
    """
    return {"processes": processes} if processes > 1 else {}


def parse(previous: str, text: bytes) -> tuple[Record, str]:
    """The inverse of `line`.

    Args:
        previous: Hash of the line before.
        text: The line, without its newline.

    Returns:
        The record and the line's hash.

    Raises:
        ValueError: The line is not the one, to the byte, that `line` writes; also another error of
            DAMAGE.
    """
    record = json.loads(text)
    record.pop("hash")
    record.pop("prev")
    expected, digest = line(previous, record)
    if expected != text + b"\n":
        raise ValueError("the line does not continue the chain")
    return record, digest


def no_resume(path: Path, why: str) -> UserError:
    """The error for a ledger that cannot be trusted.

    Args:
        path: The file.
        why: The reason, in a few words.

    Returns:
        The error, to be raised.
    """
    return UserError(f"{path}: {why}; the run cannot be resumed, as what it spent is not known")


def replay(path: Path, data: bytes) -> tuple[list[Record], list[str], bytes, Account]:
    """Reads all lines of a ledger.

    A last line that lacks nothing but its newline is whole, as its hash proves.

    Args:
        path: The file, for messages only.
        data: All of its bytes.

    Returns:
        Records, their hashes, the torn last line (empty if there is none), and the totals.

    Raises:
        UserError: A line other than the last is broken (the message names it), or the header is
            missing.
    """
    records: list[Record] = []
    hashes: list[str] = []
    account, previous = Account(), START
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
    """The record that charges a torn line.

    A crash needs no charge at all, whatever line it tore: who appends waits until the line is on
    disk, so nothing was sampled on a torn reserve or charge; a torn settle leaves its reservation
    charged in full; a torn extend leaves the target; a torn open leaves the state of the run before
    it; a torn `torn` is longer than the bytes it replaces, and is read as a torn line again.

    What is charged nevertheless is for a last line that was whole and was acted on, and that a disk
    or a hand cut later. Only a reserve or a charge allows anything, and only where one may follow
    is one charged: of each event as many as any reservation had so far, or as the line itself
    names, if that can still be read (sorted keys put its events first). A run settles a reservation
    before it reserves or charges again, so while one is open the line is its settlement; and after
    a `torn` comes an open. To charge there would count one release twice.

    Args:
        tail: The bytes of the torn line.
        account: The totals of the lines before it.

    Returns:
        The record.
    """
    steps, events = account.longest, account.largest
    if account.pending or account.recovering:
        steps, events = 0, ()
    elif tail.startswith(_EVENTS_FIRST):
        try:
            rows, _ = json.JSONDecoder().raw_decode(tail.decode("latin-1"), len(_EVENTS_FIRST))
            events = larger_counts(events, from_json(rows))
        except DAMAGE:
            pass  # not enough of it is left: the largest so far stands
    if account.header.get("config_hash") == "" and not account.meaning:
        steps = 0  # the configuration comes before the first round
    return {"kind": "torn", "raw": base64.b64encode(tail).decode(), "steps": steps,
            "events": to_json(events)}


def _brief(error: BaseException) -> str:
    """The first line of an error's message."""
    return str(error).splitlines()[0][:80] if str(error) else type(error).__name__
