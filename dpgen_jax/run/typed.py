"""The words that started a run: kept in its config.json, so that nobody types them again."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpgen_jax.core.config import from_json
from dpgen_jax.core.console import program
from dpgen_jax.core.data_options import DataOptions
from dpgen_jax.core.errors import UserError
from dpgen_jax.core.reading import exists
from dpgen_jax.core.strict_json import Json
from dpgen_jax.run.folder import RunFolder, read_json

PATHS = ("--schema", "--test-csv", "--class-names")
"""Flags whose value may be the path of a file."""
LOCAL = ("--out", "--resume", "--dry-run", "--coordinator", "--processes", "--process-id",
         "--join-seconds")
"""Flags that belong to one start, and not to the run."""


def kept(method: str, words: Sequence[str]) -> tuple[str, ...]:
    """Returns the words of a command as a run keeps them: its method first, and paths in full.

    Args:
        method: The name of the method.
        words: The flags, without the method.
    """
    flags = _by_flag(words)
    return (method, *(word for name, group in flags.items() if name not in LOCAL
                      for word in _in_full(name, group)))


def resumed(argv: Sequence[str]) -> list[str]:
    """Returns the arguments of a command, in which `--resume RUN` stands for those of that run.

    Args:
        argv: The arguments; what is stated beside RUN takes the place of what was stated then.

    Raises:
        UserError: As `words`.
    """
    argv = list(argv)
    at = next((i for i, word in enumerate(argv) if word.partition("=")[0] == "--resume"), None)
    if at is None:
        return argv
    root, length = argv[at].partition("=")[2], 1
    if not root and at + 1 < len(argv) and not argv[at + 1].startswith("-"):
        root, length = argv[at + 1], 2
    if not root:
        return argv
    rest = argv[:at] + argv[at + length:]
    method, *before = words(Path(root))
    if rest and not rest[0].startswith("-"):
        method, rest = rest[0], rest[1:]
    return [method, *merged(before, rest), "--resume", f"--out={root}"]


def next_steps(files: RunFolder, typed: Sequence[str], tested: bool) -> list[str]:
    """Returns the last lines of a run: where its samples are, and the command that measures them.

    Args:
        files: The run folder.
        typed: The words of the command; none from Python.
        tested: Whether records are held out.
    """
    if not typed:
        return []
    lines = [f"samples: {path}" for path in (files.release / "samples.png",
                                             files.release / "samples.csv") if path.is_file()]
    if tested:
        lines.append(f"measure it: {program('evaluate', files.root)} (--fast: in less time)")
    return lines


def words(root: Path) -> list[str]:
    """Returns the words by which a run was started, the method first.

    Args:
        root: The run folder.

    Raises:
        UserError: There is no run, or one that Python or an earlier version began.
    """
    files = RunFolder(root)
    if not files.config.is_file():
        raise UserError(f"{root} holds no run to resume (no config.json); name the folder of a run")
    typed = read_json(files.config).get("typed")
    if not (isinstance(typed, list) and typed and all(isinstance(word, str) for word in typed)):
        raise UserError(f"{root} does not say by which command it was started, as it was from "
                        "Python or by an earlier version: repeat that with resume, or --resume")
    if not files.answer.is_file() or files.waiting:
        return typed
    bought = [f"{flag}={path.absolute()}" for flag, path in (  # wherever they are now
        ("--schema", files.schema), ("--class-names", files.class_names)) if path.is_file()]
    return [typed[0], *merged(typed[1:], bought)]


def data_options(root: Path) -> Json:
    """Returns the options with which a run read its data; none where an earlier version began it.

    Args:
        root: A run folder.
    """
    options = read_json(RunFolder(root).config).get("data_options")
    return options if isinstance(options, dict) else {}


def as_read(options: DataOptions, known: Json, kind: str) -> DataOptions:
    """Returns options of a data set, in which those count that a run read it with.

    Args:
        options: Those that the user names now, which come first.
        known: As `data_options` returns them.
        kind: The kind of data set that is read now, such as "csv".

    Raises:
        UserError: What the run holds is damaged.
    """
    known = dict(known)
    if options.test_csv:  # the held-out part is this file
        known.pop("test_fraction", None)
    if known.pop("kind", None) != kind:
        return options
    read = from_json(DataOptions, known, "data_options")
    return dataclasses.replace(options, **{
        name: getattr(read, name) for name in known if getattr(options, name) is None})


def data_words(root: Path, options: Sequence[str]) -> list[str] | None:
    """Returns the flags by which a run read its data set; None where it does not say.

    Args:
        root: The run folder.
        options: The names of the options of data sets.
    """
    if not (root / "config.json").is_file() or "typed" not in read_json(root / "config.json"):
        return None
    flags = _by_flag(words(root)[1:])
    wanted = {"--dataset", *(f"--{name.replace('_', '-')}" for name in options)}
    return [word for name, group in flags.items() if name in wanted for word in group]


def merged(before: Sequence[str], now: Sequence[str]) -> list[str]:
    """Returns the words of a command, where those of now take the place of earlier ones.

    Args:
        before: Flags and their values.
        now: Likewise, behind words that are no flags; all of them stay, also of a flag that is
            given several times.
    """
    flags = next((i for i, word in enumerate(now) if word.startswith("--")), len(now))
    return [*now[:flags], *without(before, list(_by_flag(now))), *now[flags:]]


def without(words: Sequence[str], names: Sequence[str]) -> list[str]:
    """Returns the words of a command without some flags and their values.

    Args:
        words: Flags and their values.
        names: The flags to leave out, with their dashes.
    """
    return [word for name, group in _by_flag(words).items() if name not in names
            for word in group]


def _by_flag(words: Sequence[str]) -> dict[str, list[str]]:
    """The words of each flag, by its name with dashes; a flag that comes twice counts once."""
    flags: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name = word.partition("=")[0].replace("_", "-")
            flags[name] = []
        flags.setdefault(name, []).append(word)
    return flags


def _in_full(name: str, group: list[str]) -> list[str]:
    """The words of a flag, in which the path of what exists here is a full one."""
    if name not in ("--dataset", *PATHS):
        return group
    value: Any = group[0].partition("=")[2] or (group[1] if len(group) > 1 else "")
    kind, colon, place = value.partition(":") if name == "--dataset" else ("", "", value)
    if place and not Path(place).is_absolute() and exists(place):
        value = f"{kind}{colon}{Path(place).resolve()}"
    return [f"{name}={value}"]
