"""The readers that the child calls: each is a function of a case's folder and its options.

It returns what a check of the outcome needs, as plain JSON. Each imports what it needs and no more.
"""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

MACHINE = 5e7
"""bytes that the readers of data sets are told the machine has: two million good rows of a few
columns fit, which take a slow processor ten seconds"""

Read = Callable[..., Any]


def get(name: str) -> Read:
    """The reader of this name, its imports done. For the child alone: what a module's `prepare`
    changes of the package stays changed.
    """
    home, function = HOMES[name]
    module = importlib.import_module(f"benchmarks.fuzzing.{home}")
    if prepare := getattr(module, "prepare", None):
        prepare()
    return getattr(module, function)


HOMES = {
    "idx": ("read_data", "data_set"), "npz": ("read_data", "data_set"),
    "csv": ("read_data", "data_set"), "folder": ("read_data", "data_set"),
    "schema": ("read_data", "schema"),
    "ledger": ("read_ledger", "ledger"), "run": ("read_runs", "run"),
    "release": ("read_runs", "release"), "account": ("read_runs", "account"),
    "message": ("read_messages", "message"), "reply": ("read_messages", "reply"),
    "terms": ("read_messages", "terms"), "planted": ("planted", "planted"),
}


def shapes(arrays: dict[str, Any]) -> dict[str, str]:
    """Return the type and shape of each array, as text."""
    return {name: f"{array.dtype}{list(array.shape)}" for name, array in arrays.items()
            if array is not None}


def inside(root: Path, spec: str) -> str:
    """The spec KIND:NAME with the case's folder put before the name."""
    kind, _, name = spec.partition(":")
    return f"{kind}:{root / name}"
