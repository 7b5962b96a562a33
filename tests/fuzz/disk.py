"""A disk that forgets what was not synced: every state in which a crash may leave a folder.

POSIX promises of a file only what `fsync` of the file wrote, and of a name only what `fsync` of its
directory wrote. What came later may be there, or not, or in part, each on its own. So a crash
leaves, of every name, the synced or the latest entry, and of every file its synced bytes, its
latest ones, a part of what was added, or zeros in place of it. Real file systems leave fewer
states. What other threads do is seen at the next change by the main one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

CHANGES = ("replace", "rename", "unlink", "remove", "mkdir", "rmdir")
State = dict[str, bytes | None]
"""path -> bytes, or None for a folder"""
Entries = dict[str, int]


class Disk:
    """A context manager that watches the folder `place`, which is durable itself, and calls
    at_change() after everything that changes what a crash may leave."""

    def __init__(self, place: Path, at_change: Callable[[], None] = lambda: None):
        self.place, self._at_change = place, at_change
        self._kept: dict[int, int] = {}  # inode -> a descriptor, so that no number is used twice
        self._synced_bytes: dict[int, bytes] = {}
        self._synced_names: dict[int, Entries] = {}
        self._busy = False

    def __enter__(self) -> Disk:
        self._look()
        self._synced_names[self.place.stat().st_ino] = {}
        self._patch = pytest.MonkeyPatch()
        for name in CHANGES:
            self._patch.setattr(os, name, self._noticed(getattr(os, name)))
        for name in ("fsync", "fdatasync"):
            self._patch.setattr(os, name, self._synced(getattr(os, name)))
        return self

    def __exit__(self, *_) -> None:
        self._patch.undo()
        for descriptor in self._kept.values():
            os.close(descriptor)

    def _noticed(self, real: Callable) -> Callable:
        def change(*args: Any, **options: Any) -> Any:
            if self._busy:
                return real(*args, **options)
            self._look()
            out = real(*args, **options)
            self._changed()
            return out
        return change

    def _synced(self, real: Callable) -> Callable:
        def sync(descriptor: int) -> None:
            if not self._busy:
                self._changed()  # the last moment at which it is not yet synced
            real(descriptor)
            status = os.fstat(descriptor)
            if self._busy or status.st_ino not in self._kept:
                return  # outside, or a file whose name is gone
            if stat.S_ISDIR(status.st_mode):
                self._synced_names[status.st_ino] = self._names(status.st_ino)
            else:
                self._synced_bytes[status.st_ino] = self._bytes(status.st_ino)
            self._changed()
        return sync

    def _changed(self) -> None:
        if not self._busy and threading.current_thread() is threading.main_thread():
            self._look()
            self._busy = True
            try:
                self._at_change()
            finally:
                self._busy = False

    def _look(self) -> None:
        """Holds on to every inode that is there."""
        for root, _, names in os.walk(self.place):
            for path in (root, *(os.path.join(root, name) for name in names)):
                with contextlib.suppress(FileNotFoundError):  # another thread's, gone meanwhile
                    if os.stat(path).st_ino in self._kept:
                        continue
                    descriptor = os.open(path, os.O_RDONLY)
                    number = os.fstat(descriptor).st_ino
                    if self._kept.setdefault(number, descriptor) != descriptor:
                        os.close(descriptor)

    def _names(self, inode: int) -> Entries:
        """Return the entries of a folder now."""
        with os.scandir(self._kept[inode]) as found:
            return {entry.name: entry.inode() for entry in found if entry.inode() in self._kept}

    def _bytes(self, inode: int) -> bytes:
        return os.pread(self._kept[inode], os.fstat(self._kept[inode]).st_size, 0)

    def states(self, draw: Random, most: int) -> list[State]:
        """Return states that a crash may leave: all synced, all latest, each file or name alone the
        other way round, and others at random; up to `most`, each once."""
        switches = sorted(self._switches(self.place.stat().st_ino, ""))
        alone = [{switch} for switch in switches]
        chosen = itertools.chain([set(), set(switches)], alone, (
            set(switches) - one for one in alone), (
            {switch for switch in switches if draw.random() < 0.5} for _ in range(most)))
        found: list[State] = []
        for on in chosen:
            for torn in ("no", "half", "zeros"):
                state = dict(self._state(self.place.stat().st_ino, "", on, torn))
                if state not in found and len(found) < most:
                    found.append(state)
        return found

    def _is_folder(self, inode: int) -> bool:
        return stat.S_ISDIR(os.fstat(self._kept[inode]).st_mode)

    def _both(self, inode: int) -> tuple[Entries, Entries]:
        """A folder's entries: synced, latest."""
        return self._synced_names.get(inode, {}), self._names(inode)

    def _switches(self, inode: int, path: str) -> Iterator[str]:
        """Yield the choices that a crash may make either way: "name PATH", "bytes INODE"."""
        old, new = self._both(inode)
        for name in old.keys() | new.keys():
            if old.get(name) != new.get(name):
                yield f"name {path}{name}"
            for child in {old.get(name), new.get(name)} - {None}:
                if self._is_folder(child):
                    yield from self._switches(child, f"{path}{name}/")
                elif self._synced_bytes.get(child, b"") != self._bytes(child):
                    yield f"bytes {child}"

    def _state(self, inode: int, path: str, on: set[str], torn: str
               ) -> Iterator[tuple[str, bytes | None]]:
        """The folder with the latest of what is switched on, whole or torn, and else the synced."""
        old, new = self._both(inode)
        for name in sorted(old.keys() | new.keys()):
            child = (new if f"name {path}{name}" in on else old).get(name)
            if old.get(name) == new.get(name):
                child = old[name]
            if child is None:
                continue
            if self._is_folder(child):
                yield f"{path}{name}", None
                yield from self._state(child, f"{path}{name}/", on, torn)
            else:
                yield f"{path}{name}", self._left(child, f"bytes {child}" in on, torn)

    def _left(self, inode: int, latest: bool, torn: str) -> bytes:
        synced, now = self._synced_bytes.get(inode, b""), self._bytes(inode)
        if not latest:
            return synced
        same = len(os.path.commonprefix([synced, now]))
        if torn == "half":
            return now[:same + (len(now) - same) // 2]
        return now[:same] + bytes(len(now) - same) if torn == "zeros" else now


def lay(state: State, place: Path) -> Path:
    """Writes a state into an empty folder."""
    place.mkdir(parents=True)
    for name, content in state.items():
        if content is None:
            (place / name).mkdir(parents=True, exist_ok=True)
        else:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)
    return place
