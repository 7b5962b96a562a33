"""What every method's Config says of itself, and what is asked of its fields."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from dpgen_jax.types import UserError

RANGES = {"positive": (lambda value: value > 0, "must be above 0"),
          "not_negative": (lambda value: value >= 0, "must be 0 or above"),
          "shares": (lambda value: 0 <= value <= 1, "must lie between 0 and 1"),
          "decays": (lambda value: 0 <= value < 1, "must lie in 0 <= {name} < 1")}


@dataclasses.dataclass(frozen=True)
class MethodConfig:
    """The base of every Config, which adds the fields: `sigma` (noise; 0: none) and `steps`
    (releases) among them, either of which may be None and is then found from the budget.

    The first four name fields by what is asked of them. The rest is what others have to know of a
    method; where that is a choice, a Config has a field of this name. Errors: UserError.
    """

    positive: ClassVar[tuple[str, ...]] = ()
    """above 0"""
    not_negative: ClassVar[tuple[str, ...]] = ()
    """0 or above"""
    shares: ClassVar[tuple[str, ...]] = ()
    """from 0 to 1"""
    decays: ClassVar[tuple[str, ...]] = ()
    """from 0 to less than 1"""

    of_records: ClassVar[bool] = False
    """each record is a unit; the field `records` is their public number, None until it is known"""
    of_clients: ClassVar[bool] = False
    """units are clients, as many as the field `critics` says, also where they add no noise"""
    federated: ClassVar[bool] = False
    """units are clients, who add the noise themselves"""
    accounting: ClassVar[str] = "proven"
    """or as-published, for which no guarantee is known"""

    def __post_init__(self):
        for kind, (holds, wanted) in RANGES.items():
            for name in getattr(self, kind):
                value = getattr(self, name)
                if not holds(value):
                    raise UserError(f"{name} is {value}; it {wanted.format(name=name)}")
        if self.sigma is not None and not self.sigma >= 0:
            raise UserError(f"sigma is {self.sigma}; it must be 0 or above")
        if self.steps is not None and self.steps < 1:
            raise UserError(f"steps is {self.steps}; at least 1 is needed")
        if self.of_records and self.records is not None and self.records < 1:
            raise UserError(f"records is {self.records}; at least 1 is needed")

    @property
    def n_records(self) -> int:
        """The field `records`, once it is known."""
        if self.records is None:
            raise UserError("records is not set; pass --records N, the public number of records")
        return self.records

    @property
    def protects_clients(self) -> bool:
        """Whether the promise is for all records of a client, and not for each."""
        return self.of_clients or self.federated
