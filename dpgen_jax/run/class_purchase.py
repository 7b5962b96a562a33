"""The names of the classes of an image folder, bought under differential privacy.

Which class folders there are is a function of private records: one image in a folder of its own
tells neighbours apart. A folder whose classes nobody declared is therefore read by the names that
come out of a stable histogram; images of other folders become empty slots, and the run charges the
purchase.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from dpgen_jax.accountant import events
from dpgen_jax.aggregation import schema_queries
from dpgen_jax.aggregation.bits import OsBits
from dpgen_jax.core.at_most import at_most
from dpgen_jax.core.types import Private, UserError
from dpgen_jax.data import folders

SHARE = 0.1
"""The part of epsilon, and of delta, that the names cost."""


@dataclasses.dataclass(frozen=True)
class Names:
    """Bought names of classes.

    Attributes:
        names: The names, of which there may be none.
        line: What a terminal says of them.
    """

    names: tuple[str, ...]
    line: str

    def declared(self, place: Path) -> tuple[tuple[str, ...], dict[str, bytes]]:
        """Returns the flag that declares them, and the file that it names; nothing without names.

        Args:
            place: The path of that file, which is needed where a name holds a comma.
        """
        names = (*self.names, folders.OTHERS)
        if not self.names:
            return (), {}
        if not any("," in name for name in names):
            return (f"--class-names={','.join(names)}",), {}
        lines = "".join(f"{name}\n" for name in names)
        return (f"--class-names={place.absolute()}",), {place.name: lines.encode()}


def refuse_useless(n: int, epsilon: float, delta: float) -> None:
    """Refuses a purchase that so few images cannot pay off, by public numbers alone.

    Args:
        n: The number of all images.
        epsilon: The budget of the run.
        delta: Likewise.

    Raises:
        UserError: It names the mend.
    """
    least = schema_queries.least_count(SHARE * epsilon, SHARE * delta)
    if n < least:
        raise UserError(f"the names of the classes are not declared, and at epsilon {epsilon:g} "
                        f"only a class of some {least:,} images or more can be bought, of {n:,} in "
                        "all; declare them by --class-names A,B, which costs nothing (nothing was "
                        "spent)")


def cost(epsilon: float, delta: float) -> events.Events:
    """Returns what the names cost.

    Args:
        epsilon: The budget of the run, finite.
        delta: Likewise.
    """
    return ((schema_queries.categories_event(SHARE * epsilon, SHARE * delta), 1),)


def price_line(epsilon: float, delta: float) -> str:
    """Returns the line of a rehearsal on the purchase.

    Args:
        epsilon: The budget of the run, finite.
        delta: Likewise.
    """
    price = SHARE * epsilon, SHARE * delta
    least = schema_queries.least_count(*price)
    return (f"class names would be bought for epsilon {at_most(price[0])} at delta "
            f"{at_most(price[1])}, which "
            f"the training has less: those come out that some {least:,} images share; "
            "--class-names A,B costs nothing")


def buy(path: str, epsilon: float, delta: float) -> Names:
    """Draws the names of the classes of an image folder, whose `cost` is charged already.

    Args:
        path: The folder.
        epsilon: The budget of the run, finite.
        delta: Likewise.

    Guarantee:
        That of `schema_queries.categories`, at `SHARE` of epsilon and delta: unit, an image file
        with the folder it lies in; replace-one, the number of files is public. All else here is
        computed from the released names.

    Returns:
        The names that can be declared.
    """
    price = SHARE * epsilon, SHARE * delta
    found = schema_queries.categories(Private(folders.categories(path)), *price, OsBits())
    names = tuple(name for name in found if _can_be_declared(name))
    bought = f"class names, bought for epsilon {at_most(price[0])} at delta {at_most(price[1])}: "
    if not names:
        return Names((), f"{bought}no class has so many images that its name stands out of the "
                     "noise" + " and can be declared" * bool(found))
    return Names(names, (f"{bought}{', '.join(names)}; images of rarer classes are left out; "
                         "--class-names costs nothing"))


def _can_be_declared(name: str) -> bool:
    """Whether a name of a folder can be one of --class-names."""
    return name.isprintable() and name == name.strip() and name not in ("", folders.OTHERS)
