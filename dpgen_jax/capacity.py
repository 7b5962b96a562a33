"""What fits this machine: devices, chunks, and the precision of what teachers keep."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from dpgen_jax import methods, reading
from dpgen_jax.config import Runtime
from dpgen_jax.private import teachers
from dpgen_jax.types import Method, Spec, UserError

MEMORY_SHARE = 0.7
"""of the memory that the teachers may fill; the rest is for records, messages and the generator"""


def fitting(method: str, config: Any, spec: Spec, runtime: Runtime, say: Callable[[str], None]
            ) -> Runtime:
    """The runtime, with moments at half precision where the units would not fit otherwise."""
    built = methods.get(method).build(config, spec, runtime)
    units = built.mechanism.schedule.places or built.mechanism.n_units
    needed, there = teachers.unit_bytes(built) * units, memory()
    if runtime.moments != "float32" or needed < MEMORY_SHARE * there:
        return runtime
    say(f"note: the teachers would take {needed / 1e9:.0f} GB of {there / 1e9:.0f} GB memory; "
        "their moments are kept in bfloat16 (as with --moments bfloat16)")
    return dataclasses.replace(runtime, moments="bfloat16")


def memory() -> float:
    """Bytes of memory of all devices together, or of the machine."""
    held = [(device.memory_stats() or {}).get("bytes_limit", 0) for device in jax.devices()]
    return sum(held) or reading.machine_bytes()


def check_disk(root: Path, method: Method) -> None:
    """Before anything is spent. Errors: UserError where the disk of the run folder has no room for
    a checkpoint."""
    place = next(p for p in (root, *root.absolute().parents) if p.exists())
    needed = teachers.unit_bytes(method) * method.mechanism.n_units
    free = shutil.disk_usage(place).free
    if needed > free:
        raise UserError(f"a checkpoint of this run takes {needed / 1e9:.1f} GB, and the disk of "
                        f"{root} has {free / 1e9:.1f} GB free: free some space, or choose another "
                        "--out")


def choose_layout(method: Method, runtime: Runtime) -> teachers.Layout:
    """Devices and chunk: what Runtime says, or what was measured to be best."""
    mechanism = method.mechanism
    places = mechanism.schedule.places
    available = jax.devices()
    if runtime.devices > len(available):
        raise UserError(f"--devices {runtime.devices}: only {len(available)} are there")
    # A large network's products use all cores from one device; more devices gain nothing there,
    # and their threads then wait for each other in XLA's collectives. So do the products of all
    # records that were drawn, beside which the public half, done by every device, is large.
    large = (teachers.unit_bytes(method) > 2**20 or places is not None
             or mechanism.n_units == 1)
    alone = large and available[0].platform == "cpu"
    devices = tuple(available[:runtime.devices or (1 if alone else len(available))])
    on_cpu = devices[0].platform == "cpu"
    # A unit without a network of its own is one row of a product, of which many are taken at once.
    small = teachers.unit_bytes(method) < 2**10 and mechanism.unit == "record"
    best = min(256 if small else 1 if on_cpu else 64, mechanism.n_units)
    if places:  # of messages as long as a network, as many as a cache, or a device's memory, holds
        width = 4 * mechanism.shape[0] * mechanism.shape[1]
        best = max(1, min(best if on_cpu else 2048, (2**23 if on_cpu else 2**29) // width, places))
    chunk = runtime.chunk or best
    return teachers.Layout(places or mechanism.n_units, chunk, devices, runtime.parallel,
                           mechanism.schedule.groups, places is not None)
