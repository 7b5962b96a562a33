"""The classical classifiers: each learns, repeats itself, and survives what teaches nothing."""

import sys

import numpy as np
import pytest
from bars import bars, noise

from dpgen_jax.core.types import UserError
from dpgen_jax.evaluation import utility as c

pytestmark = pytest.mark.slow

USABLE = [name for name in c.CLASSICAL_CLASSIFIERS if c.is_installed(name)]


def accuracy(name, train, test, seed=0):
    return np.mean(c.fit_classical(name, *train, seed)(test[0]) == test[1])


def test_the_names_are_those_of_the_report():
    assert list(c.CLASSICAL_CLASSIFIERS) == [
        "adaboost", "bagging", "bernoulli_nb", "gaussian_nb", "decision_tree", "gradient_boosting",
        "lda", "linear_svc", "logistic_regression", "random_forest", "xgboost"]


def test_settings_are_those_of_the_published_code():
    parameters = {name: c.CLASSICAL_CLASSIFIERS[name](0).get_params() for name in USABLE}
    published = {
        "adaboost": {"n_estimators": 100}, "bagging": {"max_samples": 0.1, "n_estimators": 20},
        "bernoulli_nb": {"binarize": 0.5}, "gaussian_nb": {},
        "decision_tree": {"class_weight": "balanced", "criterion": "gini", "splitter": "best",
                          "min_samples_split": 2, "min_samples_leaf": 1},
        "gradient_boosting": {"subsample": 0.1, "n_estimators": 50},
        "lda": {"solver": "eigen", "shrinkage": 0.5, "tol": 1e-8}, "linear_svc": {"loss": "hinge"},
        "logistic_regression": {"solver": "lbfgs", "max_iter": 5000},
        "random_forest": {"n_estimators": 100, "class_weight": "balanced"},
        "xgboost": {"colsample_bytree": 0.1, "n_estimators": 50}}
    for name, params in parameters.items():
        assert {key: params[key] for key in published[name]} == published[name]


@pytest.mark.parametrize("name", USABLE)
def test_bars_are_learned_repeatably_and_noise_is_not(name):
    """AdaBoost, whose members tell two classes apart, learns only something of four."""
    two = accuracy(name, bars(300, classes=2), bars(300, seed=9, classes=2))
    train, test = bars(400), bars(300, seed=9)
    four = accuracy(name, train, test)
    assert two > 0.95 and four > (0.35 if name == "adaboost" else 0.85)
    predict = c.fit_classical(name, *train, 0)
    np.testing.assert_array_equal(predict(noise(50)[0]),
                                  c.fit_classical(name, *train, 0)(noise(50)[0]))
    assert accuracy(name, train, (test[0], (test[1] + 1) % 4)) < 0.2
    assert abs(accuracy(name, noise(300), noise(800, seed=9)) - 0.25) < 0.08


@pytest.mark.parametrize("name", USABLE)
def test_what_teaches_nothing_gives_the_commonest_class(name):
    y = np.array([3] * 5 + [1] * 15)
    test, _ = bars(30)
    for x in (np.full((20, 8, 8, 1), 7, np.uint8), np.zeros((20, 8, 8, 1), np.float32)):
        assert (c.fit_classical(name, x, y, 0)(test) == 1).all()
    assert (c.fit_classical(name, bars(20)[0], np.full(20, 2), 0)(test) == 2).all()


@pytest.mark.parametrize("name", USABLE)
def test_classes_that_were_never_shown_are_never_said(name):
    """Labels need not run from 0, which XGBoost alone would refuse."""
    x, y = bars(300)
    predicted = c.fit_classical(name, x[y % 2 == 1], y[y % 2 == 1], 0)(x)
    assert {*predicted.tolist()} == {1, 3}


@pytest.mark.parametrize("name", ["decision_tree", "gaussian_nb", "logistic_regression"])
def test_float_images_are_the_uint8_ones_over_255(name):
    x, y = bars(200)
    predicted = [c.fit_classical(name, images, y, 0)(images)
                 for images in (x, (x / 255).astype(np.float32))]
    np.testing.assert_array_equal(*predicted)


def test_a_seed_decides():
    train, (x, _) = noise(200), noise(200, seed=5)
    one, again, other = (c.fit_classical("random_forest", *train, seed)(x) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


def test_nearly_constant_images_crash_nothing():
    x = np.zeros((40, 8, 8, 1), np.uint8)
    x[0, 0, 0] = 1
    for name in USABLE:
        assert c.fit_classical(name, x, np.arange(40) % 4, 0)(x).shape == (40,)


def test_boosting_without_a_useful_member_is_constant():
    x = np.zeros((40, 2, 2, 1), np.uint8)
    x[::2] = 255
    y = np.array([0, 0, 1, 1] * 10)  # half of each class is white
    assert len({*c.fit_classical("adaboost", x, y, 0)(x).tolist()}) == 1


def test_another_fault_is_not_taken_for_a_useless_member(monkeypatch):
    monkeypatch.setitem(c.CLASSICAL_CLASSIFIERS, "adaboost",
                        lambda _: c.AdaBoostClassifier(n_estimators=0))
    with pytest.raises(ValueError, match="n_estimators"):
        c.fit_classical("adaboost", *bars(20), 0)


def test_a_missing_xgboost_is_named_with_its_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "xgboost", None)
    monkeypatch.setattr(c.importlib.util, "find_spec", lambda _: None)
    assert not c.is_installed("xgboost") and c.is_installed("lda")
    with pytest.raises(UserError, match=r"pip install 'dpgen_jax\[xgboost\]'"):
        c.fit_classical("xgboost", *bars(20), 0)


def test_an_unknown_name_lists_the_known():
    with pytest.raises(UserError, match="known: adaboost, bagging"):
        c.fit_classical("vgg", *bars(20), 0)


def test_no_warning_reaches_the_user(recwarn):
    for name in USABLE:
        c.fit_classical(name, *noise(60), 0)(noise(10)[0])
    assert not [w for w in recwarn if "sklearn" in str(w.filename)]
