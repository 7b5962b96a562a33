"""A table through whole runs: CSV in, CSV out, with the class counts and the schema paid for."""

import contextlib
import csv
import dataclasses
import io
import json
import math
import shutil

import numpy as np
import pytest
import runs
from PIL import Image
from scipy.optimize import brentq
from scipy.stats import norm

from dpgen_jax import account, data, evaluate, sample, train
from dpgen_jax.accountant import ledger as books
from dpgen_jax.core.types import UserError
from dpgen_jax.data.table import frames, schema, tables
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.presets import get
from dpgen_jax.run import fitting, lifecycle

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_once")]
SCHEMA = """\
label: grade
columns:
  age: {kind: integer, min: 18, max: 90}
  pay: {kind: continuous, min: 0, max: 500, nullable: true}
  grade: {kind: categorical, categories: [low, "mid, high", top]}
  job: {kind: categorical, categories: [cook, nurse, clerk]}
  size: {kind: ordinal, categories: [S, M, L]}
"""
COLUMNS = ["age", "pay", "grade", "job", "size"]
GRADES = ["low", "mid, high", "top"]
N, STEPS, TEACHERS, BATCH, DELTA = 90, 3, 8, 4, 1e-3
SMALL = {"generator.latent": 3, "generator.hidden": 8, "discriminator.hidden": 4}
FLAGS = [f"--{name}={value}" for name, value in {
    "teachers": TEACHERS, "batch": BATCH, "steps": STEPS, "delta": DELTA, "devices": 1,
    "chunk": TEACHERS, "steps-per-call": 1, "test-fraction": 0, **SMALL}.items()]
OFTEN = ["--checkpoint-minutes", 0]
RUNTIME = dataclasses.replace(runs.RUNTIME, chunk=TEACHERS, checkpoint_minutes=5)
COUNTS = {"mechanism": "discrete-laplace class counts", "epsilon": 0.01, "delta": 0.0}


class Cut(BaseException):
    """An exception that ends a run at a chosen moment, as nothing in the library catches it."""


def people(n, seed=0):
    """The rows of a CSV file, its columns in another order than the schema's: every tenth pay is
    missing, every eleventh above its bound, and one row is of the last class."""
    rng = np.random.default_rng(seed)
    for i in range(n):
        pay = "" if i % 10 == 0 else "600" if i % 11 == 0 else f"{rng.uniform(0, 500):.2f}"
        grade = GRADES[2 if i == 5 else i % 3 == 0]
        yield [pay, rng.choice(["cook", "nurse", "clerk"]), grade, rng.choice([*"SML"]),
               str(rng.integers(18, 91))]


def write(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["pay", "job", "grade", "size", "age"], *rows])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    (folder / "people.yaml").write_text(SCHEMA)
    write(folder / "people.csv", people(N))
    write(folder / "held.csv", people(40, seed=1))
    return folder


def go(place, out, *flags, declared="people.yaml"):
    """Trains on the table in this process; returns what was said, in private too."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        train.command(["gpate", "--dataset", f"csv:{place / 'people.csv'}", "--schema",
                       str(place / declared), "--out", str(out), *FLAGS, *map(str, flags)])
    return said.getvalue()


@pytest.fixture(scope="module")
def trained(place):
    """(run folder, what was said) of one run with the preset's budget, epsilon 1."""
    said = go(place, place / "run", "--test-csv", place / "held.csv")
    return place / "run", said


@pytest.fixture
def run(trained):
    return trained[0]


@pytest.fixture
def release(run):
    return lifecycle.load(run)


def read_json(path):
    return json.loads(path.read_text())


def spent(root):
    return books.account(books.read(root / "ledger.jsonl"))


def events(root):
    """mechanism -> (event, count)."""
    return {event.mechanism: (event, count) for event, count in spent(root).spent()}


def gaussian_epsilon(mu, delta):
    """Balle and Wang 2018, Theorem 8, solved for epsilon."""
    return brentq(lambda e: norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu)
                  - delta, 0, 50, xtol=1e-12)


# --- what a run leaves

def test_the_run_folder_is_that_of_the_contract(run):
    names = {str(p.relative_to(run)) for p in run.rglob("*") if p.is_file()}
    assert {n for n in names if not n.startswith("private/")} == {
        "config.json", "ledger.jsonl", "metrics.jsonl", "curves.png", "class_counts.json",
        "release/generator.safetensors", "release/config.json", "release/privacy.json",
        "release/README.txt", "release/statement.html", "release/samples.csv",
        "release/marginals.png"}
    assert Image.open(run / "release/marginals.png").format == "PNG"
    config = read_json(run / "config.json")
    assert (config["method"], config["preset"], config["dataset"]) == (
        "gpate", "table-few", "people")


def test_csv_in_is_csv_out(place, run):
    made = run / "release/samples.csv"
    back = data.load(f"csv:{made}", schema=str(place / "people.yaml"))
    assert back.spec == data.load(f"csv:{place / 'people.csv'}",
                                  schema=str(place / "people.yaml")).spec
    assert len(back.y_train) == 1000
    assert not any("clipped" in note for note in back.private_notes)
    with made.open(newline="") as file:
        header, *rows = csv.reader(file)
    cells = dict(zip(header, zip(*rows, strict=True), strict=True))
    assert header == COLUMNS
    assert all(age.isdigit() and 18 <= int(age) <= 90 for age in cells["age"])
    assert all(pay == "" or 0 <= float(pay) <= 500 for pay in cells["pay"])
    assert any("." in pay for pay in cells["pay"])
    assert set(cells["grade"]) <= set(GRADES) and set(cells["size"]) <= set("SML")
    assert set(cells["job"]) <= {"cook", "nurse", "clerk"}


def test_the_epsilon_is_that_of_a_computation_by_hand(run):
    privacy = read_json(run / "release/privacy.json")
    assert (privacy["epsilon"], privacy["delta"], privacy["steps"]) == (1.0, DELTA, STEPS)
    counts, gaussian = privacy["events"]
    assert counts == {**COUNTS, "count": 1}
    # A clipped row is 32 steps of the grid long, and a replaced one of all B rows turns over.
    assert gaussian["mechanism"] == "rounded-gaussian" and gaussian["count"] == STEPS
    assert gaussian["sensitivity"] == pytest.approx(2 * 32 * math.sqrt(BATCH))
    mu = math.sqrt(STEPS) * gaussian["sensitivity"] / gaussian["sigma"]
    by_hand = gaussian_epsilon(mu, DELTA) + 0.01
    assert spent(run).epsilon() == pytest.approx(by_hand, abs=1e-7)
    assert 0.999 < by_hand <= 1.0


def test_what_the_data_holder_sees_is_in_no_file(trained):
    root, said = trained
    assert ("people.csv: 8 values outside the bounds of the schema were clipped (column pay: 8)"
            in said)
    assert "held.csv: 3 values outside" in said
    for name, content in runs.snapshot(root).items():
        assert b"clipped" not in content and b"values outside" not in content, name
    assert read_json(root / "release/privacy.json")["data_notes"] == [
        "column names, kinds, bounds, categories and classes are those of the schema"]


def test_account_of_a_run(run, capsys):
    before = runs.snapshot(run)
    account.command([str(run), "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed["claimed"] == {"epsilon": 1.0, "delta": DELTA}
    assert printed["events"] == read_json(run / "release/privacy.json")["events"]
    assert printed["spent"]["steps"] == STEPS and 0.999 < printed["spent"]["epsilon"] <= 1
    assert runs.snapshot(run) == before




# --- sample, evaluate, and a notebook

@pytest.mark.parametrize("ending", ["csv", "npz"])
def test_sampling_a_class_by_its_name(place, run, release, tmp_path, ending):
    words = [str(run), "--n", "7", "--label", "mid, high", "top", "--seed", "3", "--out"]
    outs = [tmp_path / f"{name}.{ending}" for name in "ab"]
    for out in outs:
        sample.command([*words, str(out)])
    x, y = release.arrays(7, [1, 2], 3)
    assert y.tolist() == [1, 2, 1, 2, 1, 2, 1]
    if ending == "npz":
        for out in outs:
            with np.load(out) as printed:
                np.testing.assert_array_equal(printed["x_train"], x)
                np.testing.assert_array_equal(printed["y_train"], y)
        return
    assert outs[0].read_bytes() == outs[1].read_bytes()
    back = data.load(f"csv:{outs[0]}", schema=str(place / "people.yaml"))
    np.testing.assert_array_equal(back.y_train, y)
    np.testing.assert_allclose(back.x_train, tables.encode(release.spec, x), atol=1e-5)


@pytest.mark.parametrize(("words", "message"), [
    (["--out", "x.png"], "x.png: the ending must be one of .npz, .csv"),
    (["--out", "folder"], "folder: the ending must be one of .npz, .csv"),
    (["--out", "x.csv", "--label", "Low"], "label 'Low' is not one of low, mid, high, top"),
    (["--out", "x.csv", "--label", "0"], "label '0' is not one of"),
    (["--out", "x.csv", "--n", "0"], "cannot sample 0 records")])
def test_bad_sampling_is_one_clear_line(run, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message) as caught:
        sample.command([str(run), *words])
    assert "\n" not in str(caught.value) and not runs.snapshot(tmp_path)


def judge(place, source, *words, held_out=True):
    evaluate.command([
        str(source), "--dataset", f"csv:{place / 'people.csv'}", "--schema",
        str(place / "people.yaml"), "--samples", "60", "--seeds", "2",
        *(["--test-csv", str(place / "held.csv")] if held_out else []), *map(str, words)])


def test_evaluation_of_a_table(place, run, tmp_path, capsys):
    judge(place, run, "--out", tmp_path / "new", "--classifiers", "lr", "mlp")
    found = read_json(tmp_path / "new/metrics.json")
    for task in ("gen2real", "real2real"):
        assert found[task].keys() == {"lr", "mlp"}
        for scores in found[task].values():
            assert {"auroc", "auprc"} <= scores.keys()
            for score in scores.values():
                assert {"mean", "std", "values"} <= score.keys() and len(score["values"]) == 2
                assert score["mean"] == pytest.approx(np.mean(score["values"]))
    assert (found["n_samples"], found["seeds"], found["dataset"]) == (60, 2, "people")
    assert found["schema_violations"]["mean"] == 0 and found["fidelity"]
    assert found["release"]["epsilon"] == 1.0 and "gen2real.lr.auroc" in found[
        "not_covered_by_epsilon"]
    assert "numbers from real records are not covered by epsilon" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "held_out", "message"), [
    ([], False, "no held-out part to test on; add one .*--test-csv"),
    (["--classifiers", "cnn"], True, "unknown classifier 'cnn'; known: lr, adaboost"),
    (["--schema", "OTHER"], True, "schemas differ from column 'pay' on.*same .*--schema")])
def test_bad_evaluation_is_one_clear_line(place, run, tmp_path, words, held_out, message):
    (tmp_path / "other.yaml").write_text(SCHEMA.replace("max: 500", "max: 700"))
    words = [str(tmp_path / "other.yaml") if word == "OTHER" else word for word in words]
    with pytest.raises(UserError, match=message) as caught:
        judge(place, run, "--out", tmp_path / "new", *words, held_out=held_out)
    assert "\n" not in str(caught.value) and not (tmp_path / "new").exists()


def test_a_release_survives_saving(release, tmp_path):
    back = lifecycle.load(release.save(tmp_path / "saved"))
    assert (back.spec, back.class_counts) == (release.spec, release.class_counts)
    assert (back.config, back.privacy) == (release.config, release.privacy)
    for ours, theirs in zip(release.arrays(20, seed=1), back.arrays(20, seed=1), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_fit_takes_a_frame(place, tmp_path):
    pd = pytest.importorskip("pandas", reason="pandas is an extra: pip install dpgen_jax[pandas]")
    frame = pd.read_csv(place / "people.csv")
    budget = get("gpate", "table")[1]
    release = fitting.fit(
        "gpate", frame, schema=place / "people.yaml", preset="table", delta=DELTA,
        out=tmp_path / "run", runtime=RUNTIME, teachers=TEACHERS, batch=BATCH, steps=STEPS,
        generator=GeneratorNet(latent=3, hidden=8), discriminator=DiscriminatorNet(hidden=4))
    assert release.privacy["epsilon"] == budget.epsilon and release.class_counts is not None
    made = release.frame(30, seed=2)
    assert made.columns.tolist() == COLUMNS and sorted(frame.columns) == sorted(COLUMNS)
    assert made.shape == (30, 5)
    assert made.dtypes.astype(str).tolist() == [
        "int64", "float64", "category", "category", "category"]
    assert made["size"].cat.ordered and not made["job"].cat.ordered
    assert made["grade"].cat.categories.tolist() == GRADES
    back = frames.from_frame(made, schema.read(str(place / "people.yaml")))
    x, y = release.arrays(30, seed=2)
    np.testing.assert_array_equal(back.y_train, y)
    np.testing.assert_allclose(back.x_train, tables.encode(release.spec, x), atol=1e-5)


def test_a_release_folder_is_enough(place, run, tmp_path):
    shared = shutil.copytree(run / "release", tmp_path / "shared")
    before = runs.snapshot(shared)
    sample.command([str(shared), "--n", "3", "--seed", "1", "--out", str(tmp_path / "a.csv")])
    sample.command([str(run), "--n", "3", "--seed", "1", "--out", str(tmp_path / "b.csv")])
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    # What was computed from real records is not put among what may be shared.
    judge(place, shared, "--classifiers", "lr", "--metrics", "gen2real")
    assert (tmp_path / "evaluation/metrics.json").exists() and runs.snapshot(shared) == before
