"""The run folder of interface.md: what lies where, and what may not be overwritten."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from dpgen_jax.types import UserError
from dpgen_jax.version import __version__

# These decide what is computed and what it costs; the ledger's header holds their hash.
MEANING = ("method", "dataset", "spec", "config", "budget", "records")
# What a resume may not change. The seed is one of them: noise of a seeded run has no privacy claim.
FIXED = (*MEANING, "seed", "data_notes")


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """DIR/{config.json, ledger.jsonl, metrics.jsonl, private/, release/}, and class_counts.json
    where those were bought."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "config.json"

    @property
    def ledger(self) -> Path:
        return self.root / "ledger.jsonl"

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.jsonl"

    @property
    def private(self) -> Path:
        return self.root / "private"

    @property
    def identity(self) -> Path:
        return self.private / "identity.json"

    @property
    def checkpoints(self) -> Path:
        return self.private / "checkpoints"

    @property
    def votes(self) -> Path:
        return self.private / "votes.i4"

    @property
    def class_counts(self) -> Path:
        return self.root / "class_counts.json"

    @property
    def release(self) -> Path:
        return self.root / "release"


def default_root(method: str, dataset: str) -> Path:
    """runs/METHOD-DATASET-TIME."""
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{method}-{dataset}-{now}"


def create(root: Path, config: dict[str, Any]) -> RunFolder:
    """A new run. Errors: UserError when the folder holds anything, which is left untouched."""
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        held = "a run" if (root / "config.json").exists() else "other files"
        raise UserError(f"{root} holds {held}; pass --resume to go on with a run, "
                        "or another --out")
    folder = RunFolder(root)
    folder.root.mkdir(parents=True, exist_ok=True)
    sync(folder.root.absolute().parent)
    folder.private.mkdir(mode=0o700)
    write_json(folder.config, config | environment())
    return folder


def reopen(root: Path, config: dict[str, Any]) -> RunFolder:
    """An existing run to go on with.

    Errors: UserError when there is none, or when a field that decides the meaning of the run
    differs; the message lists the differences.
    """
    folder = RunFolder(root)
    if not folder.config.is_file():
        raise UserError(f"{root} holds no run to resume (no config.json); leave out --resume")
    before = read_json(folder.config)
    changes = [change for name in FIXED for change in _differences(
        name, before.get(name), config.get(name))]
    # Speed may change, except for the form in which the checkpoints hold the moments.
    changes += _differences("runtime.moments", *(
        held.get("runtime", {}).get("moments") for held in (before, config)))
    if changes:
        raise UserError(f"{root} was started with another configuration: {'; '.join(changes)}. "
                        "Repeat the first command to resume, or start a new run with another --out")
    return folder


def _differences(name: str, before: Any, now: Any) -> list[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        return [change for key in sorted(before.keys() | now.keys())
                for change in _differences(f"{name}.{key}", before.get(key), now.get(key))]
    return [] if before == now else [f"{name} was {before}, now {now}"]


def environment() -> dict[str, Any]:
    """Versions and the git hash of the code, for config.json and benchmark results."""
    packages = ("jax", "jaxlib", "flax", "optax", "numpy", "dp-accounting")
    here = Path(__file__).resolve().parent
    git = subprocess.run(["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True,
                         text=True, check=False) if (here.parents[1] / ".git").exists() else None
    return {
        "versions": {"dpgen_jax": __version__, "python": platform.python_version()}
        | {name: metadata.version(name) for name in packages},
        "git": git.stdout.strip() or None if git else None,
    }


def write_json(path: Path, value: Any, mode: int = 0o644) -> None:
    """Writes whole or not at all; on disk, name and all, when the call returns."""
    temporary = path.with_name(path.name + ".tmp")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as out:
        json.dump(value, out, indent=1, allow_nan=False)
        out.write("\n")
        out.flush()
        os.fsync(out.fileno())
    os.replace(temporary, path)
    sync(path.parent)


def sync(folder: Path) -> None:
    """Makes the names in a folder durable: a new file's, or those that were exchanged."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: Path) -> dict[str, Any]:
    """Errors: UserError naming the file when it is missing or no JSON object."""
    try:
        value = json.loads(path.read_text())
        if not isinstance(value, dict):
            raise ValueError("no JSON object")
        return value
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}") from error
