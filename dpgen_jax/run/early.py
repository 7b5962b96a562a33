"""The start of a run whose data nobody declared: its ledger opens before they are typed.

In this order: the run folder with a config.json that says what is asked for, the ledger, the charge
(in the ledger and in the journal), the draw, the answer. A crash before the charge has spent
nothing; one between the charge and the answer has spent it, and a resume charges again for a new
draw; where the answer is there, nothing is bought again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.events import Events
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.core import hosts
from dpgen_jax.core.atomic import json_bytes, write_together
from dpgen_jax.core.config import Budget, to_json
from dpgen_jax.core.console import tell
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.terms import Unit
from dpgen_jax.core.types import Private, UserError
from dpgen_jax.run import folder, opening, side_releases, spending
from dpgen_jax.run.folder import RunFolder, read_json

FIXED = ("method", "data", "budget")
"""Fields that a resume may not change before the answer is there."""


@dataclasses.dataclass(frozen=True)
class Purchase:
    """A purchase that is to be made, before the run is known whole.

    Attributes:
        root: The run folder.
        method: The name of the method.
        place: What the data are read from.
        relation: The neighbouring relation of the method's configuration.
        budget: The budget of the run.
        events: What the purchase costs; none where all is read from the records and nothing is
            promised.
        content: A digest of the data, for the journal; sealed.
        total: The value of --total-epsilon, or None.
        typed: The words of the command, the method first.
        paid: Events of purchases that the run will charge beside it.
    """

    root: Path
    method: str
    place: str
    relation: str
    budget: Budget
    events: Events
    content: Private[str]
    total: float | None
    typed: tuple[str, ...]
    paid: Events = ()

    @property
    def about(self) -> Json:
        """The content of config.json until it is complete."""
        budget = {"epsilon": self.budget.epsilon, "delta": self.budget.delta}
        described: Json = to_json({
            "method": self.method, "data": self.place, "budget": budget,
            "typed": list(self.typed), "purchase": True})
        return described


@dataclasses.dataclass(frozen=True)
class Answer:
    """The outcome of a purchase.

    Attributes:
        flags: Flags that declare it.
        line: What a terminal says of it.
        bought: The purchases that no schema holds, as `Dataset.bought` has them.
        files: Further files of the run folder, by name.
    """

    flags: tuple[str, ...]
    line: str
    bought: tuple[Json, ...] = ()
    files: dict[str, bytes] = dataclasses.field(default_factory=dict)


def stored(root: Path | None) -> Answer | None:
    """Returns the answer that a run folder holds, if any.

    Args:
        root: The folder, or None.

    Raises:
        UserError: It is damaged.
    """
    if root is None or not RunFolder(root).answer.is_file():
        return None
    row = read_json(RunFolder(root).answer)
    try:
        answer = Answer(tuple(map(str, row["flags"])), str(row["line"]), tuple(row["bought"]))
    except (KeyError, TypeError) as error:
        raise UserError(f"{RunFolder(root).answer} is damaged; bring it back") from error
    return answer


def answered(purchase: Purchase, resume: bool, draw: Callable[[Events], Answer]) -> Answer:
    """Charges a purchase, draws, and keeps the answer in the run folder.

    Args:
        purchase: What is to be bought.
        resume: Whether the run folder is one to go on with.
        draw: From all purchases that the ledger charges to the answer.

    Returns:
        The answer: the one that is there, where there is one.

    Raises:
        UserError: For a folder that is not of this run, and from the draw, which is then spent.
        BudgetExceeded: The budget does not allow the purchase.
    """
    files = RunFolder(purchase.root)
    going_on = resume and files.waiting
    if going_on:
        _require_same(files, purchase.about)
        if (answer := stored(purchase.root)) is not None:
            return answer
    if hosts.count() > 1:
        raise UserError(f"what {purchase.place} leaves undeclared is read or bought by one "
                        "process: declare it (--schema, --class-names), or begin the run without "
                        "--coordinator and go on with several processes by --resume")
    read = None if purchase.events else draw(())  # which may fail, before anything is made
    promised = spending.Promise(purchase.relation, Unit.RECORD, "")
    start = spending.Start(purchase.budget, bool(purchase.events), purchase.total,
                           files if going_on else None, purchase.paid)
    with spending.before(spending.Identity(None, purchase.content), promised, start,
                         _private) as witness:
        if not going_on:
            opening.create(purchase.root, purchase.about)
        ledger = _ledger(files, purchase, witness) if purchase.events else None
    if ledger is None or read is not None:
        answer = _kept(files, read or draw(()))
        files.schema.chmod(0o600)  # it was read from the records
        return answer
    with ledger:
        ledger.charge(side_releases.named(purchase.events, files.run_id()))
        return _kept(files, draw(ledger.spent()))


@contextlib.contextmanager
def remembered(root: Path | None) -> Iterator[None]:
    """Adds to an error before the training what becomes of the purchase that came before it.

    Args:
        root: The run folder, or None.
    """
    try:
        yield
    except UserError as error:
        files = RunFolder(root) if root is not None else None
        if files is None or not files.waiting or stored(root) is None or not books.begun(
                files.ledger):
            raise
        schema = files.schema.is_file()
        mend = f", with {files.schema} mended" * schema
        other = f"; or name {files.schema} as --schema of a run with another --out" * schema
        raise type(error)(
            f"{error} (what was bought is kept in {files.root}, and is not paid for again: go on "
            f"by {folder.go_on(files.root)}{mend} or with flags that mend this{other})") from error


def _private(line: str) -> None:
    tell(f"private: {line}", sys.stderr)


def _require_same(files: RunFolder, about: Json) -> None:
    """Refuses to go on with another request than the purchase was begun for."""
    before = read_json(files.config)
    for name in FIXED:
        if before.get(name) != about[name]:
            raise UserError(f"{files.root} was started with {name} {before.get(name)}, and now it "
                            f"is {about[name]}; go on with it as it was: "
                            f"{folder.go_on(files.root)}")


def _ledger(files: RunFolder, purchase: Purchase, witness: spending.Witnesses) -> Ledger:
    """Opens the run's ledger, or makes it."""
    if books.begun(files.ledger):
        return Ledger.open(files.ledger, witness(files))
    files.ledger.unlink(missing_ok=True)  # a header that a crash tore
    return Ledger.create(files.ledger, {
        "epsilon": float(purchase.budget.epsilon), "delta": purchase.budget.delta,
        "relation": purchase.relation, "unit": Unit.RECORD, "config_hash": "",
        "run": files.run_id()}, witness(files))


def _kept(files: RunFolder, answer: Answer) -> Answer:
    """Writes an answer, its last file last: where that is there, the others are."""
    row = {"flags": list(answer.flags), "line": answer.line, "bought": list(answer.bought)}
    write_together(files.root, answer.files | {files.answer.name: json_bytes(to_json(row))})
    return answer
