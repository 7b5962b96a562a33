"""The memory that records take, counted before anything is spent; refused where there is less."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from dpgen_jax.core import hosts, picked, reading
from dpgen_jax.core.terms import Unit
from dpgen_jax.core.types import Method, Records, UserError
from dpgen_jax.data import Dataset
from dpgen_jax.private.layout import Layout
from dpgen_jax.run import capacity

LABEL_BYTES = 4


@dataclasses.dataclass(frozen=True)
class Footprint:
    """The bytes of records in one process.

    Attributes:
        read: As they were read, with those held out; records in mapped files take none.
        dealt: As they are dealt to the units of this process, in the host's memory.
        on_device: On each device that has memory of its own; 0 for CPUs, which take those that are
            dealt as they are.
    """

    read: int
    dealt: int
    on_device: int


def of_a_unit(data: Dataset, slots: int) -> Records:
    """Returns shapes of the records of one unit: x [m, ...], y [m].

    Args:
        data: The data set.
        slots: m, the places for records that a unit has.
    """
    x = data.x_train
    shapes = jax.ShapeDtypeStruct((slots, *x.shape[1:]), x.dtype), jax.ShapeDtypeStruct(
        (slots,), np.int32)
    return Records(*shapes)  # type: ignore[arg-type]  # what traces functions takes shapes too


def footprint(data: Dataset, slots: int, layout: Layout) -> Footprint:
    """Returns what the records of a run take.

    Args:
        data: The data set.
        slots: The places for records that all units have (`protection.slots`).
        layout: How units lie on devices.
    """
    record = data.x_train.nbytes // max(1, len(data.x_train)) + LABEL_BYTES
    present = [part for part in (data.x_train, data.x_test) if part is not None]
    read = sum(part.nbytes for part in present if picked.mapping(part) is None)
    whole = slots * record
    shares = 1 if layout.sampled else len(layout.devices)  # sampled records lie whole on each
    here = len(layout.local) if shares > 1 else 1
    apart = layout.devices[0].platform != "cpu" and not layout.slab
    return Footprint(read, whole * here // shares, whole // shares * apart)


def check(records: Footprint, method: Method, layout: Layout, unit: str) -> None:
    """Refuses, before anything is spent, records that do not fit beside what else is in memory.

    Args:
        records: What the records take.
        method: The method, built.
        layout: How units lie on devices.
        unit: Who is protected; of others than records the number of records is private.

    Raises:
        UserError: Where the memory is too small; the system would end the run where it deals them.
    """
    together = -(-hosts.count() // hosts.machines())  # processes of the fullest machine
    on_host = together * (records.read + records.dealt)
    state = capacity.state_bytes(method)
    if layout.slab:
        state = 0 if layout.files else state
    elif records.on_device:
        _check_devices(records.on_device, state // len(layout.devices), unit)
        state = 0
    state = state * together // hosts.count()
    available = reading.machine_bytes()
    if on_host + state > available:
        raise _too_large(
            unit, f"take {_size(records.read)} as read and {_size(records.dealt)} as dealt, "
            f"beside {_size(state)} for the state of units, and the memory here is "
            f"{_size(available)}", "take fewer records, or save them as a file of arrays that is "
            "mapped (npz: without compression), or use a machine with more memory")


def _check_devices(records: int, state: int, unit: str) -> None:
    """Refuses records and state beyond the memory of a device that has its own."""
    limit = min((device.memory_stats() or {}).get("bytes_limit", 0)
                for device in jax.local_devices())
    if limit and records + state > limit:
        raise _too_large(
            unit, f"take {_size(records)} on each device, beside {_size(state)} for the state of "
            f"units, and a device has {_size(limit)}",
            "take fewer records, more devices, or --state host")


def _too_large(unit: str, sizes: str, mend: str) -> UserError:
    """The refusal, without sizes where they would tell a number of records that is private."""
    what = sizes if unit == Unit.RECORD else "and the state of units do not fit into memory"
    return UserError(f"the records {what}: {mend}")


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB"
