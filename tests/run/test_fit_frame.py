"""A frame without a schema: what is bought, and that a file of the same cells gives the same."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from prepared import prepared
from test_newcomer import QUICK

import dpgen_jax as dg
from dpgen_jax.accountant import ledger as books
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.core.types import UserError
from dpgen_jax.data.table import schema
from dpgen_jax.run import fitting, missing

N = 1200


def frame(seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({
        "age": rng.integers(18, 90, N), "income": np.round(rng.lognormal(8, 1, N), 2),
        "city": rng.choice(["Bonn", "Köln"], N), "ok": rng.random(N) < 0.3,
        "code": rng.choice(["001", "002"], N), "late": rng.choice(["no", "yes"], N)})


def without_ids(value):
    """A value of JSON without the ids of runs."""
    return json.loads(re.sub(r"bought by [0-9a-f]{16}", "bought", json.dumps(value)))


@pytest.fixture
def bought(tmp_path, monkeypatch):
    """Buys the schema of a frame with bits of a seed; returns the request and the data set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(missing, "OsBits", lambda: SeededBits(7))
    monkeypatch.setattr(fitting.lifecycle, "run", lambda request, dataset, *_: (request, dataset))

    def inner(data, out="run", **options):
        return dg.fit(data, **{"label": "late", "epsilon": 10.0, "delta": 1e-5, "out": out,
                               "verbose": False} | options)
    return inner


def test_a_frame_and_a_file_of_its_cells_give_the_same(bought, tmp_path):
    request, dataset = bought(frame())
    frame().to_csv(tmp_path / "cells.csv", index=False)
    chosen = prepared(["--dataset=cells.csv", "--label=late", "--epsilon=10", "--delta=1e-5",
                       "--test-fraction=0", "--out=file"])
    documents = [without_ids(schema.document(str(tmp_path / run / "schema.yaml")))
                 for run in ("run", "file")]
    assert documents[1].pop("file") == {"errors": "replace"}
    assert documents[0] == documents[1] and set(documents[0]["columns"]) == set(frame().columns)
    assert (request.method, request.out.name) == (chosen.request.method, "run")
    assert dataset.spec == chosen.dataset.spec
    assert without_ids(dataset.bought) == without_ids(chosen.dataset.bought)
    np.testing.assert_array_equal(dataset.x_train, chosen.dataset.x_train)
    np.testing.assert_array_equal(dataset.y_train, chosen.dataset.y_train)
    lines = [[{key: line[key] for key in ("kind", "events") if key in line}
              for line in books.read(tmp_path / run / "ledger.jsonl")] for run in ("run", "file")]
    assert any(line.get("events") for line in lines[0])
    assert without_ids(lines[0]) == without_ids(lines[1])


def test_one_cell_changes_one_row_and_nothing_public(bought):
    """Whatever type pandas infers of the column of that cell."""
    _, first = bought(frame())
    for i, (column, cell) in enumerate([
            ("age", "x"), ("age", 17.5), ("age", None), ("city", None), ("ok", None),
            ("income", 1e14), ("code", "x01"), ("late", "no"), ("income", "many")]):
        changed = frame().astype({column: object})
        changed.loc[5, column] = cell
        _, second = bought(changed.infer_objects(), out=f"run{i}")
        assert second.spec == first.spec and second.notes == first.notes, column
        apart = (second.x_train != first.x_train).any(1) | (second.y_train != first.y_train)
        assert set(np.flatnonzero(apart)) <= {5}, column


@pytest.mark.parametrize(("options", "text"), [
    ({"label": "lat"}, r"label=lat: the frame has no such column, did you mean 'late'\?"),
    ({"unit": "age", "rows_per_unit": 2}, "not all rows of a unit.*nothing was"),
    ({"unit": "age"}, "needs rows_per_unit=K"),
    ({"y": np.zeros(N)}, "a DataFrame is given without y and classes"),
    ({"method": "gswgan"}, "gswgan has no preset for"),
    ({"epsilon": 1e-4}, "nothing was spent"),
    ({"schema": {}}, "schema: a schema has `columns:`")])
def test_what_does_not_fit_is_refused_before_anything_is_spent(bought, tmp_path, options, text):
    with pytest.raises(UserError, match=text):
        bought(frame(), **options)
    assert not list(tmp_path.glob("run*"))


def test_columns_that_pandas_has_lost_are_refused_before_anything_is_spent(bought, tmp_path):
    with pytest.raises(UserError, match="column x: 1152921504606846976 may be another whole"):
        bought(frame().assign(x=np.full(N, 2.0**60)))
    assert not list(tmp_path.glob("run*"))


def test_where_nothing_is_promised_the_schema_is_read(bought, tmp_path):
    _, dataset = bought(frame(), seed=3)
    assert any("read from private data" in entry.what for entry in dataset.uncovered)
    assert not dataset.bought and not (tmp_path / "run/ledger.jsonl").exists()


def test_the_method_is_named_once(bought):
    with pytest.raises(UserError, match="a method is named twice"):
        dg.fit("dpmerf", frame(), method="dpmerf")
    with pytest.raises(UserError, match="data are one argument"):
        dg.fit(frame(), frame())
    with pytest.raises(UserError, match="label is for tables, and the data are a Series"):
        dg.fit(frame()["age"], label="age")
    request, _ = bought(frame(), method="dpmerf")
    assert request.method == "dpmerf"


@pytest.mark.slow
def test_a_run_that_was_killed_after_the_purchase_goes_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"label": "late", "epsilon": 10.0, "out": "run", "method": "dpmerf"} | {
        word.removeprefix("--").partition("=")[0].replace("-", "_"): eval(
            word.partition("=")[2]) for word in QUICK}
    options |= {"windows": (0,), "bandwidths": (0.1,)}
    with monkeypatch.context() as patched:
        patched.setattr(fitting.lifecycle, "run", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            dg.fit(frame(), **options)
    before = (tmp_path / "run/ledger.jsonl").read_bytes()
    release = dg.fit(frame(), resume=True, **options)
    assert (tmp_path / "run/ledger.jsonl").read_bytes().startswith(before)
    assert release.privacy["epsilon"] <= 10
    assert release.privacy["bought_from"] == {"records": N, "held_out": 0}
    counts = [event["count"] for event in release.privacy["events"]
              if event["mechanism"].startswith("survey")]
    assert counts == [1] * 3 and list(release.sample(5).columns) == list(frame().columns)
