"""The commands as a user meets them: files, output, exit codes, and one clear line for an error."""

import json
import re

import numpy as np
import pytest
import runs
from PIL import Image

from dpgen_jax import account, data, sample, train
from dpgen_jax.accountant import ledger as books
from dpgen_jax.data import from_arrays
from dpgen_jax.run import lifecycle

STEPS = 4


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("commands")
    runs.npz(folder / "noise.npz", *runs.images())
    return folder


@pytest.fixture(scope="module")
def trained(place):
    """The finished process of one training command; its run is `place`/run."""
    return runs.command("train", "datalens", "--dataset", "npz:noise.npz", *runs.FLAGS, "--steps",
                        STEPS, "--out", "run", cwd=place)


@pytest.fixture
def run(trained, place):
    assert trained.returncode == 0, trained.stderr
    return place / "run"


def one_line(err: str) -> str:
    """Return stderr without notes: a single line, and no traceback."""
    assert err.startswith("error: ") and err.count("\n") == 1, err
    return err


# --- train

@pytest.mark.slow
def test_training_prints_its_progress(trained):
    assert trained.returncode == 0, trained.stderr
    said = trained.stdout.splitlines()
    assert said[0].startswith("data: ") and "60 images for training" in said[0]
    assert said[1] == "method: datalens; preset images-eps10, a general one for images"
    assert said[2].startswith("promise: epsilon 10 at delta 0.001 for each record, its label "
                              "included: whatever the release shows would be at most 22,027 times")
    assert "run folder: run (share only release/ in it)" in said
    assert said[-1] == ("statement: run/release/statement.html (what is promised, in plain words)")
    assert said[-2] == "samples: run/release/samples.png"
    assert said[-3] == (f"release: run/release ({STEPS} steps; (epsilon, delta) replace-one; "
                        "epsilon 10, delta 0.001, unit record)")
    assert said[-4].startswith("spent: epsilon 9.9") and (
        f" of 10 at delta 0.001, all of it on {STEPS} training steps") in said[-4]
    form = r"{} steps, +[\d.]+(s/step|step/s), [\d:]+ elapsed, [\d:]+ left, epsilon={}"
    # The first block tells what compiling took, and nothing of what is left.
    first = rf"1/{STEPS} steps, \d+ s including compilation, epsilon=4\.\d\d\d"
    for wanted in (first, form.format(f"{STEPS}/{STEPS}", r"9\.9\d\d")):
        assert re.search(f"^{wanted}$", trained.stderr, re.M), trained.stderr
    assert trained.stderr.startswith("compiling: the first step takes between seconds")
    assert "Traceback" not in trained.stderr and "Warning" not in trained.stderr


@pytest.mark.slow
def test_the_run_folder_is_that_of_the_contract(run):
    names = {str(p.relative_to(run)) for p in run.rglob("*") if p.is_file()}
    public = {n for n in names if not n.startswith("private/")}
    assert public == {"config.json", "ledger.jsonl", "metrics.jsonl", "curves.png",
                      "release/generator.safetensors", "release/config.json",
                      "release/privacy.json", "release/README.txt",
                      "release/statement.html", "release/samples.png"}
    modes = {n: (run / n).stat().st_mode & 0o777 for n in
             ("private", "private/checkpoints", "private/identity.json", "ledger.jsonl")}
    assert modes == {"private": 0o700, "private/checkpoints": 0o700,
                     "private/identity.json": 0o600, "ledger.jsonl": 0o600}
    config = json.loads((run / "config.json").read_text())
    assert config["config"]["teachers"] == 10 and config["config"]["steps"] == STEPS
    assert {"dpgen_jax", "jax", "python"} <= set(config["versions"]) and "git" in config
    assert Image.open(run / "release/samples.png").format == "PNG"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] == STEPS and all({"step", "epsilon", "seconds"} <= set(r) for r in rows)
    assert [row["epsilon"] for row in rows] == sorted(row["epsilon"] for row in rows)


@pytest.mark.slow
def test_the_privacy_statement(run):
    privacy = json.loads((run / "release/privacy.json").read_text())
    account = books.account(books.read(run / "ledger.jsonl"))
    ((event, count),) = account.spent()
    assert privacy["events"] == [{"mechanism": event.mechanism, "sigma": event.sigma,
                                  "sensitivity": event.sensitivity, "count": count}]
    assert event.sensitivity == 2 * np.sqrt(4 * 8) and count == STEPS
    assert account.epsilon() <= privacy["epsilon"] == 10.0
    expected = {"delta": 1e-3, "relation": "replace-one", "unit": "record", "steps": STEPS,
                "method": "datalens", "preset": "images-eps10", "noise_source": "os-entropy",
                "data_dependent_epsilon": None}
    assert expected.items() <= privacy.items()
    assert "hyper-parameter tuning" in privacy["not_accounted"]
    assert privacy["accountant"] and privacy["package_version"]


TRAIN = ["datalens", "--dataset", "npz:noise.npz", *runs.FLAGS]


@pytest.mark.parametrize(("flags", "said", "privacy"), [
    pytest.param(["--seed", "-1"], "epsilon 10", {
        "noise_source": "seeded: no privacy claim", "epsilon": "inf", "budget_epsilon": 10.0},
        id="seeded", marks=pytest.mark.long),  # `test_guarantee` makes such a run
    pytest.param(["--epsilon", "inf"], "epsilon is inf: nothing bounds what a release tells", {
        "epsilon": "inf", "events": [{"mechanism": "none", "sigma": 0.0, "sensitivity": None,
                                      "count": STEPS}]}, id="no budget", marks=pytest.mark.slow)])
def test_runs_without_a_claim_say_so(place, call, tmp_path, monkeypatch, flags, said, privacy):
    monkeypatch.chdir(place)
    code, out, err = call(train, *TRAIN, "--steps", STEPS, "--out", tmp_path / "run", *flags)
    assert code == 0 and said in out, err
    statement = json.loads((tmp_path / "run/release/privacy.json").read_text())
    assert privacy.items() <= statement.items()
    code, out, _ = call(account, tmp_path / "run", "--json")
    assert code == 0 and json.loads(out)["spent"]["epsilon"] == pytest.approx(
        10.0, abs=0.02) if "budget_epsilon" in privacy else '"inf"' in out




@pytest.mark.parametrize(("module", "words"), [
    (train, ["--epsilon", "--resume", "--generator.hidden", "--checkpoint-minutes", "mnist-eps1"]),
    (account, ["--epsilon", "--json", "--top-k"]),
    (sample, ["--label", "--out", "RUN_OR_RELEASE"])])
def test_help(call, module, words):
    code, out, err = call(module, "--help-all" if module is train else "--help")
    assert code == 0 and not err
    assert all(word in out for word in words)


# --- sample

@pytest.mark.slow
def test_sample_command(run):
    done = runs.command("sample", "run", "--n", 30, "--label", 2, 0, "--seed", 5,
                        "--out", "made/x.npz", cwd=run.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("\n30 synthetic records: made/x.npz\n")
    loaded = data.load(f"npz:{run.parent / 'made/x.npz'}")
    assert loaded.x_train.shape == (30, 8, 8, 1) and loaded.spec.classes == 3
    assert np.bincount(loaded.y_train).tolist() == [15, 0, 15]


@pytest.fixture
def sampled(run):
    """The sample that the commands below write: 7 records, seed 5."""
    return lifecycle.load(run / "release").sample(7, None, 5)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["run", "run/release"])
@pytest.mark.parametrize("ending", [".npz", ".csv", ".png", ""])
def test_samples_read_back(run, sampled, call, tmp_path, source, ending):
    x, y = sampled
    out = tmp_path / f"made{ending}"
    code, said, err = call(sample, run.parent / source, "--n", 7, "--seed", 5, "--out", out)
    assert (code, err) == (0, "") and said.endswith(f"\n7 synthetic records: {out}\n")
    assert said.startswith("guarantee: (epsilon, delta) replace-one; epsilon 10, delta 0.001")
    if ending == ".npz":
        loaded = data.load(f"npz:{out}")
        np.testing.assert_array_equal(loaded.x_train, x)
        np.testing.assert_array_equal(loaded.y_train, y)
    elif ending == ".csv":
        rows = np.loadtxt(out, delimiter=",", skiprows=1, dtype=int)
        assert out.read_text().startswith("label,pixel0,pixel1,")
        np.testing.assert_array_equal(rows, np.column_stack([y, x.reshape(7, -1)]))
    elif ending == ".png":
        assert Image.open(out).format == "PNG"
    else:
        loaded = data.load(f"folder:{out}")  # whose order is that of the files' names
        np.testing.assert_array_equal(loaded.x_train, x)
        np.testing.assert_array_equal(loaded.y_train, y)


@pytest.mark.slow
def test_labels_condition_the_images(run):
    release = lifecycle.load(run)
    same = [release.sample(1, label, seed=1)[0] for label in (0, 1)]
    assert not np.array_equal(*same)
    alone, _ = release.sample(2, [1, 2], seed=9)
    more, y = release.sample(6, [1, 2], seed=9)
    np.testing.assert_array_equal(alone, more[:2])
    assert y.tolist() == [1, 2, 1, 2, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize(("flags", "message"), [
    (["--n", "0"], "cannot sample 0"),
    (["--label", "3"], "label '3' is not one of 0, 1, 2"),
    (["--label", "-1"], "label '-1' is not one of"),
    (["--out", "x.tiff"], "must be one of .npz, .csv, .png"),
    (["--out", "noise.npz"], "noise.npz exists"), (["--out", "noise.npz/x.npz"], "noise.npz")])
def test_bad_sampling_is_one_clear_line(run, call, monkeypatch, flags, message):
    monkeypatch.chdir(run.parent)
    before = runs.snapshot(run.parent)
    code, _, err = call(sample, "run", "--out", "new.npz", *flags)
    assert code == 2 and message in one_line(err)
    assert runs.snapshot(run.parent) == before


def test_sampling_from_nothing(call, tmp_path):
    code, _, err = call(sample, tmp_path, "--out", tmp_path / "x.npz")
    assert code == 2 and "neither a run nor a release" in one_line(err)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "act", "message"), [
    ("generator.safetensors", lambda b: b[:-1] + bytes([b[-1] ^ 1]), "is damaged"),
    ("generator.safetensors", lambda b: None, "cannot read"),
    ("config.json", lambda b: b[:50], "config.json is damaged"),
    ("config.json", lambda b: b"{}", "config.json is damaged"),
    ("privacy.json", lambda b: None, "cannot read")])
def test_a_damaged_release_is_named(run, call, tmp_path, name, act, message):
    for path in (run / "release").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    changed = act((tmp_path / name).read_bytes())
    (tmp_path / name).unlink()
    if changed is not None:
        (tmp_path / name).write_bytes(changed)
    code, _, err = call(sample, tmp_path, "--out", tmp_path / "x.npz")
    assert code == 2 and message in one_line(err) and name in err


# --- account

@pytest.mark.parametrize(("preset", "steps", "published"), [
    ("mnist-eps1", 149, 127), ("mnist-eps10", None, 137)])
def test_account_of_a_preset(call, preset, steps, published):
    code, out, err = call(account, "datalens", "--preset", preset, "--json")
    assert (code, err) == (0, "")
    printed = json.loads(out)
    assert set(printed) == {"method", "preset", "target", "proven", "as_published"}
    assert set(printed["proven"]) == {"epsilon", "steps", "sigma", "accountant"}
    assert set(printed["as_published"]) == {"epsilon", "steps", "formula"}
    assert (printed["method"], printed["preset"]) == ("datalens", preset)
    target = {"mnist-eps1": 1.0, "mnist-eps10": 10.0}[preset]
    assert printed["target"] == {"epsilon": target, "delta": 1e-5}
    assert 0.98 * target < printed["proven"]["epsilon"] <= target
    assert printed["as_published"]["steps"] == published
    assert steps in (None, printed["proven"]["steps"])
    assert printed["as_published"]["epsilon"] <= target


def test_account_of_steps(call):
    _, out, _ = call(account, "datalens", "--preset", "mnist-eps1", "--steps", 86, "--json")
    printed = json.loads(out)
    assert printed["proven"]["steps"] == printed["as_published"]["steps"] == 86
    assert printed["proven"]["epsilon"] < printed["as_published"]["epsilon"]
    assert printed["as_published"]["epsilon"] == pytest.approx(0.8081, abs=5e-5)


def test_account_in_words(call):
    code, out, err = call(account, "datalens", "--preset", "mnist-eps1")
    assert (code, err) == (0, "")
    assert re.search(r"^proven: .*steps 149, sigma 5000", out, re.M)
    assert re.search(r"^as published: .*0\.9986.*steps 127", out, re.M)


@pytest.mark.slow
def test_account_of_a_run(run, call):
    before = runs.snapshot(run)
    code, out, _ = call(account, run, "--json")
    printed = json.loads(out)
    assert code == 0 and printed["claimed"] == {"epsilon": 10.0, "delta": 1e-3}
    assert printed["spent"]["steps"] == STEPS and 9.9 < printed["spent"]["epsilon"] <= 10
    assert [event["count"] for event in printed["events"]] == [STEPS]
    assert runs.snapshot(run) == before


@pytest.mark.slow
@pytest.mark.parametrize(("words", "code", "message"), [
    (["--preset", "mnist-eps1", "--epsilon", "0"], 2, "epsilon must be above 0"),
    (["--preset", "mnist-eps1", "--epsilon", "1e-9"], 3, "does not allow one step"),
    (["--preset", "mnist-eps1", "--epsilon", "inf"], 2, "does not bound the number of steps"),
    (["--preset", "mnist"], 2, "unknown preset 'mnist'"),
    (["--epsilom", "1"], 2, "did you mean '--epsilon'"),
    (["RUN", "--preset", "x"], 2, "Unrecognized options: --preset")])
def test_bad_accounting_is_one_clear_line(run, call, words, code, message):
    words = [str(run) if word == "RUN" else word for word in words]
    got, _, err = call(account, *words)
    assert got == code and message in one_line(err)


@pytest.mark.slow
def test_a_run_in_a_notebook(run, tmp_path):
    """load, save, load: the same release."""
    release = lifecycle.load(run)
    again = lifecycle.load(release.save(tmp_path / "copy"))
    assert again.privacy == release.privacy and again.config == release.config
    np.testing.assert_array_equal(again.sample(3, seed=1)[0], release.sample(3, seed=1)[0])
    assert from_arrays(*release.sample(9), 3).spec == release.spec
