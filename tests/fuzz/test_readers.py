"""Every reader on damaged input: "ok", or one line of an error, in time and memory.

The child of a reader, its limits and the cases are those of `benchmarks.fuzz`, which runs them by
the hundred thousand. A failing case is printed whole; it is not made smaller, as a hang takes a
minute each time.
"""

import contextlib
import functools
import json
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from benchmarks.fuzzing import case, cases, read_messages
from benchmarks.fuzzing.case import FIFO, Case, dumped, from_record
from benchmarks.fuzzing.trial import CASES, Trial, home, source, watched

pytestmark = pytest.mark.skipif(not watched(), reason="no /proc tells what a process uses")
OPTIONS = {"deadline": None, "database": None, "phases": (Phase.explicit, Phase.generate),
           "suppress_health_check": list(HealthCheck)}
QUICK = settings(max_examples=20, derandomize=True, **OPTIONS)
SLOW = settings(max_examples=200, **OPTIONS)


READERS = pytest.mark.parametrize("reader", CASES)


@pytest.fixture(scope="module")
def trials():
    """reader -> its child, which readers of one module share."""
    with contextlib.ExitStack() as stack:
        of_home = functools.cache(lambda home: stack.enter_context(Trial()))
        yield lambda reader: of_home(home(reader))


def read_all(trial, reader, how):
    @how
    @given(st.randoms(use_true_random=False).map(source(reader).make))
    def one(case):
        _, fault = trial.fault(reader, case)
        assert fault is None, f"{fault}\n{json.dumps(case.record())}"

    one()


def valid(reader):
    """Return the undamaged files of which the cases of a reader are made."""
    moment = {f"run/{name}": data for name, data in cases.moments()[2].files.items()} \
        if reader in ("run", "account") else {}
    end = cases.moments()[-1].files if reader == "release" else {}
    table = "\n".join(map(",".join, [list(cases.COLUMNS), *cases.ROWS[:1]]))
    schema = dumped(cases.SCHEMA)
    return {
        "idx": lambda: Case({f"set/{name}": b"\0\0\x08" + bytes([dims]) + b"\0\0\0\4" * dims
                             + bytes(4**dims) for name, dims in (
            (cases.IDX["images"], 3), (cases.IDX["labels"], 1))},
            {"spec": "idx:set"}),
        "npz": lambda: Case({"a.npz": case.stored({
            "x_train.npy": case.npy(np.zeros((6, 8, 8), "u1")),
            "y_train.npy": case.npy(np.zeros(6, int))})}, {"spec": "npz:a.npz", "classes": 3}),
        "folder": lambda: Case({f"set/train/{name}/0.png": case.picture("L", "png")
                                for name in "ab"}, {"spec": "folder:set"}),
        "csv": lambda: Case({"t.csv": table.encode(), "s.yaml": schema},
                            {"spec": "csv:t.csv", "schema": "s.yaml"}),
        "schema": lambda: Case({"s.yaml": schema}, {"name": "s.yaml"}),
        "ledger": lambda: Case({"ledger.jsonl": cases.valid(1)}, known={
            "true": cases.valid(1), "forged": False}),
        "run": lambda: Case(moment, known={"files": cases.moments()[2].files}),
        "account": lambda: Case(moment),
        "release": lambda: Case({name: data for name, data in end.items() if "release/" in name}),
        "message": lambda: Case({"m": cases.question()}),
        "reply": lambda: Case({"m": cases.answer()}),
        "terms": lambda: Case({"terms.json": read_messages.TERMS.to_text().encode()}),
    }[reader]()


@READERS
def test_what_is_not_damaged_is_accepted(trials, reader):
    """So that a reader which refuses everything does not pass for a sound one."""
    assert trials(reader).fault(reader, valid(reader)) == ("ok", None)


@READERS
def test_a_damaged_input_is_refused_in_one_line(trials, reader):
    read_all(trials(reader), reader, QUICK)


@pytest.mark.long
@READERS
def test_many_damaged_inputs_are_refused_in_one_line(trials, reader):
    read_all(trials(reader), reader, SLOW)


# --- the harness itself notices what it is for


@pytest.fixture(scope="module")
def planted():
    """A reader that does what a case's file says, with a limit of memory that is soon reached."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("benchmarks.fuzzing.trial.BYTES", 5 * 10**8)
        with Trial() as trial:
            yield trial


@pytest.mark.parametrize(("does", "fault"), [
    ("return", None), ("refuse", None), ("raise", "KeyError"), ("quiet", "an error of 0 lines"),
    ("spin", "hang"), ("sleep", "hang"), ("fill", "memory"), ("crash", "died"),
    ("recurse", "RecursionError")])
def test_a_planted_fault_is_noticed(planted, monkeypatch, does, fault):
    assert planted.fault("planted", Case({"does": b"return"})) == ("ok", None)
    restarts = planted.child.restarts
    with monkeypatch.context() as patched:
        if fault == "hang":  # and only then: on a slow machine it takes seconds to fill memory
            patched.setattr("benchmarks.fuzzing.trial.SECONDS", 0.5)
        _, found = planted.fault("planted", Case({"does": does.encode()}))
    assert found is None if fault is None else fault in found
    assert planted.fault("planted", Case({"does": b"return"})) == ("ok", None)
    assert planted.child.restarts - restarts == (fault in ("hang", "memory", "died"))


def test_a_case_is_recorded_whole_and_read_back(tmp_path):
    case = Case({"a/b": b"\0\xff", "c": FIFO}, {"name": "a/b"})
    again = from_record(json.loads(json.dumps(case.record())))
    assert (again.files, again.options) == (case.files, case.options)
    again.write(tmp_path)
    assert (tmp_path / "a/b").read_bytes() == b"\0\xff" and (tmp_path / "c").is_fifo()


def test_a_seed_makes_one_case():
    for reader in ("ledger", "npz", "schema"):
        one, other = (source(reader).make(Random(5)).record() for _ in range(2))
        assert one == other
