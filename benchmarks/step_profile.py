"""The time of a step on a CPU by kind of instruction: JAX's profiler over one call of a block.

XLA's profiler times each instruction of a compiled program. An instruction is sorted by what it
does, as the program's text says: that of a fusion by all that is fused in it.
"""

from __future__ import annotations

import collections
import gzip
import json
import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax

LAYOUT = frozenset({"concatenate", "copy", "transpose", "pad", "slice", "gather", "reverse"})
"""Instructions that only move values."""
_NESTED = frozenset({"while", "call", "conditional", "tuple", "get-tuple-element", "parameter"})
"""Instructions that contain others, or that take no time."""
_FREE = frozenset({"bitcast", "reshape", "broadcast", "constant", "iota", "parameter", "fusion",
                   "tuple"})
"""Opcodes that say nothing about the kind of a fusion."""
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%([\w.-]+) = (?:\([^=]*\)|\S+) ([a-z-]+)\(")
_CALLED = re.compile(r"(?:calls|to_apply)=%([\w.-]+)")


def kinds(program: str) -> dict[str, str]:
    """Sort the instructions of a compiled program.

    Args:
      program: Its text, of `compiled.as_text()`.

    Returns:
      By the instruction's name: "products" of matrices, "stack" where one unit's state is read from
      that of all or written to it, "layout" for copies and gathers, or "passes" over values, which
      are what is left.
    """
    inside: dict[str, set[str]] = collections.defaultdict(set)
    found: list[tuple[str, str, str | None]] = []
    computation = ""
    for line in program.splitlines():
        if line.startswith(("%", "ENTRY")):
            computation = line.split()[int(line.startswith("ENTRY"))].lstrip("%")
        elif match := _INSTRUCTION.match(line):
            name, opcode = match.groups()
            called = _CALLED.search(line) if opcode == "fusion" else None
            inside[computation].add(opcode)
            found.append((name, opcode, called.group(1) if called else None))
    return {name: _kind({opcode} | inside.get(called or "", set()))
            for name, opcode, called in found if opcode not in _NESTED}


def _kind(opcodes: Iterable[str]) -> str:
    """Return the kind of an instruction that has these opcodes in it."""
    opcodes = set(opcodes) - _FREE
    if opcodes & {"dot", "convolution"}:
        return "products"
    if opcodes & {"dynamic-slice", "dynamic-update-slice"}:
        return "stack"
    return "layout" if opcodes and opcodes <= LAYOUT else "passes"


def seconds_by_kind(step: Callable[[], Any], program: str, units: int) -> dict[str, float]:
    """Time the instructions of one step that are executed for each unit.

    Args:
      step: The call to profile, compiled before.
      program: The text of its program.
      units: How many units it queries: what is executed less often is of the public half. Of one
        unit the two cannot be told apart.

    Returns:
      Seconds by kind, see `kinds`; "public" is the half that all units share.
    """
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, create_perfetto_trace=True):
            jax.block_until_ready(step())
        trace, = Path(folder).rglob("perfetto_trace.json.gz")
        with gzip.open(trace) as file:
            events = json.load(file)["traceEvents"]
    spent, times = collections.Counter(), collections.Counter()
    for event in events:
        if event.get("ph") == "X":
            spent[event["name"]] += event["dur"] / 1e6
            times[event["name"]] += 1
    result = dict.fromkeys(("products", "stack", "layout", "passes", "public"), 0.0)
    for name, kind in kinds(program).items():
        result[kind if times[name] >= units else "public"] += spent[name]
    return result
