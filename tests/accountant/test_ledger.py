"""The ledger under every fault of a run: crash, torn line, full disk, damage, a second process."""

import errno
import hashlib
import json
import math
import os
import resource
import signal
import subprocess
import sys
import time

import pytest

from dpgen_jax.accountant import chain, gaussian, ledger
from dpgen_jax.accountant.calibrate import max_steps
from dpgen_jax.accountant.events import (
    EpsilonDeltaEvent,
    GaussianEvent,
    NonPrivateEvent,
    RenyiEvent,
)
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.errors import BudgetExceeded, UserError

DELTA = 1e-5
STEP = GaussianEvent(sigma=5000, squared_sensitivity=4 * 200 * 15)
OTHER = GaussianEvent(sigma=9000, squared_sensitivity=4 * 700 * 30, total_variation=1e-20)
COUNTS = EpsilonDeltaEvent(0.01, mechanism="class-counts")
HEADER = {"epsilon": 1.0, "delta": DELTA, "relation": "replace-one", "unit": "record",
          "config_hash": "abc"}


def block(count, event=STEP):
    return ((event, count),)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def crashed(path):
    """Header, reserve 10, settle 7, reserve 5 left open: 12 charged in 4 lines."""
    with Ledger.create(path, HEADER) as book:
        book.settle(book.reserve(block(10), 10), block(7), 7)
        book.reserve(block(5), 5)
    return path


@pytest.fixture
def extended(path):
    """The same behind a charge, and with an extension before the last reservation."""
    with Ledger.create(path, HEADER) as book:
        book.charge(((COUNTS, 2),))
        book.settle(book.reserve(block(10), 10), block(7), 7)
        book.extend(3.0)
        book.reserve(block(5), 5)
    return path


def refuses_to_resume(path, match):
    with pytest.raises(UserError, match=match) as caught:
        Ledger.open(path)
    assert "cannot be resumed" in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(UserError, match=match):
        ledger.read(path)


# counting

def test_reserve_and_settle(path):
    with Ledger.create(path, HEADER) as book:
        assert book.spent() == () and book.epsilon() == 0 and book.steps_charged == 0
        first, second = book.reserve(block(10), 10), book.reserve(block(4, OTHER), 4)
        assert dict(book.spent()) == {STEP: 10, OTHER: 4} and book.steps_charged == 14
        book.settle(first, block(7), 7)
        assert dict(book.spent()) == {STEP: 7, OTHER: 4} and book.steps_charged == 11
        book.settle(second, (), 0)
        assert book.spent() == block(7) and book.steps_charged == 7
        assert book.epsilon() == gaussian.epsilon(block(7), DELTA)
        assert book.header == HEADER and book.incarnation == 0 and book.n_lines == 5
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_several_events_in_one_step(path):
    with Ledger.create(path, HEADER) as book:
        both = ((STEP, 6), (OTHER, 2), (STEP, 1))
        book.settle(book.reserve(both, 6), ((OTHER, 1), (STEP, 7)), 6)
        assert dict(book.spent()) == {STEP: 7, OTHER: 1}


@pytest.mark.parametrize("events, steps", [
    (block(11), 10), (block(10), 11), (block(1, OTHER), 1), (block(10) + block(1), 10)])
def test_settling_for_more_is_refused(path, events, steps):
    with Ledger.create(path, HEADER) as book:
        reservation = book.reserve(block(10), 10)
        with pytest.raises(ValueError, match="more than was reserved"):
            book.settle(reservation, events, steps)
        assert book.spent() == block(10) and book.n_lines == 2
        book.settle(reservation, block(10), 10)
        with pytest.raises(ValueError, match="not open"):
            book.settle(reservation, block(1), 1)


@pytest.mark.parametrize("events, steps", [
    ((), 0), ((), True), (block(1), 0), (block(-1), 1), (block(1), True), (block(1.5), 1)])
def test_reserving_no_step_is_refused(path, events, steps):
    with Ledger.create(path, HEADER) as book:
        with pytest.raises((ValueError, TypeError)):
            book.reserve(events, steps)
        assert book.n_lines == 1 and book.reserve(block(1), 1) == 0


@pytest.mark.parametrize("events", [(), block(0)])
def test_steps_that_were_paid_for_before_are_counted_and_cost_nothing(path, events):
    with Ledger.create(path, HEADER) as book:
        book.settle(book.reserve(block(1), 1), block(1), 1)
        book.settle(book.reserve(events, 2), events, 2)
        assert book.reserve(events, 3) == 2
    with Ledger.open(path) as book:  # the last three were lost
        assert book.steps_charged == 6 and book.spent() == block(1)
        with pytest.raises(ValueError, match="not open"):
            book.settle(2, (), 0)
        late = book.reserve(events, 1)
        with pytest.raises(ValueError, match="more than was reserved"):
            book.settle(late, block(1), 1)


def test_the_budget_is_enforced_to_the_step(path):
    most = max_steps(STEP, 1.0, DELTA)
    with Ledger.create(path, HEADER) as book:
        for _ in range(most // 10):
            reservation = book.reserve(block(10), 10)
            book.settle(reservation, block(10), 10)
        book.reserve(block(most % 10), most % 10)
        assert most == 149 and book.steps_charged == 149 and book.epsilon() <= 1
        before = path.read_bytes()
        with pytest.raises(BudgetExceeded, match="1.00114"):
            book.reserve(block(1), 1)
        assert path.read_bytes() == before


def test_no_noise_needs_an_infinite_budget(path, tmp_path):
    release = ((NonPrivateEvent(), 1),)
    with Ledger.create(path, HEADER) as book, pytest.raises(BudgetExceeded):
        book.reserve(release, 1)
    free = tmp_path / "free.jsonl"
    with Ledger.create(free, {**HEADER, "epsilon": math.inf}) as book:
        book.reserve(release, 1)
        assert book.epsilon() == math.inf and book.header["epsilon"] == math.inf
    assert json.loads(free.read_text().splitlines()[0])["epsilon"] == "inf"
    with Ledger.open(free) as book:
        assert book.epsilon() == math.inf


def test_a_wrong_count_would_show(path):
    """What is charged for a known run, against numbers that a forgetful ledger would give."""
    with Ledger.create(path, {**HEADER, "epsilon": 10}) as book:
        for _ in range(3):
            book.reserve(((STEP, 40), (OTHER, 5)), 40)
        right = gaussian.epsilon(((STEP, 120), (OTHER, 15)), DELTA)
        assert book.epsilon() == right
        for slip in (((STEP, 40), (OTHER, 5)), block(120), ((STEP, 119), (OTHER, 15))):
            assert gaussian.epsilon(slip, DELTA) < right


# releases that are no steps, and a larger target

def test_a_charge_is_no_step_and_is_for_good(path):
    with Ledger.create(path, HEADER) as book:
        book.charge(((COUNTS, 1), (EpsilonDeltaEvent(0.1, 1e-6), 1)))
        assert book.steps_charged == 0 and book.epsilon() == pytest.approx(0.11)
        assert book.reserve(block(3), 3) == 0
        with pytest.raises(ValueError, match="at least one event"):
            book.charge(((COUNTS, 0),))
    with Ledger.open(path) as book:
        assert dict(book.spent())[COUNTS] == 1 and book.steps_charged == 3
    assert [record["kind"] for record in ledger.read(path)] == [
        "header", "charge", "reserve", "open"]


def test_a_charge_is_on_disk_and_within_the_budget(path, monkeypatch):
    with Ledger.create(path, HEADER) as book:
        before = path.read_bytes()
        with pytest.raises(BudgetExceeded, match="no release of epsilon-delta.*epsilon 1.1"):
            book.charge(((EpsilonDeltaEvent(1.1), 1),))
        assert path.read_bytes() == before
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", half_then_full(50, os.pwrite))
            with pytest.raises(UserError, match="nothing may be drawn"):
                book.charge(((COUNTS, 1),))
        assert book.spent() == () and path.read_bytes() == before
        book.charge(((COUNTS, 1),))
        assert ledger.account(ledger.read(path)).spent() == ((COUNTS, 1),)
        assert max_steps(STEP, 1.0, DELTA, spent=book.spent()) == 146
        book.reserve(block(146), 146)
        with pytest.raises(BudgetExceeded):
            book.reserve(block(1), 1)


def test_an_extension_raises_the_target_from_then_on(path):
    with Ledger.create(path, HEADER) as book:
        book.reserve(block(149), 149)
        with pytest.raises(BudgetExceeded, match="epsilon 1 at"):
            book.reserve(block(1), 1)
        for epsilon in (0.5, 1.0, math.nan, math.inf):
            with pytest.raises(UserError, match="already has epsilon 1;"):
                book.extend(epsilon)
        book.extend(1.25)
        assert book.target == 1.25 and book.header == HEADER
        book.reserve(block(1), 1)
    with Ledger.open(path) as book:
        assert book.target == 1.25 and book.header["epsilon"] == 1.0
        most = max_steps(STEP, 1.25, DELTA, spent=book.spent())
        book.reserve(block(most), most)
        with pytest.raises(BudgetExceeded, match="epsilon 1.25 at"):
            book.reserve(block(1), 1)
        book.extend(2)
        book.reserve(block(1), 1)
    held = ledger.account(ledger.read(path))
    assert held.target == 2.0 and held.header["epsilon"] == 1.0


def test_without_a_budget_there_is_nothing_to_extend(path):
    with Ledger.create(path, {**HEADER, "epsilon": math.inf}) as book, pytest.raises(UserError):
        book.extend(2)


def test_all_kinds_of_events_are_kept(path):
    every = ((STEP, 2), (COUNTS, 3), (RenyiEvent(8, 0.01, "test"), 1))
    with Ledger.create(path, {**HEADER, "epsilon": 2}) as book:
        book.settle(book.reserve(every, 2), every[1:], 1)
        assert book.spent() == every[1:]
    with Ledger.open(path) as book:
        assert book.spent() == every[1:] and book.epsilon() == gaussian.epsilon(every[1:], DELTA)


# files

def test_an_existing_file_is_never_replaced(path):
    Ledger.create(path, HEADER).close()
    with pytest.raises(UserError, match="exists"):
        Ledger.create(path, HEADER)
    with pytest.raises(UserError, match="cannot be created"):
        Ledger.create(path.parent / "no" / "ledger.jsonl", HEADER)


@pytest.mark.parametrize("header", [
    {**HEADER, "epsilon": 0}, {**HEADER, "epsilon": math.nan}, {**HEADER, "delta": 1},
    {**HEADER, "prev": ""}, {**HEADER, "note": math.inf}, {**HEADER, "epsilon": -1}])
def test_a_bad_header_leaves_no_file(path, header):
    with pytest.raises(ValueError):
        Ledger.create(path, header)
    assert not path.exists()


def test_lines_are_strict_json_in_a_chain(crashed):
    previous = "0" * 64
    for text in crashed.read_text().splitlines():
        row = json.loads(text, parse_constant=pytest.fail)
        assert row.pop("prev") == previous
        claimed = row.pop("hash")
        body = json.dumps(row, sort_keys=True, separators=(",", ":"))
        assert claimed == hashlib.sha256((previous + body).encode()).hexdigest()
        previous = claimed
    assert [record["kind"] for record in ledger.read(crashed)] == [
        "header", "reserve", "settle", "reserve"]


def test_resume_starts_a_new_incarnation_on_disk(crashed):
    for incarnation in (1, 2):
        with Ledger.open(crashed) as book:
            assert book.incarnation == incarnation
            last = json.loads(crashed.read_text().splitlines()[-1])
            assert (last["kind"], last["incarnation"]) == ("open", incarnation)
            assert last["hash"] == book.head
            assert book.spent() == block(12) and book.steps_charged == 12
            with pytest.raises(ValueError, match="not open"):
                book.settle(1, block(1), 1)  # lost steps stay charged
    with Ledger.open(crashed) as book:
        book.settle(book.reserve(block(3), 3), block(3), 3)
        assert book.steps_charged == 15


def test_read_gives_the_same_totals(crashed):
    account = ledger.account(ledger.read(crashed))
    assert account.spent() == block(12) and account.steps == 12
    assert account.epsilon() == gaussian.epsilon(block(12), DELTA)
    assert account.header["config_hash"] == "abc"


def test_a_checkpoint_head_is_a_prefix(path):
    with Ledger.create(path, HEADER) as book:
        book.reserve(block(1), 1)
        head, n_lines = book.head, book.n_lines
        book.reserve(block(1), 1)
        assert book.contains(head, n_lines) and book.contains(book.head, book.n_lines)
        assert not book.contains(head, n_lines + 1) and not book.contains(head, n_lines + 2)
        assert not book.contains(book.head, 0) and not book.contains("0" * 64, 1)
    with Ledger.open(path) as book:
        assert book.contains(head, n_lines)


# damage

def test_missing_and_empty(path):
    refuses_to_resume(path, "No such file")
    path.touch()
    refuses_to_resume(path, "header, is missing")


def test_every_flipped_bit_is_noticed(crashed):
    data = crashed.read_bytes()
    ends = [i for i, byte in enumerate(data) if byte == ord("\n")]
    for position in sorted({*range(0, len(data), 7), *ends[:-1]}):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        crashed.write_bytes(damaged)
        number = 1 + sum(end < position for end in ends)
        refuses_to_resume(crashed, f"line {number} is broken")
    crashed.write_bytes(data[:-1] + b"\x0b")  # the last newline: no longer whole, so charged anew
    with Ledger.open(crashed) as book:
        assert book.steps_charged == 17


@pytest.mark.parametrize("edit", [
    lambda lines: lines[1:],
    lambda lines: lines[:1] + lines[2:],
    lambda lines: [lines[0], lines[2], lines[1], lines[3]],
    lambda lines: lines[:2] + lines[1:],
    lambda lines: [lines[0].replace(b"1.0", b"9.0"), *lines[1:]],
    lambda lines: [*lines[:3], lines[3].replace(b'"count":5', b'"count":1')],
    lambda lines: [*lines, b"\n"],
    lambda lines: [*lines, b"[]\n"],
    lambda lines: [*lines, b"[" * 100_000 + b"\n"]])
def test_edits_are_noticed(crashed, edit):
    crashed.write_bytes(b"".join(edit(crashed.read_bytes().splitlines(keepends=True))))
    refuses_to_resume(crashed, "line . is broken")


def rewrite(path, change):
    """The records changed, in a chain that is sound."""
    records, previous, data = ledger.read(path), chain.START, b""
    change(records)
    for record in records:
        line, previous = chain.line(previous, record)
        data += line
    path.write_bytes(data)


@pytest.mark.parametrize("change", [
    lambda records: records[1].update(id=3),
    lambda records: records[2].update(steps=11),
    lambda records: records[2].update(id=1),
    lambda records: records[2].update(kind="refund"),
    lambda records: records[2].pop("kind"),
    lambda records: records[1]["events"][0].update(count=-10),
    lambda records: records[1]["events"][0].update(sigma=0.0),
    lambda records: records[1]["events"][0].update(kind="none"),
    lambda records: records[1]["events"][0].update(more=1),
    lambda records: records.insert(1, records[0]),
    lambda records: records.insert(1, {"kind": "open", "incarnation": 2}),
    lambda records: records[0].update(delta=0),
    lambda records: records[0].update(epsilon="nan")])
def test_a_sound_chain_of_nonsense_is_refused(crashed, change):
    rewrite(crashed, change)
    refuses_to_resume(crashed, "line . is broken")


def test_every_flipped_bit_of_the_other_kinds_is_noticed(extended):
    data = extended.read_bytes()
    for position in range(0, len(data) - 1, 5):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        extended.write_bytes(damaged)
        refuses_to_resume(extended, "line . is broken")


@pytest.mark.parametrize("edit", [
    lambda lines: lines[:1] + lines[2:],
    lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
    lambda lines: lines[:4] + lines[5:],
    lambda lines: [*lines[:4], lines[4].replace(b"3.0", b"9.0"), lines[5]],
    lambda lines: [lines[0], lines[1].replace(b"0.01", b"0.00"), *lines[2:]]])
def test_edits_of_the_other_kinds_are_noticed(extended, edit):
    extended.write_bytes(b"".join(edit(extended.read_bytes().splitlines(keepends=True))))
    refuses_to_resume(extended, "line . is broken")


@pytest.mark.parametrize("change", [
    lambda records: records[4].update(epsilon=1.0),
    lambda records: records[4].update(epsilon="inf"),
    lambda records: records[4].update(epsilon="nan"),
    lambda records: records[4].pop("epsilon"),
    lambda records: records.insert(5, records[4]),
    lambda records: records.insert(0, records[4]),
    lambda records: records[1].update(events=[]),
    lambda records: records[1]["events"][0].update(count=-1),
    lambda records: records[1]["events"][0].update(epsilon=-0.5),
    lambda records: records[1]["events"][0].update(delta=1.5),
    lambda records: records[1]["events"][0].update(kind="renyi")])
def test_a_sound_chain_of_nonsense_of_the_other_kinds_is_refused(extended, change):
    rewrite(extended, change)
    refuses_to_resume(extended, "line . is broken")


@pytest.mark.parametrize("last", [2, 5], ids=["charge", "extend"])
def test_the_other_kinds_cut_at_any_byte(extended, last):
    """A torn charge costs what it names if that can be read, a torn extension extends nothing."""
    lines = extended.read_bytes().splitlines(keepends=True)[:last]
    whole, start = b"".join(lines), len(b"".join(lines[:-1]))
    for cut in [*range(start + 1, len(whole) - 1, 7), len(whole) - 2]:
        extended.write_bytes(whole[:cut])
        with Ledger.open(extended) as book:
            assert book.target == 1.0
            readable = whole[start:cut].startswith(b'{"events":') and b"]" in whole[start:cut]
            if last == 2:
                assert dict(book.spent()) == ({COUNTS: 2} if readable else {})
                assert book.steps_charged == 1
            else:
                assert dict(book.spent()) == {COUNTS: 2, STEP: 7 + 10}
                assert book.steps_charged == 17
    extended.write_bytes(whole[:-1])  # only the newline is missing: whole, as the hash proves
    with Ledger.open(extended) as book:
        assert book.target == (1.0 if last == 2 else 3.0) and dict(book.spent())[COUNTS] == 2


def test_a_torn_step_of_many_queries_is_one_block(path):
    """Identical events of one step, thousands of them, are no steps."""
    query, test = GaussianEvent(1e5, 2), GaussianEvent(3e5, 1)
    with Ledger.create(path, HEADER) as book:
        book.reserve(((query, 600), (test, 300)), 2)
        book.reserve(((query, 300), (test, 900)), 1)
    with open(path, "ab") as file:
        file.write(b'{"events":[{"')
    with Ledger.open(path) as book:
        assert book.steps_charged == 3 + 2
        assert dict(book.spent()) == {query: 900 + 600, test: 1200 + 900}


def test_a_cut_header_is_no_ledger(path):
    Ledger.create(path, HEADER).close()
    path.write_bytes(path.read_bytes()[:-20])
    refuses_to_resume(path, "line 1 is broken")


# torn last line

def test_a_cut_at_any_byte_is_charged(crashed):
    """The last line reserves 5 more on 7; the largest block before it was 10."""
    data = crashed.read_bytes()
    start = data.rstrip(b"\n").rindex(b"\n") + 1
    for cut in [*range(start + 1, len(data), 5), len(data) - 2, len(data) - 1]:
        crashed.write_bytes(data[:cut])
        listed = ledger.read(crashed)
        with Ledger.open(crashed) as book:
            # only the newline is missing: the line is whole; otherwise the largest is charged
            expected = 12 if cut == len(data) - 1 else 17
            assert book.steps_charged == expected and book.spent() == block(expected)
        kinds = [record["kind"] for record in ledger.read(crashed)]
        assert kinds[3:] == (["reserve", "open"] if expected == 12 else ["torn", "open"])
        assert [record["kind"] for record in listed] == kinds[:-1]
        assert crashed.read_bytes().endswith(b"\n")


def test_the_torn_bytes_are_kept(crashed):
    whole = crashed.read_bytes()
    crashed.write_bytes(whole + b"\0\xff garbage")
    with Ledger.open(crashed) as book:
        assert book.steps_charged == 22
    torn = ledger.read(crashed)[-2]
    assert torn["kind"] == "torn" and torn["raw"] == "AP8gZ2FyYmFnZQ=="
    assert crashed.read_bytes().startswith(whole)


def test_a_readable_torn_reservation_is_charged_if_larger(path):
    with Ledger.create(path, HEADER) as book:
        book.reserve(block(2), 2)
        book.reserve(block(9, OTHER), 9)
    path.write_bytes(path.read_bytes()[:-30])
    with Ledger.open(path) as book:
        # of each event what any reservation had; the steps of the torn one can no longer be read
        assert dict(book.spent()) == {STEP: 4, OTHER: 9} and book.steps_charged == 4


def test_a_torn_line_may_use_up_the_budget(path):
    with Ledger.create(path, HEADER) as book:
        book.reserve(block(100), 100)
    with open(path, "ab") as file:
        file.write(b"{")
    with Ledger.open(path) as book:
        assert book.steps_charged == 200 and book.epsilon() > 1
        with pytest.raises(BudgetExceeded):
            book.reserve(block(1), 1)


def test_a_torn_line_with_nothing_before_counts_a_step(path):
    Ledger.create(path, HEADER).close()
    with open(path, "ab") as file:
        file.write(b'{"ev')
    with Ledger.open(path) as book:
        assert book.steps_charged == 1 and book.spent() == ()


def test_a_crash_while_recovering_loses_nothing(crashed, monkeypatch):
    crashed.write_bytes(crashed.read_bytes()[:-30])
    torn = crashed.read_bytes()
    real = os.pwrite
    for kept in (0, 1, 40, 200, 400):
        crashed.write_bytes(torn)
        monkeypatch.setattr(os, "pwrite", half_then_full(kept, real))
        with pytest.raises(UserError, match="cannot be written"):
            Ledger.open(crashed)
        monkeypatch.setattr(os, "pwrite", real)
        with Ledger.open(crashed) as book:
            assert book.steps_charged == 17


# full disk

def half_then_full(kept, real):
    """A disk on which `kept` more bytes fit."""
    room = [kept]

    def pwrite(descriptor, data, offset):
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(descriptor, data[:room[0]], offset)
        room[0] -= written
        return written
    return pwrite


@pytest.mark.parametrize("kept", [0, 1, 100])
def test_full_disk_raises_and_leaves_the_file_whole(path, monkeypatch, kept):
    real = os.pwrite
    with Ledger.create(path, HEADER) as book:
        reservation = book.reserve(block(10), 10)
        before = path.read_bytes()
        monkeypatch.setattr(os, "pwrite", half_then_full(kept, real))
        with pytest.raises(UserError, match="No space left.*nothing may be drawn"):
            book.reserve(block(3), 3)
        with pytest.raises(UserError, match="No space left"):
            book.settle(reservation, block(1), 1)
        assert path.read_bytes() == before and book.spent() == block(10)
        monkeypatch.setattr(os, "pwrite", real)
        book.reserve(block(3), 3)
        assert book.steps_charged == 13
    assert ledger.account(ledger.read(path)).steps == 13


def test_records_are_on_disk_before_the_call_returns(path, monkeypatch):
    synced, real = [], os.fsync

    def fsync(descriptor):
        real(descriptor)
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        synced.append(path.read_bytes().count(b"\n"))

    monkeypatch.setattr(os, "fsync", fsync)
    with Ledger.create(path, HEADER) as book:
        assert synced == [str(path), 1, str(path.parent), 1]
        reservation = book.reserve(block(3), 3)
        assert synced[4:] == [str(path), 2]
        book.settle(reservation, block(3), 3)
        assert synced[6:] == [str(path), 3]


def test_short_writes_are_continued(path, monkeypatch):
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, data[:5], offset))
    with Ledger.create(path, HEADER) as book:
        book.reserve(block(3), 3)
    assert len(ledger.read(path)) == 2


@pytest.mark.parametrize("failing", ["fsync", "ftruncate"])
def test_a_file_that_cannot_be_cut_back_takes_no_more(path, monkeypatch, failing):
    def fails(*_):
        raise OSError(errno.EIO, "Input/output error")

    book = Ledger.create(path, HEADER)
    book.reserve(block(10), 10)
    with monkeypatch.context() as patch:
        patch.setattr(os, failing, fails)
        if failing == "ftruncate":
            patch.setattr(os, "pwrite", half_then_full(50, os.pwrite))
        with pytest.raises(UserError, match="nothing may be drawn"):
            book.reserve(block(3), 3)
    with pytest.raises(UserError, match="half-way"):
        book.reserve(block(3), 3)
    assert book.spent() == block(10)
    book.close()
    with Ledger.open(path) as book:
        assert book.steps_charged >= 10


def test_an_interrupt_in_an_append_is_not_followed_by_another(path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with Ledger.create(path, HEADER) as book:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(os, "fsync", interrupted)
            book.reserve(block(3), 3)
        with pytest.raises(UserError, match="takes no more"):
            book.reserve(block(3), 3)
    assert len(ledger.read(path)) == 1


def test_an_interrupt_after_the_write_is_not_followed_by_another(path, monkeypatch):
    durably = Ledger._durably

    def interrupted(book, line):
        durably(book, line)
        raise KeyboardInterrupt

    with Ledger.create(path, HEADER) as book:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Ledger, "_durably", interrupted)
            book.reserve(block(3), 3)
        with pytest.raises(UserError, match="interrupted"):
            book.reserve(block(3), 3)
    with Ledger.open(path) as book:  # the file has it, so it counts
        assert book.steps_charged == 3


def test_full_disk_at_creation_leaves_nothing(path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", half_then_full(30, os.pwrite))
        with pytest.raises(UserError, match="No space"):
            Ledger.create(path, HEADER)
    assert not path.exists()
    Ledger.create(path, HEADER).close()


def test_a_real_size_limit(path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Ledger.create(path, HEADER) as book:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1500, hard))
            with pytest.raises(UserError, match="cannot be written"):
                for _ in range(20):
                    book.reserve(block(1), 1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        charged = book.steps_charged
    assert 0 < charged < 20
    assert len(ledger.read(path)) == 1 + charged


@pytest.mark.parametrize("meddle", [
    lambda path: path.unlink(), lambda path: os.truncate(path, 10),
    lambda path: path.open("ab").write(b"x")])
def test_a_file_changed_behind_our_back_takes_no_more(path, meddle):
    with Ledger.create(path, HEADER) as book:
        meddle(path)
        with pytest.raises(UserError, match="deleted|something else"):
            book.reserve(block(1), 1)


def test_a_closed_ledger_takes_no_more(path):
    book = Ledger.create(path, HEADER)
    book.close()
    book.close()
    with pytest.raises(UserError, match="closed"):
        book.reserve(block(1), 1)


# processes

def run(code, path):
    return subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def test_a_second_process_is_refused(path):
    code = """
import sys
from dpgen_jax.accountant.ledger import Ledger
try:
    Ledger.open(sys.argv[1])
except ValueError as error:
    print(error)
"""
    with Ledger.create(path, HEADER) as book:
        before = path.read_bytes()
        said, _ = run(code, path).communicate(timeout=30)
        assert "another process is using" in said and path.read_bytes() == before
        with pytest.raises(UserError, match="another process"):
            Ledger.open(path)
        book.reserve(block(1), 1)
        assert len(ledger.read(path)) == 2  # reading needs no lock
    said, _ = run(code, path).communicate(timeout=30)
    assert said == ""


def test_a_forked_child_must_not_write(path):
    with Ledger.create(path, HEADER) as book:
        book._pid += 1  # what a child sees
        with pytest.raises(UserError, match="forked"):
            book.reserve(block(1), 1)


def test_killed_at_any_moment_it_counts_all_that_was_drawn(path):
    """`kill -9` in a loop of reserve, draw (print), settle: three lives of one run."""
    code = f"""
import math, os, sys
from dpgen_jax.accountant.events import GaussianEvent
from dpgen_jax.accountant.ledger import Ledger
step = GaussianEvent(5000, 12000)
path = sys.argv[1]
header = dict(epsilon=1000.0, delta={DELTA})
book = Ledger.open(path) if os.path.exists(path) else Ledger.create(path, header)
while True:
    block = book.reserve(((step, 3),), 3)
    os.write(1, b"##")
    book.settle(block, ((step, 2),), 2)
"""
    drawn, last = 0, 0
    for life in range(3):
        child = run(code, path)
        assert child.stdout.read(2) == "##", child.stdout.read()
        time.sleep(0.05 + 0.07 * life)
        child.send_signal(signal.SIGKILL)
        drawn += 2 + len(child.stdout.read())
        child.wait(timeout=30)
        account = ledger.account(ledger.read(path))
        assert account.steps >= drawn and account.spent() == block(account.steps)
        assert account.incarnation == life and account.steps > last
        last = account.steps
    assert last <= drawn + 3 * 3  # and over-counts by less than one block for each life


def test_appending_costs_the_same_at_any_length(path):
    with Ledger.create(path, {**HEADER, "epsilon": 1000}) as book:
        def sizes():
            account = book._account
            return len(account.counts), len(account.pending)

        for _ in range(200):
            book.settle(book.reserve(block(1), 1), block(1), 1)
            assert sizes() == (1, 0)
        assert book.n_lines == 401 and book.steps_charged == 200
