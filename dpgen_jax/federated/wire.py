"""Between a client and whatever carries its messages: one request and one reply over a Unix socket.

Both are safetensors, so nothing that is read here can run anything. This file needs neither JAX
nor the records, and so neither does a relay: see `flower_client`.
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

from dpgen_jax.errors import UserError

MOST_BYTES = 2**31
PATIENCE = 60.0
"""seconds within which a relay must have sent what it has to say"""
ABOUT = "about"

About = dict[str, Any]
Arrays = dict[str, np.ndarray]


def encode(about: About, arrays: Mapping[str, np.ndarray]) -> bytes:
    note = np.frombuffer(json.dumps(about).encode(), np.uint8)
    return safetensors.numpy.save({ABOUT: note} | {
        f"array/{name}": np.asarray(array, order="C") for name, array in arrays.items()})


def decode(data: bytes) -> tuple[About, Arrays]:
    """Errors: ValueError for anything that `encode` does not write."""
    try:
        held = safetensors.numpy.load(data)
        about = json.loads(held.pop(ABOUT).tobytes())
        if not isinstance(about, dict):
            raise TypeError("not an object")
        return about, {name.removeprefix("array/"): array for name, array in held.items()}
    except Exception as error:  # safetensors has exceptions of its own, none of them a ValueError
        raise ValueError(f"not a message: {type(error).__name__}") from None


def request(path: Path, about: About, arrays: Mapping[str, np.ndarray]) -> tuple[About, Arrays]:
    """What the client behind this socket replies. Errors: UserError where nobody listens."""
    with socket.socket(socket.AF_UNIX) as link:
        try:
            link.connect(str(path))
            link.sendall(encode(about, arrays))
            link.shutdown(socket.SHUT_WR)
            return decode(_read(link))
        except (OSError, ValueError) as error:
            raise UserError(f"no client answers at {path} ({error}); start it with python -m "
                            "dpgen_jax.join") from None


def listen(path: Path, reply: Callable[[About, Arrays], tuple[About, Arrays]],
           ready: Callable[[], None] = lambda: None) -> None:
    """Answers one request after the other, until the process is interrupted.

    The socket (mode 0660) is made anew and removed at the end. A request that is damaged, or does
    not come to its end, is dropped. Errors: UserError where there can be no socket.
    """
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.bind(str(path))
            os.chmod(path, 0o660)
        except OSError as error:
            raise UserError(f"{path} cannot be a socket ({error}); give a short --socket on a "
                            "local disk") from None
        server.listen()
        ready()
        try:
            while True:
                link, _ = server.accept()
                with link:
                    _serve(link, reply)
        finally:
            path.unlink(missing_ok=True)


def _serve(link: socket.socket, reply: Callable) -> None:
    try:
        link.settimeout(PATIENCE)
        asked = decode(_read(link))
        link.sendall(encode(*reply(*asked)))
    except (OSError, ValueError):
        pass  # the relay is gone, or talks nonsense: what was answered can be asked for again


def _read(link: socket.socket) -> bytes:
    data = bytearray()
    while part := link.recv(2**20):
        data += part
        if len(data) > MOST_BYTES:
            raise ValueError("too long")
    return bytes(data)
