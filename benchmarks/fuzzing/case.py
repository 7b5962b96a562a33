"""A case: files and options for one reader, made by a source of choices.

The choices come from a `random.Random`: one of a seed in long runs, hypothesis's in tests, which
then looks for a smaller case by itself (`st.randoms`).
"""

from __future__ import annotations

import base64
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

FIFO, FOLDER, DEVICE, LOOP = "fifo", "folder", "device", "loop"
SPECIAL = (FIFO, FOLDER, DEVICE, LOOP)
"""what may lie in place of a file: a pipe that nobody writes to, a folder, /dev/zero, a
link to itself"""
SMALL = 20_000
"""bytes of a case that is recorded whole"""


@dataclasses.dataclass
class Case:
    """files: path -> bytes, or one of SPECIAL; options: keywords of the reader; known: what a check
    of the outcome needs, and the reader does not get; done: what was done to valid files.
    """

    files: dict[str, bytes | str]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    known: dict[str, Any] = dataclasses.field(default_factory=dict)
    done: list[str] = dataclasses.field(default_factory=list)

    def write(self, root: Path) -> None:
        """Lays the files out in `root`, an empty folder; but for those below what is no folder."""
        for name, content in self.files.items():
            path = root / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except (NotADirectoryError, FileExistsError):
                continue
            if content == FIFO:
                os.mkfifo(path)
            elif content == FOLDER:
                path.mkdir(exist_ok=True)
            elif content == DEVICE:
                path.symlink_to("/dev/zero")
            elif content == LOOP:
                path.symlink_to(path.name)
            else:
                path.write_bytes(content)

    def record(self) -> dict[str, Any]:
        """Plain JSON: the options, and the bytes where they are few."""
        few = sum(map(len, self.files.values())) <= SMALL
        files = {name: content if isinstance(content, str) else
                 {"base64": base64.b64encode(content).decode()} if few else {"bytes": len(content)}
                 for name, content in self.files.items()}
        return {"files": files, "options": self.options, "done": self.done}


def from_record(record: dict[str, Any]) -> Case:
    """The inverse of `Case.record` for a case that was recorded whole."""
    files = {name: content if isinstance(content, str) else base64.b64decode(content["base64"])
             for name, content in record["files"].items()}
    return Case(files, record["options"])


def misplaced(draw: Random, files: dict[str, bytes | str]) -> str:
    """One file is missing, or something that is no file lies in its place."""
    name = draw.choice(sorted(files))
    files[name] = draw.choice((*SPECIAL, b""))
    if draw.randrange(3) == 0:
        del files[name]
    return f"{name}: {files.get(name, 'missing') or 'empty'}"


def some(draw: Random, items: Sequence[Any], most: int = 3) -> list[Any]:
    """Up to `most` of the items, repetitions included; at least one."""
    return [draw.choice(items) for _ in range(1 + draw.randrange(most))]
