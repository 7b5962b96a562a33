"""Tables without a label, columns that are predicted, subgroups, and what is said of them."""

import dataclasses

import numpy as np
import pytest
from people_table import SPEC, table

from dpgen_jax.core.config import Evaluation, from_json, to_json
from dpgen_jax.core.types import NO_LABEL, Column, TableSpec, UserError
from dpgen_jax.data.table import constraints, transform
from dpgen_jax.evaluation import assess, assessment, marginals, prediction
from dpgen_jax.evaluation.assessment import read
from dpgen_jax.evaluation.results import Finding, Real, Score, Setting, Synthetic
from dpgen_jax.release import contents

UNLABELLED = dataclasses.replace(SPEC, label=NO_LABEL, targets=("age", "sex"))
FEW = Evaluation(seeds=1, samples=200, metrics=("gen2real", "real2real", "fidelity"))


@pytest.fixture
def cheap(monkeypatch):
    """One model a target."""
    for name in ("COMMON", "REGRESSIONS"):
        models = getattr(prediction, name)
        kept = {"COMMON": "logistic_regression", "REGRESSIONS": "ridge_regression"}[name]
        monkeypatch.setattr(prediction, name, {kept: models[kept]})


def unlabelled(n, seed=0):
    x, y = table(n, seed)
    return x, np.zeros_like(y)


def test_a_table_without_a_label_is_measured(cheap):
    found = assess.measured(Real(UNLABELLED, unlabelled(150, 9), unlabelled(200, 8)),
                            Synthetic(unlabelled), FEW)
    result = found.json()
    assert not {*result} & {"gen2real", "real2real", "label_shares"}
    assert [*result["fidelity"]["one_way_tvd"]["columns"]] == ["age", "sex", "pay", "mark"]
    assert {"pmse", "detection_auroc", "two_way_tvd"} <= {*result["fidelity"]}
    age, sex = result["targets"]["age"], result["targets"]["sex"]
    # the age follows from the mark, which has the class in it; nothing says the sex
    assert age["gen2real"]["ridge_regression"]["r2"]["mean"] > 0.8
    assert age["real2real"]["ridge_regression"]["r2"]["mean"] > 0.8
    assert abs(sex["gen2real"]["logistic_regression"]["auroc"]["mean"] - 0.5) < 0.15
    assert "targets" in result["not_covered_by_epsilon"]
    assert ("(age from the other columns) reaches 0.85 R\u00b2 on real ones (that of "
            "real records 0.85)") in assessment.sentence(found)


def test_a_spec_without_a_label_is_kept_and_writes_no_column():
    assert from_json(TableSpec, to_json(UNLABELLED)) == UNLABELLED
    assert contents.spec(to_json(UNLABELLED)).targets == ("age", "sex")
    assert "targets" not in to_json(SPEC)
    assert (UNLABELLED.classes, UNLABELLED.class_names) == (1, ())
    x, y = unlabelled(3)
    header, rows = constraints.written_cells(UNLABELLED, transform.decode(UNLABELLED, x), y)
    assert header == ["age", "sex", "pay", "mark"] and len(rows[0]) == 4


def test_a_target_is_not_among_its_own_features():
    x, y = table(50)
    for column in SPEC.columns:
        features, values = prediction.Target(SPEC, column).problem((x, y))
        known = ~np.isnan(transform.decode(SPEC, x)[:, SPEC.columns.index(column)])
        assert features.shape == (known.sum(), x.shape[1] - column.width + 2)
        assert len(values) == known.sum() and np.isfinite(values).all()
    mark = SPEC.columns[3]
    assert set(prediction.Target(SPEC, mark).problem((x, y))[1]) <= {0, 1, 2}
    assert prediction.named_targets(SPEC, ["ill"]) == []  # the label has its own part
    with pytest.raises(UserError, match="--targets agee: no such column, did you mean 'age'"):
        prediction.named_targets(SPEC, ["agee"])


def parted(by, draw, test, real=None):
    """Return the assessment of subgroups."""
    part = prediction.subgroups(Real(SPEC, test, real), Synthetic(lambda n, seed: draw), Setting(
        "full", "", len(test[1]), 1), prediction.named_groups(SPEC, by))
    return assessment.Assessment.of([part], {})


def test_subgroups_are_those_that_were_named_and_small_ones_are_not_judged():
    test, real = table(400, 9), table(400, 8)
    x, y = table(400, 1)
    women = transform.decode(SPEC, x)[:, 1] == 0
    kept = np.flatnonzero(women | (np.arange(400) % 40 == 0))  # hardly any men are made
    found = parted(["sex"], (x[kept], y[kept]), test, real)
    groups = found.json()["subgroups"]
    by_name = {group["group"]: group for group in groups}
    assert {*by_name} == {"f", "m"} and all(group["by"] == "sex" for group in groups)
    assert by_name["f"]["synthetic_share"]["mean"] > 0.9 > 0.6 > by_name["f"]["real_share"]
    assert by_name["f"]["gen2real"]["mean"] > 0.95 < by_name["f"]["real2real"]["mean"]
    floor = by_name["f"]["two_way_tvd"]["floor"]
    assert by_name["f"]["two_way_tvd"]["mean"] == pytest.approx(floor, rel=0.4)
    error = by_name["f"]["query_error"]
    assert 0 < error["mean"] < 3 * error["floor"] and "query_error" not in by_name["m"]
    assert "too few synthetic rows" in by_name["m"]["note"] and "two_way_tvd" not in by_name["m"]
    assert "the subgroups" in assessment.sentence(found)

    few = (test[0][:40], test[1][:40])
    crossed = parted(["sex, ill"], (x, y), few).json()["subgroups"]
    assert len(crossed) == 4 and sum(group["n_test"] for group in crossed) == 40
    for group in crossed:
        assert "too few held-out rows" in group["note"] and "real_share" not in group


def test_a_number_is_parted_into_quarters_and_null(monkeypatch):
    monkeypatch.setattr(prediction._Predicted, "of", lambda *_: None)
    test = table(400, 9)
    groups = parted(["pay"], table(50), test).json()["subgroups"]
    assert sum(group["n_test"] for group in groups) == 400 and len(groups) == 5
    null = next(group for group in groups if group["group"] == "pay null")
    assert null["n_test"] == np.isnan(transform.decode(SPEC, test[0])[:, 2]).sum()


@pytest.mark.parametrize(("text", "match"), [
    ("sexx", "--by sexx: no such column 'sexx', did you mean 'sex'"),
    ("sex,agee", "no such column 'agee', did you mean 'age'"),
    ("sex,sex", "a column is named twice"), ("", "no such column ''")])
def test_a_wrong_subgroup_is_one_clear_line(text, match):
    with pytest.raises(UserError, match=match):
        prediction.named_groups(SPEC, [text])


def test_shares_are_wrong_where_they_are_off_by_more_than_chance():
    def shares(ones, n, real_ones, m):
        draw, test = ((np.zeros((k, 6)), np.repeat([1, 0], [part, k - part]))
                      for k, part in ((n, ones), (m, real_ones)))
        return [share["wrong"] for share in marginals.label_shares([draw], test, SPEC)]

    assert shares(500, 1000, 200, 1000) == [True, True]
    assert shares(210, 1000, 200, 1000) == [False, False]
    assert shares(20, 1000, 2, 1000) == [False, True]  # rare, and ten times as many
    assert shares(4, 100, 2, 100) == [False, False]  # twice as many, of which chance is enough


def test_a_column_that_is_far_off_is_named_with_its_worst_values():
    columns = SPEC.columns[:2]
    real = np.stack([np.repeat([10.0, 90.0], 50), np.resize([0, 1], 100)], 1)
    made = real.copy()
    made[:, 0] = 50.0
    distances = [Finding((column.name,), Score(float(mean)), Score(0.01)) for column, mean in zip(
        columns, marginals.one_way_tvd(made, real, columns), strict=True)]
    (said,) = marginals.far_off([made], real, columns, distances)
    assert said == (
        "age: 100 % of the rows would have to move (among real ones 1 %). Too many: 50 to 54 "
        "(100 %, real 0 %). Too few: 10 to 14 (0 %, real 50 %), 90 to 94 (0 %, real 50 %).")


def test_the_line_between_classes_is_drawn_by_the_training_rows():
    line = prediction._line(np.array([0.1, 0.2, 0.3, 0.9]), np.array([0, 0, 1, 1]))
    assert line == pytest.approx(0.25)
    assert prediction._line(np.array([0.1, 0.2]), np.array([0, 0])) == 0.5


def test_a_verdict_speaks_of_what_can_be_kept():
    def said(synthetic, real, metric="auroc"):
        return assessment.sentence(read({
            task: {"lr": {metric: {"mean": score, "std": 0.0}}}
            for task, score in (("gen2real", synthetic), ("real2real", real))}))

    best = "best model of synthetic records (weighted logistic regression) reaches"
    assert said(0.81, 0.9) == f"The {best} 0.81 AUROC on real ones (that of real records 0.90)."
    assert said(0.5, 0.9).startswith(f"Nothing can be predicted: the {best} 0.50 AUROC")
    assert said(0.5, 0.51).startswith("There is nothing to keep: the best model of real records")
    target = {"pay": {"gen2real": {name: {"r2": {"mean": score}} for name, score in (
        ("ridge", -3.0), ("forest", 0.4))}, "real2real": {"ridge": {"r2": {"mean": 0.8}}}}}
    assert assessment.sentence(read({"targets": target})) == (
        "The best model of synthetic records (pay from the other columns) reaches 0.40 "
        "R\u00b2 on real ones (that of real records 0.80).")
    assert assessment.sentence(read({})) == "" and assessment.numbers(read({})) == []


def test_bins_have_the_names_of_what_lies_in_them():
    age, ordinal = Column("age", "integer", 0, 100), SPEC.columns[3]
    assert marginals.bin_names(age)[:2] == ["0 to 4", "5 to 9"]
    assert marginals.bin_names(age)[-2:] == ["95 to 100", "null"]
    assert marginals.bin_names(ordinal) == ["low", "mid", "high", "null"]
    for column in (age, Column("years", "integer", 1, 16), Column("x", "integer", -3, 4)):
        names = marginals.bin_names(column)
        for value in range(int(column.low), int(column.high) + 1):
            place = int(np.argmax(marginals.bin_shares(np.array([float(value)]), column)))
            low, *high = map(int, names[place].split(" to "))
            assert low <= value <= (high or [low])[0], (column, value, names[place])
