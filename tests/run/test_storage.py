"""Object stores: a release goes there and comes back, a run folder is refused."""

from pathlib import Path

import fsspec
import numpy as np
import pytest
import runs

from dpgen_jax import evaluate, export, sample
from dpgen_jax.core import storage
from dpgen_jax.core.types import UserError
from dpgen_jax.release.bundle import load
from dpgen_jax.run import lifecycle


@pytest.fixture
def store():
    """fsspec's store in this process's memory, empty."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield system
    system.store.clear()


@pytest.fixture
def folder(tmp_path):
    """A folder of files such as a release has."""
    for name in ("config.json", "privacy.json", "samples/0.png"):
        path = tmp_path / "made" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"first {name}")
    return tmp_path / "made"


@pytest.mark.parametrize(("path", "address"), [
    ("gs://bucket/a", "gs://bucket/a"), (Path("gs://bucket/a/"), "gs://bucket/a"),
    ("s3://bucket", "s3://bucket"), (Path("s3://b/c d"), "s3://b/c d"),
    ("runs/a", None), ("/runs/a", None), (r"C:\runs", None), ("C:/runs", None),
    ("file:///runs", None), ("csv:people.csv", None), ("", None)])
def test_addresses_are_told_from_paths(path, address):
    assert storage.url(path) == address


def test_a_copy_comes_back_as_it_was(store, folder):
    storage.copy(folder, "memory://shared/release")
    with storage.on_disk(Path("memory://shared/release")) as there:
        assert {path.relative_to(there).as_posix(): path.read_text()
                for path in there.rglob("*") if path.is_file()} == {
                    name: f"first {name}" for name in ("config.json", "privacy.json",
                                                       "samples/0.png")}
    assert not there.exists()


def test_a_copy_that_breaks_off_leaves_nothing_that_loads(store, folder, monkeypatch):
    storage.copy(folder, "memory://shared")
    put = store.put_file

    def full(path, target):
        if path.endswith("0.png"):
            raise OSError("quota")
        put(path, target)

    monkeypatch.setattr(type(store), "put_file", lambda self, *args: full(*args))
    with pytest.raises(UserError, match="memory://shared cannot be used .*quota"):
        storage.copy(folder, "memory://shared")
    with pytest.raises(UserError, match="does not contain a release"), storage.on_disk("memory://shared"):
        pass


def test_a_path_of_this_machine_is_itself(tmp_path):
    with storage.on_disk(tmp_path) as there:
        assert there == tmp_path


@pytest.mark.parametrize(("address", "error"), [
    ("runs/shared", "--release-to runs/shared is not an address"),
    ("nowhere://bucket/a", "nowhere://bucket/a"),
    ("memory://others", "contains other files .thesis.txt.")])
def test_a_destination_is_checked_before_anything_is_spent(store, tmp_path, address, error):
    store.pipe("/others/thesis.txt", b"mine")
    with pytest.raises(UserError, match=error):
        lifecycle.run(runs.request(tmp_path / "run", release_to=address), runs.dataset())
    assert not (tmp_path / "run").exists()
    assert store.cat("/others/thesis.txt") == b"mine"


def test_a_run_folder_lies_on_a_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="gs://bucket/run cannot hold a run folder"):
        runs.train(Path("gs://bucket/run"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", [sample.command, export.command, evaluate.command])
def test_what_commands_write_stays_on_this_machine(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="s3://bucket/a.npz is not on this machine"):
        command(["run", "--out", "s3://bucket/a.npz"])
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_run_copies_its_release_which_is_sampled_from_there(
        store, tmp_path, capsys, compiled_once):
    request = runs.request(tmp_path / "run", release_to="memory://shared/release")
    lines: list[str] = []
    release = lifecycle.run(request, runs.dataset(), lines.append)
    assert "copied to memory://shared/release" in lines
    again = load("memory://shared/release")
    assert np.array_equal(again.arrays(9, seed=1)[0], release.arrays(9, seed=1)[0])
    sample.command(["memory://shared/release", "--n", "5", "--out", str(tmp_path / "five.npz")])
    assert "guarantee: " in capsys.readouterr().out
