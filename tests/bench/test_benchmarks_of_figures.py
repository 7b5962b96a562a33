"""Benchmarks of single figures of the papers, at toy size: what they measure, keep and refuse."""

import argparse
import dataclasses
import json

import numpy as np
import pytest

from benchmarks import norms, steps, topagg_bound
from dpgen_jax import presets
from dpgen_jax.core.types import UserError

pytestmark = pytest.mark.long

TOY_NORMS = ["--dataset", "glyphs", "--dpcgan", "glyphs", "--dpgan", "glyphs", "--gswgan", "glyphs",
             "--steps", "4", "--critics", "6", "--batch", "12", "--points", "3"]


def test_the_papers_epochs_are_one_step_of_all_teachers():
    """15 records and a batch of 15, or 30 and 30: the published codes take one step an epoch."""
    assert {steps.steps_of_an_epoch(row) for row in steps.EPOCHS.values()} == {1}


def test_an_epoch_of_fewer_teachers_is_extrapolated_and_says_so():
    row = steps.EPOCHS["datalens-mnist-4000"]
    measured = {"seconds_per_step": {"median": 0.5}, "teachers": 40}
    result = steps.epoch(row, measured)
    assert result["seconds_per_epoch"] == 50.0 and result["extrapolated"]
    assert not steps.epoch(row, measured | {"teachers": 4000})["extrapolated"]


def test_epochs_are_timed_and_kept(tmp_path, monkeypatch):
    out, names = tmp_path / "epochs.json", ["datalens-toy", "gpate-toy"]
    monkeypatch.setattr(steps, "EPOCHS", {
        f"{method}-toy": steps.Epoch(method, "glyphs", 1.0, "no paper")
        for method in ("datalens", "gpate")})
    flags = ["--epochs", *names, "--share", "0.002", "--chunk", "1", "--devices", "1",
             "--out", str(out)]
    assert steps.main(flags) == 0
    record = json.loads(out.read_text())
    for name in names:
        row = record["results"]["rows"][name]
        assert row["teachers"] >= 3 and row["seconds_per_epoch"] > 0 and row["extrapolated"]
        assert row["source"] == "no paper"
    monkeypatch.setattr(steps.common, "apart", lambda *_: pytest.fail("timed again"))
    assert steps.main(flags) == 0


def test_epochs_of_a_share_that_is_none_are_refused(capsys):
    with pytest.raises(SystemExit):
        steps.main(["--epochs", "--share", "0"])
    assert "--share: above 0" in capsys.readouterr().err


def test_the_best_case_by_dimension():
    best = topagg_bound.by_dimension("mnist-eps1")
    assert best["dimensions"][-1] == 784 and best["log10_most_likely"][-1] < -200
    assert np.all(np.diff(best["log10_most_likely"]) < 0)
    said = [ratio for ratio in best["theorem_to_independent"] if ratio is not None]
    assert min(said) > 1 and best["theorem_to_independent"][-1] is None
    assert topagg_bound.by_dimension("mnist-eps1-mean") is None


def test_a_preset_that_releases_no_signs_is_refused():
    with pytest.raises(UserError, match="releases no signs"):
        topagg_bound.main(["--preset", "mnist-eps1-mean"])


def test_a_summary_of_norms():
    said = norms.summary(np.array([[0.5, 2.0], [4.0, np.nan]]), 1.0)
    assert said["before"]["mean"] == pytest.approx(6.5 / 3) and said["not_finite"] == 1
    assert said["after"]["mean"] == pytest.approx(2.5 / 3)
    assert said["share_above_clip"] == pytest.approx(2 / 3) and sum(said["histogram"]) == 3


@pytest.fixture(scope="module")
def glyphs():
    return norms.data.load("glyphs")


def test_a_stopped_study_goes_on_to_the_same_norms(glyphs, tmp_path, monkeypatch):
    s = norms.study(norms.arguments(TOY_NORMS), glyphs, "GS-WGAN", True)
    whole = norms.follow(s, 0, 4, tmp_path / "whole.npz")
    assert [row["step"] for row in whole] == [0, 1, 2, 3]
    assert sum(whole[0]["histogram"]) == s.per_step * s.method.mechanism.shape[0]
    assert "on_fakes" not in whole[0]  # critics are private
    monkeypatch.setattr(norms, "CHECKPOINT_SECONDS", -1)
    path, saved = tmp_path / "part.npz", norms.save

    def stopping(path, step, rows, state):
        saved(path, step, rows, state)
        if step == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(norms, "save", stopping)
    with pytest.raises(KeyboardInterrupt):
        norms.follow(s, 0, 4, path)
    assert norms.follow(s, 0, 4, path) == whole


def test_a_study_with_other_settings_has_another_checkpoint(tmp_path):
    names = {norms.checkpoint(tmp_path, "GS-WGAN, clipped", {"config": {"steps": n}}).name
             for n in (4, 4, 5)}
    assert len(names) == 2 and all(name.startswith("GS-WGAN-clipped-") for name in names)


def test_images_of_another_shape_are_refused(glyphs):
    with pytest.raises(UserError, match="has records .* preset mnist-eps10 of gswgan is for"):
        norms.study(norms.arguments(["--dataset", "glyphs"]), glyphs, "GS-WGAN", True)


def test_the_record_of_norms(tmp_path, capsys, monkeypatch):
    flags = [*TOY_NORMS, "--systems", "DP-SGD GAN", "--out", str(tmp_path / "out"), "--record",
             str(tmp_path / "norms.json")]
    norms.main(flags)
    record = json.loads((tmp_path / "norms.json").read_text())
    assert str(tmp_path) not in record["command"]
    clipped, free = (record["results"]["variants"][f"DP-SGD GAN, {kind}"]["rows"]
                     for kind in ("clipped", "not clipped"))
    assert len(clipped) == len(free) == 3
    assert clipped[0]["histogram"] == free[0]["histogram"]  # before clipping, at the first step
    assert clipped[1]["before"] != free[1]["before"]
    assert clipped[0]["on_fakes"]["before"]["mean"] > 0
    assert (tmp_path / "norms.png").stat().st_size > 1000
    monkeypatch.setattr(norms, "follow", lambda *_: pytest.fail("trained again"))
    norms.main(flags)


def test_what_is_parsed():
    args, more = topagg_bound.arguments(["--preset", "mnist-eps10", "--teachers", "40"])
    assert more == ["--teachers", "40"] and args.out.name.startswith("topagg-bound-mnist-eps10-")
    assert isinstance(norms.arguments([]), argparse.Namespace)


def test_a_changed_preset_has_another_run(monkeypatch):
    """So that a finished run of before is not read as that of the preset of today."""
    def out(*more):
        return topagg_bound.arguments(["--preset", "mnist-eps1", *more])[0].out

    usual, fewer = out(), out("--teachers", "40")
    assert usual == out() == out("--state", "disk") != fewer
    preset = presets.all_of("datalens")["mnist-eps1"]
    changed = dataclasses.replace(preset, config=dataclasses.replace(preset.config, d_steps=3))
    monkeypatch.setitem(presets.all_of("datalens"), "mnist-eps1", changed)
    assert out() != usual
