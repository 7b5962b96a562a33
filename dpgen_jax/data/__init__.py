"""Data sets by one short text: `load("glyphs")`, `load("csv:people.csv", schema="s.yaml")`, ..."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Sequence

import numpy as np

from dpgen_jax.data import (
    celeba,
    cifar10,
    femnist,
    folders,
    glyphs,
    images,
    npz,
    public_tables,
    schema,
    tables,
    tfds,
)
from dpgen_jax.data.base import (
    MAX_SIDE,
    MIN_SIDE,
    Dataset,
    Uncovered,
    assemble,
    fixed_classes,
    without_empty_slots,
)
from dpgen_jax.data.class_names import declared, named
from dpgen_jax.reading import limited
from dpgen_jax.types import UserError

__all__ = ["SPECS", "Dataset", "Uncovered", "from_arrays", "load", "without_empty_slots"]

IMAGE_OPTIONS = ("classes", "image_size")


@dataclasses.dataclass(frozen=True)
class Source:
    """load(place, *options), without the place where `place`, the word for it, is empty."""

    load: Callable[..., Dataset]
    place: str = ""
    options: tuple[str, ...] = IMAGE_OPTIONS


def _load_glyphs(classes: int | None, image_size: int | None) -> Dataset:
    fixed_classes("glyphs", glyphs.DIGITS, classes)
    return glyphs.glyphs() if image_size is None else glyphs.glyphs(image_size)


def _load_csv(place: str, given: str | None, test_csv: str | None) -> Dataset:
    if given is None:
        raise UserError(
            f"csv:{place} needs --schema FILE.yaml, which declares its columns; draft one with "
            f"python -m dpgen_jax.train --init-schema {place} --label COLUMN --out schema.yaml")
    return tables.csv(place, schema.read(given), test_csv)


SOURCES = {
    "glyphs": Source(_load_glyphs),
    "digits": Source(images.digits),
    "breast_cancer": Source(public_tables.breast_cancer, options=()),
    "idx": Source(images.idx, "DIR"),
    "npz": Source(npz.npz, "FILE"),
    "folder": Source(folders.folder, "DIR",
                     (*IMAGE_OPTIONS, "channels", "class_names", "skip_bad")),
    "celeba": Source(celeba.celeba, "DIR", ("attribute", *IMAGE_OPTIONS, "skip_bad")),
    "places365": Source(folders.places365, "DIR",
                        ("attribute", *IMAGE_OPTIONS, "class_names", "skip_bad")),
    "cifar10": Source(cifar10.cifar10, "DIR"),
    "femnist": Source(femnist.femnist, "FILE.h5"),
    "tfds": Source(tfds.prepared, "NAME"),
    "csv": Source(_load_csv, "FILE", ("schema", "test_csv")),
    "adult": Source(public_tables.adult, "DIR", ()),
}
SPECS = tuple(f"{kind}:{source.place}".rstrip(":") for kind, source in SOURCES.items())


def load(spec: str, *, classes: int | None = None, image_size: int | None = None,
         channels: int | None = None, class_names: str | Sequence[str] | None = None,
         schema: str | None = None, test_csv: str | None = None, attribute: str | None = None,
         skip_bad: bool = False, max_gb: float | None = None) -> Dataset:
    """Loads the data set that spec names: `glyphs`, `digits`, or KIND:PLACE as in `SPECS`.

    classes: the declared number of classes of images. Needed by npz unless the file states it, and
      by femnist unless the file's name does, 10 for idx unless given; the other sources state their
      own, and another number is an error.
    image_size: pixels; images of another shape are centre-cropped to a square and resized. 64 for
      celeba and places365 unless given.
    channels: for folder, 1 or 3, to which images are converted.
    class_names: of the classes in the order of their labels: names, a text with commas between
      them, or the path of a text file with one a line. They declare the number of classes, and the
      folders of folder and places365.
    schema: for csv, a YAML file or the name of a packaged schema (`schema.NAMES`).
    test_csv: for csv, the file of the held-out part.
    attribute: the label of celeba, `gender` or `hair`; for places365 the classes, with ; between
      them (`folders.places365`).
    skip_bad: for folder, celeba and places365, files that cannot be decoded are empty slots.
    max_gb: memory that the arrays may take; by default what the machine has.
    What is not declared and is read from private records is listed in `Dataset.uncovered`.
    A path that does not exist is also tried under the folder DPGEN_DATA (default ../shared/data,
    seen from the working directory). `tfds:` reads under TFDS_DATA_DIR, as tfds itself does.
    Errors: UserError, one line that names the file, row or option at fault and the mend. It may
    quote private data (a row's label), so it is for the data holder only.
    """
    if image_size is not None and not MIN_SIDE <= image_size <= MAX_SIDE:
        fault = "small" if image_size < MIN_SIDE else "large"
        raise UserError(f"--image-size {image_size} is too {fault}; give {MIN_SIDE} to {MAX_SIDE} "
                        "pixels")
    if classes is not None and classes < 1:
        raise UserError(f"--classes {classes} is too small; declare 1 or more")
    if channels not in (None, 1, 3):
        raise UserError(f"--channels {channels}: give 1 for gray or 3 for RGB")
    kind, colon, place = spec.partition(":")
    source = SOURCES.get(kind)
    if source is None or (bool(colon), bool(place)) != (bool(source.place),) * 2:
        raise UserError(_unknown(spec, kind))
    with limited(max_gb):
        names = declared(class_names)
        given = {"class_names": names, "classes": _counted(names, classes),
                 "image_size": image_size, "channels": channels, "schema": schema,
                 "test_csv": test_csv, "attribute": attribute, "skip_bad": skip_bad}
        for name, value in given.items():
            if value not in (None, False, ()) and name not in (
                    *source.options, *["class_names"] * ("classes" in source.options)):
                raise UserError(
                    f"--{name.replace('_', '-')} does not apply to {kind}; drop the option")
        return named(source.load(*([place] if place else []),
                                 *(given[name] for name in source.options)), names)


def _counted(names: Sequence[str], classes: int | None) -> int | None:
    """The number of classes that is declared. Errors: UserError where names and number differ."""
    if names and classes not in (None, len(names)):
        raise UserError(f"--class-names has {len(names)} names, --classes {classes} was given; "
                        "drop one of them")
    return len(names) or classes


def from_arrays(x: np.ndarray, y: np.ndarray, classes: int | None = None) -> Dataset:
    """A data set of the caller's own: images as `npz:` takes them, labels int [n].

    classes: where it is None it is read off the labels, and `uncovered`. Errors: UserError, as
    `load`.
    """
    if y is None:
        raise UserError("labels are missing: give y, or, with a DataFrame, schema=FILE")
    try:
        x, y = np.asarray(x), np.asarray(y)
    except ValueError as error:  # rows of different lengths
        raise UserError(f"images and labels are no arrays ({error}); give arrays") from error
    uncovered = ()
    if classes is None:
        if not (y.size and np.issubdtype(y.dtype, np.integer)):
            raise UserError(f"labels are {y.dtype} of shape {y.shape}; give integers, one an image")
        classes = max(int(y.max()) + 1, 1)  # what is negative is refused by its row
        uncovered = (Uncovered(f"the number of classes, {classes}, is read from the labels",
                               f"classes={classes}"),)
    data = assemble("arrays", classes, (images.to_bytes("x", x), y), None,
                    ["image height, width and channels are read from the array shapes"])
    return dataclasses.replace(data, uncovered=uncovered)


def _unknown(spec: str, kind: str) -> str:
    known = dict(zip(SOURCES, SPECS, strict=True))
    close = difflib.get_close_matches(kind.lower(), known, n=1)
    hint = f"did you mean {known[close[0]]}? " if close else ""
    return f"unknown data set {spec!r}; {hint}known: {', '.join(SPECS)}"
