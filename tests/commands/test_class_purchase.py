"""An image folder that declares nothing: a public size, and class names that are bought."""

import numpy as np
import pytest
from PIL import Image
from prepared import prepared
from test_newcomer import QUICK

from dpgen_jax import evaluate, train
from dpgen_jax.accountant import events
from dpgen_jax.accountant import ledger as books
from dpgen_jax.audit.folder import of_folder
from dpgen_jax.core.config import DataOptions, Evaluation
from dpgen_jax.core.run_folder import read_json, write_json
from dpgen_jax.core.types import ImageSpec, UserError
from dpgen_jax.run import missing, planning, undeclared


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    """Two classes of 40 images, and one of a single image, which must not show."""
    root = tmp_path_factory.mktemp("images") / "scans"
    for name, n in (("benign", 40), ("malignant", 40), ("rare", 1)):
        (root / name).mkdir(parents=True)
        for i in range(n):
            Image.fromarray(np.full((9, 7), 200 * (name == "benign") + i, np.uint8)).save(
                root / name / f"{name[0]}{i}.png")
    return root


def chosen_by(words):
    """The choice that these flags lead to."""
    return prepared(["dpmerf", *words])


def test_the_classes_of_a_folder_are_bought_and_the_rest_is_said(scans, tmp_path):
    chosen = chosen_by(["--dataset", str(scans), "--epsilon=20", "--test-fraction=0",
                        "--out", str(tmp_path / "run")])
    data = chosen.dataset
    assert (data.spec, data.spec.class_names) == (ImageSpec(32, 32, 3, 2), ("benign", "malignant"))
    assert not data.uncovered and np.bincount(data.y_train + 1).tolist() == [1, 40, 40]
    (row,) = data.bought
    assert (row["epsilon"], row["count"]) == (2.0, 1) and row["delta"] == pytest.approx(1e-6)
    assert [line.partition(",")[0].partition(":")[0] for line in chosen.remarks] == [
        "images are read with the defaults --channels 3 --image-size 32", "class names"]
    assert "bought for epsilon 2 at delta 1e-06" in chosen.remarks[1]
    held = books.account(books.read(tmp_path / "run/ledger.jsonl"))
    assert [{"records": 81, **event} for event in events.to_json(held.spent())] == [row]
    assert not held.meaning
    assert undeclared.stored(tmp_path / "run").class_names == "benign,malignant,*"
    assert chosen.request.stated.data["channels"] == 3
    assert data.notes[0] == "the class names are declared or bought; none is read off the folders"


def folders(root, names):
    """Flags for a folder of 60 small images for each name."""
    for name in names:
        (root / name).mkdir(parents=True)
        for i in range(60):
            Image.fromarray(np.full((9, 7), i, np.uint8)).save(root / name / f"{i}.png")
    return ["--dataset", str(root), "--epsilon=20", "--delta=1e-5", "--test-fraction=0.1",
            f"--out={root}-run"]


def test_names_with_commas_and_others_that_no_flag_can_hold(tmp_path):
    words = folders(tmp_path / "scans", ["a, b", " c", "d"])
    chosen = chosen_by(words)
    assert chosen.dataset.spec.class_names == ("a, b", "d")
    assert planning.bought_from(chosen.dataset) == {"records": 180, "held_out": 18}
    assert (tmp_path / "scans-run/class_names.txt").read_text() == "a, b\nd\n*\n"
    assert chosen_by([*words, "--resume"]).dataset.spec == chosen.dataset.spec


def test_one_class_goes_on_and_of_none_nothing_is_paid_twice(tmp_path, monkeypatch):
    assert chosen_by(folders(tmp_path / "one", ["a"])).dataset.spec.classes == 1
    words, drawn = folders(tmp_path / "scans", ["a", "b", "c"]), []
    monkeypatch.setattr(missing.single_releases, "categories",
                        lambda *_: drawn.append(1) or ())
    for flags in ([], ["--resume"]):
        with pytest.raises(UserError, match="its name to stand out.*is not bought again.*--resume"
                                            ".*--class-names A,B"):
            chosen_by([*words, *flags])
    data = chosen_by([*words, "--resume", "--class-names=a,b,c"]).dataset
    assert (data.spec.class_names, len(drawn), len(data.bought)) == (
        ("a", "b", "c"), 1, 1)


def test_an_image_that_cannot_be_used_is_named_once_with_what_was_bought(tmp_path):
    words = folders(tmp_path / "scans", ["a", "b", "c"])
    (tmp_path / "scans/a/bad.png").write_bytes(b"")
    with pytest.raises(UserError, match="the purchase is kept in .*--resume") as caught:
        train.command(["dpmerf", *words])
    assert str(caught.value).count("cannot be read as an image") == 1


def test_what_a_run_refuses_is_refused_before_names_are_bought(scans, tmp_path, monkeypatch):
    monkeypatch.setattr(missing, "buy_names", lambda *args: pytest.fail("bought"))
    words = ["--dataset", str(scans), "--epsilon=20", f"--out={tmp_path / 'run'}"]
    for method, flags, message in (("dpmerf", ["--clients=3"], "need --federated"),
                                   ("marginals", ["--preset=table"], "tables"),
                                   ("gpate", ["--teachers=500"], "65 records cannot be dealt")):
        with pytest.raises(UserError, match=f"{message}.*nothing was spent"):
            train.command([method, *words, *flags])
    assert not (tmp_path / "run").exists()


def test_class_names_are_not_bought_for_nothing(scans, tmp_path, monkeypatch):
    monkeypatch.setattr(missing, "buy_names", lambda *args: pytest.fail("bought"))
    words = ["--dataset", str(scans), "--epsilon=20"]
    (tmp_path / "held").write_text("")
    for flags, message in ((["--out", str(tmp_path)], "contains other files"),
                           (["--epsilon=1"], "only for classes of about 2.. images.*nothing was"),
                           (["--delta=0.5"], "does not protect 81 records")):
        with pytest.raises(UserError, match=message):
            chosen_by([*words, *flags])
    with pytest.raises(UserError, match="rare is not a class; known: benign, malignant"):
        chosen_by([*words, "--class-names=benign,malignant"])
    for flags in (["--seed=1"], ["--accept-uncovered"], ["--epsilon=inf"]):
        read = chosen_by([*words, *flags, "--channels=1", "--image-size=8"]).dataset
        assert read.spec.classes == 3 and read.uncovered and not read.bought


def test_a_rehearsal_names_the_price_of_the_names(scans, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(missing, "buy_names", lambda *args: pytest.fail("bought"))
    train.command(["dpmerf", "--dataset", str(scans), "--epsilon=20", "--delta=1e-5", "--dry-run"])
    out = capsys.readouterr().out
    assert "class names would be bought for epsilon 2 at delta 1e-06" in out
    assert "images share it; --class-names A,B costs nothing" in out
    assert "with two classes: 1 steps, sigma " in out and " MB of memory" in out
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_bought_classes_are_charged_once(scans, tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    chosen_by(["--dataset", str(scans), "--epsilon=20", "--out", str(tmp_path / "before")])
    train.command(["dpmerf", "--dataset", str(scans), "--epsilon", "20", "--out", str(run),
                   "--image-size=8", *QUICK])
    said = capsys.readouterr()
    assert "method: dpmerf; preset images-few, " in said.out
    assert "promise: epsilon 20 at delta " in said.out
    assert said.err.count("private: earlier on these records: 1 run spent epsilon 2 of ") == 1
    monkeypatch.setattr(missing, "buy_names", lambda *args: pytest.fail("bought again"))
    statement = read_json(run / "release/privacy.json")
    assert statement["guarantee"] == "(epsilon, delta) replace-one"
    names = [event for event in statement["events"] if "categories" in event["mechanism"]]
    assert [(event["epsilon"], event["count"]) for event in names] == [(2.0, 1)]
    train.command(["--resume", str(run)])
    train.command(["dpmerf", "--dataset", str(scans), "--epsilon", "20", "--out", str(run),
                   "--image-size=8", "--resume", "--delta", str(statement["delta"]), *QUICK])
    assert read_json(run / "release/privacy.json") == statement
    again = evaluate.with_data_set(evaluate.Evaluate(Evaluation(), DataOptions(), run))
    assert (again.data.class_names, again.data.image_size) == ("benign,malignant,*", 8)
    report = of_folder(run)
    assert report.exit_code == 0 and any("bought" in f.check for f in report.findings)
    answer = read_json(run / "purchase.json")
    answer["bought"][0]["epsilon"] = 1.0
    write_json(run / "purchase.json", answer)
    report = of_folder(run)
    assert "bought" in report.closing and report.exit_code == 5
