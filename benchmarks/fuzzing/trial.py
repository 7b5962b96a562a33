"""One case through one child: what was read, what came of it, and what is wrong with that."""

from __future__ import annotations

import dataclasses
import importlib
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any

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
         "csv": "cases_tables", "schema": "cases_tables", "ledger": "cases_ledger"}
"""The module of a reader's cases, which has `make` and may have `check`, or is named `READER` in
one that has cases of several."""


def source(reader: str) -> Source:
    """The cases of a reader."""
    home = importlib.import_module(f"benchmarks.fuzzing.{CASES[reader]}")
    make = getattr(home, reader, None) or home.make
    return Source(make, getattr(home, "check", lambda case, value: None))


class Trial:
    """A context manager: a reader's child and the folder in which cases are laid out."""

    def __init__(self, reader: str):
        self.reader, self._source = reader, source(reader)

    def __enter__(self) -> Trial:
        self._place = Path(tempfile.mkdtemp(prefix=f"fuzz-{self.reader}-"))
        self.child = Child(self.reader, self._place / "home")
        return self

    def __exit__(self, kind: type | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.child.close()
        shutil.rmtree(self._place, ignore_errors=True)

    def fault(self, case: Case) -> tuple[str, str | None]:
        """(how the reader ended, what is wrong with that or None)."""
        root = self._place / "case"
        for old in (root, self._place / "home"):
            shutil.rmtree(old, ignore_errors=True)
            old.mkdir()
        case.write(root)
        said = self.child.answer(root, case.options)
        return said["status"], self._judged(case, said)

    def _judged(self, case: Case, said: dict[str, Any]) -> str | None:
        status, text = said["status"], said.get("text", "")
        if status == "ok":
            return self._source.check(case, said["value"])
        if status != "refused":
            return f"{status}: {text}"
        if not text.strip() or len(text.splitlines()) > 1:
            return f"an error of {len(text.splitlines())} lines: {text[:300]!r}"
        if len(text) > LONGEST_LINE:
            return f"an error of {len(text)} characters: {text[:300]!r}"
        return None
