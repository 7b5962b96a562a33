"""Run folders of which files are missing, of another time, repeated or damaged; and releases.

What a folder proves of the steps that were drawn: each file that is, byte for byte, that of a
moment of the true run proves the steps that this file knows of. A folder is refused, or its ledger
charges at least what its own true lines charge and what any of its files proves.
"""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from random import Random
from typing import Any

from benchmarks.fuzzing import cases_ledger, histories
from benchmarks.fuzzing.case import Case, misplaced, some
from benchmarks.fuzzing.damage import changed, damaged, dumped

LEDGER, METRICS, COUNTS = "ledger.jsonl", "metrics.jsonl", "class_counts.json"
CHECKPOINTS = "private/checkpoints"
PARTS = (LEDGER, METRICS, COUNTS, "config.json", "private/identity.json", CHECKPOINTS, "release",
         "private", "curves.png")
"""files and folders that are removed, exchanged or repeated as a whole"""
JSON = ("config.json", COUNTS, "private/identity.json", "release/privacy.json",
        "release/config.json")


def run(draw: Random) -> Case:
    """A folder at some moment, with one to three things done to it."""
    history = histories.moments()
    moment = 1 + draw.randrange(len(history) - 1)
    files: dict[str, Any] = dict(history[moment].files)
    done = [f"as before draw {moment + 1} of {history[-1].n_sampled}"]
    for kind in some(draw, ("remove", "remove", "older", "older", "repeat", "json", "lines",
                            "bytes", "misplaced")):
        if not files:
            break
        done.append(f"{kind} {WAYS[kind](draw, files)}")
    return Case({f"run/{name}": data for name, data in files.items()}, known={"files": files},
                done=done)


def _under(files: dict[str, Any], part: str) -> list[str]:
    return [name for name in files if name == part or name.startswith(part + "/")]


def _part(draw: Random, files: dict[str, Any]) -> str:
    """A part, or one of the checkpoints or of the files."""
    inner = sorted({"/".join(PurePosixPath(name).parts[:3]) for name in files
                    if name.startswith(CHECKPOINTS)})
    return draw.choice((*PARTS, *inner, *(sorted(files)[:1])))


def _remove(draw: Random, files: dict[str, Any]) -> str:
    part = _part(draw, files)
    for name in _under(files, part):
        del files[name]
    return part


def _older(draw: Random, files: dict[str, Any]) -> str:
    """A part as it was at another moment, or never was."""
    part, moment = _part(draw, files), draw.randrange(len(histories.moments()))
    other = histories.moments()[moment].files
    for name in _under(files, part):
        del files[name]
    files.update({name: other[name] for name in _under(other, part)})
    return f"{part} of draw {moment + 1}"


def _repeat(draw: Random, files: dict[str, Any]) -> str:
    """A checkpoint or a file under another name too."""
    part = _part(draw, files)
    new = str(PurePosixPath(part).with_name(draw.choice(("1", "3", "9", "copy", "9.unfinished"))))
    files.update({new + name[len(part):]: files[name] for name in _under(files, part)})
    return f"{part} as {new}"


def _json(draw: Random, files: dict[str, Any]) -> str:
    notes = [name for name in files if name.endswith("note.json")]
    name = draw.choice((*JSON, *sorted(notes)))
    if isinstance(files.get(name), bytes):
        try:
            files[name] = dumped(changed(draw, json.loads(files[name])))
        except (ValueError, RecursionError):
            files[name] = damaged(draw, files[name])
    return name


def _lines(draw: Random, files: dict[str, Any]) -> str:
    """Lines of the ledger or of the metrics left out, repeated or swapped; or a torn end."""
    name = draw.choice((LEDGER, METRICS))
    if isinstance(files.get(name), bytes):
        data = files[name]
        files[name] = data[:draw.randrange(len(data) + 1)] if draw.randrange(2) else \
            cases_ledger.lines(draw, data)
    return name


def _bytes(draw: Random, files: dict[str, Any]) -> str:
    name = draw.choice(sorted(files))
    if isinstance(files[name], bytes):
        files[name] = damaged(draw, files[name])
    return name


WAYS = {"remove": _remove, "older": _older, "repeat": _repeat, "json": _json, "lines": _lines,
        "bytes": _bytes, "misplaced": misplaced}


def account(draw: Random) -> Case:
    return run(draw)


def release(draw: Random) -> Case:
    """The release of the finished run, damaged."""
    files: dict[str, Any] = {name: data for name, data in histories.moments()[-1].files.items()
                             if name.startswith("release/")}
    for kind in some(draw, ("json", "json", "bytes", "remove", "misplaced"), 2):
        if kind == "json":
            name = draw.choice(("release/privacy.json", "release/config.json"))
            if isinstance(files.get(name), bytes):
                files[name] = dumped(changed(draw, json.loads(histories.moments()[-1].files[name])))
        elif files:
            WAYS[kind](draw, files)
    return Case(files)


def check_run(case: Case, value: dict[str, Any]) -> str | None:
    """Returns what is wrong with a folder that a resume accepts."""
    files = case.known["files"]
    steps = {name: known for name, known in proven(files).items() if known > value["steps"]}
    if steps:
        return f"{value['steps']} steps are charged, and files prove more: {steps}"
    if COUNTS in files and not any("class counts" in event for event in value["counts"]):
        return "class counts are there, and charged nowhere"
    true, found = histories.moments()[-1].files[LEDGER], files.get(LEDGER, b"")
    if not isinstance(found, bytes) or not (kept := cases_ledger.longest_prefix(true, found)):
        return None  # a new ledger, in a folder that proves nothing
    floor = cases_ledger.charged(kept)
    return f"charges {value}, its own lines {floor}" if cases_ledger.falls_short(floor, value) \
        else None


def proven(files: dict[str, Any]) -> dict[str, int]:
    """Steps that were surely drawn, by the files that are those of the true run."""
    history = histories.moments()

    def true(name: str) -> bool:
        return any(moment.files.get(name) == files[name] for moment in history)

    found = {}
    if METRICS in files and true(METRICS):
        rows = [json.loads(line) for line in files[METRICS].splitlines()]
        found[METRICS] = max((row["step"] for row in rows), default=0)
    for step in range(1, history[-1].n_sampled + 1):
        inside = f"{CHECKPOINTS}/{step}"
        if all(name in files and true(name) for name in _under(history[-1].files, inside)) and \
                _under(files, inside):
            found[inside] = step
    if "release/privacy.json" in files and true("release/privacy.json"):
        found["release"] = history[-1].n_sampled
    return found
