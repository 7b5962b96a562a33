"""The ledger of a run: its chain, what each line charges, and what was released for it."""

from __future__ import annotations

import base64
from typing import Any

from dpgen_jax.accountant import chain, journal
from dpgen_jax.accountant import events as kinds
from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.events import Event, Events
from dpgen_jax.accountant.journal_entry import read_run
from dpgen_jax.accountant.totals import Account
from dpgen_jax.audit.findings import Findings, Verdict
from dpgen_jax.audit.folder import promise
from dpgen_jax.audit.folder.reading import Folder, attempt
from dpgen_jax.core.at_most import at_most
from dpgen_jax.core.config import digest
from dpgen_jax.core.terms import Unit
from dpgen_jax.federated.messages import Terms
from dpgen_jax.release import contents
from dpgen_jax.run.folder import MEANING, go_on, read_json


def chained(folder: Folder, findings: Findings) -> bool:
    """Checks the chain of the ledger; returns whether there is a ledger to go on with.

    Args:
        folder: The folder.
        findings: Where findings are added.
    """
    why = attempt(lambda: folder.book)
    if why:
        begun = books.begun(folder.files.ledger) or folder.files.traces()
        findings.add("ledger.jsonl, chain of hashes",
                     Verdict.FAILS if begun else Verdict.UNCHECKED,
                     why if begun else "the run ended before it charged or drew anything, and has "
                     f"no ledger yet; {go_on(folder.root)}")
        return False
    book = folder.book
    torn = ("; a crash tore its last line, which a resume will charge" if book.tail else "")
    findings.add("ledger.jsonl, chain of hashes", Verdict.HOLDS,
                 f"{len(book.records)} lines, {book.account.steps} rounds charged{torn}")
    spent, target = book.account.epsilon(), book.account.target
    cut = bool(book.tail) or any(record["kind"] == "torn" for record in book.records)
    findings.found("ledger.jsonl, epsilon of all charges within its target, or claimed as it is",
                   spent <= target or cut,
                   f"epsilon {at_most(spent)} of {at_most(target)} at delta "
                   f"{at_most(book.account.header['delta'])}"
                   + "; a torn line is charged in full, and the release states all that is charged"
                   * (spent > target and cut))
    return True


def of_this_run(folder: Folder, findings: Findings) -> None:
    """Compares the ledger's header with config.json.

    Args:
        folder: The folder.
        findings: Where findings are added.
    """
    config, header = folder.config, folder.book.records[0]
    budget = config.get("budget", {})
    expected = {"run": config.get("run"), "delta": budget.get("delta"),
                "epsilon": budget.get("epsilon")}
    if folder.of_client:
        terms = Terms(config["method"], folder.method_config, contents.spec(config["spec"]))
        expected |= {"unit": str(Unit.CLIENT), "config_hash": terms.digest}
    else:
        expected |= dict(config.get("unit", {"unit": str(folder.mechanism.unit)}))
        expected |= {"relation": str(folder.mechanism.relation), "config_hash": digest(
            {name: config[name] for name in MEANING if name in config})}
    header = header | {"config_hash": folder.book.account.meaning}  # or declared after purchases
    wrong = [f"{name} is {header.get(name)!r}, config.json gives {value!r}"
             for name, value in expected.items() if not _same(header.get(name), value)]
    if not folder.of_server and not folder.of_client:
        wrong += _identity(folder)
    findings.found("ledger.jsonl is of this configuration", not wrong, "; ".join(
        wrong) or f"run {str(config.get('run'))[:8]}, the hash of " + (
            "the terms of the federation" if folder.of_client else
            "method, data, schema, configuration and budget"))


def _identity(folder: Folder) -> list[str]:
    """Says what is wrong with private/identity.json, by which the records were dealt."""
    path = folder.files.identity
    if (why := attempt(lambda: read_json(path))):
        return [why]
    named = read_json(path).get("run")
    return [f"{path} is of run {str(named)[:8]}"] * (named != folder.config.get("run"))


def _same(one: Any, other: Any) -> bool:
    """Equality, but for an infinite number, which files hold as a text."""
    return bool(one == other or str(one) == str(other) == "inf")


def as_the_mechanism_says(folder: Folder, findings: Findings) -> None:
    """Repeats every line of the ledger with the mechanism that config.json builds.

    Args:
        folder: The folder, whose version is this one.
        findings: Where findings are added.
    """
    mechanism, replayed, wrong = folder.mechanism, Account(), ""
    reserved: dict[int, Events] = {}
    counted = {"reserve": 0, "settle": 0, "charge": 0}
    for number, record in enumerate(folder.book.records, 1):
        kind = record["kind"]
        if kind == "reserve":
            charged = kinds.from_json(record["events"])
            due = (mechanism.events(1) if folder.of_client else mechanism.pending_charge(
                replayed.spent(), replayed.steps, record["steps"]))
            reserved[record["id"]] = charged
            wrong = wrong or _differs(number, "reserves", charged, due)
        elif kind == "settle" and not mechanism.cost_depends_on_answers:
            charged = kinds.from_json(record["events"])
            wrong = wrong or _differs(number, "settles", charged, reserved[record["id"]])
        elif kind == "torn":
            again = chain.torn(base64.b64decode(record["raw"]), replayed)
            wrong = wrong or _differs(number, "charges for a torn line",
                                      kinds.from_json(record["events"]),
                                      kinds.from_json(again["events"]))
        if kind in counted:
            counted[kind] += 1
        replayed.apply(record)
    findings.found("each charge is what the mechanism of config.json costs", not wrong, wrong or (
        f"{counted['reserve']} reservations, {counted['settle']} settlements, {counted['charge']} "
        f"charges by themselves; one round: {_named(mechanism.events(1))}"))


def _differs(number: int, does: str, charged: Events, due: Events) -> str:
    """Says how a line differs from what is due; nothing where it does not."""
    have, want = ({event: n for event, n in merged if n} for merged in (charged, due))
    return "" if have == want else (f"line {number} of ledger.jsonl {does} {_named(charged)}; the "
                                    f"mechanism costs {_named(due)}")


def shortfall(charged: Events, due: Events) -> str:
    """Says which events are charged less often than they are due; nothing where none is.

    Args:
        charged: Pairs (event, count).
        due: Likewise.
    """
    have = dict(charged)
    short = [f"{_of(event)} is due {n} times, and charged {have.get(event, 0)} times"
             for event, n in due if have.get(event, 0) < n]
    return "; ".join(short)


def _named(events: Events) -> str:
    """Events in words, with what their cost depends on."""
    return " and ".join(f"{n} x {_of(event)}" for event, n in events if n) or "nothing"


def _of(event: Event) -> str:
    fields = {name: value for name, value in event.statement().items() if name != "mechanism"}
    return f"{event.mechanism} ({', '.join(f'{k} {v}' for k, v in fields.items())})"


def journalled(folder: Folder, findings: Findings) -> str:
    """Compares the ledger with this machine's journal.

    Args:
        folder: The folder.
        findings: Where findings are added.

    Returns:
        A line where there is nothing to compare with.
    """
    run = str(folder.config.get("run"))
    path = journal.place() / "runs" / f"{run}.jsonl"
    if not path.is_file():
        return ("an older ledger that was put back: the journal of this machine does not know "
                f"run {run[:8]}, as where it was made elsewhere")
    known = read_run(path)
    if known is None:
        return "an older ledger that was put back: the journal's line on this run is torn"
    book = folder.later().book
    wrong = ("" if book.contains(known.head, known.lines) else
             f"the journal knows of line {known.lines} of another ledger, which this one, with "
             f"{len(book.hashes)} lines, does not hold: an older state, or a copy")
    if promise.holds(folder) and not known.guarantee:
        wrong = wrong or ("the journal knows it as a run without a guarantee, and its release "
                          "states one")
    findings.found("ledger.jsonl is what this machine's journal last saw, or later", not wrong,
                   wrong or f"line {known.lines} of {len(book.hashes)}, epsilon "
                   f"{at_most(known.spent)} of {at_most(known.target)}")
    return ""
