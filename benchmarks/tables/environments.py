"""Environments of peers: each has a folder in a cache, and nothing of them is a dependency here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.tables.methods import Peer
from benchmarks.tables.process import Failed


def cache() -> Path:
    """Return the folder of all environments, which the variable DPGEN_PEERS may name."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "dpgen_jax" / "peers"
    return Path(os.environ.get("DPGEN_PEERS") or default).expanduser()


def python(peer: Peer) -> Path:
    """Return the interpreter of a peer's environment, which is made where it is not there.

    What could not be installed is not tried again until its requirements change, or its folder is
    removed.

    Args:
      peer: The peer.

    Returns:
      The interpreter.

    Raises:
      Failed: The packages could not be installed; pip.log in the folder says more.
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
    """Return the versions of all packages in a peer's environment.

    Args:
      peer: The peer.

    Raises:
      Failed: As `python`.
    """
    command = [str(python(peer)), "-m", "pip", "list", "--format=json",
               "--disable-pip-version-check"]
    listed = subprocess.run(command, capture_output=True, text=True)
    return {row["name"]: row["version"] for row in json.loads(listed.stdout or "[]")}
