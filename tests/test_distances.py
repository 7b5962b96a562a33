"""The tables of how far the systems on images are from what is published."""

import numpy as np
import pytest

from benchmarks import common, nearest_mean, results_page, systems
from dpgen_jax.accountant import composition
from dpgen_jax.accountant.events import GaussianEvent
from dpgen_jax.core.types import ImageSpec
from dpgen_jax.data.base import Dataset

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


def test_headroom_is_told_by_column_and_as_a_share(monkeypatch):
    scores = {"mixture": 0.5, "directions": 0.6, "frequencies": 0.8, "records": 0.9}
    rows = [{"dataset": "mnist", "epsilon": 10.0, "accuracy": scores},
            {"dataset": "fashion", "epsilon": 1.0, "accuracy": scores | {"directions": 0.7}}]
    monkeypatch.setattr(results_page, "results", lambda stem: {"headroom": {"rows": rows}}[stem])
    lines = [cells(line) for line in results_page.headroom_table().splitlines()[2:]]
    assert [line[2] for line in lines] == ["0.500", "0.600", "0.800", "0.900"]
    assert lines[1][1:] == ["", "0.600", "0.700", ""]
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


def test_the_noise_of_the_class_means_spends_the_budget():
    event = GaussianEvent(nearest_mean.sigma_of(1.0), 2)
    assert 0.99 < composition.epsilon_of(((event, 1),), nearest_mean.DELTA) <= 1


def test_a_replaced_record_moves_the_sums_by_no_more_than_the_noise_is_made_for():
    rng, norm = np.random.default_rng(0), 2.0
    x, y = rng.integers(0, 256, (12, 4, 4, 1), dtype=np.uint8), np.arange(12) % 2
    halves = np.zeros((2, 4, 4, 1), np.uint8)
    halves[0, :2], halves[1, 2:] = 255, 255
    released = []
    for image in (np.full((4, 4, 1), 255), np.zeros((4, 4, 1)), *halves):
        for label in (0, 1):
            x[5], y[5] = image, label
            released.append(nearest_mean.sums(x, y, 2, norm))
    moved = max(float(((a - b)**2).sum()) for a in released for b in released)
    assert moved == pytest.approx(2 * norm**2, rel=1e-5)


def test_the_means_tell_the_classes_apart_and_noise_hides_them():
    y = np.arange(40, dtype=np.int32) % 2
    x = np.zeros((40, 4, 4, 1), np.uint8)
    x[y == 0, :2], x[y == 1, 2:] = 255, 255
    made = Dataset("halves", ImageSpec(4, 4, 1, 2), x, y, x, y)
    assert nearest_mean.accuracy(made, 2.0, 0.0, 0) == 1.0
    assert min(nearest_mean.accuracy(made, 2.0, 1e6, seed) for seed in range(20)) < 1.0
