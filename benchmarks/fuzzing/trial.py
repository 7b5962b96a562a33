"""One case through one child: what was read, what came of it, and what is wrong with that."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any

from benchmarks.fuzzing import readers
from benchmarks.fuzzing.case import Case
from benchmarks.fuzzing.process import Child

LONGEST_LINE = 3000
"""characters; more is no line that anybody reads"""


@dataclasses.dataclass(frozen=True)
class Source:
    """make(draw) -> a case; check(case, what the reader returned) -> what is wrong, or None."""

    make: Callable[[Random], Case]
    check: Callable[[Case, Any], str | None] = lambda case, value: None


CASES = {"idx": "cases_arrays", "npz": "cases_arrays", "folder": "cases_arrays",
         "csv": "cases_tables", "schema": "cases_tables", "ledger": "cases_ledger",
         "run": "cases_runs", "account": "cases_runs", "release": "cases_runs",
         "message": "cases_messages", "reply": "cases_messages", "terms": "cases_messages"}
"""The module with a reader's cases: a function of its name makes them, and check_NAME may judge
what is accepted."""


def home(reader: str) -> str:
    """The module that reads it: readers of one module can share a child."""
    return readers.HOMES[reader][0]


@functools.cache
def source(reader: str) -> Source:
    """The cases of a reader."""
    made = importlib.import_module(f"benchmarks.fuzzing.{CASES.get(reader, reader)}")
    make = getattr(made, reader) if reader in CASES else made.make
    return Source(make, getattr(made, f"check_{reader}", lambda case, value: None))


class Trial:
    """A context manager: a child, and the folder in which cases are laid out."""

    def __enter__(self) -> Trial:
        self._place = Path(tempfile.mkdtemp(prefix="fuzz-"))
        self.child = Child(self._place / "home")
        return self

    def __exit__(self, kind: type | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.child.close()
        shutil.rmtree(self._place, ignore_errors=True)

    def fault(self, reader: str, case: Case) -> tuple[str, str | None]:
        """(how the reader ended, what is wrong with that or None)."""
        root = self._place / "case"
        for old in (root, self._place / "home"):
            shutil.rmtree(old, ignore_errors=True)
            old.mkdir()
        case.write(root)
        said = self.child.answer(reader, root, case.options)
        return said["status"], self._judged(reader, case, said)

    def _judged(self, reader: str, case: Case, said: dict[str, Any]) -> str | None:
        status, text = said["status"], said.get("text", "")
        if status == "ok":
            return source(reader).check(case, said["value"])
        if status != "refused":
            return f"{status}: {text}"
        if not text.strip() or len(text.splitlines()) > 1:
            return f"an error of {len(text.splitlines())} lines: {text[:300]!r}"
        if len(text) > LONGEST_LINE:
            return f"an error of {len(text)} characters: {text[:300]!r}"
        return None
