"""The declared number and names of classes; names are a,b,c or a text file with one a line."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from dpgen_jax.core.reading import exists, read_bytes
from dpgen_jax.core.types import ImageSpec, UserError
from dpgen_jax.data.base import Dataset, shown

FASHION = ("T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
           "Ankle boot")
"""The classes of Fashion-MNIST, as its authors name them; the first also stands for tops."""
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def official(data: Dataset, names: Sequence[str]) -> Dataset:
    """Returns a public data set with the names that its classes have in public.

    Args:
        data: Images.
        names: The names; numbers, of which nobody needs to be told, and another number of names
            than of classes change nothing.
    """
    if len(names) != data.spec.classes or all(name.isdecimal() for name in names):
        return data
    return with_names(data, tuple(names))


def declared(names: str | Sequence[str] | None) -> tuple[str, ...]:
    """Returns the names of classes that the user declares.

    Args:
        names: The names, a text with commas between them, or the path of a text file with one name
            a line; None for none.

    Raises:
        UserError: A name cannot be used, or the file cannot be read.
    """
    if names is None:
        return ()
    if isinstance(names, str):
        names = _lines(Path(names)) if _is_path(names) else names.split(",")
    return checked([str(name).strip() for name in names], "--class-names")


def checked(names: Sequence[str], source: str) -> tuple[str, ...]:
    """Returns the names of classes, unchanged.

    Args:
        names: The names.
        source: Where they come from, for errors.

    Raises:
        UserError: A name is empty, not printable or there twice.
    """
    if not names:
        raise UserError(f"{source} names no class; name 1 or more")
    earlier: set[str] = set()
    for name in names:
        if not name or not name.isprintable():
            raise UserError(f"{source}: '{shown(name)}' cannot be the name of a class; use "
                            "printable text")
        if name in earlier:
            raise UserError(f"{source}: {name!r} is named twice; remove one")
        earlier.add(name)
    return tuple(names)


def fixed_classes(name: str, actual: int, declared: int | None) -> int:
    """Returns the number of classes of a source that publishes it.

    Args:
        name: The name of the source.
        actual: Its number of classes.
        declared: The number that the user declares; None for none.

    Raises:
        UserError: The user declares another number.
    """
    if declared not in (None, actual):
        raise UserError(f"{name} has {actual} classes, --classes {declared} was given; "
                        "drop the option")
    return actual


def with_names(data: Dataset, names: tuple[str, ...]) -> Dataset:
    """Returns a data set of images whose schema has these class names.

    Args:
        data: A data set.
        names: The names of the classes; where there are none, and for tables, nothing changes.

    Raises:
        UserError: There is another number of names than of classes.
    """
    if not names or not isinstance(data.spec, ImageSpec):
        return data
    if len(names) != data.spec.classes:
        raise UserError(f"--class-names has {len(names)} names, {data.name} {data.spec.classes} "
                        "classes; name each once")
    return dataclasses.replace(data, spec=dataclasses.replace(data.spec, class_names=names))


def _is_path(text: str) -> bool:
    """Returns whether a text is the path of a file rather than names."""
    return "," not in text and exists(text) and not Path(text).is_dir()


def _lines(path: Path) -> list[str]:
    """Returns the lines of a text file, without empty ones at its end."""
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no text in UTF-8 ({error}); write one name a line") from error
    return text.rstrip().splitlines()
