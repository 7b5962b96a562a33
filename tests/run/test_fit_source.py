"""`fit` and `resume` on files, folders and frames: the same request as the command's, read once."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from prepared import prepared
from test_class_purchase import folders
from test_fit_frame import frame, without_ids

import dpgen_jax as dg
from dpgen_jax import train
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.core import files
from dpgen_jax.core.run_folder import read_json
from dpgen_jax.core.types import UserError
from dpgen_jax.data.table import parsing, schema
from dpgen_jax.run import lifecycle, missing, undeclared

OPTIONS = {"epsilon": 10.0, "delta": 1e-5, "verbose": False}
WORDS = ["--epsilon=10", "--delta=1e-5"]
SETTINGS = {"generator_steps": 20, "features": 50, "windows": (0,), "bandwidths": (0.1,),
            "batch": 10}


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """Runs end before their training; the bits of purchases come from a seed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(missing, "OsBits", lambda: SeededBits(7))
    monkeypatch.setattr(lifecycle, "run", lambda request, dataset, *_: (request, dataset))


def same_data(one, other):
    assert one.spec == other.spec and one.options == other.options
    assert without_ids(one.bought) == without_ids(other.bought)
    for name in ("x_train", "y_train", "x_test", "y_test"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_file_is_bought_and_read_as_by_the_command(begun, tmp_path, ending):
    getattr(frame(), f"to_{ending}")(tmp_path / f"cells.{ending}", index=False)
    place = f"cells.{ending}"
    request, dataset = dg.fit(place, label="late", out="one", schema_share=0.2, **OPTIONS)
    typed = prepared([f"--dataset={place}", "--label=late", "--out=two", "--schema-share=0.2",
                      *WORDS])
    same_data(dataset, typed.dataset)
    assert request.remarks[0].startswith("estimating the schema of ") and (
        typed.remarks[0].startswith("estimating the schema of "))
    assert dataclasses.replace(request, out=None, remarks=(), stated=None) == dataclasses.replace(
        typed.request, out=None, remarks=(), stated=None, monitor=request.monitor)
    assert request.stated.to_json() == typed.request.stated.to_json() | {
        "accept_uncovered": False}
    assert dataset.options == {"kind": ending, "test_fraction": 0.2} and len(dataset.y_test) == 240


def test_a_parquet_file_and_a_frame_give_the_same(begun, tmp_path):
    frame().to_parquet(tmp_path / "cells.parquet", index=False)
    _, given = dg.fit(frame(), label="late", out="one", **OPTIONS)
    _, read = dg.fit("cells.parquet", label="late", out="two", test_fraction=0.0, **OPTIONS)
    same_data(dataclasses.replace(given, options=read.options), read)
    _, again = dg.fit("cells.parquet", label="late", out="two", test_fraction=0.0, resume=True,
                      **OPTIONS)
    same_data(read, again)


SOME = {"columns": {"age": {"kind": "integer", "min": 0, "max": 120},
                    "ok": {"kind": "boolean", "categories": ["False", "True"]}}}


def test_a_frame_is_bought_what_its_schema_leaves_out_as_a_file_is(begun, tmp_path):
    frame().to_csv(tmp_path / "cells.csv", index=False)
    (tmp_path / "some.yaml").write_text(
        "columns:\n  age: {kind: integer, min: 0, max: 120}\n"
        "  ok: {kind: boolean, categories: ['False', 'True']}\n")
    request, given = dg.fit(frame(), label="late", schema=SOME, out="one", **OPTIONS)
    _, read = dg.fit("cells.csv", label="late", schema="some.yaml", out="two", test_fraction=0.0,
                     **OPTIONS)
    same_data(dataclasses.replace(given, options=read.options), read)
    assert schema.document("one/schema.yaml")["columns"]["age"] == {
        "kind": "integer", "min": "0", "max": "120"}
    assert request.stated.to_json()["data"]["schema"]["columns"]["age"]["max"] == "120"


def test_the_cells_that_were_read_for_a_purchase_are_trained_on(begun, tmp_path, monkeypatch):
    frame().to_csv(tmp_path / "cells.csv", index=False)
    frame(1).to_csv(tmp_path / "test.csv", index=False)
    opened, blocks = [], parsing.csv_blocks
    monkeypatch.setattr(parsing, "csv_blocks", lambda path, *more, **options: opened.append(
        path.name) or blocks(path, *more, **options))
    dg.fit("cells.csv", label="late", test_csv="test.csv", out="run", **OPTIONS)
    assert sorted(opened) == ["cells.csv", "test.csv"]


def test_large_files_are_encoded_in_blocks(begun, tmp_path, monkeypatch):
    frame().to_csv(tmp_path / "cells.csv", index=False)
    _, whole = dg.fit("cells.csv", label="late", out="one", **OPTIONS)
    monkeypatch.setattr(parsing, "BLOCK_ROWS", 7)
    _, parts = dg.fit("cells.csv", label="late", out="two", **OPTIONS)
    same_data(whole, parts)


def test_an_image_folder_is_bought_as_by_the_command(begun, tmp_path):
    words = folders(tmp_path / "scans", ["a", "b", "c"])
    request, dataset = dg.fit(tmp_path / "scans", method="dpmerf", out="one", epsilon=20.0,
                              delta=1e-5, test_fraction=0.1, channels=1, verbose=False)
    typed = prepared(["dpmerf", *words, "--channels=1"])
    same_data(dataset, typed.dataset)
    assert request.remarks[1] == typed.remarks[1].replace("--class-names", "class_names")
    assert dataset.spec.class_names == ("a", "b", "c")


WHOLE = {"columns": {name: {"kind": "categorical", "categories": ["a", "b"]} for name in frame()}}


@pytest.mark.parametrize("resumed", [
    lambda **stated: dg.resume("run", frame(), verbose=False, **stated),
    lambda **stated: dg.fit(frame(), out="run", resume=True, **OPTIONS | stated)])
def test_a_schema_that_was_bought_for_one_label_is_not_read_for_another(begun, resumed):
    dg.fit(frame(), label="late", out="run", **OPTIONS)
    assert resumed(label="late")[1].spec == resumed()[1].spec
    assert read_json(Path("run/config.json"))["method"] == "marginals"
    with pytest.raises(UserError, match=r"in Python: resume it there with dpgen_jax.resume\('run'"):
        train.command(["--resume", "run"])
    with pytest.raises(UserError, match="label=ok: .*schema.yaml has the label late"):
        resumed(label="ok")


@pytest.mark.parametrize(("data", "options", "text"), [
    ("cells.cvs", {}, "there is no file or folder 'cells.cvs' here, did you mean 'cells.csv'"),
    ("mixtur", {}, "unknown data set 'mixtur'"),
    ("cells.csv", {"y": [1]}, "a file or folder is given without y"),
    ("cells.csv", {"image_size": 8}, "image_size does not apply to csv"),
    ("cells.csv", {"windowz": 8}, "unknown field 'windowz' of marginals"),
    ("cells.csv", {"schema": WHOLE}, "declares every column: write it to a YAML file"),
    (frame(), {"test_fraction": 0.2}, "test_fraction does not apply to a DataFrame"),
    ("cells.csv", {"unit": "code", "rows_per_unit": 2}, "not all rows of a unit")])
def test_what_does_not_fit_is_refused_before_anything_is_spent(begun, tmp_path, data, options,
                                                               text):
    frame().to_csv(tmp_path / "cells.csv", index=False)
    with pytest.raises(UserError, match=text):
        dg.fit(data, out="run", **OPTIONS | options)
    assert not (tmp_path / "run").exists()


def test_the_earlier_form_goes_on_with_a_warning(begun):
    with pytest.warns(DeprecationWarning, match=r"earlier form of fit\(data, method='dpmerf'\)"):
        request, _ = dg.fit("dpmerf", frame(), label="late", out="run", **OPTIONS)
    assert request.method == "dpmerf"


def interrupted(monkeypatch, act):
    with monkeypatch.context() as patched:
        patched.setattr(lifecycle, "run", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            act()


@pytest.mark.slow
def test_a_run_of_python_goes_on_by_its_folder(tmp_path, monkeypatch):
    """A frame is given again, a file is read again; by the command too."""
    monkeypatch.chdir(tmp_path)
    frame().to_csv(tmp_path / "cells.csv", index=False)
    options = OPTIONS | SETTINGS | {"label": "late", "method": "dpmerf"}
    for out, data, again in (("one", frame(), frame()), ("two", "cells.csv", None)):
        interrupted(monkeypatch, lambda: dg.fit(data, out=out, **options))  # noqa: B023
        before = (tmp_path / out / "ledger.jsonl").read_bytes()
        wrong = frame() if again is None else None
        with pytest.raises(UserError, match="leave the data out|give them again"):
            dg.resume(out, wrong)
        release = dg.resume(out, again, runtime=dg.Runtime(devices=1), verbose=False)
        assert (tmp_path / out / "ledger.jsonl").read_bytes().startswith(before)
        assert release.privacy["epsilon"] <= 10
        assert read_json(tmp_path / out / "config.json")["request"]["settings"]["features"] == 50
        finished = dg.resume(out, again, verbose=False)
        assert finished.privacy == release.privacy
    train.command(["--resume", "two"])
    with pytest.raises(UserError, match="epsilon was 10.0, now 11.0"):
        dg.resume("two", epsilon=11.0, verbose=False)


def test_a_run_without_a_request_says_so(tmp_path):
    with pytest.raises(UserError, match="no run to resume in"):
        dg.resume(tmp_path)
    (tmp_path / "config.json").write_bytes(files.json_bytes({"typed": ["mixture"]}))
    with pytest.raises(UserError, match="does not record how it was started"):
        dg.resume(tmp_path)


def test_a_run_says_how_its_data_were_read_with_what_it_bought(begun, tmp_path):
    frame().to_csv(tmp_path / "cells.csv", index=False)
    request, _ = dg.fit("cells.csv", label="late", out="run", **OPTIONS)
    stated = request.stated.to_json()
    assert stated["data"] == {"label": "late"} and stated["source"] == f"csv:{tmp_path}/cells.csv"
    waiting = undeclared.with_answer(stated["data"], tmp_path / "run")
    config = read_json(tmp_path / "run/config.json")
    (tmp_path / "run/config.json").write_bytes(files.json_bytes(config | {"spec": {}}))
    place = str(tmp_path / "run/schema.yaml")
    assert waiting == {"label": "late"}
    assert undeclared.with_answer(stated["data"], tmp_path / "run") == {"schema": place}
    whole = tmp_path / "whole.yaml"
    whole.write_bytes((tmp_path / "run/schema.yaml").read_bytes())
    assert undeclared.with_answer({"schema": str(whole)}, tmp_path / "run") == {
        "schema": str(whole)}
    (tmp_path / "run/schema.yaml").rename(tmp_path / "elsewhere.yaml")
    named = {"class_names": "a,b"}
    assert undeclared.with_answer(named, tmp_path / "run") == named
