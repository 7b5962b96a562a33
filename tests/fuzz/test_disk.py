"""After a crash that forgets what was not synced, a ledger charges what was drawn, or is refused.
"""

import functools
import os
from pathlib import Path
from random import Random

import pytest
from disk import Disk, lay
from ledgers import COUNTS, HEADER, block

from benchmarks.fuzzing import cases, read_runs
from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.noise import OsBits
from dpgen_jax.core.errors import UserError
from dpgen_jax.core.run_folder import read_json, write_json
from dpgen_jax.methods import datalens
from dpgen_jax.run import lifecycle, loop, stages


@functools.cache
def charged(data: bytes | None, path: Path) -> int | None:
    """Steps that a ledger of these bytes charges when it is resumed; None where it is refused."""
    path.unlink(missing_ok=True)
    if data is not None:
        path.write_bytes(data)
    try:
        with Ledger.open(path) as book:
            return book.steps_charged
    except UserError:
        return None


class Drawing:
    """A ledger's life, and after each change all that a crash may leave."""

    def __init__(self, place):
        self.place, self.steps_drawn, self.states, self.faults = place / "run", 0, 0, []
        self.place.mkdir(parents=True)
        self.path, self.scratch = self.place / "ledger.jsonl", place / "scratch"
        self.disk = Disk(self.place, self.look)

    def look(self):
        for state in self.disk.states(Random(self.states), 40):
            self.states += 1
            found = charged(state.get("ledger.jsonl"), self.scratch)
            if found is not None and found < self.steps_drawn:
                self.faults.append(f"{self.steps_drawn} drawn, {found} charged: {state}")

    def visit(self, book, n):
        ticket = book.reserve(block(n), n)
        self.steps_drawn += n
        self.look()
        book.settle(ticket, block(n), n)

    def live(self):
        with self.disk:
            with Ledger.create(self.path, HEADER) as book:
                book.charge(((COUNTS, 1),))
                self.visit(book, 3)
                self.visit(book, 2)
                book.reserve(block(4), 4)
                self.steps_drawn += 4  # and lost
            with self.path.open("ab") as file:
                file.write(b'{"events":[')  # a torn line
            with Ledger.open(self.path) as book:
                self.visit(book, 1)
                book.extend(2.0)
                self.visit(book, 2)


def test_a_ledger_charges_what_was_drawn_whatever_a_crash_forgets(tmp_path):
    drawing = Drawing(tmp_path)
    drawing.live()
    assert drawing.states > 50 and not drawing.faults


def test_a_ledger_that_does_not_sync_is_caught(tmp_path, monkeypatch):
    """Without the sync of its folder the ledger has no name; without that of the file, no lines."""
    for fault in ("folder", "file"):
        drawing, lost = Drawing(tmp_path / fault), []
        with drawing.disk, monkeypatch.context() as patched:
            if fault == "folder":
                patched.setattr(books, "sync", lambda path: None)
            else:
                patched.setattr(os, "fsync", lambda descriptor: None)
            with Ledger.create(drawing.path, HEADER) as book:
                book.reserve(block(3), 3)
                lost += drawing.disk.states(Random(0), 40)
        assert any(not state.get("ledger.jsonl") for state in lost)


def test_a_file_of_json_is_old_or_new_and_stays_what_it_became(tmp_path):
    place, found = tmp_path / "run", set()
    place.mkdir()
    with Disk(place, lambda: found.update(
            state.get("a.json") for state in disk.states(Random(0), 40))) as disk:
        write_json(place / "a.json", {"n": 1})
        (one,) = {state["a.json"] for state in disk.states(Random(0), 40)}
        found.clear()
        write_json(place / "a.json", {"n": 2})
        (other,) = {state["a.json"] for state in disk.states(Random(0), 40)}
    assert one != other and found == {one, other}
    assert read_json(place / "a.json") == {"n": 2}


@pytest.mark.slow
def test_a_run_charges_what_was_drawn_whatever_a_crash_forgets(tmp_path, monkeypatch):
    """The start of a run, three steps and their checkpoints: what is left of it after any crash is
    refused by a resume, or charges at least the steps that were drawn; and its name is there."""
    place, crashes, n_drawn, looks = tmp_path / "disk", [], [], []
    place.mkdir()

    def look():
        looks.append(len(n_drawn))
        if len(looks) % (10 if n_drawn else 1) == 0:  # most changes are those of checkpoints
            crashes.extend((state, len(n_drawn)) for state in disk.states(Random(len(looks)), 3))

    real = OsBits.draw

    def draw(self, shape):
        if (place / "run/class_counts.json").exists():
            n_drawn.append(shape[0])
            crashes.extend((state, len(n_drawn)) for state in disk.states(Random(0), 4))
        return real(self, shape)

    monkeypatch.setenv("DPGEN_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(datalens, "build", functools.cache(datalens.build))
    with Disk(place, look) as disk, monkeypatch.context() as patched:
        patched.setattr(OsBits, "draw", draw)
        patched.setattr(loop, "compile_block", lambda method, layout: cases.idle)
        patched.setattr(stages, "write_pictures", lambda *_: None)
        lifecycle.run(
            read_runs.request(place / "run", False), read_runs.records(), log=lambda line: None
        )
    chosen = Random(0).sample(crashes, min(8, len(crashes)))
    faults = [fault for i, (state, count) in enumerate(chosen)
              if (fault := after(state, count, tmp_path / str(i)))]
    assert len(n_drawn) == read_runs.STEPS and not faults


def after(state, n_drawn, place):
    """Return the fault of a run that goes on from this state, or None."""
    if n_drawn and "run" not in state:
        return f"{n_drawn} steps were drawn, and the run folder has no name"
    try:
        found = read_runs.run(lay(state, place))
    except UserError:
        return None
    return f"{n_drawn} drawn, {found['steps']} charged: {sorted(state)}" \
        if found["steps"] < n_drawn else None
