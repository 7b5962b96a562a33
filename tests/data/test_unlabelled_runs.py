"""A table without a label from a CSV to its report, by every method that can make one."""

import contextlib
import csv
import io
import json

import pytest
import runs

from dpgen_jax import evaluate, train
from dpgen_jax.run import lifecycle

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_once")]

SCHEMA = """\
name: a town
targets: [pay]
columns:
  age: {kind: integer, min: 18, max: 90}
  pay: {kind: continuous, min: 0, max: 500, nullable: true}
  job: {kind: categorical, categories: [cook, nurse]}
"""
SMALL = ["--devices=1", "--generator.latent=3", "--generator.hidden=8"]
TEACHERS = ["--teachers=8", "--batch=4", "--steps=2", "--chunk=8", *SMALL]
FLAGS = {"dpmerf": ["--generator-steps=2", "--batch=8", *SMALL], "gpate": TEACHERS,
         "pategan": TEACHERS, "marginals": []}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("town")
    (folder / "s.yaml").write_text(SCHEMA)
    for name, n in (("train", 90), ("test", 60)):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["pay", "job", "age"], *(
                ["" if i % 9 == 0 else 5 * (i % 60), ["cook", "nurse"][i % 2], 20 + i % 60]
                for i in range(n))])
    return folder


@pytest.mark.parametrize("method", [
    "dpmerf", "marginals",
    *(pytest.param(name, marks=pytest.mark.long) for name in ("gpate", "pategan"))])
def test_it_is_trained_and_sampled(place, method):
    said, out = io.StringIO(), place / method
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        train.command([method, "--preset", "table", "--dataset", f"csv:{place / 'train.csv'}",
                       "--schema", str(place / "s.yaml"), "--epsilon", "1", "--delta", "1e-3",
                       "--test-csv", str(place / "test.csv"), "--out", str(out), *FLAGS[method]])
    assert "no label" in said.getvalue()
    config = json.loads((out / "config.json").read_text())
    assert config["budget"]["class_epsilon"] == 0 and not (out / "class_counts.json").exists()
    assert config["dataset"] == "a-town" and "targets" not in config["spec"]
    events = json.loads((out / "release/privacy.json").read_text())["events"]
    assert not any("class" in event["mechanism"] for event in events)
    with (out / "release/samples.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["age", "pay", "job"] and len(rows) == 1000
    release = lifecycle.load(out)
    assert set(release.sample(20, seed=0).columns) == set(header)
    assert runs.snapshot(out)["release/marginals.png"][:4] == b"\x89PNG"


@pytest.mark.parametrize("method", ["dpmerf", "marginals"])
def test_it_is_evaluated(place, method, capsys):
    if not (place / method).exists():
        test_it_is_trained_and_sampled(place, method)
    evaluate.command([str(place / method), "--dataset", f"csv:{place / 'train.csv'}", "--schema",
                      str(place / "s.yaml"), "--test-csv", str(place / "test.csv"), "--samples",
                      "60", "--seeds", "1", "--by", "job"])
    printed = capsys.readouterr().out
    assert "verdict: " in printed and "pay from the other columns, best model" in printed
    result = json.loads((place / method / "evaluation/metrics.json").read_text())
    assert result["dataset"] == "a-town" and "gen2real" not in result
    assert {"pmse", "two_way_tvd", "detection_auroc"} <= {*result["fidelity"]}
    assert result["membership"]["allowed"]["auroc"] == pytest.approx(0.731, abs=1e-2)
    assert "Report on synthetic data: a-town" in (
        place / method / "evaluation/report.html").read_text()
