"""The names of classes, as they are declared: a,b,c or a text file with one name a line."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from dpgen_jax.data.base import Dataset, shown
from dpgen_jax.reading import read_bytes
from dpgen_jax.types import ImageSpec, UserError


def declared(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """The names; none where nothing is given. A text without commas that is the path of a file
    stands for that file. Errors: UserError."""
    if given is None:
        return ()
    if isinstance(given, str):
        given = _lines(Path(given)) if _is_path(given) else given.split(",")
    names = tuple(str(name).strip() for name in given)
    return checked(names, "--class-names")


def checked(names: Sequence[str], source: str) -> tuple[str, ...]:
    """The names as they are. Errors: UserError where one is empty, not printable or given twice."""
    if not names:
        raise UserError(f"{source} names no class; name 1 or more")
    known = set()
    for name in names:
        if not name or not name.isprintable():
            raise UserError(f"{source}: '{shown(name)}' cannot be the name of a class; use "
                            "printable text")
        if name in known:
            raise UserError(f"{source}: {name!r} is named twice; remove one")
        known.add(name)
    return tuple(names)


def named(data: Dataset, names: tuple[str, ...]) -> Dataset:
    """The images with these names of their classes, if any. Errors: UserError for another number
    of names."""
    if not names or not isinstance(data.spec, ImageSpec):
        return data
    if len(names) != data.spec.classes:
        raise UserError(f"--class-names has {len(names)} names, {data.name} {data.spec.classes} "
                        "classes; name each once")
    return dataclasses.replace(data, spec=dataclasses.replace(data.spec, class_names=names))


def _is_path(given: str) -> bool:
    try:
        return "," not in given and Path(given).exists() and not Path(given).is_dir()
    except (OSError, ValueError):
        return False


def _lines(path: Path) -> list[str]:
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no text in UTF-8 ({error}); write one name a line") from error
    return text.rstrip().splitlines()
