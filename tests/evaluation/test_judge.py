"""The judge: it learns what can be learned, sees in one pass what it was trained to say."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpgen_jax.core.types import UserError
from dpgen_jax.evaluation import fidelity as j
from dpgen_jax.evaluation.networks import Schedule, predict

QUICK = j.Course(Schedule("quick", epochs=2, min_steps=60, batch=64, learning_rate=2e-3))


def bars(n, seed=0, side=8, channels=1):
    """Noisy images whose class is the place of a bright bar, two pixels wide."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    x = rng.integers(0, 80, (n, side, side, channels)).astype(np.uint8)
    for row in range(2):
        x[np.arange(n), 1 + 4 * y + row] += 150
    return x, y


def still(judge, x):
    return predict(j.Classifier(2), judge.params, x)


@pytest.fixture(scope="module")
def judge():
    return j.train_judge(bars(900), bars(200, 1), QUICK)


@pytest.mark.slow
def test_separable_images_are_learned_and_random_labels_are_not(judge):
    assert judge.test_accuracy > .95
    x, _ = bars(900)
    guess = np.random.default_rng(2).integers(0, 2, 900)
    assert abs(j.train_judge((x, guess), (bars(300, 3)[0], guess[:300]),
                             QUICK).test_accuracy - .5) < .15


@pytest.mark.slow
def test_features_and_probabilities_are_those_of_the_network(judge):
    x, y = bars(300, 4)
    features, chances = judge.see(x)
    assert features.shape == (300, j.FEATURES) and features.dtype == np.float32
    assert features.min() >= 0 and features.std(0).max() > 0
    np.testing.assert_allclose(chances, jax.nn.softmax(still(judge, x)), atol=1e-4)
    np.testing.assert_allclose(chances.sum(1), 1)
    assert judge.test_accuracy == np.mean(judge.see(bars(200, 1)[0])[1].argmax(1)
                                          == bars(200, 1)[1])
    assert np.mean(chances.argmax(1) == y) > .9


def test_bytes_and_floats_are_the_same_image(judge):
    x, _ = bars(10, 5)
    np.testing.assert_allclose(judge.see(x)[0], judge.see(x / np.float32(255))[0], atol=1e-4)


def test_the_seed_decides_everything_and_progress_is_logged(judge):
    lines = []
    again = j.train_judge(bars(900), bars(200, 1), QUICK, log=lines.append)
    jax.tree.map(np.testing.assert_array_equal, again.params, judge.params)
    assert lines == ["judge: 5 epochs of 900 real images",
                     f"judge: accuracy {judge.test_accuracy:.4f} on 200 held-out images"]
    assert judge.info() == {"net": f"3 convolutions (32, 48, 96) and {j.FEATURES} features",
                            "test_accuracy": judge.test_accuracy, "features": j.FEATURES,
                            "epochs": 5}


def test_a_course_may_use_some_of_the_images(judge, monkeypatch):
    lines, seen = [], []
    monkeypatch.setattr(j, "fit_classifier", lambda net, x, *_: seen.append(x) or judge.params)
    course = j.Course(Schedule("short", epochs=1, min_steps=1), images=50)
    assert j.train_judge(bars(900), bars(9, 1), course, log=lines.append).epochs == 1
    assert lines[0] == "judge: 1 epochs of 50 real images"
    (x,) = seen
    assert x.shape == (50, 8, 8, 1) and not np.array_equal(x, bars(900)[0][:50])


@pytest.mark.parametrize(("shape", "classes"), [((8, 8, 1), 2), ((9, 13, 3), 365),
                                                ((28, 28, 1), 10), ((64, 64, 3), 10)])
def test_it_is_defined_for_all_sizes(shape, classes):
    net = j.Classifier(classes)
    x = jax.ShapeDtypeStruct((2, *shape), jnp.float32)

    def both(key, x):
        params = net.init(key, x, train=False)
        return net.apply(params, x, train=True, rngs={"dropout": key})

    assert jax.eval_shape(both, jax.random.key(0), x).shape == (2, classes)


def test_a_shift_moves_whole_images_and_fills_with_black():
    x = np.arange(1, 13, dtype=np.float32).reshape(1, 3, 4, 1)
    result = np.asarray(j.shifted(jax.random.key(0), np.repeat(x, 200, 0), 1))[..., 0]
    padded = np.pad(x[0, ..., 0], 1)
    places = {padded[r:r + 3, c:c + 4].tobytes() for r in range(3) for c in range(3)}
    assert {image.tobytes() for image in result} == places


def test_training_moves_images_and_judging_does_not(judge):
    x = bars(300, 4)[0]
    noisy = [moved(judge.params, x, jax.random.key(k)) for k in (0, 1)]
    assert not np.allclose(*noisy)
    assert not np.allclose(noisy[0], still(judge, x))


@jax.jit
def moved(params, x, key):
    return j.Classifier(2).apply(params, x / 255, train=True, rngs={"dropout": key})


@pytest.mark.parametrize(("real", "test", "message"), [
    (bars(9, side=7), bars(9, side=7), "at least 8 x 8 pixels, got 7 x 7"),
    (bars(9), bars(9, side=9), "both need the same"),
    (bars(1), bars(9), "1 training images; at least 2"),
    ((bars(9)[0], np.full(9, -1)), bars(9), "label -1 in row 0 is outside")])
def test_bad_images_are_refused(real, test, message):
    with pytest.raises(UserError, match=message):
        j.train_judge(real, test, QUICK)


@pytest.mark.slow
def test_smoothed_labels_leave_the_probabilities_as_they_are_meant():
    x, y = bars(600)
    course = dataclasses.replace(QUICK, schedule=dataclasses.replace(
        QUICK.schedule, epochs=4, optimiser="muon", learning_rate=0.03, decay="warm",
        smoothing=0.1))
    judge = j.train_judge((x, y), bars(200, seed=9), course)
    _, p = judge.see(x)
    np.testing.assert_allclose(p.sum(1), 1)
    assert judge.test_accuracy > 0.95 and np.median(p.max(1)) > 0.97  # smoothed: at most 0.95
