"""Damaged input for readers of data, schemas, runs and messages, for as long as one likes.

A case fails with a traceback, with over a minute or 2 GB, or with a ledger that charges less than
it should.

    python -m benchmarks.fuzz --minutes 10                     # all readers in turns
    python -m benchmarks.fuzz --minutes 60 --reader ledger --out my-fuzz.json
    python -m benchmarks.fuzz --case ledger 25                 # one case again, with its outcome

A case is a function of its reader and its seed. Seeds count up from where the results file of the
same commit, results/fuzz.json, stopped; after another commit all begin again.
"""

import collections
import json
import time
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


def new() -> dict[str, Any]:
    """Return the counts of a reader before its first case."""
    return {"cases": 0, "next_seed": 0, "seconds": 0.0, "peak_bytes": 0, "outcomes": {},
            "failed": 0, "failures": []}


def turn(trial: Trial, reader: str, counts: dict[str, Any], until: float) -> None:
    """Read some more cases of one reader, and add their outcomes to `counts`."""
    began, outcomes = time.monotonic(), collections.Counter(counts["outcomes"])
    for _ in range(TURN):
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


def once(reader: str, seed: int) -> None:
    """Run one case again, and print it with its outcome."""
    case = source(reader).make(Random(seed))
    print(json.dumps(case.record(), indent=1))
    with Trial() as trial:
        status, fault = trial.fault(reader, case)
    print(f"{status}: {fault or 'as it should be'}")


def main(argv: list[str] | None = None) -> None:
    """Run the readers in turns until the time is up; the file is written after each turn."""
    script = common.Script("fuzz", __doc__)
    script.add_argument("--minutes", type=float, default=5.0)
    script.add_argument("--reader", action="append", choices=HOMES, help="may be repeated")
    script.add_argument("--again", action="store_true", help="from the first seed on")
    script.add_argument("--case", nargs=2, metavar=("READER", "SEED"), help="one case again")
    args = script.begin(argv)
    if args.case:
        return once(args.case[0], int(args.case[1]))
    names, until = args.reader or list(CASES), time.monotonic() + 60 * args.minutes
    known = {} if args.again else script.of_this_commit().get("readers", {})
    readers = {reader: known.get(reader) or new() for reader in (*CASES, *known, *names)}
    while time.monotonic() < until:
        for module in dict.fromkeys(map(home, names)):
            with Trial() as trial:
                for reader in (name for name in names if home(name) == module):
                    turn(trial, reader, readers[reader], until)
                    total = {name: sum(counts[name] for counts in readers.values())
                             for name in ("cases", "failed")}
                    script.save({**total, "goal": GOAL, "limit_seconds": SECONDS,
                                 "limit_bytes": BYTES, "readers": readers},
                                [counts["next_seed"] for counts in readers.values()])
    for reader, counts in readers.items():
        print(f"{reader}: {counts['cases']:,} cases, {counts['outcomes']}")
        for failure in counts["failures"]:
            print(f"  seed {failure['seed']}, {failure['times']} times: {failure['sort']}")


if __name__ == "__main__":
    main()
