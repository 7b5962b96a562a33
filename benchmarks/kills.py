"""Kill runs of most methods at random moments and resume them to the end.

None may be lost, and no ledger may charge less than the noise that was used.

    python -m benchmarks.kills --times 100
    python -m benchmarks.kills --times 20 --case gswgan-warm --out my-kills.json

A folder is started, killed, resumed, killed again, and at last resumed to its end. Half the kills
come from outside after a random time; half come from within, at a moment at which something on the
disk changes (before or after a write, in the middle of a line of the ledger, between a pending
charge and the actual one, a side release of class counts, a checkpoint of the pretraining). The
noise that was used is counted outside of the folder. The script continues where the results file of
the same commit, results/kills.json, stopped.
"""

from __future__ import annotations

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

from benchmarks import common, killing
from benchmarks.fuzzing.trial import environment
from benchmarks.killing import CASES

GOAL = 500
"""Kills that are aimed at, over all runs of this script."""
MAX_KILLS = 3
"""The most kills of one folder."""
TOTALS = ("kills", "folders", "released", "budget_spent", "lost", "faults")
PATIENCE = 900.0
"""Seconds after which a run that nobody kills counts as stuck."""


class Program:
    """The process that forks runs; a context manager."""

    def __init__(self, place: Path, compiled: Path):
        flags = {"JAX_COMPILATION_CACHE_DIR": str(compiled),
                 "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                 "XLA_FLAGS": "--xla_backend_optimization_level=0"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.killing"], cwd=common.ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(place) | flags)

    def run(self, request: dict[str, Any], after: float | None = None) -> tuple[int, float]:
        """Run a request; return its exit status, negative for a signal, and its seconds.

        It is killed `after` so many seconds.
        """
        output = self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
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
    """One run folder of a case, and the files that observe it from outside."""

    def __init__(self, place: Path, case: str, sigma: float, save_always: bool):
        self.root, self.audit, self.log = place / "run", place / "audit", place / "log"
        self._request = {"case": case, "root": str(self.root), "audit": str(self.audit),
                         "log": str(self.log), "sigma": sigma, "save_always": save_always}

    def request(self, moment: int = 0, torn: bool = False) -> dict[str, Any]:
        """Return the next request: the first one until there is a run to resume."""
        begun = (self.root / "config.json").exists()
        if not begun and self.root.exists():
            shutil.rmtree(self.root)  # killed before it was a run: nothing is in it
        return self._request | {"resume": begun, "moment": moment, "torn": torn}

    def last_lines(self) -> str:
        """Return the end of the run's log."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return " | ".join(lines[-3:])[-600:]


def chain(program: Program, place: Path, case: str, baseline: dict[str, Any],
          rng: random.Random) -> dict[str, Any]:
    """Kill one folder up to MAX_KILLS times, then resume it to its end; return the outcome."""
    folder = Folder(place, case, baseline["sigma"], rng.random() < 0.7)
    outcome: dict[str, Any] = {"kills": 0, "moments": [], "faults": [], "lost": None, "ended": None}
    for _ in range(1 + rng.randrange(MAX_KILLS)):
        inside = rng.random() < 0.5
        moment = rng.randrange(1, baseline["marks"] + 1) if inside else 0
        after = None if inside else rng.uniform(0, baseline["seconds"])
        code, _ = program.run(folder.request(moment, rng.random() < 0.5), after)
        if code != -signal.SIGKILL:
            if code not in (0, 3):
                outcome["lost"] = f"exit {code}: {folder.last_lines()}"
            break
        outcome["kills"] += 1
        outcome["moments"].append(_where(folder) if inside else f"{after:.2f} s")
        outcome["faults"] += killing.under_counted(folder.root, folder.audit)
    if outcome["lost"] is None:
        code, _ = program.run(folder.request())
        outcome["ended"] = {0: "released", 3: "budget spent"}.get(code)
        if code == 0:
            outcome["faults"] += killing.wrong_at_the_end(folder.root, folder.audit)
        elif code == 3:
            outcome["faults"] += killing.under_counted(folder.root, folder.audit)
        else:
            outcome["lost"] = f"exit {code}: {folder.last_lines()}"
    return outcome


def _where(folder: Folder) -> str:
    marks = [line for line in folder.audit.read_text().splitlines() if line.startswith("mark")]
    return marks[-1].removeprefix("mark ")


def reference(program: Program, place: Path, case: str) -> dict[str, Any]:
    """Make runs that nobody kills; return their noise, seconds and number of moments.

    The first compiles; the second is as fast as those that follow.
    """
    planned = {"case": case, "plan": str(place / "sigma"), "log": str(place / "log")}
    if program.run(planned)[0]:
        raise RuntimeError((place / "log").read_text())
    baseline: dict[str, Any] = {"sigma": json.loads((place / "sigma").read_text())}
    for number in (0, 1):
        folder = Folder(place / str(number), case, baseline["sigma"], True)
        folder.root.parent.mkdir()
        code, baseline["seconds"] = program.run(folder.request())
        faults = [folder.last_lines()] if code else killing.wrong_at_the_end(
            folder.root, folder.audit)
        if faults:
            raise RuntimeError(f"{case}, not killed at all: {faults}")
        baseline["marks"] = killing.seen(folder.audit).marks
    return baseline


def new() -> dict[str, Any]:
    """Return the counts of a case before its first kill."""
    return {"kills": 0, "folders": 0, "released": 0, "budget_spent": 0, "lost": [], "faults": [],
            "moments": {}}


def add(counts: dict[str, Any], seed: int, outcome: dict[str, Any]) -> None:
    counts["kills"] += outcome["kills"]
    counts["folders"] += 1
    counts["released"] += outcome["ended"] == "released"
    counts["budget_spent"] += outcome["ended"] == "budget spent"
    for moment in outcome["moments"]:
        kind = "a random time" if moment.endswith(" s") else moment
        counts["moments"][kind] = counts["moments"].get(kind, 0) + 1
    if outcome["lost"]:
        counts["lost"].append({"seed": seed, "moments": outcome["moments"], "why": outcome["lost"]})
    counts["faults"] += [{"seed": seed, "moments": outcome["moments"], "fault": fault}
                         for fault in outcome["faults"]]


def main(argv: list[str] | None = None) -> None:
    """Kill so many more times; the file is written after each folder."""
    script = common.Script("kills", __doc__)
    script.add_argument("--times", type=int, default=50, help="kills")
    script.add_argument("--case", action="append", choices=CASES, help="may be repeated")
    args = script.begin(argv)
    known, cases = script.of_this_commit(), args.case or list(CASES)
    counts = {case: known.get("cases", {}).get(case) or new() for case in CASES}
    seed, killed = known.get("next_seed", 0), 0
    with tempfile.TemporaryDirectory(prefix="kills-") as scratch:
        place, baselines = Path(scratch), dict[str, Any]()
        with Program(place / "home", place / "compiled") as program:
            while killed < args.times:
                case, here = cases[seed % len(cases)], place / f"{seed}"
                here.mkdir()
                if case not in baselines:
                    (place / case).mkdir()
                    baselines[case] = reference(program, place / case, case)
                outcome = chain(program, here, case, baselines[case], random.Random(seed))
                add(counts[case], seed, outcome)
                shutil.rmtree(here)
                killed, seed = killed + outcome["kills"], seed + 1
                total = {name: sum(c[name] if isinstance(c[name], int) else len(c[name])
                                   for c in counts.values()) for name in TOTALS}
                script.save({**total, "goal": GOAL, "next_seed": seed, "cases": counts}, [seed])
                print(f"{killed}/{args.times} {case}: {outcome}", flush=True)
    print(f"{total['kills']} kills of {total['folders']} runs: {total['lost']} lost, "
          f"{total['faults']} under-counted or wrong")


if __name__ == "__main__":
    main()
