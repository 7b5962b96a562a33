"""Ledgers that tests write."""

import errno

import pytest

from dpgen_jax.accountant import ledger
from dpgen_jax.accountant.events import EpsilonDeltaEvent, GaussianEvent
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.core.errors import UserError

DELTA = 1e-5
STEP = GaussianEvent(sigma=5000, squared_sensitivity=4 * 200 * 15)
OTHER = GaussianEvent(sigma=9000, squared_sensitivity=4 * 700 * 30, total_variation=1e-20)
COUNTS = EpsilonDeltaEvent(0.01, mechanism="class-counts")
HEADER = {"epsilon": 1.0, "delta": DELTA, "relation": "replace-one", "unit": "record",
          "config_hash": "abc"}


def block(count, event=STEP):
    return ((event, count),)


def refuses_to_resume(path, match):
    with pytest.raises(UserError, match=match) as caught:
        Ledger.open(path)
    assert "cannot be resumed" in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(UserError, match=match):
        ledger.read(path)


def half_then_full(kept, real):
    """A disk on which `kept` more bytes fit."""
    room = [kept]

    def pwrite(descriptor, data, offset):
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(descriptor, data[:room[0]], offset)
        room[0] -= written
        return written
    return pwrite
