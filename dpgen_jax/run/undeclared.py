"""Data of which not everything is declared: what is missing is bought from the budget, or read.

A value that nobody stated is a public constant, or is bought under differential privacy, or is read
from the records where the user accepts that or nothing is promised. A run always reports which
values these are. `found` is the one way, from a command and from Python: for the columns of a CSV
file, a Parquet file or a frame, and for the classes of an image folder (`run.missing`).

Order of a purchase. The ledger of the run opens before the data are typed. The steps are: the run
folder with a config.json that names the request, the ledger, the charge (in the ledger and in the
journal), the draw, the answer. A crash before the charge has spent nothing. A crash between the
charge and the answer has spent it, and a resume charges again for a new draw. Once the answer is
there, nothing is bought again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.events import Events
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.core import hosts
from dpgen_jax.core.config import Budget, to_json
from dpgen_jax.core.console import tell
from dpgen_jax.core.errors import option
from dpgen_jax.core.files import Json, exists, json_bytes, write_together
from dpgen_jax.core.request import Request
from dpgen_jax.core.run_folder import RunFolder, default_root, go_on, read_json
from dpgen_jax.core.terms import Relation, Unit
from dpgen_jax.core.types import Private, Spec, UserError
from dpgen_jax.data.base import safe_name
from dpgen_jax.data.table import patterns, schema
from dpgen_jax.presets.choice import Facts
from dpgen_jax.run import forecast, lifecycle, resolve, side_releases, spending
from dpgen_jax.run.lifecycle import Supposed
from dpgen_jax.run.resolve import Chosen
from dpgen_jax.run.resume import create, refuse_used

FIXED = ("method", "data", "budget")
"""Fields that a resume may not change before the answer is there."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """The outcome of a purchase.

    Attributes:
        line: The line on it for a terminal.
        class_names: The names of classes that it declares, as `DataOptions` has them; empty for a
            table, whose schema lies in the run folder.
        bought: The purchases that no schema holds, as `Dataset.bought` has them.
        files: Further files of the run folder, by name.
    """

    line: str
    class_names: str = ""
    bought: tuple[Json, ...] = ()
    files: dict[str, bytes] = dataclasses.field(default_factory=dict)


def stored(root: Path | None) -> Answer | None:
    """Returns the answer that a run folder holds, if any.

    Args:
        root: The folder, or None.

    Raises:
        UserError: It is damaged.
    """
    if root is None or not (files := RunFolder(root)).answer.is_file():
        return None
    row = read_json(files.answer)
    try:
        # Version 0.1.0 kept the words of flags.
        words = (str(word).partition("=") for word in row.get("flags", ()))
        names = row.get("class_names") or next(
            (value for flag, _, value in words if flag.endswith("class-names")), "")
        if files.class_names.is_file():  # wherever the folder is now
            names = str(files.class_names.absolute())
        answer = Answer(str(row["line"]), str(names), tuple(row["bought"]))
    except (KeyError, TypeError) as error:
        raise UserError(f"{files.answer} is damaged; restore it") from error
    return answer


def with_answer(options: Json, root: Path) -> Json:
    """Returns the options by which a run read its data, what was bought among them.

    Raises:
        UserError: The answer is damaged.
    """
    answer = stored(root)
    bought, stated = RunFolder(root).schema, options.get("schema")
    if answer is None or RunFolder(root).waiting:
        return options
    if not bought.is_file():
        return ({"class_names": answer.class_names} if answer.class_names else {}) | options
    if isinstance(stated, str) and exists(stated) and _declares(stated, str(bought)):
        return options  # the run went on with another schema, which declares every column
    return {name: value for name, value in options.items() if name != "label"} | {
        "schema": str(bought.absolute())}


def _declares(place: str, bought: str) -> bool:
    """Whether a schema declares each column of the one that was bought."""
    names, document = schema.document(bought).get("columns", {}), schema.document(place)
    if not isinstance(document, dict):
        return False
    return patterns.expanded(document, [*names]).get("columns", {}).keys() >= names.keys()


@dataclasses.dataclass(frozen=True)
class Offer:
    """How what is missing would be found.

    Attributes:
        events: The cost; none where it is read from the records, as nothing is promised.
        supposed: Data as they could be, and lines on the cost.
        check: Refuses, before a purchase, what is wrong whatever the answer is.
        draw: From the run folder, and all purchases that the ledger charges, to the answer.
    """

    events: Events
    supposed: Supposed
    check: Callable[[], None]
    draw: Callable[[Path, Events], Answer]


@dataclasses.dataclass(frozen=True)
class Missing:
    """A part of some data that nobody declared; the data were read.

    Attributes:
        place: The source of the data, as config.json names it.
        records: The public number of all records.
        spec: A schema of the kind that the data will have.
        content: A digest of the data, for the journal; sealed.
        paid: What was bought before, and is charged in addition.
    """

    place: str
    records: int
    spec: Spec
    content: Private[str]
    paid: Events

    def offered(self, made: Chosen, promised: bool) -> Offer:
        """Returns how this would be found.

        Args:
            made: The method, the preset and the budget for such data.
            promised: Whether it is bought, and not read from the records.

        Raises:
            UserError: It cannot be bought, or the purchase would be useless.
        """
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Found:
    """How what is missing was found.

    Attributes:
        request: The request, with the run folder and the budget that the purchase is a part of.
        missing: What was missing; None where the run has its answer, and nothing was read.
        answer: The answer; None in a rehearsal.
        supposed: In a rehearsal, what would be bought, or read.
    """

    request: Request
    missing: Missing | None = None
    answer: Answer | None = None
    supposed: Supposed | None = None


def is_promised(request: Request, budget: Budget) -> bool:
    """Returns whether what is missing is bought, and not read from the records."""
    return math.isfinite(budget.epsilon) and request.seed is None and not request.accept_uncovered


def found(name: str, read: Callable[[], Missing], request: Request, rehearsing: bool) -> Found:
    """Finds what is missing: buys it, reads it from the records, or takes what a run has bought.

    Args:
        name: The name of the data, for a run folder.
        read: Reads the data of which something is missing.
        request: The request, with its source.
        rehearsing: Whether nothing may be written or spent.

    Raises:
        UserError: A run on such data would be refused, or the purchase would be useless; said
            before anything is spent.
        BudgetExceeded: The budget does not allow the purchase.
    """
    of_kind = request.changed(source=request.source or "table")  # a frame has no source
    method = resolve.provisional(of_kind).method
    root = request.out or default_root(method, safe_name(name))
    waiting = request.resume and RunFolder(root).waiting
    if request.resume and not waiting and (answer := stored(root)) is not None:
        return Found(request, answer=answer)
    if request.out and not waiting:
        refuse_used(root)
    missing = read()
    made = resolve.chosen(request, Facts("", missing.spec, missing.records))
    request = request.changed(epsilon=made.budget.epsilon, delta=made.budget.delta)
    offer = missing.offered(made, is_promised(request, made.budget))
    if rehearsing:
        return Found(request, missing, supposed=offer.supposed)
    request = request.changed(out=root)
    if offer.events and not (request.resume and stored(root)):
        offer.check()
        expected = lifecycle.refuse(
            offer.supposed, functools.partial(resolve.resolved, request))
        forecast.announce(tuple(f"{line}, if the label has two classes" for line in expected)
                     if offer.supposed.spec.classes > 1 else expected, tell)
    answer = _answered(missing, offer, made, request.changed(method=method), root)
    return Found(request, missing, answer)


def _answered(missing: Missing, offer: Offer, made: Chosen, request: Request, root: Path) -> Answer:
    """Charges a purchase, draws, and keeps the answer; or takes the one that is there."""
    files, budget = RunFolder(root), Budget(made.budget.epsilon, made.budget.delta)
    about: Json = to_json({
        "method": request.method, "data": missing.place,
        "budget": {"epsilon": budget.epsilon, "delta": budget.delta},
        "request": request.to_json(), "purchase": True})
    going_on = request.resume and files.waiting
    if going_on:
        _require_same(files, about)
        if (answer := stored(root)) is not None:
            return answer
    if hosts.count() > 1:
        raise UserError(f"undeclared entries of {missing.place} are read or bought by one process: "
                        f"declare them ({option('schema')}, {option('class_names')}), or start the "
                        f"run without {option('coordinator')} and resume it with several processes "
                        f"by {option('resume', True)}")
    read = None if offer.events else offer.draw(root, ())  # may fail, before anything is made
    relation = str(getattr(made.config, "relation", Relation.REPLACE_ONE))
    start = spending.Start(budget, bool(offer.events), request.total_epsilon,
                           files if going_on else None, missing.paid)
    with spending.before(spending.Identity(None, missing.content), spending.Promise(
            relation, Unit.RECORD, ""), start, _private) as witness:
        if not going_on:
            create(root, about)
        ledger = None if read else _ledger(files, budget, relation, witness)
    if ledger is None or read is not None:
        answer = _kept(files, read or offer.draw(root, ()))
        files.schema.chmod(0o600)  # it was read from the records
        return answer
    with ledger:
        ledger.charge(side_releases.named(offer.events, files.run_id()))
        return _kept(files, offer.draw(root, ledger.spent()))


@contextlib.contextmanager
def remembered(root: Path | None) -> Iterator[None]:
    """Adds to an error before the training what happens to the purchase that came before it.

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
        mend = f", with {files.schema} corrected" * schema
        other = (f"; or name {files.schema} as {option('schema')} of a run with another "
                 f"{option('out')}") * schema
        error.args = (
            f"{error} (the purchase is kept in {files.root} and is not paid for again: resume with "
            f"{go_on(files.root)}{mend} or with corrected flags{other})",)
        raise


def _private(line: str) -> None:
    tell(f"private: {line}", sys.stderr)


def _require_same(files: RunFolder, about: Json) -> None:
    """Refuses to go on with another request than the purchase was begun for."""
    before = read_json(files.config)
    for name in FIXED:
        if before.get(name) != about[name]:
            raise UserError(f"{files.root} was started with {name} {before.get(name)}, and now it "
                            f"is {about[name]}; resume it as it was: {go_on(files.root)}")


def _ledger(files: RunFolder, budget: Budget, relation: str, witness: spending.Witnesses
            ) -> Ledger:
    """Opens the run's ledger, or makes it."""
    if books.begun(files.ledger):
        return Ledger.open(files.ledger, witness(files))
    files.ledger.unlink(missing_ok=True)  # a header that a crash tore
    return Ledger.create(files.ledger, {
        "epsilon": float(budget.epsilon), "delta": budget.delta, "relation": relation,
        "unit": Unit.RECORD, "config_hash": "", "run": files.run_id()}, witness(files))


def _kept(files: RunFolder, answer: Answer) -> Answer:
    """Writes an answer, its last file last: where that one exists, the others do."""
    row = {"class_names": answer.class_names, "line": answer.line, "bought": list(answer.bought)}
    write_together(files.root, answer.files | {files.answer.name: json_bytes(to_json(row))})
    return answer
