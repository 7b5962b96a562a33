"""The base class of whoever knows of a ledger's lines from elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpgen_jax.accountant.ledger import Ledger
    from dpgen_jax.accountant.totals import Record


class Witness:
    """Knows nothing and refuses nothing; others override."""

    def accept(self, ledger: Ledger) -> None:
        """Checks a ledger before a line is appended to it.

        Args:
            ledger: Locked and verified.

        Raises:
            UserError: The ledger's file lacks lines that the witness knows of.
        """

    def record(self, ledger: Ledger) -> None:
        """Takes note of the ledger's last line before anything is sampled on it.

        What is noted is on disk when this returns.

        Args:
            ledger: Its last line allows a release.

        Raises:
            UserError: It cannot be noted; then nothing may be sampled.
        """

    def bought(self, terms: Record, epsilon: float) -> None:
        """Takes note of a purchase without a ledger, before anything is sampled for it.

        Args:
            terms: Unit, relation and delta of its promise, as the header of a ledger has them.
            epsilon: Its cost.

        Raises:
            UserError: It cannot be noted; then nothing may be sampled.
        """

    def close(self) -> None:
        """Called once, when the ledger is closed, also where `accept` was never called."""
