"""What a ledger tells to others: the base class of whoever knows of its lines from elsewhere."""

from __future__ import annotations

from typing import Any


class Witness:
    """Knows nothing and refuses nothing; others override."""

    def accept(self, ledger: Any) -> None:
        """Called with a `Ledger`, locked and verified, before a line is appended to it. Errors:
        UserError where its file lacks what is known of it."""

    def record(self, ledger: Any) -> None:
        """Called after a line that something may be drawn on, before that is drawn; on disk when it
        returns. Errors: UserError; nothing may be drawn then."""

    def close(self) -> None:
        """Called once, when the ledger is closed, also where `accept` was never called."""
