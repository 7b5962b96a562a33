"""The releases of a run, by its metrics, votes and checkpoints, against what is charged."""

from __future__ import annotations

import math

from dpgen_jax.accountant import events as kinds
from dpgen_jax.accountant import gaussian
from dpgen_jax.accountant.events import Events
from dpgen_jax.accountant.totals import Account
from dpgen_jax.aggregation.noise import NoNoise
from dpgen_jax.audit.findings import Findings, Verdict
from dpgen_jax.audit.folder.reading import Book, Folder, attempt
from dpgen_jax.audit.folder.spending import shortfall
from dpgen_jax.core.strict_json import Json
from dpgen_jax.private import votes
from dpgen_jax.run import checkpoint, metrics, noise_digests

ONCE = "no bits of noise or of secret draws were used twice"
MOST_ROWS = 12
"""Rows of metrics whose epsilon is computed anew, about, where that takes long"""


def against_releases(folder: Folder, findings: Findings) -> None:
    """Compares what is charged with what metrics, votes and checkpoints know was released.

    Args:
        folder: The folder.
        findings: Where findings are added.
    """
    files = folder.files
    if (why := attempt(lambda: metrics.charged(files.metrics))):
        findings.add("metrics.jsonl", Verdict.FAILS, why)
    else:
        _metrics(folder, findings)
    if folder.mechanism.keeps_votes and (files.votes.exists() or settled(folder.book)):
        _votes(folder, findings)
    _checkpoints(folder, findings)


def _metrics(folder: Folder, findings: Findings) -> None:
    """Compares the rows of metrics with the ledger; rounds that have none cannot be compared."""
    check, wrong, looked = "metrics.jsonl knows of no round that is not charged", *_rows(folder)
    rows = [_charged(row, 0) for row in metrics.every(folder.files.metrics)]
    without = settled(folder.book) - max(rows, default=0)
    if without > 0 and not wrong:
        findings.add(check, Verdict.UNCHECKED, f"of {without} of the rounds that were made it has "
                     "no row: what they released cannot be told")
    elif rows or wrong:
        findings.found(check, not wrong, wrong or looked)


def _checkpoints(folder: Folder, findings: Findings) -> None:
    """Compares the lines of the ledger that checkpoints name with the ledger."""
    place, wrong = folder.files.checkpoints, ""
    notes = {}
    for step in checkpoint.steps(place):
        try:
            notes[step] = checkpoint.note(place, step, "ledger_head", "ledger_lines")
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
    """Looks for bits that were used twice, and for rounds that were drawn and not charged.

    Args:
        folder: The folder.
        findings: Where findings are added.
    """
    path = folder.files.noise_digests
    if not path.exists():
        if folder.book.account.steps and _draws(folder):
            findings.add(ONCE, Verdict.UNCHECKED, "private/noise_digests.txt is missing, "
                         "which had their digests")
        return
    if why := attempt(lambda: noise_digests.read(path)):
        findings.add("private/noise_digests.txt", Verdict.FAILS, why)
        return
    rows = noise_digests.read(path)
    charged = folder.later().book.account.steps
    again, last = noise_digests.repeats(rows), max((row.number for row in rows), default=-1)
    inside = [row for row in rows if row.twice]
    wrong = f"rounds {' and '.join(map(str, again[0]))} had the same bits" if again else (
        f"in round {inside[0].number} {inside[0].twice} random numbers were the same as another "
        "one" if inside else
        f"round {last} was drawn, and {charged} rounds are charged" * (last >= charged))
    older = sum(row.twice is None for row in rows)
    seen = f"digests of {len(rows)} rounds, all different; no random number twice in a round" + (
        f", but of {older} rounds of an earlier version nobody looked for that" if older else "")
    unseen = settled(folder.book) - len({row.number for row in rows})
    if unseen > 0 and not wrong:
        findings.add(ONCE, Verdict.UNCHECKED, f"{seen}; of {unseen} other rounds that were made "
                     "there is no digest")
        return
    findings.found(ONCE, not wrong, wrong or seen)


def settled(book: Book) -> int:
    """Returns how many rounds were made to their end, by the ledger; a crash may lose others."""
    return sum(record["steps"] for record in book.records if record["kind"] == "settle")


def _draws(folder: Folder) -> bool:
    """Whether the process of this folder draws noise of its own: a server has that of no client."""
    mechanism = folder.mechanism
    return not folder.of_server and not isinstance(mechanism.noise, NoNoise)


def _steps_at(book: Book, lines: int) -> int:
    """Rounds that the first lines of a ledger charge."""
    account = Account()
    for record in book.records[:lines]:
        account.apply(record)
    return account.steps


def _rows(folder: Folder) -> tuple[str, str]:
    """Says what is wrong with the rows of metrics, or else what was looked at."""
    account, rows = Account(), metrics.every(folder.files.metrics)
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
                    for name in (metrics.EPSILON, metrics.BUDGET_EPSILON)
                    if isinstance(row.get(name), float)]
    looked = with_epsilon if quick(account.spent()) else with_epsilon[:-1][
        ::max(1, len(with_epsilon) // MOST_ROWS)] + with_epsilon[-1:]
    for number, row, said in looked:
        charged = _charged(row, account.steps)
        known = [_epsilon(spent, account) for spent in spent_at[charged]]
        if not any(math.isclose(said, value, rel_tol=1e-9) for value in known):
            return (f"line {number} says epsilon {said:.6g} for {charged} rounds; "
                    f"the ledger's is {known[-1]:.6g}"), ""
    return "", (f"{len(rows)} rows, at most {max(steps, default=0)} steps; epsilon computed anew "
                f"for {len(looked)} of {len(with_epsilon)}")


def _charged(row: Json, rounds: int) -> int:
    """Rounds that were charged when a row was written; a server writes the number of its round."""
    return int(row.get("charged", row["turn"] + 1 if "turn" in row else rounds))


def quick(events: Events) -> bool:
    """Returns whether the epsilon of events is a formula, and takes no time."""
    return all(isinstance(event, kinds.GaussianEvent | kinds.EpsilonDeltaEvent
                          | kinds.NonPrivateEvent) for event, _ in events)


_known: dict[tuple[Events, float], float] = {}


def _epsilon(spent: Events, account: Account) -> float:
    """The epsilon of events at the ledger's delta, computed once."""
    key = (spent, account.header["delta"])
    if key not in _known:
        _known[key] = gaussian.epsilon(*key)
    return _known[key]


def _votes(folder: Folder, findings: Findings) -> None:
    """Compares the votes that the data holder kept with the charges."""
    mechanism = folder.mechanism
    check = "private/votes.i4 knows of no answer that is not charged"
    kept = votes.n_steps(folder.files.votes, mechanism.queries, mechanism.vote_bins)
    if kept < settled(folder.book):
        findings.add(check, Verdict.UNCHECKED, f"it holds votes of {kept} rounds, and "
                     f"{settled(folder.book)} were made: what they answered cannot be told")
        return
    account = folder.later().book.account
    wrong = (f"votes of {kept} rounds are kept, and {account.steps} are charged"
             if kept > account.steps else "")
    looked = f"{kept} rounds of votes"
    if mechanism.cost_depends_on_answers and not wrong:
        flags = votes.answered(folder.files.votes, mechanism.queries, mechanism.vote_bins)
        (test, _), (answer, _) = mechanism.events(1)  # counted here, and not by the mechanism
        due = ((test, flags.size), (answer, int(flags.sum())))
        wrong = shortfall(account.spent(), due)
        looked += f", {int(flags.sum())} of {flags.size} queries answered, each of them charged"
    findings.found(check, not wrong, wrong or looked)
