"""The capacity of this machine: devices, chunks, precision, and the memory of units and records."""

from __future__ import annotations

import dataclasses
import functools
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax import methods
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.core import arrays, files, hosts
from dpgen_jax.core.config import Compute, Moments, Runtime
from dpgen_jax.core.errors import option
from dpgen_jax.core.terms import Unit
from dpgen_jax.core.types import Method, Records, Spec, UserError, no_state
from dpgen_jax.data import Dataset
from dpgen_jax.methods.shared.config import MethodConfig
from dpgen_jax.private import pretraining, teachers
from dpgen_jax.private.teachers import Layout

ALGORITHMS: dict[Compute, str | None] = {"float32": None, "bfloat16": "BF16_BF16_F32"}
"""An accelerator's way to multiply matrices: bfloat16 factors, float32 sums; None: JAX's own."""


def units_in_precision(method: Method, compute: Compute) -> Method:
    """Returns a method whose units learn and answer in a precision, in all of its phases.

    The bound, the votes, their sum and the public side stay as they are, and so does what a round
    costs: a message is bounded whatever its values are.
    """
    algorithm = ALGORITHMS[compute]
    if algorithm is None:
        return method

    def within(function: Callable) -> Callable:
        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            with jax.default_matmul_precision(algorithm):
                return function(*arguments)

        return call

    return dataclasses.replace(
        method, learn=within(method.learn), answer=within(method.answer),
        phases=tuple(units_in_precision(phase, compute) for phase in method.phases))


MOST_AT_ONCE = 256
"""Units that an accelerator queries at once, at most. On an H100 the published steps of DataLens
and G-PATE took less time in chunks of 250 than of 64; more were not tried."""
SOME = 64
"""Units that an accelerator queries at once, where the shapes of their records are not known."""
WORKING_SHARE = 1 / 8
"""The share of a device's memory that units computed at once may take in addition to their
state."""


def units_at_once(method: Method, records: Records | None, memory: float, rows: int) -> int:
    """Returns how many units one accelerator queries at once."""
    return _fit(unit_bytes, method, records, memory, rows)


def pretrained_at_once(method: Method, records: Records | None, memory: float, rows: int) -> int:
    """Returns how many units one accelerator pretrains at once.

    They are not those of a query: where few answer in a round, all still have their pretraining,
    and a unit that has a generator of its own meanwhile takes more memory than one that is queried.

    Returns:
        The number; 0 for a method without pretraining.
    """
    if not (method.pretraining and method.pretraining.steps):
        return 0
    return _fit(pretraining_bytes, method, records, memory, rows)


def _fit(each: Callable[[Method, Records], int], method: Method, records: Records | None,
         memory: float, rows: int) -> int:
    fit = SOME if records is None else int(WORKING_SHARE * memory // each(method, records))
    return max(1, min(MOST_AT_ONCE, rows, fit))


def unit_bytes(method: Method, records: Records) -> int:
    """Returns the bytes of all values that are needed at one time while one unit is queried.

    Compilers fuse operations and keep fewer of them in memory: on an H100 chunks of published
    teachers of DataLens and G-PATE took about half of this.
    """
    key = jax.random.key(0)
    query = jax.eval_shape(method.ask, key, jax.eval_shape(method.init, key))
    unit = _one_unit(method)
    private_input = method.mechanism.private_inputs(SeededBits(0), np.zeros(1, np.int32), 0)[0, 0]
    traced = jax.make_jaxpr(functools.partial(teachers.query_unit, method))(
        unit, records, query, jnp.int32(1), private_input)
    shared = sum(_size(leaf) for leaf in jax.tree.leaves(query))  # all units have one query
    return _peak(traced.jaxpr) - shared


def pretraining_bytes(method: Method, records: Records) -> int:
    """Returns the bytes of all values that are needed at one time while one unit is pretrained."""
    return _peak(jax.make_jaxpr(functools.partial(pretraining.pretrain_one, method))(
        _one_unit(method), records).jaxpr)


def _one_unit(method: Method) -> Any:
    """Returns the shapes of one unit."""
    return jax.eval_shape(functools.partial(teachers.one_unit, method, jax.random.key(0)),
                          jnp.int32(0))


def _peak(jaxpr: Any) -> int:
    """Returns the most bytes of inputs, results and what lies between them at one time."""
    last_use = {v: i for i, equation in enumerate(jaxpr.eqns) for v in _variables(equation.invars)}
    last_use |= dict.fromkeys(_variables(jaxpr.outvars), len(jaxpr.eqns))
    alive = {*jaxpr.invars, *jaxpr.constvars}
    total = peak = sum(_size(v.aval) for v in alive)
    for i, equation in enumerate(jaxpr.eqns):
        taken = sum(_size(v.aval) for v in equation.invars)
        within = max((_peak(inner) - taken for inner in inner_jaxprs(equation.params)), default=0)
        made = sum(_size(v.aval) for v in equation.outvars)
        peak = max(peak, total + max(made, within))
        total += made
        alive |= set(equation.outvars)
        gone = {v for v in alive if last_use.get(v, -1) <= i}
        alive -= gone
        total -= sum(_size(v.aval) for v in gone)
    return peak


def _variables(atoms: Any) -> Iterator[Any]:
    """Yields those that are variables, and no literals."""
    return (atom for atom in atoms if not hasattr(atom, "val"))


def _size(aval: Any) -> int:
    """Returns the bytes of an array by its shape; a random key is taken for four words."""
    itemsize = getattr(aval.dtype, "itemsize", 16)
    return math.prod(aval.shape) * itemsize


def inner_jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    """Yields the jaxprs inside an equation, a rule for differentiation not among them."""
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            inner = getattr(item, "jaxpr", item)
            if hasattr(inner, "eqns"):
                yield inner


MEMORY_SHARE = 0.7
"""The share of the memory that the teachers may fill; the rest is for records, messages and the
generator."""
UNITS_PER_DEVICE = 100
"""Units with large networks of a round for each device of a CPU. On two cores 250 published
DataLens teachers took as long on two devices as on one, and 4,000 a quarter less
(benchmarks/results/steps.json)."""


def fitting(method: str, config: MethodConfig, spec: Spec, runtime: Runtime,
            log: Callable[[str], None], moments: Moments | None = None) -> Runtime:
    """Returns the runtime, with moments at half precision where the units would not fit otherwise.

    A place for the state of units is left out where units have none.

    A run that goes on keeps the precision of `moments` in which it began, whatever fits here.
    """
    built = methods.get(method).build(config, spec, runtime)
    if runtime.state != "device" and not keeps_state(built):
        log(f"note: the units of {method} keep no state between steps, so "
            f"{option('state', runtime.state)} changes nothing")
        runtime = dataclasses.replace(runtime, state="device")
    if moments and runtime.moments == Runtime.moments:
        return dataclasses.replace(runtime, moments=moments)
    needed, available = state_bytes(built), room(runtime)
    if runtime.moments != "float32" or needed < MEMORY_SHARE * available:
        return runtime
    log(f"note: the teachers would take {needed / 1e9:.0f} GB of {available / 1e9:.0f} GB memory; "
        f"their moments are kept in bfloat16 (as with {option('moments')} bfloat16); "
        f"{option('state', 'disk')} would keep them as they are")
    return dataclasses.replace(runtime, moments="bfloat16")


def keeps_state(method: Method) -> bool:
    """Returns whether units keep anything from one step to the next."""
    return method.init_unit is not no_state and method.mechanism.schedule.batch_capacity is None


def memory() -> float:
    """Returns the bytes of memory of all devices together, or of all machines, of all processes.

    Each is taken to have as much as this one.
    """
    limits = [(device.memory_stats() or {}).get("bytes_limit", 0) for device in jax.local_devices()]
    return sum(limits) * hosts.count() or host_memory()


def host_memory() -> float:
    """Returns the bytes of memory of all machines, each of which is taken to have as much."""
    return files.machine_bytes() * hosts.machines()


def room(runtime: Runtime) -> float:
    """Returns the bytes of memory that the state of units may take, where that is bounded."""
    return {"device": memory, "host": files.machine_bytes, "disk": lambda: math.inf}[
        runtime.state]()


SLAB_BYTES = 2**27
"""Bytes of the units on the devices at a time, where the state of all lies elsewhere."""
SLABS = 5
"""Slabs in memory at a time: read, on the way to the devices, computed, new state, and written."""


def slab(method: Method, at_once: int) -> int:
    """Returns the units that are on the devices at a time, where the state of all lies elsewhere.

    Slabs are of about one size, so that few places are left empty in the last one.

    Their number is a multiple of `at_once`, the units that all devices compute at once.
    """
    rows = -(-method.mechanism.n_units // (method.mechanism.schedule.n_cohorts * at_once))
    most = max(1, SLAB_BYTES // (teachers.unit_bytes(method) * at_once))
    return -(-rows // -(-rows // most)) * at_once


def state_bytes(method: Method) -> int:
    """Returns the bytes of the state of all units that are in memory at once."""
    mechanism = method.mechanism
    return teachers.unit_bytes(method) * (mechanism.schedule.batch_capacity or mechanism.n_units)


def copy_fits(method: Method) -> bool:
    """Returns whether the machines' memory has room for a copy of the state of all units.

    From it checkpoints are written while the training goes on. Devices other than a CPU have memory
    of their own.
    """
    on_hosts = 2 if jax.devices()[0].platform == "cpu" else 1
    return on_hosts * state_bytes(method) < MEMORY_SHARE * host_memory()


COPIES = 6
"""Copies of a sum in a round: itself, its chunk, three words of noise bits an entry, the noise."""


def sum_bytes(method: Method) -> int:
    """Returns the bytes that the sum of a round takes with its noise."""
    return COPIES * 4 * math.prod(method.mechanism.shape)


PUBLIC_COPIES = 3
"""Copies of the public state: before a step, after it, and as a model."""


def public_bytes(method: Method) -> int:
    """Returns the bytes that the public state takes, by its shapes."""
    leaves = jax.tree.leaves(jax.eval_shape(method.init, jax.random.key(0)))
    return PUBLIC_COPIES * sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)


def check_memory(method: Method, runtime: Runtime = Runtime()) -> None:
    """Refuses, before anything is spent, states and sums that are larger than the memory.

    Raises:
        UserError: Where the memory is too small; the system would end the run in its first steps.
    """
    needed, available = state_bytes(method), memory()
    if sum_bytes(method) > MEMORY_SHARE * available:
        raise UserError(f"a round's sum of {math.prod(method.mechanism.shape):,} integers takes "
                        f"{sum_bytes(method) / 1e9:.1f} GB with its noise, and this machine has "
                        f"{available / 1e9:.1f} GB: release less, for example fewer cells or "
                        "dimensions")
    if public_bytes(method) > MEMORY_SHARE * available:
        raise UserError(f"the public state takes {public_bytes(method) / 1e9:.1f} GB, and this "
                        f"machine has {available / 1e9:.1f} GB: release less, or leave columns out")
    available = room(runtime)
    if needed > available:
        mend = f"{option('state', 'disk')}, or " * keeps_state(method)
        raise UserError(f"the state of {method.mechanism.n_units:,} units takes {needed / 1e9:.1f} "
                        f"GB, and this machine has {available / 1e9:.1f} GB: choose {mend}fewer "
                        "units or smaller networks, or devices with more memory")


def disk(root: Path) -> int:
    """Returns the bytes that are free on the disk of a folder, which need not exist yet."""
    existing = next(p for p in (root, *root.absolute().parents) if p.exists())
    return shutil.disk_usage(existing).free


def check_disk(root: Path, method: Method, runtime: Runtime = Runtime()) -> None:
    """Refuses, before anything is spent, a disk without room for a checkpoint and the state on it.

    Raises:
        UserError: Where the disk is too small.
    """
    needed, free = teachers.unit_bytes(method) * method.mechanism.n_units, disk(root)
    what = "a checkpoint of this run takes"
    if runtime.state == "disk":
        needed, what = 2 * needed, "the state of this run and one checkpoint take"
    if needed > free:
        raise UserError(f"{what} {needed / 1e9:.1f} GB, and the disk of {root} has "
                        f"{free / 1e9:.1f} GB free: free some space, or choose another "
                        f"{option('out')}")


def _devices_by_default(method: Method, available: Sequence[jax.Device]) -> int:
    """Returns how many devices of each process compute where the user names no number.

    One device can use all cores of a CPU for the products of a large network, but two devices, each
    with a unit, use them better. For few units the public half, which every device computes, costs
    too much in comparison; so it does for the products of all sampled records.
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
        runtime: The user's request; zeros are replaced by what was measured to be best.
        rows: The records of a unit that is small.
        files: The folder of the state that lies on the disk.
        records: Shapes of the records of one unit, by which an accelerator takes as many units at
            once as its memory has room for; None where they are not known.

    Raises:
        UserError: Where more devices are asked for than there are, or for options that exclude each
            other.
    """
    mechanism = method.mechanism
    batch_capacity = mechanism.schedule.batch_capacity
    available = jax.local_devices()
    if runtime.devices > len(available):
        raise UserError(f"{option('devices', runtime.devices)}: only {len(available)} "
                        "are available")
    if runtime.parallel == "pmap" and hosts.count() > 1:
        raise UserError(f"{option('parallel', 'pmap')} is for one process; leave it out")
    if runtime.state != "device" and hosts.count() > 1:
        raise UserError(f"{option('state', runtime.state)} is for one process; leave it out, or "
                        "start one")
    if method.decomposes and runtime.devices > 1 and available[0].platform == "cpu":
        # The threads of the device that waits for the others' sums are those that it would need.
        raise UserError(f"{option('devices', runtime.devices)}: this method decomposes matrices, "
                        "for which several devices of one CPU can wait for each other forever; "
                        f"leave {option('devices')} out: one device uses all cores")
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
        best = units_at_once(method, records, limit, each_round)
        pretrained = pretrained_at_once(method, records, limit, each_device)
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
    """Returns shapes of the records of one unit of m slots: x [m, ...], y [m]."""
    x = data.x_train
    shapes = jax.ShapeDtypeStruct((slots, *x.shape[1:]), x.dtype), jax.ShapeDtypeStruct(
        (slots,), np.int32)
    return Records(*shapes)  # type: ignore[arg-type]  # what traces functions takes shapes too


def footprint(data: Dataset, slots: int, layout: Layout) -> Footprint:
    """Returns what the records of a run take.

    `slots` are the places for records that all units have (`planning.unit_slots`).
    """
    record = data.x_train.nbytes // max(1, len(data.x_train)) + LABEL_BYTES
    present = [part for part in (data.x_train, data.x_test) if part is not None]
    read = sum(part.nbytes for part in present if arrays.mapping(part) is None)
    whole = slots * record
    shares = 1 if layout.sampled else len(layout.devices)  # sampled records lie whole on each
    here = len(layout.local) if shares > 1 else 1
    apart = layout.devices[0].platform != "cpu" and not layout.slab
    return Footprint(read, whole * here // shares, whole // shares * apart)


def check_records(records: Footprint, method: Method, layout: Layout, unit: str) -> None:
    """Refuses, before anything is spent, records that do not fit into the memory with all else.

    Unless records are protected, their number is private, and the message has no sizes.

    Raises:
        UserError: Where the memory is too small; the system would end the run where it deals them.
    """
    together = -(-hosts.count() // hosts.machines())  # processes of the fullest machine
    on_host = together * (records.read + records.dealt)
    state = state_bytes(method)
    if layout.slab:
        state = 0 if layout.files else state
    elif records.on_device:
        _check_devices(records.on_device, state // len(layout.devices), unit)
        state = 0
    state = state * together // hosts.count()
    available = files.machine_bytes()
    if on_host + state > available:
        raise _too_large(
            unit,
            f"take {_shown_size(records.read)} as read and {_shown_size(records.dealt)} as dealt, "
            f"in addition to {_shown_size(state)} for the state of units, and this machine has "
            f"{_shown_size(available)}",
            "use fewer records, save them as a file of arrays that is mapped (npz: without "
            "compression), or use a machine with more memory")


def _check_devices(records: int, state: int, unit: str) -> None:
    """Refuses records and state beyond the memory of a device that has its own."""
    limit = min((device.memory_stats() or {}).get("bytes_limit", 0)
                for device in jax.local_devices())
    if limit and records + state > limit:
        raise _too_large(
            unit, f"take {_shown_size(records)} on each device, in addition to "
                  f"{_shown_size(state)} for the state of units, and a device has "
                  f"{_shown_size(limit)}",
            f"use fewer records, more devices, or {option('state', 'host')}")


def _too_large(unit: str, sizes: str, mend: str) -> UserError:
    """The refusal, without sizes where they would reveal a private number of records."""
    what = sizes if unit == Unit.RECORD else "and the state of units do not fit into memory"
    return UserError(f"the records {what}: {mend}")


def _shown_size(count: float) -> str:
    return f"{count / 1e9:.1f} GB"
