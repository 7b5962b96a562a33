"""The two errors that a user can mend. Imports nothing, so that every part may import it."""

from __future__ import annotations


class UserError(ValueError):
    """Bad input: one line that names the thing and the mend. Commands exit with code 2."""

    exit_code = 2


class BudgetExceeded(UserError):
    """The budget allows no (further) step. Commands exit with code 3."""

    exit_code = 3
