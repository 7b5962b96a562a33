"""Data sets by one short text: `load("glyphs")`, `load("csv:people.csv", schema="s.yaml")`, ..."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable

import numpy as np

from dpgen_jax.data import (
    celeba,
    cifar10,
    femnist,
    folders,
    glyphs,
    images,
    public_tables,
    schema,
    tables,
    tfds,
)
from dpgen_jax.data.base import MIN_SIDE, Dataset, assemble, fixed_classes
from dpgen_jax.types import UserError

__all__ = ["SPECS", "Dataset", "from_arrays", "load"]

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
    "npz": Source(images.npz, "FILE"),
    "folder": Source(folders.folder, "DIR", (*IMAGE_OPTIONS, "skip_bad")),
    "celeba": Source(celeba.celeba, "DIR", ("attribute", *IMAGE_OPTIONS, "skip_bad")),
    "places365": Source(folders.places365, "DIR", ("attribute", *IMAGE_OPTIONS, "skip_bad")),
    "cifar10": Source(cifar10.cifar10, "DIR"),
    "femnist": Source(femnist.femnist, "FILE.h5"),
    "tfds": Source(tfds.prepared, "NAME"),
    "csv": Source(_load_csv, "FILE", ("schema", "test_csv")),
    "adult": Source(public_tables.adult, "DIR", ()),
}
SPECS = tuple(f"{kind}:{source.place}".rstrip(":") for kind, source in SOURCES.items())


def load(spec: str, *, classes: int | None = None, image_size: int | None = None,
         schema: str | None = None, test_csv: str | None = None, attribute: str | None = None,
         skip_bad: bool = False) -> Dataset:
    """Loads the data set that spec names: `glyphs`, `digits`, or KIND:PLACE as in `SPECS`.

    classes: the declared number of classes of images. Needed by npz unless the file states it, and
      by femnist unless the file's name does, 10 for idx unless given; the other sources state their
      own, and another number is an error.
    image_size: pixels; images of another shape are centre-cropped to a square and resized. 64 for
      celeba and places365 unless given.
    schema: for csv, a YAML file or the name of a packaged schema (`schema.NAMES`).
    test_csv: for csv, the file of the held-out part.
    attribute: the label of celeba, `gender` or `hair`; for places365 the classes, with ; between
      them (`folders.places365`).
    skip_bad: for folder, celeba and places365, leaves out files that cannot be decoded.
    A path that does not exist is also tried under the folder DPGEN_DATA (default ../shared/data,
    seen from the working directory). `tfds:` reads under TFDS_DATA_DIR, as tfds itself does.
    Errors: UserError, one line that names the file, row or option at fault and the mend. It may
    quote private data (a row's label), so it is for the data holder only.
    """
    if image_size is not None and image_size < MIN_SIDE:
        raise UserError(f"--image-size {image_size} is too small; give {MIN_SIDE} or more pixels")
    if classes is not None and classes < 1:
        raise UserError(f"--classes {classes} is too small; declare 1 or more")
    kind, colon, place = spec.partition(":")
    source = SOURCES.get(kind)
    if source is None or (bool(colon), bool(place)) != (bool(source.place),) * 2:
        raise UserError(_unknown(spec, kind))
    given = {"classes": classes, "image_size": image_size, "schema": schema, "test_csv": test_csv,
             "attribute": attribute, "skip_bad": skip_bad}
    for name, value in given.items():
        if value not in (None, False) and name not in source.options:
            raise UserError(f"--{name.replace('_', '-')} does not apply to {kind}; drop the option")
    return source.load(*([place] if place else []), *(given[name] for name in source.options))


def from_arrays(x: np.ndarray, y: np.ndarray, classes: int | None = None) -> Dataset:
    """A data set of the caller's own: images as `npz:` takes them, labels int [n].

    classes: where it is None it is read off the labels, which is noted: the privacy statement then
    says that this number is not covered. Errors: UserError, as `load`.
    """
    if y is None:
        raise UserError("labels are missing: give y, or, with a DataFrame, schema=FILE")
    x, y = np.asarray(x), np.asarray(y)
    notes = ["image height, width and channels are read from the array shapes"]
    if classes is None:
        if not (y.size and np.issubdtype(y.dtype, np.integer)):
            raise UserError(f"labels are {y.dtype} of shape {y.shape}; give integers, one an image")
        classes = int(y.max()) + 1
        notes.append(f"not covered: the number of classes, {classes}, is read from the private "
                     "labels; declare it with classes=")
    return assemble("arrays", classes, (images.to_bytes("x", x), y), None, notes)


def _unknown(spec: str, kind: str) -> str:
    known = dict(zip(SOURCES, SPECS, strict=True))
    close = difflib.get_close_matches(kind.lower(), known, n=1)
    hint = f"did you mean {known[close[0]]}? " if close else ""
    return f"unknown data set {spec!r}; {hint}known: {', '.join(SPECS)}"
