"""The comparison marks a best only where runs compare, and says why where they do not."""

import copy
import math

import pytest
import report_examples as examples
from reading import Reading

from dpgen_jax.core.types import UserError
from dpgen_jax.evaluation import figures
from dpgen_jax.evaluation import report as report_page
from dpgen_jax.evaluation.assessment import read


def entry(name, better=0.0, statement=None, **changes):
    metrics = copy.deepcopy(examples.image_metrics(**changes))
    for scores in (*metrics["gen2real"].values(), metrics["average"]["gen2real"]):
        scores["accuracy"]["mean"] += better
    metrics["fidelity"]["fid_features"]["mean"] -= 100 * better
    return report_page.Entry(name, read(metrics), examples.privacy(**(statement or {})))


GOOD, WORSE = entry("good", 0.05), entry("worse")


def test_the_best_of_comparable_runs_is_marked():
    page = Reading(report_page.compare([GOOD, WORSE]))
    assert [("best" in cell) for cell in page.row("gen2real CNN accuracy")] == [True, False]
    assert [("best" in cell) for cell in page.row("average gen2real accuracy")] == [True, False]
    for unmarked in ("real2real CNN accuracy", "fidelity precision", "gen2real CNN validation "
                     "accuracy", "membership attacks density AUROC"):  # equal, or no merit
        assert not any("best" in cell for cell in page.row(unmarked)), unmarked
    assert "do not compare" not in page.text


def test_less_is_better_for_distances():
    page = Reading(report_page.compare([WORSE, GOOD]))
    assert "best" in page.row("fidelity Fr\u00e9chet distance of features")[1]


@pytest.mark.parametrize("score, sign", [
    ("gen2real.lr.auroc", 1), ("gen2real.cnn.calibrated_accuracy", 1), ("fidelity.fid", -1),
    ("fidelity.detection_auroc", -1), ("fidelity.pmse", -1), ("fidelity.density", 0),
    ("real2real.cnn.accuracy", 0), ("membership.attacks.x.auroc", 0), ("schema_violations", -1),
    ("average.gen2real.accuracy", 1), ("average.real2real.accuracy", 0)])
def test_which_end_is_better(score, sign):
    assert report_page._sign(score) == sign


@pytest.mark.parametrize("other, why", [
    (entry("other", dataset="fashion"), "differ in data set"),
    (entry("other", setting={"name": "fast"}), "differ in the setting"),
    (entry("other", n_samples=500), "number of synthetic records"),
    (entry("other", seeds=1), "number of seeds"),
    (entry("other", setting={"name": "full", "schedule": {"epochs": 1}}), "differ in the schedule"),
    (entry("other", gen2real={"cnn": {"accuracy": examples.leaf(0.5)}}), "differ in the classif"),
    (entry("other", statement={"noise_source": "seeded: no privacy claim"}), "made from a seed"),
    (entry("other", statement={"epsilon": "inf"}), "epsilon is inf"),
    (entry("other", membership=examples.membership(
        exceeds_guarantee=True, sentence="something is wrong")), "something is wrong"),
    (entry("other", statement={"guarantee": "no valid guarantee"}), "no valid guarantee")])
def test_runs_that_do_not_compare_have_no_best_and_a_reason(other, why):
    text = report_page.compare([GOOD, other])
    page = Reading(text)
    assert why in page.text and "No value is marked as best" in page.text
    assert not any("(best)" in cell for row in page.rows for cell in row)
    assert report_page.comparable([GOOD, other]) == []
    assert report_page.comparable([other, GOOD, WORSE]) == [1, 2]


@pytest.mark.parametrize("statement, why", [
    ({"delta": 1e-6}, "differ in delta"), ({"unit": "client"}, "differ in unit"),
    ({"relation": "zero-out"}, "differ in relation")])
def test_promises_that_differ_are_said(statement, why):
    result = report_page.warnings([report_page.Entry(e.name, e.found, e.privacy | {
        "epsilon": 1.0, "delta": 1e-5} | extra) for e, extra in ((GOOD, {}), (WORSE, statement))])
    assert len(result) == 1 and why in result[0]


def test_terms_stand_side_by_side():
    page = Reading(report_page.compare([GOOD, entry("other", statement={
        "epsilon": 1.0, "noise_source": "seeded: no privacy claim"})]))
    sound, seeded = page.row("guarantee")
    assert sound == "(epsilon, delta) replace-one" and seeded.startswith("none: the noise was made")
    assert page.row("epsilon") == ["10", "1"]
    assert page.row("the number of seeds") == ["3", "3"]
    assert page.row("the setting of the evaluation") == ["full", "full"]


def test_the_main_score():
    name, value = report_page.main_score(GOOD.found)
    best = max(one.value.mean for one in GOOD.found.under("gen2real") if one.name == "accuracy")
    assert "accuracy" in name and value == best
    table = examples.table_report().found
    name, value = report_page.main_score(table)
    assert "AUROC" in name and value == pytest.approx(0.84, abs=0.01)
    assert math.isnan(report_page.main_score(read({}))[1])


def test_runs_without_scores_or_samples_compare_still():
    bare = report_page.Entry("bare", read({}), examples.privacy())
    grid = figures.sample_grid(*examples.images(3, 2, 8))
    page = Reading(report_page.compare([
        bare, report_page.Entry("grid", read({}), examples.privacy(epsilon="inf"), grid)]))
    assert report_page.comparable([bare, bare]) == []
    assert "No run has scores" in page.text and len(page.sources) == 1
    images, table = GOOD, report_page.Entry("table", examples.table_report().found,
                                            examples.privacy())
    assert "Not drawn" in Reading(report_page.compare([images, table])).text


def test_names_are_text():
    page = Reading(report_page.compare([GOOD._replace(name=examples.HOSTILE), WORSE]))
    assert "script" not in page.tags and examples.HOSTILE in page.text


def test_one_run_is_no_comparison():
    with pytest.raises(UserError, match="at least two"):
        report_page.compare([GOOD])
