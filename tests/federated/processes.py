"""A federation of real processes on loopback, with TLS; all of them are gone at the end."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

BIN = Path(sys.executable).parent
LOCALHOST = "127.0.0.1"


def certificates(folder: Path) -> None:
    """ca.pem, and server.pem with server.key for the loopback address, signed by it."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, n)]) for n in ("ca", "server")]
    now = datetime.datetime.now(datetime.UTC)

    def certificate(i, extension, critical):
        return (x509.CertificateBuilder().subject_name(names[i]).issuer_name(names[0])
                .public_key(keys[i].public_key()).serial_number(x509.random_serial_number())
                .not_valid_before(now - datetime.timedelta(minutes=5))
                .not_valid_after(now + datetime.timedelta(days=1))
                .add_extension(extension, critical).sign(keys[0], hashes.SHA256()))

    def write(name, content):
        (folder / name).write_bytes(content)

    pem = serialization.Encoding.PEM
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(LOCALHOST))])
    write("ca.pem", certificate(0, x509.BasicConstraints(True, None), True).public_bytes(pem))
    write("server.pem", certificate(1, address, False).public_bytes(pem))
    write("server.key", keys[1].private_bytes(pem, serialization.PrivateFormat.PKCS8,
                                              serialization.NoEncryption()))


SECONDS = 1800
"""for which a process that hangs is waited for; nothing else depends on time"""


class Federation:
    """Processes, each with a group of its own and its output in NAME.log; a context manager."""

    def __init__(self, root: Path):
        self.root, self.running, self._ports = root, {}, []
        self.port = self._free_port()
        self.environment = os.environ | {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "FLWR_HOME": str(root / "flower"),
            "JAX_NUM_CPU_DEVICES": "1", "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1"}
        certificates(root)
        (root / "flower").mkdir()
        (root / "flower/config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "{LOCALHOST}:{self.port}"'
            f'\nroot-certificates = "{root}/ca.pem"\n')

    def __enter__(self) -> Federation:
        return self

    def __exit__(self, *_) -> None:
        for name in list(self.running):
            self.stop(name)
        for holder in self._ports:
            holder.close()

    def _free_port(self) -> int:
        """Kept from all others by a socket that does not listen, so that a server that sets
        SO_REUSEADDR, as servers do, may bind it too."""
        holder = socket.socket()
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((LOCALHOST, 0))
        self._ports.append(holder)
        return holder.getsockname()[1]

    def start(self, name: str, command: str, *words) -> None:
        with (self.root / f"{name}.log").open("w") as log:
            self.running[name] = subprocess.Popen(
                [BIN / command, *map(str, words)], cwd=self.root, env=self.environment,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def stop(self, name: str) -> None:
        """Asks the process to end, and kills its group if it does not."""
        process = self.running.pop(name)
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(SECONDS)

    def superlink(self) -> None:
        self.start("superlink", "flower-superlink", "--host", LOCALHOST, "--port", self.port,
                   "--ssl-ca-certfile", "ca.pem", "--ssl-certfile", "server.pem",
                   "--ssl-keyfile", "server.key", "--disable-runtime-dependency-installation")
        self.wait_for(self._listens, "a SuperLink that listens")

    def _listens(self) -> bool:
        with socket.socket() as link:
            return link.connect_ex((LOCALHOST, self.port)) == 0

    def supernode(self, name: str, config: str) -> None:
        self.start(name, "flower-supernode", "--superlink", f"{LOCALHOST}:{self.port}",
                   "--root-certificates", "ca.pem", "--port", self._free_port(),
                   "--node-config", config)

    def wait_for(self, done: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
        """Until it is done; fails with what the processes said where one of them ends before."""
        end = time.monotonic() + seconds
        while not done():
            ended = [name for name, process in self.running.items() if process.poll() is not None]
            assert not ended, f"{ended[0]} ended before {what}: {self.log(ended[0])[-3000:]}"
            assert time.monotonic() < end, f"no {what} within {seconds} s"
            time.sleep(0.1)

    def log(self, name: str) -> str:
        return (self.root / f"{name}.log").read_text()
