"""Benchmarks of one question each, at toy size."""


import dataclasses
import json

import numpy as np
import pytest
import small_datalens

from benchmarks import common, large_table, state_places, validation_part
from dpgen_jax import data
from dpgen_jax.data import from_arrays, load

pytestmark = pytest.mark.long


def test_the_table_has_the_columns_of_the_schema(tmp_path):
    large_table.write_table(tmp_path / "t.csv", 30, 20, 0)
    (tmp_path / "s.yaml").write_text(large_table.schema(20))
    data = load(f"csv:{tmp_path / 't.csv'}", schema=str(tmp_path / "s.yaml"))
    assert len(data.spec.all_columns) == 20 == sum(map(len, large_table.names(20))) + 1
    assert data.x_train.shape == (30, 12 + 7 * 4) and set(data.y_train.tolist()) == {0, 1}


def test_the_bytes_of_a_row_are_the_slope():
    cases = [{"rows": rows, "peak_resident_bytes": 700 + 3 * rows} for rows in (500, 100, 300)]
    assert large_table.slope(cases) == pytest.approx({"bytes_a_row": 3, "bytes_of_no_row": 700})


@pytest.mark.slow
@pytest.mark.parametrize("place", state_places.PLACES)
def test_a_process_measures_steps(tmp_path, place, monkeypatch):
    monkeypatch.setattr("dpgen_jax.run.capacity.SLAB_BYTES", 1)
    case = {"preset": "glyphs", "teachers": 3, "place": place, "folder": str(tmp_path),
            "devices": 1, "repeats": 2, "seed": 0}
    found = json.loads(json.dumps(state_places.measured(case)))
    assert len(found["seconds_per_step"]["all"]) == 2 and found["seconds_per_teacher"] > 0
    assert (found["bytes_moved_per_second"] > 0) == (found["slab"] == 1) == (place == "disk")
    assert found["devices"] == 1 and 0 < found["state_bytes"] < found["peak_resident_bytes"]
    assert not any(tmp_path.iterdir())


def test_the_record_compares_the_fastest_of_each_place(tmp_path, monkeypatch, capsys):
    seconds = iter([2.0, 6.0, 1.0, 3.0])

    def apart(module, case, env):
        return case | {"seconds_per_teacher": next(seconds), "peak_resident_bytes":
                       {"device": 100, "disk": 50}[case["place"]]}

    monkeypatch.setattr(common, "apart", apart)
    assert state_places.main(["--folder", str(tmp_path), "--out", str(tmp_path / "r.json")]) == 0
    record = json.loads((tmp_path / "r.json").read_text())
    assert [case["place"] for case in record["results"]["cases"]] == ["device", "disk"] * 2
    assert record["results"]["disk_by_device"] == {"seconds_per_teacher": 3.0,
                                                   "peak_resident_bytes": 0.5}
    assert str(tmp_path) not in (tmp_path / "r.json").read_text()
    capsys.readouterr()


def test_one_place_alone_is_compared_with_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(common, "apart", lambda module, case, env: case)
    out = tmp_path / "r.json"
    assert state_places.main(["--places", "disk", "--turns", "1", "--out", str(out)]) == 0
    results = json.loads(out.read_text())["results"]
    assert [case["place"] for case in results["cases"]] == ["disk"]
    assert "disk_by_device" not in results
    capsys.readouterr()


def test_both_parts_are_of_the_training_images_alone(tmp_path, monkeypatch, capsys):
    x, y = small_datalens.images(60)
    tested = {"x_test": np.full((9, *x.shape[1:]), 255, x.dtype), "y_test": np.zeros(9, np.int32)}
    whole = dataclasses.replace(from_arrays(x, y, 3), **tested)
    monkeypatch.setattr(data, "load", lambda name, classes: whole)
    validation_part.main(["--dataset", "any", "--share", "0.2", "--out", str(tmp_path / "v.npz")])
    assert "48 training and 12 validation records" in capsys.readouterr().out
    made = np.load(tmp_path / "v.npz")
    both = np.concatenate([made["x_train"], made["x_test"]])
    assert made["classes"] == 3
    assert sorted(map(np.ndarray.tobytes, both)) == sorted(map(np.ndarray.tobytes, whole.x_train))
