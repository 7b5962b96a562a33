"""How a run of several processes ends, and what all of them must share before it begins."""

import signal
import socket
import threading
import time
import types
from pathlib import Path

import numpy as np
import pytest

from dpgen_jax.core import hosts
from dpgen_jax.core.run_folder import RunFolder
from dpgen_jax.core.types import Private, UserError
from dpgen_jax.private import streaming
from dpgen_jax.run import checkpoint, follower, progress, stages


@pytest.fixture
def told(monkeypatch):
    """The orders that this process, which leads one other, has told."""
    orders = []
    monkeypatch.setattr(hosts.Team, "count", 2)
    monkeypatch.setattr(hosts, "tell", lambda order, words=None, **_: orders.append((order, words)))
    return orders


@pytest.fixture
def ended(monkeypatch):
    """The exit code by which this process would have ended at once."""
    codes = []
    monkeypatch.setattr(hosts.os, "_exit", codes.append)
    return codes


def gone(*_, **__):
    raise RuntimeError("gloo: connection closed")


@pytest.mark.parametrize(("error", "code"), [
    (UserError("no"), 2), (OSError(28, "full"), 2), (SystemExit(143), 143), (SystemExit(), 0)])
def test_the_others_hear_of_the_end_with_the_code_of_the_command(told, error, code):
    with pytest.raises(type(error)), hosts.leading(lambda: 75):
        raise error
    assert told == [("end", {"code": code})]


def test_a_run_that_is_out_of_time_tells_its_code(told):
    with hosts.leading(lambda: 75):
        pass
    assert told == [("end", {"code": 75})]


def test_another_that_is_gone_does_not_hide_why_a_run_ends(told, monkeypatch):
    monkeypatch.setattr(hosts, "tell", gone)
    with pytest.raises(UserError, match="checkpoint 3 is damaged"), hosts.leading(lambda: 0):
        raise UserError("checkpoint 3 is damaged")


def test_another_that_is_gone_after_the_release_costs_a_warning(told, ended, monkeypatch, capsys):
    monkeypatch.setattr(hosts, "tell", gone)
    with hosts.leading(lambda: 0):
        pass
    assert ended == [0] and "the files of this one are complete" in capsys.readouterr().err


@pytest.mark.parametrize(("error", "code", "line"), [
    (PermissionError(13, "Permission denied", "out"), 2, "error: [Errno 13] Permission denied"),
    (KeyboardInterrupt(), 130, "interrupted")])
@pytest.mark.usefixtures("told")
def test_errors_are_one_line_as_of_one_process(ended, capsys, error, code, line):
    hosts.Team.ended = False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hosts, "_leave", lambda: None)
        with hosts.alive():
            raise error
    assert ended == [code] and line in capsys.readouterr().err


@pytest.mark.parametrize(("said", "code"), [(b"", 1), (b"\x02", 2)])
@pytest.mark.parametrize("regular", [False, True])
@pytest.mark.usefixtures("told")
def test_a_process_ends_with_a_line_where_the_one_that_leads_is_gone(
        ended, capsys, monkeypatch, said, code, regular):
    monkeypatch.setattr(hosts.Team, "ended", regular)
    leader, here = socket.socketpair()
    with leader, here:
        monkeypatch.setattr(hosts.Team, "connections", [leader])
        monkeypatch.setattr(hosts, "PATIENCE", 0.0)
        if said:
            hosts._tell_code(code)
        leader.close()
        hosts._watch(here)
    assert ended == [code] * (not regular)
    assert capsys.readouterr().err == f"error: {hosts.gone()}\n" * (not regular)


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_signal_ends_the_others_by_its_code(ended, monkeypatch, number, code):
    monkeypatch.setattr(progress, "BURST", -1.0)
    monkeypatch.setattr(hosts, "PATIENCE", 0.0)
    stop = progress.Stop()
    leader, there = socket.socketpair()
    with leader, there:
        monkeypatch.setattr(hosts.Team, "connections", [leader])
        stop.note(number, None)
        with pytest.raises((KeyboardInterrupt, SystemExit)):  # as ending is stubbed
            stop.note(number, None)
        leader.close()
        assert ended == [code] and there.recv(2) == bytes([code])


@pytest.mark.usefixtures("told")
def test_the_process_that_leads_ends_after_those_that_heard_its_code(ended, monkeypatch):
    """JAX's runtime, which it serves, would end them with a stack trace where they are slower."""
    leader, there = socket.socketpair()
    seen = []

    def slow():
        seen.append(there.recv(1))
        time.sleep(0.2)
        seen.append(list(ended))
        there.close()

    other = threading.Thread(target=slow)
    with leader, there:
        monkeypatch.setattr(hosts.Team, "connections", [leader])
        other.start()
        hosts.end_at_once(2)
        other.join()
    assert seen == [b"\x02", []] and ended == [2]


@pytest.mark.parametrize("leads", [True, False])
def test_processes_that_no_order_ended_meet_before_they_leave(told, monkeypatch, leads):
    """A process that leaves is not ended by `_watch`, so all must be done by then."""
    seen = []
    monkeypatch.setattr(hosts.Team, "ended", False)
    monkeypatch.setattr(hosts.Team, "index", int(not leads))

    def hear():
        seen.append(hosts.Team.ended)
        hosts.Team.ended = True

    monkeypatch.setattr(hosts, "hear", hear)
    monkeypatch.setattr(hosts, "_leave", lambda: seen.append(hosts.Team.ended))
    with hosts.alive():
        pass
    assert seen == ([True] if leads else [False, True])
    assert told == [("end", {"code": 0})] * leads


@pytest.mark.usefixtures("told")
def test_a_network_that_fails_ends_no_process_by_itself(ended, monkeypatch):
    def recv(_):
        raise TimeoutError

    monkeypatch.setattr(hosts.Team, "ended", False)
    hosts._watch(types.SimpleNamespace(settimeout=lambda _: None, recv=recv))
    assert ended == []


def test_a_process_alone_is_not_ended_at_once(ended):
    hosts.end_at_once(130)
    assert ended == []


def test_processes_that_do_not_see_the_run_folder_are_refused(told, tmp_path, monkeypatch):
    monkeypatch.setattr(hosts, "gather", lambda value: [value, False])
    with pytest.raises(UserError, match="process 1 cannot see the run folder"):
        follower.require_shared(RunFolder(tmp_path))
    assert told == [("look", {"folder": str(tmp_path), "run": ""})]


def test_a_follower_looks_for_the_folder_of_this_run(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(hosts, "gather", seen.append)
    monkeypatch.setattr(follower, "SHARED_WITHIN", 0)
    (tmp_path / "config.json").write_text(f'{{"run": "{"a" * 32}"}}')
    follower.Follower.look(None, str(tmp_path), "a" * 32)
    follower.Follower.look(None, str(tmp_path), "b" * 32)
    follower.Follower.look(None, str(tmp_path / "elsewhere"), "a" * 32)
    assert seen == [True, False, False]


def test_a_process_with_places_but_no_unit_writes_no_block():
    layout = types.SimpleNamespace(local_units=(4, 8), n_units=4, slab=0)
    assert list(streaming.blocks(Private(np.zeros(8)), layout, 3)) == []


@pytest.mark.parametrize("written", [True, False])
def test_without_a_checkpoint_a_run_that_is_stopped_leaves_a_release(monkeypatch, written):
    training = types.SimpleNamespace(
        stopping=types.SimpleNamespace(signal=stages.signal.SIGTERM, exit_code=143),
        runtime=types.SimpleNamespace(on_term="checkpoint"), keep=lambda state: None,
        files=RunFolder(Path("nowhere")))
    monkeypatch.setattr(checkpoint, "steps", lambda folder: [5] * written)
    state = types.SimpleNamespace(step=5)
    if written:
        with pytest.raises(UserError, match="with a checkpoint and no release"):
            stages.leave_where_seconds_count(training, state)
    else:
        assert stages.leave_where_seconds_count(training, state) is None
