"""The base of every method's Config."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal, Self, get_args, get_origin, get_type_hints

from dpgen_jax.core.config import require_not_negative
from dpgen_jax.core.errors import option
from dpgen_jax.core.types import UserError


def _choices(config: type) -> dict[str, tuple[Any, ...]]:
    """The values of each field of a Config that is a choice among named ones."""
    return {name: get_args(hint) for name, hint in get_type_hints(config).items()
            if get_origin(hint) is Literal}


@dataclasses.dataclass(frozen=True)
class MethodConfig:
    """The base of every Config.

    A Config adds its fields, among them `sigma` (the noise; 0: none) and `steps` (releases), either
    of which may be None and is then found from the budget. It checks them in `__post_init__`, after
    those of its base. The class attributes below describe a method to other parts of the package;
    where that is a choice of the user, a Config has a field of the same name.

    Raises:
        UserError: for a field that is out of range.
    """

    if TYPE_CHECKING:  # fields of every Config, each of which places them among its own
        sigma: float | None
        steps: int | None

    units_are_records = False
    """whether each record is a unit; the Config then derives from `RecordUnits`"""
    units_are_clients = False
    """whether units are clients even where these add no noise; see `with_clients`"""
    federated = False
    """whether units are clients, who add the noise themselves"""
    accounting = "proven"
    """or as-published, for which no guarantee is known"""
    protects_subjects = False
    """whether all that a unit answers is a function of its own records, one or several, so that the
    promise may be for subjects; else `--unit` is refused"""
    fakes_of_all_classes = ""
    """name of the field that counts the fakes of a generator step, if the method needs some of
    every class; else empty"""

    def __post_init__(self) -> None:
        for name, choices in _choices(type(self)).items():
            if getattr(self, name) not in choices:
                raise UserError(f"{name} is {getattr(self, name)!r}; it must be one of "
                                f"{', '.join(map(str, choices))}")
        if self.sigma is not None:
            require_not_negative(sigma=self.sigma)
        if self.steps is not None and self.steps < 1:
            raise UserError(f"steps is {self.steps}; at least 1 is needed")

    @property
    def planned_steps(self) -> int:
        """The field `steps`, once it is known.

        Raises:
            ValueError: while it is None.
        """
        if self.steps is None:
            raise ValueError("steps is not known yet")
        return self.steps

    @property
    def protects_clients(self) -> bool:
        """Whether the promise is for all records of a client, and not for each."""
        return self.units_are_clients or self.federated

    @property
    def n_clients(self) -> int:
        """The number of clients, for a method whose units can be clients."""
        raise UserError("the units of this method are not clients")

    @property
    def client_records(self) -> int:
        """The most records of a client that count; a field of a Config whose units can be clients.

        Raises:
            UserError: for a method whose units cannot be clients.
        """
        raise UserError("the units of this method are not clients")

    def with_clients(self, clients: int) -> Self:
        """Returns the configuration for this number of clients.

        Raises:
            UserError: for a method whose units cannot be clients.
        """
        raise UserError("the units of this method are not clients")


@dataclasses.dataclass(frozen=True)
class RecordUnits(MethodConfig):
    """The base of a Config whose units are records."""

    records: int | None = None
    """number of records, which is public; that of the data set if left out"""

    units_are_records = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.records is not None and self.records < 1:
            raise UserError(f"records is {self.records}; at least 1 is needed")

    @property
    def n_records(self) -> int:
        """The field `records`, once it is known.

        Raises:
            UserError: while it is None.
        """
        if self.records is None:
            raise UserError(f"records is not set; pass {option('records', 'N')}, the public number "
                            "of records")
        return self.records
