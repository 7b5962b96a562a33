"""The capacity of this machine: devices, chunks, and the precision of what teachers keep."""

from __future__ import annotations

import dataclasses
import math
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import jax

from dpgen_jax import methods
from dpgen_jax.core import hosts, reading
from dpgen_jax.core.config import Moments, Runtime
from dpgen_jax.core.types import Method, Records, Spec, UserError, no_state
from dpgen_jax.methods.shared.config import MethodConfig
from dpgen_jax.private import teachers
from dpgen_jax.run import working_memory

MEMORY_SHARE = 0.7
"""of the memory that the teachers may fill; the rest is for records, messages and the generator"""
UNITS_PER_DEVICE = 100
"""Units with large networks of a round for each device of a CPU. On two cores 250 published
DataLens teachers took as long on two devices as on one, and 4,000 a quarter less
(benchmarks/results/steps.json)."""


def fitting(method: str, config: MethodConfig, spec: Spec, runtime: Runtime,
            log: Callable[[str], None], moments: Moments | None = None) -> Runtime:
    """Returns the runtime, with moments at half precision where the units would not fit otherwise.

    A place for the state of units is left out where units have none.

    Args:
        method: The name of the method.
        config: Its complete configuration.
        spec: The schema of the records.
        runtime: What the user asked for.
        log: Prints a line of the run, where the runtime is changed.
        moments: The precision in which a run that goes on keeps them, whatever fits here.
    """
    built = methods.get(method).build(config, spec, runtime)
    if runtime.state != "device" and not keeps_state(built):
        log(f"note: the units of {method} keep nothing from step to step, so --state "
            f"{runtime.state} changes nothing")
        runtime = dataclasses.replace(runtime, state="device")
    if moments and runtime.moments == Runtime.moments:
        return dataclasses.replace(runtime, moments=moments)
    needed, available = state_bytes(built), room(runtime)
    if runtime.moments != "float32" or needed < MEMORY_SHARE * available:
        return runtime
    log(f"note: the teachers would take {needed / 1e9:.0f} GB of {available / 1e9:.0f} GB memory; "
        "their moments are kept in bfloat16 (as with --moments bfloat16); --state disk would keep "
        "them as they are")
    return dataclasses.replace(runtime, moments="bfloat16")


def keeps_state(method: Method) -> bool:
    """Returns whether units keep anything from one step to the next.

    Args:
        method: The method, built.
    """
    return method.init_unit is not no_state and method.mechanism.schedule.batch_capacity is None


def memory() -> float:
    """Returns the bytes of memory of all devices together, or of all machines, of all processes.

    Each is taken to have as much as this one.
    """
    limits = [(device.memory_stats() or {}).get("bytes_limit", 0) for device in jax.local_devices()]
    return sum(limits) * hosts.count() or host_memory()


def host_memory() -> float:
    """Returns the bytes of memory of all machines, each of which is taken to have as much."""
    return reading.machine_bytes() * hosts.machines()


def room(runtime: Runtime) -> float:
    """Returns the bytes of memory that the state of units may take, where that is bounded.

    Args:
        runtime: Where the state lies.
    """
    return {"device": memory, "host": reading.machine_bytes, "disk": lambda: math.inf}[
        runtime.state]()


SLAB_BYTES = 2**27
"""of the units that are on the devices at a time, where the state of all lies elsewhere"""
SLABS = 5
"""in memory at a time: read, on its way to the devices, computed, its new state, and written"""


def slab(method: Method, at_once: int) -> int:
    """Returns the units that are on the devices at a time, where the state of all lies elsewhere.

    Slabs are of about one size, so that few places are left empty in the last one.

    Args:
        method: The method, built.
        at_once: Units that all devices compute at once, of which it is a multiple.
    """
    rows = -(-method.mechanism.n_units // (method.mechanism.schedule.n_cohorts * at_once))
    most = max(1, SLAB_BYTES // (teachers.unit_bytes(method) * at_once))
    return -(-rows // -(-rows // most)) * at_once


def state_bytes(method: Method) -> int:
    """Returns the bytes of the state of all units that are in memory at once.

    Args:
        method: The method, built.
    """
    mechanism = method.mechanism
    return teachers.unit_bytes(method) * (mechanism.schedule.batch_capacity or mechanism.n_units)


def copy_fits(method: Method) -> bool:
    """Returns whether the machines' memory has room for a copy of the state of all units.

    From it checkpoints are written while the training goes on. Devices that are no CPU have memory
    of their own.

    Args:
        method: The method, built.
    """
    on_hosts = 2 if jax.devices()[0].platform == "cpu" else 1
    return on_hosts * state_bytes(method) < MEMORY_SHARE * host_memory()


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


def check_memory(method: Method, runtime: Runtime = Runtime()) -> None:
    """Refuses, before anything is spent, states and sums that are larger than the memory.

    Args:
        method: The method, built.
        runtime: Where the state lies.

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
    available = room(runtime)
    if needed > available:
        mend = "--state disk, or " * keeps_state(method)
        raise UserError(f"the state of {method.mechanism.n_units:,} units takes "
                        f"{needed / 1e9:.1f} GB, and the memory here is {available / 1e9:.1f} GB: "
                        f"choose {mend}fewer units or smaller networks, or devices with more "
                        "memory")


def disk(root: Path) -> int:
    """Returns the bytes that are free on a disk.

    Args:
        root: A folder on it, which need not exist yet.
    """
    existing = next(p for p in (root, *root.absolute().parents) if p.exists())
    return shutil.disk_usage(existing).free


def check_disk(root: Path, method: Method, runtime: Runtime = Runtime()) -> None:
    """Refuses, before anything is spent, a disk without room for a checkpoint and the state on it.

    Args:
        root: The run folder, which need not exist yet.
        method: The method, built.
        runtime: Where the state lies.

    Raises:
        UserError: Where the disk is too small.
    """
    needed, free = teachers.unit_bytes(method) * method.mechanism.n_units, disk(root)
    what = "a checkpoint of this run takes"
    if runtime.state == "disk":
        needed, what = 2 * needed, "the state of this run and one checkpoint take"
    if needed > free:
        raise UserError(f"{what} {needed / 1e9:.1f} GB, and the disk of {root} has "
                        f"{free / 1e9:.1f} GB free: free some space, or choose another --out")


def _devices_by_default(method: Method, available: Sequence[jax.Device]) -> int:
    """Returns how many devices of each process compute where the user names no number.

    A large network's products take all cores of a CPU from one device, but two devices take them
    better: each has a unit. For few units the public half, which every device computes, is too
    large beside them, as it is beside the products of all records that were sampled.
    """
    mechanism = method.mechanism
    if available[0].platform != "cpu":
        return len(available)
    if method.decomposes or mechanism.schedule.batch_capacity is not None:
        return 1
    if teachers.unit_bytes(method) <= 2**20 and mechanism.n_units > 1:
        return len(available)
    a_round = mechanism.n_units // mechanism.schedule.n_cohorts
    return min(max(1, a_round // (UNITS_PER_DEVICE * hosts.count())), len(available))


def choose_layout(method: Method, runtime: Runtime, rows: int = 1, files: Path = Path(),
                  records: Records | None = None) -> teachers.Layout:
    """Chooses devices and chunk.

    Args:
        method: The method, built.
        runtime: What the user asked for; zeros are replaced by what was measured to be best.
        rows: The records of a unit that is small.
        files: The folder of the state that lies on the disk.
        records: Shapes of the records of one unit, by which an accelerator takes as many units at
            once as its memory has room for; None where they are not known.

    Returns:
        How the units lie on the devices.

    Raises:
        UserError: Where more devices are asked for than there are, or what cannot be together.
    """
    mechanism = method.mechanism
    batch_capacity = mechanism.schedule.batch_capacity
    available = jax.local_devices()
    if runtime.devices > len(available):
        raise UserError(f"--devices {runtime.devices}: only {len(available)} are there")
    if runtime.parallel == "pmap" and hosts.count() > 1:
        raise UserError("--parallel pmap is for one process; leave it out")
    if runtime.state != "device" and hosts.count() > 1:
        raise UserError(f"--state {runtime.state} is for one process; leave it out, or start one")
    if method.decomposes and runtime.devices > 1 and available[0].platform == "cpu":
        # The threads of the device that waits for the others' sums are those that it would need.
        raise UserError(f"--devices {runtime.devices}: this method decomposes matrices, for which "
                        "several devices of one CPU can wait for each other without end; leave "
                        "--devices out, and one has all cores")
    fewest = min(Counter(device.process_index for device in jax.devices()).values())
    each = runtime.devices or _devices_by_default(method, available[:fewest])
    devices = tuple(device for process in range(hosts.count())
                    for device in [d for d in jax.devices() if d.process_index == process][:each])
    on_cpu = devices[0].platform == "cpu"
    # A unit without a network of its own is one row of a product, of which many are taken at once.
    small = teachers.unit_bytes(method) < 2**10 and mechanism.unit == "record"
    best = min(max(1, method.at_once // rows) if small else 1, mechanism.n_units)
    pretrained = 0
    if not (small or on_cpu or batch_capacity):
        each_device = -(-mechanism.n_units // len(devices))
        each_round = -(-mechanism.n_units // (mechanism.schedule.n_cohorts * len(devices)))
        limit = (available[0].memory_stats() or {}).get("bytes_limit") or host_memory()
        best = working_memory.at_once(method, records, limit, each_round)
        pretrained = working_memory.pretrained_at_once(method, records, limit, each_device)
    if batch_capacity:
        # Of messages as long as a network, as many as a cache, or a device's memory, holds.
        message_bytes = 4 * mechanism.shape[0] * mechanism.shape[1]
        cache_bytes = 2**23 if on_cpu else 2**29
        best = max(1, min(best if on_cpu else 2048, cache_bytes // message_bytes, batch_capacity))
    chunk = runtime.chunk or best
    layout = teachers.Layout(batch_capacity or mechanism.n_units, chunk, devices, runtime.parallel,
                             mechanism.schedule.n_cohorts, batch_capacity is not None,
                             pretrained=0 if runtime.chunk else pretrained)
    if runtime.state == "device":
        return layout
    return dataclasses.replace(layout, slab=slab(method, chunk * len(devices)),
                               files=files if runtime.state == "disk" else None)
