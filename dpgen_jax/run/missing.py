"""The parts of data that may be missing: entries of the columns of a table, and names of classes.

Image folders. The set of class folders is a function of private records: one image in a folder of
its own distinguishes neighbours. So a folder whose classes nobody declared is read by the names
that come out of a stable histogram. Images of other folders become empty slots, and the run charges
the purchase.

Tables. There may be no schema, or one that declares a part of the columns. The missing entries are
bought, or read from the records. The result is schema.yaml in the run folder.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

from dpgen_jax import presets
from dpgen_jax.accountant import composition, events
from dpgen_jax.accountant.events import Events
from dpgen_jax.aggregation import single_releases
from dpgen_jax.aggregation.noise import OsBits
from dpgen_jax.aggregation.single_releases import Survey
from dpgen_jax.core.config import Budget, DataOptions
from dpgen_jax.core.console import program
from dpgen_jax.core.errors import listed, nearest, option
from dpgen_jax.core.files import Json
from dpgen_jax.core.run_folder import RunFolder
from dpgen_jax.core.terms import at_most
from dpgen_jax.core.types import NO_LABEL, ImageSpec, Private, UserError
from dpgen_jax.data import parts
from dpgen_jax.data.base import locate
from dpgen_jax.data.images import files as image_files
from dpgen_jax.data.table import draft, parsing, raw, schema
from dpgen_jax.data.table.columns import check_partial, is_partial, with_partial
from dpgen_jax.data.table.parsing import Cells
from dpgen_jax.data.table.raw import Table
from dpgen_jax.data.table.schema import Dialect, Schema, declared_dialect
from dpgen_jax.run import purchase, side_releases
from dpgen_jax.run.lifecycle import Supposed
from dpgen_jax.run.purchase import OTHER, Wanted
from dpgen_jax.run.resolve import Chosen
from dpgen_jax.run.undeclared import Answer, Missing, Offer


def _trained_on(options: DataOptions, n: int, tested: bool) -> int:
    """The number of n records that are left for training; `tested`: others are for tests."""
    share = options.test_fraction
    if share is None:
        share = 0.0 if tested or n < parts.FEWEST else parts.HELD_OUT_SHARE
    if not share:
        return n
    parts.check(share, tested, "the data set")
    return n - parts.count(share, n)


REMARK = """\
The schema of {source}. The columns that are marked were bought under differential privacy
from all {rows:,} rows of that file, for epsilon {alone} by itself (delta {delta}); the others
were declared. It may be published, edited, and passed as --schema.
To use it for records of other people, none of whom is in that file, delete the block `bought`:
then it costs nothing."""
READ = """\
The schema of {source}, which was READ FROM ITS RECORDS by --accept-uncovered, or
by a run without a guarantee: epsilon does not cover it."""


def undeclared_columns(table: Table, document: Any, options: DataOptions, share: float
                       ) -> tuple[Dialect, Wanted] | None:
    """Returns what a schema does not declare of a table; None where it declares every column.

    Args:
        table: The table.
        document: The document of the schema; None where there is none.
        options: How the table is read.
        share: The part of the budget that may buy it.

    Returns:
        How the table is written, and what is wanted.

    Raises:
        UserError: The header does not fit the schema or the label.
    """
    partial: Json = document if isinstance(document, dict) else {}
    columns: object = partial.get("columns")
    columns = columns if isinstance(columns, dict) else {}
    dialect = declared_dialect(partial["file"]) if "file" in partial else table.dialect()
    names = table.header(dialect)
    parts = {name: made for name, made in columns.items() if is_partial(made)}
    absent = tuple(name for name in names
                   if (name not in columns or name in parts) and name != options.unit)
    if document is not None and (not absent or not columns):
        return None  # what is wrong with it is found where it is read
    for name in columns:
        if name not in names:
            raise UserError(f"{table}: column {name!r} is missing{nearest(name, names)}; it has: "
                            f"{listed(names)}")
    for name, made in parts.items():
        check_partial(name, made)
    if parts:
        partial = partial | {"columns": {
            name: made for name, made in columns.items() if name not in parts}}
    label = _label(options.label, partial.get("label"), names, table)
    if not set(names) - {label, options.unit} or len(names) == 1:
        raise UserError(f"{table}: the only column leaves nothing else to train on; declare it in "
                        f"{option('schema', 'FILE')}, or add other columns")
    return dialect, Wanted(absent, label, partial, share, parts)


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


def of_table(table: Table, dialect: Dialect, wanted: Wanted, options: DataOptions) -> Entries:
    """Reads a table of which entries are missing.

    Args:
        table: The table.
        dialect: How it is written.
        wanted: What is missing, and what is declared.
        options: How it is read.

    Raises:
        UserError: It cannot be read, or has no rows.
    """
    known, declared = wanted.declared.get("columns", {}), None
    if known and table.kind != "csv":  # typed values, which become texts as they are declared
        trial = _trial(wanted, table.header(dialect), str(options.schema or table)).spec
        columns = tuple(column for column in trial.columns if column.name in known)
        label = trial.label if trial.label.name in known else NO_LABEL
        declared = dataclasses.replace(trial, columns=columns, label=label)
    cells = table.cells(dialect, declared)
    test = None if options.test_csv is None else table.beside(options.test_csv).cells(
        dialect, declared)
    spec = presets.numbers(len(set(cells.columns) - {wanted.label, options.unit}))
    if wanted.label is None:
        spec = dataclasses.replace(spec, label=NO_LABEL)
    place = table.kind if table.kind == raw.FRAME else f"{table.kind}:{table.place.resolve()}"
    paid = side_releases.purchases(schema.purchases(wanted.declared.get("bought", [])))
    return Entries(place, len(cells.rows), spec, Private(table.content), paid, table, cells, test,
                   wanted, options)


def _trial(wanted: Wanted, names: list[str], source: str) -> Schema:
    """The declared entries, with any entries for the other columns; constraints wait for these."""
    declared = wanted.declared.get("columns", {})
    unknown = {"kind": "categorical", "categories": [OTHER], "other": OTHER, "nullable": "true"}
    label = {"kind": "categorical", "categories": ["a", "b"], "odd": "null"}
    columns = {name: declared.get(name, label if name == wanted.label else unknown)
               for name in names if name in (*declared, *wanted.columns)}
    trial = {key: value for key, value in wanted.declared.items() if key != "constraints"}
    trial |= {"columns": columns} | ({"label": wanted.label} if wanted.label else {})
    return schema.parse(trial, source)


@dataclasses.dataclass(frozen=True)
class Entries(Missing):
    """The entries of the columns of a table that nobody declared.

    Attributes:
        table: The table.
        cells: Its cells: those by which a purchase is made are trained on.
        test: Those of the held-out part, where it is a file of its own.
        wanted: What is missing, and what is declared.
        options: How the table is read.
    """

    table: Table
    cells: Cells
    test: Cells | None
    wanted: Wanted
    options: DataOptions

    def __str__(self) -> str:
        return listed(self.wanted.columns)

    def offered(self, made: Chosen, promised: bool) -> Offer:
        """Returns how the entries would be found; as `Missing.offered`."""
        n, budget = self.records, Budget(made.budget.epsilon, made.budget.delta)
        if not promised:
            read = (f"the schema of {self} would be READ FROM THE RECORDS, and epsilon would not "
                    f"cover it; declare it with {option('schema', 'FILE')}",)
            return Offer((), self._supposed(budget, (), read), lambda: None,
                         lambda root, spent: self._read())
        survey = self._survey(made)
        lines = purchase.price_lines(survey, n, budget, self.wanted.share)
        return Offer(survey.events(), self._supposed(budget, survey.events(), lines), self._check,
                     functools.partial(self._draw, survey, budget))

    def _supposed(self, budget: Budget, events: Events, lines: tuple[str, ...]) -> Supposed:
        """The table as it could be."""
        count = self.records if self.table.kind == raw.FRAME else _trained_on(
            self.options, self.records, self.options.test_csv is not None)
        what = "if all columns were numbers" + ", and the label of two classes" * bool(
            self.wanted.label)
        return Supposed("table", what, self.spec, count, budget, (*events, *self.paid), lines)

    def _survey(self, made: Chosen) -> Survey:
        """The queries of a purchase, after all checks that need none of their answers."""
        wanted, stated = self.wanted, self.options.schema or "schema"
        n, budget = self.records, made.budget
        if made.config.protects_clients or self.options.unit is not None:
            unit = {"unit": self.options.unit} if self.options.unit else {}
            drafted = ("draft_schema(frame)" if self.table.kind == raw.FRAME else
                       program("schema", self.table, **unit, out="FILE"))
            raise UserError(f"{self.table}: these columns are not declared: {self}. Buying them "
                            "protects single rows only, not all rows of a unit or a client; "
                            f"declare them in {option('schema', 'FILE')}, which "
                            f"{drafted} drafts for you to edit (nothing was spent)")
        if wanted.declared.get("read_from_data"):
            raise UserError(f"{stated}: epsilon does not cover the entries that read_from_data "
                            f"lists, and these columns are not declared: {self}. Declare the "
                            "entries and remove them from the list before the rest is bought, or "
                            f"pass {option('accept_uncovered', True)} (nothing was spent)")
        schema.refuse_multiline(declared_dialect(wanted.declared.get("file", {})), stated)
        composition.check_budget(budget.epsilon, budget.delta, n)
        survey = purchase.priced_survey(len(wanted.columns), n, budget.epsilon, budget.delta,
                                        wanted.share)
        purchase.refuse_useless_schema(survey, n, budget.epsilon)
        return survey

    def _check(self) -> None:
        """Refuses declared entries and cells that are wrong whatever the other columns are."""
        made = _trial(self.wanted, list(self.cells.columns), str(self.options.schema or self.table))
        for cells in filter(None, (self.cells, self.test)):
            parsing.coded(made, cells)

    def _draw(self, survey: Survey, budget: Budget, root: Path, spent: Events) -> Answer:
        """Buys what is missing. Whatever the noisy answers are, it ends with a schema."""
        source, delta = Path(self.cells.source).name, budget.delta
        bought = purchase.buy_schema(self.cells, self.wanted, survey, spent, OsBits())
        document = self._with_parts(bought.document)
        cost = composition.epsilon_of(
            side_releases.purchases(schema.purchases(document["bought"])), delta)
        text = draft.render(document, source, REMARK.format(
            source=source, rows=self.records, alone=at_most(cost, 3), delta=at_most(delta)))
        line = _said(document, self.wanted, budget, purchase.price_alone(survey, delta))
        lost = "".join(
            f"; about {count:,} of {self.records:,} cells of {name} are of another kind than the "
            f"others, and are read as {document['columns'][name].get('other', 'null')}: declare "
            f"{name} in {option('schema', 'FILE')} to keep them"
            for name, count in bought.lost.items())
        return Answer(f"{line}{lost}; see {root / 'schema.yaml'}",
                      files={"schema.yaml": text.encode()})

    def _with_parts(self, document: Json) -> Json:
        """The document, with the entries that are declared of columns whose others are found."""
        columns = document["columns"]
        return document | {"columns": columns | {
            name: with_partial(name, columns[name], made)
            for name, made in self.wanted.parts.items() if name in columns}}

    def _read(self) -> Answer:
        """Reads the entries from the records."""
        wanted, unit = self.wanted, self.options.unit
        cells = dataclasses.replace(self.cells, columns={
            name: texts for name, texts in self.cells.columns.items() if name != unit})
        drafted = draft.draft(cells, wanted.label, wanted.declared.get("columns")).document
        entries = [*wanted.declared.get("read_from_data", []), *drafted["read_from_data"]]
        document = self._with_parts(
            wanted.declared | drafted | {"read_from_data": [*dict.fromkeys(entries)]})
        schema.parse(document, option("schema"))
        source = Path(self.cells.source).name
        text = draft.render(document, source, READ.format(source=source))
        return Answer(
            f"the schema of {self} is READ FROM THE RECORDS, and epsilon does not cover it; "
            f"declare it with {option('schema')}, or leave out "
            f"{option('accept_uncovered', True)} to buy it",
            files={"schema.yaml": text.encode()})


def _said(document: Json, wanted: Wanted, budget: Budget, alone: float) -> str:
    """The line on a purchase: its cost and its result, all of it released."""
    columns = {name: document["columns"][name] for name in wanted.columns}
    empty = [name for name, entries in columns.items()
             if entries.get("categories") == [purchase.OTHER]]
    nulls = [name for name in empty if columns[name].get("nullable") == "true"]
    lost = "".join(
        f"; no value of {listed(names)} is frequent enough to stand out from the noise, so all "
        f"synthetic cells will be {cells}: declare {'it' if len(names) == 1 else 'them'} in "
        f"{option('schema', 'FILE')}"
        for names, cells in (([name for name in empty if name not in nulls],
                              f"`{purchase.OTHER}`"), (nulls, f"null or `{purchase.OTHER}`"))
        if names)
    apart = [f"{name} ({', '.join(entries['special'])})" for name, entries in columns.items()
             if "special" in entries]
    lost += f"; values far from most others are kept as special values: {listed(apart)}" if (
        apart) else ""
    label = document.get("label")
    if label is not None:
        labelled = f"the label is {label}"
        if label in columns:
            labelled += f" with classes {listed(columns[label]['categories'])}"
    elif wanted.label is not None and wanted.label not in document.get("targets", ()):
        found = [text for text in columns[wanted.label].get("categories", ())
                 if text != purchase.OTHER]
        labelled = (f"fewer than 2 classes of the label {wanted.label} are frequent enough to "
                    f"stand out from the noise{f' ({listed(found)} is)' * bool(found)}, so it is "
                    "treated as an ordinary column and rows have no label: to train with it, "
                    "declare its classes in a copy of the schema, with `label:`, and start a run "
                    f"with another {option('out')}")
    elif wanted.label is not None:
        labelled = (f"{wanted.label} is a number with many values, so it becomes a target instead "
                    "of a label")
    else:
        labelled = f"there is no label, since {option('label')} names none"
    return (f"estimating the schema of {len(columns)} undeclared columns uses "
            f"{100 * wanted.share:.3g} % of the budget (epsilon {at_most(alone, 3)} at delta "
            f"{at_most(budget.delta)} by itself, since the squares of Gaussian costs add up), and "
            f"the training gets the rest; {labelled}{lost}")


NAMES_SHARE = 0.1
"""The part of epsilon, and of delta, that the names cost."""
CHANNELS, SIDE = 3, 32
"""The values for an image folder that declares nothing."""


@dataclasses.dataclass(frozen=True)
class Classes(Missing):
    """The classes of an image folder, which nobody named.

    Attributes:
        path: The folder.
        options: How it is read.
    """

    path: str
    options: DataOptions

    def offered(self, made: Chosen, promised: bool) -> Offer:
        """Returns how the names would be bought; where nothing is promised, the loader reads them.

        As `Missing.offered`.
        """
        n, budget = self.records, Budget(made.budget.epsilon, made.budget.delta)
        composition.check_budget(budget.epsilon, budget.delta, n)
        price = NAMES_SHARE * budget.epsilon, NAMES_SHARE * budget.delta
        cost, least = f"epsilon {at_most(price[0])} at delta {at_most(price[1])}", (
            single_releases.least_count(*price))
        named = f"{option('class_names', 'A,B')}"
        if n < least:
            raise UserError(f"the names of the classes are not declared, and at epsilon "
                            f"{budget.epsilon:g} they can be bought only for classes of about "
                            f"{least:,} images or more; there are {n:,} images in all. Declare the "
                            f"names with {named}, which costs nothing (nothing was spent)")
        line = (f"class names would be bought for {cost}, which the training then lacks: a name is "
                f"found if about {least:,} images share it; {named} costs nothing")
        events = ((single_releases.categories_event(*price), 1),)
        count = _trained_on(self.options, n, image_files.has_tests(self.path))
        return Offer(events, Supposed("images", "with two classes", self.spec, count, budget,
                                      events, (line,)), lambda: None,
                     functools.partial(self._draw, price, f"class names, bought for {cost}: "))

    def _draw(self, price: tuple[float, float], bought: str, root: Path, spent: Events) -> Answer:
        """Buys the names, and declares them in the run folder if one holds a comma."""
        found = buy_names(self.path, *price)
        rows = tuple({"records": self.records, **row} for row in events.to_json(spent))
        names = [name for name in found if name.isprintable() and name == name.strip()
                 and name not in ("", image_files.OTHERS)]
        if not names:
            return Answer(f"{bought}no class has enough images for its name to stand out from the "
                          "noise" + " and be declared" * bool(found), bought=rows)
        line = (f"{bought}{', '.join(names)}; images of rarer classes are left out; "
                f"{option('class_names')} costs nothing")
        names.append(image_files.OTHERS)
        if not any("," in name for name in names):
            return Answer(line, ",".join(names), rows)
        place = RunFolder(root).class_names
        return Answer(line, str(place.absolute()), rows, {
            place.name: "".join(f"{name}\n" for name in names).encode()})


def buy_names(path: str, epsilon: float, delta: float) -> tuple[str, ...]:
    """Draws the names of the classes of an image folder, whose cost is charged already.

    Args:
        path: The folder.
        epsilon: The cost, finite.
        delta: Likewise.

    Guarantee:
        That of `single_releases.categories`: unit, an image file with the folder it lies in;
        replace-one, the number of files is public.
    """
    return single_releases.categories(Private(image_files.categories(path)), epsilon, delta,
                                      OsBits())


def of_folder(path: str, options: DataOptions) -> Classes:
    """Lists an image folder whose classes nobody named.

    Args:
        path: The folder.
        options: How it is read: the channels and the size of its images.
    """
    side = options.image_size or SIDE
    return Classes(
        f"folder:{locate(path).resolve()}", len(image_files.categories(path)),
        ImageSpec(side, side, options.channels or CHANNELS, 2), Private(image_files.content(path)),
        (), path, options)
