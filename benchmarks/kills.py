"""Runs of all methods, killed at random moments and resumed to the end: none may be lost, and no
ledger may charge less than was drawn.

    python -m benchmarks.kills --times 100
    python -m benchmarks.kills --times 20 --case gswgan-warm --out my-kills.json

A folder is started, killed, resumed, killed again, and at last resumed to its end. Half the kills
come from outside after a random time; half come from within, at a moment at which something on the
disk changes (before or after a write, in the middle of a line of the ledger, between a reservation
and its settlement, a purchase of class counts, a checkpoint of a warm start). What was drawn is
counted outside of the folder. Goes on where the results file of the same commit stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import common
from benchmarks.fuzzing.process import environment
from benchmarks.killing import verdict
from benchmarks.killing.cases import CASES

GOAL = 500
MOST_KILLS = 3
"""of one folder"""
PATIENCE = 900.0


class Program:
    """The process that forks runs; a context manager."""

    def __init__(self, place: Path, compiled: Path):
        flags = {"JAX_COMPILATION_CACHE_DIR": str(compiled),
                 "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                 "XLA_FLAGS": "--xla_backend_optimization_level=0"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.killing.program"], cwd=common.ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(place) | flags)

    def run(self, asked: dict[str, Any], after: float | None = None) -> tuple[int, float]:
        """(exit status, negative for a signal; seconds). Killed `after` so many seconds."""
        output = self._process.stdout
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        pid, began = int(output.readline()), time.monotonic()
        if not select.select([output], [], [], PATIENCE if after is None else after)[0]:
            os.kill(pid, signal.SIGKILL)
        return int(output.readline()), time.monotonic() - began

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_) -> None:
        self._process.kill()
        self._process.wait()


class Folder:
    """One run folder of a case, and what is known of it from outside."""

    def __init__(self, place: Path, case: str, sigma: float, save_always: bool):
        self.root, self.audit, self.log = place / "run", place / "audit", place / "log"
        self._asked = {"case": case, "root": str(self.root), "audit": str(self.audit),
                       "log": str(self.log), "sigma": sigma, "save_always": save_always}

    def asked(self, moment: int = 0, torn: bool = False) -> dict[str, Any]:
        """The next command: the first one until there is a run to resume."""
        begun = (self.root / "config.json").exists()
        if not begun and self.root.exists():
            shutil.rmtree(self.root)  # killed before it was a run: nothing is in it
        return self._asked | {"resume": begun, "moment": moment, "torn": torn}

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return " | ".join(lines[-3:])[-600:]


def sigma_of(program: Program, place: Path, case: str) -> float:
    asked = {"case": case, "plan": str(place / "sigma"), "log": str(place / "log")}
    if program.run(asked)[0]:
        raise RuntimeError((place / "log").read_text())
    return json.loads((place / "sigma").read_text())


def chain(program: Program, place: Path, case: str, known: dict[str, Any], draw: random.Random
          ) -> dict[str, Any]:
    """One folder: killed up to MOST_KILLS times, then resumed to its end. What came of it."""
    folder = Folder(place, case, known["sigma"], draw.random() < 0.7)
    found: dict[str, Any] = {"kills": 0, "moments": [], "faults": [], "lost": None, "ended": None}
    for _ in range(1 + draw.randrange(MOST_KILLS)):
        inside = draw.random() < 0.5
        moment = draw.randrange(1, known["marks"] + 1) if inside else 0
        after = None if inside else draw.uniform(0, known["seconds"])
        code, _ = program.run(folder.asked(moment, draw.random() < 0.5), after)
        if code != -signal.SIGKILL:
            if code not in (0, 3):
                found["lost"] = f"exit {code}: {folder.last_words()}"
            break
        found["kills"] += 1
        found["moments"].append(_where(folder) if inside else f"{after:.2f} s")
        found["faults"] += verdict.under_counted(folder.root, folder.audit)
    if found["lost"] is None:
        code, _ = program.run(folder.asked())
        found["ended"] = {0: "released", 3: "budget spent"}.get(code)
        if code == 0:
            found["faults"] += verdict.wrong_at_the_end(folder.root, folder.audit)
        elif code == 3:
            found["faults"] += verdict.under_counted(folder.root, folder.audit)
        else:
            found["lost"] = f"exit {code}: {folder.last_words()}"
    return found


def _where(folder: Folder) -> str:
    marks = [line for line in folder.audit.read_text().splitlines() if line.startswith("mark")]
    return marks[-1].removeprefix("mark ")


def reference(program: Program, place: Path, case: str) -> dict[str, Any]:
    """A run that nobody kills: its noise, seconds and moments. The first compiles; the second is
    as fast as those that come."""
    known = {"sigma": sigma_of(program, place, case)}
    for number in (0, 1):
        folder = Folder(place / str(number), case, known["sigma"], True)
        folder.root.parent.mkdir()
        code, known["seconds"] = program.run(folder.asked())
        faults = [folder.last_words()] if code else verdict.wrong_at_the_end(
            folder.root, folder.audit)
        if faults:
            raise RuntimeError(f"{case}, not killed at all: {faults}")
        known["marks"] = verdict.seen(folder.audit).marks
    return known


def new() -> dict[str, Any]:
    return {"kills": 0, "folders": 0, "released": 0, "budget_spent": 0, "lost": [], "faults": [],
            "moments": {}}


def add(counts: dict[str, Any], seed: int, found: dict[str, Any]) -> None:
    counts["kills"] += found["kills"]
    counts["folders"] += 1
    counts["released"] += found["ended"] == "released"
    counts["budget_spent"] += found["ended"] == "budget spent"
    for moment in found["moments"]:
        kind = "a random time" if moment.endswith(" s") else moment
        counts["moments"][kind] = counts["moments"].get(kind, 0) + 1
    if found["lost"]:
        counts["lost"].append({"seed": seed, "moments": found["moments"], "why": found["lost"]})
    counts["faults"] += [{"seed": seed, "moments": found["moments"], "fault": fault}
                         for fault in found["faults"]]


def results(methods: dict[str, Any], next_seed: int) -> dict[str, Any]:
    def total(name: str) -> int:
        return sum(c[name] if isinstance(c[name], int) else len(c[name]) for c in methods.values())

    names = ("kills", "folders", "released", "budget_spent", "lost", "faults")
    return {**{name: total(name) for name in names}, "goal": GOAL, "next_seed": next_seed,
            "cases": methods}


def run(chosen: list[str], times: int, out: Path, shown: list[str]) -> dict[str, Any]:
    """Kills until there are `times` more; the file is written after each folder."""
    held = json.loads(out.read_text()) if out.is_file() else {}
    held = held["results"] if held.get("git") == common.git() else {"cases": {}, "next_seed": 0}
    counts = {case: held["cases"].get(case) or new() for case in CASES}
    seed, killed, where, record = held["next_seed"], 0, common.machine(), {}
    with tempfile.TemporaryDirectory(prefix="kills-") as place:
        place, known = Path(place), {}
        with Program(place / "home", place / "compiled") as program:
            while killed < times:
                case = chosen[seed % len(chosen)]
                here = place / f"{seed}"
                here.mkdir()
                if case not in known:
                    (place / case).mkdir()
                    known[case] = reference(program, place / case, case)
                found = chain(program, here, case, known[case], random.Random(seed))
                add(counts[case], seed, found)
                shutil.rmtree(here)
                killed, seed = killed + found["kills"], seed + 1
                record = common.record("kills", shown, [seed], results(counts, seed), where)
                common.write(record, out)
                print(f"{killed}/{times} {case}: {found}", flush=True)
    return record


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--times", type=int, default=50, help="kills")
    parser.add_argument("--case", action="append", choices=CASES, help="may be repeated")
    parser.add_argument("--out", help="the results file")
    given = parser.parse_args(words)
    shown = ["--times", str(given.times), *(w for c in given.case or () for w in ("--case", c))]
    out = Path(given.out) if given.out else common.RESULTS / "kills.json"
    found = run(given.case or list(CASES), given.times, out, shown)["results"]
    print(f"{found['kills']} kills of {found['folders']} runs: {found['lost']} lost, "
          f"{found['faults']} under-counted or wrong")


if __name__ == "__main__":
    main()
