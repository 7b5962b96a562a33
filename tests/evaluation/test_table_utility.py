"""Tables: right scores where the difficulty is known."""

import json
import warnings

import numpy as np
import pytest
from people_table import SPEC, THREE, table
from sklearn.linear_model import LogisticRegression

from dpgen_jax.core.config import Evaluation
from dpgen_jax.core.types import UserError
from dpgen_jax.evaluation import assess
from dpgen_jax.evaluation import marginals as m
from dpgen_jax.evaluation import prediction as models
from dpgen_jax.evaluation.results import Real, Setting, Synthetic, silent

pytestmark = pytest.mark.slow

RATES = ("lr", "adaboost", "bagging", "mlp")
"""The published classifiers, with which most is tested."""


def utility(synthetic, test, real, log=silent, **options):
    """Return the utility of a table of people under these options."""
    metrics = options.pop("metrics", ("gen2real", "real2gen", "real2real", "fidelity"))
    return assess.measured(Real(SPEC, test, real), Synthetic(synthetic),
                           Evaluation(metrics=metrics, **options), log).json()


def leaves(result):
    """Return the measures of likeness that are numbers."""
    return [part for part in result["fidelity"].values() if "mean" in part]


@pytest.fixture(scope="module")
def result():
    return utility(table, table(300, 9), table(700, 8), seeds=2, samples=300)


def test_what_is_easy_is_learned_by_all_and_real_stands_beside_it(result):
    for task in ("gen2real", "real2gen", "real2real"):
        assert tuple(result[task]) == tuple(models.CLASSIFIERS)
        for scores in result[task].values():
            assert scores["auroc"]["mean"] > 0.98 and scores["auprc"]["mean"] > 0.98
            assert scores["accuracy"]["mean"] > 0.85 < scores["balanced_accuracy"]["mean"]
            assert len(scores["auroc"]["values"]) == 2


@pytest.mark.parametrize("name", RATES)
def test_labels_that_mean_nothing_score_a_half(name):
    scores = models.score(name, table(600, 0, signal=0), table(3000, 1, signal=0), 2)
    assert abs(scores.auroc - 0.5) < 0.05 and abs(scores.auprc - 0.5) < 0.06


@pytest.mark.parametrize("name", RATES)
def test_class_one_is_the_positive_one(name):
    x, y = table(300)
    right, wrong = (models.score(name, (x, labels), (x, y), 2).auroc for labels in (y, 1 - y))
    assert right > 0.98 and wrong < 0.02


@pytest.mark.parametrize("name", RATES)
def test_three_classes_are_scored_one_against_the_rest(name):
    train, test = table(300, spec=THREE), table(150, 1, spec=THREE)
    scores = models.score(name, train, test, 3)
    floor = {"lr": 0.75}.get(name, 0.9)  # no line parts the middle class from the two outer ones
    assert scores.auroc > floor and scores.accuracy > floor - 0.1
    relabelled = models.score(name, train, (test[0], (test[1] + 1) % 3), 3)
    assert relabelled.auroc < 0.6 and relabelled.accuracy < 0.2


def test_macro_scores_are_the_mean_over_classes_that_the_test_rows_have():
    (x, y), (x_test, y_test) = table(600, 0, 1, THREE), table(300, 1, 1, THREE)
    two = y_test < 2
    whole = models.score("lr", (x, y), (x_test, y_test), 3)
    part = models.score("lr", (x, y), (x_test[two], y_test[two]), 3)
    assert 0.5 < part.auroc < 1 and part.auroc != whole.auroc


def test_settings_are_the_published_ones():
    lr = models.CLASSIFIERS["lr"](2, 0)
    assert (lr.solver, lr.l1_ratio, lr.class_weight) == ("liblinear", 1, {0: 1, 1: 350})
    boosting, bagging, mlp = (models.CLASSIFIERS[n](2, 0) for n in ("adaboost", "bagging", "mlp"))
    assert (boosting.n_estimators, bagging.n_estimators) == (200, 100)
    assert all(isinstance(e.estimator, LogisticRegression) and e.estimator.l1_ratio == 0
               for e in (boosting, bagging))
    assert (mlp.hidden_layer_sizes, mlp.activation, mlp.solver) == ((18,) * 3, "tanh", "adam")


def test_the_weight_of_class_one_moves_the_decision():
    x, y = table(400, signal=0.5)
    weighted = models.score("lr", (x, y), (x, y), 2)
    assert weighted.accuracy < 0.6 and weighted.auroc > 0.6  # nearly all rows are called class 1
    assert weighted.balanced_accuracy > 0.6  # the line is drawn where it is of use


def test_features_are_standardised_with_the_training_rows():
    (x, y), (x_test, y_test) = table(300, signal=1), table(300, 1, signal=1)
    scale, shift = np.linspace(1e-4, 0.5, 6), 0.3
    plain, moved = (models.score("lr", (x * a + b, y), (x_test * a + b, y_test), 2)
                    for a, b in ((1, 0), (scale, shift)))
    assert moved.auroc == pytest.approx(plain.auroc, abs=1e-3) and plain.auroc > 0.7
    off_centre = models.score("mlp", (x, y), (x_test + 5, y_test), 2)
    assert off_centre.accuracy < 0.7  # the test rows' own mean is not taken out


def test_each_task_trains_and_tests_on_its_own_rows_and_trains_once(monkeypatch):
    fitted, judged = [], []

    def fit(name, train, classes, seed):
        fitted.append((seed, train[0].tobytes(), len(train[1])))
        return len(fitted) - 1

    def judge(model, test, classes):
        judged.append((model, test[0].tobytes()))
        return models.Scores(0.5, 0.5, 0.5, 0.5, 0.5)

    monkeypatch.setattr(models, "fit_model", fit)
    monkeypatch.setattr(models, "judge_models", judge)
    test, real = table(30, 9), table(70, 8)
    utility(table, test, real, seeds=2, samples=40, classifiers=("lr",))
    draws = [table(40, seed)[0].astype(float).tobytes() for seed in range(2)]
    tested, picked = test[0].astype(float).tobytes(), fitted[2][1]
    assert fitted == [(0, draws[0], 40), (1, draws[1], 40), (0, picked, 40), (1, picked, 40)]
    assert judged == [(0, tested), (1, tested), (2, draws[0]), (3, draws[1]), (2, tested),
                      (3, tested)]
    rows = np.frombuffer(picked).reshape(40, 6)
    assert {row.tobytes() for row in rows} <= {row.tobytes() for row in real[0].astype(float)}


@pytest.mark.parametrize("name", RATES)
def test_one_class_of_synthetic_rows_is_a_constant_score_and_is_noted(name):
    test_x, test_y = table(400, 9)
    test_y = np.where(np.arange(400) < 360, 0, test_y)  # about 5 % of class 1
    result = utility(lambda n, seed: (table(n, seed)[0], np.zeros(n, np.int32)), (test_x, test_y),
                     table(50, 8), seeds=1, samples=50, classifiers=(name,))
    scores = result["gen2real"][name]
    assert scores["auroc"]["mean"] == 0.5
    assert scores["auprc"]["mean"] == pytest.approx(test_y.mean())
    assert scores["accuracy"]["mean"] == pytest.approx(1 - test_y.mean())
    assert result["real2gen"][name]["auroc"]["mean"] == 0.5
    assert result["notes"] == ["gen2real, seed 0: no training row has class yes",
                               "real2gen, seed 0: no test row has class yes"]


def test_boosting_rows_that_tell_nothing_is_a_constant_score():
    x, y = np.full((40, 6), 0.5), np.resize([0, 1], 40)
    assert models.score("adaboost", (x, y), table(60), 2).auroc == 0.5


def test_no_warning_reaches_the_user_and_scores_repeat():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, again = ([models.score(name, table(150, signal=0), table(60), 2, seed=3)
                         for name in RATES] for _ in range(2))
    assert first == again


def test_metrics_are_json_and_say_what_epsilon_does_not_cover(result):
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    seen = result["not_covered_by_epsilon"]
    assert {"gen2real.lr.auprc", "gen2real.lr.f1", "fidelity.two_way_tvd",
            "fidelity.query_error"} <= set(seen)
    assert len(seen) == 1 + 3 * 7 * 5 + 7 + 1 + 4 + 5 and not any("schema" in name for name in seen)
    sizes = [result[name] for name in ("n_samples", "n_test", "n_real", "seeds")]
    assert sizes == [300, 300, 300, 2] and result["setting"]["name"] == "full"
    assert set(result["seconds"]) == {"sampling", *models.CLASSIFIERS, "fidelity", "losses"}
    assert result["notes"] == [] and result["schema_violations"]["mean"] == 0


def test_without_real_rows_there_is_no_bound_and_no_floor():
    result = utility(table, table(50, 9), None, seeds=1, samples=60, classifiers=("lr",))
    assert "real2real" not in result and "real2gen" not in result
    assert all(score["floor"] is None for score in leaves(result))
    assert result["n_real"] == 0


@pytest.mark.parametrize(("x", "y", "message"), [
    (np.zeros((4, 5)), np.zeros(4, int), r"the schema needs \[n, 6\]"),
    (np.zeros((0, 6)), np.zeros(0, int), "n at least 1"),
    (np.zeros((4, 6)), np.zeros(3, int), "one label per record"),
    (np.zeros((4, 6)), np.zeros(4), "expected integers 0..1"),
    (np.zeros((4, 6)), np.full(4, 2), r"0\.\.1"),
    (np.full((4, 6), np.nan), np.zeros(4, int), "generator diverged")])
def test_malformed_rows_are_refused(x, y, message):
    with pytest.raises(UserError, match=message):
        utility(lambda n, seed: (x, y), table(9), None, seeds=1, samples=4)


def test_unknown_names_and_no_seeds_are_refused():
    with pytest.raises(UserError, match="unknown classifier 'cnn'; known: lr, adaboost"):
        models.score("cnn", table(9), table(9), 2)
    with pytest.raises(UserError, match="seeds is 0"):
        utility(table, table(9), None, seeds=0)


def test_real_data_are_nearer_to_themselves_than_another_generator_is(result):
    for score in leaves(result):  # the same law: the floor, and no more
        assert score["mean"] < 2 * score["floor"] + 0.02
    other = utility(lambda n, seed: table(n, seed, signal=0), table(300, 9), table(700, 8), seeds=1,
                    samples=400, classifiers=("lr",), metrics=("gen2real", "fidelity"))
    assert other["fidelity"].pop("pmse")  # sees no way in which features go together
    assert other["fidelity"]["far_off"][0].startswith("mark: ")
    assert not result["fidelity"]["far_off"]
    for score in leaves(other):
        assert score["mean"] > 1.4 * score["floor"] > 0
    by_column = other["fidelity"]["one_way_tvd"]["columns"]
    assert set(by_column) == {"age", "sex", "pay", "mark", "ill"}
    assert by_column["age"]["mean"] > 0.4 > 0.1 > by_column["sex"]["mean"]
    mean = np.mean([score["floor"] for score in by_column.values()])
    assert other["fidelity"]["one_way_tvd"]["floor"] == pytest.approx(mean)


def test_both_sides_of_the_floor_have_as_many_rows():
    x, y = table(400, 0)
    real, test = table(80, 8), table(300, 9)
    result = utility(lambda n, seed: (x, y), test, real, seeds=1, samples=400,
                     metrics=("fidelity",))
    expected = m.likeness(Real(SPEC, test), Synthetic(lambda n, seed: (x[:80], y[:80])),
                          Setting("full", "", 80, 1)).findings
    for one in expected:
        if len(one.key) == 2:
            assert result["fidelity"][one.name]["mean"] == pytest.approx(one.value.mean)


def test_the_fast_setting_says_so_and_fidelity_may_be_left_out():
    calls = []
    result = utility(lambda n, seed: calls.append((n, seed)) or table(n, seed),
                     table(50, 9), None, fast=True, metrics=())
    assert calls == [(2500, 0), (2500, 1)] and result["setting"]["name"] == "fast"
    assert "a fast evaluation" in result["setting"]["text"]
    assert "fidelity" not in result and result["not_covered_by_epsilon"] == [
        "setting.text", "n_test", "n_real", "notes"]


def test_a_line_is_logged_for_each_classifier_and_each_draw():
    lines = []
    utility(table, table(50, 9), None, lines.append, seeds=2, samples=60,
            classifiers=("lr", "mlp"))
    assert [line.split(",")[0].split(":")[0] for line in lines] == [
        "lr", "mlp", "detection", "detection"]
