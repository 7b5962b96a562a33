"""The methods of this library that take tables, and the peers that they are compared with.

No setting is chosen on the tables of this benchmark. Ours run with the preset that a CSV file gets,
or where none is for tables with the one that is named here; peers with their defaults. What depends
on the table below depends on public numbers alone: its rows and the width of its encoding.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import common
from dpgen_jax.core.errors import UserError, nearest
from dpgen_jax.data.base import Dataset

# Processes that are timed and bounded: a row's own training, in this library or in a peer.

@dataclasses.dataclass(frozen=True)
class Spent:
    """The time that a process took, and the most memory that it held."""

    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int

    def plus(self, other: Spent) -> Spent:
        """Return what two processes took, one after the other."""
        return Spent(self.wall_seconds + other.wall_seconds, self.cpu_seconds + other.cpu_seconds,
                     max(self.peak_bytes, other.peak_bytes))


class Failed(Exception):
    """A process failed; the text is one line that says why."""


def timed(command: Sequence[str], log: Path, limit: int, env: Mapping[str, str] | None = None
          ) -> Spent:
    import resource  # which POSIX alone has: rows are made elsewhere too, and not run

    started = time.perf_counter()
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 10)))
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
        process.returncode = code = os.waitstatus_to_exitcode(status)
    cpu = usage.ru_utime + usage.ru_stime
    if code:
        stopped = cpu >= limit or code == -signal.SIGXCPU
        raise Failed(f"more than {limit:,} CPU seconds" if stopped else last_line(log, code))
    return Spent(time.perf_counter() - started, cpu, usage.ru_maxrss * 1024)


def last_line(log: Path, code: int) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return (lines or [f"ended with exit code {code}"])[-1][:300]


@dataclasses.dataclass(frozen=True)
class Peer:
    """A package that is installed into an environment of its own."""

    requirements: tuple[str, ...]
    program: str
    options: dict[str, str | int]
    relation: str
    reads: str
    note: str = ""
    pip: tuple[str, ...] = ()

    @property
    def environment(self) -> str:
        """The name of its environment's folder."""
        return self.requirements[0].replace("==", "-")


def _option(text: str) -> str | int:
    return int(text) if text.isdigit() else text


PEERS = {name: Peer(**entry | {
    "requirements": tuple(entry["requirements"]), "pip": tuple(entry.get("pip", ())),
    "options": {key: _option(text) for key, text in entry.get("options", {}).items()}})
    for name, entry in common.read_yaml(__file__, "peers.yaml").items()}
"""Name -> the peer. Dependencies of SmartNoise are listed without opacus and torch, gigabytes
that MST and AIM do not use."""
UNTRIED = {
    "smartnoise-synth 1.0.8: DPCTGAN, PATECTGAN, DPGAN, PATEGAN":
        "need opacus and torch, gigabytes that were not fetched",
    "synthcity 0.2.12": "needs torch below 2.3, and packages that exist only as source",
    "dpart 0.1.2": "pins NumPy 1.22.3, which has no wheel for the Python here",
}
"""Peers that have no program here -> why."""


# Environments of peers: each has a folder in a cache, and nothing of them is a dependency here.

def cache() -> Path:
    """Return the folder of all environments, which the variable DPGEN_PEERS may name."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "dpgen_jax" / "peers"
    return Path(os.environ.get("DPGEN_PEERS") or default).expanduser()


def python(peer: Peer) -> Path:
    """Return the interpreter of a peer's environment, which is made where it is not there.

    What could not be installed is not tried again until its requirements change, or its folder is
    removed.
    """
    folder = cache() / peer.environment
    state, venv = folder / "state.json", folder / "venv"
    wanted = [*peer.requirements, *peer.pip]
    known = json.loads(state.read_text()) if state.exists() else {}
    if known.get("wanted") != wanted:
        folder.mkdir(parents=True, exist_ok=True)
        known = {"wanted": wanted, "error": _install(venv, folder / "pip.log", wanted)}
        state.write_text(json.dumps(known))
    if known["error"]:
        raise Failed(f"cannot be installed: {known['error']}")
    return venv / "bin" / "python"


def _install(venv: Path, log: Path, wanted: list[str]) -> str | None:
    """Make an environment; return why it could not be made, or None."""
    commands = ([sys.executable, "-m", "venv", "--clear", str(venv)],
                [str(venv / "bin" / "python"), "-m", "pip", "install", "--no-input",
                 "--disable-pip-version-check", "--only-binary=:all:", *wanted])
    for command in commands:
        with open(log, "ab") as output:
            code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT).returncode
        if code:
            lines = log.read_text(errors="replace").splitlines()
            errors = [line for line in lines if line.startswith("ERROR")]
            return (errors or lines or ["no message"])[-1][:300]
    return None


def versions(peer: Peer) -> dict[str, str]:
    """Return the versions of all packages in a peer's environment."""
    command = [str(python(peer)), "-m", "pip", "list", "--format=json",
               "--disable-pip-version-check"]
    listed = subprocess.run(command, capture_output=True, text=True)
    return {row["name"]: row["version"] for row in json.loads(listed.stdout or "[]")}


Flags = Callable[[Dataset], list[str]]
UNPAID = "the number of rows"
"""The fact that a method of this library takes for public, beside the schema."""


def _teachers(dataset: Dataset) -> list[str]:
    """Return as many teachers as rows where the preset has more."""
    return ["--teachers", str(min(400, len(dataset.y_train)))]


def _datalens(dataset: Dataset) -> list[str]:
    """Return G-PATE's numbers of teachers and steps; a vote for an eighth of the features."""
    return [*_teachers(dataset), "--preset", "glyphs", "--batch", "32", "--steps", "50", "--top-k",
            str(max(1, dataset.spec.shape[0] // 8)), "--class-epsilon", "0.01"]


def _dpsgd(dataset: Dataset) -> list[str]:
    rows = min(600, len(dataset.y_train) // 2)
    return ["--preset", "glyphs", "--batch", str(rows), "--class-epsilon", "0.01"]


OURS: dict[str, Flags] = {
    "marginals": lambda dataset: [],
    "gpate": _teachers,
    "pategan": _teachers,
    "datalens": _datalens,
    "dpmerf": lambda dataset: [],
    "dpgan": _dpsgd,
    "dpcgan": _dpsgd,
    "dpsinkhorn": lambda dataset: ["--teachers", str(min(200, len(dataset.y_train))),
                                   "--class-epsilon", "0.01"],
}
"""Name -> the flags of `dpgen_jax.train`, beside the data, the budget and the run folder; the
preset is `table` where no other is named."""


@dataclasses.dataclass(frozen=True)
class Method:
    """A row of the comparison.

    Attributes:
      name: A name of `OURS`, with further flags behind it, or of `PEERS`; "real" for real rows.
      peer: The peer, or None.
      flags: Flags of `dpgen_jax.train` for a table; None for a peer and for real rows.
    """

    name: str
    peer: Peer | None = None
    flags: Flags | None = None

    @property
    def slug(self) -> str:
        """The name as a part of a file's name."""
        return "-".join(self.name.replace("=", " ").replace("--", "").split())


def find(text: str) -> Method:
    """Find a method.

    Args:
      text: "real", a name of `PEERS`, or one of `OURS`, with flags behind it if they are wanted:
        "marginals --model=tree".
    """
    name, *further = shlex.split(text)
    if name == "real" and not further:
        return Method("real")
    if name in PEERS and not further:
        return Method(name, peer=PEERS[name])
    if name in OURS:
        ours = OURS[name]
        return Method(" ".join([name, *further]), flags=lambda dataset: [*ours(dataset), *further])
    known = ("real", *OURS, *PEERS)
    raise UserError(f"unknown method {text!r}{nearest(name, known)}; known: {', '.join(known)}")
