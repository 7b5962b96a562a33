"""The words of a guarantee: who is protected, and which data sets are neighbours. No JAX in here.

Both are strings: in JSON files and in comparisons they are the words that they stand for.
"""

from __future__ import annotations

from enum import StrEnum


class Unit(StrEnum):
    """Who is protected: one record, or one client or subject with all its records."""

    RECORD = "record"
    CLIENT = "client"
    SUBJECT = "subject"


class Relation(StrEnum):
    """The relation that makes two data sets neighbours."""

    REPLACE_ONE = "replace-one"
    """The data of one unit are replaced by any others; the number of units is public."""
    ZERO_OUT = "zero-out"
    """The message of one unit is replaced by zeros."""
    ADD_REMOVE = "add-remove"
    """One of the two data sets has a unit that the other has not."""
