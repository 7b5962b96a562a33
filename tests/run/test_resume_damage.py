"""A damaged checkpoint is noticed, and an earlier one is offered."""

import json
import os
import shutil

import pytest
import runs
import small_datalens
import test_resume
from test_resume import DONE, STEPS, restored, totals

from dpgen_jax.core.types import UserError

template = test_resume.template
broken = test_resume.broken
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_once")]


def damage(path, how):
    data = bytearray(path.read_bytes())
    if how == "cut":
        data = data[:len(data) // 2]
    else:
        data[len(data) // 2] ^= 16
    path.write_bytes(data)


@pytest.mark.parametrize("how", ["cut", "flip"])
def test_no_damaged_file_of_a_checkpoint_goes_unnoticed(broken, how):
    """Each file in turn: the checkpoint is refused by name, or the file does not matter."""
    folder = runs.files(broken).checkpoints / str(DONE)
    whole, refused = restored(broken, DONE), set()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        before = path.read_bytes()
        damage(path, how)
        try:
            assert small_datalens.equal(restored(broken, DONE), whole), path
        except UserError as error:
            assert str(folder) in str(error) or "ledger" in str(error)
            refused.add(path.relative_to(folder).parts[0])
        path.write_bytes(before)
    assert refused == {"note.json", "public.safetensors", "units-00000.safetensors"}


@pytest.mark.parametrize("part", ["note.json", "public.safetensors"])
def test_a_pipe_in_a_checkpoint_is_damage_and_no_wait_without_end(broken, part):
    path = runs.files(broken).checkpoints / str(DONE) / part
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match=f"{DONE} is damaged"):
        restored(broken, DONE)


@pytest.mark.parametrize("part", ["public.safetensors", "units-00000.safetensors",
                                  "note.json"])
def test_after_damage_the_earlier_checkpoint_is_offered(broken, part):
    folder = runs.files(broken).checkpoints
    damage(folder / str(DONE) / part, "cut")
    before, charged = runs.snapshot(broken / "private"), totals(broken).steps
    with pytest.raises(UserError, match=rf"{folder / str(DONE)} is damaged .* step {DONE - 1}\b"):
        runs.train(broken, resume=True)
    assert runs.snapshot(broken / "private") == before and totals(broken).steps == charged
    if part == "note.json":  # once is enough
        shutil.rmtree(folder / str(DONE))
        release, _ = runs.train(broken, resume=True)
        assert release.privacy["steps"] == STEPS - 2  # steps 3 and 4 were lost, and are charged
        assert totals(broken).steps == STEPS


def test_a_note_without_its_entries_is_damage(broken):
    note = runs.files(broken).checkpoints / str(DONE) / "note.json"
    note.write_text(json.dumps({"ledger_head": json.loads(note.read_text())["ledger_head"]}))
    with pytest.raises(UserError, match=f"{DONE} is damaged"):
        runs.train(broken, resume=True)


def test_the_last_checkpoint_gone_means_a_new_run(broken):
    folder = runs.files(broken).checkpoints
    shutil.rmtree(folder / str(DONE - 1))
    damage(folder / str(DONE) / "note.json", "cut")
    with pytest.raises(UserError, match="no earlier one is left, so start a new run"):
        runs.train(broken, resume=True)
