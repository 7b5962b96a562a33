"""The command: bad input gets one line; a mechanism is attacked; without noise, nothing can be."""

import json

import pytest

import dpgen_jax as dg
from dpgen_jax import account
from dpgen_jax.audit import __main__ as command_line
from dpgen_jax.audit.findings import FAILED, UNDECIDED, Findings, Report
from dpgen_jax.core.errors import UserError


@pytest.mark.parametrize(("words", "said"), [
    (["nope"], "no folder 'nope', and no method with that name; methods: "),
    (["pategam"], "did you mean 'pategan'"), ([__file__], "is a file; name the folder"),
    (["--sigma", "3"], "name a method"),
    (["pategan", "--canaries", "3"], "both --dataset and --canaries"),
    (["pategan", "--seconds", "nan"], "--seconds is nan"),
    (["pategan", "--sigma", "1", "--steps", "5", "--epsilon", "0.1"], "need epsilon"),
    (["pategan", "--out", __file__], "is a file"),
    pytest.param(["dpmerf", "--dataset", "breast_cancer", "--canaries", "9999"],
                 "--canaries is 9999", marks=pytest.mark.slow)])
def test_bad_input_gets_a_line(words, said, monkeypatch):
    monkeypatch.setattr(command_line.terminal, "use_all_cores", lambda: None)
    with pytest.raises(UserError, match=said):
        command_line.command(words)


@pytest.mark.parametrize("command", [account.command, command_line.command])
def test_a_run_that_is_not_there_is_no_unknown_method_alone(command, tmp_path, monkeypatch):
    monkeypatch.setattr(command_line.terminal, "use_all_cores", lambda: None)
    (tmp_path / "first-run").mkdir()
    with pytest.raises(UserError) as error:
        command([str(tmp_path / "first-rum"), "--json"])
    assert f"no folder '{tmp_path / 'first-rum'}'" in str(error.value)
    assert f"did you mean '{tmp_path / 'first-run'}'?" in str(error.value)


def test_the_exit_code_is_0_only_where_all_checks_were_made_and_hold():
    def code(*kinds):
        found = Findings()
        for kind in kinds:
            found.add("check", kind)
        return Report(subject="", findings=tuple(found.made)).exit_code

    assert (code("holds"), code("holds", "cannot be checked"), code(), code(
        "cannot be checked", "fails")) == (0, UNDECIDED, UNDECIDED, FAILED)


@pytest.mark.parametrize(("what", "stated", "said"), [
    ("pategam", {}, "neither a method nor the folder of a run, did you mean 'pategan'"),
    ("pategan", {"canaries": 3}, "both dataset and canaries"),
    ("pategan", {"black_box": True}, "black_box attacks the samples"),
    ("pategan", {"seconds": -1.0}, "seconds is -1.0; give"),
    ("pategan", {"dataset": "glyphs"}, "both dataset and canaries"),
    ("pategan", {"batch": "many"}, "batch is 'many'"), ("pategan", {"bach": 3}, "mean 'batch'"),
    (".", {"preset": "adult"}, "preset is for methods, and . is a folder"),
    (".", {"dataset": 3}, "dataset of a run must be a string")])
def test_a_call_that_means_nothing_names_its_argument(what, stated, said):
    with pytest.raises(UserError, match=said):
        dg.audit(what, **stated)


def test_a_call_gives_findings(capsys):
    report = dg.audit("pategan", sigma=0.0, steps=5, epsilon=float("inf"))
    assert report.exit_code == UNDECIDED and report.facts["config"]["steps"] == 5
    assert capsys.readouterr().out.splitlines() == [one.line() for one in report.findings]
    assert "no epsilon is promised" in report.findings[0].detail


def test_the_command_attacks_a_mechanism_and_keeps_its_report(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command_line.terminal, "use_all_cores", lambda: None)
    code = command_line.command(["pategan", "--seconds", "0.05", "--batch", "8", "--out",
                                 str(tmp_path / "a")])
    record, printed = json.loads((tmp_path / "a/audit.json").read_text()), capsys.readouterr().out
    assert code == record["exit_code"] == 0 and record["facts"]["config"]["batch"] == 8
    assert "mu claimed 3" in printed and len(record["findings"]) > 4
    assert (tmp_path / "a/audit.png").read_bytes().startswith(b"\x89PNG")
