"""Utility: right answers where the difficulty is known, and the promises about what counts."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from jax import lax

from dpgen_jax.evaluation import utility as u
from dpgen_jax.nets.classifiers import CNN, Conv3x3, max_pool
from dpgen_jax.types import UserError

QUICK = u.Schedule("quick", epochs=2, min_steps=60, mlp_times=2)


def bars(n, seed=0, classes=4, side=8, channels=1):
    """Noisy images whose class is the place of a bright bar: separable, but not by brightness."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n).astype(np.int32)
    x = rng.integers(0, 80, (n, side, side, channels)).astype(np.uint8)
    x[np.arange(n), 2 * y] += 150
    return x, y


@pytest.fixture(scope="module")
def test_images():
    return bars(300, seed=9)


def test_patches_are_the_convolution():
    x = jax.random.normal(jax.random.key(0), (2, 9, 8, 3))
    conv = Conv3x3(5)
    params = conv.init(jax.random.key(1), x)
    params["params"]["bias"] = jax.random.normal(jax.random.key(2), (5,))
    expected = lax.conv_general_dilated(x, params["params"]["kernel"], (1, 1), "VALID",
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"))
    np.testing.assert_allclose(conv.apply(params, x), expected + params["params"]["bias"],
                               rtol=1e-4, atol=1e-5)


def test_pooling_drops_an_odd_edge():
    x = np.arange(2 * 5 * 4).reshape(2, 5, 4, 1)
    np.testing.assert_array_equal(max_pool(x)[..., 0], [[[5, 7], [13, 15]], [[25, 27], [33, 35]]])


@pytest.mark.parametrize("shape", [(8, 8, 1), (28, 28, 1), (64, 64, 3)])
def test_cnn_is_defined_for_all_sizes(shape):
    net = CNN(7)
    params = jax.eval_shape(lambda k: net.init(k, np.zeros((2, *shape), np.float32), train=False),
                            jax.random.key(0))
    kernels = {k: v["kernel"].shape for k, v in params["params"].items()}
    flat = 64 * ((shape[0] - 2) // 2 - 2) ** 2
    assert kernels == {"Conv3x3_0": (3, 3, shape[2], 32), "Conv3x3_1": (3, 3, 32, 64),
                       "Dense_0": (flat, 64), "Dense_1": (64, 7)}


def test_dropout_acts_in_training_alone():
    x = np.ones((4, 8, 8, 1), np.float32)
    net = CNN(3)
    params = net.init(jax.random.key(0), x, train=False)
    still = net.apply(params, x, train=False)
    np.testing.assert_array_equal(still, net.apply(params, x, train=False))
    noisy = net.apply(params, x, train=True, rngs={"dropout": jax.random.key(1)})
    assert not np.allclose(noisy[0], noisy[1])


@pytest.mark.parametrize("name", ["cnn", "mlp"])
def test_separable_images_are_learned_and_random_labels_are_not(name, test_images):
    x, y = bars(1200)
    scores = u.score(name, (x, y), test_images, QUICK)
    assert scores.accuracy > 0.95 and scores.validation_accuracy > 0.95
    noise = np.random.default_rng(1).integers(0, 256, x.shape, np.uint8)
    scores = u.score(name, (noise[:900], y[:900]), (noise[900:], y[900:]), QUICK)
    assert abs(scores.accuracy - 0.25) < 0.12 and abs(scores.validation_accuracy - 0.25) < 0.2


def test_a_seed_decides_everything(test_images):
    x, y = bars(200)
    y = np.where(np.arange(200) % 2, y, 0)  # hard enough for seeds to differ
    one, again, other = (u.score("mlp", (x, y), test_images, QUICK, seed) for seed in (0, 0, 1))
    assert one == again
    assert one != other


def test_float_images_are_the_uint8_ones_over_255(test_images):
    x, y = bars(300)
    scores = [u.score("mlp", (images, y), test_images, QUICK)
              for images in (x, (x / 255).astype(np.float32), x[..., 0])]
    assert scores[0].accuracy == pytest.approx(scores[1].accuracy, abs=0.02)
    assert scores[0] == scores[2]


def test_the_last_epoch_is_reported_and_the_test_images_change_no_weight(test_images, monkeypatch):
    """A schedule that gets worse at the end is reported as it ends, not as it once was."""
    judged = []
    fit = u.fit_classifier

    def spoiled(*args):
        params = jax.tree.map(lambda w: -w, fit(*args))
        judged.append(params)
        return params

    monkeypatch.setattr(u, "fit_classifier", spoiled)
    assert u.accuracy("mlp", *bars(600), *test_images, QUICK) < 0.5
    u.accuracy("mlp", *bars(600), *bars(300, seed=5), QUICK)
    assert len(judged) == 2  # one fit, one verdict each
    jax.tree.map(np.testing.assert_array_equal, *judged)


def test_validation_images_are_held_out(monkeypatch, test_images):
    seen = []
    monkeypatch.setattr(u, "fit_classifier",
                        lambda net, x, *_: seen.append(x) or net.init(
                            jax.random.key(0), x[:1] / 255, train=False))
    x, y = bars(100)
    u.score("mlp", (x, y), test_images)
    assert len(seen[0]) == 90 and len(np.unique(seen[0], axis=0)) == 90


def test_all_seeds_share_one_compilation(test_images):
    u._training.cache_clear()
    u.gen2real(bars(150), *test_images, seeds=3, classifiers=["mlp"], schedule=QUICK)
    assert u._training.cache_info().misses == 1
    net, steps = u.CLASSIFIERS["mlp"](4), QUICK.mlp_times * 60
    epoch, init = u._training(net, QUICK, steps, 128)
    assert u._training.cache_info().hits == 3
    assert epoch._cache_size() == init._cache_size() == 1


@pytest.mark.parametrize(("optimiser", "decay"), [("adam", "constant"), ("sgd", "cosine")])
def test_other_schedules_learn(optimiser, decay, test_images):
    rate = 0.05 if optimiser == "sgd" else 3e-3
    schedule = dataclasses.replace(QUICK, optimiser=optimiser, decay=decay, learning_rate=rate)
    assert u.accuracy("mlp", *bars(600), *test_images, schedule) > 0.9


def test_schedule_makes_its_least_number_of_steps():
    mlp, cnn = u.CLASSIFIERS["mlp"](2), u.CLASSIFIERS["cnn"](2)
    assert [QUICK.epochs_for(cnn, n) for n in (1, 30, 31, 1000)] == [60, 2, 2, 2]
    assert QUICK.epochs_for(mlp, 1000) == 4


def test_gen2real_never_sees_a_class_that_was_never_generated(test_images):
    x, y = bars(600)
    accuracy = u.accuracy("mlp", x[y != 1], y[y != 1], *test_images, QUICK)
    present = np.mean(test_images[1] != 1)
    assert present - 0.05 < accuracy <= present


def test_constant_images_and_a_single_class(test_images):
    y = test_images[1]
    most = np.bincount(y).max() / len(y)
    constant = np.full((40, 8, 8, 1), 7, np.uint8)
    assert u.accuracy("mlp", constant, np.arange(40) % 4, *test_images, QUICK) <= most
    assert u.accuracy("mlp", constant, np.ones(40, int), *test_images, QUICK) == np.mean(y == 1)
    assert u.accuracy("mlp", constant, np.zeros(40, int), constant, np.zeros(40, int), QUICK) == 1


def test_fewer_images_than_a_batch(test_images):
    assert u.accuracy("mlp", *bars(60), *test_images, QUICK) > 0.5
    assert 0 <= u.accuracy("mlp", *bars(2), *bars(1), QUICK) <= 1


@pytest.mark.parametrize(("change", "message"), [
    (lambda x, y: (np.where(np.arange(8)[:, None, None, None] < 5, x / 255, np.nan), y),
     "3 synthetic images hold NaN or infinite values, the first at row 5; the generator diverged"),
    (lambda x, y: (x / 127.5 - 1, y), "rescale"),
    (lambda x, y: (x.astype(np.int32), y), "int32"),
    (lambda x, y: (x, y - 9), "negative"),
    (lambda x, y: (x, y / 2), "integer"),
    (lambda x, y: (x[:1], y[:1]), "at least 2"),
    (lambda x, y: (x[:, :6], y), "same height"),
    (lambda x, y: (x[..., :0], y), "1 or 3 channels"),
])
def test_malformed_images_are_refused(change, message, test_images):
    with pytest.raises(UserError, match=message):
        u.gen2real(change(*bars(8)), *test_images, schedule=QUICK)


@pytest.mark.parametrize("change", [{"optimiser": "lion"}, {"decay": "steps"}])
def test_unknown_names_are_refused(change, test_images):
    with pytest.raises(UserError, match="known: "):
        u.accuracy("mlp", *bars(9), *test_images, dataclasses.replace(QUICK, **change))
    with pytest.raises(UserError, match="known: cnn, mlp"):
        u.accuracy("vgg", *bars(9), *test_images)


def test_cnn_names_the_mend_for_tiny_images():
    x, y = bars(20, classes=2, side=6)
    with pytest.raises(UserError, match="use the classifier 'mlp'"):
        u.accuracy("cnn", x, y, x, y, QUICK)


def test_metrics_are_nested_as_the_interface_says(test_images):
    asked = []

    def sample(n, seed):
        asked.append((n, seed))
        return bars(n, seed=seed)

    out = u.utility(sample, test_images, bars(250, seed=3), seeds=2, n_samples=150,
                    classifiers=["mlp"], schedule=QUICK)
    assert set(asked) == {(150, 0), (150, 1)}
    leaf = {"mean", "std", "values"}
    assert {task: {name: {metric: set(found) for metric, found in metrics.items()}
                   for name, metrics in out[task].items()}
            for task in ("gen2real", "real2gen", "real2real")} == {
        "gen2real": {"mlp": {"accuracy": leaf, "validation_accuracy": leaf}},
        "real2gen": {"mlp": {"accuracy": leaf}}, "real2real": {"mlp": {"accuracy": leaf}}}
    values = out["gen2real"]["mlp"]["accuracy"]["values"]
    assert len(values) == 2
    assert out["gen2real"]["mlp"]["accuracy"]["mean"] == pytest.approx(np.mean(values))
    assert {k: out[k] for k in ("n_samples", "n_test", "seeds")} == {
        "n_samples": 150, "n_test": 300, "seeds": 2}
    assert out["schedule"] == dataclasses.asdict(QUICK)
    assert out["not_covered_by_epsilon"] == [
        "gen2real.mlp.accuracy", "real2gen.mlp.accuracy", "real2real.mlp.accuracy"]
    json.dumps(out, allow_nan=False)


def test_arrays_alone_leave_out_what_needs_real_training_images(test_images):
    out = u.utility(bars(120), test_images, seeds=1, classifiers=["mlp"], schedule=QUICK)
    assert out["n_samples"] == 120 and "real2real" not in out and "real2gen" not in out
    assert out["not_covered_by_epsilon"] == ["gen2real.mlp.accuracy"]


def test_summary_of_one_and_of_many():
    assert u.summary([0.5]) == {"mean": 0.5, "std": 0.0, "values": [0.5]}
    assert u.summary([0.0, 1.0])["std"] == pytest.approx(0.5**0.5)
    with pytest.raises(UserError, match="seeds"):
        u.gen2real(bars(9), *bars(9), seeds=0)
