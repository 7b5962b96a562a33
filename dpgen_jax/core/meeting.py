"""The meeting of the processes of a run, before JAX's own runtime starts on the same port.

JAX ends a process with a stack trace where others do not come, and ends all where one comes twice
or late. So process 0 first waits here for all others, each of which says its number and its flags,
and answers all at once: that they can begin, or why they cannot. Whoever comes later finds JAX's
service instead, which does not speak as process 0 does here. A process that dies while it waits is
forgotten, and whoever is started in its place is welcome.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dpgen_jax.core.errors import UserError

MAY_DIFFER = ("--process-id", "--coordinator", "--join-seconds", "--out", "--dataset", "--schema",
              "--test-csv", "--class-names", "--public-dataset")
"""Flags of which each machine may have its own: paths, of which the content is compared later"""
MOST_BYTES = 2**20
KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 2}
"""seconds, seconds and times after which a machine that says nothing at all is gone"""


@dataclasses.dataclass(frozen=True)
class Arrival:
    """A process as it presents itself.

    Attributes:
        process: Its number.
        processes: How many it expects in all.
        version: Of JAX.
        flags: Its flags and their values, without those that may differ.
        threads: By how many threads XLA would split the products of a CPU there.
    """

    process: int
    processes: int
    version: str
    flags: Mapping[str, str]
    threads: int


def flags(words: Sequence[str]) -> dict[str, str]:
    """Returns the flags of a command and their values, without those that may differ.

    Args:
        words: The words of the command.
    """
    values: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, _, value = word.partition("=")
            values[name] = value
        else:
            values[name] = f"{values.get(name, '')} {word}".strip()
    return {name: value for name, value in values.items() if name not in MAY_DIFFER}


class Met(NamedTuple):
    """The outcome of a meeting for one process.

    Attributes:
        connections: They stay open until a process ends: of process 0 to all others, of another one
            to process 0.
        threads: The largest number of threads that any of them has, the same for all.
    """

    connections: list[socket.socket]
    threads: int


def meet(place: str, mine: Arrival, seconds: float) -> Met:
    """Waits until all processes of the run have come.

    Args:
        place: HOST:PORT of process 0.
        mine: This process.
        seconds: How long, at most.

    Returns:
        The connections to the others, and what all have agreed on.

    Raises:
        UserError: Where they do not come, or cannot make one run: on all of them.
    """
    host, _, port = place.rpartition(":")
    if not host or not port.isdigit():
        raise UserError(f"--coordinator {place} is no HOST:PORT, as host0:1234")
    if mine.process == 0:
        return _receive(int(port), mine, seconds)
    return _arrive(host.strip("[]"), int(port), mine, seconds)


def _receive(port: int, mine: Arrival, seconds: float) -> Met:
    """Process 0: waits for the others, and answers all at once."""
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
                        f"{port} within {seconds:g} s: start all with the same command, but for "
                        "--process-id; --join-seconds waits longer") from None
                theirs = _arrival(connection)
                if theirs is None:  # a scan of ports, as it may be
                    continue
                if theirs.process == 0 or theirs.process in _waiting(others):
                    _answer(connection, f"another process {theirs.process} has come to the run "
                                        "already; give each its own --process-id")
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
    """The processes that have come and still wait: the system closes the end of one that died."""
    return {process for process, connection in others.items() if _is_open(connection)}


def _is_open(connection: socket.socket) -> bool:
    """Whether the process at the other end of a connection lives; it has said all it has to."""
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
    """The process that has come; None for what is no process of a run."""
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
        raise UserError(f"port {port} of --coordinator cannot be used here ({error.strerror}), as "
                        "where another run has it: name another one") from error


def _require_alike(mine: Arrival, theirs: Arrival) -> None:
    """Refuses a process that was started for another run. Raises: UserError."""
    who = f"process {theirs.process} was started with"
    if theirs.processes != mine.processes:
        raise UserError(f"{who} --processes {theirs.processes}, and process 0 with "
                        f"{mine.processes}")
    if theirs.version != mine.version:
        raise UserError(f"process {theirs.process} has JAX {theirs.version}, and process 0 "
                        f"{mine.version}")
    differ = sorted(name for name in {**mine.flags, **theirs.flags}
                    if mine.flags.get(name) != theirs.flags.get(name))
    if differ:
        raise UserError(f"{who} another {', '.join(name or 'method' for name in differ)} than "
                        "process 0; start all with the same command, but for --process-id")


def _arrive(host: str, port: int, mine: Arrival, seconds: float) -> Met:
    """Another process: presents itself to process 0, and waits for its answer."""
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
                    f"what answers at --coordinator {place} does not wait for this process: the "
                    "run has begun without it, or was refused, or the port is another's; start "
                    "all processes together") from None
            if fault:
                raise UserError(fault)
            stack.pop_all()
            return Met([connection], threads)
    raise UserError(f"nobody answers at --coordinator {place} ({why}): start process 0 there, "
                    f"within {seconds:g} s; --join-seconds waits longer")


def _answer(connection: socket.socket, error: str, threads: int = 0) -> None:
    """Tells a process why it cannot begin, or with no error the number of threads that all have."""
    with contextlib.suppress(OSError):
        _send(connection, {"error": error, "threads": threads})


def _send(connection: socket.socket, content: dict[str, Any]) -> None:
    connection.sendall(json.dumps(content).encode() + b"\n")


def _read(connection: socket.socket) -> dict[str, Any]:
    """One line of JSON. Raises: OSError, ValueError."""
    with connection.makefile("rb") as file:
        line = file.readline(MOST_BYTES)
    content = json.loads(line)
    if not isinstance(content, dict):
        raise ValueError("no JSON object")
    return content
