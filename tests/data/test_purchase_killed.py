"""Killed between a purchase and the training, a run remembers what was spent and what it bought."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import runs
from test_newcomer import QUICK
from test_table_purchase import HEADER, ROWS

from dpgen_jax import account, evaluate, sample, train
from dpgen_jax.accountant import journal
from dpgen_jax.audit.findings import Verdict
from dpgen_jax.audit.folder import of_folder
from dpgen_jax.core.config import DataOptions, Evaluation
from dpgen_jax.core.run_folder import read_json, write_json
from dpgen_jax.data.table import parsing, schema
from dpgen_jax.data.table.parsing import coded
from dpgen_jax.run import purchase

KILLED = """
import os, signal, sys
from dpgen_jax.cli import train_flags
from dpgen_jax.run import reading, undeclared

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[1] == "before the answer":
    undeclared._kept = die
reading.of_source(train_flags.call(sys.argv[2:]).request)
die()
"""


@pytest.mark.slow
def test_a_label_of_one_class_ends_in_a_release(tmp_path, monkeypatch, capsys):
    """Nothing that was bought is lost, and the statement names all records that it covered."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPGEN_STATE", str(tmp_path / "state"))
    (tmp_path / "a.csv").write_text("\n".join(
        ["age,w,y", *(f"{20 + i % 60},{i / 100 % 3:.2f},only" for i in range(1500))]))
    train.command(["--dataset=a.csv", "--label=y", "--epsilon=10", "--delta=1e-5", "--out=run"])
    assert "fewer than 2 classes of the label y" in capsys.readouterr().out
    statement = read_json(tmp_path / "run/release/privacy.json")
    assert statement["guarantee"] == "(epsilon, delta) replace-one" and statement["epsilon"] == 10
    assert (statement["records"], statement["bought_from"]) == (
        1200, {"records": 1500, "held_out": 300})
    rows = parsing.read_csv(tmp_path / "run/release/samples.csv")
    drawn = rows.columns["y"]  # noise may give the other category a few
    assert {*drawn} <= {"only", "other"} and drawn.count("only") > 0.9 * len(drawn)
    train.command(["--resume", "run"])
    assert read_json(tmp_path / "run/release/privacy.json") == statement

    def verdicts():
        report = of_folder(Path("run"))
        return {finding.check: finding.verdict for finding in report.findings}

    covered = "privacy.json names all records that purchases covered"
    assert set(verdicts().values()) == {Verdict.HOLDS} and covered in verdicts()
    for fewer in ({"records": 1200, "held_out": 0}, {"records": 1500, "held_out": 200}, None):
        write_json(tmp_path / "run/release/privacy.json", {
            name: value for name, value in (statement | {"bought_from": fewer}).items() if value})
        assert verdicts()[covered] == Verdict.FAILS


@pytest.mark.parametrize(("moment", "count"), [
    pytest.param("before the answer", 2, marks=pytest.mark.slow),
    pytest.param("behind it", 1, marks=pytest.mark.long)])
def test_killed_between_purchase_and_training_it_is_remembered(tmp_path, monkeypatch, capsys,
                                                               moment, count):
    """From the command to its release: charges of both draws, and a schema that is kept."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPGEN_STATE", str(tmp_path / "state"))
    (tmp_path / "loans.csv").write_text("\n".join([HEADER, *ROWS, ""]))
    (tmp_path / "killed.py").write_text(KILLED)
    words = ["dpmerf", "--dataset=loans.csv", "--label=default", "--epsilon=10", *QUICK]
    ended = subprocess.run([sys.executable, "killed.py", moment, *words, "--out=run"], check=False,
                           env=runs.environment(), capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    (remembered,) = (tmp_path / "state/runs").iterdir()
    assert journal.read_run(remembered).spent > 3
    train.command(["--resume", "run"])
    first = capsys.readouterr()
    assert "uses 15 % of the budget" in first.out and "earlier on these" not in first.err
    statement = read_json(tmp_path / "run/release/privacy.json")
    assert [event["count"] for event in statement["events"]
            if event["mechanism"].startswith("survey")] == [count] * 3
    assert statement["guarantee"] == "(epsilon, delta) replace-one" and statement["epsilon"] == 10
    notes = sum("bought under differential privacy" in note for note in statement["data_notes"])
    assert notes in (4, 5)  # kinds, nulls, bounds and categories; perhaps special values
    monkeypatch.setattr(purchase, "buy_schema", lambda *args: pytest.fail("bought again"))
    train.command(["--resume", "run"])
    assert read_json(tmp_path / "run/release/privacy.json") == statement
    account.command(["run"])
    assert capsys.readouterr().out.count("survey ") == 3
    sample.command(["run", "--n", "20", "--out", "rows.csv"])
    rows = parsing.read_csv(tmp_path / "rows.csv")
    assert coded(schema.read("run/schema.yaml"), rows).codes.shape == (20, HEADER.count(","))
    assert (tmp_path / "run").rename(tmp_path / "moved")
    again = evaluate.with_data_set(evaluate.Evaluate(Evaluation(), DataOptions(), Path("moved")))
    assert again.data.schema == str(tmp_path / "moved/schema.yaml")
