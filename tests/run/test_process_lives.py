"""Runs of several processes that are interrupted or killed go on, on any number of them."""

import random
import signal

import many_processes as processes
import pytest
import runs
from test_process_layouts import blocks, model

from benchmarks import killing
from dpgen_jax.accountant import ledger as books
from dpgen_jax.run import checkpoint

pytestmark = [pytest.mark.slow]
NAME, FOLDER = "datalens images", "datalens-images"


def lives(place, counts):
    """A seeded run of six steps that Ctrl-C stops in each second one, on so many processes each
    time, with four devices in all."""
    place.mkdir()
    for life, count in enumerate(counts):
        last = life == len(counts) - 1
        codes, said = processes.finish(processes.start_watched(
            count, 4 // count, place, cases=[NAME], resume=life > 0, fields={"steps": 6},
            stop=0 if last else 2), place)
        assert codes == [0] * count, said[-3000:]
        assert checkpoint.steps(runs.files(place / FOLDER).checkpoints)[-1] == 2 * (life + 1)
    return place


def test_a_run_goes_on_with_other_numbers_of_processes_to_the_same_end(tmp_path):
    several, one = lives(tmp_path / "several", [2, 1, 4]), lives(tmp_path / "one", [1, 1, 1])
    assert model(several, NAME) == model(one, NAME)
    assert len(blocks(several)) == 6 and blocks(several) == blocks(one)
    account = books.account(books.read(several / FOLDER / "ledger.jsonl"))
    assert (account.steps, account.incarnation) == (6, 2)


KILLS = 20
MARKS = (10, 120)
"""Moments of a process, from when its run is there until it has made some blocks."""


def live(place, rng, life):
    """Two processes, of which one kills itself at a random moment; returns which, and when."""
    who, moment, torn = rng.randrange(2), rng.randint(*MARKS), rng.random() < 0.5
    started = processes.start_watched(
        2, 1, place, cases=[NAME], resume=(place / FOLDER / "config.json").exists(), seed=None,
        fields={"steps": 4000, "sigma": 6e4},
        change=lambda i: {"moment": moment if i == who else 0, "torn": torn})
    codes, said = processes.finish(started, place)
    assert codes[who] == -signal.SIGKILL and codes[1 - who] not in (0, None), (life, said[-3000:])
    return who, moment


@pytest.mark.long
def test_leader_and_follower_are_killed_again_and_again(tmp_path):
    """The moments are the same in every run of this test; what a moment is, `run_process` says."""
    rng, steps, killed = random.Random(21), [0], []
    for life in range(KILLS):
        killed.append(live(tmp_path, rng, life))
        # The leader alone draws: its log is the whole of what was drawn, and none was uncharged.
        assert killing.under_counted(tmp_path / FOLDER, tmp_path / "0.audit") == []
        assert "source" not in (tmp_path / "1.audit").read_text()
        if (tmp_path / FOLDER / "ledger.jsonl").exists():
            account = books.account(books.read(tmp_path / FOLDER / "ledger.jsonl"))
            steps.append(account.steps)
            assert steps[-1] >= steps[-2]
    assert {who for who, _ in killed} == {0, 1} and steps[-1] > KILLS
    # The other computed with nothing but what the leader drew, and with nothing twice.
    drawn = [line.split()[1] for line in (tmp_path / "0.audit").read_text().splitlines()
             if line.startswith("drawn ")]
    used = [line.split()[-1] for line in blocks(tmp_path, 1)]
    assert used and len(used) == len({*used}) and {*used} <= {*drawn}
    assert len(drawn) == len({*drawn})
    # And one process goes on, to a release of all that the checkpoints kept.
    saved = checkpoint.steps(runs.files(tmp_path / FOLDER).checkpoints)[-1]
    codes, said = processes.finish(processes.start_watched(
        1, 1, tmp_path, cases=[NAME], resume=True, seed=None, stop=2,
        fields={"steps": 4000, "sigma": 6e4}), tmp_path)
    assert codes == [0], said[-3000:]
    assert killing.wrong_at_the_end(tmp_path / FOLDER, tmp_path / "0.audit") == []
    assert checkpoint.steps(runs.files(tmp_path / FOLDER).checkpoints)[-1] == saved + 2
