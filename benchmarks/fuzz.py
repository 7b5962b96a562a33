"""Damaged input for every reader, for as long as one likes: no traceback, no case of over 10
seconds or 2 GB, no ledger that charges less than it should.

    python -m benchmarks.fuzz --minutes 10                     # all readers in turns
    python -m benchmarks.fuzz --minutes 60 --reader ledger --out my-fuzz.json
    python -m benchmarks.fuzz --case ledger 25                 # one case again, and what came of it

A case is a function of its reader and its seed. Seeds count up from where the results file of the
same commit stopped; after another commit all begin again.
"""

from __future__ import annotations

import argparse
import collections
import json
import time
from pathlib import Path
from random import Random
from typing import Any

from benchmarks import common
from benchmarks.fuzzing.process import BYTES, SECONDS
from benchmarks.fuzzing.readers import HOMES
from benchmarks.fuzzing.trial import CASES, Trial, home, source

TURN = 200
"""cases of a reader, before the next one's"""
EXAMPLES = 20
"""failures that are recorded whole, for each reader"""
GOAL = 100_000


def started(out: Path, again: bool = False) -> dict[str, Any]:
    """reader -> its counts so far: those of the file, if this commit wrote it."""
    held = json.loads(out.read_text()) if out.is_file() and not again else {}
    same = held.get("git") == common.git()
    known = held["results"]["readers"] if same else {}
    return {reader: known.get(reader) or new() for reader in (*CASES, *known)}


def new() -> dict[str, Any]:
    return {"cases": 0, "next_seed": 0, "seconds": 0.0, "peak_bytes": 0, "outcomes": {},
            "failed": 0, "failures": []}


def turn(trial: Trial, reader: str, counts: dict[str, Any], cases: int, until: float) -> None:
    """Reads up to `cases` more cases of one reader, and adds what came of them to `counts`."""
    began, outcomes = time.monotonic(), collections.Counter(counts["outcomes"])
    for _ in range(cases):
        if time.monotonic() > until:
            break
        seed = counts["next_seed"]
        case = source(reader).make(Random(seed))
        status, fault = trial.fault(reader, case)
        outcomes[status] += 1
        counts["next_seed"], counts["cases"] = seed + 1, counts["cases"] + 1
        if fault is not None:
            counts["failed"] += 1
            note(counts["failures"], {"seed": seed, "fault": fault, "case": case.record()})
    counts["outcomes"] = dict(outcomes)
    counts["seconds"] += time.monotonic() - began
    counts["peak_bytes"] = max(counts["peak_bytes"], trial.child.peak)


def note(failures: list[dict[str, Any]], found: dict[str, Any]) -> None:
    """Keeps the first failure of a sort, and counts the others."""
    sort = (found["fault"].strip().splitlines() or [""])[-1][:60]
    for known in failures:
        if known["sort"] == sort:
            known["times"] += 1
            return
    if len(failures) < EXAMPLES:
        failures.append({"sort": sort, "times": 1, **found})


def results(readers: dict[str, Any]) -> dict[str, Any]:
    total = sum(counts["cases"] for counts in readers.values())
    return {"cases": total, "goal": GOAL, "failed": sum(c["failed"] for c in readers.values()),
            "limit_seconds": SECONDS, "limit_bytes": BYTES, "readers": readers}


def table(readers: dict[str, Any]) -> str:
    """The counts in Markdown."""
    lines = ["| reader | cases | accepted | refused | failed |", "|---|---|---|---|---|"]
    return "\n".join(lines + [
        f"| {name} | {c['cases']:,} | {c['outcomes'].get('ok', 0):,} | "
        f"{c['outcomes'].get('refused', 0):,} | {c['failed']:,} |"
        for name, c in readers.items()])


def run(chosen: list[str], minutes: float, out: Path, shown: list[str], again: bool) -> dict:
    """Turns of all chosen readers until the time is up; the file is written after each."""
    until, where, readers = time.monotonic() + 60 * minutes, common.machine(), started(out, again)
    record: dict[str, Any] = {}
    while time.monotonic() < until:
        for module in dict.fromkeys(map(home, chosen)):
            with Trial() as trial:
                for reader in (name for name in chosen if home(name) == module):
                    turn(trial, reader, readers.setdefault(reader, new()), TURN, until)
                    seeds = [counts["next_seed"] for counts in readers.values()]
                    record = common.record("fuzz", shown, seeds, results(readers), where)
                    common.write(record, out)
    return record


def once(reader: str, seed: int) -> None:
    """One case again: what it is, and what came of it."""
    case = source(reader).make(Random(seed))
    print(json.dumps(case.record(), indent=1))
    with Trial() as trial:
        status, fault = trial.fault(reader, case)
    print(f"{status}: {fault or 'as it should be'}")


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--reader", action="append", choices=HOMES, help="may be repeated")
    parser.add_argument("--out", help="the results file")
    parser.add_argument("--again", action="store_true", help="from the first seed on")
    parser.add_argument("--case", nargs=2, metavar=("READER", "SEED"), help="one case again")
    given = parser.parse_args(words)
    if given.case:
        return once(given.case[0], int(given.case[1]))
    chosen = given.reader or list(CASES)
    shown = ["--minutes", f"{given.minutes:g}", *(w for r in given.reader or () for w in (
        "--reader", r))]
    out = Path(given.out) if given.out else common.RESULTS / "fuzz.json"
    record = run(chosen, given.minutes, out, shown, given.again)
    print(table(record["results"]["readers"]))
    for reader, counts in record["results"]["readers"].items():
        for failure in counts["failures"]:
            print(f"{reader}, seed {failure['seed']}, {failure['times']} times: {failure['sort']}")


if __name__ == "__main__":
    main()
