"""The ledger of a run: its chain, what each line charges, and what was released for it."""

from __future__ import annotations

import base64
import functools
import math
from typing import Any

from dpgen_jax.accountant import composition, journal
from dpgen_jax.accountant import events as kinds
from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.events import Event, Events, merge
from dpgen_jax.accountant.events import from_json as events_of
from dpgen_jax.accountant.journal import read_run
from dpgen_jax.accountant.ledger import Account, larger_counts
from dpgen_jax.aggregation import single_releases, teacher_votes
from dpgen_jax.aggregation.noise import NoNoise
from dpgen_jax.audit.findings import Findings
from dpgen_jax.audit.folder import promise
from dpgen_jax.audit.folder.reading import Book, Folder, attempt
from dpgen_jax.core import run_folder
from dpgen_jax.core.config import digest
from dpgen_jax.core.files import Json, exists
from dpgen_jax.core.run_folder import MEANING, go_on, read_json
from dpgen_jax.core.terms import Unit, at_most
from dpgen_jax.core.types import UserError
from dpgen_jax.data.table import schema
from dpgen_jax.federated.messages import Terms
from dpgen_jax.private import kept_votes
from dpgen_jax.release import contents
from dpgen_jax.run import checkpoint, monitor, noise_digests, side_releases, undeclared


def chained(folder: Folder, findings: Findings) -> bool:
    """Checks the chain of the ledger; returns whether there is a ledger for further checks."""
    why = attempt(lambda: folder.book)
    if why:
        begun = books.begun(folder.files.ledger) or folder.files.traces()
        check = "ledger.jsonl, chain of hashes"
        if begun:
            findings.found(check, False, why)
        else:
            findings.unchecked(check, "the run ended before it charged or drew anything, and has "
                               "no ledger yet", go_on(folder.root))
        return False
    book = folder.book
    torn = ("; a crash cut its last line short, and a resume will charge it" if book.tail else "")
    findings.found("ledger.jsonl, chain of hashes", True,
                   f"{len(book.records)} lines, {book.account.steps} rounds charged{torn}")
    spent, target = book.account.epsilon(), book.account.target
    cut = bool(book.tail) or any(record["kind"] == "torn" for record in book.records)
    findings.found("ledger.jsonl, epsilon of all charges within its target, or claimed as it is",
                   spent <= target or cut,
                   f"epsilon {at_most(spent)} of {at_most(target)} at delta "
                   f"{at_most(book.account.header['delta'])}"
                   + "; a torn line is charged in full, and the release states everything that is "
                     "charged"
                   * (spent > target and cut))
    return True


def of_this_run(folder: Folder, findings: Findings) -> None:
    """Compares the ledger's header with config.json."""
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
    """Describes what is wrong with private/identity.json, by which the records were dealt."""
    path = folder.files.identity
    if (why := attempt(lambda: read_json(path))):
        return [why]
    named = read_json(path).get("run")
    return [f"{path} is of run {str(named)[:8]}"] * (named != folder.config.get("run"))


def _same(one: Any, other: Any) -> bool:
    """Equality, including an infinite number, which files store as a text."""
    return bool(one == other or str(one) == str(other) == "inf")


def as_the_mechanism_says(folder: Folder, findings: Findings) -> None:
    """Recomputes every line of the ledger with the mechanism that config.json builds."""
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
            again = books.torn_line(base64.b64decode(record["raw"]), replayed)
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
    """Describes how a line differs from what is due; empty where it does not."""
    have, want = ({event: n for event, n in merged if n} for merged in (charged, due))
    return "" if have == want else (f"line {number} of ledger.jsonl {does} {_named(charged)}; the "
                                    f"mechanism costs {_named(due)}")


def shortfall(charged: Events, due: Events) -> str:
    """Names the events that are charged less often than they are due, if any."""
    have = dict(charged)
    return "; ".join(f"{_of(event)} is due {n} times, and charged {have.get(event, 0)} times"
                     for event, n in due if have.get(event, 0) < n)


def _named(events: Events) -> str:
    """Events in words, with the parameters of their cost."""
    return " and ".join(f"{n} x {_of(event)}" for event, n in events if n) or "nothing"


def _of(event: Event) -> str:
    fields = {name: value for name, value in event.statement().items() if name != "mechanism"}
    return f"{event.mechanism} ({', '.join(f'{k} {v}' for k, v in fields.items())})"


def journalled(folder: Folder, findings: Findings) -> str:
    """Compares the ledger with this machine's journal; returns a line if it is not in there."""
    run = str(folder.config.get("run"))
    path = journal.place() / "runs" / f"{run}.jsonl"
    if not path.is_file():
        return ("an older ledger that was put back: the journal of this machine does not know run "
                f"{run[:8]}, which may have been made elsewhere")
    known = read_run(path)
    if known is None:
        return "an older ledger that was put back: the journal's line on this run is torn"
    book = folder.later().book
    wrong = ("" if book.contains(known.head, known.lines) else
             f"the journal knows of line {known.lines} of another ledger, which is not in this one "
             f"of {len(book.hashes)} lines: an older state, or a copy")
    if promise.holds(folder) and not known.guarantee:
        wrong = wrong or ("the journal knows it as a run without a guarantee, and its release "
                          "states one")
    findings.found("ledger.jsonl is what this machine's journal last saw, or later", not wrong,
                   wrong or f"line {known.lines} of {len(book.hashes)}, epsilon "
                   f"{at_most(known.spent)} of {at_most(known.target)}")
    return ""


NOTED = "bought under differential privacy"
"""The beginning of a note on data whose schema was bought"""


def class_counts(folder: Folder, findings: Findings) -> None:
    """Compares class_counts.json with the ledger."""
    path = folder.files.class_counts
    price = folder.config.get("budget", {}).get("class_epsilon", 0.0)
    if not path.exists() and not price:
        return
    stored = read_json(path) if path.exists() else {}
    cost = single_releases.class_counts_event(price) if price else None
    paid = dict(folder.book.account.spent()).get(cost, 0) if cost else 0
    wrong = ""
    if path.exists() and (not paid or stored.get("epsilon") != price):
        wrong = (f"it has counts of epsilon {stored.get('epsilon')}; config.json buys epsilon "
                 f"{price:g} of them and the ledger charges them {paid} times")
    findings.found("class_counts.json is paid for", not wrong,
                   wrong or f"charged {paid} times with epsilon {price:g}")


def purchases_of_the_data(folder: Folder, findings: Findings) -> None:
    """Compares the entries of a schema and names of classes that were bought with the ledger.

    The cost of an earlier release that judges the run is not compared, since its run may be
    elsewhere; but a run with such a judge must charge something for it.
    """
    check, charged = "what was bought on the data is paid for", _single_charges(folder)
    of_judge = [pair for pair in charged if pair[0].mechanism.startswith(monitor.NAMED_JUDGES)]
    charged = tuple(pair for pair in charged if pair not in of_judge)
    if folder.config.get("judged_by") or of_judge:
        findings.found("the release that judges is charged", bool(
            of_judge and folder.config.get("judged_by")),
                       f"{_named_purchase(tuple(of_judge))} charged")
    if why := attempt(lambda: listed(folder)):
        findings.unchecked(check, f"{why}; {_named_purchase(charged)} charged")
        return
    due, paid = dict(listed(folder)), dict(charged)
    wrong = [f"{event.mechanism} is listed {n} times and charged {paid.get(event, 0)} times"
             for event, n in due.items() if paid.get(event, 0) < n]
    # A purchase of the run itself that a crash lost is charged; no schema need list it.
    lost = side_releases.shorter(str(folder.config.get("run")))
    wrong += [f"the ledger charges {event.statement()}, which is listed nowhere"
              for event in paid if event not in due
              and lost not in side_releases.buyers(((event, 1),))]
    if due or paid:
        findings.found(check, not wrong, "; ".join(wrong)
                       or f"{_named_purchase(charged)} charged, as "
                       "purchase.json and the schema list them")


def purchases_alone(folder: Folder, findings: Findings) -> None:
    """Compares purchase.json with the ledger of a run that has only made purchases."""
    check, book = "what was bought on the data is paid for", folder.book
    if (why := attempt(lambda: undeclared.stored(folder.root))):
        findings.found(check, False, why)
        return
    answer = undeclared.stored(folder.root)
    due = merge(side_releases.purchases(answer.bought)) if answer else ()
    charged, short = book.account.spent(), shortfall(book.account.spent(), due)
    findings.found(check, not short, short or f"{_named_purchase(charged)} charged, " + (
        "as purchase.json lists them" if answer else "and no answer is kept"))


def listed(folder: Folder) -> Events:
    """Returns the purchases that purchase.json and the schema of the run list.

    Raises:
        UserError: The schema is missing, or one of the two cannot be read.
    """
    found: Events = ()
    for rows in _rows(folder):
        found = larger_counts(found, side_releases.purchases(rows))
    return merge(found)


def covered(folder: Folder, findings: Findings) -> None:
    """Compares the number of records of purchases in the statement with that of the purchases."""
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
    answer, bought = undeclared.stored(folder.root), folder.files.schema
    found = [answer.bought] if answer else []
    used = folder.request.options().schema
    # A run may go on with a schema other than the one that it bought; both are paid for.
    places = [str(bought)] * bought.is_file()
    if used and (not places or exists(used)):
        places.append(used)
    for place in places:
        document = schema.document(place)  # whose columns may be declared together
        found.append(tuple(schema.purchases(
            document.get("bought", []) if isinstance(document, dict) else None)))
    if not places and any(note.startswith(NOTED) for note in folder.config.get("data_notes") or ()):
        raise UserError("the bought schema is not available, since it was declared in Python")
    return found


def _single_charges(folder: Folder) -> Events:
    """The events that are charged separately, except those in config.json."""
    price = folder.config.get("budget", {}).get("class_epsilon", 0.0)
    known: list[Event] = [single_releases.class_counts_event(price)] if price else []
    if hasattr(folder.method_config, "sanitiser"):
        known.append(teacher_votes.sanitised_event(folder.method_config.sanitiser))
    charged = merge(tuple(pair for record in folder.book.records if record["kind"] == "charge"
                          for pair in events_of(record["events"])))
    return tuple((event, n) for event, n in charged if event not in known)


def _named_purchase(charged: Events) -> str:
    return ", ".join(f"{n} x {event.mechanism}" for event, n in charged) or "nothing"


ONCE = "no bits of noise or of secret draws were used twice"
MOST_ROWS = 12
"""The approximate number of rows of metrics whose epsilon is recomputed, if that is slow."""


def against_releases(folder: Folder, findings: Findings) -> None:
    """Compares the charges with the releases that metrics, votes and checkpoints record."""
    files = folder.files
    if (why := attempt(lambda: run_folder.charged(files.metrics))):
        findings.found("metrics.jsonl", False, why)
    else:
        _metrics(folder, findings)
    if folder.mechanism.keeps_votes and (files.votes.exists() or settled(folder.book)):
        _votes(folder, findings)
    _checkpoints(folder, findings)


def _metrics(folder: Folder, findings: Findings) -> None:
    """Compares the rows of metrics with the ledger; rounds without a row cannot be compared."""
    check, wrong, looked = "metrics.jsonl contains no round that is not charged", *_all_rows(folder)
    rows = [_charged(row, 0) for row in run_folder.every(folder.files.metrics)]
    without = settled(folder.book) - max(rows, default=0)
    if without > 0 and not wrong:
        findings.unchecked(check, f"of {without} of the rounds that were made it has no row: what "
                           "they released is unknown")
    elif rows or wrong:
        findings.found(check, not wrong, wrong or looked)


def _checkpoints(folder: Folder, findings: Findings) -> None:
    """Compares the lines of the ledger that checkpoints name with the ledger."""
    place, wrong = folder.files.checkpoints, ""
    notes = {}
    for step in checkpoint.steps(place):
        try:
            notes[step] = checkpoint.note_checkpoint(place, step, "ledger_head", "ledger_lines")
        except ValueError as error:
            if step in checkpoint.steps(place):  # and not made room for a later one
                wrong = wrong or str(error)
    book = folder.later().book
    for step, note in notes.items():
        rounds = _steps_at(book, note["ledger_lines"])
        if not book.contains(note["ledger_head"], note["ledger_lines"]):
            wrong = wrong or f"checkpoint {step} names line {note['ledger_lines']} of a ledger " \
                             "that is not this one"
        elif step > rounds:
            wrong = wrong or f"checkpoint {step} is of step {step}, and {rounds} rounds were " \
                             "charged when it was taken"
    if notes or wrong:
        findings.found("each checkpoint names its line of the ledger", not wrong,
                       wrong or f"{len(notes)} checkpoints, the last of step {max(notes)}")


def bits_once(folder: Folder, findings: Findings) -> None:
    """Searches for bits that were used twice, and for rounds that were drawn and not charged."""
    path = folder.files.noise_digests
    if not path.exists():
        # A server draws no noise for its clients.
        draws = not folder.of_server and not isinstance(folder.mechanism.noise, NoNoise)
        if folder.book.account.steps and draws:
            findings.unchecked(ONCE, "private/noise_digests.txt is missing, which had their "
                               "digests")
        return
    if why := attempt(lambda: noise_digests.read(path)):
        findings.found("private/noise_digests.txt", False, why)
        return
    rows = noise_digests.read(path)
    charged = folder.later().book.account.steps
    again, last = noise_digests.repeated(rows), max((row.number for row in rows), default=-1)
    inside = [row for row in rows if row.twice]
    wrong = f"rounds {' and '.join(map(str, again[0]))} had the same bits" if again else (
        f"in round {inside[0].number}, {inside[0].twice} random numbers "
        "were equal to another one" if inside else
        f"round {last} was drawn, and {charged} rounds are charged" * (last >= charged))
    older = sum(row.twice is None for row in rows)
    seen = f"digests of {len(rows)} rounds, all different; no random number twice in a round" + (
        f", but {older} rounds of an earlier version were not checked for that" if older else "")
    unseen = settled(folder.book) - len({row.number for row in rows})
    if unseen > 0 and not wrong:
        findings.unchecked(ONCE, f"{seen}; there is no digest of {unseen} other rounds")
        return
    findings.found(ONCE, not wrong, wrong or seen)


def settled(book: Book) -> int:
    """Returns how many rounds the ledger records as completed; a crash may lose others."""
    return sum(record["steps"] for record in book.records if record["kind"] == "settle")


def _steps_at(book: Book, lines: int) -> int:
    """Rounds that the first lines of a ledger charge."""
    account = Account()
    for record in book.records[:lines]:
        account.apply(record)
    return account.steps


def _all_rows(folder: Folder) -> tuple[str, str]:
    """Reports errors in the rows of metrics, or what was compared."""
    account, rows = Account(), run_folder.every(folder.files.metrics)
    spent_at: dict[int, list[Events]] = {}
    for record in folder.later().book.records:
        account.apply(record)
        spent_at.setdefault(account.steps, []).append(account.spent())
    steps = [row.get("step", 0) for row in rows if not row.get("superseded")]
    if steps != sorted(steps):
        return "the steps of its rows do not ascend", ""
    for number, row in enumerate(rows, 1):
        charged = _charged(row, account.steps)
        # Steps of post-training are counted after the last round, and charge nothing.
        made = min(row.get("step", 0), folder.method_config.steps or math.inf)
        if made > charged or charged > account.steps:
            return (f"line {number} is of step {row.get('step')} and says that {charged} rounds "
                    f"were charged; the ledger charges {account.steps}"), ""
        if charged not in spent_at:
            return f"line {number}: the ledger never charged {charged} rounds", ""
    with_epsilon = [(i, row, row[name]) for i, row in enumerate(rows, 1)
                    for name in (run_folder.EPSILON, run_folder.BUDGET_EPSILON)
                    if isinstance(row.get(name), float)]
    looked = with_epsilon if quick(account.spent()) else with_epsilon[:-1][
        ::max(1, len(with_epsilon) // MOST_ROWS)] + with_epsilon[-1:]
    for number, row, said in looked:
        charged = _charged(row, account.steps)
        known = [_epsilon(spent, account.header["delta"]) for spent in spent_at[charged]]
        if not any(math.isclose(said, value, rel_tol=1e-9) for value in known):
            return (f"line {number} says epsilon {said:.6g} for {charged} rounds; "
                    f"the ledger's is {known[-1]:.6g}"), ""
    return "", (f"{len(rows)} rows, at most {max(steps, default=0)} steps; epsilon computed anew "
                f"for {len(looked)} of {len(with_epsilon)}")


def _charged(row: Json, rounds: int) -> int:
    """Rounds that were charged when a row was written; a server writes the number of its round."""
    return int(row.get("charged", row["turn"] + 1 if "turn" in row else rounds))


def quick(events: Events) -> bool:
    """Returns whether the epsilon of events is a formula, so it is fast."""
    return all(isinstance(event, kinds.GaussianEvent | kinds.EpsilonDeltaEvent
                          | kinds.NonPrivateEvent) for event, _ in events)


_epsilon = functools.cache(composition.epsilon_of)


def _votes(folder: Folder, findings: Findings) -> None:
    """Compares the votes that the data holder kept with the charges."""
    mechanism = folder.mechanism
    check = "private/votes.i4 contains no answer that is not charged"
    kept = kept_votes.n_steps(folder.files.votes, mechanism.queries, mechanism.vote_bins)
    if kept < settled(folder.book):
        findings.unchecked(check, f"it holds votes of {kept} rounds, and {settled(folder.book)} "
                           "were made: what they answered is unknown")
        return
    account = folder.later().book.account
    wrong = (f"votes of {kept} rounds are kept, and {account.steps} are charged"
             if kept > account.steps else "")
    looked = f"{kept} rounds of votes"
    if mechanism.cost_depends_on_answers and not wrong:
        flags = kept_votes.answered(folder.files.votes, mechanism.queries, mechanism.vote_bins)
        (test, _), (answer, _) = mechanism.events(1)  # counted here, and not by the mechanism
        due = ((test, flags.size), (answer, int(flags.sum())))
        wrong = shortfall(account.spent(), due)
        looked += f", {int(flags.sum())} of {flags.size} queries answered, each of them charged"
    findings.found(check, not wrong, wrong or looked)
