"""The measurement of convolutions goes on where it was stopped."""

import json

import pytest

from benchmarks import common, convolutions

pytestmark = pytest.mark.long


def test_a_stopped_measurement_goes_on_with_the_next_case(tmp_path):
    names = list(convolutions.CASES)
    case = {"seconds": {"product": {"median": 1.0}, "backend": {"median": 3.0}}, "ratio": 3.0}
    results = convolutions.summary({names[0]: case}, units=2)
    assert results["not_measured"] == names[1:]
    assert results["faster"] == "product" and results["ratio"] == 3.0
    path = common.write(common.record("convolutions", ["--units 2", "--repeats 3"], [0], results),
                        tmp_path / "convolutions.json")
    assert convolutions.already(path, ["--units 2", "--repeats 3"]) == {names[0]: case}
    assert convolutions.already(path, ["--units 2", "--repeats 7"]) == {}
    assert convolutions.already(tmp_path / "none.json", []) == {}
    whole = json.loads(path.read_text())
    whole["results"]["not_measured"] = []
    path.write_text(json.dumps(whole))
    assert convolutions.already(path, ["--units 2", "--repeats 3"]) == {}
