"""How the folder of a run is made, and gone on with: nothing is overwritten, no meaning changes."""

from __future__ import annotations

import secrets
from pathlib import Path

from dpgen_jax.core import storage
from dpgen_jax.core.atomic import sync
from dpgen_jax.core.config import Runtime
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import UserError
from dpgen_jax.run.folder import MEANING, RunFolder, environment, go_on, read_json, write_json

# What a resume may not change. The seed is one of them: noise of a seeded run has no privacy claim.
FIXED = (*MEANING, "seed", "data_notes", "judged_by")


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
    before = read_json(folder.config)
    if changes := _changes(before, config):
        unknown = [name for name, _, _ in changes if name.startswith("config.")
                   and name.split(".")[1] not in (before.get("config") or {})]
        if unknown:
            raise UserError(f"{root} was begun by another version, without {', '.join(unknown)}; "
                            "go on with that version, or start a new run with another --out")
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


Change = tuple[str, object, object]
"""the name of a field, its value when the run began, and its value now"""


def _changes(before: Json, now: Json) -> list[Change]:
    changes = [change for name in FIXED
               for change in _differences(name, before.get(name), now.get(name))]
    # Speed may change, but not the form in which the checkpoints hold the moments, nor the
    # precision in which units answer. Runs of versions without a choice had the default.
    for name in ("moments", "compute"):
        changes += _differences(f"runtime.{name}", *(
            (config.get("runtime") or {}).get(name, getattr(Runtime, name))
            for config in (before, now)))
    # A choice that was made by private records stays made.
    changes += _differences("not_covered", list(before.get("not_covered") or ()),
                            list(now.get("not_covered") or ()))
    if before.get("class_names"):  # older versions wrote none, or not those of public data
        changes += _differences("class_names", before["class_names"], now.get("class_names"))
    return changes


def _differences(name: str, before: object, now: object) -> list[Change]:
    if isinstance(before, dict) and isinstance(now, dict):
        return [change for key in sorted(before.keys() | now.keys())
                for change in _differences(f"{name}.{key}", before.get(key), now.get(key))]
    return [] if before == now else [(name, before, now)]
