"""The lines until the first block is there: seconds that have gone, or those of the last time."""

import json
import os
import re

import numpy as np
import pytest

from dpgen_jax.accountant import journal
from dpgen_jax.run import progress


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DPGEN_STATE", str(tmp_path))
    return tmp_path


def test_what_a_program_took_is_told_the_next_time_and_of_no_other(folder, capsys):
    one, other = (progress.program({"w": np.zeros((3, size))}, 4) for size in (5, 6))
    assert one != other != progress.program({"w": np.zeros((3, 6))}, 8)
    for digest, expected in ((one, "some minutes"), (one, "takes about 0 s, as the last time"),
                             (other, "some minutes")):
        bar = progress.Bar(2, 0, program=digest)
        bar.advance(1, {})
        bar.close()
        assert expected in capsys.readouterr().err.splitlines()[0]
    assert set(json.loads((folder / progress.COMPILING_FILE).read_text())) == {one, other}


def test_a_stage_that_is_left_before_its_first_block_is_not_remembered(folder, capsys):
    progress.Bar(2, 0, program="a").close()
    progress.Bar(2, 0, shown=False, program="a").advance(1, {})
    assert not os.listdir(folder) and "compiling" in capsys.readouterr().err


def test_a_damaged_or_missing_folder_costs_no_run(folder, monkeypatch, capsys):
    (folder / progress.COMPILING_FILE).write_text('{"a": "x"')
    bar = progress.Bar(2, 0, program="a")
    bar.advance(1, {})
    assert json.loads((folder / progress.COMPILING_FILE).read_text()) == {"a": 0.0}
    monkeypatch.setattr(journal, "place", lambda: folder / "missing")
    progress.Bar(2, 0, program="a").advance(1, {})
    assert not (folder / "missing").exists()


def test_seconds_tick_on_a_terminal_and_nothing_is_estimated(folder, monkeypatch, capsys):
    monkeypatch.setattr(progress, "TICK", 0.01)
    waiting = progress.Waiting("step", "", live=True)
    ticked = re.compile(r"\rstill at the first step, \d+ s with compiling")
    while not ticked.search(err := capsys.readouterr().err):
        assert "left" not in err
    waiting.end(True)
    assert "left" not in capsys.readouterr().err and not os.listdir(folder)
