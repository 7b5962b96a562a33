"""Several processes, one run: process 0 leads, the others follow.

The leader alone has the run folder, the ledger, the clock and the source of noise. Before each
thing that all devices must do together it tells the others (`tell`), who hear it (`hear`) and do
the same with the units that they have. With one process telling does nothing.

No record and no label is told. Which unit has which record and the bits of the noise are, and the
devices add up their sums of messages over the same network: the hosts and the network between them
lie inside the trust boundary.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import os
import platform
import re
import socket
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpgen_jax.core import batch_system, meeting, platforms
from dpgen_jax.core.errors import UserError, one_line

DEAD_AFTER = 30
"""Seconds without a sign of life after which a process counts as dead, and all end."""
LONGEST_START = 300
"""Seconds that JAX's runtime may take to start, or a batch system to start all processes."""
SMALLEST = 4096
"""Bytes of the smallest parcel: sizes are powers of two from here on, and each is compiled once."""

THREADS = "PJRT_NPROC"
"""The variable that gives XLA's number of threads on a CPU in place of that of its cores."""
END = "end"
"""The last order of a run."""


@dataclasses.dataclass(frozen=True)
class Hosts:
    """Several processes for one run, each started with the same command but for its number."""

    coordinator: str | None = None
    """HOST:PORT of process 0, or auto: what SLURM, MPI, Kubernetes or a TPU pod says"""
    processes: int | None = None
    """with --coordinator HOST:PORT, the processes in all"""
    process_id: int | None = None
    """with --coordinator HOST:PORT, the number of this process, from 0; process 0 leads"""
    join_seconds: int = 60
    """how many seconds apart the processes may start; with `auto` at least 300"""

    def __post_init__(self) -> None:
        numbered = None not in (self.processes, self.process_id)
        if self.coordinator in (None, "auto"):
            if self.processes is not None or self.process_id is not None:
                raise UserError("--processes and --process-id belong to --coordinator HOST:PORT")
        elif not numbered:
            raise UserError("--coordinator HOST:PORT needs --processes N and --process-id I, from "
                            "0; `--coordinator auto` asks the batch system")
        elif not 0 <= (self.process_id or 0) < (self.processes or 0):
            raise UserError(f"--process-id is {self.process_id}; of {self.processes} processes it "
                            f"must be 0 to {(self.processes or 0) - 1}")


class Team:
    """This process's knowledge of its run's processes: one a process, as is JAX's own runtime.

    Attributes:
        count: How many there are.
        index: The number of this one.
        machines: On how many machines they run.
        signal: The one that asked another process to stop, of which the leader has heard.
        ended: Whether all know that the run has ended, so that whoever leaves is not missed.
        connections: Those of the meeting: of the leader to all others, of another one to it.
    """

    count, index, machines = 1, 0, 1
    signal: int | None = None
    ended = False
    connections: Sequence[socket.socket] = ()


def start(hosts: Hosts, words: Sequence[str] = ()) -> None:
    """Joins the processes of a run; it must run before JAX touches a backend.

    Args:
        hosts: Where they meet; nothing is done for one process.
        words: The words of the command, which must be the same for all.

    Raises:
        UserError: Where they do not meet.
    """
    if hosts.coordinator is None:
        return
    import jax

    # Else JAX would catch SIGTERM, and nobody would hear of it.
    jax.config.update("jax_enable_preemption_service", False)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    place = _place(hosts)
    if place:
        seconds = hosts.join_seconds
        Team.connections, most = meeting.meet(place.coordinator, meeting.Arrival(
            place.process_id, place.processes, jax.__version__, meeting.flags(words), threads()),
            max(seconds, LONGEST_START) if hosts.coordinator == "auto" else seconds)
        # The public state is computed by each process for itself, and must be the same on all.
        os.environ[THREADS] = str(most)
    try:
        coordinator, processes, number = place or (None, None, None)
        jax.distributed.initialize(
            coordinator, processes, number, initialization_timeout=LONGEST_START,
            heartbeat_timeout_seconds=DEAD_AFTER)
        Team.count, Team.index = jax.process_count(), jax.process_index()
        # Here all are at the same point: later one may read its data for minutes longer.
        jax.devices()
        Team.machines = len(set(gather(platform.node())))
    except (RuntimeError, ValueError) as error:
        raise UserError(f"the processes do not meet at --coordinator {hosts.coordinator}: "
                        f"{one_line(error, 200)}") from error


def threads() -> int:
    """Returns by how many threads XLA splits products on a CPU: its cores, or its devices if more.

    Where a product adds up thousands of terms for few results each thread adds up a part of them,
    so that their number decides how the sum is rounded.
    """
    import jax

    number = next((os.environ[name] for name in (THREADS, "NPROC")
                   if os.environ.get(name, "").isdigit()), None)
    # JAX 0.10 adds its options at run time, where mypy does not see them.
    devices = jax.config.jax_num_cpu_devices  # type: ignore[attr-defined, unused-ignore]
    if devices < 1:
        forced = re.findall(r"host_platform_device_count=(\d+)", os.environ.get("XLA_FLAGS", ""))
        devices = int(forced[-1]) if forced else 1
    return max(int(number) if number else platforms.cores(), devices)


def _place(hosts: Hosts) -> batch_system.Place | None:
    """Returns the place of this process, as the user or the batch system says; None: JAX finds it.

    Raises: UserError.
    """
    if hosts.coordinator and hosts.processes and hosts.process_id is not None:
        return batch_system.Place(hosts.coordinator, hosts.processes, hosts.process_id)
    return batch_system.place(LONGEST_START)


def count() -> int:
    """Returns the number of processes."""
    return Team.count


def machines() -> int:
    """Returns the number of machines: processes of one machine share its memory."""
    return Team.machines


def leads() -> bool:
    """Returns whether this process leads: it does where it is alone."""
    return Team.index == 0


def tell(order: str, words: dict[str, Any] | None = None, **arrays: np.ndarray) -> None:
    """Tells the other processes what all do next.

    Args:
        order: What to do.
        words: JSON values that it needs.
        **arrays: Arrays of the host that it needs.
    """
    if count() == 1:
        return
    parcel = _packed({"order": order, "words": words or {}}, arrays)
    signals = _exchange(np.array([len(parcel), 0], np.int32))[:, 1]
    Team.signal = Team.signal or int(signals.max()) or None
    _sent(parcel, len(parcel))


def hear(signal: int | None = None) -> tuple[str, dict[str, Any], dict[str, np.ndarray]]:
    """Waits for what the leader tells.

    Args:
        signal: One that asked this process to stop; the leader is told.

    Returns:
        The order, its words and its arrays.
    """
    size = int(_exchange(np.array([0, signal or 0], np.int32))[0, 0])
    content, arrays = _unpacked(_sent(b"", size))
    Team.ended = content["order"] == END
    return content["order"], content["words"], arrays


def signal_of_others() -> int | None:
    """Returns the signal by which another process was asked to stop, as far as it has told."""
    return Team.signal


def gather(value: object) -> list[Any]:
    """Returns a JSON value of each process, on all of them, in order.

    Args:
        value: This process's own.
    """
    if count() == 1:
        return [value]
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    sizes = _exchange(np.array([len(text), 0], np.int32))[:, 0]
    room = np.zeros(_room(int(sizes.max())), np.uint8)
    room[:len(text)] = text
    return [json.loads(row.tobytes()[:size])
            for row, size in zip(_exchange(room), sizes, strict=True)]


def agree(what: str, value: str) -> None:
    """Refuses processes that differ.

    Args:
        what: What they must agree on, as the error calls it.
        value: This process's own.

    Raises:
        UserError: On all of them, naming those that differ from the leader.
    """
    values = gather(value)
    others = [str(i) for i, other in enumerate(values) if other != values[0]]
    if others:
        Team.ended = True  # all learn it here, and leave together
        raise UserError(f"process {', '.join(others)} has another {what} than process 0; start all "
                        "with the same command on the same data, but for --process-id")


def _exchange(row: np.ndarray) -> np.ndarray:
    """Returns an array of each process, [processes, ...], on all of them."""
    return _ways().gather(row)


def _sent(parcel: bytes, size: int) -> bytes:
    """Returns the leader's parcel, on all."""
    room = np.zeros(_room(size), np.uint8)
    room[:len(parcel)] = np.frombuffer(parcel, np.uint8)
    return _ways().add(room).tobytes()[:size]


class _Ways(NamedTuple):
    """The ways by which processes talk.

    Attributes:
        gather: From an array of each to [processes, ...], on all.
        add: From an array of each to their sum, on all.
    """

    gather: Callable[[np.ndarray], np.ndarray]
    add: Callable[[np.ndarray], np.ndarray]


@functools.cache
def _ways() -> _Ways:
    """Opens the ways, by one device of each process.

    JAX's own functions (`multihost_utils`) copy what is sent to every device of a process.
    """
    import jax
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    firsts = [next(device for device in jax.devices() if device.process_index == process)
              for process in range(count())]
    mesh = jax.make_mesh((count(),), ("processes",), axis_types=(AxisType.Auto,), devices=firsts)
    of_each = NamedSharding(mesh, PartitionSpec("processes"))

    def way(function: Callable) -> Callable[[np.ndarray], np.ndarray]:
        together = jax.jit(function, out_shardings=NamedSharding(mesh, PartitionSpec()))

        def talk(row: np.ndarray) -> np.ndarray:
            here = jax.device_put(row[None], firsts[Team.index])
            rows = jax.make_array_from_single_device_arrays(
                (count(), *row.shape), of_each, [here])
            return np.asarray(together(rows).addressable_data(0))

        return talk

    return _Ways(way(lambda rows: rows), way(lambda rows: rows.sum(0, dtype=rows.dtype)))


def _room(size: int) -> int:
    """The power of two that a parcel is padded to."""
    return max(SMALLEST, 1 << max(0, size - 1).bit_length())


def _packed(content: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """JSON and arrays as bytes."""
    out = io.BytesIO()
    np.savez(out, allow_pickle=False, _=np.frombuffer(json.dumps(content).encode(), np.uint8),
             **arrays)
    return out.getvalue()


def _unpacked(parcel: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The inverse of `_packed`."""
    with np.load(io.BytesIO(parcel), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    return json.loads(arrays.pop("_").tobytes()), arrays
