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
from dpgen_jax.accountant import calibrate
from dpgen_jax.accountant.events import Events
from dpgen_jax.aggregation.bits import OsBits
from dpgen_jax.core import cli
from dpgen_jax.core.config import Budget
from dpgen_jax.core.errors import nearest
from dpgen_jax.core.terms import Relation
from dpgen_jax.core.types import UserError
from dpgen_jax.data import schema, schema_draft, tables
from dpgen_jax.data.base import content_of, listed, locate
from dpgen_jax.data.dialect import Dialect, declared, of_header
from dpgen_jax.data.parsing import Cells
from dpgen_jax.presets import choice
from dpgen_jax.run import early, folder, table_price, table_purchase, typed
from dpgen_jax.run.folder import RunFolder, refuse_used
from dpgen_jax.run.reading import Reading

REMARK = """\
The schema of {source}. What is marked as bought was bought under differential privacy from all
{rows:,} rows of that file, at epsilon {alone:.3g} by itself (delta {delta:g}); what is not marked
was declared. It may be published, and passed as --schema.
Leave `bought` as it is for a run on records some of which were in that file: each such run charges
it. For records of other people, of whom none was in that file, delete the block `bought`: it costs
them nothing."""
READ = """\
KEEP IT PRIVATE. The schema of {source}, which was READ FROM ITS RECORDS by --accept-uncovered, or
by a run that promises nothing: no epsilon covers it."""


def table(reading: Reading, method: str, args: Any) -> Reading:
    """Declares what the flags do not say of a CSV file.

    Args:
        reading: The reading.
        method: The method that will be trained.
        args: The flags of `train`, parsed.

    Returns:
        The reading, with the flag of a whole schema.

    Raises:
        UserError: The header does not fit the flags, or the purchase would tell nothing; said
            before anything is spent.
    """
    path = locate(reading.place.partition(":")[2])
    document = schema.document(args.data.schema) if _is_file(args.data.schema) else None
    if args.data.schema and document is None:
        return _with_declared(reading, args)
    held = document if isinstance(document, dict) else {}
    columns = held.get("columns") if isinstance(held.get("columns"), dict) else {}
    dialect = declared(held["file"]) if "file" in held else of_header(path)
    names = tables.header(path, dialect)
    missing = tuple(name for name in names if name not in columns and name != args.data.unit)
    if document is not None and (not missing or not columns):
        return _with_declared(reading, args)  # `schema.read` says what is wrong with it
    for name in columns:
        if name not in names:
            raise UserError(f"{path}: column {name} is declared and missing{nearest(name, names)}; "
                            f"the header has: {listed(names)}")
    label = _label(args.data.label, held.get("label"), names, path)
    answer = _answer(reading, method, args, path, dialect,
                     table_purchase.Wanted(missing, label, held))
    words = typed.merged(typed.without(reading.words, ("--label",)), answer.flags)
    return dataclasses.replace(reading, words=words, remarks=(*reading.remarks, answer.line))


def _is_file(text: str | None) -> bool:
    return text is not None and not (text in schema.NAMES and not Path(text).is_file())


def _with_declared(reading: Reading, args: Any) -> Reading:
    """A reading by a schema that declares every column."""
    line = f"every column is declared by --schema {args.data.schema}, which costs nothing but " \
        "what it lists as bought"
    answer = early.stored(args.out if args.resume else None)
    return dataclasses.replace(reading, remarks=(
        *reading.remarks, line if answer is None else answer.line))


def _label(stated: str | None, of_schema: Any, names: list[str], path: Path) -> str | None:
    """The label, by the flag or the schema, which must be a column."""
    if stated is not None and of_schema not in (None, stated):
        raise UserError(f"--label {stated}: the schema has the label {of_schema}; drop one of them")
    label = of_schema if stated is None else stated
    if label is not None and label not in names:
        raise UserError(f"--label {label}: {path} has no such column{nearest(str(label), names)}; "
                        f"its header has: {listed(names)}")
    return label


def _answer(reading: Reading, method: str, args: Any, path: Path, dialect: Dialect,
            wanted: table_purchase.Wanted) -> early.Answer:
    """Buys what is missing, or reads it from the records, or finds what was bought before."""
    root = args.out or folder.default_root(method, path.name.partition(".")[0])
    waiting = args.resume and RunFolder(root).waiting
    if args.out and not waiting:
        refuse_used(root)
    promised = math.isfinite(args.epsilon) and args.seed is None and not args.accept_uncovered
    cells = tables.read(path, dialect=dialect)
    if not cells.rows:
        raise UserError(f"{path}: no rows; at least 1 is needed")
    budget = _budget(reading, method, args, len(cells.rows))
    flags = [f"--schema={(root / 'schema.yaml').absolute()}", f"--out={root}",
             f"--epsilon={budget.epsilon}", f"--delta={budget.delta}"]
    asked = early.Asked(
        root, method, reading.place, str(getattr(args.config, "relation", Relation.REPLACE_ONE)),
        budget, (), content_of(path), args.total_epsilon,
        typed.kept(method, typed.merged(reading.words, flags[2:])))
    if args.dry_run:
        raise UserError(f"--dry-run {'buys' if promised else 'writes'} nothing, and the schema of "
                        f"{len(wanted.columns)} columns would be {'bought' if promised else 'read'}"
                        "; declare them in --schema FILE")
    if not promised:
        return early.answered(asked, args.resume, lambda _: _read(cells, wanted, path, args, flags))
    if args.config.protects_clients or args.data.unit is not None:
        raise UserError(f"{path}: {listed(wanted.columns)} are not declared, and they are bought at "
                        "the level of single rows, which does not cover all rows of a unit or a "
                        "client; declare them in --schema FILE (nothing was spent)")
    calibrate.check_budget(budget.epsilon, budget.delta, len(cells.rows))
    survey = table_price.survey(len(wanted.columns), wanted.queries, len(cells.rows),
                                budget.epsilon, budget.delta, args.schema_share)
    table_price.refuse_useless(survey, len(cells.rows), budget.epsilon)

    def draw(spent: Events) -> early.Answer:
        document = table_purchase.buy(cells, wanted, survey, spent, OsBits())
        alone = table_price.alone(survey, budget.delta)
        text = schema_draft.render(document, path.name, REMARK.format(
            source=path.name, rows=len(cells.rows), alone=alone, delta=budget.delta))
        schema.parse(document, "schema.yaml")
        return early.Answer(tuple(flags), _said(document, wanted, root, args, alone, budget),
                            files={"schema.yaml": text.encode()})

    asked = dataclasses.replace(asked, events=survey.events())
    return early.answered(asked, args.resume, draw)


def _budget(reading: Reading, method: str, args: Any, n: int) -> Budget:
    """The budget of the run, by the preset that will serve it where the flags do not say."""
    epsilon, delta = args.epsilon, args.delta
    if cli.peek(reading.words, "--preset") is None:
        stated = epsilon if cli.peek(reading.words, "--epsilon") is not None else None
        tuned = args.config != presets.get(method, args.preset)[1].config
        preset = choice.preset_for(method, choice.Facts("", presets.numbers(1), n), stated,
                                   tuned).preset
        epsilon = preset.epsilon if stated is None else stated
        delta = delta if cli.peek(reading.words, "--delta") is not None else preset.delta
    return Budget(epsilon, delta)


def _read(cells: Cells, wanted: table_purchase.Wanted, path: Path, args: Any, flags: list[str]
          ) -> early.Answer:
    """The schema that is read from the records."""
    if args.data.unit is not None:
        cells = dataclasses.replace(cells, columns={
            name: texts for name, texts in cells.columns.items() if name != args.data.unit})
    document = schema_draft.draft(cells, wanted.label, wanted.declared.get("columns"))
    text = schema_draft.render(document, path.name, READ.format(source=path.name))
    line = (f"the schema of {listed(wanted.columns)} is READ FROM THE RECORDS, which no epsilon "
            "covers; --schema declares it, and without --accept-uncovered it is bought")
    return early.Answer(tuple(flags), line, files={"schema.yaml": text.encode()})


def _said(document: dict[str, Any], wanted: table_purchase.Wanted, root: Path, args: Any,
          alone: float, budget: Budget) -> str:
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
    elif wanted.label is not None:
        labelled = f"{wanted.label} is a number with many values, so it is no label but a target"
    else:
        labelled = "without a label, as --label names none"
    return (f"the schema of {len(columns)} columns that nobody declared is bought: the training has "
            f"the noise of epsilon {(1 - args.schema_share) * budget.epsilon:.3g} where Gaussian "
            f"(by itself the purchase is epsilon {alone:.3g} at delta {budget.delta:g}); "
            f"{labelled}{lost}; see {root / 'schema.yaml'}")
