"""A ledger whose last line a crash tore: what a resume charges, claims, says and refuses."""

import shutil

import numpy as np
import pytest
from simulated_runs import BUDGET, RECORDS, STEP, World, charged, killed
from test_newcomer import QUICK

from dpgen_jax import train
from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.events import EpsilonDeltaEvent, to_json
from dpgen_jax.accountant.journal import Journal
from dpgen_jax.core.run_folder import RunFolder, read_json
from dpgen_jax.core.types import BudgetExceeded, UserError
from dpgen_jax.private import records
from dpgen_jax.run import resume

TOTAL = 2 * BUDGET.epsilon
SIZE = 10
"""Steps of a block; the budget allows 14 of them, beside the class counts"""


def tear(path, part):
    """Appends what a crash would leave of the reservation of one more block."""
    book = books.read(path)
    last = books.replay_lines(path, path.read_bytes())[1][-1]
    line, _ = books.chained_line(last, {"kind": "reserve", "id": sum(
        record["kind"] == "reserve" for record in book), "steps": SIZE,
        "events": to_json(((STEP, SIZE),))})
    with path.open("ab") as file:
        file.write(line[:round(part * (len(line) - 2))] if part else b"\0\xff")


def claims(folder):
    """The sum of what all runs on the records claim, as the journal has it."""
    journal = Journal(folder)
    return sum(run.target for run in journal.on(records.fingerprint(RECORDS, journal.key)))


def content(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


PARTS = [0, 0.01, 0.1, 0.5, 0.9, 1]


@pytest.mark.parametrize("part", PARTS)
def test_a_torn_line_lifts_no_sum_beyond_the_total(world, root, journal, part):
    """The budget counted, and not the claim, which the line lifted above it."""
    world.live(root.with_name("other"), resume_it=False, blocks=1, total=TOTAL)
    world.live(root, resume_it=False, blocks=14, size=SIZE, total=TOTAL)
    tear(root / "ledger.jsonl", part)
    before, steps = content(root), world.steps
    for _ in range(2):
        with pytest.raises(BudgetExceeded, match=r"would be epsilon 20\.4\d* at delta 0.002, "
                           r"more than --total-epsilon 20: .*ledger.jsonl claims epsilon 10\.4\d*, "
                           "more than the budget of 10, .*larger --total-epsilon") as caught:
            world.live(root, total=TOTAL)
        assert "\n" not in str(caught.value)
        assert content(root) == before and world.steps == steps and claims(journal) <= TOTAL
    said = []
    world.live(root, total=TOTAL + 1, say=said.append)  # as the person says
    assert "with this run's 10.4" in said[0] and claims(journal) > TOTAL
    assert charged(root) == (15 * SIZE, 1)
    with pytest.raises(BudgetExceeded, match="claims epsilon"):  # nor afterwards
        world.live(root, total=TOTAL)
    with pytest.raises(BudgetExceeded, match="would be epsilon 20.4"):
        world.live(root.with_name("other"), total=TOTAL)


def test_nor_does_one_whose_cost_nothing_bounds(world, root, journal):
    """The line names nonsense, which is charged: no sum with it bounds anything."""
    world.live(root.with_name("other"), resume_it=False, blocks=1, total=TOTAL)
    world.live(root, resume_it=False, blocks=1, total=TOTAL)
    events = books.canonical_json(to_json(((EpsilonDeltaEvent(1.0, delta=0.5), 1),)))
    with (root / "ledger.jsonl").open("ab") as file:
        file.write(f'{{"events":{events},"ha'.encode())
    with pytest.raises(BudgetExceeded, match="--total-epsilon 20 cannot be promised: .*claims"):
        world.live(root, total=TOTAL)
    said = []
    world.live(root, say=said.append)
    assert "this run has no guarantee, so nothing bounds the sum" in said[0]
    assert claims(journal) == np.inf


def test_nor_that_of_a_run_alone(world, root):
    world.live(root, resume_it=False, blocks=14, size=SIZE, total=BUDGET.epsilon)
    tear(root / "ledger.jsonl", 0.5)
    with pytest.raises(BudgetExceeded, match=r"more than --total-epsilon 10; .*epsilon 10\.4"):
        world.live(root, total=BUDGET.epsilon)


@pytest.mark.parametrize("part", PARTS)
def test_within_the_budget_it_is_charged_and_said(world, root, journal, part):
    world.live(root.with_name("other"), resume_it=False, blocks=1, total=TOTAL)
    world.live(root, resume_it=False, blocks=4, size=SIZE, total=TOTAL)
    tear(root / "ledger.jsonl", part)
    world.live(root, blocks=1, size=SIZE, total=TOTAL)
    assert charged(root) == (6 * SIZE, 1) and claims(journal) == TOTAL
    with books.Ledger.open(root / "ledger.jsonl") as ledger:
        line = resume.of_torn_lines(ledger)
    assert line.endswith(f"1 line that a crash cut short counts as spent ({SIZE} steps)")


@pytest.mark.parametrize("moment", ["drawn", "settled"])
def test_a_line_that_drew_nothing_is_not_spoken_of(world, root, moment):
    killed(world, root, moment, blocks=1, resume_it=False)
    with (root / "ledger.jsonl").open("ab") as file:
        file.write(b'{"ev' * (moment == "drawn"))  # a settlement
    world.live(root, blocks=1)
    with books.Ledger.open(root / "ledger.jsonl") as ledger:
        assert resume.of_torn_lines(ledger) == ""


# neighbours: other damage to the two files

def test_a_torn_line_of_the_journal_counts_as_a_run_that_may_have_spent(world, root, journal):
    """Its file knew no spending, so that the run was no part of any sum."""
    killed(world, root, "ledger", resume_it=False)
    world.live(root.with_name("second"), resume_it=False, total=BUDGET.epsilon)  # it drew nothing
    shutil.rmtree(journal)
    killed(world, root.with_name("third"), "ledger", resume_it=False)
    (path,) = (journal / "runs").glob("*.jsonl")
    whole = path.read_bytes()
    for tail in (b"{", b"\0" * 30, b'{"folder":"/somewhere"'):
        path.write_bytes(whole + tail)
        with pytest.raises(BudgetExceeded, match="would be epsilon 20 at"):
            world.live(root.with_name("fourth"), resume_it=False, total=BUDGET.epsilon)
    world.live(root.with_name("third"), total=BUDGET.epsilon)  # which mends its own
    assert path.read_bytes().startswith(whole) and path.read_bytes().endswith(b"}\n")


@pytest.mark.parametrize("here", [True, False], ids=["here", "on another machine"])
def test_a_cut_at_any_byte_forgets_nothing(world, root, here, monkeypatch, tmp_path, journal):
    """By whole lines, within a line, to nothing: refused, or all steps that were drawn are charged.

    On another machine metrics and votes know them.
    """
    killed(world, root, "kept", blocks=3, resume_it=False)
    kept = shutil.copytree(root, tmp_path / "kept")
    whole, drawn, went_on = (root / "ledger.jsonl").read_bytes(), world.steps, 0
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for number, cut in enumerate(sorted({0, 1, *range(5, len(whole), 41), *ends,
                                         *(end - 1 for end in ends)})):
        shutil.rmtree(root)
        shutil.copytree(kept, root)
        (root / "ledger.jsonl").write_bytes(whole[:cut])
        monkeypatch.setenv("DPGEN_STATE", str(tmp_path / f"state {number}"))
        if here:
            shutil.copytree(journal, tmp_path / f"state {number}")
        try:
            opened = World().live(root)
        except UserError:
            assert (root / "ledger.jsonl").read_bytes() == whole[:cut]
            continue
        went_on += 1
        assert opened[0] >= drawn and opened[1] == 1
    assert 0 < went_on < number


@pytest.mark.parametrize("which", range(9))
def test_a_line_that_stands_twice_is_refused(world, root, which):
    world.live(root, resume_it=False, blocks=3)
    path = root / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) > which or which == 8
    which = min(which, len(lines) - 1)
    path.write_bytes(b"".join([*lines[:which + 1], *lines[which:]]))
    with pytest.raises(UserError, match=f"line {which + 2} is broken"):
        world.live(root)


# the command

@pytest.mark.slow
def test_the_command_says_and_states_what_a_torn_line_lifts(tmp_path, monkeypatch, capsys):
    """It stated more than the budget, and no line said why."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = [f"{age},{'yes' if age > 60 else 'no'}" for age in rng.integers(20, 80, 300)]
    (tmp_path / "loans.csv").write_text("\n".join(["age,late", *rows]) + "\n")
    (tmp_path / "loans.yaml").write_text(
        "label: late\ncolumns:\n  age: {kind: integer, min: 0, max: 100}\n"
        "  late: {kind: categorical, categories: ['no', 'yes']}\n")
    train.command(["dpmerf", "--dataset=loans.csv", "--schema=loans.yaml", "--epsilon=5",
                   "--total-epsilon=5", "--out=run", *QUICK])
    files = RunFolder(tmp_path / "run")
    assert read_json(files.release / "privacy.json")["epsilon"] == 5.0
    whole = files.ledger.read_bytes()
    files.ledger.write_bytes(whole + b'{"events":[')
    capsys.readouterr()
    with pytest.raises(BudgetExceeded, match="more than --total-epsilon 5; .*claims epsilon"):
        train.command(["--resume", "run"])
    assert files.ledger.read_bytes() == whole + b'{"events":['
    assert read_json(files.release / "privacy.json")["epsilon"] == 5.0
    train.command(["--resume", "run", "--total-epsilon=20"])
    said = capsys.readouterr().out
    statement = read_json(files.release / "privacy.json")
    totals = books.account(books.read(files.ledger))
    assert statement["epsilon"] == totals.claim() == totals.epsilon() > 5
    assert statement["budget_epsilon"] == 5.0
    assert "1 line that a crash cut short counts as spent (1 step): epsilon " in said
    assert "above the budget of 5: no step is added" in said
