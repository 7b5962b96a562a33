"""A first step that takes long is not silent, and nothing speaks after it or after a failure."""

import re
import threading
import time
from contextlib import closing

import pytest

from dpgen_jax.run import progress


def wait_for(happened):
    for _ in range(60_000):
        if happened():
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def speaks():
    """Returns whether a thread of this test's bar lives."""
    before = set(threading.enumerate())
    return lambda: any(thread.name == "progress" for thread in threading.enumerate()
                       if thread not in before)


@pytest.fixture
def written(monkeypatch):
    """The lines that a bar wrote."""
    lines = []
    monkeypatch.setattr(progress, "SILENCE", 0.01)
    monkeypatch.setattr(progress, "tell", lambda line, *_: lines.append(line))
    return lines


def test_a_first_step_that_takes_long(written, speaks):
    bar = progress.Bar(3, 0)
    assert wait_for(lambda: sum(line.startswith("compiling and computing the first step: ")
                                for line in list(written)) > 1)
    bar.advance(1, {})
    assert wait_for(lambda: not speaks())
    assert "1/3 steps" in written[-1] or "1/3 steps" in written[-2]
    bar.close()


def test_a_first_step_that_fails(written, speaks):
    with pytest.raises(OSError), closing(progress.Bar(3, 0)):
        assert speaks()
        raise OSError
    assert wait_for(lambda: not speaks())


@pytest.mark.parametrize("bar", [{"total": 3, "start": 3}, {"total": 3, "start": 0,
                                                             "shown": False}])
def test_where_nothing_is_to_be_said(written, speaks, bar):
    progress.Bar(**bar)
    assert not speaks() and not written


def test_seconds_tick_on_a_terminal_and_nothing_is_estimated(monkeypatch, capsys):
    monkeypatch.setattr(progress, "TICK", 0.01)
    waiting = progress.Waiting("step", live=True)
    ticked = re.compile(r"\rcompiling and computing the first step: \d+ s so far")
    assert wait_for(lambda: ticked.search(capsys.readouterr().err))
    waiting.end()
    assert "left" not in capsys.readouterr().err
