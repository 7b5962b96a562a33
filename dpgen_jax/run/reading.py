"""How the data of a request are read: from where, by which options, and what is held out."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpgen_jax import data, presets
from dpgen_jax.core import files
from dpgen_jax.core.config import DataOptions, from_json
from dpgen_jax.core.errors import UserError, option
from dpgen_jax.core.files import Json
from dpgen_jax.core.request import Request
from dpgen_jax.core.run_folder import RunFolder, go_on, read_json
from dpgen_jax.core.types import ImageSpec, Spec
from dpgen_jax.data import Dataset, parts
from dpgen_jax.data.base import locate
from dpgen_jax.data.table import frames, patterns, raw, subjects
from dpgen_jax.data.table import schema as schemas
from dpgen_jax.data.table.raw import Table
from dpgen_jax.data.table.schema import Schema
from dpgen_jax.presets import choice
from dpgen_jax.run import missing, resolve, undeclared
from dpgen_jax.run.lifecycle import Supposed
from dpgen_jax.run.purchase import SHARE

DRAFTED = ("the entries that read_from_data lists in {} were READ FROM THE RECORDS, and epsilon "
           "does not cover them")


@dataclasses.dataclass(frozen=True)
class Reading:
    """A decision how data are read, after what was missing is bought.

    Attributes:
        request: The request, with what was decided.
        load: Reads the data; what was read for a purchase is not read again.
        remarks: Lines on what was decided.
        supposed: In a rehearsal that ends here, what would be bought.
    """

    request: Request
    load: Callable[[], Dataset]
    remarks: tuple[str, ...] = ()
    supposed: Supposed | None = None


def of_source(request: Request, rehearsing: bool = False) -> Reading:
    """Decides how the data are read that a request names; what nobody declared is bought.

    Args:
        request: The request; without a source the demonstration is read.
        rehearsing: Whether nothing may be written or spent.

    Raises:
        UserError: What lies there cannot be read, or as `undeclared.found`.
    """
    source = with_kind(request.source or choice.DEMONSTRATION[1])
    request = request.changed(source=source)
    kind, _, place = source.partition(":")
    if kind in ("csv", "parquet") and place:
        with files.limited(request.options().max_gb):
            return of_table(request, raw.of_file(kind, place), rehearsing)
    if kind == "folder" and place:
        return _of_folder(request, place, rehearsing)
    return _as_stated(request, resolve.data_options(request))


def with_kind(source: str) -> str:
    """Returns a bare path as KIND:PATH of the data set that lies there; other sources as they are.

    Raises:
        UserError: What lies there cannot be read.
    """
    kind = "" if source.partition(":")[0] in data.SOURCES else data.kind_of(source)
    return f"{kind}:{source}" if kind else source


def of_table(request: Request, table: Table, rehearsing: bool = False,
             declared: Schema | None = None) -> Reading:
    """Decides how a table is read; the columns that nobody declared are bought.

    Args:
        request: The request.
        table: A file, or a frame.
        rehearsing: Whether nothing may be written or spent.
        declared: A schema that was made in Python, which has every column.

    Raises:
        UserError: As `undeclared.found`.
    """
    options, stated = resolve.data_options(request), request.data.get("schema")
    _unit(options)  # of which one part may be missing
    if table.kind != raw.FRAME:
        data.require_applicable(table.kind, vars(options))
    document: Any = schemas.texts(stated) if isinstance(stated, dict) else None
    packaged = stated in schemas.NAMES and not Path(stated).is_file() if isinstance(
        stated, str) else False
    if isinstance(stated, str) and not packaged:
        document = schemas.document(stated)
    if isinstance(document, dict) and patterns.has_patterns(document):
        document = table.written_out(document, (options.label, options.unit))
        stated = document
    share = SHARE if request.schema_share is None else request.schema_share
    absent = None if packaged or declared else missing.undeclared_columns(
        table, document, options, share)
    if absent is None:
        return (_of_declared_frame(request, table, declared or stated) if table.kind == raw.FRAME
                else _of_declared_file(request, options, document or {}))
    found = undeclared.found(
        table.name, lambda: missing.of_table(table, *absent, options), request, rehearsing)
    if found.answer is None or found.request.out is None:
        return Reading(found.request, _unread, supposed=found.supposed)
    schema = str(RunFolder(found.request.out).schema.absolute())
    label = schemas.document(schema).get("label")  # none where it became a column as any other
    if label and options.label not in (None, label):
        raise UserError(f"{option('label', options.label)}: {schema} has the label {label}, for "
                        "which it was bought; drop the option, or start a new run")
    by_schema = dataclasses.replace(options, schema=schema, label=None)
    reading, read = _as_stated(found.request, by_schema), found.missing
    if table.kind == raw.FRAME and read is None:
        read = missing.of_table(table, *absent, options)
    if isinstance(read, missing.Entries):
        reading = Reading(found.request, functools.partial(
            _encoded, found.request, read, by_schema))
    return dataclasses.replace(reading, remarks=(found.answer.line,))


def _encoded(request: Request, read: missing.Entries, options: DataOptions) -> Dataset:
    """The data set of cells that were read for a purchase."""
    table, unit = read.table, _unit(options)
    with files.limited(options.max_gb):
        dataset = table.encoded(read.cells, read.test, str(options.schema), unit)
    if table.kind == raw.FRAME:
        return dataclasses.replace(dataset, content=table.content)
    return _with_held_out(dataclasses.replace(
        dataset, content=table.content, options=data.recorded(table.kind, vars(options))),
        request, options)


def _unit(options: DataOptions) -> tuple[str, int] | None:
    """The column of the subjects and the most rows of one, if any is stated."""
    if options.unit is None and options.rows_per_unit is None:
        return None
    return subjects.required(options.unit, options.rows_per_unit)


def _of_declared_frame(request: Request, table: Table, schema: Any) -> Reading:
    """A frame by a schema that has every column."""
    def load() -> Dataset:
        if (unit := _unit(request.options())) is not None:
            return subjects.from_frame(table.place, schema, *unit)
        made = schemas.of(schema)
        data.require_label(request.options().label, made, "the schema")
        return frames.from_frame(table.place, made)

    return Reading(request, load)


def _of_declared_file(request: Request, options: DataOptions, document: Json) -> Reading:
    """A file by a schema that has every column, with what the run has bought itself."""
    if isinstance(request.data.get("schema"), dict):
        raise UserError(f"the schema of {request.source} declares every column: write it to a YAML "
                        f"file, and pass {option('schema', 'FILE')}, so that the run can be "
                        "evaluated and resumed; or give the table as a DataFrame")
    drafted = DRAFTED.format(options.schema)
    answer = undeclared.stored(request.out if request.resume else None)
    if answer is None or request.out is None:
        return dataclasses.replace(_as_stated(request, options), remarks=(
            (drafted,) if document.get("read_from_data") else ()))
    before: list[Json] = []
    if (place := RunFolder(request.out).schema).is_file():
        before = schemas.purchases(schemas.document(str(place)).get("bought", []))
    stated = schemas.purchases(document.get("bought", []))
    bought = (*stated, *(row for row in before if row not in stated))
    return dataclasses.replace(_as_stated(request, options, bought), remarks=(answer.line,))


def _of_folder(request: Request, place: str, rehearsing: bool) -> Reading:
    """An image folder, with what was not stated of it: channels, size, and names of classes.

    Nothing is added where nothing is promised, or where the user accepts what is read from the
    records: then the loader reads all of it.
    """
    made, options = resolve.provisional(request), resolve.data_options(request)
    if not undeclared.is_promised(request, made.budget) or made.config.protects_clients:
        return _as_stated(request, options)
    spec = presets.get(made.method, request.preset)[1].spec if request.preset else None
    wanted: Json = {"channels": missing.CHANNELS,
                    "image_size": spec.height if isinstance(spec, ImageSpec) else missing.SIDE}
    added: Json = {name: value for name, value in wanted.items() if not getattr(options, name)}
    values = " ".join(option(name, value) for name, value in added.items())
    remarks = (f"images are read with the defaults {values}",) if added else ()
    request, options = request.changed(data=added), dataclasses.replace(options, **added)
    if options.class_names:
        answer = undeclared.stored(request.out if request.resume else None)
        return dataclasses.replace(_as_stated(request, options, answer.bought if answer else ()),
                                   remarks=remarks)
    found = undeclared.found(locate(place).resolve().name,
                             lambda: missing.of_folder(place, options), request, rehearsing)
    if found.answer is None or found.request.out is None:
        return Reading(found.request, _unread, remarks, found.supposed)
    if not found.answer.class_names:
        raise UserError(f"{found.answer.line}. Its cost is charged, and it is not bought again: "
                        "name the classes, and go on with "
                        f"{go_on(found.request.out, class_names='A,B')}")
    options = dataclasses.replace(options, class_names=found.answer.class_names)
    return dataclasses.replace(_as_stated(found.request, options, found.answer.bought),
                               remarks=(*remarks, found.answer.line))


def _as_stated(request: Request, options: DataOptions, bought: tuple[Json, ...] = ()) -> Reading:
    """A data set that the loader reads by these options, with what was bought on it."""
    def load() -> Dataset:
        source, untested = request.source or "", dataclasses.replace(options, test_fraction=None)
        if request.preset is None:
            dataset = data.load(source, **vars(untested))
        else:
            method = resolve.provisional(request).method
            dataset = resolve.load_preset_data(
                *presets.get(method, request.preset), source, untested)
        if bought:
            dataset = dataclasses.replace(dataset, bought=bought)
        return _with_held_out(dataset, request, options)

    return Reading(request, load)


def _unread() -> Dataset:
    raise AssertionError("a rehearsal that ends before the data are typed")


def _with_held_out(dataset: Dataset, request: Request, options: DataOptions) -> Dataset:
    """Holds out a share before anything is spent, as stated or where the data bring no such part.

    A resumed run holds out what it did at its start. Records of mapped files stay there.
    """
    share = options.test_fraction
    if share is None:
        share = parts.HELD_OUT_SHARE
        if request.resume and request.out is not None:
            begun = RunFolder(request.out)
            if begun.config.is_file() and not begun.waiting:
                share = noted_options(request.out).get("test_fraction", 0)
        if (dataset.x_test is not None or dataset.clients is not None or not share
                or dataset.count < parts.FEWEST):
            return dataset
    noted = dataset.options | {"test_fraction": share}
    return dataclasses.replace(parts.hold_out(dataset, share, parts.where_they_lie)
                               if share else dataset, options=noted)


def stored_request(root: Path) -> Request:
    """Returns what was stated for a run.

    Raises:
        UserError: There is no run, or it does not say.
    """
    config = RunFolder(root).config
    if not config.is_file():
        raise UserError(f"there is no run to resume in {root} (no config.json); name the folder of "
                        "a run")
    if (stated := read_json(config).get("request")) is None:
        raise UserError(f"{root} does not record how it was started (by an earlier version, or "
                        "from Python with data in memory): repeat the first call with "
                        f"{option('resume', True)}")
    return Request.from_json(stated, f"the request in {config}")


def noted_options(root: Path) -> Json:
    """Returns the options with which a run read its data; earlier versions noted none."""
    options = read_json(RunFolder(root).config).get("data_options")
    return options if isinstance(options, dict) else {}


def stated_options(root: Path, request: Request, now: DataOptions) -> DataOptions:
    """Returns the options that were stated for a run, what it has bought, and those of now on top.

    Args:
        root: The run folder.
        request: What was stated for the run.
        now: What is stated now.
    """
    before = Request(data=undeclared.with_answer(request.data, root)).options()
    return dataclasses.replace(now, **{name: value for name, value in vars(before).items()
                                       if getattr(now, name) in (None, False)})


def load_as_noted(source: str, options: DataOptions, noted: Json, spec: Spec) -> Dataset:
    """Loads a data set as a run read it, where the options do not say otherwise.

    Args:
        source: KIND or KIND:PLACE.
        options: How it is read.
        noted: As `noted_options` returns it.
        spec: The schema of the run; images without a size of their own get that of its images.

    Raises:
        UserError: As `data.load`, and where what the run holds is damaged.
    """
    options = as_read(options, noted, kind := source.partition(":")[0])
    known = data.SOURCES.get(kind)
    if (known and not known.sized and options.image_size is None
            and isinstance(spec, ImageSpec)):
        options = dataclasses.replace(options, image_size=spec.height)
    return data.load(source, **vars(options))


def as_read(options: DataOptions, known: Json, kind: str) -> DataOptions:
    """Returns options of a data set, in which those count that a run read it with.

    Args:
        options: Those that the user names now, which come first.
        known: As `noted_options` returns them.
        kind: The kind of data set that is read now, such as "csv".

    Raises:
        UserError: What the run holds is damaged.
    """
    known = dict(known)
    if options.test_csv:  # the held-out part is this file
        known.pop("test_fraction", None)
    if known.pop("kind", None) != kind:
        return options
    read = from_json(DataOptions, known, "data_options")
    return dataclasses.replace(options, **{
        name: getattr(read, name) for name in known if getattr(options, name) is None})
