"""The benchmark of what a run does between two blocks."""

import json

import pytest

from benchmarks import between_blocks

pytestmark = pytest.mark.long


@pytest.mark.slow
def test_all_that_comes_before_a_block_is_timed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(between_blocks, "ROWS", (("gpate", "mnist-eps1-sum"),))
    out = tmp_path / "between.json"
    assert between_blocks.main(["--blocks", "2", "--out", str(out)]) == 0
    row, = json.loads(out.read_text())["results"]["rows"]
    parts = row["seconds"]
    assert {*between_blocks.AHEAD, "digest", "settle"} == {*parts}
    assert all(len(times["all"]) == 2 for times in parts.values())
    assert row["seconds_ahead"] == pytest.approx(
        sum(parts[name]["median"] for name in between_blocks.AHEAD))
    assert row["rounds"] == 16 and row["bytes"] > 0
    assert "gpate mnist-eps1-sum: " in capsys.readouterr().out
