"""The socket between a client's process and a relay: what passes, and what cannot hurt."""

import contextlib
import os
import socket
import stat
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from dpgen_jax.core.errors import UserError
from dpgen_jax.federated import wire

KINDS = st.sampled_from(["<i4", "<u4", "<f4", "|u1", "|b1"])
ARRAYS = st.dictionaries(st.text("abc/_.0", min_size=1, max_size=8), KINDS.flatmap(
    lambda kind: arrays_of.arrays(kind, arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0,
                                                               max_side=4))), max_size=3)


@given(ARRAYS, st.dictionaries(st.text(max_size=5), st.integers() | st.text() | st.none()))
def test_what_is_sent_is_what_arrives(arrays, about):
    said, got = wire.decode(wire.encode(about, arrays))
    assert said == about and got.keys() == arrays.keys()
    for name, array in arrays.items():
        assert got[name].dtype == array.dtype and got[name].shape == array.shape
        assert got[name].tobytes() == array.tobytes()


def test_views_arrive_whole():
    array = np.arange(12, dtype=np.int32).reshape(3, 4).T
    assert np.array_equal(wire.decode(wire.encode({}, {"a": array}))[1]["a"], array)


@given(st.binary(max_size=100))
def test_damage_is_a_value_error(data):
    with pytest.raises(ValueError, match="not a message"):
        wire.decode(data)


def test_a_message_cut_short_is_a_value_error():
    data = wire.encode({"turn": 1}, {"a": np.arange(3)})
    for size in range(len(data)):
        with pytest.raises(ValueError, match="not a message"):
            wire.decode(data[:size])


LIMIT = 1800
"""Seconds, for a thread that hangs; nothing waits for them otherwise."""


class Stop(BaseException):
    """Ends `listen` from within."""


@pytest.fixture
def listening(tmp_path, monkeypatch):
    """The path of a socket that answers with the turn and the array, doubled."""
    monkeypatch.chdir(tmp_path)
    ready = threading.Event()

    def reply(about, arrays):
        if about.get("stop"):
            raise Stop
        return {"turn": about["turn"]}, {"values": 2 * arrays["values"]}

    def run():
        with contextlib.suppress(Stop):
            wire.listen(tmp_path / "s", reply, ready.set)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(LIMIT)
    yield tmp_path / "s"
    with pytest.raises(UserError):
        wire.request(tmp_path / "s", {"stop": True}, {})
    thread.join(LIMIT)
    assert not thread.is_alive() and not (tmp_path / "s").exists()


def test_requests_are_answered_one_by_one(listening):
    assert stat.S_IMODE(os.stat(listening).st_mode) == 0o660
    for turn in range(3):
        about, arrays = wire.request(listening, {"turn": turn}, {"values": np.arange(4) + turn})
        assert about == {"turn": turn} and np.array_equal(arrays["values"], 2 * np.arange(4)
                                                          + 2 * turn)


def test_a_relay_that_hangs_or_talks_nonsense_stops_nobody(listening, monkeypatch):
    with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as noisy:
        with monkeypatch.context() as patch:
            patch.setattr(wire, "PATIENCE", 0.01)
            silent.connect(str(listening))  # and never says a word
            assert silent.recv(1) == b""  # until it is hung up on
        noisy.connect(str(listening))
        noisy.sendall(b"GET / HTTP/1.1\r\n\r\n")
        noisy.shutdown(socket.SHUT_WR)
        about, _ = wire.request(listening, {"turn": 1}, {"values": np.zeros(2)})
        assert about == {"turn": 1}


def test_a_socket_that_is_left_over_is_made_anew(tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(path))
    with pytest.raises(UserError, match=r"no client answers at .*dpgen_jax.join"):
        wire.request(path, {}, {})

    def stop():
        raise Stop

    with pytest.raises(Stop):
        wire.listen(path, lambda about, arrays: (about, arrays), stop)


def test_a_path_that_can_be_no_socket(tmp_path):
    with pytest.raises(UserError, match="cannot be a socket"):
        wire.listen(tmp_path / ("long" * 50), lambda about, arrays: (about, arrays))
