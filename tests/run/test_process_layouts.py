"""Every method makes the same bytes on 1 process with 4 devices, on 2 with 2, and on 4 with 1."""

import dataclasses
import functools
import types

import jax
import many_processes as processes
import numpy as np
import pytest
import runs
from seeded import CASES, LONG, SLOW, dataset

from dpgen_jax import methods
from dpgen_jax.accountant import ledger as books
from dpgen_jax.core import hosts
from dpgen_jax.core.config import Runtime
from dpgen_jax.core.types import UserError
from dpgen_jax.private import teachers
from dpgen_jax.private.records import seal
from dpgen_jax.private.teachers import Layout
from dpgen_jax.run import follower
from dpgen_jax.version import __version__

EVERY = CASES | SLOW | {name: LONG[name] for name in (
    "gswgan images secret draw", "gswgan images federated", "fedavg_gan images")}
LAYOUTS = [(1, 4), (2, 2), (4, 1)]


def alone(name):
    """Whether a method takes one device of a CPU; `test_one_device` has how it refuses several."""
    return EVERY[name].method in ("marginals", "mixture")


def made(place, cases, count, devices):
    """The folder of seeded runs of these cases, on so many processes with so many devices."""
    place.mkdir()
    codes, said = processes.finish(processes.start_watched(
        count, devices, place, cases=cases), place)
    assert codes == [0] * count, said[-3000:]
    return place


def model(place, name):
    return (place / name.replace(" ", "-") / "release/generator.safetensors").read_bytes()


def blocks(place, process=0):
    """Digests of what each block of rounds was computed with in a process."""
    lines = (place / f"{process}.audit").read_text().splitlines()
    return [line for line in lines if line.startswith("block ")]


@pytest.mark.slow
def test_two_processes_release_what_one_does_in_seconds(tmp_path):
    """Methods that compile soonest are compared, with and without a network in each unit."""
    names = ["topagg_sgd table", "prototypes images signs", "prototypes images"]
    one, two = (made(tmp_path / str(n), names, n, 2 // n) for n in (1, 2))
    for name in names:
        assert model(one, name) == model(two, name), name
    assert blocks(one) == blocks(two) == blocks(two, 1) != []


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """The folder of the runs of all methods on a layout; each layout is started once or twice."""
    @functools.cache
    def on(count, devices, takes_one):
        names = [name for name in EVERY if alone(name) == takes_one]
        with pytest.MonkeyPatch.context() as patch:
            if takes_one:  # XLA's older kernels, which tests take, differ on one device and several
                patch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")
            return made(tmp_path_factory.mktemp("all") / "runs", names, count, devices)

    return on


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_every_method_makes_the_same_bytes_on_every_layout(everything, name):
    takes_one = alone(name)
    first, *others = [everything(count, 1 if takes_one else devices, takes_one)
                      for count, devices in LAYOUTS]
    assert blocks(first)
    for place in others:
        assert model(first, name) == model(place, name)
        ledgers = [books.account(books.read(p / name.replace(" ", "-") / "ledger.jsonl"))
                   for p in (first, place)]
        assert ledgers[0].spent() == ledgers[1].spent()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("count", "devices"), LAYOUTS[1:])
def test_no_process_computes_with_other_noise(everything, count, devices):
    """And none but the first draws any."""
    place = everything(count, devices, False)
    leader = blocks(place)
    assert leader
    for process in range(1, count):
        assert blocks(place, process) == leader
        assert "source" not in (place / f"{process}.audit").read_text()
    assert "source" in (place / "0.audit").read_text()


def test_every_method_is_compared():
    assert {case.method for case in EVERY.values()} == set(methods.NAMES)
    assert all(len(dataset(case.data).x_train) for case in EVERY.values())


# Processes that lay units out differently begin no run: a unit would be counted twice.

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
