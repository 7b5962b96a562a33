"""Tables: right scores where the difficulty is known, distances by hand, and broken cells found."""

import dataclasses
import json
import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from dpgen_jax import evaluate
from dpgen_jax.data import transform
from dpgen_jax.evaluation import marginals as m
from dpgen_jax.evaluation import tables as t
from dpgen_jax.types import Column, TableSpec, UserError

SPEC = TableSpec((
    Column("age", "integer", 0, 100), Column("sex", "categorical", categories=("f", "m")),
    Column("pay", "continuous", -10.0, 30.0, nullable=True),
    Column("mark", "ordinal", categories=("low", "mid", "high"))),
    Column("ill", "categorical", categories=("no", "yes")), 4)
THREE = dataclasses.replace(SPEC, label=Column("kind", "categorical", categories=("a", "b", "c")))
RATES = ("lr", "adaboost", "bagging", "mlp")


def table(n, seed=0, signal=6.0, spec=SPEC):
    """Rows whose class moves the age and the mark; signal 0: labels that mean nothing."""
    rng = np.random.default_rng(seed)
    y = np.resize(np.arange(spec.classes), n).astype(np.int32)
    shift = signal * (y - (spec.classes - 1) / 2)
    age = np.clip(np.round(50 + 6 * shift + 8 * rng.normal(size=n)), 0, 100)
    pay = np.where(rng.random(n) < 0.2, np.nan, rng.uniform(-10, 30, n))
    mark = np.clip(np.round(1 + shift / 3 + 0.2 * rng.normal(size=n)), 0, 2)
    codes = np.stack([age, rng.integers(0, 2, n), pay, mark], 1)
    return transform.encode(spec, codes).astype(np.float32), y


@pytest.fixture(scope="module")
def found():
    return t.utility(lambda n, seed: table(n, seed), table(300, 9), table(700, 8), SPEC, seeds=2,
                     n_samples=300)


def test_what_is_easy_is_learned_by_all_and_real_stands_beside_it(found):
    for task in ("gen2real", "real2gen", "real2real"):
        assert tuple(found[task]) == RATES
        for scores in found[task].values():
            assert scores["auroc"]["mean"] > 0.98 and scores["auprc"]["mean"] > 0.98
            assert scores["accuracy"]["mean"] > 0.85
            assert len(scores["auroc"]["values"]) == 2


@pytest.mark.parametrize("name", RATES)
def test_labels_that_mean_nothing_score_a_half(name):
    scores = t.score(name, table(600, 0, signal=0), table(3000, 1, signal=0), 2)
    assert abs(scores.auroc - 0.5) < 0.05 and abs(scores.auprc - 0.5) < 0.06


@pytest.mark.parametrize("name", RATES)
def test_class_one_is_the_positive_one(name):
    x, y = table(300)
    right, wrong = (t.score(name, (x, labels), (x, y), 2).auroc for labels in (y, 1 - y))
    assert right > 0.98 and wrong < 0.02


@pytest.mark.parametrize("name", RATES)
def test_three_classes_are_scored_one_against_the_rest(name):
    train, test = table(300, spec=THREE), table(150, 1, spec=THREE)
    scores = t.score(name, train, test, 3)
    floor = {"lr": 0.75}.get(name, 0.9)  # no line parts the middle class from the two outer ones
    assert scores.auroc > floor and scores.accuracy > floor - 0.1
    relabelled = t.score(name, train, (test[0], (test[1] + 1) % 3), 3)
    assert relabelled.auroc < 0.6 and relabelled.accuracy < 0.2


def test_macro_scores_are_the_mean_over_classes_that_the_test_rows_have():
    (x, y), (x_test, y_test) = table(600, 0, 1, THREE), table(300, 1, 1, THREE)
    two = y_test < 2
    whole = t.score("lr", (x, y), (x_test, y_test), 3)
    part = t.score("lr", (x, y), (x_test[two], y_test[two]), 3)
    assert 0.5 < part.auroc < 1 and part.auroc != whole.auroc


def test_settings_are_the_published_ones():
    lr = t.CLASSIFIERS["lr"](2, 0)
    assert (lr.solver, lr.l1_ratio, lr.class_weight) == ("liblinear", 1, {0: 1, 1: 350})
    boosting, bagging, mlp = (t.CLASSIFIERS[n](2, 0) for n in ("adaboost", "bagging", "mlp"))
    assert (boosting.n_estimators, bagging.n_estimators) == (200, 100)
    assert all(isinstance(e.estimator, LogisticRegression) and e.estimator.l1_ratio == 0
               for e in (boosting, bagging))
    assert (mlp.hidden_layer_sizes, mlp.activation, mlp.solver) == ((18,) * 3, "tanh", "adam")


def test_the_weight_of_class_one_moves_the_decision():
    x, y = table(400, signal=0.5)
    weighted = t.score("lr", (x, y), (x, y), 2)
    assert weighted.accuracy < 0.6 and weighted.auroc > 0.6  # nearly all rows are called class 1


def test_features_are_standardised_with_the_training_rows():
    (x, y), (x_test, y_test) = table(300, signal=1), table(300, 1, signal=1)
    scale, shift = np.linspace(1e-4, 0.5, 6), 0.3
    plain, moved = (t.score("lr", (x * a + b, y), (x_test * a + b, y_test), 2)
                    for a, b in ((1, 0), (scale, shift)))
    assert moved.auroc == pytest.approx(plain.auroc, abs=1e-3) and plain.auroc > 0.7
    off_centre = t.score("mlp", (x, y), (x_test + 5, y_test), 2)
    assert off_centre.accuracy < 0.7  # the test rows' own mean is not taken out


def test_each_task_trains_and_tests_on_its_own_rows(monkeypatch):
    seen = []

    def score(name, train, test, classes, seed):
        seen.append((seed, train[0].tobytes(), test[0].tobytes(), len(train[1])))
        return t.Scores(0.5, 0.5, 0.5)

    monkeypatch.setattr(t, "score", score)
    test, real = table(30, 9), table(70, 8)
    t.utility(lambda n, seed: table(n, seed), test, real, SPEC, seeds=2, n_samples=40,
              classifiers=("lr",))
    assert len(seen) == 6 and {n for *_, n in seen} == {40}
    draws = [table(40, seed)[0].astype(float).tobytes() for seed in range(2)]
    held = test[0].astype(float).tobytes()
    assert [row[:3] for row in seen[:2]] == [(0, draws[0], held), (1, draws[1], held)]
    picked = seen[2][1]
    assert [row[1:3] for row in seen[2:]] == [(picked, draws[0]), (picked, draws[1]),
                                             (picked, held), (picked, held)]
    rows = np.frombuffer(picked).reshape(40, 6)
    assert {row.tobytes() for row in rows} <= {row.tobytes() for row in real[0].astype(float)}


@pytest.mark.parametrize("name", RATES)
def test_one_class_of_synthetic_rows_is_a_constant_score_and_is_noted(name):
    test_x, test_y = table(400, 9)
    test_y = np.where(np.arange(400) < 360, 0, test_y)  # about 5 % of class 1
    made = t.utility(lambda n, seed: (table(n, seed)[0], np.zeros(n, np.int32)), (test_x, test_y),
                     table(50, 8), SPEC, seeds=1, n_samples=50, classifiers=(name,))
    scores = made["gen2real"][name]
    assert scores["auroc"]["mean"] == 0.5
    assert scores["auprc"]["mean"] == pytest.approx(test_y.mean())
    assert scores["accuracy"]["mean"] == pytest.approx(1 - test_y.mean())
    assert made["real2gen"][name]["auroc"]["mean"] == 0.5
    assert made["notes"] == ["gen2real, seed 0: no training row has class yes",
                             "real2gen, seed 0: no test row has class yes"]


def test_boosting_rows_that_tell_nothing_is_a_constant_score():
    x, y = np.full((40, 6), 0.5), np.resize([0, 1], 40)
    assert t.score("adaboost", (x, y), table(60), 2).auroc == 0.5


def test_no_warning_reaches_the_user_and_scores_repeat():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, again = ([t.score(name, table(150, signal=0), table(60), 2, seed=3)
                         for name in RATES] for _ in range(2))
    assert first == again


def test_metrics_are_json_and_say_what_epsilon_does_not_cover(found):
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    seen = found["not_covered_by_epsilon"]
    assert "gen2real.lr.auprc" in seen and "fidelity.two_way_tvd" in seen
    assert len(seen) == 3 * 4 * 3 + 3 and not any("schema" in name for name in seen)
    assert (found["n_samples"], found["n_test"], found["seeds"]) == (300, 300, 2)
    assert found["notes"] == [] and found["schema_violations"]["mean"] == 0


def test_without_real_rows_there_is_no_bound_and_no_floor():
    made = t.utility(table, table(50, 9), None, SPEC, seeds=1, n_samples=60, classifiers=("lr",))
    assert "real2real" not in made and "real2gen" not in made
    assert made["fidelity"]["one_way_tvd"]["floor"] is None


@pytest.mark.parametrize(("x", "y", "message"), [
    (np.zeros((4, 5)), np.zeros(4, int), r"the schema needs \[n, 6\]"),
    (np.zeros((0, 6)), np.zeros(0, int), "n at least 1"),
    (np.zeros((4, 6)), np.zeros(3, int), "one integer a row"),
    (np.zeros((4, 6)), np.zeros(4), "one integer a row"),
    (np.zeros((4, 6)), np.full(4, 2), r"0\.\.1"),
    (np.full((4, 6), np.nan), np.zeros(4, int), "generator diverged")])
def test_malformed_rows_are_refused(x, y, message):
    with pytest.raises(UserError, match=message):
        t.utility(lambda n, seed: (x, y), table(9), None, SPEC, seeds=1, n_samples=4)


def test_unknown_names_and_no_seeds_are_refused():
    with pytest.raises(UserError, match="unknown classifier 'cnn'; known: lr, adaboost"):
        t.score("cnn", table(9), table(9), 2)
    with pytest.raises(UserError, match="seeds must be at least 1"):
        t.utility(table, table(9), None, SPEC, seeds=0)


# Marginals.

A = Column("a", "categorical", categories=("p", "q"), nullable=True)
B = Column("b", "continuous", 0.0, 20.0)
NULL = np.nan


def test_distances_by_hand():
    left = np.array([[0, 0.5], [0, 0.9], [1, 19.5], [NULL, 20.0]])
    right = np.array([[0, 0.1], [1, 1.5], [1, 19.0], [1, 19.0]])
    # a: 1/2 1/4 1/4 against 1/4 3/4 0;  b: 2 of the first bin, 2 of the last against 1, 1, 2
    np.testing.assert_allclose(m.one_way_tvd(left, right, (A, B)), [0.5, 0.25])
    # joint: p0 1/2, q19 1/4, null19 1/4 against p0 1/4, q1 1/4, q19 1/2
    assert m.two_way_tvd(left, right, (A, B)) == pytest.approx(0.5)
    assert m.two_way_tvd(left, left, (A, B)) == 0
    np.testing.assert_allclose(m.one_way_tvd(left, right[[0, 0, 1, 1, 2, 2, 3, 3]], (A, B)),
                               [0.5, 0.25])  # other row counts


def test_joint_bins_see_what_single_bins_do_not():
    same = np.array([[0, 1.5], [1, 9.5]] * 3)
    crossed = np.array([[0, 9.5], [1, 1.5]] * 3)
    np.testing.assert_allclose(m.one_way_tvd(same, crossed, (A, B)), 0)
    assert m.two_way_tvd(same, crossed, (A, B)) == 1


def test_null_is_no_number():
    column = dataclasses.replace(B, nullable=True)
    for place in (0.0, 10.0, 20.0):
        assert m.one_way_tvd(np.array([[NULL]]), np.array([[place]]), (column,)) == [1]


def test_bounds_may_be_one_number():
    column = Column("c", "integer", 5, 5)
    five, seven = np.full((3, 1), 5.0), np.full((3, 1), 7.0)
    assert m.one_way_tvd(five, five, (column,)) == [0]
    assert m.schema_violations(five, (column,)) == 0 and m.schema_violations(seven, (column,)) == 1


def test_pairs_are_capped_with_a_fixed_seed(monkeypatch):
    assert len(m._pairs(45)) == 990 and len(m._pairs(46)) == m.MAX_PAIRS
    assert m._pairs(46) == m._pairs(46) and len(set(m._pairs(46))) == m.MAX_PAIRS
    monkeypatch.setattr(m, "MAX_PAIRS", 4)
    entry = m.fidelity([table(50)], table(50, 1), None, SPEC)["two_way_tvd"]
    assert (entry["pairs"], entry["all_pairs"]) == (4, 10)


def test_correlation_difference_by_hand():
    line = np.linspace(0, 1, 50)
    up, down = np.stack([line, line], 1), np.stack([line, 1 - line], 1)
    assert m.correlation_difference(up, down) == pytest.approx(2)
    assert m.correlation_difference(up, up) == 0
    stuck = np.full_like(up, 0.1)
    assert m.correlation_difference(stuck, up) == pytest.approx(1)
    assert m.correlation_difference(up, stuck) == 0
    three = np.column_stack([up, np.full(50, 0.1)])
    assert m.correlation_difference(np.column_stack([down, line]), three) == pytest.approx(2)


def test_real_data_are_nearer_to_themselves_than_another_generator_is(found):
    for score in found["fidelity"].values():  # the same law: the floor, and no more
        assert score["mean"] < 2 * score["floor"] + 0.02
    other = t.utility(lambda n, seed: table(n, seed, signal=0), table(300, 9), table(700, 8), SPEC,
                      seeds=1, n_samples=400, classifiers=("lr",), tasks=("gen2real",))
    for score in other["fidelity"].values():
        assert score["mean"] > 1.5 * score["floor"] > 0
    by_column = other["fidelity"]["one_way_tvd"]["columns"]
    assert set(by_column) == {"age", "sex", "pay", "mark", "ill"}
    assert by_column["age"]["mean"] > 0.4 > 0.1 > by_column["sex"]["mean"]
    mean = np.mean([score["floor"] for score in by_column.values()])
    assert other["fidelity"]["one_way_tvd"]["floor"] == pytest.approx(mean)


def test_both_sides_of_the_floor_have_as_many_rows():
    drawn = []

    def synthetic(n, seed):
        drawn.append(table(n, seed))
        return drawn[-1]

    real, test = table(80, 8), table(300, 9)
    made = t.utility(synthetic, test, real, SPEC, seeds=1, n_samples=400, classifiers=())
    expected = m.fidelity([(drawn[0][0][:80], drawn[0][1][:80])], test, None, SPEC)
    for name, score in made["fidelity"].items():
        assert score["mean"] == pytest.approx(expected[name]["mean"])


@pytest.mark.parametrize(("column", "bad"), [
    (0, -1), (0, 101), (0, 50.5), (0, NULL), (0, np.inf), (1, 2), (1, 0.5), (1, -1), (1, NULL),
    (2, 30.001), (2, -10.001), (2, -np.inf), (3, 3), (3, 1.5), (3, NULL), (4, 2), (4, NULL)])
def test_each_broken_cell_is_counted(column, bad):
    good = m.cells(SPEC, table(20))
    assert m.schema_violations(good, m.columns(SPEC)) == 0
    good[7, column] = bad
    assert m.schema_violations(good, m.columns(SPEC)) == pytest.approx(1 / good.size)


def test_bounds_and_null_where_declared_are_no_violation():
    rows = np.array([[0, 0, -10, 0, 0], [100, 1, 30, 2, 1], [7, 1, NULL, 1, 1]], float)
    assert m.schema_violations(rows, m.columns(SPEC)) == 0
    x = transform.encode(SPEC, rows[:, :4]).astype(np.float32)
    np.testing.assert_array_equal(m.cells(SPEC, (x, rows[:, 4])), rows)


# The command.

@dataclasses.dataclass
class Held:
    spec: TableSpec = SPEC
    name: str = "people"
    x_train, y_train = table(120, 8)
    x_test, y_test = table(100, 9)


@dataclasses.dataclass
class Made:
    spec: TableSpec = SPEC
    privacy = dict.fromkeys(("method", "preset", "epsilon", "delta", "relation", "unit",
                             "noise_source"))
    encoded = staticmethod(table)


@pytest.fixture
def held(monkeypatch):
    from dpgen_jax import data
    from dpgen_jax.run import bundle

    held = Held()
    monkeypatch.setattr(data, "load", lambda spec, **options: held)
    monkeypatch.setattr(bundle, "load", lambda source: Made())
    return held


def run(tmp_path, *more):
    (tmp_path / "release").mkdir(exist_ok=True)
    evaluate.command([str(tmp_path), "--dataset", "csv:people.csv", "--schema", "people.yaml",
                      "--samples", "100", "--seeds", "1", *more])


def test_the_command_writes_and_shows_a_table(held, tmp_path, capsys):
    run(tmp_path, "--classifiers", "lr", "adaboost")
    found = json.loads((tmp_path / "evaluation" / "metrics.json").read_text())
    assert found["dataset"] == "people" and set(found["gen2real"]) == {"lr", "adaboost"}
    printed = capsys.readouterr().out
    row = next(line for line in printed.splitlines() if line.startswith("lr       auroc"))
    assert "gen2real" in row and "real2real" in row
    assert "one way tvd" in printed and "real against real" in printed
    assert "break the schema: 0\n" in printed and "not covered by epsilon" in printed


def test_the_command_refuses_what_does_not_fit_in_one_line(held, tmp_path):
    with pytest.raises(UserError, match="unknown classifier 'cnn'"):
        run(tmp_path, "--classifiers", "cnn")
    held.x_test = None
    with pytest.raises(UserError, match="--test-csv"):
        run(tmp_path)
    columns = (*SPEC.columns[:3], dataclasses.replace(SPEC.columns[3], nullable=True))
    held.spec = dataclasses.replace(SPEC, columns=columns)
    with pytest.raises(UserError, match="differ from column 'mark' on") as error:
        run(tmp_path)
    assert "\n" not in str(error.value)
