"""Images in class folders: `folder:DIR`."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path

from dpgen_jax.core.errors import option
from dpgen_jax.core.types import UserError
from dpgen_jax.data.base import (
    MAX_LISTED,
    Background,
    Dataset,
    Resize,
    Uncovered,
    checked_classes,
    fixed_classes,
    locate,
    shown,
)
from dpgen_jax.data.base import listed as named
from dpgen_jax.data.images import files
from dpgen_jax.data.images.files import SKIPPED, Form, Labelled, listed, subfolders

Part = list[tuple[Path, str]]
"""Files and their categories, in an order that no category decides."""
OTHERS = "*"
"""A last name of a class, which stands for all class folders that are not named."""
NAMED = "the class names are declared or bought; none is read off the folders"
NOT_NAMED = "an image of a class that is not named is an empty slot: it keeps its place"


def folder(path: str, classes: int | None, image_size: int | None, channels: int | None,
           class_names: tuple[str, ...], skip_bad: bool, resize: Resize | None,
           background: Background | None) -> Dataset:
    """Loads train/CLASS/* of `files.SUFFIXES` and, if there, test/CLASS/...; or CLASS/* alone.

    Records are in the order of their files' names, which are public: a file that is moved to
    another class folder leaves the order of all records as it was. Only among files of one name do
    the classes decide; that a partition hides even that order rests on its secret key.

    Args:
        path: The folder.
        classes: The number of classes that the user declares, or None.
        image_size: As `files.labelled`.
        channels: As `files.labelled`.
        class_names: The classes in the order of their labels; another class folder is refused,
            unless the last name is `OTHERS`: its images are then empty slots, and left out of the
            test part. One may be absent. Where they are not declared, they are the sorted names of
            the folders, which are `uncovered`.
        skip_bad: As `files.labelled`.
        resize: As `files.labelled`.
        background: As `files.labelled`.

    Returns:
        The data set.

    Raises:
        UserError: Naming the files.
    """
    if resize and image_size is None:
        raise UserError(f"{option('resize', resize)} needs {option('image_size', 'N')}, the side "
                        "of the squares")
    root = locate(path)
    place, parts = _training(root)
    declared = tuple(name for name in class_names if name != OTHERS)
    others = len(declared) < len(class_names)
    names, train = class_folders(place, declared, others)
    test = class_folders(root / "test", names, others)[1] if parts else []
    if not train:
        raise UserError(f"{place} holds no image files ({files.ENDINGS}) in its class folders")
    fixed_classes(shown(root), len(names), classes)
    data = files.labelled(
        root.resolve().name, names, pairs(train, names), pairs(test, names),
        [*[NAMED] * others, *_notes(bool(class_names) and not others, channels, image_size,
                                    skip_bad), *[NOT_NAMED] * others],
        Form(channels, image_size, skip_bad, resize, background))
    data = dataclasses.replace(data, content=content(path), private_notes=(
        *data.private_notes, *unread(place)))
    return data if class_names else with_uncovered(data, read_names(names))


def _training(root: Path) -> tuple[Path, bool]:
    """The folder of the training classes, and whether there may be one for tests next to it."""
    parts = (root / "train").is_dir() or (root / "test").is_dir() or not subfolders(root)
    return (root / "train" if parts else root), parts


def categories(path: str) -> list[str | None]:
    """Returns the class folder of each training image. It is as private as the images.

    Args:
        path: The folder, as `folder` takes it.
    """
    place, _ = _training(locate(path))
    return [name for name in subfolders(place) for _ in listed(place / name)]


def has_tests(path: str) -> bool:
    """Returns whether a folder of classes for tests lies next to that of the training."""
    root = locate(path)
    return _training(root)[1] and any(
        listed(root / "test" / name) for name in subfolders(root / "test"))


def content(path: str) -> str:
    """Returns a digest of the names and sizes of all images, in hex.

    Args:
        path: The folder, as `folder` takes it.
    """
    place, _ = _training(locate(path))
    digest = hashlib.sha256()
    for name in subfolders(place):
        for image in listed(place / name):
            status = image.stat() if image.exists() else image.lstat()  # of a link to nothing
            digest.update(repr((name, image.name, status.st_size)).encode())
    return digest.hexdigest()


def unread(place: Path) -> tuple[str, ...]:
    """Returns the line for the data holder on what lies next to the images and is not read.

    Args:
        place: The folder of the class folders.
    """
    classes = subfolders(place)
    inside = [child for name in classes for child in (place / name).iterdir()
              if child.suffix.lower() not in files.SUFFIXES]
    others = sorted(str(child.relative_to(place)) for child in
                    [*inside, *(child for child in place.iterdir() if child.name not in classes)]
                    if not child.name.startswith("."))
    if not others:
        return ()
    return (f"{shown(place)}: not read, as images are CLASS/IMAGE with {files.ENDINGS} and no "
            f"deeper: {named(others)}",)


def _notes(*declared: object) -> list[str]:
    """Returns the public notes on the options that are set, in the order of the texts."""
    texts = ("the class names are declared", "every image is converted to the declared number of "
            "channels", "every image is resized to the declared size", SKIPPED)
    return [note for option, note in zip(declared, texts, strict=True) if option]


def read_names(names: Sequence[str]) -> Uncovered:
    """Returns the entry for class names that are read from the folders."""
    short = len(names) <= MAX_LISTED and not any("," in name for name in names)
    option = ",".join(names) if short else "FILE"
    return Uncovered(f"the names and the number of the classes, {len(names)}, are those of the "
                     "folders", f"--class-names {option}")


def with_uncovered(data: Dataset, *more: Uncovered) -> Dataset:
    """Returns the data set with more entries in `uncovered`."""
    return dataclasses.replace(data, uncovered=(*more, *data.uncovered))


def class_folders(path: Path, names: Sequence[str], others: bool = False
                  ) -> tuple[tuple[str, ...], Part]:
    """Returns the names of the classes and the files of their folders, of which any may be absent.

    Without names they are those of the folders. A folder of another name is a UserError, or with
    `others` a place among the files.
    """
    present = subfolders(path)
    if not names:
        if not present:
            raise UserError(f"{shown(path)} holds no class folders; expected CLASS/IMAGE with "
                            f"{files.ENDINGS}")
        names = checked_classes(present, shown(path))
    unknown = sorted(set(present) - set(names))
    if unknown and not others:
        raise UserError(f"{shown(path / unknown[0])} is no class; known: {', '.join(names)}; "
                        f"declare it with {option('class_names')}, leave its images out by a last "
                        "name *, or take it away")
    order = {name: i for i, name in enumerate((*names, *unknown))}
    part = [(file, name) for name in present for file in listed(path / name)]
    return tuple(names), sorted(part, key=lambda pair: (pair[0].name, order[pair[1]]))


def pairs(part: Part, names: Sequence[str]) -> Labelled:
    """Returns the files with the labels of their classes; None for a class that is not named."""
    labels = {name: label for label, name in enumerate(names)}
    return [(path, labels.get(name)) for path, name in part]
