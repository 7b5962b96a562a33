"""Data sets by one short text: `load("glyphs")`, `load("idx:mnist")`, ..."""

from __future__ import annotations

import difflib
from collections.abc import Callable

import numpy as np

from dpgen_jax.data import glyphs, images, tfds
from dpgen_jax.data.base import MIN_SIDE, Dataset, assemble, fixed_classes
from dpgen_jax.types import UserError

__all__ = ["SPECS", "Dataset", "from_arrays", "load"]


def _load_glyphs(classes: int | None, image_size: int | None) -> Dataset:
    fixed_classes("glyphs", glyphs.DIGITS, classes)
    return glyphs.glyphs() if image_size is None else glyphs.glyphs(image_size)


EMBEDDED: dict[str, Callable[[int | None, int | None], Dataset]] = {
    "glyphs": _load_glyphs,
    "digits": images.digits,
}
PLACED: dict[str, tuple[str, Callable[[str, int | None, int | None], Dataset]]] = {
    "idx": ("DIR", images.idx),
    "npz": ("FILE", images.npz),
    "folder": ("DIR", images.folder),
    "tfds": ("NAME", tfds.prepared),
}
SPECS = (*EMBEDDED, *(f"{kind}:{what}" for kind, (what, _) in PLACED.items()))


def load(spec: str, *, classes: int | None = None, image_size: int | None = None) -> Dataset:
    """Loads the data set that spec names: `glyphs`, `digits`, or KIND:PLACE as in `SPECS`.

    classes: the declared number of classes. Needed by npz unless the file states it, 10 for idx
      unless given; the other sources state their own, and another number is an error.
    image_size: pixels; images of another shape are centre-cropped to a square and resized.
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
    if kind in EMBEDDED and not colon:
        return EMBEDDED[kind](classes, image_size)
    if kind in PLACED and place:
        return PLACED[kind][1](place, classes, image_size)
    raise UserError(_unknown(spec, kind))


def from_arrays(x: np.ndarray, y: np.ndarray, classes: int | None = None) -> Dataset:
    """A data set of the caller's own: images as `npz:` takes them, labels int [n].

    classes: where it is None it is read off the labels, which is noted: the privacy statement then
    says that this number is not covered. Errors: UserError, as `load`.
    """
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
    known = {**{name: name for name in EMBEDDED},
             **{name: f"{name}:{what}" for name, (what, _) in PLACED.items()}}
    close = difflib.get_close_matches(kind.lower(), known, n=1)
    hint = f"did you mean {known[close[0]]}? " if close else ""
    return f"unknown data set {spec!r}; {hint}known: {', '.join(known.values())}"
