"""The run folder: what lies where, and what may not be overwritten."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import platform
import re
import secrets
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from dpgen_jax.core import reading, storage
from dpgen_jax.core.atomic import sync
from dpgen_jax.core.console import program
from dpgen_jax.core.strict_json import Json, parse_json
from dpgen_jax.core.types import UserError
from dpgen_jax.version import __version__

# They decide what is computed and what it costs; the ledger's header holds their hash.
MEANING = ("method", "dataset", "spec", "config", "budget", "records", "unit")
# What a resume may not change. The seed is one of them: noise of a seeded run has no privacy claim.
FIXED = (*MEANING, "seed", "data_notes", "judged_by")


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """DIR/{config.json, ledger.jsonl, metrics.jsonl, private/, release/}.

    There is also class_counts.json where those were bought, and schema.yaml with purchase.json
    where what nobody declared was.

    Attributes:
        root: The folder.
    """

    root: Path

    @property
    def config(self) -> Path:
        """The configuration of the run."""
        return self.root / "config.json"

    @property
    def ledger(self) -> Path:
        """The ledger of the run."""
        return self.root / "ledger.jsonl"

    @property
    def metrics(self) -> Path:
        """The public metrics, a line for each block of steps."""
        return self.root / "metrics.jsonl"

    @property
    def private(self) -> Path:
        """The folder that only its owner may open."""
        return self.root / "private"

    @property
    def identity(self) -> Path:
        """The key by which the records are dealt, and their fingerprint."""
        return self.private / "identity.json"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.private / "checkpoints"

    @property
    def best(self) -> Path:
        """The best generator so far, of a run that keeps it."""
        return self.private / "best.safetensors"

    @property
    def votes(self) -> Path:
        """The sums of votes that the data holder keeps, of methods that have them."""
        return self.private / "votes.i4"

    @property
    def noise_digests(self) -> Path:
        """Keyed digests of the random bits of each round."""
        return self.private / "noise_digests.txt"

    @property
    def released(self) -> Path:
        """The digests of the generator that was released, and of its statement."""
        return self.private / "released.json"

    @property
    def class_counts(self) -> Path:
        """The noisy class counts that were bought."""
        return self.root / "class_counts.json"

    @property
    def schema(self) -> Path:
        """The schema that was bought, or read from the records."""
        return self.root / "schema.yaml"

    @property
    def answer(self) -> Path:
        """The flags that a purchase came to; where it is there, nothing is bought again."""
        return self.root / "purchase.json"

    @property
    def waiting(self) -> bool:
        """Whether the run has begun with a purchase, and its configuration is not complete."""
        return self.config.is_file() and "spec" not in read_json(self.config) and (
            "purchase" in read_json(self.config))

    @property
    def release(self) -> Path:
        """The release: all that may be shared."""
        return self.root / "release"

    def run_id(self) -> str:
        """Returns the random id of the run, 32 hex digits.

        The ledger, private/ and the journal name the run by it. It is empty in a folder without a
        config.json.

        Raises:
            UserError: Where config.json does not say it.
        """
        if not self.config.exists():
            return ""
        identity = read_json(self.config).get("run")
        if not (isinstance(identity, str) and re.fullmatch("[0-9a-f]{32}", identity)):
            raise UserError(f"{self.config} does not say which run it is of, as that of an earlier "
                            "version: start a new run, whose epsilon adds to this one's")
        return identity

    def unused(self) -> bool:
        """Whether there is nothing but what `create` makes before config.json is there."""
        begun = _names(self.root) - {"private", "config.json.tmp"}
        return not begun and not _names(self.private)

    def traces(self) -> list[str]:
        """Returns the paths in the folder of what a run makes after its ledger.

        In this order a first start makes private/, config.json, private/identity.json and the
        ledger, each whole or not at all but for the ledger's header; then it may charge, and then
        draw. So where there is anything else, something may have been drawn.
        """
        before = {"config.json", "config.json.tmp", "private", self.ledger.name, "audit",
                  f"{self.ledger.name}.lock",  # on Windows
                  *(name + end for name in (self.schema.name, self.answer.name)
                    for end in ("", ".tmp"))}
        known = {self.identity.name, self.identity.name + ".tmp"}
        return sorted([*(_names(self.root) - before),
                       *(f"private/{name}" for name in _names(self.private) - known)])


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def default_root(method: str, dataset: str) -> Path:
    """runs/METHOD-DATASET-TIME."""
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{method}-{dataset}-{now}"


def existing(root: Path) -> RunFolder:
    """The folder of a run. Raises: UserError: It holds neither config.json nor ledger.jsonl."""
    if (files := RunFolder(root)).config.exists() or files.ledger.exists():
        return files
    raise UserError(f"{root} is no folder of a run; name the one that the training printed")


def refuse_used(root: Path) -> None:
    """Refuses a folder for a new run that holds anything, or is no folder of a disk.

    Raises:
        UserError: For such a folder.
    """
    storage.refuse_remote(root)
    if root.exists() and not (root.is_dir() and RunFolder(root).unused()):
        contents = "a run" if (root / "config.json").exists() else "other files"
        resumed = f"go on with it: {go_on(root)}, or " * (contents == "a run")
        raise UserError(f"{root} holds {contents}; {resumed}name another --out")


def create(root: Path, config: Json) -> RunFolder:
    """A new run.

    Raises:
        UserError: When the folder holds anything, which is left untouched; what another start left
            that was killed before it wrote config.json is nothing.
    """
    folder = RunFolder(root)
    refuse_used(root)
    folder.root.mkdir(parents=True, exist_ok=True)
    sync(folder.root.absolute().parent)
    folder.private.mkdir(mode=0o700, exist_ok=True)
    write_json(folder.config, config | {"run": secrets.token_hex(16)} | environment())
    return folder


def opened(root: Path, config: Json, resume: bool) -> RunFolder:
    """A new run, one to go on with, or one that has begun with a purchase. Raises: as both."""
    folder = RunFolder(root)
    if not folder.waiting:
        return (reopen if resume else create)(root, config)
    before = read_json(folder.config)
    write_json(folder.config, config | {"run": folder.run_id(), "purchase": before["purchase"]}
               | environment())
    return folder


def reopen(root: Path, config: Json) -> RunFolder:
    """An existing run to go on with.

    Raises:
        UserError: When there is none, or when a field that decides the meaning of the run differs;
            the message lists the differences.
    """
    folder = RunFolder(root)
    if not folder.config.is_file():
        raise UserError(f"{root} holds no run to resume (no config.json); leave out --resume")
    both = before, config = read_json(folder.config), config
    changes = [change for name in FIXED for change in _differences(
        name, before.get(name), config.get(name))]
    # Speed may change, but not the form in which the checkpoints hold the moments.
    changes += _differences("runtime.moments", *(
        row.get("runtime", {}).get("moments") for row in both))
    # A choice that was made by private records stays made.
    changes += _differences("not_covered", *(list(row.get("not_covered") or ()) for row in both))
    if before.get("class_names"):  # older versions wrote none, or not those of public data
        changes += _differences("class_names", *(row.get("class_names") for row in both))
    if changes:
        said = "; ".join(f"{name} was {then}, now {now}" for name, then, now in changes)
        # Another version may have another default, which --resume alone would take again.
        fields = [(name.removeprefix("config.").replace("_", "-"), then)
                  for name, then, _ in changes if name.startswith("config.")]
        words = [word for name, then in fields for word in (f"--{name}", f"{then}")
                 if len(fields) == len(changes) and "sigma" not in dict(fields)]
        raise UserError(f"{root} was started with another configuration: {said}. Go on with it as "
                        f"it was: {go_on(root, *words)}; or start a new run with another --out")
    folder.private.mkdir(mode=0o700, exist_ok=True)
    folder.private.chmod(0o700)  # a copy may be open to others
    return folder


def go_on(root: Path, *words: str) -> str:
    """Returns how a run is gone on with: a command, where it was started by one, with `words`."""
    try:
        typed = read_json(RunFolder(root).config).get("typed")
    except UserError:
        typed = None
    return program("train", "--resume", root, *words) if typed else (
        "repeat its first call with resume")


def _differences(name: str, before: Any, now: Any) -> list[tuple[str, Any, Any]]:
    if isinstance(before, dict) and isinstance(now, dict):
        return [change for key in sorted(before.keys() | now.keys())
                for change in _differences(f"{name}.{key}", before.get(key), now.get(key))]
    return [] if before == now else [(name, before, now)]


def environment() -> Json:
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


def write_json(path: Path, value: object, mode: int = 0o644) -> None:
    """Writes whole or not at all; on disk, name and all, when the call returns."""
    temporary = path.with_name(path.name + ".tmp")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as out:
        json.dump(value, out, indent=1, allow_nan=False)
        out.write("\n")
        out.flush()
        os.fsync(out.fileno())
    os.replace(temporary, path)
    sync(path.parent)


def read_json(path: Path) -> Json:
    """A JSON object, as `strict_json.parse_json` reads it.

    Raises:
        UserError: Naming the file when it is missing, no regular file, or no such object.
    """
    data = reading.read_bytes(path, reading.JSON_BYTES)
    try:
        return parse_json(data)
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}") from error
