"""Processes that lay units out differently begin no run: a unit would be counted twice."""

import dataclasses
import types

import jax
import numpy as np
import pytest
import runs

from dpgen_jax.core import hosts
from dpgen_jax.core.config import Runtime
from dpgen_jax.core.types import UserError
from dpgen_jax.private import teachers
from dpgen_jax.private.records import seal
from dpgen_jax.private.teachers import Layout
from dpgen_jax.run import follower
from dpgen_jax.version import __version__


def layouts(chunk):
    """The layout of ten units on two processes of one device, as each of them has it."""
    devices = tuple(types.SimpleNamespace(process_index=i, platform="cpu") for i in range(2))
    return Layout(10, chunk, devices)


def units_of(process, layout, monkeypatch):
    monkeypatch.setattr(jax, "process_index", lambda: process)
    first, last = layout.local_units
    return range(first, min(last, layout.n_units))


def plan(chunk, changed=0, **runtime):
    data = runs.dataset()
    x = data.x_train ^ np.uint8(changed) * (np.arange(data.x_train.size) == 5).astype(
        np.uint8).reshape(data.x_train.shape)
    return types.SimpleNamespace(
        layout=layouts(chunk), public_config={"method": "datalens"},
        request=types.SimpleNamespace(seed=None, runtime=Runtime(**runtime)),
        records=seal(x, data.y_train, data.spec))


def agreed(monkeypatch, mine, others, version=__version__):
    """Lets two plans agree, of which the other one was asked before."""
    said = []
    monkeypatch.setattr(hosts, "count", lambda: 2)
    monkeypatch.setattr(teachers, "meet", lambda layout: None)
    monkeypatch.setattr(hosts, "gather", lambda value: said.append(value) or [value])
    follower.agree(others)
    before = iter(said)
    monkeypatch.setattr(hosts, "gather", lambda value: [next(before), value])
    monkeypatch.setattr(follower, "__version__", version)
    follower.agree(mine)


def test_another_chunk_counts_a_unit_twice_and_is_refused(monkeypatch):
    counted = np.zeros(10, int)
    for process, chunk in ((0, 4), (1, 1)):
        counted[list(units_of(process, layouts(chunk), monkeypatch))] += 1
    assert counted.tolist() == [1] * 5 + [2] * 3 + [1] * 2
    agreed(monkeypatch, plan(1), plan(1))
    with pytest.raises(UserError, match=r"process 1 has another layout of units \(--chunk"):
        agreed(monkeypatch, plan(1), plan(4))
    with pytest.raises(UserError, match="another layout of units"):
        agreed(monkeypatch, plan(1), plan(1, moments="bfloat16"))
    with pytest.raises(UserError, match="process 1 has another --compute than process 0"):
        agreed(monkeypatch, plan(1), plan(1, compute="bfloat16"))


def test_a_layout_of_another_device_is_refused(monkeypatch):
    other = plan(1)
    devices = tuple(types.SimpleNamespace(process_index=i, platform="gpu") for i in range(2))
    other.layout = dataclasses.replace(other.layout, devices=devices)
    with pytest.raises(UserError, match="kind of device"):
        agreed(monkeypatch, plan(1), other)


def test_another_record_or_version_is_refused(monkeypatch):
    """Also where the file has the same name; and no record is told."""
    agreed(monkeypatch, plan(1), plan(1))
    with pytest.raises(UserError, match="process 1 has another set of records than process 0"):
        agreed(monkeypatch, plan(1, changed=1), plan(1))
    with pytest.raises(UserError, match="process 1 has another version of dpgen_jax or JAX"):
        agreed(monkeypatch, plan(1), plan(1), version="9.9")
    assert hosts.Team.ended  # and so all leave together
