"""An assessment and its views: what is read is written again, and the verdict goes with it."""

import copy
import json

import pytest
import report_examples as examples
from written import written

import dpgen_jax as dg
from dpgen_jax.core.types import ImageSpec, UserError
from dpgen_jax.evaluation import assessment
from dpgen_jax.evaluation.assessment import over_runs, read
from dpgen_jax.evaluation.results import Finding, Part, Real, Score, Severity

DOCUMENTS = {"images": examples.image_metrics(), "table": examples.table_metrics(examples.spec(5))}


def scores_without_floor(value):
    """The same without floors that are null: a score that nothing is compared with has none."""
    if isinstance(value, list):
        return [scores_without_floor(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {name: scores_without_floor(part) for name, part in value.items()
            if part is not None or name != "floor"}


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_what_is_read_is_written_again_with_what_nobody_knows(kind):
    document = DOCUMENTS[kind] | {"later": {"score": {"mean": 1.0, "more": [1, {"x": None}]}},
                                  "empty": {}, "accuracy": 0.5}
    before = copy.deepcopy(document)
    found = read(document)
    again = json.loads(json.dumps(found.json(), allow_nan=False))
    verdict = again.pop("verdict")
    again["not_covered_by_epsilon"].remove("verdict")
    assert scores_without_floor(again) == scores_without_floor(before) and document == before
    use = next(one for one in verdict if "reaches" in one["text"] and "records (" in one["text"])
    assert use["severity"] == "caution" and use["size"] > 1 and use["real"] > use["value"]
    assert [one["size"] for one in verdict] == sorted((one["size"] for one in verdict),
                                                      reverse=True)
    assert {*read(found.json()).findings} == {*found.findings}


def test_a_finding_has_what_it_is_compared_with():
    found = read(DOCUMENTS["table"])
    pairs = found.at("fidelity", "two_way_tvd")
    assert (pairs.real.mean, pairs.from_real, pairs.name) == (0.03, True, "two_way_tvd")
    attack = found.at("membership", "attacks", "density", "auroc")
    assert (attack.chance, attack.allowed) == (0.5, 0.99998)
    assert not found.at("schema_violations").from_real
    judged = {one.key[0]: one for one in assessment.verdict(found)}
    use, group, likeness, strongest = (judged[name] for name in (
        "use", "subgroup", "likeness", "attack"))
    assert use.real.mean > use.value.mean > use.chance == 0.5 and len(use.details) == 4
    assert judged["detection"].severity == Severity.CAUTION and judged["detection"].advice
    assert (group.real.mean, likeness.value) == (pytest.approx(0.9, abs=0.01), pairs.value)
    assert strongest.allowed == 0.99998 and strongest.severity == Severity.FINE


def test_what_a_user_must_mind_has_an_advice():
    document = DOCUMENTS["images"]
    assert assessment.advice(read(document)) == ["train with a larger epsilon, or on more records"]
    beyond = read(document | {"membership": examples.membership(exceeds_guarantee=True)})
    assert "do not share" in assessment.advice(beyond)[0]
    lines = [*assessment.terminal_lines(beyond)]
    assert lines[0].startswith("verdict: An attack reached") and any(
        line.startswith("advice: do not share") for line in lines)
    nothing = read({"gen2real": {"lr": {"auroc": {"mean": 0.5}}},
                    "real2real": {"lr": {"auroc": {"mean": 0.9}}}})
    assert assessment.verdict(nothing)[0].severity == Severity.ALARM
    assert "larger epsilon" in assessment.advice(nothing)[0]


def test_parts_of_measures_become_one_document():
    score = Score.of([0.2, 0.4])
    document = written(Part(
        (Finding(("fidelity", "a"), score, Score(0.1)), Finding(("fidelity", "b"), score),
         Finding(("subgroups", 0, "c"), score), Finding(("d",), score, from_real=False)),
        {"fidelity": {"judge": 1}, "subgroups": [{"by": "x", "group": "y", "n_test": 3}]},
        ("fidelity.judge", "subgroups"), ("a note",)))
    leaf = {"mean": pytest.approx(0.3), "std": pytest.approx(0.1414, abs=1e-4),
            "values": [0.2, 0.4]}
    assert document["fidelity"] == {"judge": 1, "a": leaf | {"floor": 0.1},
                                    "b": leaf | {"floor": None}}
    assert document["subgroups"][0]["c"] == leaf | {"floor": None} and document["d"] == leaf
    assert document["not_covered_by_epsilon"] == [
        "fidelity.judge", "subgroups", "fidelity.a", "fidelity.b"]
    assert document["notes"] == ["a note"]


def test_several_trainings_are_one_assessment():
    one, other = (read({"kind": "table", "gen2real": {"lr": {"auroc": {"mean": mean}}}})
                  for mean in (0.5, 0.7))
    assert over_runs([one, other]).findings[0].value == Score.of([0.5, 0.7])
    with pytest.raises(UserError, match="not measured alike"):
        over_runs([one, read({"kind": "table"})])


def test_evaluate_is_a_function_of_the_package(tmp_path):
    assert callable(dg.evaluate) and dg.Assessment is assessment.Assessment
    with pytest.raises(UserError, match="takes a release and the data set"):
        dg.evaluate(None, None)
    with pytest.raises(UserError, match="no argument 'setting', did you mean 'settings'"):
        dg.evaluate(tmp_path, None, setting=1)
    with pytest.raises(UserError, match="neither a run nor a release"):
        dg.evaluate(tmp_path, None)


def test_training_records_are_cut_to_as_many_as_a_draw_has():
    real = Real(ImageSpec(8, 8, 1, 2), ("x", "y"))
    assert real.alike(3) is real
    x, y = examples.images(2, 5, 8)
    cut = Real(real.spec, ("x", "y"), (x, y)).alike(4)
    assert len(cut.train[1]) == 4 and cut.test == ("x", "y")
    assert all((image == x[y == label]).all((1, 2, 3)).any() for image, label in zip(
        *cut.train, strict=True))
