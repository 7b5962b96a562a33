"""Damaged input for readers of data, schemas, runs and messages, for as long as one likes.

A case fails with a traceback, with over a minute or 2 GB, or with a ledger that charges less than
it should.

    python -m benchmarks.fuzz --minutes 10                     # all readers in turns
    python -m benchmarks.fuzz --minutes 60 --reader ledger --out my-fuzz.json
    python -m benchmarks.fuzz --case ledger 25                 # one case again, with its outcome

A case is a function of its reader and its seed. Seeds count up from where the results file of the
same commit, results/fuzz.json, stopped; after another commit all begin again.
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
from benchmarks.fuzzing.readers import HOMES
from benchmarks.fuzzing.trial import BYTES, CASES, SECONDS, Trial, home, source

TURN = 200
"""Cases of a reader before those of the next one."""
EXAMPLES = 20
"""Failures that are recorded whole, for each reader."""
GOAL = 100_000
"""Cases that are aimed at, over all runs of this script."""


def started(out: Path, again: bool = False) -> dict[str, Any]:
    """Return the counts of each reader so far: those of the file, if this commit wrote it."""
    record = json.loads(out.read_text()) if out.is_file() and not again else {}
    same = record.get("git") == common.git()
    counts = record["results"]["readers"] if same else {}
    return {reader: counts.get(reader) or new() for reader in (*CASES, *counts)}


def new() -> dict[str, Any]:
    """Return the counts of a reader before its first case."""
    return {"cases": 0, "next_seed": 0, "seconds": 0.0, "peak_bytes": 0, "outcomes": {},
            "failed": 0, "failures": []}


def turn(trial: Trial, reader: str, counts: dict[str, Any], cases: int, until: float) -> None:
    """Read up to `cases` more cases of one reader, and add their outcomes to `counts`."""
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


def note(failures: list[dict[str, Any]], failure: dict[str, Any]) -> None:
    """Keep the first failure of a sort, and count the others."""
    sort = (failure["fault"].strip().splitlines() or [""])[-1][:60]
    for example in failures:
        if example["sort"] == sort:
            example["times"] += 1
            return
    if len(failures) < EXAMPLES:
        failures.append({"sort": sort, "times": 1, **failure})


def results(readers: dict[str, Any]) -> dict[str, Any]:
    """Return the results of the record, with totals over all readers."""
    total = sum(counts["cases"] for counts in readers.values())
    return {"cases": total, "goal": GOAL, "failed": sum(c["failed"] for c in readers.values()),
            "limit_seconds": SECONDS, "limit_bytes": BYTES, "readers": readers}


def table(readers: dict[str, Any]) -> str:
    """Return the counts in Markdown."""
    lines = ["| reader | cases | accepted | refused | failed |", "|---|---|---|---|---|"]
    return "\n".join(lines + [
        f"| {name} | {c['cases']:,} | {c['outcomes'].get('ok', 0):,} | "
        f"{c['outcomes'].get('refused', 0):,} | {c['failed']:,} |"
        for name, c in readers.items()])


def run(names: list[str], minutes: float, out: Path, flags: list[str], again: bool) -> dict:
    """Run the named readers in turns until the time is up; the file is written after each."""
    until, where, readers = time.monotonic() + 60 * minutes, common.machine(), started(out, again)
    record: dict[str, Any] = {}
    while time.monotonic() < until:
        for module in dict.fromkeys(map(home, names)):
            with Trial() as trial:
                for reader in (name for name in names if home(name) == module):
                    turn(trial, reader, readers.setdefault(reader, new()), TURN, until)
                    seeds = [counts["next_seed"] for counts in readers.values()]
                    record = common.record("fuzz", flags, seeds, results(readers), where)
                    common.write(record, out)
    return record


def once(reader: str, seed: int) -> None:
    """Run one case again, and print it with its outcome."""
    case = source(reader).make(Random(seed))
    print(json.dumps(case.record(), indent=1))
    with Trial() as trial:
        status, fault = trial.fault(reader, case)
    print(f"{status}: {fault or 'as it should be'}")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--reader", action="append", choices=HOMES, help="may be repeated")
    parser.add_argument("--out", help="the results file")
    parser.add_argument("--again", action="store_true", help="from the first seed on")
    parser.add_argument("--case", nargs=2, metavar=("READER", "SEED"), help="one case again")
    args = parser.parse_args(argv)
    if args.case:
        return once(args.case[0], int(args.case[1]))
    names = args.reader or list(CASES)
    flags = ["--minutes", f"{args.minutes:g}", *(w for r in args.reader or () for w in (
        "--reader", r))]
    out = Path(args.out) if args.out else common.RESULTS / "fuzz.json"
    record = run(names, args.minutes, out, flags, args.again)
    print(table(record["results"]["readers"]))
    for reader, counts in record["results"]["readers"].items():
        for failure in counts["failures"]:
            print(f"{reader}, seed {failure['seed']}, {failure['times']} times: {failure['sort']}")


if __name__ == "__main__":
    main()
