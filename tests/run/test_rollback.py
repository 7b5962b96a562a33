"""Folders that were edited, cut or copied: the attack is named, and the resume is refused.

Each attack is made on another machine too where the folder itself must show it: there the journal
knows nothing.
"""

import json
import shutil

import numpy as np
import pytest
from simulated_runs import BUDGET, COUNTS, charged, killed

from dpgen_jax.core import run_folder
from dpgen_jax.core.types import BudgetExceeded, UserError
from dpgen_jax.private import records
from dpgen_jax.run import checkpoint, resume


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """Moves to a machine whose journal knows nothing."""
    return lambda: monkeypatch.setenv("DPGEN_STATE", str(tmp_path / "another machine"))


def refused(world, root, match, **options):
    """And the folder is as it was."""
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    draws = world.steps, world.bits.purchases
    with pytest.raises(UserError, match=match):
        world.live(root, **options)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    assert (world.steps, world.bits.purchases) == draws


MOMENTS = ["folder", "identity", "ledger", "block", "reserved", "drawn", "kept", "settled"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_between_any_two_files_it_goes_on(world, root, moment):
    killed(world, root, moment, resume_it=False)
    assert world.live(root, blocks=1)[0] >= world.steps - 1
    assert charged(root)[0] >= world.steps and charged(root)[1] == world.bits.purchases == 1


def test_killed_before_there_is_a_config_it_starts_again(world, root):
    (root / "private").mkdir(parents=True)
    (root / "config.json.tmp").write_text('{"meth')
    with pytest.raises(UserError, match="no run to resume in"):
        world.live(root)
    world.live(root, resume_it=False, blocks=1)
    assert charged(root) == (1, 1)


def test_a_run_of_a_version_without_a_field_goes_on_with_that_version(root):
    """No flag can say what that version did where there was none."""
    begun = {"config": {"steps": 8}, "seed": None}
    folder = resume.create(root, begun)
    before = folder.config.read_bytes()
    with pytest.raises(UserError, match="by another version, without config.classifier; use "
                                        "that version, or start a new run") as error:
        resume.reopen(root, {"config": {"steps": 8, "classifier": 0}, "seed": None})
    assert "--classifier" not in str(error.value) and folder.config.read_bytes() == before
    with pytest.raises(UserError, match="config.steps was 8, now 9"):
        resume.reopen(root, {"config": {"steps": 9}, "seed": None})


@pytest.mark.parametrize("kept", [0, 1, 50])
def test_a_header_torn_at_the_first_start_is_made_anew(world, root, kept):
    killed(world, root, "identity", resume_it=False)
    (root / "ledger.jsonl").write_bytes(b'{"config_hash":"' + b"0" * kept)
    world.live(root, blocks=1)
    assert charged(root) == (1, 1)


@pytest.mark.parametrize("trace", ["metrics.jsonl", "class_counts.json", "private/votes.i4",
                                   "private/checkpoints", "release", "anything"])
@pytest.mark.parametrize("how", ["missing", "torn header"])
def test_any_trace_of_a_begun_run_needs_its_ledger(world, root, trace, how, elsewhere):
    """The first minutes of a run have no checkpoint: without its ledger it began from 0."""
    killed(world, root, "identity", resume_it=False)
    (root / trace).mkdir() if "." not in trace else (root / trace).touch()
    if how == "torn header":
        (root / "ledger.jsonl").write_bytes(b'{"conf')
    elsewhere()
    refused(world, root, "cannot be resumed")


def test_class_counts_that_the_ledger_never_paid_for_are_not_read(world, root, elsewhere):
    """Bought, and the ledger put back to its header: they were read back and charged nowhere."""
    world.live(root, resume_it=False)
    lines = (root / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (root / "ledger.jsonl").write_bytes(lines[0])
    elsewhere()
    with pytest.raises(UserError, match="charges no class counts of epsilon 0.5"):
        world.live(root)
    assert charged(root) == (0, 0) and world.bits.purchases == 1


@pytest.mark.parametrize("edit", [{"epsilon": 0.1}, {"counts": 3}, {"counts": ["a", "b", "c"]},
                                  {"counts": [1, 2]}, {"counts": None}, {"counts": [1e99, 1, 2]}])
def test_other_class_counts_are_refused(world, root, edit):
    world.live(root, resume_it=False)
    path = root / "class_counts.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | edit))
    with pytest.raises(UserError, match="class_counts.json"):
        world.live(root)


def at_checkpoint(root):
    """Cuts the ledger at the line of the newest checkpoint."""
    folder = root / "private/checkpoints"
    note = checkpoint.note_checkpoint(folder, checkpoint.steps(folder)[-1], "ledger_lines")
    path = root / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:note["ledger_lines"]]))


@pytest.mark.parametrize("proof", ["metrics.jsonl", "private/votes.i4"])
def test_a_ledger_cut_at_its_checkpoint_is_refused(world, root, proof, elsewhere):
    """Five steps after the checkpoint were drawn; metrics and votes prove it."""
    killed(world, root, "block", blocks=15, save_every=10, resume_it=False)
    at_checkpoint(root)
    assert charged(root)[0] == 10 and world.steps == 15
    other = {"metrics.jsonl": "private/votes.i4"}.get(proof, "metrics.jsonl")
    (root / other).unlink()
    elsewhere()
    refused(world, root, f"charges 10 steps, and .*{proof} knows of 15")


def test_superseded_rows_stay_and_prove_what_was_drawn(world, root, elsewhere):
    """Steps that were made twice, in two starts: the second time they are charged again."""
    killed(world, root, "block", blocks=3, save_every=2, resume_it=False)
    world.live(root, blocks=1)
    rows = [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]
    assert rows == [{"step": 1, "charged": 1}, {"step": 2, "charged": 2},
                    {"step": 3, "charged": 3, "superseded": True}, {"step": 3, "charged": 4}]
    assert [row["step"] for row in run_folder.read(root / "metrics.jsonl")] == [1, 2, 3]
    assert run_folder.charged(root / "metrics.jsonl") == world.steps == 4
    at_checkpoint(root)
    elsewhere()
    refused(world, root, "charges 2 steps, and .* knows of 4")


def test_the_ledger_of_another_run_is_refused(world, root, tmp_path, elsewhere):
    """The other run has the same configuration and records, and a shorter ledger."""
    world.live(tmp_path / "other", resume_it=False, blocks=4)
    killed(world, root, "block", blocks=3, resume_it=False)
    shutil.copy(tmp_path / "other/ledger.jsonl", root / "ledger.jsonl")
    elsewhere()
    refused(world, root, "does not belong to the run")


def test_the_identity_of_another_run_is_refused(world, root, tmp_path):
    """Its key would deal the records to other units."""
    for name in (root, tmp_path / "other"):
        world.live(name, resume_it=False, blocks=2)
    shutil.copy(tmp_path / "other/private/identity.json", root / "private/identity.json")
    refused(world, root, "identity.json is damaged, or of another run")


def test_other_clients_of_the_same_records_are_refused(world, root):
    """A permuted client_id: one visit to a client was charged, and two were made."""
    clients = np.arange(12) // 4

    def of(array):
        return lambda key: records.by_client(array, 3, 8)

    world.live(root, resume_it=False, blocks=1, dealt=of(clients))
    world.live(root, blocks=1, dealt=of(clients.copy()))
    refused(world, root, "their clients are different", dealt=of(np.roll(clients, 4)))
    refused(world, root, "their clients are different", dealt=of(clients[::-1].copy()))


def test_a_total_beyond_the_budget_of_all_runs_is_refused_before_there_is_a_folder(world, root):
    said = []
    world.live(root, resume_it=False, blocks=2, total=2 * BUDGET.epsilon, say=said.append)
    assert said == []
    second, third = root.with_name("second"), root.with_name("third")
    world.live(second, resume_it=False, blocks=1, total=2 * BUDGET.epsilon, say=said.append)
    assert len(said) == 1 and "1 run spent epsilon" in said[0]
    assert "of budgets of 10; with this run's 10 the sum is epsilon 20 at delta 0.002" in said[0]
    with pytest.raises(BudgetExceeded, match="would be epsilon 30 at delta 0.003, more than"):
        world.live(third, resume_it=False, total=2 * BUDGET.epsilon)
    assert not third.exists() and COUNTS.epsilon == BUDGET.class_epsilon
    world.live(root, blocks=1, total=2 * BUDGET.epsilon)  # its own budget counts once
