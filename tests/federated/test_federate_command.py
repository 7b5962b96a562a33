"""The commands: the app that `federate` writes, and who `join` lets in."""

import tomllib

import federation as fed
import numpy as np
import pytest
import runs

from dpgen_jax import federate, join
from dpgen_jax.core.errors import BudgetExceeded, UserError
from dpgen_jax.core.types import ImageSpec
from dpgen_jax.federated import wire
from dpgen_jax.federated.messages import Terms

FLAGS = ["--critics", "3", "--steps", "3", "--batch", "4", "--epsilon", "8", "--height", "8",
         "--width", "8", "--classes", "3", "--warm-steps", "0", "--generator.width", "2",
         "--critic.width", "2"]


def app(tmp_path, *flags):
    federate.command([*FLAGS, "--out", str(tmp_path / "app"), *flags])
    return tmp_path / "app"


def test_the_app_holds_the_terms(tmp_path, capsys):
    project = tomllib.loads((app(tmp_path) / "pyproject.toml").read_text())
    options = project["tool"]["flwr"]["app"]["config"]
    terms = join.terms_of(tmp_path / "app")
    assert terms == Terms.from_text(options["terms"]) and terms.spec == ImageSpec(8, 8, 1, 3)
    assert terms.config.federated and terms.config.critics == 3 and terms.config.sigma > 0
    assert Terms.from_text(terms.to_text()).digest == terms.digest
    assert terms.build().mechanism.unit == "client"
    assert options["epsilon"] == 8.0 and options["resume"] is False and "seed" not in options
    said = capsys.readouterr().out
    assert "3 clients, 3 steps, 3 participations of a client" in said
    assert "an answer 1,024" in said  # 4 fakes x 64 pixels x 4 bytes


def test_an_app_is_not_overwritten(tmp_path):
    app(tmp_path)
    before = (tmp_path / "app/pyproject.toml").read_bytes()
    with pytest.raises(UserError, match="already contains an app"):
        app(tmp_path, "--seed", "1")
    assert (tmp_path / "app/pyproject.toml").read_bytes() == before


@pytest.mark.parametrize(("words", "error", "message"), [
    (["datalens"], UserError, "datalens has no federated form"),
    (["--critics", "1"], UserError, "at least 2 are needed"),
    (["--epsilon", "0"], UserError, "epsilon must be above 0"),
    (["--sigma", "0.5"], BudgetExceeded, "above the budget of 8"),
    (["--no-federated"], UserError, "add noise at the server"),
    (["--schedule", "secret-draw", "--critics-per-step", "2"], UserError, "public schedule")])
def test_terms_that_cannot_be(tmp_path, words, error, message):
    flags = FLAGS if words[0].startswith("-") else []
    with pytest.raises(error, match=message):
        federate.command([*flags, *words, "--out", str(tmp_path / "app")])
    assert not (tmp_path / "app").exists()


def test_without_a_budget_the_app_says_so(tmp_path):
    project = tomllib.loads((app(tmp_path, "--epsilon", "inf") / "pyproject.toml").read_text())
    assert project["tool"]["flwr"]["app"]["config"]["epsilon"] == float("inf")
    assert join.terms_of(tmp_path / "app").config.sigma == 0


@pytest.mark.parametrize(("text", "message"), [
    (None, "cannot read"), ("a = [", "is not the app"), ("a = 1", "is not the app"),
    ("[tool.flwr.app.config]\nterms = '{}'", "terms of the federation are damaged"),
    ("[tool.flwr.app.config]\nterms = 'x'", "terms of the federation are damaged"),
    ("[tool.flwr.app.config]\nterms = '{\"method\": \"gpt\"}'", "unknown method 'gpt'")])
def test_a_folder_that_is_no_app(tmp_path, text, message):
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(UserError, match=message):
        join.command([str(tmp_path), "--data", "glyphs", "--client", "0", "--epsilon", "1"])


@pytest.mark.parametrize(("flags", "message"), [
    (["--client", "0"], "epsilon"), (["--client", "7", "--epsilon", "1"], "client 7 of a feder"),
    (["--client", "0", "--epsilon", "1", "--delta", "0"], "delta must lie")])
def test_who_cannot_join_by_command(tmp_path, monkeypatch, flags, message):
    monkeypatch.chdir(tmp_path)
    data = fed.records(0)
    runs.npz(tmp_path / "0.npz", data.x_train, data.y_train)
    with pytest.raises(UserError, match=message):
        join.command([str(app(tmp_path)), "--data", "npz:0.npz", *flags])


def test_an_empty_client_cannot_join(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs.npz(tmp_path / "0.npz", np.zeros((0, 8, 8, 1), np.uint8), np.zeros(0, np.int64))
    with pytest.raises(UserError, match="no records"):
        join.command([str(app(tmp_path)), "--data", "npz:0.npz", "--client", "0", "--epsilon", "1"])


def test_a_client_says_what_is_spent_when_it_stops(tmp_path, monkeypatch, capsys):
    def stopped(path, reply, ready):
        ready()
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(wire, "listen", stopped)
    data = fed.records(0)
    runs.npz(tmp_path / "0.npz", data.x_train, data.y_train)
    with pytest.raises(KeyboardInterrupt):
        join.command([str(app(tmp_path)), "--data", "npz:0.npz", "--client", "0", "--epsilon", "1"])
    first, last = capsys.readouterr().out.splitlines()[-2:]
    assert first.startswith("client 0 uses ") and last == (
        "client 0 stops: epsilon 0 of 1 is spent")
