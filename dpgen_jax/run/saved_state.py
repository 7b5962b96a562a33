"""The state of a run in its checkpoints: written by the processes that have it, read by any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.core.types import Method, Private
from dpgen_jax.private import packing, teachers
from dpgen_jax.private.layout import put
from dpgen_jax.run import capacity, checkpoint
from dpgen_jax.run.folder import RunFolder
from dpgen_jax.run.rounds import State


def begin(files: RunFolder, state: State, method: Method, layout: teachers.Layout,
          ledger: Ledger, keep: int) -> checkpoint.Saving:
    """Begins a checkpoint that names the ledger line at which it is taken.

    It is written beside the training where the memory has room for a copy of the state, and the
    state itself lies on the devices.

    Args:
        files: The run folder.
        state: A state whose units are there; it may change once this has returned.
        method: The method, built.
        layout: How the units lie on the devices.
        ledger: The run's open ledger.
        keep: How many checkpoints are kept.

    Raises:
        UserError: Where it cannot be written.
    """
    if state.units is None:
        raise ValueError("the units of this state are gone")
    units = state.units
    size = packing.block_size(method)

    def parts() -> Iterator[tuple[str, Any]]:
        # Copies: on CPU an array of the host may be the very memory that a step updates in place.
        yield "public", jax.tree.map(np.array, {
            "public": jax.device_get(state.public), "key": jax.random.key_data(state.key)})
        yield from unit_parts(units, layout, size)

    return checkpoint.begin(
        files.checkpoints, state.step, parts(), keep=keep,
        beside=not layout.slab and capacity.copy_fits(method),
        note={"ledger_head": ledger.head, "ledger_lines": ledger.n_lines, "block_size": size})


def unit_parts(units: Private[teachers.Units], layout: teachers.Layout, size: int
               ) -> Iterator[tuple[str, Private[teachers.Units]]]:
    """Yields the parts of a checkpoint that this process writes of its units.

    Args:
        units: Sealed units on their devices.
        layout: How they lie there.
        size: Units of one block.

    Yields:
        The name of a part, and the block.
    """
    for block in packing.blocks(units, layout, size):
        first = packing.first_unit(block)
        yield f"units-{first // size:05d}" + f"-{first:07d}" * bool(first % size), block


def _unit_blocks(names: Iterable[str], n_units: int, size: int) -> list[tuple[str, int, int]]:
    """Returns (name, first unit, count) of all parts that hold units, which leave none out.

    A block begins at a multiple of `size`, by which it is numbered, or where a process's units do,
    of which the first one stands behind the number; it ends where the next one begins.
    """
    firsts = {}
    for name in (name for name in names if name.startswith("units-")):
        number, *first = (int(part) for part in name.split("-")[1:])
        firsts[first[0] if first else number * size] = name
    starts = sorted(firsts | {0: firsts.get(0, "units-00000")})
    return [(firsts.get(first, "units-00000"), first, last - first)
            for first, last in zip(starts, [*starts[1:], n_units], strict=True)]


def restore(folder: Path, method: Method, layout: teachers.Layout, step: int) -> State:
    """Restores the state at checkpoint `step`, laid out for these devices.

    Args:
        folder: The folder of the checkpoints.
        method: The method, built.
        layout: How the units lie on the devices.
        step: The checkpoint.

    Raises:
        UserError: For a damaged checkpoint.
    """
    size = checkpoint.note(folder, step, "block_size")["block_size"]
    key = jax.random.key(0)
    shapes = jax.eval_shape(lambda: {"public": method.init(key), "key": jax.random.key_data(key)})
    public = checkpoint.restore(folder, step, "public", jax.tree.map(
        lambda a: np.empty(a.shape, a.dtype), shapes))
    start, stop = layout.local_units

    def parts() -> Iterator[Private[teachers.Units]]:
        names = checkpoint.part_names(folder, step)
        for name, first, count in _unit_blocks(names, layout.n_units, size):
            if first < stop and first + count > start:
                yield checkpoint.restore(folder, step, name, packing.like(method, count))

    return State(jax.tree.map(lambda a: put(np.asarray(a), layout.replicated),
                              public["public"]),
                 packing.assemble(parts(), method, layout),
                 jax.random.wrap_key_data(public["key"]), step)
