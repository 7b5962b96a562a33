"""The two errors that a user can mend, and their wording on the command line and in Python.

It imports nothing of the package, so that every part may import it.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

MAX_COMPARED = 1000
"""Most known names that an unknown one is compared with."""
LIKE = 0.65
"""The least share of letters in common that makes two names similar."""
MAX_LISTED = 20
"""The limit of names that a message lists."""


class UserError(ValueError):
    """Bad input: one line that names the thing and the mend. Commands exit with code 2."""

    exit_code = 2


class BudgetExceeded(UserError):
    """The budget allows no (further) step. Commands exit with code 3."""

    exit_code = 3


def one_line(error: BaseException, longest: int = 1000) -> str:
    """Returns an error as a command prints it: one line, whatever names and cells it quotes.

    The middle of a long one is left out, since the mend comes last.

    Args:
        error: The error.
        longest: How many letters are kept at most.
    """
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(error))
    half = longest // 2
    return text if len(text) <= longest else f"{text[:half]} ... {text[-half:]}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns ", did you mean 'X'?" for an unknown name that is like a known one, else nothing.

    Args:
        name: The unknown name; one of more than 100 letters is like no other.
        known: The known names, of which the first `MAX_COMPARED` are looked at.
    """
    candidates = itertools.islice(known, MAX_COMPARED) if len(name) <= 100 else ()
    close = difflib.get_close_matches(name, list(candidates), n=1, cutoff=LIKE)
    return f", did you mean {close[0]!r}?" if close else ""


def listed(names: Iterable[str]) -> str:
    """Returns the names with commas between them; of many the first, and the number of the others.

    Args:
        names: Any texts.
    """
    printable = [name if name.isprintable() else repr(name) for name in names]
    more = f" and {len(printable) - MAX_LISTED:,} more" if len(printable) > MAX_LISTED else ""
    return ", ".join(printable[:MAX_LISTED]) + more


def quoted(text: str) -> str:
    """Returns a text in quotes, with control characters escaped; of a long one the beginning.

    Args:
        text: Any text.
    """
    return repr(text) if len(text) <= 100 else f"{text[:100]!r}... ({len(text):,} letters)"


P = ParamSpec("P")
R = TypeVar("R")
SWITCHES = ("--accept-uncovered", "--resume", "--skip-bad", "--download")
"""Flags of commands that take no value."""

FLAG = r"(?<![\w-])--([a-z][\w.-]*\w)(?:[ =](\d[\d.e+-]*\d|\d|[A-Z][A-Z,]*\b))?"
"""A flag in a message, and its value, where that is a number or a word such as FILE."""
COMMAND = r"python -m dpgen_jax\.\w+[^;)]*"
"""A command that is to be typed, which keeps its flags."""


def in_python_words(text: str) -> str:
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
def spoken_in_python() -> Iterator[None]:
    """Rewrites the errors raised within: they name arguments instead of the flags of commands."""
    try:
        yield
    except UserError as error:
        error.args = (in_python_words(str(error)),)
        raise


@functools.cache
def speaking_python(function: Callable[P, R], name: str) -> Callable[P, R]:
    """Returns the function of a command, with errors that name arguments instead of flags.

    Args:
        function: The function. Arguments that it does not take are a UserError, too.
        name: The name by which users call it.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        _require_bound(signature, name, args, kwargs)
        with spoken_in_python():
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
