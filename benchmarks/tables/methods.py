"""The methods of this library that take tables, and the peers that they are compared with.

No setting is chosen on the tables of this benchmark. Ours run with the preset that a CSV file gets,
or where none is for tables with the one that is named here; peers with their defaults. What depends
on the table below depends on public numbers alone: its rows and the width of its encoding.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable

from dpgen_jax.core.errors import UserError, nearest
from dpgen_jax.data.base import Dataset

Flags = Callable[[Dataset], list[str]]
UNPAID = "the number of rows"
"""The fact that a method of this library takes for public, beside the schema."""


@dataclasses.dataclass(frozen=True)
class Peer:
    """A package that is installed into an environment of its own.

    Attributes:
      requirements: What pip installs.
      program: The file in `benchmarks/tables/peers` that runs it, without its ending.
      options: What the program is told beside the table and the budget.
      relation: The neighbouring relation that its epsilon is for.
      reads: What it reads of the rows and does not pay for, beside the schema it is given.
      note: What a reader should know of it.
      pip: pip's further arguments.
    """

    requirements: tuple[str, ...]
    program: str
    options: dict[str, str | int]
    relation: str
    reads: str
    note: str = ""
    pip: tuple[str, ...] = ()

    @property
    def environment(self) -> str:
        """The name of its environment's folder."""
        return self.requirements[0].replace("==", "-")


def _teachers(dataset: Dataset) -> list[str]:
    """Return as many teachers as rows where the preset has more."""
    return ["--teachers", str(min(400, len(dataset.y_train)))]


def _datalens(dataset: Dataset) -> list[str]:
    """Return G-PATE's numbers of teachers and steps; a vote for an eighth of the features."""
    return [*_teachers(dataset), "--preset", "glyphs", "--batch", "32", "--steps", "50", "--top-k",
            str(max(1, dataset.spec.shape[0] // 8)), "--class-epsilon", "0.01"]


def _dpsgd(dataset: Dataset) -> list[str]:
    """Return batches of half the rows where the preset has more."""
    rows = min(600, len(dataset.y_train) // 2)
    return ["--preset", "glyphs", "--batch", str(rows), "--class-epsilon", "0.01"]


OURS: dict[str, Flags] = {
    "marginals": lambda dataset: [],
    "gpate": _teachers,
    "pategan": _teachers,
    "datalens": _datalens,
    "dpmerf": lambda dataset: [],
    "dpgan": _dpsgd,
    "dpcgan": _dpsgd,
    "dpsinkhorn": lambda dataset: ["--teachers", str(min(200, len(dataset.y_train))),
                                   "--class-epsilon", "0.01"],
}
"""Name -> the flags of `dpgen_jax.train`, beside the data, the budget and the run folder; the
preset is `table` where no other is named."""


@dataclasses.dataclass(frozen=True)
class Method:
    """A row of the comparison.

    Attributes:
      name: A name of `OURS`, with further flags behind it, or of `PEERS`; "real" for real rows.
      peer: The peer, or None.
      flags: Flags of `dpgen_jax.train` for a table; None for a peer and for real rows.
    """

    name: str
    peer: Peer | None = None
    flags: Flags | None = None

    @property
    def slug(self) -> str:
        """The name as a part of a file's name."""
        return "-".join(self.name.replace("=", " ").replace("--", "").split())


def find(text: str) -> Method:
    """Find a method.

    Args:
      text: "real", a name of `PEERS`, or one of `OURS`, with flags behind it if they are wanted:
        "marginals --model=tree".

    Returns:
      The method.

    Raises:
      UserError: There is none of this name.
    """
    from benchmarks.tables.peer_list import PEERS

    name, *further = shlex.split(text)
    if name == "real" and not further:
        return Method("real")
    if name in PEERS and not further:
        return Method(name, peer=PEERS[name])
    if name in OURS:
        ours = OURS[name]
        return Method(" ".join([name, *further]), flags=lambda dataset: [*ours(dataset), *further])
    known = ("real", *OURS, *PEERS)
    raise UserError(f"unknown method {text!r}{nearest(name, known)}; known: {', '.join(known)}")
