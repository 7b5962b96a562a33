"""The two errors that a user can mend, and how they are worded.

It imports nothing of the package, so that every part may import it.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable

MAX_COMPARED = 1000
"""names with which an unknown one is compared"""
LIKE = 0.65
"""the least share of letters in common of names that are alike"""


class UserError(ValueError):
    """Bad input: one line that names the thing and the mend. Commands exit with code 2."""

    exit_code = 2


class BudgetExceeded(UserError):
    """The budget allows no (further) step. Commands exit with code 3."""

    exit_code = 3


def one_line(error: BaseException, longest: int = 1000) -> str:
    """Returns an error as a command prints it: one line, whatever names and cells it quotes.

    The middle of a long one is left out, since the mend stands at the end.

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
