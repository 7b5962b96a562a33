"""How a data set is read: its place and flags, with what was added to them."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Reading:
    """How a data set is read.

    Attributes:
        place: KIND or KIND:PLACE.
        words: The flags, with what was added to them.
        remarks: Lines on what was added.
        bought: What was bought, as `Dataset.bought` holds it.
    """

    place: str
    words: list[str]
    remarks: tuple[str, ...] = ()
    bought: tuple[dict[str, Any], ...] = ()
