"""Planted faults: what each of them is, and the attacks that must catch it.

A fault is a context manager that replaces a part of the library by one with a mistake in it. An
attack knows nothing of faults: it looks at the library as it finds it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from planted import books, draws, folder, interference, mechanisms

Attack = Callable[[], str]
"""Returns in words what is wrong; empty where all is well."""
ATTACKS: dict[str, Attack] = {
    "law of the noise": mechanisms.noise,
    "mechanism audit": functools.partial(mechanisms.releases, mechanisms.votes),
    "sensitivity of votes": functools.partial(mechanisms.sensitivity, mechanisms.votes),
    "sensitivity of rows": functools.partial(mechanisms.sensitivity, mechanisms.rows),
    "sensitivity of long rows": functools.partial(mechanisms.sensitivity, mechanisms.long_rows),
    "sensitivity of gradients": functools.partial(mechanisms.sensitivity, mechanisms.gradient),
    "fresh noise": draws.fresh,
    "fresh noise on devices": draws.fresh_on_devices,
    "fresh noise of clients": draws.of_clients,
    "secret draws": draws.secret,
    "non-interference": interference.separation,
    "messages of units": interference.messages,
    "messages on devices": interference.messages_on_devices,
    "ledger by hand": books.hand_computed,
    "ledger in a crash": books.crash,
    "run audit": folder.audited,
}
TWO_DEVICES = {"fresh noise on devices", "messages on devices"}
"""attacks that need a second device"""


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault that can be planted.

    Attributes:
        name: A few words with dashes.
        what: What is wrong while it is planted, in one line.
        attacks: Names of the attacks, each of which must catch it.
        plant: Returns the context within which the library has it.
    """

    name: str
    what: str
    attacks: tuple[str, ...]
    plant: Callable[[], AbstractContextManager[Any]]


FAULTS: dict[str, Fault] = {}
"""all faults, by name; filled by `faults`"""


def fault(*attacks: str) -> Callable[[Callable[[], Iterator[None]]], Callable[[], object]]:
    """Registers a generator function as a fault: its name is the fault's, its docstring says what.

    Args:
        *attacks: Names of the attacks, each of which must catch it.
    """
    def register(plant: Callable[[], Iterator[None]]) -> Callable[[], object]:
        _register(plant, attacks, contextmanager(plant))
        return plant

    return register


def in_place_of(owner: Any, name: str, *attacks: str) -> Callable[[Callable], Callable]:
    """Registers a function as a fault that stands in place of a name of the library, as `fault`.

    Args:
        owner: The module or class.
        name: Of the attribute, which it must have.
        *attacks: Names of the attacks, each of which must catch it.
    """
    def register(function: Callable) -> Callable:
        _register(function, attacks, lambda: patch.object(owner, name, function))
        return function

    return register


def _register(named: Callable, attacks: tuple[str, ...], plant: Callable) -> None:
    name, what = named.__name__.replace("_", "-"), (named.__doc__ or "").strip()
    unknown = set(attacks) - ATTACKS.keys()
    if unknown or name in FAULTS or not what:
        raise ValueError(f"fault {name}: unknown attacks {unknown}, a name twice, or no words")
    FAULTS[name] = Fault(name, what, attacks, plant)
