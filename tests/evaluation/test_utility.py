"""Utility: known answers, and the promises about what counts and what is computed how often."""

import dataclasses
import json

import chex
import jax
import numpy as np
import pytest
from bars import bars, noise
from written import written

from dpgen_jax.core.config import Evaluation
from dpgen_jax.core.types import ImageSpec, UserError
from dpgen_jax.evaluation import networks, results
from dpgen_jax.evaluation import utility as u
from dpgen_jax.evaluation.results import Real, Synthetic
from dpgen_jax.evaluation.utility import setting_for

SCHEDULE = networks.Schedule("quick", epochs=1, min_steps=60, mlp_times=1)
CHEAP = ("gaussian_nb", "lda", "decision_tree")
QUICK = u.Setting("quick", "a quick one", 400, 2, schedule=SCHEDULE, classifiers=CHEAP,
                  classical_rows={"decision_tree": 50})


@pytest.fixture(scope="module")
def test_images():
    return bars(300, seed=9)


def evaluate(synthetic, test, real=None, seeds=1, *, setting=QUICK, classes=None,
             log=results.silent, **choices):
    if "classifiers" in choices:
        choices["optional"] = ()
    setting = dataclasses.replace(setting, seeds=seeds, log=log, **choices)
    draw = synthetic
    if not callable(synthetic):
        setting = dataclasses.replace(setting, n_samples=len(synthetic[1]))
        draw = lambda n, seed: synthetic  # noqa: E731
    classes = classes or 1 + max(int(part[1].max()) for part in (test, real) if part)
    part = u.utility(Real(ImageSpec(8, 8, 1, classes), test, real), Synthetic(draw), setting)
    return written(part)


def means(out, task, metric="accuracy"):
    return {name: result[metric]["mean"] for name, result in out[task].items()}


def test_copies_of_the_real_images_are_worth_what_they_are(test_images):
    """A perfect generator: the same numbers to the digit, for each seed."""
    real = bars(350, seed=3)
    out = evaluate(real, test_images, real, seeds=2, classifiers=("mlp", *CHEAP))
    for name, result in out["gen2real"].items():
        assert result["accuracy"] == out["real2real"][name]["accuracy"]
        assert result["calibrated_accuracy"]["values"] == [1, 1]
    average = out["average"]
    assert average["gen2real"]["calibrated_accuracy"]["values"] == [1, 1]
    assert average["gen2real"]["accuracy"] == average["real2real"]["accuracy"]


def test_noise_is_worth_nothing(test_images):
    out = evaluate(noise(400), noise(900, seed=9), noise(400, seed=3))
    for task in results.TASKS:
        assert all(abs(accuracy - 0.25) < 0.09 for accuracy in means(out, task).values())
    out = evaluate(noise(400), test_images, bars(400, seed=3))
    gen, real = (out["average"][task]["accuracy"]["mean"] for task in ("gen2real", "real2real"))
    assert gen < 0.6 < 0.75 < real  # bars of a class look alike, so that chance is four throws


def test_swapped_labels_are_worth_less_than_noise(test_images):
    x, y = bars(600)
    out = evaluate((x, (y + 1) % 4), test_images, bars(600, seed=3),
                   classifiers=("linear_svc", "lda"))
    assert max(means(out, "gen2real").values()) < 0.05 > max(means(out, "real2gen").values())
    assert min(means(out, "gen2real", "validation_accuracy").values()) > 0.9
    assert max(means(out, "gen2real", "calibrated_accuracy").values()) < 0.06


@pytest.mark.parametrize("classifier", [
    name for name in u.ALL_CLASSIFIERS if u.is_installed(name)])
def test_constant_images_are_worth_a_guess(classifier, test_images):
    constant = np.full((60, 8, 8, 1), 7, np.uint8), np.arange(60) % 4
    brief = dataclasses.replace(QUICK, schedule=networks.Schedule("brief", 1, 1))
    out = evaluate(constant, test_images, classifiers=[classifier], setting=brief)
    shares = np.bincount(test_images[1]) / len(test_images[1])
    accuracy = out["gen2real"][classifier]["accuracy"]["mean"]
    assert accuracy < 0.5 if classifier in u.NETWORKS else np.abs(shares - accuracy).min() < 1e-9


def test_a_real_part_is_trained_on_once_a_seed(monkeypatch, test_images):
    calls, lines = [], []
    train = u.train
    monkeypatch.setattr(u, "train", lambda name, images, classes, setting, seed: calls.append(
        (name, len(images[1]), seed)) or train(name, images, classes, setting, seed))
    evaluate(lambda n, seed: bars(n, seed), test_images, bars(200, seed=3), seeds=2,
             classifiers=("lda", "gaussian_nb"), log=lines.append)
    assert sorted(calls) == sorted((name, n, seed) for name in ("lda", "gaussian_nb")
                                   for n in (360, 180) for seed in (0, 1))
    assert lines[:3] == ["seed 1 of 2: 400 synthetic images",
                         "seed 1 of 2: lda on 360 synthetic images",
                         "seed 1 of 2: lda on 180 real images"] and len(lines) == 10


def test_nothing_is_trained_for_a_task_that_was_not_requested(monkeypatch, test_images):
    calls = []
    train = u.train
    monkeypatch.setattr(u, "train", lambda *a: calls.append(a) or train(*a))
    out = evaluate(bars(90), test_images, bars(90), tasks=("real2gen",), classifiers=["lda"])
    assert len(calls) == 1 and "gen2real" not in out and list(out["average"]) == ["real2gen"]
    out = evaluate(lambda n, seed: pytest.fail("nothing needs a draw"), test_images, tasks=())
    assert out["average"] == {} and out["not_covered_by_epsilon"] == []


def test_all_seeds_and_both_parts_share_one_compilation(test_images, monkeypatch):
    jit = jax.jit

    def once(function, **options):
        limited = function.__name__ in ("epoch", "init")
        return jit(chex.assert_max_traces(function, n=1) if limited else function, **options)

    monkeypatch.setattr(jax, "jit", once)
    networks._training.cache_clear()
    evaluate(bars(150), test_images, bars(150, seed=3), seeds=3, classifiers=["mlp"])
    assert networks._training.cache_info().misses == 1
    networks._training(u.NETWORKS["mlp"](4), SCHEDULE, 60, 128)
    assert networks._training.cache_info().hits == 6
    networks._training.cache_clear()


def test_a_seed_decides_everything(test_images):
    x, y = bars(120)
    y = np.where(np.arange(120) % 2, y, 0)  # hard enough for seeds to differ
    names = ("mlp", *CHEAP)
    one, again = (evaluate((x, y), test_images, (x[::-1], y[::-1]), seeds=2, classifiers=names)
                  for _ in range(2))
    for out in (one, again):
        assert set(out.pop("seconds")) == {"sampling", *names}
    assert one == again
    assert all(len({*leaf["values"]}) == 2 for leaf in (
        one["gen2real"]["mlp"]["accuracy"], one["average"]["real2gen"]["accuracy"]))


def test_real_images_are_as_many_as_synthetic_ones_and_held_out_ones_are_not_trained_on(
        monkeypatch, test_images):
    seen = {}
    monkeypatch.setattr(u, "train", lambda name, images, *_: seen.update(
        {len(images[1]): images}) or u.Trained(lambda x: np.zeros(len(x))))
    out = evaluate(bars(100), test_images, bars(200, seed=3))
    assert (out["n_samples"], out["n_real"]) == (100, 100)
    x, _ = seen[90]
    assert len(np.unique(x, axis=0)) == 90


def test_slow_classifiers_see_few_rows_and_the_output_says_so(monkeypatch, test_images):
    rows = {}
    fit = u.fit_classical
    monkeypatch.setattr(u, "fit_classical", lambda name, x, y, seed: rows.update(
        {name: len(y)}) or fit(name, x, y, seed))
    setting = evaluate(bars(100), test_images)["setting"]
    assert rows == {"gaussian_nb": 90, "lda": 90, "decision_tree": 50}
    assert setting["classical_rows"] == {"decision_tree": 50} and "50" in setting["text"]
    assert setting["schedule"] == dataclasses.asdict(SCHEDULE)
    assert evaluate(bars(40), test_images)["setting"]["classical_rows"] == {}


def test_synthetic_images_are_judged_up_to_a_number(monkeypatch, test_images):
    judged = []
    monkeypatch.setattr(u, "REAL2GEN_IMAGES", 30)
    monkeypatch.setattr(u.Trained, "accuracy", lambda _, images: judged.append(len(images[1])) or 1)
    evaluate(bars(100), test_images, bars(100), classifiers=["lda"])
    assert judged == [300, 10, 30, 300]


def test_metrics_are_nested_as_the_interface_says(test_images):
    out = evaluate(lambda n, seed: bars(n, seed), test_images, bars(250, seed=3), seeds=2)
    leaf, all_of = {"mean", "std", "values"}, {"accuracy", "calibrated_accuracy"}
    expected = {"gen2real": {*all_of, "validation_accuracy"}, "real2gen": {"accuracy"},
                "real2real": {"accuracy"}}
    for task, metrics in expected.items():
        assert list(out[task]) == list(CHEAP)
        for name in CHEAP:
            assert {k: set(v) for k, v in out[task][name].items()} == dict.fromkeys(metrics, leaf)
        average = out["average"][task]
        assert average.pop("classifiers") == list(CHEAP)
        assert set(average) == (all_of if task == "gen2real" else {"accuracy"})
        for metric, result in average.items():
            each = [out[task][name][metric]["values"] for name in CHEAP]
            np.testing.assert_allclose(result["values"], np.mean(each, 0))
    ours, real = (out[task]["lda"] for task in ("gen2real", "real2real"))
    np.testing.assert_allclose(ours["calibrated_accuracy"]["values"], np.divide(
        ours["accuracy"]["values"], real["accuracy"]["values"]))
    assert {k: out[k] for k in ("n_samples", "n_test", "n_real", "seeds")} == {
        "n_samples": 400, "n_test": 300, "n_real": 250, "seeds": 2}
    seen = out["not_covered_by_epsilon"]
    assert {"gen2real.lda.accuracy", "gen2real.lda.calibrated_accuracy", "real2gen.lda.accuracy",
            "real2real.lda.accuracy", "average.gen2real.accuracy"} <= set(seen)
    assert not any("validation" in key for key in seen) and len(seen) == len(set(seen)) == 17
    assert "there are 250 real training images for 400 synthetic ones" in out["notes"]
    json.dumps(out, allow_nan=False)


def test_arrays_alone_leave_out_what_needs_real_training_images(test_images):
    out = evaluate(bars(120), test_images, classifiers=["lda"])
    assert out["n_samples"] == 120 and out["n_real"] == 0
    assert "real2real" not in out and "real2gen" not in out and out["notes"] == []
    assert out["not_covered_by_epsilon"] == ["gen2real.lda.accuracy",
                                             "average.gen2real.accuracy", "verdict"]


def test_classes_that_a_part_lacks_are_noted(test_images):
    x, y = bars(300)
    few = x[y != 1], y[y != 1]
    out = evaluate(few, test_images, classifiers=("linear_svc", "lda"))
    assert out["notes"] == ["seed 0: no synthetic image has class 1"]
    present = np.mean(test_images[1] != 1)
    assert all(present - 0.05 < a <= present for a in means(out, "gen2real").values())
    assert evaluate(bars(300), few, classes=4, classifiers=["lda"])["notes"] == [
        "no test image has class 1"]


@pytest.mark.parametrize(("change", "message"), [
    (lambda x, y: (np.where(np.arange(8)[:, None, None, None] < 5, x / 255, np.nan), y),
     "3 synthetic images hold NaN or infinite values, the first at row 5; the generator diverged"),
    (lambda x, y: (x / 127.5 - 1, y), "scale images to"),
    (lambda x, y: (x.astype(np.int32), y), "int32"),
    (lambda x, y: (x, y - 9), "is outside the declared"),
    (lambda x, y: (x, y / 2), "integer"),
    (lambda x, y: (x[:1], y[:1]), "at least 2"),
    (lambda x, y: (x[:, :6], y), "same height"),
    (lambda x, y: (x[..., :0], y), "1 or 3 channels"),
    (lambda x, y: (x, y + 4), "synthetic label .* is not one of the classes 0..3"),
    (lambda x, y: (x[:3], y[:3] * 0), "3 synthetic images for 4 classes; draw at least one"),
])
def test_malformed_images_are_refused(change, message, test_images):
    with pytest.raises(UserError, match=message):
        evaluate(change(*bars(8)), test_images)


@pytest.mark.parametrize(("options", "message"), [
    ({"classifiers": ["lda", "vgg"]}, "unknown classifier 'vgg'; known: cnn, mlp, adaboost"),
    ({"tasks": ["gen2gen"]}, "known: gen2real"),
    ({"classes": 3}, "test label 3 is not one of the release's classes 0..2"),
    ({"seeds": 0}, "seeds"),
    ({"real": bars(20, classes=5, side=9)}, r"real training images \(9, 9, 1\)"),
])
def test_options_that_cannot_be_are_refused(options, message, test_images):
    with pytest.raises(UserError, match=message):
        evaluate(bars(20), test_images, **options)


def test_a_missing_xgboost_is_left_out_unless_it_was_requested(monkeypatch, test_images):
    monkeypatch.setattr(u, "is_installed", lambda name: name != "xgboost")
    setting = dataclasses.replace(QUICK, classifiers=("lda", "xgboost"))
    out = evaluate(bars(60), test_images, setting=setting)
    assert list(out["gen2real"]) == ["lda"]
    assert out["notes"] == ["xgboost is left out: pip install 'dpgen_jax[xgboost]'"]
    with pytest.raises(UserError, match=r"pip install 'dpgen_jax\[xgboost\]'"):
        evaluate(bars(60), test_images, classifiers=["xgboost"])


def test_settings_say_what_they_are():
    full, fast = u.SETTINGS["full"], u.SETTINGS["fast"]
    assert (full.n_samples, fast.n_samples) == (60_000, 10_000)
    assert full.classifiers == u.ALL_CLASSIFIERS and {*fast.classifiers} < {*full.classifiers}
    assert {*full.classical_rows} <= {*u.CLASSICAL_CLASSIFIERS}
    assert "fast" in fast.info(fast.classifiers)["text"]
    assert full.info(u.ALL_CLASSIFIERS)["classical_rows"] == full.classical_rows
    assert full.info(["lda", "adaboost"])["classical_rows"] == {"adaboost": 2500}


def test_options_of_a_user_become_a_setting():
    assert setting_for(Evaluation()) == u.SETTINGS["full"]
    setting = setting_for(Evaluation(("real2real", "fidelity", "gen2real"), ("xgboost",), fast=True,
                                     samples=70, seeds=5))
    assert (setting.name, setting.n_samples, setting.seeds) == ("fast", 70, 5)
    assert (setting.tasks, setting.classifiers) == (("gen2real", "real2real"), ("xgboost",))
    assert setting.optional == ()


def test_summary_of_one_and_of_many():
    assert results.summary([0.5]) == {"mean": 0.5, "std": 0.0, "values": [0.5]}
    assert results.summary([0.0, 1.0])["std"] == pytest.approx(0.5**0.5)
