"""Every reader on damaged input: "ok", or one line of an error, in time and memory.

The child of a reader, its limits and the cases are those of `benchmarks.fuzz`, which runs them by
the hundred thousand. A failing case is printed whole; it is not made smaller, as a hang takes ten
seconds each time.
"""

import contextlib
import functools
import json
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from benchmarks.fuzzing.case import FIFO, Case, from_record
from benchmarks.fuzzing.process import watched
from benchmarks.fuzzing.trial import CASES, Trial, home, source

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


@READERS
def test_a_damaged_input_is_refused_in_one_line(trials, reader):
    read_all(trials(reader), reader, QUICK)


@pytest.mark.slow
@READERS
def test_many_damaged_inputs_are_refused_in_one_line(trials, reader):
    read_all(trials(reader), reader, SLOW)


# --- the harness itself notices what it is for


@pytest.fixture(scope="module")
def planted():
    """A reader that does what a case's file says, with limits that a test can wait for."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("benchmarks.fuzzing.process.SECONDS", 0.5)
        patched.setattr("benchmarks.fuzzing.process.BYTES", 5 * 10**8)
        with Trial() as held:
            yield held


@pytest.mark.parametrize(("does", "fault"), [
    ("return", None), ("refuse", None), ("raise", "KeyError"), ("quiet", "an error of 0 lines"),
    ("spin", "hang"), ("sleep", "hang"), ("fill", "memory"), ("crash", "died"),
    ("recurse", "RecursionError")])
def test_a_planted_fault_is_noticed(planted, does, fault):
    restarts = planted.child.restarts
    _, found = planted.fault("planted", Case({"does": does.encode()}))
    assert found is None if fault is None else fault in found
    assert planted.fault("planted", Case({"does": b"return"})) == ("ok", None)
    died = fault in ("hang", "memory", "died")
    assert planted.child.restarts - max(restarts, 0) == died


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
