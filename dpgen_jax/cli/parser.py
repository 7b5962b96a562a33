"""Flags from dataclasses: what is parsed, which flags were stated, and one line for an error."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import re
import sys
import typing
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, TypeVar

import tyro

from dpgen_jax.core.console import as_typed, tell
from dpgen_jax.core.errors import UserError, nearest

T = TypeVar("T")
FLAT = tyro.conf.arg(name="")
"""marks a field whose own fields are flags without a prefix"""


def split_method(argv: Sequence[str], default: str) -> tuple[str, list[str]]:
    """Splits the name of a method off the arguments."""
    if argv and not argv[0].startswith("-"):
        return argv[0], list(argv[1:])
    return default, list(argv)


def peek(argv: Sequence[str], flag: str) -> str | None:
    """Returns the value of a flag before the real parsing: the preset decides the defaults.

    Args:
        argv: The arguments.
        flag: The flag, with its dashes; the last one counts, as in the parser.
    """
    value = None
    for i, word in enumerate(argv):
        if word == flag and i + 1 < len(argv):
            value = argv[i + 1]
        if word.startswith(flag + "="):
            value = word.split("=", 1)[1]
    return value


def without_flag(argv: Sequence[str], flag: str) -> list[str]:
    """Returns the arguments with a flag taken out and its value, or values, put first."""
    rest = [word.removeprefix(f"{flag}=") for word in argv if word != flag]
    start = next(i for i, word in enumerate(argv) if word == flag or word.startswith(f"{flag}="))
    return [*rest[start:], *rest[:start]]


def parse(cls: type[T], argv: Sequence[str], prog: str, description: str, default: T | None = None
          ) -> T:
    """Parses arguments into a dataclass; `--help` prints and exits.

    Args:
        cls: The dataclass of the flags.
        argv: The arguments.
        prog: The program, as the help names it.
        description: One or two sentences for the help.
        default: The values of flags that are left out; by default the dataclass's own.

    Returns:
        The dataclass.

    Raises:
        UserError: With the parser's message in one line.
    """
    args, prog = cls if default is None else default, as_typed(prog)
    _as_shown(args)
    stated: dict[str, Any] = {} if default is None else {"default": default}
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            parsed, unknown = tyro.cli(
                cls, args=_with_new_names(argv, args), prog=prog, description=description,
                return_unknown_args=True, **stated)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UserError(f"{_in_words(_first_message(box.getvalue()))} (see: {prog} --help)"
                        ) from None
    if unknown:
        name = unknown[0].lstrip("-").partition("=")[0].replace("_", "-")
        flags = (flag for flag, _ in _flags(args))
        known = nearest(name, flags) if unknown[0].startswith("-") else ""
        known = known.replace("mean '", "mean '--")
        raise UserError(f"Unrecognized options: {', '.join(unknown)}{known} (see: {prog} --help)")
    return typing.cast(T, parsed)


def _first_message(box: str) -> str:
    """The first message of the parser's framed text.

    tyro's hooks for errors (`tyro._errors`) are private and may change in any version, so the text
    that it prints is read instead.
    """
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)  # colours, where the terminal has them
    rows = [line.strip("\u2502 ") for line in plain.splitlines()[1:]]
    if rows and _is_rule(rows[0]):  # under the title, where the terminal has ASCII only
        del rows[0]
    message = itertools.takewhile(lambda row: not _is_rule(row), rows)
    return " ".join(row for row in message if row)


def _in_words(message: str) -> str:
    """A message of the parser without its layout, and without words of Python."""
    missing = re.fullmatch(r"Missing from [^:]*: (.*)", message)
    if missing:
        items = missing[1].replace("(required)", "\0").strip("\0 ").split("\0")
        return "missing: " + ", ".join(
            re.sub(r"^((?:--\S+ )?\S+) (.*)$", r"\1 (\2)", item.strip()) for item in items)
    message = re.sub(r"^Error parsing (\S+): no type matching \{None\}\|(?:INT|FLOAT) could .* - "
                     r"<class '(?:int|float)'>: ", r"Error parsing \1: ", message)
    message = re.sub(r"^Error parsing (\S+): invalid literal for int\(\) with base 10: (.*)$",
                     r"\1 \2: a whole number is needed", message)
    return re.sub(r"^Error parsing (\S+): could not convert string to float: (.*)$",
                  r"\1 \2: a number is needed", message)


def _is_rule(row: str) -> bool:
    return bool(row) and not set(row) - set("\u2500\u2570\u256f-")


def stated(args: Any, argv: Sequence[str]) -> dict[str, Any]:
    """Returns the values of the flags that occur in the arguments, by field.

    Args:
        args: The dataclass that the arguments were parsed into.
        argv: The arguments.

    Returns:
        The values; those of a field that is a dataclass are a dictionary in turn.
    """
    names = {word.partition("=")[0].replace("_", "-")
             for word in _with_new_names(argv, args, quiet=True) if word.startswith("--")}
    found: dict[str, Any] = {}
    for flag, path in _flags(args):
        before, dot, last = flag.rpartition(".")
        if names & {f"--{flag}", f"--{before}{dot}no-{last}"}:
            part, value = found, args
            for name in path[:-1]:
                part, value = part.setdefault(name, {}), getattr(value, name)
            part[path[-1]] = getattr(value, path[-1])
    return found


def _with_new_names(argv: Sequence[str], args: Any, quiet: bool = False) -> list[str]:
    """The arguments with the flags of fields that were renamed; an old name is reported."""
    renames = {f"--{field.metadata['key']}": f"--{field.name}" for field in _fields(args)
               if "key" in field.metadata}
    words = [word.partition("=") for word in argv]
    for old in {flag for flag, _, _ in words} & renames.keys() if not quiet else ():
        tell(f"note: {old} is now {renames[old]}", sys.stderr)
    return [renames.get(flag, flag) + equals + value for flag, equals, value in words]


def _fields(args: Any) -> Iterator[dataclasses.Field[Any]]:
    """The fields of a dataclass, or of an instance of it, and those of its fields."""
    for field, nested, _ in _nested(args):
        yield field
        if dataclasses.is_dataclass(nested):
            yield from _fields(nested)


def _nested(args: Any) -> Iterator[tuple[dataclasses.Field[Any], Any, list[Any]]]:
    """Each field of a dataclass or of an instance of it, its type or value, and its marks."""
    hints = typing.get_type_hints(args if isinstance(args, type) else type(args),
                                  include_extras=True)
    for field in dataclasses.fields(args):
        hint, *marks = typing.get_args(hints[field.name]) or (hints[field.name],)
        yield field, hint if isinstance(args, type) else getattr(args, field.name), marks


def _as_shown(args: Any) -> None:
    """Lets the parser show fields of dataclasses as their metadata says.

    `flag` is another name of the flag, and `repeats` marks a flag whose values add up. What the
    fields are in Python stays the same: only the annotation that tyro reads is changed.
    """
    kind = args if isinstance(args, type) else type(args)
    for field, nested, _ in _nested(args):
        marks = [tyro.conf.arg(name=name)] if (name := field.metadata.get("flag")) else []
        marks += [tyro.conf.UseAppendAction] * ("repeats" in field.metadata)
        if marks and field.name in kind.__annotations__:
            hint = typing.get_type_hints(kind)[field.name]
            kind.__annotations__[field.name] = Annotated[hint, *marks]
        if dataclasses.is_dataclass(nested):
            _as_shown(nested)


def _flags(args: Any, prefix: str = "", path: tuple[str, ...] = ()
           ) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The flags of a dataclass, or of an instance of it, each with the path to its field."""
    for field, nested, marks in _nested(args):
        name = prefix + field.metadata.get("flag", field.name).replace("_", "-")
        if dataclasses.is_dataclass(nested):
            yield from _flags(nested, prefix if FLAT in marks else f"{name}.", (*path, field.name))
        elif tyro.conf.Suppress not in marks:
            yield name, (*path, field.name)
