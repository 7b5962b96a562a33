"""The ledger under faults of disks and processes: full disk, interrupt, kill, a second process."""

import errno
import os
import resource
import signal
import subprocess
import sys
import time

import pytest
from ledgers import DELTA, HEADER, block, half_then_full

from dpgen_jax.accountant import ledger
from dpgen_jax.accountant.ledger import AppendOnlyFile, Ledger
from dpgen_jax.core.errors import UserError


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
    append = AppendOnlyFile.append

    def interrupted(file, line):
        append(file, line)
        raise KeyboardInterrupt

    with Ledger.create(path, HEADER) as book:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(AppendOnlyFile, "append", interrupted)
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
        said, _ = run(code, path).communicate(timeout=1800)
        assert "another process is using" in said and path.read_bytes() == before
        with pytest.raises(UserError, match="another process"):
            Ledger.open(path)
        book.reserve(block(1), 1)
        assert len(ledger.read(path)) == 2  # reading needs no lock
    said, _ = run(code, path).communicate(timeout=1800)
    assert said == ""


def test_a_forked_child_must_not_write(path):
    with Ledger.create(path, HEADER) as book:
        book._file._pid += 1  # what a child sees
        with pytest.raises(UserError, match="forked"):
            book.reserve(block(1), 1)


@pytest.mark.slow
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
    n_drawn, last = 0, 0
    for life in range(3):
        child = run(code, path)
        assert child.stdout.read(2) == "##", child.stdout.read()
        time.sleep(0.05 + 0.07 * life)
        child.send_signal(signal.SIGKILL)
        n_drawn += 2 + len(child.stdout.read())
        child.wait(timeout=1800)
        account = ledger.account(ledger.read(path))
        assert account.steps >= n_drawn and account.spent() == block(account.steps)
        assert account.incarnation == life and account.steps > last
        last = account.steps
    assert last <= n_drawn + 3 * 3  # and over-counts by less than one block for each life


def test_appending_costs_the_same_at_any_length(path):
    with Ledger.create(path, {**HEADER, "epsilon": 1000}) as book:
        def sizes():
            account = book._account
            return len(account.counts), len(account.pending)

        for _ in range(200):
            book.settle(book.reserve(block(1), 1), block(1), 1)
            assert sizes() == (1, 0)
        assert book.n_lines == 401 and book.steps_charged == 200
