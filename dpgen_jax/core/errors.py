"""The two errors that a user can correct, and their wording on the command line and in Python.

It imports nothing from the package, so every part may import it.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

MAX_COMPARED = 1000
"""The most known names with which an unknown one is compared."""
LIKE = 0.65
"""The smallest share of common letters that makes two names similar."""
MAX_LISTED = 20
"""The most names that a message lists."""


class UserError(ValueError):
    """Bad input: one line that names the thing and the remedy. Commands exit with code 2."""

    exit_code = 2


class BudgetExceeded(UserError):
    """The budget allows no (further) step. Commands exit with code 3."""

    exit_code = 3


INCOMPLETE = 4
"""The exit code of a command that wrote a release but failed in something else."""


def one_line(error: BaseException, longest: int = 1000) -> str:
    """Returns an error as one line for the terminal, whatever names and cells it quotes.

    The middle of a long one is left out, since the remedy comes last.

    Args:
        longest: The most letters of the line.
    """
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(error))
    half = longest // 2
    return text if len(text) <= longest else f"{text[:half]} ... {text[-half:]}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns ", did you mean 'X'?" for an unknown name similar to a known one, else "".

    Args:
        name: The unknown name; one of more than 100 letters is similar to none.
        known: The known names, of which the first `MAX_COMPARED` are compared.
    """
    candidates = itertools.islice(known, MAX_COMPARED) if len(name) <= 100 else ()
    close = difflib.get_close_matches(name, list(candidates), n=1, cutoff=LIKE)
    return f", did you mean {close[0]!r}?" if close else ""


def listed(names: Iterable[str]) -> str:
    """Returns the names with commas between them; if many, the first and the number of the others.

    Args:
        names: Any texts.
    """
    printable = [name if name.isprintable() else repr(name) for name in names]
    more = f" and {len(printable) - MAX_LISTED:,} more" if len(printable) > MAX_LISTED else ""
    return ", ".join(printable[:MAX_LISTED]) + more


def quoted(text: str) -> str:
    """Returns a text, or the beginning of a long one, in quotes, with control characters escaped.

    Args:
        text: Any text.
    """
    return repr(text) if len(text) <= 100 else f"{text[:100]!r}... ({len(text):,} letters)"


P = ParamSpec("P")
R = TypeVar("R")
_on_command_line = False


def option(name: str, value: object = None) -> str:
    """Returns an option as the user writes it: `--image-size 28`, or `image_size=28` in Python.

    Messages name options only by this function, so each front end has its own wording.

    Args:
        name: The name of the field, as in Python.
        value: The value to write with it; True for a switch.
    """
    if _on_command_line:
        flag = f"--{name.replace('_', '-')}"
        return flag if value is None or value is True else f"{flag} {value}"
    return name if value is None else f"{name}={value}"


@contextmanager
def worded(on_command_line: bool) -> Iterator[None]:
    """Sets the wording of messages: for the command line, or for Python (the default)."""
    global _on_command_line
    before, _on_command_line = _on_command_line, on_command_line
    try:
        yield
    finally:
        _on_command_line = before


def on_command_line() -> bool:
    """Returns whether messages are worded for the command line."""
    return _on_command_line


@functools.cache
def speaking_python(function: Callable[P, R], name: str) -> Callable[P, R]:
    """Returns the function of a command, with errors that name arguments instead of flags.

    Args:
        function: The function. Unknown arguments are a UserError too.
        name: The name by which users call it.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        _require_bound(signature, name, args, kwargs)
        with worded(on_command_line=False):
            return function(*args, **kwargs)

    return inner


def _require_bound(signature: inspect.Signature, name: str, args: tuple[object, ...],
                   kwargs: dict[str, object]) -> None:
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
