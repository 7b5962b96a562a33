"""Lines and errors of commands in the words of Python, where flags are arguments."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from dpgen_jax.core.errors import UserError, nearest

P = ParamSpec("P")
R = TypeVar("R")
SWITCHES = ("--accept-uncovered", "--resume", "--skip-bad", "--download")
"""Flags of commands that take no value."""

FLAG = r"(?<![\w-])--([a-z][\w.-]*\w)(?:[ =](\d[\d.e+-]*\d|\d|[A-Z][A-Z,]*\b))?"
"""A flag in a message, and its value, where that is a number or a word such as FILE."""
COMMAND = r"python -m dpgen_jax\.\w+[^;)]*"
"""A command that is to be typed, which keeps its flags."""


def of(text: str) -> str:
    """Returns a line of a command in the words of Python.

    Args:
        text: The line, as "pass --total-epsilon 3".

    Returns:
        As "pass total_epsilon=3".
    """
    text = re.sub(r"(?:python -m dpgen_jax\.|dpgen )train --resume ('[^']+'|[^\s,;)]+)",
                  lambda match: f"fit(..., out={match[1].strip(chr(39))!r}, resume=True)", text)
    text = text.replace("train --resume", "fit(..., resume=True) and out=")

    def argument(match: re.Match[str]) -> str:
        name = match[1].replace("-", "_")
        if match[0] in SWITCHES:
            return f"{name}=True"
        return f"{name}={match[2]}" if match[2] else name

    typed = re.search(COMMAND, text)
    start, end = typed.span() if typed else (len(text), len(text))
    return re.sub(FLAG, argument, text[:start]) + text[start:end] + re.sub(
        FLAG, argument, text[end:])


@contextmanager
def spoken() -> Iterator[None]:
    """Has errors within speak of arguments, and not of the flags of commands."""
    try:
        yield
    except UserError as error:
        error.args = (of(str(error)),)
        raise


@functools.cache
def speaking(function: Callable[P, R], name: str) -> Callable[P, R]:
    """Returns a function of a command whose errors speak of arguments.

    Args:
        function: The function. Arguments that it does not take are a UserError, too.
        name: The name by which users call it.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        _require_bound(signature, name, args, kwargs)
        with spoken():
            return function(*args, **kwargs)

    return inner


def _require_bound(signature: inspect.Signature, name: str, args: tuple[object, ...],
                   kwargs: dict[str, object]) -> None:
    """Refuses a call that does not fit a signature."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        known = [one.name for one in signature.parameters.values()
                 if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
        unknown = next((key for key in kwargs if key not in known), None)
        if unknown is None or len(known) < len(signature.parameters):
            raise UserError(f"{name}: {error}; it takes {', '.join(known)}") from error
        raise UserError(f"{name} has no argument {unknown!r}{nearest(unknown, known)}; it takes "
                        f"{', '.join(known)}") from error
