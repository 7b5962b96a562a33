"""Runs whose units' state lies in host memory or on the disk: the release of one on the devices."""

import dataclasses
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import runs
import seeded
import small_datalens
from state_elsewhere import FIELDS
from test_digests import digest

from dpgen_jax import methods
from dpgen_jax.accountant import ledger as books
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.core import hosts
from dpgen_jax.core.config import Runtime
from dpgen_jax.core.types import UserError
from dpgen_jax.methods import datalens
from dpgen_jax.private import streaming, teachers
from dpgen_jax.run import calibrate_config, capacity, checkpoint

TESTS = Path(__file__).parents[1]
PROGRAM = TESTS / "helpers/state_elsewhere.py"
IMPORTS = {"PYTHONPATH": os.pathsep.join(map(str, (
    TESTS.parent, TESTS, TESTS / "run", TESTS / "helpers")))}


def trained(case, folder, *runs):
    """A line for each run: the digest of its release, and what is left in private/."""
    # The digest of XLA's usual code: what the other tests compile faster has other last bits.
    done = subprocess.run([sys.executable, PROGRAM, case, folder, *runs], capture_output=True,
                          text=True, timeout=1800, check=False,
                          env=os.environ | IMPORTS | {"XLA_FLAGS": "", "JAX_NUM_CPU_DEVICES": "1"})
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.mark.long
@pytest.mark.parametrize(("case", "moves"), [
    ("datalens images", ["device,disk,device"]),
    *((case, ["device,disk,device", "host,disk,disk"]) for case in FIELDS)])
def test_a_run_that_moves_to_the_disk_and_back_has_the_release_of_one_that_stays(
        tmp_path, case, moves):
    stays, *moved = trained(case, tmp_path, "device,device,device", *moves)
    assert {*moved} == {stays}
    assert {"checkpoints", "identity.json"} < {*stays.split()}


class Killed(BaseException):
    """Ends a run at a moment, as nothing catches it."""


def a_run(root, place, moment=None, resume=False, die=None):
    """A run of four steps whose units lie in a place, in slabs of two, with a checkpoint of each
    step; where it reaches a moment, as ("write", 5), it dies. Returns the digest of its release."""
    reached = []

    def counted(what, call):
        def inner(*args, **options):
            reached.append(what)
            if moment == (what, reached.count(what)):
                die() if die else raising()
            return call(*args, **options)

        return inner

    def raising():
        raise Killed

    case = seeded.ALL["datalens images"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(capacity, "SLAB_BYTES", 1)
        patched.setattr(capacity, "copy_fits", lambda method: False)  # a thread would not die
        patched.setattr(seeded, "RUNTIME", Runtime(
            devices=1, chunk=2, steps_per_call=1, checkpoint_minutes=0, state=place))
        for what, module, name in (("write", streaming, "write"), ("stack", teachers, "stack"),
                                   ("part", checkpoint, "write_part"),
                                   ("draw", SeededBits, "draw")):
            patched.setattr(module, name, counted(what, getattr(module, name)))
        return digest(seeded.train(case, root, resume=resume, steps=4, teachers=5))


def killed_and_resumed(root, place, moment):
    """The digest of a run that died and went on, its checkpoints before, and what it charges."""
    with pytest.raises(Killed):
        a_run(root, place, moment)
    return resumed(root, place)


def resumed(root, place):
    assert not (root / "release").exists()
    left = checkpoint.steps(runs.files(root).checkpoints)
    left = [step for step in left if step]  # what stops between steps may leave one of its start
    done = a_run(root, place, resume=True)
    account = books.account(books.read(root / "ledger.jsonl"))
    return done, left, account.steps, account.spent()


ROUNDS = {"write": lambda i: ("stack", 1) if i <= 3 else ("draw", (i + 2) // 3),
          "part": lambda i: ("part", i)}
"""The moment of a run on the devices that has charged and kept as much: three slabs are made, and
three written in each round; a checkpoint has two parts. Of draws the first is for no round."""


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_once")
def test_killed_with_its_units_on_the_disk_a_run_goes_on_as_if_they_had_lain_on_the_devices(
        tmp_path):
    """Within a slab, a round or a checkpoint: no state of a unit is torn or another round's."""
    known = {}
    for what, i in [*(("write", i) for i in (2, 5, 8, 12)), ("part", 3)]:
        same = ROUNDS[what](i)
        if same not in known:
            known[same] = killed_and_resumed(tmp_path / "-".join(map(str, same)), "device", same)
        place = ("disk", "host")[i == 5]
        assert killed_and_resumed(tmp_path / f"{place}-{what}-{i}", place, (what, i)) == known[same]
    assert len({done for done, *_ in known.values()}) == len(known)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX")
def test_a_process_that_is_killed_leaves_no_state_of_units_on_the_disk(tmp_path):
    """By the system, as it writes the second of three slabs of the second round.

    The checkpoint of the first round was written whole, and yet not in its place until then.
    """
    code = ("import os, pathlib, signal, sys, test_state_elsewhere as t; t.a_run("
            "pathlib.Path(sys.argv[1]), 'disk', ('write', 8), "
            "die=lambda: os.kill(os.getpid(), signal.SIGKILL))")
    root = tmp_path / "disk"
    done = subprocess.run([sys.executable, "-c", code, root], env=os.environ | IMPORTS,
                          timeout=1800, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    assert sorted(path.name for path in (root / "private").iterdir()) == [
        "checkpoints", "identity.json", "noise_digests.txt", "votes.i4"]
    known = killed_and_resumed(tmp_path / "device", "device", ("draw", 3))
    assert resumed(root, "disk") == known


DISK = dataclasses.replace(runs.RUNTIME, state="disk")
METHOD = datalens.build(small_datalens.CONFIG, small_datalens.SPEC)


@pytest.fixture
def small_slabs(monkeypatch):
    monkeypatch.setattr(capacity, "SLAB_BYTES", 1)


@pytest.mark.slow
def test_a_disk_that_fails_within_a_step_costs_that_step(tmp_path, monkeypatch, small_slabs):
    """No checkpoint is of units of which some have learnt and others not."""
    real, writes = streaming.write, []

    def write(units, rows, new):
        writes.append(rows)
        if len(writes) == 3 + 3 + 2:  # the start, a step, and a part of the next, in slabs of 4
            raise UserError("the state of units cannot be kept on the disk")
        return real(units, rows, new)

    patient = dataclasses.replace(DISK, checkpoint_minutes=60)
    with monkeypatch.context() as patch:
        patch.setattr(streaming, "write", write)
        with pytest.raises(UserError, match="cannot be kept on the disk"):
            runs.train(tmp_path / "run", runtime=patient)
    assert checkpoint.steps(runs.files(tmp_path / "run").checkpoints) == []
    account = books.account(books.read(tmp_path / "run/ledger.jsonl"))
    assert account.steps == 2
    release, said = runs.train(tmp_path / "run", resume=True, runtime=patient)
    assert release.privacy["steps"] == runs.CONFIG.steps - 2
    assert [event["count"] for event in release.privacy["events"]] == [runs.CONFIG.steps]
    assert "MB for the units that are read, computed and written, " in said
    assert re.search(r"; disk: .* for the state of units, and as much for each checkpoint", said)
    assert "of state on the disk)" in said


def test_a_state_beyond_the_memory_has_a_place_on_the_disk(monkeypatch, tmp_path):
    needed = capacity.state_bytes(METHOD)
    for name in ("memory", "files.machine_bytes"):
        monkeypatch.setattr(f"dpgen_jax.run.capacity.{name}", lambda: needed - 1)
    monkeypatch.setattr(capacity, "MEMORY_SHARE", 1e9)  # of the public side, which is larger here
    for place in ("device", "host"):
        with pytest.raises(UserError, match="choose --state disk, or fewer units"):
            capacity.check_memory(METHOD, Runtime(state=place))
    capacity.check_memory(METHOD, Runtime(state="disk"))
    free = SimpleNamespace(free=int(1.5 * needed))
    monkeypatch.setattr(capacity.shutil, "disk_usage", lambda path: free)
    capacity.check_disk(tmp_path, METHOD)
    with pytest.raises(UserError, match="the state of this run and one checkpoint take .*--out"):
        capacity.check_disk(tmp_path, METHOD, Runtime(state="disk"))


def test_moments_stay_in_full_on_the_disk(monkeypatch):
    monkeypatch.setattr(capacity, "memory", lambda: 3e4)
    request, said = ("datalens", runs.CONFIG, small_datalens.SPEC), []
    assert capacity.fitting(*request, Runtime(state="disk"), said.append).moments == "float32"
    assert not said
    assert capacity.fitting(*request, Runtime(), said.append).moments == "bfloat16"
    for begun in ("float32", "bfloat16"):  # a run that goes on keeps what its checkpoints hold
        assert capacity.fitting(*request, Runtime(), said.append, begun).moments == begun
    assert "--state disk would keep them as they are" in said[0]


@pytest.mark.parametrize("name", methods.NAMES)
def test_units_that_keep_nothing_need_no_place(name):
    """The methods with a network for each unit keep it; the others are told that they need none."""
    case = next(case for case in seeded.ALL.values() if case.method == name)
    spec, said = seeded.dataset(case.data).spec, []
    config = calibrate_config.with_records(methods.get(name).Config(**case.fields), seeded.N)
    config = calibrate_config.complete(name, config, spec, case.budget)
    runtime = capacity.fitting(name, config, spec, Runtime(state="disk"), said.append)
    keeps = name in ("datalens", "gpate", "pategan", "gswgan", "dpac", "dcgan")
    assert runtime.state == ("disk" if keeps else "device")
    assert said == [] if keeps else "keep no state between steps" in said[0]


def test_slabs_are_of_one_size_and_as_large_as_fits():
    unit = capacity.teachers.unit_bytes(METHOD)
    for bytes_of_a_slab, slab in ((1, 2), (4 * unit, 4), (7 * unit, 6), (10**9, 12)):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(capacity, "SLAB_BYTES", bytes_of_a_slab)
            layout = capacity.choose_layout(METHOD, Runtime(state="host", chunk=2, devices=1))
        assert (layout.slab, layout.padded, layout.files) == (slab, 12, None)


def test_several_processes_and_pmap_are_refused(monkeypatch):
    with pytest.raises(UserError, match="--parallel pmap keeps the state"):
        capacity.choose_layout(METHOD, Runtime(state="disk", parallel="pmap"))
    monkeypatch.setattr(hosts.Team, "count", 2)
    with pytest.raises(UserError, match="--state disk is for one process"):
        capacity.choose_layout(METHOD, Runtime(state="disk"))
