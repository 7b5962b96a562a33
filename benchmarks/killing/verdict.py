"""The verdict on a run folder after kills: what it states against what was seen from outside."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from dpgen_jax.accountant import ledger as books
from dpgen_jax.core import run_folder
from dpgen_jax.core.run_folder import RunFolder, read_json


@dataclasses.dataclass(frozen=True)
class Seen:
    """From the audit: turns of the draws that began, in order; counts: class counts that were
    bought; marks: moments passed.
    """

    turns: tuple[int, ...]
    counts: int
    marks: int


def seen(audit: Path) -> Seen:
    lines = [line.split() for line in audit.read_text().splitlines()] if audit.exists() else []
    turns = [turn for kind, *rest in lines if kind == "draw"
             for turn in range(int(rest[0]), int(rest[0]) + int(rest[1]))]
    kinds = [line[0] for line in lines]
    return Seen(tuple(turns), kinds.count("counts"), kinds.count("mark"))


def under_counted(root: Path, audit: Path) -> list[str]:
    """Where the ledger charges less than was drawn, as lines; none is the only good answer."""
    found, files = seen(audit), RunFolder(root)
    if not files.ledger.exists():
        return [f"no ledger, and {found} was drawn"] if found.turns or found.counts else []
    account = books.account(books.read(files.ledger))
    bought = sum(n for event, n in account.spent() if "class counts" in event.mechanism)
    faults = []
    if account.steps < len(found.turns):
        faults.append(f"{len(found.turns)} steps were drawn, {account.steps} charged")
    if max(found.turns, default=-1) >= account.steps:
        faults.append(f"turn {max(found.turns)} was drawn, and {account.steps} are charged")
    if len(set(found.turns)) < len(found.turns):
        faults.append(f"a turn was drawn twice: {found.turns}")
    if bought < found.counts:
        faults.append(f"class counts were bought {found.counts} times, charged {bought}")
    return faults


def wrong_at_the_end(root: Path, audit: Path) -> list[str]:
    """Return the faults of a run that states that it is finished."""
    files, faults = RunFolder(root), under_counted(root, audit)
    account, privacy = books.account(books.read(files.ledger)), read_json(
        files.release / "privacy.json")
    if not float(privacy["epsilon"]) >= account.epsilon():
        faults.append(f"states epsilon {privacy['epsilon']}, its ledger {account.epsilon()}")
    if privacy["steps"] > account.steps:
        faults.append(f"states {privacy['steps']} steps, its ledger {account.steps}")
    said = sum(event["count"] for event in privacy["events"])
    if said != sum(n for _, n in account.spent()):
        faults.append(f"states {said} events, its ledger {account.spent()}")
    return faults + _metrics(files, privacy) + _votes(files, account)


def _metrics(files: RunFolder, privacy: dict[str, Any]) -> list[str]:
    steps = [row["step"] for row in run_folder.read(files.metrics) if not row.get("superseded")]
    if steps != sorted(set(steps)) or steps[-1:] < [privacy["steps"]]:
        return [f"metrics tell of steps {steps}, the statement of {privacy['steps']}"]
    return []


def _votes(files: RunFolder, account: Any) -> list[str]:
    """Rows of votes: whole ones, of no more steps than are charged."""
    if not files.votes.exists():
        return []
    size, row = files.votes.stat().st_size, read_json(files.config)["config"]["batch"]
    return [f"{size} bytes of votes are no whole rows"] if size % (4 * row) else []
