"""Records are counted as read, as dealt and on devices, and refused where they do not fit."""

import dataclasses
import types

import jax
import numpy as np
import pytest
import runs
import small_datalens

from dpgen_jax import data, train
from dpgen_jax.core import files, hosts
from dpgen_jax.core.types import UserError
from dpgen_jax.data import base, parts
from dpgen_jax.methods import datalens
from dpgen_jax.private.teachers import Layout
from dpgen_jax.run import capacity, planning
from dpgen_jax.run.capacity import Footprint

N, BYTES, LABEL = 40, 64, 4
METHOD = datalens.build(small_datalens.CONFIG, small_datalens.SPEC)
UNITS = small_datalens.CONFIG.teachers
GPUS = tuple(types.SimpleNamespace(platform="gpu", process_index=0) for _ in range(2))


def images(folder, large):
    """Images of a file, of which those that train does not see are held out."""
    x, y = small_datalens.images(N)
    np.savez(folder / "a.npz", x_train=x, y_train=y, classes=3)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(base, "LARGE_ARRAY", large)
        whole = data.load(f"npz:{folder / 'a.npz'}")
    return parts.hold_out(whole, 0.25, parts.where_they_lie)


@pytest.mark.parametrize(("large", "read"), [(10**9, N * BYTES), (1, 0)])
def test_mapped_records_take_no_memory_as_read(tmp_path, large, read):
    found = capacity.footprint(images(tmp_path, large), 30, small_datalens.layout())
    assert found == Footprint(read, 30 * (BYTES + LABEL), 0)


@pytest.mark.parametrize(("sampled", "slab", "on_device"), [
    (False, 0, 30 * (BYTES + LABEL) // 2), (True, 0, 30 * (BYTES + LABEL)), (False, 4, 0)])
def test_each_accelerator_has_its_own_units_or_all_that_are_drawn_from(tmp_path, sampled, slab,
                                                                       on_device):
    layout = Layout(UNITS, 2, GPUS, "shard_map", 1, sampled, slab)
    found = capacity.footprint(images(tmp_path, 1), 30, layout)
    assert found.on_device == on_device and found.dealt == 30 * (BYTES + LABEL)


def test_a_process_deals_to_its_own_units_alone(tmp_path):
    others = (types.SimpleNamespace(platform="cpu", process_index=1),) * 3
    layout = Layout(UNITS, 1, (jax.devices()[0], *others))
    found = capacity.footprint(images(tmp_path, 1), 40, layout)
    assert found.dealt == 10 * (BYTES + LABEL)


@pytest.mark.parametrize("where", ["read", "dealt"])
def test_more_than_the_host_has_is_refused(monkeypatch, where):
    state = capacity.state_bytes(METHOD)
    monkeypatch.setattr(files, "machine_bytes", lambda: state + 10**9)
    layout, nothing = small_datalens.layout(), Footprint(0, 0, 0)
    capacity.check_records(dataclasses.replace(nothing, **{where: 10**9}), METHOD,
                           layout, "record")
    beyond = dataclasses.replace(nothing, **{where: 10**9 + 1})
    with pytest.raises(UserError, match="the records take .* fewer records"):
        capacity.check_records(beyond, METHOD, layout, "record")
    # Where the state lies on the disk there is room; two processes of a machine have less.
    on_disk = dataclasses.replace(layout, slab=2, files="folder")
    capacity.check_records(beyond, METHOD, on_disk, "record")
    monkeypatch.setattr(hosts.Team, "count", 2)
    with pytest.raises(UserError, match="the records take"):
        capacity.check_records(beyond, METHOD, on_disk, "record")


def test_more_than_a_device_has_is_refused(monkeypatch):
    layout = Layout(UNITS, 2, GPUS)
    state = capacity.state_bytes(METHOD) // 2
    devices = [types.SimpleNamespace(memory_stats=lambda: {"bytes_limit": state + 100})]
    monkeypatch.setattr(jax, "local_devices", lambda: devices)
    capacity.check_records(Footprint(0, 0, 100), METHOD, layout, "record")
    with pytest.raises(UserError, match="on each device"):
        capacity.check_records(Footprint(0, 0, 101), METHOD, layout, "record")


@pytest.mark.parametrize("unit", ["client", "subject"])
@pytest.mark.parametrize("records", [Footprint(10**15, 0, 0), Footprint(0, 10**15, 0),
                                     Footprint(0, 0, 10**15)])
def test_a_refusal_tells_no_number_of_records_that_is_private(monkeypatch, unit, records):
    devices = [types.SimpleNamespace(memory_stats=lambda: {"bytes_limit": 10**9})]
    monkeypatch.setattr(jax, "local_devices", lambda: devices)
    with pytest.raises(UserError, match="the records and the state .* fewer records") as caught:
        capacity.check_records(records, METHOD, Layout(UNITS, 2, GPUS), unit)
    assert not any(character.isdigit() for character in str(caught.value))


def test_the_fullest_of_several_machines_is_counted(monkeypatch):
    """Three processes on two machines: two are together, with their share of the state."""
    monkeypatch.setattr(hosts.Team, "count", 3)
    monkeypatch.setattr(hosts.Team, "machines", 2)
    state = capacity.state_bytes(METHOD) * 2 // 3
    monkeypatch.setattr(files, "machine_bytes", lambda: state + 2 * 10**9)
    capacity.check_records(Footprint(10**9, 0, 0), METHOD, small_datalens.layout(), "record")
    with pytest.raises(UserError, match="the records take"):
        capacity.check_records(Footprint(10**9 + 1, 0, 0), METHOD, small_datalens.layout(),
                               "record")


@pytest.mark.parametrize("method", ["record", "subject", "client"])
def test_the_places_are_those_that_are_dealt(method):
    config = types.SimpleNamespace(client_records=7)
    unit = "client" if method == "client" else "record"
    built = types.SimpleNamespace(mechanism=types.SimpleNamespace(n_units=6, unit=unit))
    x, y = np.zeros((N, 2), np.float32), np.zeros(N, np.int32)
    owners = np.sort(np.arange(N) % 13)
    subjects = data.base.Subjects("who", 3, np.arange(13), owners, None)
    some = types.SimpleNamespace(
        x_train=x, y_train=y, clients=None, count=13 if method == "subject" else N,
        subjects=subjects if method == "subject" else None)
    assert planning.unit_slots(built, config, some) == planning.dealt(
        built, config, some, bytes(32)).index.size


def test_a_run_is_refused_before_it_has_a_folder(tmp_path, monkeypatch, call):
    runs.npz(tmp_path / "noise.npz", *runs.images())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(capacity, "footprint", lambda *_: Footprint(0, 10**15, 0))
    code, _, errors = call(train, "datalens", "--dataset=npz:noise.npz", *runs.FLAGS, "--out=run")
    assert code == 2 and "the records take" in errors and len(errors.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()
