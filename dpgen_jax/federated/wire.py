"""The socket between a client and the carrier of its messages: one request, one reply.

It is a Unix socket. Both messages are safetensors, so reading one executes no code. This module
needs neither JAX nor the records, and so neither does a relay: see `flower_client`.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from dpgen_jax.core.errors import UserError, option

MAX_BYTES = 2**31
PATIENCE = 60.0
"""Seconds within which a relay must have sent its request."""
ABOUT = "about"

About = dict[str, Any]
"""The header of a message, as JSON values."""
Arrays = dict[str, np.ndarray]
"""The arrays of a message, by name."""
Handler = Callable[[About, Arrays], tuple[About, Arrays]]
"""Makes the header and the arrays of a reply."""


def encode(about: About, arrays: Mapping[str, np.ndarray]) -> bytes:
    """Returns the bytes of a message."""
    note = np.frombuffer(json.dumps(about).encode(), np.uint8)
    return safetensors.numpy.save({ABOUT: note} | {
        f"array/{name}": np.asarray(array, order="C") for name, array in arrays.items()})


def decode(data: bytes) -> tuple[About, Arrays]:
    """Inverts `encode`.

    Raises:
        ValueError: The bytes are not from `encode`.
    """
    try:
        members = safetensors.numpy.load(data)
        about = json.loads(members.pop(ABOUT).tobytes())
        if not isinstance(about, dict):
            raise TypeError("not an object")
        return about, {name.removeprefix("array/"): array for name, array in members.items()}
    except Exception as error:  # exceptions of safetensors are not ValueErrors
        raise ValueError(f"not a message: {type(error).__name__}") from None


def request(path: Path, about: About, arrays: Mapping[str, np.ndarray]) -> tuple[About, Arrays]:
    """Sends a message to the socket of a client's own process and waits for its reply.

    Raises:
        UserError: No client listens.
    """
    with _socket() as link:
        try:
            link.connect(str(path))
            link.sendall(encode(about, arrays))
            link.shutdown(socket.SHUT_WR)
            return decode(_read(link))
        except (OSError, ValueError) as error:
            raise UserError(f"no client answers at {path} ({error}); start it with python -m "
                            "dpgen_jax.join") from None


def listen(path: Path, reply: Handler, ready: Callable[[], None] = lambda: None) -> None:
    """Answers requests one by one until the process is interrupted.

    The socket (mode 0660) is created again and removed at the end; `ready` is called once requests
    are accepted. A damaged or incomplete request is dropped.

    Raises:
        UserError: A socket cannot be created.
    """
    path.unlink(missing_ok=True)
    with _socket() as server:
        try:
            server.bind(str(path))
            os.chmod(path, 0o660)
        except OSError as error:
            raise UserError(f"{path} cannot be a socket ({error}); give a short {option('socket')} "
                            "on a local disk") from None
        server.listen()
        ready()
        try:
            while True:
                link, _ = server.accept()
                with link:
                    _serve(link, reply)
        finally:
            path.unlink(missing_ok=True)


def _socket() -> socket.socket:
    """Creates a Unix socket; the error on Windows names systems that have them."""
    if not hasattr(socket, "AF_UNIX"):
        raise UserError("a client of a federation needs Unix sockets, which Python supports on "
                        "Linux and macOS; on Windows run it in WSL")
    return socket.socket(socket.AF_UNIX)


def _serve(link: socket.socket, reply: Handler) -> None:
    try:
        link.settimeout(PATIENCE)
        link.sendall(encode(*reply(*decode(_read(link)))))
    except (OSError, ValueError):
        pass  # the relay is gone, or its request is damaged: it can ask for the same answer again


def _read(link: socket.socket) -> bytes:
    """Reads until the other side has sent everything."""
    data = bytearray()
    while part := link.recv(2**20):
        data += part
        if len(data) > MAX_BYTES:
            raise ValueError("too long")
    return bytes(data)
