"""The end of a run of several processes: all end, by the same exit code, and none waits for others.

The others wait for orders of the process that leads (`core.hosts`). It tells them the end where it
can; where a process cannot, it ends at once, and a broken connection tells them. That of the
process that leads is noticed by a thread of each other one: JAX's own runtime, which the leader
serves, would end them with its stack trace.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator

from dpgen_jax.core import hosts
from dpgen_jax.core.console import tell
from dpgen_jax.core.errors import UserError, one_line

PATIENCE = 5.0
"""Seconds that the process that leads waits for the others, once it has sent them its exit code."""
GONE = ("another process has ended, or cannot be reached; its own last line says why. What was "
        "charged stays charged; `--resume` goes on, with any number of processes")


@contextlib.contextmanager
def leading(code: Callable[[], int]) -> Iterator[None]:
    """Tells the others, who wait for orders, that the run has ended, and with what exit code.

    Args:
        code: The exit code of a run that ends without an error.
    """
    hosts.Team.signal, hosts.Team.ended = None, False
    try:
        yield
    except (UserError, OSError, SystemExit) as error:
        with contextlib.suppress(Exception):  # one that has ended does not hide the reason
            _end(_exit_code(error))
        raise
    try:
        _end(code())
    except Exception:
        tell("warning: another process ended before it heard that the run is done; what this one "
              "wrote is whole", sys.stderr)
        end_at_once(code())


def end_at_once(code: int) -> None:
    """Ends this process where it is one of several; a single one goes on.

    In the middle of what all do together the others hear no order. The process that leads sends
    them its exit code on the connections of their meeting; of another, a broken one tells them.

    Args:
        code: The exit code.
    """
    if hosts.count() > 1:
        _tell_code(code)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _end(code: int) -> None:
    hosts.tell(hosts.END, {"code": code})
    hosts.Team.ended = True


def _exit_code(error: BaseException) -> int:
    """The exit code of a command that ends with this error, as `cli.main` has it."""
    if isinstance(error, KeyboardInterrupt):
        return 130
    if isinstance(error, OSError):
        return UserError.exit_code
    code = getattr(error, "exit_code", getattr(error, "code", 1))
    return 0 if code is None else code if isinstance(code, int) else 1


@contextlib.contextmanager
def alive() -> Iterator[None]:
    """Ends this process at once where it fails and the others do not know, who wait for it.

    Leaving politely, it would wait for minutes for others that wait for it; a broken connection
    tells them. Where the process that leads is gone, the others end with a line.
    """
    if not hosts.leads() and hosts.Team.connections:
        threading.Thread(target=_watch, args=hosts.Team.connections, daemon=True).start()
    try:
        yield
        _meet_at_the_end()
    except BaseException as error:
        if hosts.count() == 1:
            raise
        if hosts.Team.ended:
            _leave()
            raise
        if isinstance(error, UserError | OSError):
            tell(f"error: {one_line(error)}", sys.stderr)
        elif isinstance(error, KeyboardInterrupt):
            tell("interrupted", sys.stderr)
        elif _is_connection(error):
            tell(f"error: {GONE}", sys.stderr)
        elif not isinstance(error, SystemExit):
            traceback.print_exc()
        end_at_once(_exit_code(error))
    _leave()


def _meet_at_the_end() -> None:
    """Waits until all are done, of processes that no order has ended, as of a rehearsal.

    Until then `_watch` ends this one where the process that leads fails.
    """
    if hosts.Team.ended or hosts.count() == 1:
        return
    if hosts.leads():
        _end(0)
    else:
        hosts.hear()


def _watch(leader: socket.socket) -> None:
    """Waits until the process that leads has ended; then this one ends too, by its exit code."""
    leader.settimeout(None)
    try:
        said = leader.recv(1)
    except OSError:  # a network that fails for a while: JAX's signs of life decide
        return
    if not hosts.Team.ended:
        tell(f"error: {GONE}", sys.stderr)
        end_at_once(said[0] if said else 1)


def _tell_code(code: int) -> None:
    """Tells the others, where this process leads, by what exit code it ends at once.

    It waits for them to end first: JAX's runtime, which this process serves, could else end them
    with its stack trace before they read the code.
    """
    others = hosts.Team.connections if hosts.leads() else ()
    for connection in others:
        with contextlib.suppress(OSError):
            connection.send(bytes([code % 256]))
    last = time.monotonic() + PATIENCE
    for connection in others:
        with contextlib.suppress(OSError):
            connection.settimeout(max(0.01, last - time.monotonic()))
            connection.recv(1)


def _leave() -> None:
    """Parts from the others, who know that the run has ended and are at the same point."""
    if hosts.count() > 1:
        import jax

        jax.distributed.shutdown()


def _is_connection(error: BaseException) -> bool:
    """Whether JAX lost another process, which it tells in errors of several kinds."""
    return (type(error).__name__ in ("JaxRuntimeError", "XlaRuntimeError")
            or "gloo" in str(error).lower())
