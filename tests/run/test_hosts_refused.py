"""Processes that cannot make one run: a line on the leader, nothing charged, and all end."""

import signal

import many_processes as processes
import pytest
import runs
from test_hosts import WORDS, steps, wait_for

from dpgen_jax.accountant import ledger as books

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path):
    runs.npz(tmp_path / "noise.npz", *runs.images())
    runs.npz(tmp_path / "other.npz", *runs.images(1))
    (tmp_path / "elsewhere").mkdir()
    runs.npz(tmp_path / "elsewhere/noise.npz", *runs.images(1))
    return tmp_path


def words(*more, out="run"):
    return [*(word.format(devices=1) for word in WORDS[:-1]), f"--out={out}", *more]


def in_one(*more):
    """The second process gets more words; the last of a flag counts."""
    return lambda i, given: [*given, *more] if i else given


@pytest.mark.parametrize(("more", "change", "line"), [
    pytest.param([], in_one("--state=disk", "--max-minutes=3"),
                 "process 1 was started with another --max-minutes, --state than process 0"),
    pytest.param([], in_one("--dataset=npz:other.npz"),
                 "process 1 has another dataset than process 0", marks=pytest.mark.long),
    pytest.param([], in_one("--dataset=npz:elsewhere/noise.npz"),
                 "process 1 has another set of records than process 0", marks=pytest.mark.long),
    pytest.param(["--state=host"], in_one(), "--state host is for one process",
                 marks=pytest.mark.long),
    pytest.param(["--parallel=pmap"], in_one(), "--parallel pmap is for one process",
                 marks=pytest.mark.long)])
def test_what_cannot_be_is_said_before_anything_is_there(place, more, change, line):
    codes, said = processes.train(words(*more), 2, 1, place, change=change)
    assert codes[0] == 2 and codes[1] != 0, said
    assert (place / "0.err").read_text().count(f"error: {line}") == 1 and "Traceback" not in said
    assert not (place / "run").exists()


def test_a_rehearsal_that_the_leader_refuses_ends_all(place):
    """The leader alone rehearses, and the other waits for it."""
    codes, said = processes.train(words("--dry-run", "--devices=7"), 2, 1, place)
    assert codes == [2, 2] and said.count("--devices 7: only 1 are available") == 1, said
    assert "another process has ended" in (place / "1.err").read_text(), said
    assert "Traceback" not in said and "coordination" not in said, said


@pytest.mark.long
def test_a_run_goes_on_whoever_comes_late_or_takes_its_folder(place):
    """The third process takes a number that is taken; two others begin its folder, or go on."""
    started = processes.start(words("--steps=4000", "--sigma=6e4"), 2, 1, place)
    wait_for(1, started, place)
    late = place / "late"
    late.mkdir()
    at = next(word for word in started[0].args if word.startswith("--coordinator="))
    third = ["-m", "dpgen_jax.train", *words(), at, "--processes=2", "--process-id=1"]
    codes, said = processes.finish(processes.spawn([third], 1, late), late)
    assert codes == [2] and "the run has started without it" in said, said
    for more, line in (([], "holds a run"), (["--resume"], "is using")):
        folder = place / line.replace(" ", "-")
        folder.mkdir()
        (folder / "noise.npz").symlink_to(place / "noise.npz")
        codes, said = processes.train(words(
            "--steps=4000", "--sigma=6e4", *more, out=place / "run"), 2, 1, folder)
        assert codes[0] == 2 and codes[1] != 0 and "Traceback" not in said, said
        assert line in (folder / "0.err").read_text(), said
    wait_for(steps(place) + 1, started, place)
    started[0].send_signal(signal.SIGTERM)
    codes, said = processes.finish(started, place)
    assert codes == [143, 143], said
    kinds = [record["kind"] for record in books.read(place / "run/ledger.jsonl")]
    assert "open" not in kinds and "charge" not in kinds
