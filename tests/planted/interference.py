"""Non-interference of the toy: one record changes one unit, and one message.

The public side hears of it through what is released alone. All is compared bit for bit.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dpgen_jax.core.types import Private
from dpgen_jax.private import interference
from dpgen_jax.run import loop
from planted import toy


def separation() -> str:
    """Follows two neighbouring runs on one transcript.

    Returns what differs beside what was released and the state of one unit.
    """
    method, where = toy.build(), toy.layout()
    planted = np.zeros((toy.STEPS, *toy.SHAPE), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        states, ledgers = zip(*(
            toy.train(Path(folder, name), method, data, where, planted=planted)
            for name, data in zip("ab", toy.neighbours(), strict=True)), strict=True)
    one, other = (dataclasses.replace(jax.device_get(state.public), seen=0) for state in states)
    if ledgers[0].steps_charged != ledgers[1].steps_charged:
        return (f"{ledgers[0].steps_charged} rounds were made with one record, and "
                f"{ledgers[1].steps_charged} with the other")
    if not interference.same(one, other):
        return "the public state differs beside what was released"
    before, after = (state.units for state in states)
    assert before is not None and after is not None
    moved = interference.differing(before, after, toy.UNITS)
    return "" if moved == {toy.owner()} else (
        f"units {sorted(moved)} moved, and unit {toy.owner()} has the record")


def messages(devices: int = 1, chunk: int = 2) -> str:
    """Looks at what each unit adds to the sum, counted alone, on two neighbouring data sets.

    Returns what is wrong where another unit's message moves, one is longer than the bound says, or
    together they are not the sum.
    """
    method, where = toy.build(), toy.layout(chunk, devices)
    compiled = loop.compile_block(method, where)
    bits = np.zeros((toy.STEPS, *toy.SHAPE, 3), np.uint32)
    pair = [toy.placed(data, where) for data in toy.neighbours()]

    def total(records: Private[Any], only: int | None) -> np.ndarray:
        state = toy.start(where)
        if state.units is not None and only is not None:
            alone = interference.alone(state.units, only, where)
            state = dataclasses.replace(state, units=alone)
        public = toy.call(compiled, state, records, where, bits, 1)[0]
        return np.asarray(public.seen[0], np.int64)

    added = np.array([[total(records, unit) for unit in range(toy.UNITS)]
                     for records in pair])
    moved = set(np.flatnonzero((added[0] != added[1]).any((1, 2))).tolist())
    bound = method.mechanism.bound
    if moved != {toy.owner()}:
        return f"the messages of units {sorted(moved)} moved, and one unit has the record"
    longest = int((added**2).sum((2, 3)).max())
    if longest > bound.squared_norm:
        return f"a unit adds a squared norm of {longest}; its bound is {bound.squared_norm}"
    silent = np.flatnonzero(~added[0].any((1, 2)))
    if len(silent):
        return f"units {silent.tolist()} are never counted"
    together = total(pair[0], None)
    return "" if np.array_equal(together, added[0].sum(0)) else (
        "the sum over all units is not the sum of their messages")


def messages_on_devices() -> str:
    """Returns what `messages` finds on two devices, a unit at a time."""
    return messages(devices=2, chunk=1)
