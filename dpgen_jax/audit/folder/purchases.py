"""The purchases of a run beside its steps: class counts, entries of a schema, names of classes."""

from __future__ import annotations

from dpgen_jax.accountant.events import Event, Events, merge
from dpgen_jax.accountant.events import from_json as events_of
from dpgen_jax.accountant.totals import larger_counts
from dpgen_jax.aggregation import discrete_laplace, sanitise
from dpgen_jax.audit.findings import Findings, Verdict
from dpgen_jax.audit.folder.reading import Folder, attempt
from dpgen_jax.audit.folder.spending import shortfall
from dpgen_jax.core import cli
from dpgen_jax.core.reading import exists
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import UserError
from dpgen_jax.data import schema
from dpgen_jax.run import early, judging, side_releases
from dpgen_jax.run.folder import read_json

NOTED = "bought under differential privacy"
"""The beginning of a note on data whose schema was bought"""


def class_counts(folder: Folder, findings: Findings) -> None:
    """Compares class_counts.json with the ledger.

    Args:
        folder: The folder.
        findings: Where findings are added.
    """
    path = folder.files.class_counts
    price = folder.config.get("budget", {}).get("class_epsilon", 0.0)
    if not path.exists() and not price:
        return
    stored = read_json(path) if path.exists() else {}
    cost = discrete_laplace.class_counts_event(price) if price else None
    paid = dict(folder.book.account.spent()).get(cost, 0) if cost else 0
    wrong = ""
    if path.exists() and (not paid or stored.get("epsilon") != price):
        wrong = (f"it holds counts of epsilon {stored.get('epsilon')}; config.json buys epsilon "
                 f"{price:g} of them and the ledger charges them {paid} times")
    findings.found("class_counts.json is paid for", not wrong,
                   wrong or f"charged {paid} times with epsilon {price:g}")


def of_the_data(folder: Folder, findings: Findings) -> None:
    """Compares the entries of a schema and names of classes that were bought with the ledger.

    What the release that judges cost is compared with nothing, as its run may lie elsewhere; that a
    run with such a judge charges something for it is.

    Args:
        folder: The folder, whose version is this one.
        findings: Where findings are added.
    """
    check, charged = "what was bought of the data is paid for", _single_charges(folder)
    of_judge = [pair for pair in charged if pair[0].mechanism.startswith(judging.NAMED)]
    charged = tuple(pair for pair in charged if pair not in of_judge)
    if folder.config.get("judged_by") or of_judge:
        findings.found("the release that judges is charged", bool(
            of_judge and folder.config.get("judged_by")), f"{_named(tuple(of_judge))} charged")
    if why := attempt(lambda: listed(folder)):
        findings.add(check, Verdict.UNCHECKED, f"{why}; {_named(charged)} charged")
        return
    due, paid = dict(listed(folder)), dict(charged)
    wrong = [f"{event.mechanism} is listed {n} times and charged {paid.get(event, 0)} times"
             for event, n in due.items() if paid.get(event, 0) < n]
    # What the run itself bought and a crash lost is charged, and a schema need not list it.
    lost = side_releases.shorter(str(folder.config.get("run")))
    wrong += [f"the ledger charges {event.statement()}, which is listed nowhere"
              for event in paid if event not in due
              and lost not in side_releases.buyers(((event, 1),))]
    if due or paid:
        findings.found(check, not wrong, "; ".join(wrong) or f"{_named(charged)} charged, as "
                       "purchase.json and the schema list them")


def alone(folder: Folder, findings: Findings) -> None:
    """Compares purchase.json with the ledger of a run that has made nothing but purchases.

    Args:
        folder: The folder.
        findings: Where findings are added.
    """
    check, book = "what was bought of the data is paid for", folder.book
    if (why := attempt(lambda: early.stored(folder.root))):
        findings.add(check, Verdict.FAILS, why)
        return
    answer = early.stored(folder.root)
    due = merge(side_releases.purchases(answer.bought)) if answer else ()
    charged, short = book.account.spent(), shortfall(book.account.spent(), due)
    findings.found(check, not short, short or f"{_named(charged)} charged, " + (
        "as purchase.json lists them" if answer else "and no answer is kept"))


def listed(folder: Folder) -> Events:
    """Returns the purchases that purchase.json and the schema of the run list.

    Args:
        folder: The folder of a run.

    Raises:
        UserError: The schema is not at hand, or one of the two cannot be read.
    """
    found: Events = ()
    for rows in _rows(folder):
        found = larger_counts(found, side_releases.purchases(rows))
    return merge(found)


def covered(folder: Folder, findings: Findings) -> None:
    """Compares the number of records that the statement says purchases covered with theirs.

    Args:
        folder: The folder of a run, whose version is this one.
        findings: Where findings are added.
    """
    if not folder.released or attempt(lambda: folder.statement) or attempt(lambda: listed(folder)):
        return
    records = max((side_releases.records(rows) for rows in _rows(folder)), default=0)
    said = folder.statement.get("bought_from") or {}
    trained, held_out = folder.statement.get("records", 0), said.get("held_out")
    wrong = ""
    if records and said.get("records") != records:
        wrong = f"it says {said.get('records', 'nothing')}, and a purchase was from {records:,}"
    elif held_out is not None and trained + held_out != records:
        wrong = (f"it says {trained:,} records and {held_out:,} that were held out, and a purchase "
                 f"was from {records:,}")
    if records or said:
        findings.found("privacy.json names all records that purchases covered", not wrong,
                       wrong or f"{records:,}")


def _rows(folder: Folder) -> list[tuple[Json, ...]]:
    """The purchases that purchase.json and each schema of the run list; raises as `listed`."""
    answer, bought = early.stored(folder.root), folder.files.schema
    found = [answer.bought] if answer else []
    used = cli.peek([str(word) for word in folder.config.get("typed") or ()], "--schema")
    # A run may go on with another schema than that which it bought itself; both are paid for.
    places = [str(bought)] * bought.is_file()
    if used and (not places or exists(used)):
        places.append(used)
    for place in places:
        found.append(schema.read(place).bought)
    if not places and any(note.startswith(NOTED) for note in folder.config.get("data_notes") or ()):
        raise UserError("the schema that was bought is not at hand, as it was declared in Python")
    return found


def _single_charges(folder: Folder) -> Events:
    """The events that are charged by themselves, but for those that config.json names."""
    price = folder.config.get("budget", {}).get("class_epsilon", 0.0)
    known: list[Event] = [discrete_laplace.class_counts_event(price)] if price else []
    if hasattr(folder.method_config, "sanitiser"):
        known.append(sanitise.event(folder.method_config.sanitiser))
    charged = merge(tuple(pair for record in folder.book.records if record["kind"] == "charge"
                          for pair in events_of(record["events"])))
    return tuple((event, n) for event, n in charged if event not in known)


def _named(charged: Events) -> str:
    return ", ".join(f"{n} x {event.mechanism}" for event, n in charged) or "nothing"
