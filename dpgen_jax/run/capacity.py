"""The capacity of this machine: devices, chunks, and the precision of what teachers keep."""

from __future__ import annotations

import dataclasses
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import jax

from dpgen_jax import methods
from dpgen_jax.core import hosts, reading
from dpgen_jax.core.config import Runtime
from dpgen_jax.core.types import Method, Spec, UserError
from dpgen_jax.methods.shared.config import MethodConfig
from dpgen_jax.private import teachers

MEMORY_SHARE = 0.7
"""of the memory that the teachers may fill; the rest is for records, messages and the generator"""


def fitting(method: str, config: MethodConfig, spec: Spec, runtime: Runtime,
            log: Callable[[str], None]) -> Runtime:
    """Returns the runtime, with moments at half precision where the units would not fit otherwise.

    Args:
        method: The name of the method.
        config: Its complete configuration.
        spec: The schema of the records.
        runtime: What the user asked for.
        log: Prints a line of the run, where the moments are changed.
    """
    needed, available = state_bytes(methods.get(method).build(config, spec, runtime)), memory()
    if runtime.moments != "float32" or needed < MEMORY_SHARE * available:
        return runtime
    log(f"note: the teachers would take {needed / 1e9:.0f} GB of {available / 1e9:.0f} GB memory; "
        "their moments are kept in bfloat16 (as with --moments bfloat16)")
    return dataclasses.replace(runtime, moments="bfloat16")


def memory() -> float:
    """Returns the bytes of memory of all devices together, or of the machine, of all processes.

    Each is taken to have as much as this one.
    """
    limits = [(device.memory_stats() or {}).get("bytes_limit", 0) for device in jax.local_devices()]
    return (sum(limits) or reading.machine_bytes()) * hosts.count()


def state_bytes(method: Method) -> int:
    """Returns the bytes of the state of all units that are in memory at once.

    Args:
        method: The method, built.
    """
    mechanism = method.mechanism
    return teachers.unit_bytes(method) * (mechanism.schedule.batch_capacity or mechanism.n_units)


COPIES = 6
"""of a sum in a round: it and its chunk, three words of noise bits for each entry, and the noise"""


def sum_bytes(method: Method) -> int:
    """Returns the bytes that the sum of a round takes with its noise.

    Args:
        method: The method, built.
    """
    return COPIES * 4 * math.prod(method.mechanism.shape)


PUBLIC_COPIES = 3
"""of the public state: before a step, after it, and as a model"""


def public_bytes(method: Method) -> int:
    """Returns the bytes that the public state takes, by its shapes.

    Args:
        method: The method, built.
    """
    leaves = jax.tree.leaves(jax.eval_shape(method.init, jax.random.key(0)))
    return PUBLIC_COPIES * sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)


def check_memory(method: Method) -> None:
    """Refuses, before anything is spent, states and sums that are larger than the memory.

    Args:
        method: The method, built.

    Raises:
        UserError: Where the memory is too small; the system would end the run in its first steps.
    """
    needed, available = state_bytes(method), memory()
    if sum_bytes(method) > MEMORY_SHARE * available:
        raise UserError(f"a round's sum of {math.prod(method.mechanism.shape):,} integers takes "
                        f"{sum_bytes(method) / 1e9:.1f} GB with its noise, and the memory here is "
                        f"{available / 1e9:.1f} GB: choose smaller sizes of what is released, "
                        "fewer cells or dimensions for example")
    if public_bytes(method) > MEMORY_SHARE * available:
        raise UserError(f"the public state takes {public_bytes(method) / 1e9:.1f} GB, and the "
                        f"memory here is {available / 1e9:.1f} GB: choose smaller sizes of what is "
                        "released, or leave columns out")
    if needed > available:
        raise UserError(f"the state of {method.mechanism.n_units:,} units takes "
                        f"{needed / 1e9:.1f} GB, and the memory here is {available / 1e9:.1f} GB: "
                        "choose fewer units or smaller networks, or devices with more memory")


def check_disk(root: Path, method: Method) -> None:
    """Refuses, before anything is spent, a disk without room for a checkpoint.

    Args:
        root: The run folder, which need not exist yet.
        method: The method, built.

    Raises:
        UserError: Where the disk is too small.
    """
    existing = next(p for p in (root, *root.absolute().parents) if p.exists())
    needed = teachers.unit_bytes(method) * method.mechanism.n_units
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise UserError(f"a checkpoint of this run takes {needed / 1e9:.1f} GB, and the disk of "
                        f"{root} has {free / 1e9:.1f} GB free: free some space, or choose another "
                        "--out")


def choose_layout(method: Method, runtime: Runtime, rows: int = 1) -> teachers.Layout:
    """Chooses devices and chunk.

    Args:
        method: The method, built.
        runtime: What the user asked for; zeros are replaced by what was measured to be best.
        rows: The records of a unit that is small.

    Returns:
        How the units lie on the devices.

    Raises:
        UserError: Where more devices are asked for than there are.
    """
    mechanism = method.mechanism
    batch_capacity = mechanism.schedule.batch_capacity
    available = jax.local_devices()
    if runtime.devices > len(available):
        raise UserError(f"--devices {runtime.devices}: only {len(available)} are there")
    if runtime.parallel == "pmap" and hosts.count() > 1:
        raise UserError("--parallel pmap is for one process; leave it out")
    # A large network's products use all cores from one device; more devices gain nothing there,
    # and their threads then wait for each other in XLA's collectives. So do the products of all
    # records that were sampled, beside which the public half, done by every device, is large.
    large = (teachers.unit_bytes(method) > 2**20 or batch_capacity is not None
             or mechanism.n_units == 1 or method.decomposes)
    alone = large and available[0].platform == "cpu"
    if alone and method.decomposes and runtime.devices > 1:
        # The threads of the device that waits for the others' sums are those that it would need.
        raise UserError(f"--devices {runtime.devices}: this method decomposes matrices, for which "
                        "several devices of one CPU can wait for each other without end; leave "
                        "--devices out, and one has all cores")
    each = runtime.devices or (1 if alone else len(available))
    devices = tuple(device for process in range(hosts.count())
                    for device in [d for d in jax.devices() if d.process_index == process][:each])
    on_cpu = devices[0].platform == "cpu"
    # A unit without a network of its own is one row of a product, of which many are taken at once.
    small = teachers.unit_bytes(method) < 2**10 and mechanism.unit == "record"
    best = min(max(1, 256 // rows) if small else 1 if on_cpu else 64, mechanism.n_units)
    if batch_capacity:
        # Of messages as long as a network, as many as a cache, or a device's memory, holds.
        message_bytes = 4 * mechanism.shape[0] * mechanism.shape[1]
        cache_bytes = 2**23 if on_cpu else 2**29
        best = max(1, min(best if on_cpu else 2048, cache_bytes // message_bytes, batch_capacity))
    chunk = runtime.chunk or best
    return teachers.Layout(batch_capacity or mechanism.n_units, chunk, devices, runtime.parallel,
                           mechanism.schedule.n_cohorts, batch_capacity is not None)
