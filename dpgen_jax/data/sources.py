"""Data sets by one short text: `load("glyphs")`, `load("csv:people.csv", schema="s.yaml")`."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from dpgen_jax.core.console import program
from dpgen_jax.core.errors import nearest, option
from dpgen_jax.core.files import Json, content_of, limited
from dpgen_jax.core.types import UserError
from dpgen_jax.data import parts, tfds
from dpgen_jax.data.base import (
    MAX_SIDE,
    MIN_SIDE,
    Background,
    Dataset,
    Resize,
    Uncovered,
    assemble,
    declared_classes,
    fixed_classes,
    locate,
    shown,
    with_names,
)
from dpgen_jax.data.images import digits, files, npz, photographs
from dpgen_jax.data.parts import without_empty_slots
from dpgen_jax.data.table import frames, patterns, raw, schema, subjects, tables

__all__ = ["SPECS", "Dataset", "Uncovered", "from_arrays", "kind_of", "load",
           "without_empty_slots"]

IMAGE_OPTIONS = ("classes", "image_size")
TABLE_OPTIONS = ("schema", "test_csv", "unit", "rows_per_unit", "label")
RECORDED = ("attribute", "background", "image_size", "resize", "split", "per_class",
            "test_fraction", "unit", "rows_per_unit")
"""The options that decide which records a data set has and how they look: a run records them."""


@dataclasses.dataclass(frozen=True)
class Source:
    """A kind of data set.

    Attributes:
        load: ``load(place, *options)``, or ``load(*options)`` where `place` is empty.
        place: The word for the text after the colon, as in DIR.
        options: The names of the options that it takes.
        sized: Whether its images have a size of their own; else the size is a choice.
        content: From a place to a digest in hex of what its training records are read from, however
            they are read, which is as private as they are; None where there is none.
    """

    load: Callable[..., Dataset]
    place: str = ""
    options: tuple[str, ...] = IMAGE_OPTIONS
    sized: bool = True
    content: Callable[[str], str] | None = None


def _load_glyphs(classes: int | None, image_size: int | None) -> Dataset:
    """Draws the glyphs in the requested size."""
    fixed_classes("glyphs", digits.GLYPH_DIGITS, classes)
    return digits.glyphs() if image_size is None else digits.glyphs(image_size)


def _load_csv(place: str, schema_file: str | None, test_csv: str | None, unit: str | None,
              rows_per_unit: int | None, label: str | None) -> Dataset:
    """Loads a CSV file by its schema."""
    if schema_file is not None and (unit is not None or rows_per_unit is not None):
        column, rows = subjects.required(unit, rows_per_unit)
        return subjects.csv(place, _with_all_columns("csv", place, schema_file, (label, column)),
                            test_csv, column, rows)
    return tables.csv(place, _declared("csv", place, schema_file, label), test_csv)


def _load_parquet(place: str, schema_file: str | None, test_csv: str | None, unit: str | None,
                  rows_per_unit: int | None, label: str | None) -> Dataset:
    """Loads a Parquet file by its schema."""
    if schema_file is not None and (unit is not None or rows_per_unit is not None):
        column, rows = subjects.required(unit, rows_per_unit)
        return subjects.parquet(
            place, _with_all_columns("parquet", place, schema_file, (label, column)), test_csv,
            column, rows)
    return frames.parquet(place, _declared("parquet", place, schema_file, label), test_csv)


def _declared(kind: str, place: str, schema_file: str | None, label: str | None) -> schema.Schema:
    """Reads the schema of a file of rows, which it needs."""
    if schema_file is None:
        raise UserError(
            f"{kind}:{place} needs {option('schema', 'FILE.yaml')}, which declares its columns; "
            "draft one with "
            + program("schema", place, label="COLUMN", out="schema.yaml"))
    if _is_packaged(schema_file):
        declared = schema.read(schema_file)
    else:
        declared = schema.parse(raw.of_file(kind, place).written_out(
            schema.document(schema_file), (label,)), schema_file)
    require_label(label, declared, schema_file)
    return declared


def _is_packaged(schema_file: str) -> bool:
    return schema_file in schema.NAMES and not Path(schema_file).is_file()


def _with_all_columns(kind: str, place: str, schema_file: str, apart: tuple[str | None, ...]
                      ) -> str | Json:
    """Returns a schema's file, or its document with all columns where it declares some together."""
    if _is_packaged(schema_file) or not patterns.has_patterns(
            document := schema.document(schema_file)):
        return schema_file
    written: Json = raw.of_file(kind, place).written_out(document, apart)
    return written


def require_label(label: str | None, declared: schema.Schema, name: str) -> None:
    """Refuses another label than that of a schema.

    Args:
        label: The label that was stated, or None.
        declared: The schema.
        name: Its name.

    Raises:
        UserError: They differ.
    """
    if label not in (None, declared.spec.label.name):
        raise UserError(f"{option('label', label)}: {name} has the label "
                        f"{declared.spec.label.name or 'of no column'}; drop the option, or change "
                        "the schema")


def _load_tfds(name: str, classes: int | None, image_size: int | None, download: bool,
               schema_file: str | None) -> Dataset:
    """Loads images or a table of tensorflow-datasets."""
    return tfds.tfds(name, classes, image_size, download, schema_file=schema_file)


def _of_file(place: str) -> str:
    return content_of(locate(place))


def _of_folder(place: str) -> str:
    """Returns a digest of the names and sizes of all files in a folder, of links as they are.

    Hidden ones are left out: a file manager makes some in each folder that it shows.
    """
    root, digest = locate(place), hashlib.sha256()
    for folder, below, names in os.walk(root):
        below[:] = _visible(below)  # the order in which they are walked through
        for path in (Path(folder, name) for name in _visible(names)):
            digest.update(repr((str(path.relative_to(root)), path.lstat().st_size)).encode())
    return digest.hexdigest()


def _of_name(name: str) -> str:
    """Returns a digest of the name of a data set, whatever its version."""
    return hashlib.sha256(f"tfds:{name.partition(':')[0]}".encode()).hexdigest()


def _visible(names: list[str]) -> list[str]:
    return sorted(name for name in names if not name.startswith("."))


SOURCES = {
    "glyphs": Source(_load_glyphs, sized=False),
    "digits": Source(digits.digits),
    "breast_cancer": Source(tables.breast_cancer, options=()),
    "idx": Source(digits.idx, "DIR", content=digits.idx_content),
    "npz": Source(npz.npz, "FILE", content=_of_file),
    "folder": Source(files.folder, "DIR",
                     (*IMAGE_OPTIONS, "channels", "class_names", "skip_bad", "resize",
                      "background"), content=files.content),
    "celeba": Source(photographs.celeba, "DIR",
                     ("attribute", *IMAGE_OPTIONS, "skip_bad", "resize", "split", "background"),
                     sized=False, content=_of_folder),
    "places365": Source(photographs.places365, "DIR",
                        ("attribute", *IMAGE_OPTIONS, "class_names", "skip_bad", "resize",
                         "per_class", "background"), sized=False, content=_of_folder),
    "cifar10": Source(photographs.cifar10, "DIR", content=_of_folder),
    "femnist": Source(digits.femnist, "FILE.h5", content=_of_file),
    "tfds": Source(_load_tfds, "NAME", (*IMAGE_OPTIONS, "download", "schema"),
                   content=_of_name),
    "csv": Source(_load_csv, "FILE", TABLE_OPTIONS, content=_of_file),
    "parquet": Source(_load_parquet, "FILE", TABLE_OPTIONS, content=_of_file),
    "adult": Source(tables.adult, "DIR", (), content=_of_folder),
}
SPECS = tuple(f"{kind}:{source.place}".rstrip(":") for kind, source in SOURCES.items())


def load(spec: str, *, classes: int | None = None, image_size: int | None = None,
         channels: int | None = None, class_names: str | Sequence[str] | None = None,
         schema: str | None = None, test_csv: str | None = None,
         test_fraction: float | None = None, attribute: str | None = None, skip_bad: bool = False,
         download: bool = False, max_gb: float | None = None, resize: Resize | None = None,
         split: str | None = None, per_class: int | None = None, unit: str | None = None,
         rows_per_unit: int | None = None, label: str | None = None,
         background: Background | None = None) -> Dataset:
    """Loads a data set.

    What is not declared and is read from private records is listed in `Dataset.uncovered`. A path
    that does not exist is also tried under the folder DPGEN_DATA. `tfds:` reads under
    TFDS_DATA_DIR, as tfds itself does; what is not prepared there is downloaded, once the user
    agreed at the terminal or by `download`.

    Args:
        spec: `glyphs`, `digits`, KIND:PLACE as in `SPECS`, or the path of what lies there.
        classes: The declared number of classes of images. Needed by npz unless the file states it,
            and by femnist unless the file's name does; 10 by default for idx. The other sources
            state theirs, and another number is an error.
        image_size: Pixels; images of another shape are made squares and resized. 64 by default for
            celeba and places365.
        channels: For folder, 1 or 3, to which images are converted.
        class_names: The classes in the order of their labels: names, a text with commas between
            them, or the path of a text file with one a line. They declare the number of classes,
            and the folders of folder and places365; for folder, a last * leaves out all others.
        schema: For csv, parquet, and tables of tfds, a YAML file or the name of a packaged schema
            (`schema.NAMES`).
        test_csv: For csv and parquet, the file of the held-out part.
        test_fraction: For a data set without a held-out part, the share of its records that are
            held out (`parts.hold_out`); 0 for none.
        attribute: The label of celeba, `gender` or `hair`; for places365 the classes, with ;
            between them (`photographs.places365`).
        skip_bad: For folder, celeba and places365, files that cannot be used as images are empty
            slots.
        download: For tfds, download and prepare what is not prepared, without a question.
        max_gb: The memory that the arrays may take; by default what the machine has.
        resize: For folder, celeba and places365, how images become squares: `crop`, by default, or
            `stretch`.
        split: For celeba, the parts that are trained on: `train`, by default, or `train+val`.
        per_class: For places365, how many training images of each class are taken.
        unit: For csv and parquet, the column that names the subject of each row: a person, a
            household.
        rows_per_unit: With `unit`, the most rows of a subject that are kept.
        label: For csv, the column of the classes, which must be that of the schema.
        background: For folder, celeba and places365, the colour that transparent pixels show:
            `white`, by default, or `black`.

    Returns:
        The data set.

    Raises:
        UserError: One line that names the file, row or option at fault and the mend. It may quote
            private data (a row's label), so it is for the data holder only.
    """
    _check_options(classes, image_size, channels)
    if background not in (None, *get_args(Background)):
        raise UserError(f"{option('background', background)}: give "
                        f"{' or '.join(get_args(Background))}")
    kind, colon, place = _parted(spec)
    source = SOURCES.get(kind)
    if source is None or (bool(colon), bool(place)) != (bool(source.place),) * 2:
        raise UserError(_unknown(spec, kind))
    with limited(max_gb):
        listed = declared_classes(class_names)
        names = tuple(name for name in listed if name != files.OTHERS or kind != "folder")
        options = {"class_names": listed, "classes": _counted(names, classes),
                   "image_size": image_size, "channels": channels, "schema": schema,
                   "test_csv": test_csv, "attribute": attribute, "skip_bad": skip_bad,
                   "download": download, "resize": resize, "split": split, "per_class": per_class,
                   "unit": unit, "rows_per_unit": rows_per_unit, "label": label,
                   "background": background}
        require_applicable(kind, options)
        at = [place] if place else []
        data = with_names(source.load(*at, *(options[name] for name in source.options)), names)
        known = data.content or _content(kind, place)
        data = dataclasses.replace(data, content=known, options=recorded(
            kind, {**options, "test_fraction": test_fraction}))
        return parts.hold_out(data, test_fraction) if test_fraction else data


def require_applicable(kind: str, options: Mapping[str, Any]) -> None:
    """Refuses options that a kind of data set, a key of `SOURCES`, does not take.

    Options that are None, False or empty are not stated.
    """
    accepted = {*SOURCES[kind].options, "test_fraction", "max_gb"}
    accepted |= {"class_names"} if "classes" in accepted else set()
    for name, value in options.items():
        if value not in (None, False, ()) and name not in accepted:
            raise UserError(f"{option(name)} does not apply to {kind}; drop the option")


def recorded(kind: str, options: Mapping[str, Any]) -> Json:
    """Returns the options that a run records: those that decide which records there are."""
    return {"kind": kind} | {name: options[name] for name in RECORDED
                             if options.get(name) is not None}


def is_built_in(options: Mapping[str, Any]) -> bool:
    """Returns whether the recorded options are those of public data that come with a package."""
    source = SOURCES.get(str(options.get("kind")))
    return source is not None and not source.place


def content(spec: str) -> str:
    """Returns a digest of what the training records of a data set are read from.

    It is as private as the records, and empty where none is known.
    """
    kind, _, place = _parted(spec)
    return _content(kind, place)


def _content(kind: str, place: str) -> str:
    source = SOURCES.get(kind)
    return source.content(place) if source and source.content else ""


def _parted(spec: str) -> tuple[str, str, str]:
    """Splits a text into kind, colon and place; a bare path gets the kind of what is there."""
    kind, colon, place = spec.partition(":")
    if spec and kind not in SOURCES and (lying := kind_of(spec)):
        return lying, ":", spec
    return kind, colon, place


ENDINGS = {".csv": "csv", ".csv.gz": "csv", ".parquet": "parquet", ".npz": "npz", ".h5": "femnist"}
"""The kind of data set of a file, by the end of its name."""
MARKS = {"train-images-idx3-ubyte": "idx", "train-images-idx3-ubyte.gz": "idx",
         "list_attr_celeba.txt": "celeba", "data_batch_1.bin": "cifar10", "data_batch_1": "cifar10"}
"""The kind of data set of a folder, by a file that it holds."""


def kind_of(text: str) -> str:
    """Returns the kind of the data set that lies at a path; empty where nothing lies there.

    A UserError where what lies there is no data set that can be read.
    """
    try:
        path = locate(text)
    except UserError:
        return ""
    if path.is_dir():
        kind = next((kind for name, kind in MARKS.items() if (path / name).exists()), "")
        kind = kind or ("folder" if _has_class_folders(path) else "")
        wanted = f"CLASS/IMAGE or train/CLASS/IMAGE with {files.ENDINGS}, or the files of MNIST"
    else:
        names = path.name.lower()
        kind = next((kind for end, kind in ENDINGS.items() if names.endswith(end)), "")
        wanted = f"a file that ends in {', '.join(ENDINGS)}"
    if not kind:
        raise UserError(f"{shown(path)} is not a data set that can be read; expected {wanted}")
    return kind


def _missing(text: str) -> str:
    """Returns what is wrong with a text that is meant as a path; empty for another text."""
    path = Path(text)
    meant = ":" not in text and (path.suffix or len(path.parts) > 1 or text.endswith("/"))
    if not (meant and text.isprintable()):
        return ""
    try:
        beside = sorted(child.name for child in path.parent.iterdir())
    except OSError:  # there is no such folder, or none that may be read
        beside = []
    return f"there is no file or folder {text!r} here{nearest(path.name, beside)}"


def _has_class_folders(path: Path) -> bool:
    """Whether a folder holds folders of images, or a folder `train` that does."""
    root = path / "train" if files.subfolders(path / "train") else path
    return any(files.listed(root / name) for name in files.subfolders(root))


def _check_options(classes: int | None, image_size: int | None, channels: int | None) -> None:
    """Checks the numbers that do not depend on the source."""
    if image_size is not None and not MIN_SIDE <= image_size <= MAX_SIDE:
        fault = "small" if image_size < MIN_SIDE else "large"
        raise UserError(f"{option('image_size', image_size)} is too {fault}; give {MIN_SIDE} to "
                        f"{MAX_SIDE} pixels")
    if classes is not None and classes < 1:
        raise UserError(f"{option('classes', classes)} is too small; declare 1 or more")
    if channels not in (None, 1, 3):
        raise UserError(f"{option('channels', channels)}: give 1 for grey or 3 for RGB")


def _counted(names: Sequence[str], classes: int | None) -> int | None:
    """Returns the number of classes that is declared, by names or number, which must agree."""
    if names and classes not in (None, len(names)):
        raise UserError(f"{option('class_names')} has {len(names)} names, "
                        f"{option('classes', classes)} was given; drop one of them")
    return len(names) or classes


def from_arrays(x: np.ndarray, y: np.ndarray, classes: int | None = None) -> Dataset:
    """Makes a data set of the caller's arrays.

    Args:
        x: Images [n, H, W] or [n, H, W, ch], uint8 or float in [0, 1].
        y: Labels int [n].
        classes: The number of classes; where it is None it is read off the labels, and `uncovered`.
    """
    if y is None:
        raise UserError("labels are missing: give y, or, with a DataFrame, schema=FILE")
    try:
        x, y = np.asarray(x), np.asarray(y)
    except ValueError as error:  # rows of different lengths
        raise UserError(f"images and labels are not arrays ({error}); give arrays") from error
    uncovered: tuple[Uncovered, ...] = ()
    if classes is None:
        if not (y.size and np.issubdtype(y.dtype, np.integer)):
            raise UserError(f"labels are {y.dtype} of shape {y.shape}; give one integer per image")
        classes = max(int(y.max()) + 1, 1)  # what is negative is refused by its row
        uncovered = (Uncovered(f"the number of classes, {classes}, is read from the labels",
                               f"classes={classes}"),)
    data = assemble("arrays", classes, (digits.to_bytes("x", x), y), None,
                    ["image height, width and channels are read from the array shapes"])
    return dataclasses.replace(data, uncovered=uncovered)


def _unknown(spec: str, kind: str) -> str:
    """Returns the error message for a text that names no data set."""
    by_kind = dict(zip(SOURCES, SPECS, strict=True))
    close = difflib.get_close_matches(kind.lower(), by_kind, n=1)
    hint = f"did you mean {by_kind[close[0]]}? " if close else ""
    path = "" if ":" in spec else ", or the path of a file or folder that exists"
    wrong = _missing(spec) or f"unknown data set {spec!r}"
    return f"{wrong}; {hint}known: {', '.join(SPECS)}{path}"
