"""The benchmarks run at toy size and say what they measured; no test here is about speed."""

import argparse
import dataclasses
import json

import numpy as np
import pytest

from benchmarks import common, norms, steps, topagg_bound
from dpgen_jax import presets
from dpgen_jax.core.types import UserError
from dpgen_jax.nets.image import DiscriminatorNet

pytestmark = pytest.mark.long


TOY = ["--preset", "glyphs", "--teachers", "2", "--chunk", "1", "--devices", "1", "--beside", "0",
       "--matmul", "64"]
AS_IN_A_RUN = "--xla_backend_optimization_level=0"


def mnist():
    return presets.get("datalens", "mnist-eps1")[1]


def test_published_operations_on_mnist():
    macs = 196 * 25 * 11 * 11 + 49 * 25 * 21 * 42 + 2068 * 256 + 266
    assert steps.published_macs(DiscriminatorNet(), mnist().spec) == macs
    assert steps.published_flops(mnist().config, mnist().spec, 15) == 2 * macs * 210


def test_a_training_that_was_resumed_took_all_its_starts():
    """A training of 3.5 hours in two starts was shown as the 1.7 hours of its second."""
    rows = [{"seconds": at} for at in (60.0, 80.0, 100.0, 50.0, 90.0, 5.0)]
    assert common.training_seconds(rows) == 100 + 90 + 5
    assert common.training_seconds(rows[:1]) == 60


def test_fewer_records_than_the_batch_cost_less():
    config = dataclasses.replace(mnist().config, batch=30)
    macs = steps.published_macs(config.discriminator, mnist().spec)
    assert steps.published_flops(config, mnist().spec, 15) == 2 * macs * (2 * 3 * 30 + 60)


def test_steps_writes_and_prints_a_record(tmp_path, capsys):
    out = tmp_path / "steps.json"
    assert steps.main([*TOY, "--out", str(out)]) == 0
    record = json.loads(out.read_text())
    assert capsys.readouterr().out == f"{out}\n"
    assert set(record) == {"benchmark", "command", "machine", "versions", "git", "seeds", "date",
                           "results"}
    assert record["benchmark"] == "steps" and record["seeds"] == [0]
    assert record["command"] == " ".join(["python -m benchmarks.steps", *TOY])
    case, = record["results"]["cases"]
    assert len(case["seconds_per_step"]["all"]) == 3
    assert case["compilations"] == 1
    assert case["records_per_teacher"] == 20
    assert case["published_flops_per_step"] == 2 * case["published_flops_per_teacher"]
    assert 0 < case["state_bytes"] < case["peak_resident_bytes"]
    for share in ("fraction_of_matmul_rate", "aggregation_share", "generator_share"):
        assert case[share] > 0


def test_the_plain_loop_computes_what_the_library_computes():
    """With the emitters of a run: those of conftest.py round the two programs differently, and a
    single vote that flips moves the generator by more."""
    case = {"kind": "plain", "preset": "glyphs", "teachers": 2, "chunk": 1, "devices": 1}
    measured = common.apart(steps.MODULE, case, {"XLA_FLAGS": AS_IN_A_RUN})
    assert set(measured["seconds_per_step"]) == {"shard_map", "plain"}
    assert measured["largest_difference_of_generator_weights"] < 1e-4


def test_a_record_can_be_written_to_a_folder(tmp_path):
    record = common.record("steps", [], [0], {})
    assert common.write(record, tmp_path) == tmp_path / "steps.json"
    assert common.write(record, tmp_path / "new/other.json").is_file()


@pytest.mark.slow
def test_a_configuration_that_fails_says_why_and_is_left_out():
    args, _ = steps.parse([*TOY[:-4], "--beside", "0"])
    case = steps.plan(args)[0][0] | {"devices": 3}
    failed = common.apart(steps.MODULE, case, {"JAX_NUM_CPU_DEVICES": "1"})
    assert failed == {"error": "3 devices were asked for, 1 are there"}
    assert steps.linearity([case | failed]) == []


def test_linearity_compares_numbers_of_teachers_of_one_layout():
    case = {"preset": "p", "chunk": 1, "devices": 1}
    entry, = steps.linearity([
        case | {"teachers": n, "seconds_per_teacher": 6 / n + 2.0,
                "seconds_per_teacher_without_generator": 2.0} for n in (6, 3)])
    assert entry["teachers"] == [3, 6]
    assert entry["seconds_per_teacher_last_to_first"] == pytest.approx(3 / 4)
    assert entry["seconds_per_teacher_without_generator_last_to_first"] == 1


def test_ways_are_timed_in_turns_and_warm_up_is_not_counted():
    calls = []
    timed = common.side_by_side({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")},
                                repeats=3, warmup=1)
    assert "".join(calls) == "abbaabba"
    assert all(len(t["all"]) == 3 and t["median"] in t["all"] for t in timed.values())


def test_a_median_of_fewer_than_three_steps_is_refused(capsys):
    with pytest.raises(SystemExit):
        steps.parse(["--repeats", "2"])
    assert "at least 3" in capsys.readouterr().err


# Benchmarks of single figures of the papers, at toy size: what they measure, keep and refuse.

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
