"""python -m dpgen_jax.evaluate on images: what it writes, what it compares, what it refuses."""

import dataclasses
import json
import re
import shutil
import stat

import numpy as np
import pytest
import runs

from dpgen_jax import compare, evaluate
from dpgen_jax.core.types import UserError
from dpgen_jax.data import from_arrays
from dpgen_jax.evaluation import fidelity, networks, utility
from dpgen_jax.run import lifecycle

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_once")]

LEAF = {"mean", "std", "values"}
WORDS = ["--classifiers", "mlp", "gaussian_nb", "--seeds", "2", "--samples", "90", "--fast"]


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Short schedules: what is learned is tested where learning is."""
    with pytest.MonkeyPatch.context() as patched:
        short = networks.Schedule("short", epochs=1, min_steps=20, mlp_times=1, batch=32)
        patched.setitem(utility.SETTINGS, "fast", dataclasses.replace(
            utility.SETTINGS["fast"], schedule=short))
        patched.setitem(fidelity.COURSES, "fast", fidelity.Course(short))
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A finished run, and the file of its data with a held-out part."""
    root = tmp_path_factory.mktemp("place")
    x, y = runs.images()
    x_test, y_test = runs.images(seed=1)
    np.savez(root / "data.npz", x_train=x, y_train=y, x_test=x_test, y_test=y_test, classes=3)
    np.savez(root / "alone.npz", x_train=x, y_train=y, classes=3)
    np.savez(root / "wide.npz", x_train=np.pad(x, ((0, 0), (0, 0), (0, 4), (0, 0))), y_train=y,
             x_test=np.pad(x_test, ((0, 0), (0, 0), (0, 4), (0, 0))), y_test=y_test, classes=3)
    np.savez(root / "four.npz", x_train=x, y_train=y, x_test=x_test, y_test=y_test, classes=4)
    np.savez(root / "few.npz", x_train=x, y_train=y, x_test=x_test[:5], y_test=y_test[:5],
             classes=3)
    lifecycle.run(runs.request(root / "run"), from_arrays(x, y, 3), lambda line: None)
    return root


def command(place, *words, data="data.npz", source="run"):
    evaluate.command([str(place / source), "--dataset", f"npz:{place / data}", *map(str, words)])


@pytest.fixture(scope="module")
def written(place):
    before = runs.snapshot(place / "run" / "release")
    command(place, *WORDS)
    assert runs.snapshot(place / "run" / "release") == before
    return place / "run" / "evaluation"


@pytest.fixture(scope="module")
def found(written):
    return json.loads((written / "metrics.json").read_text())


def test_metrics_are_those_of_the_contract(found):
    for task in ("gen2real", "real2gen", "real2real"):
        assert found[task].keys() == {"mlp", "gaussian_nb"}
        for scores in found[task].values():
            assert scores["accuracy"].keys() >= LEAF
            assert len(scores["accuracy"]["values"]) == 2
    assert found["gen2real"]["mlp"].keys() == {
        "accuracy", "validation_accuracy", "calibrated_accuracy"}
    assert found["average"]["gen2real"]["accuracy"]["mean"] == pytest.approx(np.mean(
        [found["gen2real"][name]["accuracy"]["mean"] for name in ("mlp", "gaussian_nb")]))
    for name in ("inception_score", "fid_features", "precision", "recall", "density", "coverage"):
        assert found["fidelity"][name].keys() >= LEAF | {"floor"}
    assert "fid" not in found["fidelity"]
    assert 0 <= found["fidelity"]["judge"]["test_accuracy"] <= 1
    assert found["membership"]["allowed"]["auroc"] > 0.99  # epsilon 10
    assert "guarantee allows at most" in found["membership"]["sentence"]
    assert (found["n_samples"], found["seeds"], found["kind"]) == (90, 2, "images")
    assert found["release"]["epsilon"] == 10


def test_it_says_that_it_was_fast(found, written):
    assert found["setting"]["name"] == "fast" and "laptop" in found["setting"]["text"]
    assert "laptop" in (written / "report.html").read_text()


def test_every_number_from_real_records_is_named(found):
    named = set(found["not_covered_by_epsilon"])
    for task in ("gen2real", "real2gen", "real2real"):
        assert f"{task}.mlp.accuracy" in named
    assert "gen2real.mlp.validation_accuracy" not in named  # of synthetic images alone
    assert {"fidelity.fid_features", "fidelity.judge", "gen2real.mlp.calibrated_accuracy",
            "membership.attacks.density.auroc"} <= named
    assert {"n_test", "membership.sentence", "membership.n_members"} <= named
    assert "n_samples" not in named and "membership.allowed" not in named


def test_the_report_is_one_file_that_asks_for_nothing(written):
    text = (written / "report.html").read_text()
    assert len(text) < 5e6
    sources = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert sources and all(s.startswith(("data:", "#")) for s in sources)
    assert "Content-Security-Policy" in text and "<script" not in text


def test_real_records_lie_in_a_folder_of_their_own(written):
    page = written / "private" / "neighbours.html"
    assert "PRIVATE" in page.read_text()
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert stat.S_IMODE(page.parent.stat().st_mode) == 0o700
    pages = [path.name for path in (written.parent / "release").glob("*.html")]
    assert pages == ["statement.html"]


def test_a_second_evaluation_replaces_the_first_and_is_equal(place, found):
    command(place, *WORDS, "--out", place / "again")
    again = json.loads((place / "again" / "metrics.json").read_text())
    varying = ("date", "seconds")
    assert {k: v for k, v in again.items() if k not in varying} == {
        k: v for k, v in found.items() if k not in varying}


def test_only_what_is_requested_is_measured(place, tmp_path, capsys):
    command(place, *WORDS, "--metrics", "gen2real", "--out", tmp_path / "out")
    found = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert not {"real2gen", "real2real", "fidelity", "membership"} & found.keys()
    assert "gen2real 0." in capsys.readouterr().out


def test_runs_are_compared_on_one_page(place, written, tmp_path):
    command(place, *WORDS, "--metrics", "gen2real", "--out", tmp_path / "other")
    compare.command([str(place / "run"), str(tmp_path / "other"), "--out", str(tmp_path / "pages")])
    text = (tmp_path / "pages" / "comparison.html").read_text()
    assert ">other<" in text and text.count("data:image/png") >= 2


def test_a_run_that_was_not_evaluated_cannot_be_compared(place, written, tmp_path):
    with pytest.raises(UserError, match="has no evaluation/metrics.json; if it is a run, first"):
        compare.command([str(place / "run"), str(tmp_path)])


def test_the_old_spelling_of_a_comparison_names_the_new_one(place, written, tmp_path, capsys):
    with pytest.raises(UserError, match="has no evaluation/metrics.json"):
        evaluate.command(["--out", "page", "--compare", str(place / "run"), str(tmp_path)])
    assert "`evaluate --compare` is now `python -m dpgen_jax.compare`" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "data", "message"), [
    ([], "alone.npz", "no held-out part"),
    ([], "wide.npz", "images of 8 x 12 x 1 in 3 classes, the release makes images of 8 x 8 x 1"),
    ([], "four.npz", "in 4 classes, the release makes .* in 3 classes"),
    (["--samples", "2"], "data.npz", "2 samples for 3 classes; pass --samples"),
    (["--seeds", "0"], "data.npz", "--seeds is 0"),
    (["--classifiers", "svm"], "data.npz", "unknown classifier 'svm'; known: cnn, mlp"),
    (["--inception-weights", "data.npz"], "data.npz", "data.npz"),
    (["--metrics", "fid"], "data.npz", "fid"),
    ([], "few.npz", "5 held-out records, and fidelity needs 6"),
    (["--out", "data.npz"], "data.npz", "--out data.npz is a file; name a folder")])
def test_bad_input_is_one_clear_line(place, tmp_path, monkeypatch, words, data, message):
    monkeypatch.chdir(place)
    with pytest.raises(UserError, match=message) as caught:
        command(place, "--fast", "--out", tmp_path / "new", *words, data=data)
    assert "\n" not in str(caught.value) and not (tmp_path / "new").exists()


@pytest.mark.parametrize("inside", [".", "evaluation/new"])
def test_nothing_is_written_into_a_release(place, inside):
    release = place / "run" / "release"
    before = runs.snapshot(release)
    with pytest.raises(UserError, match="is in a release, which is shared"):
        command(place, *WORDS, "--out", release / inside)
    assert runs.snapshot(release) == before


def test_nor_into_a_folder_that_was_exported(place, tmp_path):
    """Pages of real records were written beside the program that is handed over."""
    (tmp_path / "alone").mkdir()
    shutil.copy(place / "run/release/privacy.json", tmp_path / "alone")
    with pytest.raises(UserError, match="is in a release, which is shared"):
        command(place, *WORDS, "--out", tmp_path / "alone/evaluation")
    assert len(list((tmp_path / "alone").iterdir())) == 1


def test_a_run_without_a_release_says_so(place, tmp_path):
    shutil.copytree(place / "run", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "release")
    with pytest.raises(UserError, match="has no release yet; finish it with train --resume"):
        command(tmp_path, source="run", data=place / "data.npz")
