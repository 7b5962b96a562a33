"""Files that are no ledger at all, put in a ledger's place: one line, no hang, no traceback."""

import os

import pytest
from ledgers import HEADER, STEP, refuses_to_resume

from dpgen_jax.accountant import ledger
from dpgen_jax.accountant.ledger import Ledger


@pytest.mark.parametrize("place", [
    os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.mkdir(),
    lambda path: path.symlink_to("/dev/stdin")], ids=["pipe", "device", "folder", "stdin"])
def test_what_may_never_end_is_not_read(path, place):
    place(path)
    refuses_to_resume(path, "not a regular file")


def test_a_file_larger_than_any_ledger_is_not_read(path):
    path.touch()
    os.truncate(path, ledger.MOST_BYTES + 1)  # sparse: it takes no room
    refuses_to_resume(path, "more than any ledger needs")


@pytest.mark.parametrize("last", [
    b"[" * 10**6, b'{"a":' * 10**6, b'{"events":' + b"[" * 10**6, b"1" * 10**6, b"\xff" * 1000])
def test_a_deeply_nested_last_line_is_a_torn_one(path, last):
    Ledger.create(path, HEADER).close()
    with path.open("ab") as file:
        file.write(last)
    assert [record["kind"] for record in ledger.read(path)] == ["header", "torn"]
    with path.open("ab") as file:
        file.write(b"\n")
    refuses_to_resume(path, "line 2 is broken")


def test_a_million_empty_lines_take_no_memory_each(path):
    path.write_bytes(b"\n" * 10**6)
    refuses_to_resume(path, "line 1 is broken")


@pytest.mark.parametrize("count", [10**400, 2**53 + 1])
def test_a_count_that_no_float_holds_is_broken(path, count):
    """A sound chain, as anybody can forge one: its epsilon could not be computed."""
    Ledger.create(path, HEADER).close()
    events = [{"kind": "gaussian", "count": count, "sigma": STEP.sigma, "squared_sensitivity": 1}]
    row = {"kind": "charge", "events": events}
    with path.open("ab") as file:
        file.write(ledger.chained_line(_head(path), row)[0])
    refuses_to_resume(path, "line 2 is broken")


def _head(path):
    return ledger.replay_lines(path, path.read_bytes())[1][-1]


def test_a_header_that_a_crash_tore_is_no_ledger_yet(path):
    assert not ledger.begun(path)
    Ledger.create(path, HEADER).close()
    whole = path.read_bytes()
    assert ledger.begun(path)
    for cut in (0, 1, len(whole) // 2, len(whole) - 2):
        path.write_bytes(whole[:cut])
        assert not ledger.begun(path)
    path.write_bytes(whole[:-1])
    assert ledger.begun(path)
    path.write_bytes(b"{}\n")  # whole, and no ledger: what it was is not known
    assert ledger.begun(path)
