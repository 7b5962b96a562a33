"""Federated GS-WGAN in one process: the promise is for a client's whole data, whatever it holds."""

import dataclasses
import json
import math
import shutil
import sys

import numpy as np
import pytest
import runs
import small_gswgan

from dpgen_jax import train
from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.events import GaussianEvent
from dpgen_jax.cli import terminal
from dpgen_jax.core.config import Budget, Runtime
from dpgen_jax.core.types import UserError
from dpgen_jax.data import from_arrays
from dpgen_jax.run import costs, lifecycle, planning
from dpgen_jax.run.progress import Notices

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_once")]
CLIENTS, BUDGET = 4, Budget(20.0, 1e-3)
CONFIG = small_gswgan.gs(
    federated=True,
    critics=9,
    critics_per_step=2,
    client_records=8,
    warm_steps=0,
    penalty=0.0,
    sigma=None,
    steps=3,
)
FLAGS = [f"--{name}={value}" for name, value in {
    "batch": 3, "pool": 2, "records-per-step": 3, "critic-steps": 1, "critic-steps-first": 1,
    "client-records": 8, "warm-steps": 0, "penalty": 0, "generator.latent": 2,
    "generator.width": 2, "critic.width": 2, "steps": 3, "delta": 1e-3, "devices": 1,
    "chunk": 1, "test-fraction": 0}.items()]


def sized(*sizes):
    """The data set of clients of these sizes, in a mixed order."""
    owners = np.repeat(np.arange(len(sizes)), sizes)
    data = from_arrays(*runs.images(n=len(owners)), 3)
    return dataclasses.replace(data, clients=np.random.default_rng(0).permutation(owners))


def fit(root, data, clients=None, alpha=None, **fields):
    data, config = planning.federated(data, dataclasses.replace(CONFIG, **fields), clients, alpha)
    said = []
    run = lifecycle.Resolved("gswgan", "glyphs", config, BUDGET, Runtime(devices=1, chunk=1), root)
    return lifecycle.run(run, data, said.append), "\n".join(said)


def test_a_journal_tells_whose_records_belong_together():
    """Simulated clients were taken for clients, and any clients for those that are protected."""
    def grouping(data, **split):
        data, config = planning.federated(data, CONFIG, **split)
        request = lifecycle.Resolved(
            "gswgan", "glyphs", config, BUDGET, Runtime(devices=1, chunk=1))
        checked = planning.check(planning.declare(request, data, lambda line: None),
                                 lambda line: None, Notices(lambda line: None))
        return planning.plan(checked).grouping(b"key")

    named, simulated = sized(30, 10, 15, 5), dataclasses.replace(sized(60), clients=None)
    assert grouping(named) not in ("", grouping(sized(15, 15, 15, 15)))
    assert grouping(simulated, clients=CLIENTS) == ""
    assert grouping(simulated, clients=CLIENTS, alpha=0.05) == ""


@pytest.mark.parametrize(("data", "split"), [
    (sized(1, 30, 5, 24), {}), (sized(60), {"clients": CLIENTS}),
    (sized(60), {"clients": CLIENTS, "alpha": 0.05})], ids=["named", "even", "alpha"])
def test_clients_of_any_sizes_train_together(tmp_path, data, split):
    """Two of four clients a step, in turn: each is charged for its own two visits of three."""
    if split:
        data = dataclasses.replace(data, clients=None)
    release, said = fit(tmp_path / "run", data, **split)
    privacy = release.privacy
    ((event, count),) = books.account(books.read(tmp_path / "run/ledger.jsonl")).spent()
    assert isinstance(event, GaussianEvent) and count == 2
    assert event.mu_squared == pytest.approx(3 / release.config.sigma**2)
    who = ({"unit": "record", "records": 60, "simulated_clients": CLIENTS} if split
           else {"unit": "client", "clients": CLIENTS})
    expected = {"relation": "replace-one", "steps": 3, "budget_epsilon": 20.0, **who,
                "epsilon": math.inf if "alpha" in split else 20.0,
                "events": [{**event.statement(), "count": 2}]}
    assert expected.items() <= privacy.items() and ("records" in privacy) == bool(split)
    assert privacy["guarantee"].startswith("none: " if "alpha" in split else "(epsilon, delta)")
    assert ("simulated clients" in said.splitlines()[-1]) == bool(split)
    assert (f"{CLIENTS} simulated clients" if split else f"{CLIENTS} clients;") in said
    assert "clients" in privacy["data_notes"][1]
    for _ in range(2):  # with its release, and as it is before there is one
        account = costs.of_run(tmp_path / "run")
        assert account.unit == who["unit"]  # whose ledger names the mechanism's
        assert account.claimed.epsilon == expected["epsilon"]
        shutil.rmtree(tmp_path / "run/release", ignore_errors=True)
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["records"] == (60 if split else None)
    assert config["config"]["critics"] == CLIENTS
    x, y = release.arrays(7)
    assert x.shape == (7, 8, 8, 1) and set(y) == {0, 1, 2}


def test_no_client_counts_are_published(tmp_path):
    """The records of a client are private, and so is their number."""
    pair = []
    for name, sizes in (("a", (17, 30, 5, 24)), ("b", (3, 30, 5, 24))):
        fit(tmp_path / name, sized(*sizes))
        files = runs.snapshot(tmp_path / name)
        pair.append({path: text for path, text in files.items() if path in (
            "config.json", "release/privacy.json")})
    first, second = ({path: json.loads(text) for path, text in files.items()} for files in pair)
    assert first["config.json"].pop("run") != second["config.json"].pop("run")
    assert len(first) == 2 and first == second


@pytest.mark.parametrize(("data", "split", "text"), [
    (sized(60), {}, "one client is a central run: leave out --federated"),
    (dataclasses.replace(sized(60), clients=None), {"clients": 1}, "one client is a central run"),
    (dataclasses.replace(sized(60), clients=None), {}, "pass --clients N"),
    (dataclasses.replace(sized(60), clients=None), {"clients": 61}, "every client needs at least"),
    (sized(20, 40), {"clients": 3}, "names 2 clients itself"),
    (sized(20, 40), {"alpha": 1.0}, "already names its clients"),
    (sized(20, 0, 40), {}, "client 1 has no records: leave it out")],
    ids=["one named", "one", "unnamed", "too many", "other number", "alpha", "empty"])
def test_federations_that_are_none_are_refused_before_anything_is_written(tmp_path, data, split,
                                                                          text):
    with pytest.raises(UserError, match=text) as caught:
        fit(tmp_path / "run", data, **split)
    assert "\n" not in str(caught.value) and not (tmp_path / "run").exists()


def test_a_method_that_protects_records_says_so_where_the_data_name_clients():
    """A hospital that wrote whose record each is took its patients for protected."""
    lines = []
    data = dataclasses.replace(runs.dataset(), clients=np.arange(runs.N) % 4)
    for some in (data, runs.dataset()):
        planning.declare(runs.request(None), some, lines.append)
    notes = [line for line in lines if "protects single records" in line]
    assert len(notes) == 1 and "datalens" in notes[0] and "fedavg_gan" in notes[0]


def test_a_central_run_has_no_clients(tmp_path):
    data = dataclasses.replace(sized(60), clients=None)
    for split in ({"clients": 3}, {"alpha": 1.0}):
        with pytest.raises(UserError, match="need --federated"):
            fit(tmp_path / "run", data, **split, federated=False)
    assert planning.federated(data, dataclasses.replace(CONFIG, federated=False))[0] is data


def test_the_command(tmp_path, capsys, monkeypatch):
    """Clients that the file names, and its release."""
    x, y = runs.images()
    np.savez(tmp_path / "noise.npz", x_train=x, y_train=y, classes=3,
             client_id=np.arange(60) ** 2 % 7 % 4)
    monkeypatch.chdir(tmp_path)
    train.command(["gswgan", "--federated", "--dataset", "npz:noise.npz", *FLAGS, "--epsilon", "20",
                   "--out", "run"])
    said = capsys.readouterr().out
    privacy = json.loads((tmp_path / "run/release/privacy.json").read_text())
    assert (privacy["unit"], privacy["clients"], privacy["epsilon"]) == ("client", 3, 20.0)
    assert "3 clients" in said and "60 records" not in said


@pytest.mark.parametrize(("flags", "text"), [
    (["--clients", "4"], "need --federated"),
    (["--federated"], "pass --clients N"),
    (["--federated", "--clients", "1"], "one client is a central run"),
    (["--federated", "--clients", "4", "--alpha", "0"], "Dirichlet alpha 0"),
    (["--federated", "--clients", "4", "--class-epsilon", "0.01"], "does not cover a client"),
    (["--federated", "--clients", "4", "--schedule", "secret-draw", "--critics-per-step", "2"],
     "secret draw hides nothing")])
def test_bad_words_get_one_line(tmp_path, capsys, monkeypatch, flags, text):
    monkeypatch.chdir(tmp_path)
    runs.npz(tmp_path / "noise.npz", *runs.images())
    monkeypatch.setattr(sys, "argv", ["train", "gswgan", "--dataset", "npz:noise.npz", *FLAGS,
                                      "--epsilon", "20", *flags])
    with pytest.raises(SystemExit) as stop:
        terminal.main(train.command)
    err = capsys.readouterr().err
    assert stop.value.code == 2 and text in err and err.count("\n") == 1
    assert {p.name for p in tmp_path.iterdir()} == {"noise.npz"}
