"""Data that nobody declared: what the flags do not state is derived, or bought from the budget.

A value that the flags do not state is a public constant, or is bought under differential privacy,
or is read from the records where the user accepts that or nothing is promised. A run always reports
which values these are.

Order of a purchase. The ledger of the run opens before the data are typed. The steps are: the run
folder with a config.json that names the request, the ledger, the charge (in the ledger and in the
journal), the draw, the answer. A crash before the charge has spent nothing. A crash between the
charge and the answer has spent it, and a resume charges again for a new draw. Once the answer is
there, nothing is bought again.

Image folders. The set of class folders is a function of private records: one image in a folder of
its own distinguishes neighbours. So a folder whose classes nobody declared is read by the names
that come out of a stable histogram. Images of other folders become empty slots, and the run charges
the purchase.

Tables. A CSV file may have no schema, or one that declares a part of its columns. The missing
entries are bought, or read from the records. The result is schema.yaml in the run folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
from collections.abc import Callable, Iterator, Sequence
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
from dpgen_jax.core import cli, hosts, run_folder
from dpgen_jax.core.config import Budget, to_json
from dpgen_jax.core.console import program, tell
from dpgen_jax.core.errors import nearest, option
from dpgen_jax.core.files import Json, content_of, json_bytes, write_together
from dpgen_jax.core.run_folder import RunFolder, default_root, go_on, read_json
from dpgen_jax.core.terms import Relation, Unit, at_most
from dpgen_jax.core.types import NO_LABEL, ImageSpec, Private, UserError
from dpgen_jax.data.base import Dataset, listed, locate, safe_name
from dpgen_jax.data.images import files as image_files
from dpgen_jax.data.table import draft, parsing, schema
from dpgen_jax.data.table.parsing import Cells
from dpgen_jax.data.table.schema import (
    Dialect,
    Schema,
    declared_dialect,
    dialect_of_header,
)
from dpgen_jax.presets import choice
from dpgen_jax.run import flags as run_flags
from dpgen_jax.run import purchase as run_purchase
from dpgen_jax.run import side_releases, spending
from dpgen_jax.run.flags import Reading, Refuse, Supposed, Train, budget_for, trained_on
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
        total: The value of --total-epsilon, or None.
        typed: The words of the command, the method first.
        paid: Events of purchases that the run will charge in addition.
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
        line: The line on it for a terminal.
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
                        f"process: declare it ({option('schema')}, {option('class_names')}), or "
                        f"begin the run without {option('coordinator')} and go on with several "
                        f"processes by {option('resume', True)}")
    read = None if purchase.events else draw(())  # which may fail, before anything is made
    promised = spending.Promise(purchase.relation, Unit.RECORD, "")
    start = spending.Start(purchase.budget, bool(purchase.events), purchase.total,
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
    row = {"flags": list(answer.flags), "line": answer.line, "bought": list(answer.bought)}
    write_together(files.root, answer.files | {files.answer.name: json_bytes(to_json(row))})
    return answer


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

    def declared(self, place: Path) -> tuple[tuple[str, ...], dict[str, bytes]]:
        """Returns the flag that declares them, and the file that it names; nothing without names.

        Args:
            place: The path of that file, which is needed where a name holds a comma.
        """
        names = (*self.names, image_files.OTHERS)
        if not self.names:
            return (), {}
        if not any("," in name for name in names):
            return (f"--class-names={','.join(names)}",), {}
        lines = "".join(f"{name}\n" for name in names)
        return (f"--class-names={place.absolute()}",), {place.name: lines.encode()}


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
                         "--class-names costs nothing"))


def _can_be_declared(name: str) -> bool:
    """Whether a name of a folder can be one of --class-names."""
    return name.isprintable() and name == name.strip() and name not in ("", image_files.OTHERS)


CHANNELS, SIDE, DELTA = 3, 32, 1e-5
"""The values for an image folder that declares nothing."""


def with_kind(words: Sequence[str]) -> Reading:
    """Reads a bare path as the data set that lies there.

    Args:
        words: The flags.

    Raises:
        UserError: What lies there cannot be read.
    """
    from dpgen_jax import data

    place = cli.peek(words, "--dataset")
    if place is None:
        return Reading(choice.DEMONSTRATION[1], list(words))
    kind = "" if place.partition(":")[0] in data.SOURCES else data.kind_of(place)
    if not kind:
        return Reading(place, list(words))
    return Reading(f"{kind}:{place}", run_flags.merged_words(words, [f"--dataset={kind}:{place}"]),
                   (f"{place} is read as {kind}:{place}",))


def undeclared_folder(reading: Reading, method: str, args: Train[Any], refuse: Refuse) -> Reading:
    """Adds what the flags do not state of an image folder: channels, size, and names of classes.

    Nothing is added where nothing is promised, or where the user accepts what is read from the
    records: then the loader reads all of it. A resumed run takes what it had.

    Args:
        reading: The reading.
        method: The method that will be trained.
        args: The flags of `train`, parsed.
        refuse: Raises where a run on such data would be refused; called before a purchase.

    Returns:
        The reading with more flags.

    Raises:
        UserError: Names cannot be bought; said before anything is spent where that can be known.
    """
    promised = (math.isfinite(args.epsilon) and args.seed is None and not args.accept_uncovered
                and not args.config.protects_clients)
    if not promised:
        return reading
    files = RunFolder(args.out) if args.resume and args.out else None
    if files is not None and (config := files.config).is_file() and not files.waiting:
        before = run_flags.data_words(files.root, ("class_names", "channels", "image_size")) or []
        flags = [word for word in before if not word.startswith("--dataset")]
        return dataclasses.replace(reading, words=run_flags.merged_words(flags, reading.words),
                                   bought=tuple(read_json(config).get("bought") or ()))
    named = cli.peek(reading.words, "--preset") is not None
    side = _side(method, args) if named else args.data.image_size or SIDE
    added = {} if args.data.channels else {"--channels": CHANNELS}
    added |= {} if args.data.image_size else {"--image-size": side}
    if added:
        values = " ".join(f"{flag} {value}" for flag, value in added.items())
        reading = _more(reading, [f"{flag}={value}" for flag, value in added.items()],
                        f"taken, as nothing else is declared: {values}")
    if not args.data.class_names:
        return _with_names(reading, method, args, side, refuse)
    answer = stored(files.root) if files is not None else None
    return dataclasses.replace(reading, bought=answer.bought if answer else ())


def _side(method: str, args: Train[Any]) -> int:
    """The size that the user states, or that of the preset that the user names."""
    spec = presets.get(method, args.preset)[1].spec
    return args.data.image_size or (spec.height if isinstance(spec, ImageSpec) else SIDE)


def _with_names(reading: Reading, method: str, args: Train[Any], side: int, refuse: Refuse
                ) -> Reading:
    """Buys the names of the classes, after all checks that need none of them."""
    path, words = reading.place.partition(":")[2], reading.words
    root = args.out or default_root(method, safe_name(locate(path).resolve().name))
    if args.out and not (args.resume and RunFolder(root).waiting):
        refuse_used(root)
    n = len(image_files.categories(path))  # their number is public
    spec = ImageSpec(side, side, args.data.channels or CHANNELS, 2)
    budget = budget_for(reading, method, args, spec, n)
    epsilon, delta = budget.epsilon, budget.delta
    composition.check_budget(epsilon, delta, n)
    refuse_useless_names(n, epsilon, delta)
    supposed = Supposed(
        "images", "with two classes", spec, trained_on(args, n, image_files.has_tests(path)),
        budget, names_cost(epsilon, delta),
        (*reading.remarks, names_price_line(epsilon, delta)))
    if args.dry_run:
        return dataclasses.replace(reading, supposed=supposed)
    if not args.resume or stored(root) is None:
        refuse(supposed)
    flags = (f"--epsilon={epsilon}", f"--delta={delta}", f"--out={root}")

    def draw(spent: Events) -> Answer:
        names = buy_names(path, epsilon, delta)
        declared, files = names.declared(RunFolder(root).class_names)
        rows = tuple({"records": n, **row} for row in events.to_json(spent))
        return Answer((*declared, *flags), names.line, rows, files)

    relation = str(getattr(args.config, "relation", Relation.REPLACE_ONE))
    answer = answered(Purchase(
        root, method, f"folder:{locate(path).resolve()}", relation,
        budget, names_cost(epsilon, delta), Private(image_files.content(path)),
        args.total_epsilon,
        run_flags.kept_words(method, run_flags.merged_words(words, flags[:2]))), args.resume, draw)
    if cli.peek(answer.flags, "--class-names") is None:
        raise UserError(f"{answer.line}. It is charged, and is not bought again: name the classes, "
                        f"and go on by {go_on(root, class_names='A,B')}")
    return dataclasses.replace(_more(reading, list(answer.flags), answer.line),
                               bought=answer.bought)


def _more(reading: Reading, flags: list[str], remark: str) -> Reading:
    return dataclasses.replace(reading, words=run_flags.merged_words(reading.words, flags),
                               remarks=(*reading.remarks, remark))


def held_out_part(dataset: Dataset, args: Train[Any]) -> Dataset:
    """Holds out a share before anything is spent, as stated or where the data bring no such part.

    A resumed run holds out what it did at its start. Records of mapped files stay there.

    Args:
        dataset: The data set, with nothing held out yet.
        args: The flags of `train`, parsed.
    """
    from dpgen_jax.data import parts

    share = args.data.test_fraction
    if share is None:
        share = parts.HELD_OUT_SHARE
        files = RunFolder(args.out) if args.resume and args.out else None
        if files and args.out and files.config.is_file() and not files.waiting:
            share = run_flags.data_options(args.out).get("test_fraction", 0)
        if (dataset.x_test is not None or dataset.clients is not None or not share
                or dataset.count < parts.FEWEST):
            return dataset
    options = dataset.options | {"test_fraction": share}
    return dataclasses.replace(parts.hold_out(dataset, share, parts.where_they_lie)
                               if share else dataset, options=options)


REMARK = """\
The schema of {source}. The columns that say so were bought under differential privacy from all
{rows:,} rows of that file, at epsilon {alone} by itself (delta {delta}); the others were
declared. It may be published, edited, and passed as --schema.
For records of other people, of whom none was in that file, delete the block `bought`: then it
costs nothing."""
READ = """\
The schema of {source}, which was READ FROM ITS RECORDS by --accept-uncovered, or
by a run that promises nothing: no epsilon covers it."""
DECLARED = "every column is declared by {}, which costs nothing but what it lists as bought"
DRAFTED = ("every column is in {}; the entries that its read_from_data lists were READ FROM THE "
           "RECORDS, which no epsilon covers")


def undeclared_table(reading: Reading, method: str, args: Train[Any], refuse: Refuse) -> Reading:
    """Declares what the flags do not state of a CSV file.

    Args:
        reading: The reading.
        method: The method that will be trained.
        args: The flags of `train`, parsed.
        refuse: Raises where a run on such data would be refused; called before a purchase.

    Returns:
        The reading, with the flag of a whole schema.

    Raises:
        UserError: The header does not fit the flags, or the purchase would be useless; raised
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
    dialect = declared_dialect(partial["file"]) if "file" in partial else dialect_of_header(path)
    names = parsing.csv_header(path, dialect)
    missing = tuple(name for name in names if name not in columns and name != args.data.unit)
    if document is not None and (not missing or not columns):
        return _with_declared(reading, args, partial)  # `schema.read` raises what is wrong with it
    for name in columns:
        if name not in names:
            raise UserError(f"{path}: column {name!r} is missing{nearest(name, names)}; "
                            f"the header has: {listed(names)}")
    label = _label(args.data.label, partial.get("label"), names, path)
    if not set(names) - {label, args.data.unit} or len(names) == 1:
        raise UserError(f"{path}: there is one column only, whose empty cells are empty lines; "
                        f"declare it in {option('schema', 'FILE')}, or add the others")
    wanted = run_purchase.Wanted(missing, label, partial, args.schema_share)
    if args.dry_run:
        return _priced(reading, method, args, _cells(path, dialect), wanted)
    answer = _answer(reading, method, args, _Partial(path, dialect, wanted), refuse)
    words = run_flags.merged_words(run_flags.without_words(reading.words, ("--label",)),
                                   answer.flags)
    return dataclasses.replace(reading, words=words, remarks=(*reading.remarks, answer.line))


def _is_file(text: str) -> bool:
    return text not in schema.NAMES or Path(text).is_file()


def _with_declared(reading: Reading, args: Train[Any], document: Json) -> Reading:
    """A reading by a schema that has every column, with what the run has bought itself."""
    line = (DRAFTED if document.get("read_from_data") else DECLARED).format(
        option("schema", args.data.schema))
    answer = stored(args.out if args.resume else None)
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
        raise UserError(f"{option('label', stated)}: the schema has the label {of_schema}; drop "
                        "one of them")
    label = of_schema if stated is None else stated
    if label is not None and label not in names:
        raise UserError(f"{option('label', label)}: {path} has no such "
                        f"column{nearest(str(label), names)}; its header has: {listed(names)}")
    return label


@dataclasses.dataclass(frozen=True)
class _Partial:
    """A file, how it is written, and what is missing of its schema."""

    path: Path
    dialect: Dialect
    wanted: run_purchase.Wanted


def _answer(reading: Reading, method: str, args: Train[Any], partial: _Partial, refuse: Refuse
            ) -> Answer:
    """Buys what is missing, or reads it from the records, or finds what was bought before."""
    path, wanted = partial.path, partial.wanted
    root = args.out or run_folder.default_root(method, safe_name(path.name.partition(".")[0]))
    if args.out and not (args.resume and RunFolder(root).waiting):
        refuse_used(root)
    cells = _cells(path, partial.dialect)
    budget = budget_for(reading, method, args, presets.numbers(1), len(cells.rows))
    flags = (f"--schema={(root / 'schema.yaml').absolute()}", f"--out={root}",
             f"--epsilon={budget.epsilon}", f"--delta={budget.delta}")
    relation = str(getattr(args.config, "relation", Relation.REPLACE_ONE))
    purchase = Purchase(
        root, method, f"csv:{path.resolve()}", relation, budget, (), Private(content_of(path)),
        args.total_epsilon,
        run_flags.kept_words(method, run_flags.merged_words(reading.words, flags[2:])),
        side_releases.purchases(schema.purchases(wanted.declared.get("bought", []))))
    if _is_promised(args):
        survey = _survey(args, path, len(cells.rows), wanted, budget)
        if not args.resume or stored(root) is None:
            _check_declared(args, cells, wanted)
            refuse(_supposed(args, cells, wanted, budget, survey.events()))
        return _bought(purchase, args.resume, cells, wanted, flags, survey)
    return answered(purchase, args.resume,
                    lambda _: _read(cells, wanted, path, args.data.unit, flags))


def _cells(path: Path, dialect: Dialect) -> Cells:
    """The cells of the file, which must have rows."""
    cells = parsing.read_csv(path, dialect=dialect)
    if not cells.rows:
        raise UserError(f"{path}: no rows; at least 1 is needed")
    return cells


def _is_promised(args: Train[Any]) -> bool:
    """Whether what is missing is bought, and not read from the records."""
    return math.isfinite(args.epsilon) and args.seed is None and not args.accept_uncovered


def _survey(args: Train[Any], path: Path, n: int, wanted: run_purchase.Wanted, budget: Budget
            ) -> Survey:
    """The queries of a purchase, after all checks that need none of their answers."""
    if args.config.protects_clients or args.data.unit is not None:
        unit = {"unit": args.data.unit} if args.data.unit else {}
        drafted = program("schema", path, **unit, out="FILE")
        raise UserError(f"{path}: {listed(wanted.columns)} are not declared, and they are bought "
                        "at the level of single rows, which does not cover all rows of a unit or "
                        f"a client; declare them in {option('schema', 'FILE')}, which {drafted} "
                        "drafts for you to edit (nothing was spent)")
    if wanted.declared.get("read_from_data"):
        raise UserError(f"{args.data.schema}: its read_from_data lists entries that no epsilon "
                        f"covers, and {listed(wanted.columns)} are not declared; declare those "
                        "entries and take them off the list before the rest is bought, or pass "
                        f"{option('accept_uncovered', True)} (nothing was spent)")
    schema.refuse_multiline(declared_dialect(wanted.declared.get("file", {})),
                            str(args.data.schema))
    composition.check_budget(budget.epsilon, budget.delta, n)
    survey = run_purchase.priced_survey(len(wanted.columns), wanted.queries, n, budget.epsilon,
                                        budget.delta, args.schema_share)
    run_purchase.refuse_useless_schema(survey, n, budget.epsilon)
    return survey


def _check_declared(args: Train[Any], cells: Cells, wanted: run_purchase.Wanted) -> None:
    """Refuses declared entries and cells that are wrong whatever the other columns are.

    Constraints wait for the others: `schema.parse` checks them.
    """
    declared = wanted.declared.get("columns", {})
    unknown = {"kind": "categorical", "categories": [run_purchase.OTHER],
               "other": run_purchase.OTHER, "nullable": "true"}
    label = {"kind": "categorical", "categories": ["a", "b"], "odd": "null"}
    columns = {name: declared.get(name, label if name == wanted.label else unknown)
               for name in cells.columns if name in (*declared, *wanted.columns)}
    trial = {key: value for key, value in wanted.declared.items() if key != "constraints"}
    trial |= {"columns": columns} | ({"label": wanted.label} if wanted.label else {})
    made = schema.parse(trial, str(args.data.schema or cells.source))
    parsing.coded(made, cells)
    if args.data.test_csv is not None:
        parsing.coded(made, _cells(locate(args.data.test_csv), cells.dialect))


def _supposed(args: Train[Any], cells: Cells, wanted: run_purchase.Wanted, budget: Budget,
              events: Events, prices: tuple[str, ...] = ()) -> Supposed:
    """A supposed table, with the lines on the price of what is missing."""
    spec = presets.numbers(len(set(cells.columns) - {wanted.label, args.data.unit}))
    what = "if all columns were numbers, and the label of two classes"
    if wanted.label is None:
        spec = dataclasses.replace(spec, label=NO_LABEL)
        what = "if all columns were numbers"
    count = trained_on(args, len(cells.rows), args.data.test_csv is not None)
    paid = side_releases.purchases(schema.purchases(wanted.declared.get("bought", [])))
    return Supposed("table", what, spec, count, budget, (*events, *paid), prices)


def _priced(reading: Reading, method: str, args: Train[Any], cells: Cells,
            wanted: run_purchase.Wanted) -> Reading:
    """A rehearsal: what would be bought, or read, and how well it would be known."""
    n = len(cells.rows)
    budget = budget_for(reading, method, args, presets.numbers(1), n)
    lines: tuple[str, ...] = (f"the schema of {listed(wanted.columns)} would be READ FROM THE "
                              "RECORDS, which no epsilon covers; --schema FILE declares it",)
    events: Events = ()
    if _is_promised(args):
        survey = _survey(args, Path(cells.source), n, wanted, budget)
        lines = run_purchase.price_lines(survey, n, budget, args.schema_share)
        events = survey.events()
    return dataclasses.replace(reading, supposed=_supposed(
        args, cells, wanted, budget, events, (*reading.remarks, *lines)))


def _bought(purchase: Purchase, resume: bool, cells: Cells, wanted: run_purchase.Wanted,
            flags: tuple[str, ...], survey: Survey) -> Answer:
    """Buys what is missing, after all checks that need none of it.

    Whatever the noisy answers are, the draw ends with a schema, which is kept.
    """
    n, delta, source = len(cells.rows), purchase.budget.delta, Path(cells.source).name
    alone = run_purchase.price_alone(survey, delta)

    def draw(spent: Events) -> Answer:
        document = run_purchase.buy_schema(cells, wanted, survey, spent, OsBits())
        cost = composition.epsilon_of(
            side_releases.purchases(schema.purchases(document["bought"])), delta)
        text = draft.render(document, source, REMARK.format(
            source=source, rows=n, alone=at_most(cost, 3), delta=at_most(delta)))
        return Answer(
            flags, _said(document, wanted, purchase, alone),
            files={"schema.yaml": text.encode()})

    return answered(dataclasses.replace(purchase, events=survey.events()), resume, draw)


def _read(cells: Cells, wanted: run_purchase.Wanted, path: Path, unit: str | None,
          flags: tuple[str, ...]) -> Answer:
    """The schema that is read from the records."""
    cells = dataclasses.replace(cells, columns={
        name: texts for name, texts in cells.columns.items() if name != unit})
    document = _joined(draft.draft(cells, wanted.label, wanted.declared.get("columns")),
                       wanted.declared)
    text = draft.render(document, path.name, READ.format(source=path.name))
    line = (f"the schema of {listed(wanted.columns)} is READ FROM THE RECORDS, which no epsilon "
            f"covers; {option('schema')} declares it, and without "
            f"{option('accept_uncovered', True)} it is bought")
    return Answer(flags, line, files={"schema.yaml": text.encode()})


def _joined(drafted: Json, declared: Json) -> Json:
    """A draft with the other entries of the schema of some columns, its purchases included."""
    read = dict.fromkeys([*declared.get("read_from_data", []), *drafted["read_from_data"]])
    document = declared | drafted | {"read_from_data": [*read]}
    schema.parse(document, "--schema")
    return document


def _said(document: Json, wanted: run_purchase.Wanted, purchase: Purchase, alone: float) -> str:
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
    budget, share = purchase.budget, wanted.share
    return (f"the schema of {len(columns)} columns that nobody declared is bought for {share:.3g} "
            f"of epsilon: Gaussian training has what epsilon {(1 - share) * budget.epsilon:.3g} "
            f"would give (by itself the purchase is epsilon {at_most(alone, 3)} at delta "
            f"{at_most(budget.delta)}); {labelled}{lost}; see {purchase.root / 'schema.yaml'}")


def undeclared_frame(purchase: Purchase, cells: Cells, wanted: run_purchase.Wanted, resume: bool,
                     refuse: Refuse | None) -> tuple[Schema, str]:
    """Declares all columns of a frame of which no schema is given, as `undeclared_table` of a file.

    Args:
        purchase: What is to be bought, without its events.
        cells: The frame, as texts.
        wanted: All its columns, and the label.
        resume: Whether the run folder is one to go on with.
        refuse: Raises where a run on such data would be refused; called before a purchase. None
            where nothing is promised: then the schema is read from the records.

    Returns:
        The schema, which is in the run folder too, and a line on what it cost.

    Raises:
        UserError: The label is no column, or the purchase would tell nothing; said before anything
            is spent.
    """
    files, names, n = RunFolder(purchase.root), list(cells.columns), len(cells.rows)
    label = wanted.label
    if label is not None and label not in names:
        raise UserError(f"{option('label', label)}: the frame has no such "
                        f"column{nearest(label, names)}; it has: {listed(names)}")
    if not n or len(names) < 1 + (label is not None):
        raise UserError(f"a frame of {n} rows and the columns {listed(names)} has nothing to train "
                        "on; add rows, and a column beside the label")
    if resume and files.schema.is_file() and not files.waiting:
        return schema.of(files.schema), ""
    if refuse is None:
        answer = answered(purchase, resume, lambda _: _read(cells, wanted, Path("frame"), None, ()))
        return schema.of(files.schema), answer.line
    epsilon, delta = purchase.budget.epsilon, purchase.budget.delta
    composition.check_budget(epsilon, delta, n)
    survey = run_purchase.priced_survey(len(names), wanted.queries, n, epsilon, delta, wanted.share)
    run_purchase.refuse_useless_schema(survey, n, epsilon)
    if not resume or stored(purchase.root) is None:
        spec = presets.numbers(len(names) - (label is not None))
        refuse(Supposed("table", "if all columns were numbers", spec if label is not None else
                        dataclasses.replace(spec, label=NO_LABEL), n, purchase.budget,
                        survey.events(), ()))
    answer = _bought(purchase, resume, cells, wanted, (), survey)
    return schema.of(files.schema), answer.line
