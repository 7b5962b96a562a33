"""The two errors that a user can mend, and how a command prints one. Imports nothing, so that every
part may import it."""

from __future__ import annotations


class UserError(ValueError):
    """Bad input: one line that names the thing and the mend. Commands exit with code 2."""

    exit_code = 2


def one_line(error: BaseException, longest: int = 1000) -> str:
    """What a command prints of an error: one line, whatever names and cells it quotes. The middle
    of a long one is left out, since the mend stands at the end."""
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(error))
    half = longest // 2
    return text if len(text) <= longest else f"{text[:half]} ... {text[-half:]}"


class BudgetExceeded(UserError):
    """The budget allows no (further) step. Commands exit with code 3."""

    exit_code = 3
