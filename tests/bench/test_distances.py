"""The tables of how far the systems on images are from what is published."""

import pytest

from benchmarks import common, results_page, systems

pytestmark = pytest.mark.long


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_difference_is_ours_less_the_best_of_its_column(monkeypatch):
    row = {"method": "mixture", "dataset": "mnist", "epsilon": 10.0,
           "gen2real": {"cnn": {"accuracy": {"mean": 0.9}}}}
    monkeypatch.setattr(results_page, "system_rows", lambda full, relation: [row] if (
        full and relation == "zero-out") else [])
    monkeypatch.setattr(results_page, "PUBLISHED", {"a": (0.5, 0.8, 0.1, 0.1),
                                                 "b": (0.6, 0.7, 0.2, 0.3)})
    _, _, best, aims, full, *others = results_page.distance_table().splitlines()
    assert cells(best) == ["best published", "0.600", "0.800", "0.200", "0.300"]
    assert cells(aims)[1:] == [f"{aim:.3f}" for aim in results_page.AIMS]
    assert cells(full) == ["full, zero-out", "", "0.900 (+0.100)", "", ""]
    assert [cells(line)[1:] for line in others] == [[""] * 4] * 3


def test_the_share_that_is_lost_within_the_released_directions(monkeypatch):
    scores = {"mixture": 0.5, "directions": 0.6, "frequencies": 0.8, "records": 0.9}
    rows = [{"accuracy": scores}, {"accuracy": scores | {"directions": 0.7}}]
    monkeypatch.setattr(results_page, "results", lambda stem: {"headroom": {"rows": rows}}[stem])
    assert results_page.lost_within() == "25% to 50%"


def test_the_table_of_the_papers_systems_has_their_own_rows():
    lines = {cells(line)[0]: cells(line)[1:] for line in
             results_page.own_papers_table().splitlines()}
    images = common.results("gswgan-mnist-50000-mnist-eps10-long")["evaluation"]
    ours = max(row["gen2real"]["cnn"]["accuracy"]["mean"] for row in (
        images, systems.system_row("gswgan", "mnist", 10.0)))
    assert lines["GS-WGAN"][1] == f"{ours:.3f} ({ours - 0.80:+.3f})"  # Table 1 of the paper
    assert "(" not in lines["GS-WGAN"][0]  # its paper prints none for epsilon 1
    short = systems.system_row("dpac", "mnist", 1.0)
    assert lines["DP-GAN-DPAC"][0].endswith("\\*") == (short["steps"] < short["preset_steps"])
