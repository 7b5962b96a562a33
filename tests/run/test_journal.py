"""The journal of spent runs: copies and older states of a folder, and sums over runs."""

import errno
import os
import re
import shutil
import stat
from pathlib import Path

import filelock
import pytest
import runs
import small_datalens
from simulated_runs import BUDGET, MECHANISM, RECORDS, Killed, World, charged, killed

from dpgen_jax.accountant import journal as journals
from dpgen_jax.accountant.journal import Journal, Unusable
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.noise import OsBits
from dpgen_jax.core.types import BudgetExceeded, UserError
from dpgen_jax.private import records
from dpgen_jax.run import spending


def test_of_two_copies_one_goes_on(world, root):
    """Both resumed they would have spent twice what is left."""
    killed(world, root, "block", blocks=2, resume_it=False)
    copy = shutil.copytree(root, root.with_name("copy"))
    world.live(copy, blocks=1)
    with pytest.raises(UserError, match="is an older state or a copy.*use the folder") as caught:
        world.live(root, blocks=1)
    assert str(copy) in str(caught.value) and "\n" not in str(caught.value)
    assert world.live(copy, blocks=1)[0] == charged(copy)[0] - 1 == world.steps - 1


def test_an_older_state_of_a_whole_folder_is_refused(world, root):
    """A backup brought back: nothing in it disagrees."""
    killed(world, root, "block", blocks=2, resume_it=False)
    backup = shutil.copytree(root, root.with_name("backup"))
    killed(world, root, "drawn", blocks=1)
    shutil.rmtree(root)
    shutil.copytree(backup, root)
    with pytest.raises(UserError, match="has 6 lines, but not line 10"):
        world.live(root, blocks=1)


def test_a_folder_without_all_that_it_spent_is_no_fresh_one(world, root):
    world.live(root, resume_it=False, blocks=2)
    for path in root.iterdir():
        if path.name != "config.json":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (root / "private").mkdir()
    with pytest.raises(UserError, match="has 0 lines, but not line"):
        world.live(root, blocks=1)


def test_a_folder_that_moved_goes_on_here_and_elsewhere(world, root, monkeypatch, tmp_path):
    world.live(root, resume_it=False, blocks=2)
    root.rename(tmp_path / "moved")
    world.live(tmp_path / "moved", blocks=1)
    monkeypatch.setenv("DPGEN_STATE", str(tmp_path / "another machine"))
    world.live(tmp_path / "moved", blocks=1)
    assert charged(tmp_path / "moved") == (world.steps, 1) == (4, 1)


def test_a_copy_of_a_run_that_is_under_way_is_refused(world, root, journal):
    """At the very line that the journal knows: the two would go on side by side."""
    copy = root.with_name("copy")

    def meanwhile(line):
        assert line == "reached"

    def draw(self, shape):
        shutil.copytree(root, copy)
        with pytest.raises(UserError, match="another process is using this run"):
            World().live(copy)
        meanwhile("reached")
        return OsBits.draw(self, shape)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(world.bits), "draw", draw)
        world.live(root, resume_it=False, blocks=1)
    assert copy.exists() and charged(root) == (1, 1)


def heads(folder):
    return [run.head for run in Journal(folder).on(records.fingerprint(
        RECORDS, Journal(folder).key))]


@pytest.mark.parametrize("moment", ["ledger", "reserved"])
def test_the_journal_knows_a_line_before_anything_is_drawn_on_it(world, root, journal, moment):
    seen = []
    real = Ledger._append

    def append(ledger, record):
        real(ledger, record)
        if record["kind"] != "settle":
            seen.append(ledger.head)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "_append", append)
        killed(world, root, moment, resume_it=False)
    assert heads(journal) == [seen[-1]]


@pytest.mark.parametrize("call", ["fsync", "pwrite"])
def test_where_the_journal_is_full_nothing_is_drawn(world, root, journal, monkeypatch, call):
    killed(world, root, "block", blocks=1, resume_it=False)
    real = getattr(os, call)

    def full(descriptor, *args):
        if "runs" in os.readlink(f"/proc/self/fd/{descriptor}").split("/"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, *args)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(UserError, match="journal of this run.*No space.*nothing may be drawn"):
            world.live(root, blocks=1)
    assert world.steps == 1
    world.live(root, blocks=1)
    assert world.steps == 2 and charged(root)[0] >= 2


@pytest.mark.parametrize("lost", [
    lambda path: path.unlink(), lambda path: shutil.rmtree(path.parent.parent),
    lambda path: os.truncate(path, 0), lambda path: os.truncate(path, path.stat().st_size // 2),
    lambda path: path.with_name("back").write_bytes(path.read_bytes())
    and path.with_name("back").rename(path),
    lambda path: path.write_bytes(path.read_bytes() + path.read_bytes()[-300:])],
    ids=["file", "all", "empty", "cut", "put back", "written to"])
def test_a_journal_that_is_lost_under_a_run_stops_it(world, root, journal, monkeypatch, lost):
    """The run went on, and the journal knew nothing of what it drew from then on."""
    real, drawn = Ledger.settle, []

    def settle(ledger, *args):
        real(ledger, *args)
        drawn.append(args)
        if len(drawn) == 2:
            lost(entry(journal))

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "settle", settle)
        with pytest.raises(UserError, match="was deleted, replaced or written to .*nothing may be"):
            world.live(root, resume_it=False, blocks=5)
    assert world.steps == len(drawn) == 2 < charged(root)[0] == 3


@pytest.mark.parametrize("place", ["lock", "runs"])
def test_a_disk_without_locks_is_named(world, root, journal, monkeypatch, place):
    """As some disks of networks are; that there was no space left was no help."""
    real = filelock.lock_descriptor

    def none(descriptor, **options):
        if place in os.readlink(f"/proc/self/fd/{descriptor}").split("/"):
            raise OSError(errno.ENOLCK, "No locks available")
        return real(descriptor, **options)

    monkeypatch.setattr(filelock, "lock_descriptor", none)
    with pytest.raises(UserError, match="No locks available.*DPGEN_STATE to .* a local disk"):
        world.live(root, resume_it=False, blocks=1)
    assert not world.steps


def test_only_its_owner_may_read_it(world, root, journal):
    before = os.umask(0)
    try:
        world.live(root, resume_it=False, blocks=1)
    finally:
        os.umask(before)
    for path in [journal, *journal.rglob("*")]:
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


@pytest.mark.slow
def test_nothing_of_the_journal_is_in_the_run_folder(tmp_path, journal):
    runs.train(tmp_path / "run")
    sealed = records.seal(*runs.images(), small_datalens.SPEC)
    key = Journal(journal).key
    secret = [key, key.hex().encode(), records.fingerprint(sealed, key).encode()]
    assert len(Journal(journal).on(secret[-1].decode())) == 1
    for name, content in runs.snapshot(tmp_path / "run").items():
        assert not any(code in content for code in secret), name


def entry(folder):
    (path,) = (folder / "runs").iterdir()
    return path


def test_a_torn_last_line_is_of_nothing_that_was_drawn(world, root, journal):
    killed(world, root, "block", blocks=3, resume_it=False)
    path = entry(journal)
    path.write_bytes(path.read_bytes() + b'{"folder":"/')
    world.live(root, blocks=1)
    assert b'"/{' not in path.read_bytes() and path.read_bytes().endswith(b"}\n")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:1]) + b"{")
    world.live(root, blocks=1)  # torn as it was made


@pytest.mark.parametrize("damage", [
    b"\0" * 500 + b"\n\n", b"[]\n[]\n", b"{}\n{}\n", b"[" * 10**5 + b"\n" + b"[" * 10**5 + b"\n"],
    ids=["zeros", "lists", "empty", "deep"])  # an id of the last one's bytes fits no environment
def test_a_damaged_journal_is_named(world, root, journal, damage):
    killed(world, root, "block", blocks=3, resume_it=False)
    path = entry(journal)
    whole = path.read_bytes()
    middle = len(whole) - 200
    for content in (damage, whole.replace(b'"lines":', b'"liens":'),
                    whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1:],
                    whole.splitlines(keepends=True)[0] + damage):
        path.write_bytes(content)
        for out, resume_it in ((root, True), (root.with_name("new"), False)):
            with pytest.raises(UserError, match=f"{path} is damaged: restore it, or remove it"):
                world.live(out, resume_it=resume_it)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match="not a regular file"):
        world.live(root)


@pytest.mark.parametrize(("damage", "match"), [
    (lambda path: path.write_bytes(b"12"), "key is damaged"),
    (lambda path: path.write_bytes(b"\xff" * 64), "key is damaged"),
    (lambda path: path.write_bytes(b"0" * 10**6), "key is damaged"),
    (lambda path: path.unlink(), "key is missing")])
def test_a_key_that_is_lost_is_named(world, root, journal, damage, match):
    world.live(root, resume_it=False)
    damage(journal / "key")
    with pytest.raises(UserError, match=f"{match}: restore it, or remove"):
        world.live(root)


def test_without_a_journal_a_run_says_so_and_goes_on(world, root, tmp_path, monkeypatch):
    """As in a home that cannot be written; but no total is promised."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("DPGEN_STATE", str(tmp_path / "file/state"))
    said = []
    world.live(root, resume_it=False, blocks=1, say=said.append)
    assert len(said) == 1 and "cannot be written" in said[0] and "DPGEN_STATE" in said[0]
    with pytest.raises(Unusable, match="set DPGEN_STATE"):
        world.live(root.with_name("new"), resume_it=False, total=20.0)


def test_where_the_journal_lies(monkeypatch):
    monkeypatch.delenv("DPGEN_STATE")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/a")
    assert journals.place() == Path("/home/a/.local/state/dpgen_jax")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert journals.place() == Path("/state/dpgen_jax")
    monkeypatch.setenv("DPGEN_STATE", "/here")
    assert journals.place() == Path("/here")


# sums over runs

def looked_up(said, budget=BUDGET, guarantee=True, total=None, mechanism=MECHANISM):
    start = spending.Start(budget, guarantee, total)
    with spending.before(spending.Identity(RECORDS), mechanism, start, said.append):
        pass


def test_a_run_that_drew_nothing_counts_only_while_it_is_under_way(world, root):
    said = []
    killed(world, root, "ledger", resume_it=False, say=said.append)
    looked_up(said, total=10.0)
    assert said == []

    class Looking(World):
        def _steps(self, *_):
            raise Killed

    def draw(self, shape):
        with pytest.raises(BudgetExceeded, match="would be epsilon 20"):
            looked_up(said, total=10.0)
        return OsBits.draw(self, shape)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(world.bits), "draw", draw)
        world.live(root.with_name("second"), resume_it=False)
    assert len(said) == 1


@pytest.mark.parametrize("fields", [{"relation": "zero-out"}, {"unit": "client"}])
def test_a_promise_of_another_kind_is_named_and_not_added(world, root, fields):
    """Those of records say nothing of all records of a client."""
    world.live(root, resume_it=False, blocks=1)
    said, other = [], type(MECHANISM)(**{**vars(MECHANISM), **fields})
    looked_up(said, mechanism=other)
    assert "1 run without a guarantee that could be added" in said[0] and str(root) in said[0]
    with pytest.raises(BudgetExceeded, match="cannot be promised: 1 run on these records"):
        looked_up(said, mechanism=other, total=100.0)


def test_a_promise_for_clients_covers_their_records(world, root, monkeypatch):
    monkeypatch.setattr(MECHANISM, "unit", "client")
    world.live(root, resume_it=False, blocks=1)
    monkeypatch.setattr(MECHANISM, "unit", "record")
    said = []
    looked_up(said, total=20.0)
    assert "1 run spent epsilon" in said[0]


@pytest.mark.parametrize(("guarantee", "total"), [(False, 5.0), (True, 0.0), (True, float("inf")),
                                                  (True, float("nan"))])
def test_a_total_needs_a_run_with_a_guarantee(guarantee, total):
    with pytest.raises(UserError, match="--total-epsilon"):
        looked_up([], guarantee=guarantee, total=total)


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_once")
def test_whole_runs_on_the_same_records(tmp_path):
    """Seeded and infinite runs are no part of a sum, and no total is promised beside them."""
    _, said = runs.train(tmp_path / "seeded", seed=1)
    assert "earlier on these records" not in said
    _, said = runs.train(tmp_path / "first")
    assert "private: earlier on these records: 1 run without a guarantee that" in said
    assert f"({tmp_path / 'seeded'})" in said
    x, y = runs.images(seed=5)
    _, said = runs.train(tmp_path / "others", x, y)
    assert "earlier on these records" not in said
    _, said = runs.train(tmp_path / "second")
    assert re.search(r"1 run spent epsilon 9\.9\d+ of budgets of 10; with this run's 10 the sum is "
                     r"epsilon 20", said), said
