"""A bare path as the data set that lies there: `people.csv` is `csv:people.csv`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from dpgen_jax.core.errors import UserError, nearest
from dpgen_jax.core.files import content_of
from dpgen_jax.data.base import locate, shown
from dpgen_jax.data.images import digits, files
from dpgen_jax.data.images.files import ENDINGS as FILES
from dpgen_jax.data.images.files import listed, subfolders

ENDINGS = {".csv": "csv", ".csv.gz": "csv", ".parquet": "parquet", ".npz": "npz", ".h5": "femnist"}
"""The kind of data set of a file, by the end of its name."""
MARKS = {"train-images-idx3-ubyte": "idx", "train-images-idx3-ubyte.gz": "idx",
         "list_attr_celeba.txt": "celeba", "data_batch_1.bin": "cifar10", "data_batch_1": "cifar10"}
"""The kind of data set of a folder, by a file that it holds."""


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


def _visible(names: list[str]) -> list[str]:
    return sorted(name for name in names if not name.startswith("."))


CONTENTS: dict[str, Callable[[str], str]] = {
    "folder": files.content, "idx": digits.idx_content,
    "tfds": lambda name: hashlib.sha256(f"tfds:{name.partition(':')[0]}".encode()).hexdigest(),
    **dict.fromkeys(("csv", "parquet", "npz", "femnist"), lambda path: content_of(locate(path))),
    **dict.fromkeys(("adult", "celeba", "cifar10", "places365"), _of_folder)}
"""The function from a path to a digest of what lies there, by the kind of data set."""


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
        wanted = f"CLASS/IMAGE or train/CLASS/IMAGE with {FILES}, or the files of MNIST"
    else:
        names = path.name.lower()
        kind = next((kind for end, kind in ENDINGS.items() if names.endswith(end)), "")
        wanted = f"a file that ends in {', '.join(ENDINGS)}"
    if not kind:
        raise UserError(f"{shown(path)} is no data set that can be read; expected {wanted}")
    return kind


def content(kind: str, place: str) -> str:
    """Returns a digest in hex of what training records are read from, however they are read.

    It is as private as the records, and empty for a kind of which none is known.
    """
    of_kind = CONTENTS.get(kind)
    return "" if of_kind is None else of_kind(place)


def missing(text: str) -> str:
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
    root = path / "train" if subfolders(path / "train") else path
    return any(listed(root / name) for name in subfolders(root))
