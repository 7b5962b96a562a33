"""Run folders of earlier versions load, are accounted for, and go on.

`stored_runs.tar.xz` has runs of each kind of data as version 0.1.0 left them on that day:
finished, killed after a checkpoint, or killed between a purchase and the training, with the data.
The paths in them are those of a folder /stored. They were made once, and are never made again.
"""

import tarfile
from pathlib import Path

import pytest

import dpgen_jax
from dpgen_jax import account, train
from dpgen_jax.core.run_folder import read_json

ARCHIVE = Path(__file__).with_name("stored_runs.tar.xz")
FINISHED = ("table-bought-finished", "table-declared-finished", "table-subjects-finished",
            "folder-bought-finished", "npz-finished")
KILLED = ("table-bought-killed", "table-declared-killed", "folder-named-killed", "npz-killed")
PURCHASED = ("table-mid-purchase", "folder-mid-purchase")


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """Unpacks a run and its data; returns the folder of the run."""
    def inner(name):
        with tarfile.open(ARCHIVE) as archive:
            wanted = [member for member in archive
                      if not member.name.startswith((*FINISHED, *KILLED, *PURCHASED))
                      or member.name.startswith(f"{name}/")]
            archive.extractall(tmp_path, wanted, filter="data")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("DPGEN_STATE", str(tmp_path / "state"))
        for file in (tmp_path / name).glob("*.json"):  # of the configuration and the purchase
            file.write_text(file.read_text().replace("/stored", str(tmp_path)))
        return Path(name)
    return inner


@pytest.mark.parametrize("name", FINISHED)
def test_a_finished_run_loads_and_is_accounted_for(stored, name, capsys):
    run = stored(name)
    release = dpgen_jax.load(run / "release")
    assert release.privacy["guarantee"] == "(epsilon, delta) replace-one"
    sample = release.arrays(5)
    assert len(sample[0] if isinstance(sample, tuple) else sample) == 5
    account.command([str(run)])
    assert f"epsilon {release.privacy['epsilon']:.4g}" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", [*KILLED, *PURCHASED])
def test_a_killed_run_goes_on_and_pays_for_nothing_twice(stored, name):
    run = stored(name)
    lines = (run / "ledger.jsonl").read_bytes()
    train.command(["--resume", str(run)])
    statement = read_json(run / "release/privacy.json")
    assert statement["guarantee"] == "(epsilon, delta) replace-one" and statement["epsilon"] <= 10
    assert (run / "ledger.jsonl").read_bytes().startswith(lines)
    bought = [event["count"] for event in statement["events"]
              if event["mechanism"].startswith("survey")]
    assert set(bought) <= {1}
