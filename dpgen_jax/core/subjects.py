"""Subjects: people, households or others who each have rows of their own in a table."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Subjects:
    """Who has which row of a table.

    Public are the column, the limit and the number of subjects of the training part; all else is as
    private as the records, and so is the number of rows.

    Attributes:
        column: The name of the column whose values are the subjects.
        rows: k, the most rows of a subject that are kept, chosen without looking at the records.
        ids: uint8 [U, 16], a hash of the name of each subject of the training part.
        train: int32 [n], the subject 0..U-1 of each training row.
        test: int32 [n'], the subject of each held-out row, 0..U'-1 of others; None without a
            held-out part.
    """

    column: str
    rows: int
    ids: np.ndarray
    train: np.ndarray
    test: np.ndarray | None = None

    @property
    def count(self) -> int:
        """U, the public number of subjects of the training part."""
        return len(self.ids)
