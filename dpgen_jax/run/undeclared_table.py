"""A CSV file without a schema, or with one that declares a part of its columns.

What is missing is bought under differential privacy, or, where the user accepts that or nothing is
promised, read from the records. What came of it lies in the run folder as schema.yaml.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

from dpgen_jax import presets
from dpgen_jax.accountant import calibrate, gaussian
from dpgen_jax.accountant.events import Events
from dpgen_jax.aggregation.bits import OsBits
from dpgen_jax.aggregation.survey import Survey
from dpgen_jax.core.at_most import at_most
from dpgen_jax.core.config import Budget
from dpgen_jax.core.console import program
from dpgen_jax.core.errors import nearest
from dpgen_jax.core.reading import content_of
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.terms import Relation
from dpgen_jax.core.types import NO_LABEL, Private, UserError
from dpgen_jax.data import csv_files, parsing, schema, schema_draft
from dpgen_jax.data.base import listed, locate, safe_name
from dpgen_jax.data.dialect import Dialect, declared, of_header
from dpgen_jax.data.parsing import Cells
from dpgen_jax.run import early, folder, side_releases, table_price, table_purchase, typed
from dpgen_jax.run.flags import Train
from dpgen_jax.run.folder import RunFolder
from dpgen_jax.run.opening import refuse_used
from dpgen_jax.run.reading import Reading, Refuse, Supposed, budget_for, trained_on

REMARK = """\
The schema of {source}. The columns that say so were bought under differential privacy from all
{rows:,} rows of that file, at epsilon {alone} by itself (delta {delta}); the others were
declared. It may be published, edited, and passed as --schema.
For records of other people, of whom none was in that file, delete the block `bought`: then it
costs nothing."""
READ = """\
The schema of {source}, which was READ FROM ITS RECORDS by --accept-uncovered, or
by a run that promises nothing: no epsilon covers it."""
DECLARED = ("every column is declared by --schema {}, which costs nothing but what it lists as "
            "bought")
DRAFTED = ("every column is in --schema {}; the entries that its read_from_data lists were READ "
           "FROM THE RECORDS, which no epsilon covers")


def table(reading: Reading, method: str, args: Train[Any], refuse: Refuse) -> Reading:
    """Declares what the flags do not say of a CSV file.

    Args:
        reading: The reading.
        method: The method that will be trained.
        args: The flags of `train`, parsed.
        refuse: Raises where a run on such data would be refused; called before a purchase.

    Returns:
        The reading, with the flag of a whole schema.

    Raises:
        UserError: The header does not fit the flags, or the purchase would tell nothing; said
            before anything is spent.
    """
    path = locate(reading.place.partition(":")[2])
    stated = args.data.schema
    document = schema.document(stated) if stated is not None and _is_file(stated) else None
    if stated and document is None:  # a packaged one
        return _with_declared(reading, args, {})
    partial = document if isinstance(document, dict) else {}
    columns: object = partial.get("columns")
    columns = columns if isinstance(columns, dict) else {}
    dialect = declared(partial["file"]) if "file" in partial else of_header(path)
    names = csv_files.header(path, dialect)
    missing = tuple(name for name in names if name not in columns and name != args.data.unit)
    if document is not None and (not missing or not columns):
        return _with_declared(reading, args, partial)  # `schema.read` says what is wrong with it
    for name in columns:
        if name not in names:
            raise UserError(f"{path}: column {name!r} is missing{nearest(name, names)}; "
                            f"the header has: {listed(names)}")
    label = _label(args.data.label, partial.get("label"), names, path)
    if not set(names) - {label, args.data.unit} or len(names) == 1:
        raise UserError(f"{path}: there is one column only, whose empty cells are empty lines; "
                        "declare it in --schema FILE, or add the others")
    wanted = table_purchase.Wanted(missing, label, partial)
    if args.dry_run:
        return _priced(reading, method, args, _cells(path, dialect), wanted)
    answer = _answer(reading, method, args, _Partial(path, dialect, wanted), refuse)
    words = typed.merged(typed.without(reading.words, ("--label",)), answer.flags)
    return dataclasses.replace(reading, words=words, remarks=(*reading.remarks, answer.line))


def _is_file(text: str) -> bool:
    return text not in schema.NAMES or Path(text).is_file()


def _with_declared(reading: Reading, args: Train[Any], document: Json) -> Reading:
    """A reading by a schema that has every column, with what the run has bought itself."""
    line = (DRAFTED if document.get("read_from_data") else DECLARED).format(args.data.schema)
    answer = early.stored(args.out if args.resume else None)
    if answer is None or args.out is None:
        return dataclasses.replace(reading, remarks=(*reading.remarks, line))
    before: list[Json] = []
    if (place := RunFolder(args.out).schema).is_file():
        before = schema.purchases(schema.document(str(place)).get("bought", []))
    stated = schema.purchases(document.get("bought", []))
    return dataclasses.replace(
        reading, remarks=(*reading.remarks, answer.line),
        bought=(*stated, *(row for row in before if row not in stated)))


def _label(stated: str | None, of_schema: object, names: list[str], path: Path) -> str | None:
    """The label, by the flag or the schema, which must be a column."""
    if stated is not None and of_schema not in (None, stated):
        raise UserError(f"--label {stated}: the schema has the label {of_schema}; drop one of them")
    label = of_schema if stated is None else stated
    if label is not None and label not in names:
        raise UserError(f"--label {label}: {path} has no such column{nearest(str(label), names)}; "
                        f"its header has: {listed(names)}")
    return label


@dataclasses.dataclass(frozen=True)
class _Partial:
    """A file, how it is written, and what is missing of its schema."""

    path: Path
    dialect: Dialect
    wanted: table_purchase.Wanted


def _answer(reading: Reading, method: str, args: Train[Any], partial: _Partial, refuse: Refuse
            ) -> early.Answer:
    """Buys what is missing, or reads it from the records, or finds what was bought before."""
    path, wanted = partial.path, partial.wanted
    root = args.out or folder.default_root(method, safe_name(path.name.partition(".")[0]))
    if args.out and not (args.resume and RunFolder(root).waiting):
        refuse_used(root)
    cells = _cells(path, partial.dialect)
    budget = budget_for(reading, method, args, presets.numbers(1), len(cells.rows))
    flags = (f"--schema={(root / 'schema.yaml').absolute()}", f"--out={root}",
             f"--epsilon={budget.epsilon}", f"--delta={budget.delta}")
    relation = str(getattr(args.config, "relation", Relation.REPLACE_ONE))
    purchase = early.Purchase(
        root, method, f"csv:{path.resolve()}", relation, budget, (), Private(content_of(path)),
        args.total_epsilon,
        typed.kept(method, typed.merged(reading.words, flags[2:])),
        side_releases.purchases(schema.purchases(wanted.declared.get("bought", []))))
    if _is_promised(args):
        survey = _survey(args, path, len(cells.rows), wanted, budget)
        if not args.resume or early.stored(root) is None:
            _check_declared(args, cells, wanted)
            refuse(_supposed(args, cells, wanted, budget, survey.events()))
        return _bought(purchase, args, cells, wanted, flags, survey)
    return early.answered(purchase, args.resume,
                          lambda _: _read(cells, wanted, path, args.data.unit, flags))


def _cells(path: Path, dialect: Dialect) -> Cells:
    """The cells of the file, which must have rows."""
    cells = csv_files.read(path, dialect=dialect)
    if not cells.rows:
        raise UserError(f"{path}: no rows; at least 1 is needed")
    return cells


def _is_promised(args: Train[Any]) -> bool:
    """Whether what is missing is bought, and not read from the records."""
    return math.isfinite(args.epsilon) and args.seed is None and not args.accept_uncovered


def _survey(args: Train[Any], path: Path, n: int, wanted: table_purchase.Wanted, budget: Budget
            ) -> Survey:
    """The queries of a purchase, after all checks that need none of their answers."""
    if args.config.protects_clients or args.data.unit is not None:
        unit = ["--unit", args.data.unit] if args.data.unit else []
        drafted = program("schema", path, *unit, "--out", "FILE")
        raise UserError(f"{path}: {listed(wanted.columns)} are not declared, and they are bought "
                        "at the level of single rows, which does not cover all rows of a unit or "
                        f"a client; declare them in --schema FILE, which {drafted} drafts for you "
                        "to edit (nothing was spent)")
    if wanted.declared.get("read_from_data"):
        raise UserError(f"{args.data.schema}: its read_from_data lists entries that no epsilon "
                        f"covers, and {listed(wanted.columns)} are not declared; declare those "
                        "entries and take them off the list before the rest is bought, or pass "
                        "--accept-uncovered (nothing was spent)")
    schema.refuse_multiline(declared(wanted.declared.get("file", {})), str(args.data.schema))
    calibrate.check_budget(budget.epsilon, budget.delta, n)
    survey = table_price.survey(len(wanted.columns), wanted.queries, n, budget.epsilon,
                                budget.delta, args.schema_share)
    table_price.refuse_useless(survey, n, budget.epsilon)
    return survey


def _check_declared(args: Train[Any], cells: Cells, wanted: table_purchase.Wanted) -> None:
    """Refuses declared entries and cells that are wrong whatever the other columns turn out to be.

    Constraints wait for the others: `schema.parse` says which of them do not fit.
    """
    declared = wanted.declared.get("columns", {})
    unknown = {"kind": "categorical", "categories": [table_purchase.OTHER],
               "other": table_purchase.OTHER, "nullable": "true"}
    label = {"kind": "categorical", "categories": ["a", "b"], "odd": "null"}
    columns = {name: declared.get(name, label if name == wanted.label else unknown)
               for name in cells.columns if name in (*declared, *wanted.columns)}
    trial = {key: value for key, value in wanted.declared.items() if key != "constraints"}
    trial |= {"columns": columns} | ({"label": wanted.label} if wanted.label else {})
    made = schema.parse(trial, str(args.data.schema or cells.source))
    parsing.coded(made, cells)
    if args.data.test_csv is not None:
        parsing.coded(made, _cells(locate(args.data.test_csv), cells.dialect))


def _supposed(args: Train[Any], cells: Cells, wanted: table_purchase.Wanted, budget: Budget,
              events: Events, prices: tuple[str, ...] = ()) -> Supposed:
    """The table as it could be, with what it says of the price of what is missing."""
    spec = presets.numbers(len(set(cells.columns) - {wanted.label, args.data.unit}))
    what = "if all columns were numbers, and the label of two classes"
    if wanted.label is None:
        spec = dataclasses.replace(spec, label=NO_LABEL)
        what = "if all columns were numbers"
    count = trained_on(args, len(cells.rows), args.data.test_csv is not None)
    paid = side_releases.purchases(schema.purchases(wanted.declared.get("bought", [])))
    return Supposed("table", what, spec, count, budget, (*events, *paid), prices)


def _priced(reading: Reading, method: str, args: Train[Any], cells: Cells,
            wanted: table_purchase.Wanted) -> Reading:
    """A rehearsal: what would be bought, or read, and how well it would be known."""
    n = len(cells.rows)
    budget = budget_for(reading, method, args, presets.numbers(1), n)
    lines: tuple[str, ...] = (f"the schema of {listed(wanted.columns)} would be READ FROM THE "
                              "RECORDS, which no epsilon covers; --schema FILE declares it",)
    events: Events = ()
    if _is_promised(args):
        survey = _survey(args, Path(cells.source), n, wanted, budget)
        lines = table_price.lines(survey, n, budget, args.schema_share)
        events = survey.events()
    return dataclasses.replace(reading, supposed=_supposed(
        args, cells, wanted, budget, events, (*reading.remarks, *lines)))


def _bought(purchase: early.Purchase, args: Train[Any], cells: Cells,
            wanted: table_purchase.Wanted, flags: tuple[str, ...], survey: Survey) -> early.Answer:
    """Buys what is missing, after all checks that need none of it.

    Whatever the noisy answers are, the draw ends with a schema, which is kept.
    """
    n, delta, source = len(cells.rows), purchase.budget.delta, Path(cells.source).name
    alone = table_price.alone(survey, delta)

    def draw(spent: Events) -> early.Answer:
        document = table_purchase.buy(cells, wanted, survey, spent, OsBits())
        cost = gaussian.epsilon(
            side_releases.purchases(schema.purchases(document["bought"])), delta)
        text = schema_draft.render(document, source, REMARK.format(
            source=source, rows=n, alone=at_most(cost, 3), delta=at_most(delta)))
        return early.Answer(
            flags, _said(document, wanted, purchase, args.schema_share, alone),
            files={"schema.yaml": text.encode()})

    return early.answered(dataclasses.replace(purchase, events=survey.events()), args.resume, draw)


def _read(cells: Cells, wanted: table_purchase.Wanted, path: Path, unit: str | None,
          flags: tuple[str, ...]) -> early.Answer:
    """The schema that is read from the records."""
    cells = dataclasses.replace(cells, columns={
        name: texts for name, texts in cells.columns.items() if name != unit})
    document = _joined(schema_draft.draft(cells, wanted.label, wanted.declared.get("columns")),
                       wanted.declared)
    text = schema_draft.render(document, path.name, READ.format(source=path.name))
    line = (f"the schema of {listed(wanted.columns)} is READ FROM THE RECORDS, which no epsilon "
            "covers; --schema declares it, and without --accept-uncovered it is bought")
    return early.Answer(flags, line, files={"schema.yaml": text.encode()})


def _joined(drafted: Json, declared: Json) -> Json:
    """A draft with all that the schema of some columns says beside them, purchases among it."""
    read = dict.fromkeys([*declared.get("read_from_data", []), *drafted["read_from_data"]])
    document = declared | drafted | {"read_from_data": [*read]}
    schema.parse(document, "--schema")
    return document


def _said(document: Json, wanted: table_purchase.Wanted, purchase: early.Purchase,
          share: float, alone: float) -> str:
    """The line on a purchase: what it cost, and what it came to, all of it released."""
    columns = {name: document["columns"][name] for name in wanted.columns}
    empty = [name for name, entries in columns.items()
             if entries.get("categories") == [table_purchase.OTHER]]
    lost = (f"; of {listed(empty)} nothing stands out of the noise, and synthetic cells will hold "
            f"`{table_purchase.OTHER}`: declare {'it' if len(empty) == 1 else 'them'}"
            if empty else "")
    label = document.get("label")
    if label is not None:
        labelled = f"the label is {label}"
        if label in columns:
            labelled += f" with classes {listed(columns[label]['categories'])}"
    elif wanted.label is not None and wanted.label not in document.get("targets", ()):
        found = [text for text in columns[wanted.label].get("categories", ())
                 if text != table_purchase.OTHER]
        labelled = (f"fewer than 2 classes of the label {wanted.label} are so frequent that they "
                    f"stand out of the noise{f' ({listed(found)} does)' * bool(found)}, so it is a "
                    "column as any other, and rows have no label: to train with it, declare its "
                    "classes in a copy of the schema, with `label:`, for a run with another --out")
    elif wanted.label is not None:
        labelled = f"{wanted.label} is a number with many values, so it is no label but a target"
    else:
        labelled = "without a label, as --label names none"
    budget = purchase.budget
    return (f"the schema of {len(columns)} columns that nobody declared is bought for {share:.3g} "
            f"of epsilon: Gaussian training has what epsilon {(1 - share) * budget.epsilon:.3g} "
            f"would give (by itself the purchase is epsilon {at_most(alone, 3)} at delta "
            f"{at_most(budget.delta)}); {labelled}{lost}; see {purchase.root / 'schema.yaml'}")
