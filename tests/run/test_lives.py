"""Whatever was done to the files of a run folder, and to copies of it, between its starts: what was
drawn is charged, or the resume is refused."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from simulated_runs import Killed, World, charged

from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.core import run_folder
from dpgen_jax.core.types import UserError
from dpgen_jax.private import kept_votes

BEFORE = ("folder", "identity")
MOMENTS = (*BEFORE, "ledger", "block", "reserved", "drawn", "kept", "settled", "")
FILES = ("config.json", "ledger.jsonl", "metrics.jsonl", "class_counts.json", "private",
         "private/identity.json", "private/votes.i4", "private/checkpoints")
share = st.integers(0, 12)


def cut(data, at, to):
    return data[:len(data) * at // 12]


def cut_at_a_line(data, at, to):
    lines = data.splitlines(keepends=True)
    return b"".join(lines[:len(lines) * at // 12])


def without_a_line(data, at, to):
    lines = data.splitlines(keepends=True)
    return b"".join(lines[:len(lines) * at // 13] + lines[len(lines) * at // 13 + 1:])


def moved(data, at, to):
    lines = data.splitlines(keepends=True)
    if lines:
        lines.insert(len(lines) * to // 13, lines.pop(len(lines) * at // 13))
    return b"".join(lines)


def repeated(data, at, to):
    lines = data.splitlines(keepends=True)
    return b"".join([*lines[:len(lines) * to // 13], *lines[:len(lines) * at // 13]])


EDITS = (cut, cut_at_a_line, without_a_line, moved, repeated)


def remove(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def put(source, path):
    remove(path)
    path.parent.mkdir(exist_ok=True)
    if source.exists():
        shutil.copytree(source, path) if source.is_dir() else shutil.copy(source, path)


class Folders(RuleBasedStateMachine):
    """One run on one machine, in as many folders as copies were made of it."""

    def __init__(self):
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="lives-"))
        self.before, self.world = os.environ["DPGEN_STATE"], World()
        os.environ["DPGEN_STATE"] = str(self.place / "state")
        self.folders, self.backups, self.ahead = [self.place / "0"], [], None
        self.world.live(self.folders[0], resume_it=False, blocks=2)
        self.back_up(0)

    def teardown(self):
        os.environ["DPGEN_STATE"] = self.before
        shutil.rmtree(self.place)

    def one(self, number):
        return self.folders[number % len(self.folders)]

    @rule(number=share, moment=st.sampled_from(MOMENTS), blocks=st.integers(0, 3),
          size=st.integers(1, 3), save_every=st.integers(1, 3))
    def resume(self, number, moment, **how):
        root, before = self.one(number), (self.world.steps, self.world.bits.purchases)
        try:
            self.world.live(root, killed=moment, **how)
            accepted = True
        except Killed:
            accepted = moment not in BEFORE
        except UserError as error:
            assert "\n" not in str(error)
            accepted = before != (self.world.steps, self.world.bits.purchases)
        if accepted:
            self.ahead = root

    @rule(number=share)
    def back_up(self, number):
        self.backups.append(shutil.copytree(self.one(number), self.place / (
            f"backup-{len(self.backups)}")))

    @rule(number=share, backup=share)
    def copy(self, number, backup):
        """A backup is put back as another folder, or in place of one."""
        source = self.backups[backup % len(self.backups)]
        if number > 6 and len(self.folders) < 4:
            self.folders.append(self.place / str(len(self.folders)))
            put(source, self.folders[-1])
        else:
            self.forget(self.one(number))
            put(source, self.one(number))

    @rule(number=share, name=st.sampled_from(FILES))
    def remove(self, number, name):
        self.forget(self.one(number))
        remove(self.one(number) / name)

    @rule(number=share, name=st.sampled_from(FILES), backup=share)
    def bring_back(self, number, name, backup):
        """One file or folder of an older state, or of another copy."""
        self.forget(self.one(number))
        self.one(number).mkdir(exist_ok=True)
        put(self.backups[backup % len(self.backups)] / name, self.one(number) / name)

    @rule(number=share, name=st.sampled_from(FILES), edit=st.sampled_from(EDITS), at=share,
          to=share)
    def edit(self, number, name, edit, at, to):
        path = self.one(number) / name
        if path.is_file():
            self.forget(self.one(number))
            path.write_bytes(edit(path.read_bytes(), at, to))

    def forget(self, root):
        if self.ahead == root:
            self.ahead = None

    @invariant()
    def what_was_drawn_is_charged(self):
        """In the folder that went on last, as long as nobody touched it."""
        if self.ahead is not None:
            steps, purchases = charged(self.ahead)
            assert steps >= self.world.steps and purchases >= self.world.bits.purchases


class TestFolders(Folders.TestCase):
    settings = settings(max_examples=25, stateful_step_count=20, deadline=None,
                        suppress_health_check=list(HealthCheck))


def test_the_machine_would_notice_a_forgotten_step(monkeypatch):
    """A ledger whose witnesses say nothing, cut at a line and resumed."""
    monkeypatch.setattr(Ledger, "contains", lambda *_: True)
    monkeypatch.setattr(run_folder, "charged", lambda path: 0)
    monkeypatch.setattr(kept_votes, "n_steps", lambda *_: 0)
    machine = Folders()
    try:
        machine.resume(0, "", blocks=3, size=1, save_every=3)
        machine.what_was_drawn_is_charged()
        machine.edit(0, "ledger.jsonl", cut_at_a_line, 6, 0)
        machine.remove(0, "private/checkpoints")
        machine.resume(0, "", blocks=0, size=1, save_every=3)
        with pytest.raises(AssertionError):
            machine.what_was_drawn_is_charged()
    finally:
        machine.teardown()


def test_a_folder_of_which_nothing_but_its_configuration_is_left_is_refused(monkeypatch, tmp_path):
    """The line of the journal keeps it from beginning anew, whatever else is gone."""
    monkeypatch.setenv("DPGEN_STATE", str(tmp_path / "state"))
    world, root = World(), tmp_path / "run"
    world.live(root, resume_it=False, blocks=2)
    for name in FILES:
        if name != "config.json":
            remove(root / name)
    with pytest.raises(UserError, match="steps|ledger|journal"):
        world.live(root, blocks=1)
