"""Reading the file of a ledger, without its lock and without a change."""

from __future__ import annotations

import os
from pathlib import Path

from dpgen_jax.accountant import chain, files
from dpgen_jax.accountant.events import RenyiEvent, from_json
from dpgen_jax.accountant.totals import Account, Record
from dpgen_jax.core.errors import UserError


def read(path: str | os.PathLike[str]) -> list[Record]:
    """Reads the records of a ledger, without lock or change.

    Args:
        path: The file.

    Returns:
        The records. If the last line is torn, the last record is the one that `Ledger.open` would
        write for it.

    Raises:
        UserError: The file is missing or broken.
    """
    path = Path(path)
    records, _, tail, account = chain.replay(path, files.read_ledger(path))
    return [*records, chain.torn(tail, account)] if tail else records


def begun(path: str | os.PathLike[str]) -> bool:
    """Whether there is a ledger with a whole header.

    A file that a crash tore while it was made never allowed anything.

    Args:
        path: The file, which need not exist.

    Raises:
        UserError: Something that is no regular file.
    """
    path = Path(path)
    if not path.exists():
        return False
    data = files.read_ledger(path)
    try:
        return b"\n" in data or bool(chain.replay(path, data))
    except UserError:
        return False


def undeclared(path: str | os.PathLike[str]) -> bool:
    """Whether there is a ledger that knows of purchases, and of no configuration yet.

    Args:
        path: The file, which need not exist.

    Raises:
        UserError: As `read`.
    """
    return begun(path) and not account(read(path)).meaning


def published(records: list[Record]) -> RenyiEvent | None:
    """Returns the data-dependent bound that a run published on its own votes, if it did.

    Args:
        records: As `read` returns them. A bound that is charged before the first round is that of
            an earlier run, whose release judges.
    """
    made = False
    for record in records:
        made = made or record["kind"] == "reserve"
        if made and record["kind"] in ("charge", "torn"):  # a torn line may have been acted on
            for event, _ in from_json(record["events"]):
                if isinstance(event, RenyiEvent):
                    return event
    return None


def claimed(path: str | os.PathLike[str], budget: float) -> float:
    """Returns the epsilon that a run states if it goes on.

    Args:
        path: Its ledger, which need not exist.
        budget: The epsilon of its budget.

    Returns:
        The budget, or what the ledger claims, a torn last line charged, where that is more.

    Raises:
        UserError: As `read`.
    """
    return max(budget, account(read(path)).claim()) if begun(path) else budget


def account(records: list[Record]) -> Account:
    """Adds up records that `read` returned.

    Args:
        records: The records, the header first.

    Returns:
        Their totals: `spent()`, `epsilon()`, `claim()`, `steps`, `header`, `target`.
    """
    totals = Account()
    for record in records:
        totals.apply(record)
    return totals
