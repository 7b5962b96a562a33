"""Commands of a person who has read the README alone: methods and presets that nobody named, bare
paths, and runs that know what they were trained on."""

import dataclasses
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import runs
from PIL import Image
from prepared import prepared

from benchmarks.tables.cells import CLASSIFIERS
from dpgen_jax import data, evaluate, federate, methods, presets, train
from dpgen_jax.cli import train_flags
from dpgen_jax.cli.train_flags import Train
from dpgen_jax.core.config import DataOptions
from dpgen_jax.core.request import Request
from dpgen_jax.core.run_folder import read_json, write_json
from dpgen_jax.core.types import UserError
from dpgen_jax.methods import about
from dpgen_jax.presets import choice as short_help
from dpgen_jax.run import lifecycle, planning

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
BEST = {kind: short_help.method_for(kind)[0] for kind in short_help.BEST}


def table(path, n=200):
    """A CSV file of two columns and its schema."""
    rng = np.random.default_rng(0)
    rows = [f"{a:.3f},{'yes' if a > 0.7 else 'no'}" for a in rng.uniform(size=n)]
    path.write_text("\n".join(["a,b", *rows]) + "\n")
    path.with_suffix(".yaml").write_text(
        "label: b\ncolumns:\n  a: {kind: continuous, min: 0, max: 1}\n"
        "  b: {kind: categorical, categories: [no, yes]}\n")


def pictures(root, names=("benign", "malignant")):
    for label, name in enumerate(names):
        (root / name).mkdir(parents=True)
        for i in range(4):
            Image.fromarray(np.full((8, 8), 90 * label + i, np.uint8)).save(
                root / name / f"{label}{i}.png")


def test_a_bare_path_is_the_data_set_that_lies_there(tmp_path):
    table(tmp_path / "people.csv")
    pictures(tmp_path / "scans")
    pictures(tmp_path / "parts" / "train")
    runs.npz(tmp_path / "a.npz", *runs.images())
    (tmp_path / "empty").mkdir()
    kinds = {name: data.kind_of(str(tmp_path / name))
             for name in ("people.csv", "scans", "parts", "a.npz", "nothing")}
    assert kinds == {"people.csv": "csv", "scans": "folder", "parts": "folder", "a.npz": "npz",
                     "nothing": ""}
    assert data.kind_of("mnist") == "idx"
    for name in ("empty", "people.yaml"):
        with pytest.raises(UserError, match=f"{name} is not a data set that can be read; expected"):
            data.kind_of(str(tmp_path / name))


def test_what_a_run_was_started_with_is_kept_and_can_be_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "people.csv")
    words = ["dpmerf", "--dataset=csv:people.csv", "--schema", "people.yaml", "--out", "run",
             "--epsilon", "1", "--seed", "-3", "--devices", "1", "--generator.channels=8"]
    stated = train_flags.call(words).request
    kept = stated.to_json()
    assert kept == {
        "version": 1, "method": "dpmerf", "source": f"csv:{tmp_path / 'people.csv'}",
        "data": {"schema": str(tmp_path / "people.yaml")}, "epsilon": 1.0, "seed": -3,
        "runtime": {"devices": 1}, "settings": {"generator": {"channels": 8}}}
    (tmp_path / "run").mkdir()
    write_json(tmp_path / "run/config.json", {"request": kept})
    now = train_flags.call(["--resume", "run", "--devices=2", "--generator.warp=0.5"]).request
    assert now == Request.from_json(kept, "").changed(
        runtime={"devices": 2}, settings={"generator": {"warp": 0.5}}, out=Path("run"), resume=True)
    assert now.settings == {"generator": {"channels": 8, "warp": 0.5}}
    again = train_flags.call(["gpate", "--resume", "--out", "x"]).request
    assert (again.method, again.resume, again.out) == ("gpate", True, Path("x"))
    with pytest.raises(UserError, match="no run to resume in none"):
        train_flags.call(["--resume", "none"])
    write_json(tmp_path / "run/config.json", {"request": kept | {"version": 2}})
    with pytest.raises(UserError, match="is of version 2, and this version of dpgen_jax reads 1"):
        train_flags.call(["--resume", "run"])


def test_the_words_that_an_earlier_version_kept_are_a_request(tmp_path):
    write_json(tmp_path / "config.json", {"typed": [
        "pategan", "--dataset=csv:people.csv", "--label", "b", "--steps", "None", "--seed", "-3",
        "--frequencies=3", "--generator.channels=8", "--no-progress"]})
    assert train_flags.call(["--resume", str(tmp_path), "--epsilon=2"]).request == Request(
        "pategan", source="csv:people.csv", data={"label": "b"}, seed=-3, epsilon=2.0,
        settings={"steps": None, "generator": {"channels": 8}}, monitor={"progress": False},
        out=tmp_path, resume=True)


QUICK = ["--generator-steps=20", "--features=50", "--windows=0", "--bandwidths=0.1", "--batch=10"]


@pytest.mark.slow
def test_a_run_on_data_that_nobody_named_is_evaluated(tmp_path, monkeypatch):
    """As the README's first two commands, which name no data set."""
    monkeypatch.chdir(tmp_path)
    train.command(["dpmerf", "--out=run", *QUICK, "--batch=20"])
    assert read_json(Path("run/config.json"))["request"]["source"] == "glyphs"
    evaluate.command(["run", "--fast", "--metrics=gen2real", "--samples=60", "--seeds=1",
                      "--classifiers=gaussian_nb"])
    assert read_json(Path("run/evaluation/metrics.json"))["n_test"] > 0


@pytest.mark.slow
def test_a_table_from_a_bare_path_to_its_evaluation_as_printed(tmp_path, monkeypatch, capsys):
    """The lines that a run prints are typed as they stand, from another folder."""
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "people.csv")
    train.command(["dpmerf", "--dataset", "people.csv", "--schema", "people.yaml", "--epsilon", "1",
                   "--out", str(tmp_path / "run"), *QUICK])
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("data: people (csv): 160 rows for training, 40 held out for tests; ")
    assert said[1:3] == [
        "method: dpmerf; preset table-few, a general one for tables",
        "promise: epsilon 1 at delta 1e-05 for each record, its label included: whatever the "
        "release shows would be at most 2.72 times as likely (plus delta) if one record had been "
        "different (replace-one)"]
    assert len(said) <= 12 and not any("units" in line or "memory" in line for line in said)
    assert sum("all classes in equal shares" in line for line in said) == 1
    assert sum(line.startswith("spent: epsilon ") for line in said) == 1
    statement = read_json(tmp_path / "run/release/privacy.json")
    assert statement["records"] == 160 and statement["epsilon"] == 1.0
    printed = next(line for line in said if line.startswith("evaluate it: "))
    words = shlex.split(printed.removeprefix("evaluate it: ").partition(" (")[0])
    assert words[:3] == ["python", "-m", "dpgen_jax.evaluate"]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    evaluate.command([*words[3:], "--fast", "--samples=60", "--seeds=1", "--classifiers=lr"])
    assert read_json(tmp_path / "run/evaluation/metrics.json")["n_test"] == 40
    capsys.readouterr()
    train.command(["--resume", str(tmp_path / "run"), "--verbose"])
    said = capsys.readouterr().out
    assert "held out for tests: a share of 0.2" in said and "memory: " in said and "sigma" in said
    again = read_json(tmp_path / "run/release/privacy.json")
    assert again == statement
    with pytest.raises(UserError, match=r"resume it with python -m dpgen_jax.train --resume .*run"):
        train.command(["dpmerf", "--dataset", str(tmp_path / "people.csv"), "--schema",
                       str(tmp_path / "people.yaml"), "--out", str(tmp_path / "run"), *QUICK])


@pytest.mark.parametrize("kind", ["table", "images"])
def test_without_a_method_the_best_is_chosen_before_anything_is_spent(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "people.csv")
    rng = np.random.default_rng(0)
    runs.npz(tmp_path / "a.npz", rng.integers(0, 255, (500, 8, 8, 1), np.uint8),
             rng.integers(0, 3, 500).astype(np.int32))
    words = {"table": ["--dataset=csv:people.csv", "--schema=people.yaml", "--epsilon=1"],
             "images": ["--dataset=npz:a.npz", "--epsilon=3"]}[kind]
    chosen = prepared(words)
    request = chosen.request
    assert request.method == BEST[kind]
    assert presets.all_of(request.method)[request.preset].dataset == kind
    assert request.why_method.startswith("the best here for ")
    assert f"method: {BEST[kind]}, chosen as the best" in planning.method_line(request)
    assert len(chosen.dataset.y_train) == {"table": 160, "images": 400}[kind]
    everything = prepared([*words, "--test-fraction=0"])
    assert len(everything.dataset.y_train) == {"table": 200, "images": 500}[kind]
    assert everything.dataset.x_test is None


def test_every_method_is_described_as_it_is():
    """For what data, for whom, and how long by the results files."""
    seconds = {row["method"].removesuffix("-gradients"): round(row["seconds"])
               for again in ("", "-changed", "-prototypes")
               for row in read_json(RESULTS / f"embedded-glyphs{again}.json")["results"]["rows"]}
    assert about.ABOUT.keys() == set(methods.NAMES)
    for name, line in about.ABOUT.items():
        kinds = {preset.dataset for preset in presets.all_of(name).values()}
        assert line.data == ", ".join(
            word for kind, word in (("images", "images"), ("table", "tables")) if kind in kinds)
        assert line.seconds == seconds.get(name), name
        config = presets.get(name)[1].config
        assert line.unit == ("nobody" if name == "dcgan" else
                             "client" if config.units_are_clients else "record")


def test_the_short_help_has_the_methods_and_what_everyone_needs(capsys):
    for words, also in ((["--help"], "METHOD"), (["gpate", "-h"], "credit-sample")):
        with pytest.raises(SystemExit) as stop:
            train.command(words)
        out = capsys.readouterr().out
        assert not stop.value.code and also in out and "--help-all" in out
        assert all(line in out for line in about.lines()) and len(out.splitlines()) <= 46
    flags = {field.name for kind in (Train, DataOptions)
             for field in dataclasses.fields(kind)}
    assert {flag.split()[0][2:].replace("-", "_") for flag in train_flags.FLAGS} <= flags


@pytest.mark.parametrize("method", train_flags.ON_TABLES)
def test_the_help_compares_methods_on_tables_with_figures_of_the_results_files(method):
    text = " ".join(train_flags.help_text("train", method).split())
    files = {name: {(cell["table"], cell["epsilon"]): cell["scores"] for path in sorted(
        (RESULTS / "tables").glob("*-eps*.json"))
        if (cell := read_json(path)["results"])["method"] == name and cell["scores"]}
        for name in (method, "marginals")}
    for (table, epsilon), scores in files[method].items():
        mean, best = (None if one is None else np.mean([one[name]["mean"] for name in CLASSIFIERS])
                      for one in (scores, files["marginals"].get((table, epsilon))))
        beside = "" if method == "marginals" or best is None else f" ({best:.3f})"
        assert f"{table} {mean:.3f}{beside}" in text and f"epsilon {epsilon:g}: " in text
    assert files[method] or "no result here; for them there is marginals" in text


def test_a_rehearsal_says_the_plan_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "people.csv")
    before = runs.snapshot(tmp_path)
    train.command(["gpate", "--dataset", "people.csv", "--schema", "people.yaml", "--epsilon=1",
                   "--out=run", "--dry-run"])
    plan, bought, memory, *like, last = capsys.readouterr().out.splitlines()[-6:]
    assert len(like) == lifecycle.SHOWN
    assert "160 records, 160 units" in plan and "sigma" in plan
    assert bought == "spent on other things than the training: class counts for epsilon 0.01"
    assert last == "nothing was written or spent; to train, leave out --dry-run"
    assert memory.startswith("memory: ") and " for records" in memory
    row = next(row for row in short_help.reached() if f"{row['file']})" in like[0])
    stored = read_json(RESULTS / row["file"])["results"]
    scores = [stored["scores"][name]["mean"] for name in
              ("logistic_regression", "random_forest", "gradient_boosting")]
    assert stored["method"] == "gpate" and f"reached {np.mean(scores):.3f} (" in like[0]
    assert runs.snapshot(tmp_path) == before and not (tmp_path / "run").exists()
    with pytest.raises(UserError, match="needs the number of its clients.*nothing was written"):
        federate.command([])


@pytest.mark.parametrize("epsilon, count, word", [
    (1.0, 60_000, "similar"), (0.01, 60_000, "other"), (1.0, 24, "other"),
    (3.0, 10_000, "similar")])
def test_results_far_from_the_users_are_not_called_similar(epsilon, count, word):
    lines = lifecycle.like_data("mixture", "images", epsilon, count)
    assert all(line.startswith(f"on {word} data: ") for line in lines)
    assert "(60,000 images of 28 x 28 x 1)" in lines[0]


def test_the_demonstration_stays(monkeypatch):
    args, _ = train_flags.parse("datalens", [])
    assert (args.preset, args.dataset, args.epsilon) == ("glyphs", "glyphs", 10.0)
    monkeypatch.setattr(sys, "argv", ["/usr/bin/dpgen"])
    from dpgen_jax.core.console import program
    assert program("train", "--resume", "my run") == "dpgen train --resume 'my run'"
