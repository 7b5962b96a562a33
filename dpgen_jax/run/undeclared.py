"""Data of which not everything is declared: what is missing is bought from the budget, or read.

A value that nobody stated is a public constant, or is bought under differential privacy, or is read
from the records where the user accepts that or nothing is promised. A run always reports which
values these are. `found` is the one way: for the columns of a CSV or Parquet file or a frame
(`Entries`), and for the classes of an image folder (`Names`), from a command and from Python.

Order of a purchase. The ledger of the run opens before the data are typed. The steps are: the run
folder with a config.json that names the request, the ledger, the charge (in the ledger and in the
journal), the draw, the answer. A crash before the charge has spent nothing. A crash between the
charge and the answer has spent it, and a resume charges again for a new draw. Once the answer is
there, nothing is bought again.

Image folders. The set of class folders is a function of private records: one image in a folder of
its own distinguishes neighbours. So a folder whose classes nobody declared is read by the names
that come out of a stable histogram. Images of other folders become empty slots, and the run charges
the purchase.

Tables. There may be no schema, or one that declares a part of the columns. The missing entries are
bought, or read from the records. The result is schema.yaml in the run folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dpgen_jax import presets
from dpgen_jax.accountant import composition, events
from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.events import Events
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation import single_releases
from dpgen_jax.aggregation.noise import OsBits
from dpgen_jax.aggregation.single_releases import Survey
from dpgen_jax.core import hosts, run_folder
from dpgen_jax.core.config import Budget, DataOptions, to_json
from dpgen_jax.core.console import program, tell
from dpgen_jax.core.errors import nearest, option
from dpgen_jax.core.files import Json, exists, json_bytes, write_together
from dpgen_jax.core.request import Request
from dpgen_jax.core.run_folder import RunFolder, default_root, read_json
from dpgen_jax.core.terms import Relation, Unit, at_most
from dpgen_jax.core.types import NO_LABEL, ImageSpec, Private, Spec, UserError
from dpgen_jax.data import parts
from dpgen_jax.data.base import listed, locate, safe_name
from dpgen_jax.data.images import files as image_files
from dpgen_jax.data.table import draft, parsing, raw, schema
from dpgen_jax.data.table.parsing import Cells
from dpgen_jax.data.table.raw import Table
from dpgen_jax.data.table.schema import Dialect, declared_dialect
from dpgen_jax.presets.choice import Facts
from dpgen_jax.run import purchase as run_purchase
from dpgen_jax.run import rehearsal, resolve, side_releases, spending
from dpgen_jax.run.purchase import Wanted
from dpgen_jax.run.rehearsal import Supposed
from dpgen_jax.run.resolve import Chosen
from dpgen_jax.run.resume import create, refuse_used

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
        request: The request, with the budget.
        paid: Events of purchases that the run will charge in addition.
    """

    root: Path
    method: str
    place: str
    relation: str
    budget: Budget
    events: Events
    content: Private[str]
    request: Request
    paid: Events = ()

    @property
    def about(self) -> Json:
        """The content of config.json until it is complete."""
        budget = {"epsilon": self.budget.epsilon, "delta": self.budget.delta}
        described: Json = to_json({
            "method": self.method, "data": self.place, "budget": budget,
            "request": self.request.to_json(), "purchase": True})
        return described


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
        raise UserError(f"{files.answer} is damaged; bring it back") from error
    return answer


def with_answer(options: Json, root: Path) -> Json:
    """Returns the options by which a run read its data, what was bought among them.

    Args:
        options: Those that were stated for the run, as a request holds them.
        root: The run folder.

    Raises:
        UserError: The answer is damaged.
    """
    answer = stored(root)
    if answer is None or RunFolder(root).waiting:
        return options
    if answer.class_names:
        return options | {"class_names": answer.class_names}
    bought, stated = RunFolder(root).schema, options.get("schema")
    if isinstance(stated, str) and exists(stated) and _columns(stated) >= _columns(str(bought)):
        return options  # the run went on with another schema, which declares every column
    return {name: value for name, value in options.items() if name != "label"} | {
        "schema": str(bought.absolute())}


def _columns(place: str) -> set[str]:
    """The names of the columns that a schema declares."""
    document = schema.document(place)
    columns = document.get("columns") if isinstance(document, dict) else None
    return set(columns) if isinstance(columns, dict) else set()


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
                        f"process: declare it ({option('schema')}, {option('class_names')}), or "
                        f"begin the run without {option('coordinator')} and go on with several "
                        f"processes by {option('resume', True)}")
    read = None if purchase.events else draw(())  # which may fail, before anything is made
    promised = spending.Promise(purchase.relation, Unit.RECORD, "")
    start = spending.Start(purchase.budget, bool(purchase.events), purchase.request.total_epsilon,
                           files if going_on else None, purchase.paid)
    with spending.before(spending.Identity(None, purchase.content), promised, start,
                         _private) as witness:
        if not going_on:
            create(purchase.root, purchase.about)
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
        mend = f", with {files.schema} mended" * schema
        other = (f"; or name {files.schema} as {option('schema')} of a run with another "
                 f"{option('out')}") * schema
        error.args = (
            f"{error} (what was bought is kept in {files.root}, and is not paid for again: go on "
            f"by {run_folder.go_on(files.root)}{mend} or with flags that mend this{other})",)
        raise


def _private(line: str) -> None:
    tell(f"private: {line}", sys.stderr)


def _require_same(files: RunFolder, about: Json) -> None:
    """Refuses to go on with another request than the purchase was begun for."""
    before = read_json(files.config)
    for name in FIXED:
        if before.get(name) != about[name]:
            raise UserError(f"{files.root} was started with {name} {before.get(name)}, and now it "
                            f"is {about[name]}; go on with it as it was: "
                            f"{run_folder.go_on(files.root)}")


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
    """Writes an answer, its last file last: where that one exists, the others do."""
    row = {"class_names": answer.class_names, "line": answer.line, "bought": list(answer.bought)}
    write_together(files.root, answer.files | {files.answer.name: json_bytes(to_json(row))})
    return answer


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
class Found:
    """How what is missing was found.

    Attributes:
        request: The request, with the run folder and the budget that the purchase is a part of.
        answer: The answer; None in a rehearsal.
        supposed: In a rehearsal, what would be bought, or read.
    """

    request: Request
    answer: Answer | None = None
    supposed: Supposed | None = None


def is_promised(request: Request, budget: Budget) -> bool:
    """Returns whether what is missing is bought, and not read from the records.

    Args:
        request: The request.
        budget: Its budget, complete.
    """
    return math.isfinite(budget.epsilon) and request.seed is None and not request.accept_uncovered


def found(missing: Entries | Classes, request: Request, rehearsing: bool = False) -> Found:
    """Finds what is missing: buys it, reads it from the records, or takes what a run has bought.

    Args:
        missing: What is missing.
        request: The request, with its source.
        rehearsing: Whether nothing may be written or spent.

    Raises:
        UserError: A run on such data would be refused, or the purchase would be useless; said
            before anything is spent.
        BudgetExceeded: The budget does not allow the purchase.
    """
    method = resolve.provisional(request).method
    root = request.out or default_root(method, safe_name(missing.name))
    waiting = request.resume and RunFolder(root).waiting
    if request.resume and not waiting and (answer := stored(root)) is not None:
        return Found(request, answer)
    if request.out and not waiting:
        refuse_used(root)
    made = resolve.chosen(request, Facts("", missing.spec, missing.records))
    budget = Budget(made.budget.epsilon, made.budget.delta)
    request = request.changed(epsilon=budget.epsilon, delta=budget.delta)
    offer = missing.offered(made, is_promised(request, budget))
    if rehearsing:
        return Found(request, supposed=offer.supposed)
    request = request.changed(out=root)
    if offer.events and not (request.resume and stored(root)):
        offer.check()
        rehearsal.refuse(offer.supposed, functools.partial(resolve.resolved, request))
    purchase = Purchase(
        root, method, missing.place, str(getattr(made.config, "relation", Relation.REPLACE_ONE)),
        budget, offer.events, missing.content(), request.changed(method=method), missing.paid)
    return Found(request, answered(purchase, request.resume, functools.partial(offer.draw, root)))


def trained_on(options: DataOptions, n: int, tested: bool) -> int:
    """Returns the number of records that are left for the training, before the data are typed.

    Args:
        options: How the data are read.
        n: The public number of all records, without those of a held-out part that the data bring.
        tested: Whether they bring one.

    Raises:
        UserError: As `parts.hold_out`.
    """
    share = options.test_fraction
    if share is None:
        share = 0.0 if tested or n < parts.FEWEST else parts.HELD_OUT_SHARE
    if not share:
        return n
    parts.check(share, tested, "the data set")
    return n - parts.count(share, n)


REMARK = """\
The schema of {source}. The columns that say so were bought under differential privacy from all
{rows:,} rows of that file, at epsilon {alone} by itself (delta {delta}); the others were
declared. It may be published, edited, and passed as --schema.
For records of other people, of whom none was in that file, delete the block `bought`: then it
costs nothing."""
READ = """\
The schema of {source}, which was READ FROM ITS RECORDS by --accept-uncovered, or
by a run that promises nothing: no epsilon covers it."""


def missing_of(table: Table, document: Any, options: DataOptions, share: float) -> Entries | None:
    """Returns what a schema does not declare of a table; None where it declares every column.

    Args:
        table: The table.
        document: The document of the schema; None where there is none.
        options: How the table is read.
        share: The part of the budget that may buy it.

    Raises:
        UserError: The header does not fit the schema or the label.
    """
    partial: Json = document if isinstance(document, dict) else {}
    columns: object = partial.get("columns")
    columns = columns if isinstance(columns, dict) else {}
    dialect = declared_dialect(partial["file"]) if "file" in partial else table.dialect()
    names = table.header(dialect)
    absent = tuple(name for name in names if name not in columns and name != options.unit)
    if document is not None and (not absent or not columns):
        return None  # what is wrong with it is found where it is read
    for name in columns:
        if name not in names:
            raise UserError(f"{table}: column {name!r} is missing{nearest(name, names)}; it has: "
                            f"{listed(names)}")
    label = _label(options.label, partial.get("label"), names, table)
    if not set(names) - {label, options.unit} or len(names) == 1:
        raise UserError(f"{table}: there is one column only, and nothing beside it to train on; "
                        f"declare it in {option('schema', 'FILE')}, or add the others")
    return Entries(table, dialect, Wanted(absent, label, partial, share), options)


def _label(stated: str | None, of_schema: object, names: list[str], table: Table) -> str | None:
    """The label, as it is stated or by the schema, which must be a column."""
    if stated is not None and of_schema not in (None, stated):
        raise UserError(f"{option('label', stated)}: the schema has the label {of_schema}; drop "
                        "one of them")
    label = of_schema if stated is None else stated
    if label is not None and label not in names:
        raise UserError(f"{option('label', label)}: {table} has no such "
                        f"column{nearest(str(label), names)}; it has: {listed(names)}")
    return None if label is None else str(label)


@dataclasses.dataclass(frozen=True)
class Entries:
    """The entries of the columns of a table that nobody declared.

    Attributes:
        table: The table.
        dialect: How it is written.
        wanted: What is missing, and what is declared.
        options: How it is read.
    """

    table: Table
    dialect: Dialect
    wanted: Wanted
    options: DataOptions

    def __str__(self) -> str:
        return listed(self.wanted.columns)

    @property
    def name(self) -> str:
        """The name of the table."""
        return self.table.name

    @property
    def place(self) -> str:
        """The full path of the file, with its kind; of a frame that word."""
        kind = self.table.kind
        return kind if kind == raw.FRAME else f"{kind}:{self.table.place.resolve()}"

    @functools.cached_property
    def cells(self) -> Cells:
        """The cells, which are read once: those by which a purchase is made are trained on."""
        return self.table.cells(self.dialect, self._declared())

    @functools.cached_property
    def test(self) -> Cells | None:
        """The cells of the held-out part, where it is a file of its own."""
        if self.options.test_csv is None:
            return None
        return self.table.beside(self.options.test_csv).cells(self.dialect, self._declared())

    @property
    def is_read(self) -> bool:
        """Whether the cells were read."""
        return "cells" in vars(self)

    @property
    def records(self) -> int:
        """The public number of rows."""
        return len(self.cells.rows)

    @property
    def spec(self) -> Spec:
        """Numbers, as many as there are columns, and two classes where there is a label."""
        names = set(self.cells.columns) - {self.wanted.label, self.options.unit}
        spec = presets.numbers(len(names))
        return spec if self.wanted.label else dataclasses.replace(spec, label=NO_LABEL)

    @property
    def paid(self) -> Events:
        """The purchases that the schema lists."""
        return side_releases.purchases(schema.purchases(self.wanted.declared.get("bought", [])))

    def content(self) -> Private[str]:
        """Returns a digest of the table, for the journal; sealed."""
        return Private(self.table.content)

    def offered(self, made: Chosen, promised: bool) -> Offer:
        """Returns how the entries would be found.

        Args:
            made: The method, the preset and the budget for such data.
            promised: Whether they are bought, and not read.

        Raises:
            UserError: What is declared does not allow a purchase, or it would be useless.
        """
        n, budget = self.records, Budget(made.budget.epsilon, made.budget.delta)
        if not promised:
            read = (f"the schema of {self} would be READ FROM THE RECORDS, which no epsilon "
                    f"covers; {option('schema', 'FILE')} declares it",)
            return Offer((), self._supposed(budget, (), read), lambda: None,
                         lambda root, spent: self._read())
        survey = self._survey(made, n)
        lines = run_purchase.price_lines(survey, n, budget, self.wanted.share)
        return Offer(survey.events(), self._supposed(budget, survey.events(), lines), self._check,
                     functools.partial(self._draw, survey, budget))

    def _supposed(self, budget: Budget, events: Events, lines: tuple[str, ...]) -> Supposed:
        """The table as it could be."""
        count = self.records if self.table.kind == raw.FRAME else trained_on(
            self.options, self.records, self.options.test_csv is not None)
        what = "if all columns were numbers" + ", and the label of two classes" * bool(
            self.wanted.label)
        return Supposed("table", what, self.spec, count, budget, (*events, *self.paid), lines)

    def _survey(self, made: Chosen, n: int) -> Survey:
        """The queries of a purchase, after all checks that need none of their answers."""
        wanted, stated, budget = self.wanted, self.options.schema or "schema", made.budget
        if made.config.protects_clients or self.options.unit is not None:
            unit = {"unit": self.options.unit} if self.options.unit else {}
            drafted = ("draft_schema(frame)" if self.table.kind == raw.FRAME else
                       program("schema", self.table, **unit, out="FILE"))
            raise UserError(f"{self.table}: {self} are not declared, and they are bought at the "
                            "level of single rows, which does not cover all rows of a unit or a "
                            f"client; declare them in {option('schema', 'FILE')}, which "
                            f"{drafted} drafts for you to edit (nothing was spent)")
        if wanted.declared.get("read_from_data"):
            raise UserError(f"{stated}: its read_from_data lists entries that no epsilon covers, "
                            f"and {self} are not declared; declare those entries and take them off "
                            "the list before the rest is bought, or pass "
                            f"{option('accept_uncovered', True)} (nothing was spent)")
        schema.refuse_multiline(declared_dialect(wanted.declared.get("file", {})), stated)
        composition.check_budget(budget.epsilon, budget.delta, n)
        survey = run_purchase.priced_survey(len(wanted.columns), wanted.queries, n, budget.epsilon,
                                            budget.delta, wanted.share)
        run_purchase.refuse_useless_schema(survey, n, budget.epsilon)
        return survey

    def _trial(self, names: list[str]) -> schema.Schema:
        """The declared entries, with any for the other columns.

        Constraints wait for the others: `schema.parse` checks them.
        """
        wanted, declared = self.wanted, self.wanted.declared.get("columns", {})
        unknown = {"kind": "categorical", "categories": [run_purchase.OTHER],
                   "other": run_purchase.OTHER, "nullable": "true"}
        label = {"kind": "categorical", "categories": ["a", "b"], "odd": "null"}
        columns = {name: declared.get(name, label if name == wanted.label else unknown)
                   for name in names if name in (*declared, *wanted.columns)}
        trial = {key: value for key, value in wanted.declared.items() if key != "constraints"}
        trial |= {"columns": columns} | ({"label": wanted.label} if wanted.label else {})
        return schema.parse(trial, str(self.options.schema or self.table))

    def _declared(self) -> Any:
        """The declared columns of a table of typed values, by which these become texts."""
        known = self.wanted.declared.get("columns", {})
        if not known or self.table.kind == "csv":
            return None
        spec = self._trial(self.table.header(self.dialect)).spec
        columns = tuple(column for column in spec.columns if column.name in known)
        return dataclasses.replace(spec, columns=columns, label=(
            spec.label if spec.label.name in known else NO_LABEL))

    def _check(self) -> None:
        """Refuses declared entries and cells that are wrong whatever the other columns are."""
        made = self._trial(list(self.cells.columns))
        for cells in filter(None, (self.cells, self.test)):
            parsing.coded(made, cells)

    def _draw(self, survey: Survey, budget: Budget, root: Path, spent: Events) -> Answer:
        """Buys what is missing. Whatever the noisy answers are, it ends with a schema."""
        source, delta = Path(self.cells.source).name, budget.delta
        document = run_purchase.buy_schema(self.cells, self.wanted, survey, spent, OsBits())
        cost = composition.epsilon_of(
            side_releases.purchases(schema.purchases(document["bought"])), delta)
        text = draft.render(document, source, REMARK.format(
            source=source, rows=self.records, alone=at_most(cost, 3), delta=at_most(delta)))
        line = _said(document, self.wanted, budget, run_purchase.price_alone(survey, delta))
        return Answer(f"{line}; see {root / 'schema.yaml'}", files={"schema.yaml": text.encode()})

    def _read(self) -> Answer:
        """Reads the entries from the records."""
        wanted, unit = self.wanted, self.options.unit
        cells = dataclasses.replace(self.cells, columns={
            name: texts for name, texts in self.cells.columns.items() if name != unit})
        drafted = draft.draft(cells, wanted.label, wanted.declared.get("columns"))
        entries = [*wanted.declared.get("read_from_data", []), *drafted["read_from_data"]]
        document = wanted.declared | drafted | {"read_from_data": [*dict.fromkeys(entries)]}
        schema.parse(document, option("schema"))
        source = Path(self.cells.source).name
        text = draft.render(document, source, READ.format(source=source))
        return Answer(
            f"the schema of {self} is READ FROM THE RECORDS, which no epsilon covers; "
            f"{option('schema')} declares it, and without {option('accept_uncovered', True)} it is "
            "bought",
            files={"schema.yaml": text.encode()})


def _said(document: Json, wanted: Wanted, budget: Budget, alone: float) -> str:
    """The line on a purchase: its cost and its result, all of it released."""
    columns = {name: document["columns"][name] for name in wanted.columns}
    empty = [name for name, entries in columns.items()
             if entries.get("categories") == [run_purchase.OTHER]]
    lost = (f"; of {listed(empty)} nothing stands out of the noise, and synthetic cells will hold "
            f"`{run_purchase.OTHER}`: declare {'it' if len(empty) == 1 else 'them'}"
            if empty else "")
    label = document.get("label")
    if label is not None:
        labelled = f"the label is {label}"
        if label in columns:
            labelled += f" with classes {listed(columns[label]['categories'])}"
    elif wanted.label is not None and wanted.label not in document.get("targets", ()):
        found = [text for text in columns[wanted.label].get("categories", ())
                 if text != run_purchase.OTHER]
        labelled = (f"fewer than 2 classes of the label {wanted.label} are so frequent that they "
                    f"stand out of the noise{f' ({listed(found)} does)' * bool(found)}, so it is a "
                    "column as any other, and rows have no label: to train with it, declare its "
                    "classes in a copy of the schema, with `label:`, for a run with another "
                    f"{option('out')}")
    elif wanted.label is not None:
        labelled = f"{wanted.label} is a number with many values, so it is no label but a target"
    else:
        labelled = f"without a label, as {option('label')} names none"
    share = wanted.share
    return (f"the schema of {len(columns)} columns that nobody declared is bought for {share:.3g} "
            f"of epsilon: Gaussian training has what epsilon {(1 - share) * budget.epsilon:.3g} "
            f"would give (by itself the purchase is epsilon {at_most(alone, 3)} at delta "
            f"{at_most(budget.delta)}); {labelled}{lost}")


NAMES_SHARE = 0.1
"""The part of epsilon, and of delta, that the names cost."""


@dataclasses.dataclass(frozen=True)
class Names:
    """Bought names of classes.

    Attributes:
        names: The names, of which there may be none.
        line: The line on them for a terminal.
    """

    names: tuple[str, ...]
    line: str

    def declared(self, place: Path) -> tuple[str, dict[str, bytes]]:
        """Returns the option that declares them, and the file that it names; empty without names.

        Args:
            place: The path of that file, which is needed where a name holds a comma.
        """
        names = (*self.names, image_files.OTHERS)
        if not self.names:
            return "", {}
        if not any("," in name for name in names):
            return ",".join(names), {}
        lines = "".join(f"{name}\n" for name in names)
        return str(place.absolute()), {place.name: lines.encode()}


def refuse_useless_names(n: int, epsilon: float, delta: float) -> None:
    """Refuses a purchase that so few images cannot pay off, by public numbers only.

    Args:
        n: The number of all images.
        epsilon: The budget of the run.
        delta: Likewise.

    Raises:
        UserError: It names the mend.
    """
    least = single_releases.least_count(NAMES_SHARE * epsilon, NAMES_SHARE * delta)
    if n < least:
        raise UserError(f"the names of the classes are not declared, and at epsilon {epsilon:g} "
                        f"only a class of some {least:,} images or more can be bought, of {n:,} in "
                        f"all; declare them by {option('class_names', 'A,B')}, which costs nothing "
                        "(nothing was spent)")


def names_cost(epsilon: float, delta: float) -> events.Events:
    """Returns what the names cost.

    Args:
        epsilon: The budget of the run, finite.
        delta: Likewise.
    """
    return ((single_releases.categories_event(NAMES_SHARE * epsilon, NAMES_SHARE * delta), 1),)


def names_price_line(epsilon: float, delta: float) -> str:
    """Returns the line of a rehearsal on the purchase.

    Args:
        epsilon: The budget of the run, finite.
        delta: Likewise.
    """
    price = NAMES_SHARE * epsilon, NAMES_SHARE * delta
    least = single_releases.least_count(*price)
    return (f"class names would be bought for epsilon {at_most(price[0])} at delta "
            f"{at_most(price[1])}, which the training has less: those come out that some {least:,} "
            f"images share; {option('class_names', 'A,B')} costs nothing")


def buy_names(path: str, epsilon: float, delta: float) -> Names:
    """Draws the names of the classes of an image folder, whose `names_cost` is charged already.

    Args:
        path: The folder.
        epsilon: The budget of the run, finite.
        delta: Likewise.

    Guarantee:
        That of `single_releases.categories`, at `NAMES_SHARE` of epsilon and delta: unit, an image
        file with the folder it lies in; replace-one, the number of files is public. All else here
        is computed from the released names.

    Returns:
        The names that can be declared.
    """
    price = NAMES_SHARE * epsilon, NAMES_SHARE * delta
    found = single_releases.categories(Private(image_files.categories(path)), *price, OsBits())
    names = tuple(name for name in found if _can_be_declared(name))
    bought = f"class names, bought for epsilon {at_most(price[0])} at delta {at_most(price[1])}: "
    if not names:
        return Names((), f"{bought}no class has so many images that its name stands out of the "
                     "noise" + " and can be declared" * bool(found))
    return Names(names, (f"{bought}{', '.join(names)}; images of rarer classes are left out; "
                         f"{option('class_names')} costs nothing"))


def _can_be_declared(name: str) -> bool:
    """Whether a name of a folder can be declared as a class."""
    return name.isprintable() and name == name.strip() and name not in ("", image_files.OTHERS)


@dataclasses.dataclass(frozen=True)
class Classes:
    """The classes of an image folder, which nobody named.

    Attributes:
        path: The folder.
        options: How it is read: the channels and the size of its images.
    """

    path: str
    options: DataOptions

    @property
    def name(self) -> str:
        """The name of the folder."""
        return locate(self.path).resolve().name

    @property
    def place(self) -> str:
        """The full path of the folder, with its kind."""
        return f"folder:{locate(self.path).resolve()}"

    @functools.cached_property
    def records(self) -> int:
        """The public number of images."""
        return len(image_files.categories(self.path))

    @property
    def spec(self) -> ImageSpec:
        """Two classes of such images."""
        side = self.options.image_size or SIDE
        return ImageSpec(side, side, self.options.channels or CHANNELS, 2)

    paid: Events = ()

    def content(self) -> Private[str]:
        """Returns a digest of the folder, for the journal; sealed."""
        return Private(image_files.content(self.path))

    def offered(self, made: Chosen, promised: bool) -> Offer:
        """Returns what the names would cost.

        Args:
            made: The method, the preset and the budget for such data.
            promised: True: where nothing is promised, the loader reads the names.

        Raises:
            UserError: The purchase would be useless.
        """
        n, budget = self.records, Budget(made.budget.epsilon, made.budget.delta)
        composition.check_budget(budget.epsilon, budget.delta, n)
        refuse_useless_names(n, budget.epsilon, budget.delta)
        cost = names_cost(budget.epsilon, budget.delta)

        def draw(root: Path, spent: Events) -> Answer:
            names = buy_names(self.path, budget.epsilon, budget.delta)
            declared, files = names.declared(RunFolder(root).class_names)
            rows = tuple({"records": n, **row} for row in events.to_json(spent))
            return Answer(names.line, declared, rows, files)

        count = trained_on(self.options, n, image_files.has_tests(self.path))
        price = (names_price_line(budget.epsilon, budget.delta),)
        return Offer(cost, Supposed("images", "with two classes", self.spec, count, budget, cost,
                                    price), lambda: None, draw)


CHANNELS, SIDE = 3, 32
"""The values for an image folder that declares nothing."""
