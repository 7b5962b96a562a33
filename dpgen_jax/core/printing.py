"""How commands print a record: a dictionary of names and values, in words or as JSON."""

from __future__ import annotations

import json

from dpgen_jax.core.at_most import at_most
from dpgen_jax.core.config import to_json
from dpgen_jax.core.strict_json import Json

BOUNDS = ("epsilon", "delta", "epsilon_without_it", "spent", "own_cost_rdp",
          "may_be_too_low_with_probability", "independent", "laws of the entries")
"""Names of numbers that are upper bounds"""


def print_record(record: Json, as_json: bool) -> None:
    """Prints a record to stdout.

    Args:
        record: Names and values; a value may itself be a dictionary.
        as_json: Whether to print strict JSON, in which an infinite number is "inf".
    """
    if as_json:
        print(json.dumps(to_json(record), indent=1))
        return
    for name, value in record.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {_text(key, part)}" for key, part in value.items())
        print(f"{name.replace('_', ' ') + ':':14} {value}")


def _text(name: str, value: object) -> str:
    if isinstance(value, float):
        return at_most(value) if name in BOUNDS else f"{value:.6g}"
    return str(value)
