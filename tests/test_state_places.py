"""The benchmark of where the state of units lies, at a size of seconds."""

import json

import pytest

from benchmarks import common, state_places

pytestmark = pytest.mark.long


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
