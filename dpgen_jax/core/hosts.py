"""Several processes in one run: how they find each other, exchange messages, and end together.

Place. SLURM, Open MPI, Kubernetes and TPU pods number the processes. JAX reads it from them but
does not report it: it starts its runtime at once, before the processes have met. So the place of
this process is read here first (`place_in_batch_system`).

Meeting (`meet`). JAX ends a process with a stack trace if others do not come, and ends all of them
if one comes twice or late. So, before JAX's own runtime starts on the same port, process 0 waits
for all others. Each of them sends its number and its options. Process 0 then answers all at once:
that they can begin, or why they cannot. A process that comes later finds JAX's service instead,
which does not speak this protocol. A process that dies while it waits is forgotten, and its
replacement is accepted.

Orders (`tell`, `hear`). Only the leader has the run folder, the ledger, the clock and the source of
noise. Before everything that all devices must do together it sends an order to the others, which
do the same with their own units. In a run of one process `tell` does nothing.

Trust. No record and no label is sent. The assignment of records to units and the bits of the noise
are sent, and the devices add up their sums of messages over the same network. So the hosts and the
network between them lie inside the trust boundary.

End (`leading`, `alive`). All processes end with the same exit code, and none waits for others. The
leader sends the end as an order where it can. A process that cannot send or receive orders ends at
once, and its broken connection informs the others. Each other process has a thread that notices
the end of the leader. Without that thread JAX's own runtime, which the leader serves, would end
them with its stack trace.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import os
import platform
import re
import socket
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpgen_jax.core import files
from dpgen_jax.core.console import tell as tell_user
from dpgen_jax.core.errors import UserError, one_line, option


class BatchPlace(NamedTuple):
    """The place of a process in its run.

    Attributes:
        coordinator: HOST:PORT of process 0.
    """

    coordinator: str
    processes: int
    process_id: int


def place_in_batch_system(seconds: int) -> BatchPlace:
    """Returns the place of this process, which a batch system started.

    `seconds` limits how long a system may take to name the machine of process 0.

    Raises:
        UserError: No batch system started this process, or it or this version of JAX does not
        answer.
    """
    instead = (f"give {option('coordinator', 'HOST:PORT')} {option('processes', 'N')} "
               f"{option('process_id', 'I')}")
    address = os.environ.get("JAX_COORDINATOR_ADDRESS")
    try:
        from jax._src.clusters import ClusterEnv  # JAX has no public form of it

        coordinator, processes, process_id, _ = ClusterEnv.auto_detect_unset_distributed_params(
            address, None, None, None, None, seconds)
    except Exception as error:  # of as many kinds as there are systems
        raise UserError(f"{option('coordinator', 'auto')}: the batch system does not say which "
                        f"process this is ({one_line(error, 200)}); {instead}") from error
    if coordinator is None or processes is None or process_id is None:
        raise UserError(f"{option('coordinator', 'auto')} finds no SLURM step, Open MPI, "
                        f"Kubernetes or TPU pod that started this process; {instead}")
    return BatchPlace(coordinator, processes, process_id)


MAY_DIFFER = ("process_id", "coordinator", "join_seconds", "out", "dataset", "schema", "test_csv",
              "class_names", "public_dataset")
"""options that may differ between machines: paths, whose content is compared later"""
MOST_BYTES = 2**20
KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 2}
"""TCP settings (seconds, seconds, times) by which a machine that does not respond is lost"""


@dataclasses.dataclass(frozen=True)
class Arrival:
    """A process as it presents itself.

    Attributes:
        processes: How many it expects in all.
        threads: The number of threads by which XLA would split the products of a CPU there.
    """

    process: int
    processes: int
    version: str
    options: Mapping[str, str]
    threads: int


class Met(NamedTuple):
    """The outcome of a meeting for one process.

    Attributes:
        connections: Open until a process ends: from process 0 to all others, or from another
            process to process 0.
        threads: The largest number of threads that any of them has, the same for all.
    """

    connections: list[socket.socket]
    threads: int


def meet(place: str, mine: Arrival, seconds: float) -> Met:
    """Waits until all processes of the run have come.

    Returns:
        The connections to the others, and what all have agreed on.

    Raises:
        UserError: On all of them, if they do not arrive or do not fit together.
    """
    host, _, port = place.rpartition(":")
    if not host or not port.isdigit():
        raise UserError(f"{option('coordinator', place)} is not HOST:PORT, such as host0:1234")
    if mine.process == 0:
        return _receive(int(port), mine, seconds)
    return _arrive(host.strip("[]"), int(port), mine, seconds)


def _receive(port: int, mine: Arrival, seconds: float) -> Met:
    """In process 0: waits for the others, and answers all at once."""
    others: dict[int, socket.socket] = {}
    threads = mine.threads
    end = time.monotonic() + seconds
    with _server(port) as server, contextlib.ExitStack() as stack:
        try:
            while len(_waiting(others)) + 1 < mine.processes:
                try:
                    server.settimeout(max(0.01, end - time.monotonic()))
                    connection = stack.enter_context(server.accept()[0])
                except TimeoutError:
                    there = _waiting(others)
                    missing = [str(i) for i in range(1, mine.processes) if i not in there]
                    raise UserError(
                        f"process {', '.join(missing)} of {mine.processes} did not come to port "
                        f"{port} within {seconds:g} s: start all with the same command except for "
                        f"{option('process_id')}; {option('join_seconds')} waits longer") from None
                theirs = _arrival(connection)
                if theirs is None:  # possibly a port scan
                    continue
                if theirs.process == 0 or theirs.process in _waiting(others):
                    _answer(connection, f"another process {theirs.process} has already joined the "
                                        f"run; give each its own {option('process_id')}")
                    continue
                others[theirs.process] = connection
                _require_alike(mine, theirs)
                threads = max(threads, theirs.threads)
        except UserError as error:
            for connection in others.values():
                _answer(connection, str(error))
            raise
        for connection in others.values():
            _answer(connection, "", threads)
        stack.pop_all()
        return Met(list(others.values()), threads)


def _waiting(others: Mapping[int, socket.socket]) -> set[int]:
    """The processes that still wait; the system closes the connection of a dead one."""
    return {process for process, connection in others.items() if _is_open(connection)}


def _is_open(connection: socket.socket) -> bool:
    """Whether the process at the other end of a connection is alive; it sends nothing more."""
    connection.setblocking(False)
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        connection.settimeout(10)


def _arrival(connection: socket.socket) -> Arrival | None:
    """The process that has arrived; None if it is not a process of a run."""
    connection.settimeout(10)
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE.items():
            if hasattr(socket, name):  # not on every system
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        return Arrival(**_read(connection))
    except (OSError, ValueError, TypeError):
        return None


def _server(port: int) -> socket.socket:
    """Listens on all addresses of this machine."""
    both = socket.has_dualstack_ipv6()
    try:
        return socket.create_server(("", port), backlog=1024, dualstack_ipv6=both,
                                    family=socket.AF_INET6 if both else socket.AF_INET)
    except OSError as error:
        raise UserError(f"port {port} of {option('coordinator')} cannot be used here "
                        f"({error.strerror}); another run may use it: name another one") from error


def _require_alike(mine: Arrival, theirs: Arrival) -> None:
    """Raises UserError for a process that was started for another run."""
    who = f"process {theirs.process} was started with"
    if theirs.processes != mine.processes:
        raise UserError(f"{who} {option('processes', theirs.processes)}, and process 0 with "
                        f"{mine.processes}")
    if theirs.version != mine.version:
        raise UserError(f"process {theirs.process} has JAX {theirs.version}, and process 0 "
                        f"{mine.version}")
    differ = sorted(name for name in {**mine.options, **theirs.options}
                    if mine.options.get(name) != theirs.options.get(name))
    if differ:
        named = ", ".join(name if name == "method" else option(name) for name in differ)
        raise UserError(f"{who} another {named} than process 0; start all with the same command "
                        f"except for {option('process_id')}")


def _arrive(host: str, port: int, mine: Arrival, seconds: float) -> Met:
    """In another process: presents itself to process 0, and waits for its answer."""
    place, end, why = f"{host}:{port}", time.monotonic() + seconds, ""
    while time.monotonic() < end:
        try:
            connection = socket.create_connection((host, port), max(0.01, end - time.monotonic()))
        except OSError as error:
            why = error.strerror or str(error)
            time.sleep(0.1)
            continue
        with contextlib.ExitStack() as stack:
            stack.enter_context(connection)
            connection.settimeout(seconds + 10)  # process 0 answers within its own
            try:
                _send(connection, dataclasses.asdict(mine))
                answer = _read(connection)
                fault, threads = str(answer["error"]), int(answer["threads"])
            except (OSError, ValueError, TypeError, KeyError):
                raise UserError(
                    f"what answers at {option('coordinator', place)} does not wait for this "
                    "process: the run has started without it, or was refused, or the port belongs "
                    "to something else; start all processes together") from None
            if fault:
                raise UserError(fault)
            stack.pop_all()
            return Met([connection], threads)
    raise UserError(f"no process answers at {option('coordinator', place)} ({why}): start process "
                    f"0 there, within {seconds:g} s; {option('join_seconds')} waits longer")


def _answer(connection: socket.socket, error: str, threads: int = 0) -> None:
    """Sends the reason why a process cannot begin or, without an error, the number of threads."""
    with contextlib.suppress(OSError):
        _send(connection, {"error": error, "threads": threads})


def _send(connection: socket.socket, content: dict[str, Any]) -> None:
    connection.sendall(json.dumps(content).encode() + b"\n")


def _read(connection: socket.socket) -> dict[str, Any]:
    """Reads one line of JSON. Raises OSError and ValueError."""
    with connection.makefile("rb") as file:
        line = file.readline(MOST_BYTES)
    content = json.loads(line)
    if not isinstance(content, dict):
        raise ValueError("no JSON object")
    return content


DEAD_AFTER = 30
"""Seconds without a heartbeat after which a process counts as dead, and all end."""
LONGEST_START = 300
"""Seconds that JAX's runtime may take to start, or a batch system to start all processes."""
SMALLEST = 4096
"""Bytes of the smallest message: sizes are powers of two from this one on, each compiled once."""

THREADS = "PJRT_NPROC"
"""The variable that sets XLA's number of threads on a CPU instead of the number of cores."""
END = "end"
"""The last order of a run."""


@dataclasses.dataclass(frozen=True)
class Hosts:
    """Several processes for one run, each started with the same command except for its number."""

    coordinator: str | None = None
    """HOST:PORT of process 0, or auto: as set by SLURM, MPI, Kubernetes or a TPU pod"""
    processes: int | None = None
    """with --coordinator HOST:PORT, the number of processes"""
    process_id: int | None = None
    """with --coordinator HOST:PORT, the number of this process, from 0; process 0 leads"""
    join_seconds: int = 60
    """how many seconds apart the processes may start; with `auto` at least 300"""

    def __post_init__(self) -> None:
        numbered = None not in (self.processes, self.process_id)
        if self.coordinator in (None, "auto"):
            if self.processes is not None or self.process_id is not None:
                raise UserError(f"{option('processes')} and {option('process_id')} belong to "
                                f"{option('coordinator', 'HOST:PORT')}")
        elif not numbered:
            raise UserError(f"{option('coordinator', 'HOST:PORT')} needs "
                            f"{option('processes', 'N')} and {option('process_id', 'I')}, from 0; "
                            f"`{option('coordinator', 'auto')}` uses the batch system")
        elif not 0 <= (self.process_id or 0) < (self.processes or 0):
            raise UserError(f"{option('process_id')} is {self.process_id}; of {self.processes} "
                            f"processes it must be 0 to {(self.processes or 0) - 1}")


class Team:
    """The state of this process about those of its run; a singleton, like JAX's runtime.

    Attributes:
        machines: The number of machines on which they run.
        signal: The stop signal that another process received and reported to the leader.
        ended: Whether all processes have been informed of the end of the run, so this one may
        leave. connections: Those of the meeting, as in `Met`.
    """

    count, index, machines = 1, 0, 1
    signal: int | None = None
    ended = False
    connections: Sequence[socket.socket] = ()


def start(hosts: Hosts, stated: Mapping[str, str] = types.MappingProxyType({})) -> None:
    """Joins the processes of a run; must run before JAX initialises a backend.

    `stated` are the options of the run by their fields, which must be the same for all, except
    `MAY_DIFFER`. With one process it does nothing.

    Raises:
        UserError: They do not meet.
    """
    if hosts.coordinator is None:
        return
    import jax

    # Otherwise JAX would catch SIGTERM, and the run would not notice it.
    jax.config.update("jax_enable_preemption_service", False)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    if hosts.processes and hosts.process_id is not None:
        place = BatchPlace(hosts.coordinator, hosts.processes, hosts.process_id)
        seconds = hosts.join_seconds
    else:
        place = place_in_batch_system(LONGEST_START)
        seconds = max(hosts.join_seconds, LONGEST_START)
    compared = {name: value for name, value in stated.items() if name not in MAY_DIFFER}
    Team.connections, most = meet(place.coordinator, Arrival(
        place.process_id, place.processes, jax.__version__, compared, threads()), seconds)
    # Each process computes the public state, which must be the same on all.
    os.environ[THREADS] = str(most)
    try:
        jax.distributed.initialize(*place, initialization_timeout=LONGEST_START,
                                   heartbeat_timeout_seconds=DEAD_AFTER)
        Team.count, Team.index = jax.process_count(), jax.process_index()
        # Here all are at the same point: later one may read its data for minutes longer.
        jax.devices()
        Team.machines = len(set(gather(platform.node())))
    except (RuntimeError, ValueError) as error:
        raise UserError(f"the processes do not meet at {option('coordinator', hosts.coordinator)}: "
                        f"{one_line(error, 200)}") from error


def threads() -> int:
    """Returns into how many threads XLA splits products on a CPU: cores, or devices if more.

    In a product that adds up thousands of terms for few results, each thread adds up a part of
    them, so the number of threads affects the rounding of the sum.
    """
    import jax

    number = next((os.environ[name] for name in (THREADS, "NPROC")
                   if os.environ.get(name, "").isdigit()), None)
    # JAX 0.10 adds its options at run time, where mypy does not see them.
    devices = jax.config.jax_num_cpu_devices  # type: ignore[attr-defined, unused-ignore]
    if devices < 1:
        forced = re.findall(r"host_platform_device_count=(\d+)", os.environ.get("XLA_FLAGS", ""))
        devices = int(forced[-1]) if forced else 1
    return max(int(number) if number else files.cores(), devices)


def count() -> int:
    """Returns the number of processes."""
    return Team.count


def machines() -> int:
    """Returns the number of machines; processes of one machine share its memory."""
    return Team.machines


def leads() -> bool:
    """Returns whether this process leads; a single process does."""
    return Team.index == 0


def tell(order: str, words: dict[str, Any] | None = None, **arrays: np.ndarray) -> None:
    """Sends an order to the other processes: the next joint step.

    It contains JSON values (`words`) and host arrays.
    """
    if count() == 1:
        return
    parcel = _packed({"order": order, "words": words or {}}, arrays)
    signals = _exchange(np.array([len(parcel), 0], np.int32))[:, 1]
    Team.signal = Team.signal or int(signals.max()) or None
    _sent(parcel, len(parcel))


def hear(signal: int | None = None) -> tuple[str, dict[str, Any], dict[str, np.ndarray]]:
    """Waits for the leader's next order; returns it with its words and its arrays.

    A stop signal that this process received is reported to the leader.
    """
    size = int(_exchange(np.array([0, signal or 0], np.int32))[0, 0])
    content, arrays = _unpacked(_sent(b"", size))
    Team.ended = content["order"] == END
    return content["order"], content["words"], arrays


def signal_of_others() -> int | None:
    """Returns the stop signal that another process received and reported, if any."""
    return Team.signal


def gather(value: object) -> list[Any]:
    """Returns a JSON value from each process, on all of them, in order."""
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

    Raises:
        UserError: On all of them, naming those that differ from the leader.
    """
    values = gather(value)
    others = [str(i) for i, other in enumerate(values) if other != values[0]]
    if others:
        Team.ended = True  # all learn it here, and leave together
        raise UserError(f"process {', '.join(others)} has another {what} than process 0; start all "
                        f"with the same command on the same data, but for {option('process_id')}")


def _exchange(row: np.ndarray) -> np.ndarray:
    """Returns an array from each process, [processes, ...], on all of them."""
    return _together(adds=False)(row)


def _sent(parcel: bytes, size: int) -> bytes:
    room = np.zeros(_room(size), np.uint8)
    room[:len(parcel)] = np.frombuffer(parcel, np.uint8)
    return _together(adds=True)(room).tobytes()[:size]


@functools.cache
def _together(adds: bool) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function from one array per process to all of them, or to their sum, on all.

    It uses one device of each process. JAX's functions (`multihost_utils`) require the same number
    of devices in each process, and copy messages to every one of them.
    """
    import jax
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    firsts = [next(device for device in jax.devices() if device.process_index == process)
              for process in range(count())]
    mesh = jax.make_mesh((count(),), ("processes",), axis_types=(AxisType.Auto,), devices=firsts)
    of_each = NamedSharding(mesh, PartitionSpec("processes"))
    together = jax.jit(lambda rows: rows.sum(0, dtype=rows.dtype) if adds else rows,
                       out_shardings=NamedSharding(mesh, PartitionSpec()))

    def talk(row: np.ndarray) -> np.ndarray:
        here = jax.device_put(row[None], firsts[Team.index])
        rows = jax.make_array_from_single_device_arrays((count(), *row.shape), of_each, [here])
        return np.asarray(together(rows).addressable_data(0))

    return talk


def _room(size: int) -> int:
    """The power of two to which a message is padded."""
    return max(SMALLEST, 1 << max(0, size - 1).bit_length())


def _packed(content: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    out = io.BytesIO()
    np.savez(out, allow_pickle=False, _=np.frombuffer(json.dumps(content).encode(), np.uint8),
             **arrays)
    return out.getvalue()


def _unpacked(parcel: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    with np.load(io.BytesIO(parcel), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    return json.loads(arrays.pop("_").tobytes()), arrays


PATIENCE = 5.0
"""Seconds that the leader waits for the others after it has sent them its exit code."""


def gone() -> str:
    """Returns the message of a process that ended because another did."""
    return ("another process has ended or cannot be reached; its last line says why. What was "
            f"charged stays charged; `{option('resume', True)}` goes on, with any number of "
            "processes")


@contextlib.contextmanager
def leading(code: Callable[[], int]) -> Iterator[None]:
    """Sends the end of the run and its exit code to the others, which wait for orders."""
    Team.signal, Team.ended = None, False
    try:
        yield
    except (UserError, OSError, SystemExit) as error:
        with contextlib.suppress(Exception):  # one that has ended does not hide the reason
            _end(_exit_code(error))
        raise
    try:
        _end(code())
    except Exception:
        tell_user("warning: another process ended before it learned that the run is complete; the "
                  "files of this one are complete", sys.stderr)
        end_at_once(code())


def end_at_once(code: int) -> None:
    """Ends this process if it is one of several; a single one continues.

    During a joint computation the others receive no order. So the leader sends them its exit code
    over the connections of the meeting; the end of another process shows as a broken connection.
    """
    if count() > 1:
        _tell_code(code)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _end(code: int) -> None:
    tell(END, {"code": code})
    Team.ended = True


def _exit_code(error: BaseException) -> int:
    """The exit code of a command that ends with this error, as in `terminal.main`."""
    if isinstance(error, KeyboardInterrupt):
        return 130
    if isinstance(error, OSError):
        return UserError.exit_code
    code = getattr(error, "exit_code", getattr(error, "code", 1))
    return 0 if code is None else code if isinstance(code, int) else 1


@contextlib.contextmanager
def alive() -> Iterator[None]:
    """Ends this process at once if it fails while the others still wait for it.

    An orderly exit would wait for minutes for the others, which wait for this process. A broken
    connection informs them at once. If the leader is gone, the others end with one line.
    """
    if not leads() and Team.connections:
        threading.Thread(target=_watch, args=Team.connections, daemon=True).start()
    try:
        yield
        _meet_at_the_end()
    except BaseException as error:
        if count() == 1:
            raise
        if Team.ended:
            _leave()
            raise
        if isinstance(error, UserError | OSError):
            tell_user(f"error: {one_line(error)}", sys.stderr)
        elif isinstance(error, KeyboardInterrupt):
            tell_user("interrupted", sys.stderr)
        elif _is_connection(error):
            tell_user(f"error: {gone()}", sys.stderr)
        elif not isinstance(error, SystemExit):
            traceback.print_exc()
        end_at_once(_exit_code(error))
    _leave()


def _meet_at_the_end() -> None:
    """Waits until all processes are done if no order has ended them, as in a rehearsal.

    Until then `_watch` ends this one if the leader fails.
    """
    if Team.ended or count() == 1:
        return
    if leads():
        _end(0)
    else:
        hear()


def _watch(leader: socket.socket) -> None:
    """Waits until the leader has ended; then this process ends too, by the leader's exit code."""
    leader.settimeout(None)
    try:
        said = leader.recv(1)
    except OSError:  # the network fails temporarily: JAX's heartbeats decide
        return
    if not Team.ended:
        tell_user(f"error: {gone()}", sys.stderr)
        end_at_once(said[0] if said else 1)


def _tell_code(code: int) -> None:
    """Sends the exit code to the others if this process leads, before it ends at once.

    It waits for them to end first: otherwise JAX's runtime, which this process serves, could end
    them with its stack trace before they read the code.
    """
    others = Team.connections if leads() else ()
    for connection in others:
        with contextlib.suppress(OSError):
            connection.send(bytes([code % 256]))
    last = time.monotonic() + PATIENCE
    for connection in others:
        with contextlib.suppress(OSError):
            connection.settimeout(max(0.01, last - time.monotonic()))
            connection.recv(1)


def _leave() -> None:
    """Leaves JAX's runtime; the others have been informed of the end and are at the same point."""
    if count() > 1:
        import jax

        jax.distributed.shutdown()


def _is_connection(error: BaseException) -> bool:
    """Whether JAX lost another process, which it reports by errors of several kinds."""
    return (type(error).__name__ in ("JaxRuntimeError", "XlaRuntimeError")
            or "gloo" in str(error).lower())
