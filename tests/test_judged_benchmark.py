"""Tests of `benchmarks.judged`: the worth of a curve, and whose images judge."""

import numpy as np
import pytest

from benchmarks import judged
from dpgen_jax.core.errors import UserError
from dpgen_jax.data import load

pytestmark = pytest.mark.long


def test_a_judge_is_compared_by_what_it_picks():
    by_judge, real = {50: 0.2, 100: 0.6, 150: 0.5}, {50: 0.3, 100: 0.55, 150: 0.6}
    found = judged.compared(by_judge, real)
    assert found["rank_correlation"] == pytest.approx(0.5)
    assert found["picked"] == {"step": 100, "accuracy": 0.55}
    assert found["last"] == found["best"] == {"step": 150, "accuracy": 0.6}


def test_a_curve_that_does_not_vary_has_no_order():
    assert judged.compared({50: 0.3, 100: 0.3}, {50: 0.2, 100: 0.4})["rank_correlation"] is None


@pytest.mark.parametrize("every", [0, 700])
def test_too_few_judgements_are_refused_before_anything_is_trained(every):
    with pytest.raises(UserError, match=f"--every {every}: in 2000 steps"):
        judged.arguments(["--every", str(every)])


def test_runs_of_other_settings_lie_in_other_folders():
    other = (["--seed", "1"], ["--share", "0.5"], ["--every", "20"], ["--dataset", "glyphs"],
             ["--steps", "500"], ["--epsilon", "2"], ["--preset", "mnist-eps10"])
    folders = {judged.folder(judged.arguments(argv)) for argv in ([], *other)}
    assert len(folders) == 1 + len(other)
    assert judged.folder(judged.arguments([])) in folders


def test_a_judge_of_other_steps_is_not_compared():
    with pytest.raises(ValueError, match="other steps"):
        judged.compared({50: 0.2, 100: 0.6}, {50: 0.3, 99: 0.55})


def test_real_images_that_judge_are_neither_trained_on_nor_tested_on(tmp_path):
    parts = [load(name) for name in judged.written("glyphs", tmp_path)]
    assert parts[0].x_test is None and parts[1].x_test is None
    records, real = ({x.tobytes() for x in part.x_train} for part in parts)
    whole = load("glyphs")
    assert sum(len(part.x_train) for part in parts) == len(whole.x_train)
    assert 5 * len(parts[1].x_train) == pytest.approx(len(parts[0].x_train), rel=0.1)
    assert len(real - records) > 0.9 * len(real)  # few glyphs are there twice
    before = (tmp_path / "real.npz").read_bytes()
    judged.written("glyphs", tmp_path)
    assert (tmp_path / "real.npz").read_bytes() == before
    assert np.array_equal(parts[1].spec.shape, whole.spec.shape)
