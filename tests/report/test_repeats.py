"""Several trainings on the same records: each promises its own epsilon, and the sum is said."""

import math

import pytest
import report_examples as examples

import dpgen_jax as dg
from benchmarks import systems
from dpgen_jax.core.errors import UserError
from dpgen_jax.evaluation import report as report_page
from dpgen_jax.evaluation.assessment import over_runs, read
from dpgen_jax.evaluation.results import summary
from dpgen_jax.run import fitting


class Trained:
    """A release in name, which says how `fit` was called."""

    def __init__(self, **asked):
        self.asked, self.privacy = asked, {
            "epsilon": asked["epsilon"], "delta": 1e-5, "noise_source": "os-entropy",
            "relation": "replace-one",
            "guarantee": asked.get("stamp", "(epsilon, delta) replace-one")}


@pytest.fixture
def trainings(monkeypatch):
    asked = []
    monkeypatch.setattr(fitting, "fit", lambda data, x, y, **more: asked.append(
        more) or Trained(**more))
    return asked


def test_each_training_spends_its_own_epsilon_and_the_sum_is_said_first(trainings, tmp_path):
    said = []
    made = dg.repeat(3, "dpmerf", [1], [0], epsilon=0.1, out=tmp_path, log=said.append)
    assert "SAME records: each spends epsilon 0.1, all together epsilon 0.3;" in said[0]
    assert [one["out"].name for one in trainings] == ["0", "1", "2"]
    assert 0.3 <= made.epsilon <= math.nextafter(0.3, 1) * (1 + 1e-15) and made.delta >= 3e-5
    assert [path.name for path in made.folders] == ["0", "1", "2"]


def test_trainings_from_seeds_are_said_to_bound_nothing(trainings, tmp_path):
    said = []
    dg.repeat(3, "dpmerf", [1], [0], epsilon=0.1, out=tmp_path, seed=5, log=said.append)
    assert "each spends epsilon inf, all together no bound" in said[0]
    assert [one["seed"] for one in trainings] == [5, 6, 7]


@pytest.mark.usefixtures("trainings")
def test_what_is_not_covered_has_no_sum(tmp_path):
    made = dg.repeat(2, "dpmerf", [1], [0], epsilon=0.1, out=tmp_path, log=lambda line: None,
                     stamp="not covered: bounds of n")
    assert made.epsilon == math.inf


@pytest.mark.parametrize("n", [1, 0, -1, 2.0, True, "3"])
def test_a_number_of_trainings_that_is_none(trainings, n):
    with pytest.raises(UserError, match="a whole number from 2 on"):
        fitting.repeat(n, "dpmerf", [1], [0], epsilon=1.0)
    assert trainings == []


def test_a_total_is_refused_before_the_first_training(trainings):
    with pytest.raises(UserError, match="3 trainings of epsilon 1 spend 3 .*total_epsilon=2"):
        fitting.repeat(3, "dpmerf", [1], [0], epsilon=1.0, total_epsilon=2.0)
    with pytest.raises(UserError, match="3 trainings of epsilon inf spend inf"):
        fitting.repeat(3, "dpmerf", [1], [0], epsilon=math.inf, total_epsilon=2.0)
    assert trainings == []
    fitting.repeat(3, "dpmerf", [1], [0], epsilon=0.1, total_epsilon=0.3, log=lambda line: None)
    assert len(trainings) == 3  # as 0.1 and 0.3 are written, and not as floats add up


def test_scores_over_trainings_are_their_means_and_deviations():
    def document(value):
        return {"kind": "images", "gen2real": {"cnn": {"accuracy": {
            "mean": value, "std": 0.5, "values": [value] * 2}}}}

    leaf = over_runs([document(0.5), document(0.7)])["gen2real"]["cnn"]["accuracy"]
    assert leaf["mean"] == pytest.approx(0.6) and leaf["std"] == pytest.approx(0.2 / math.sqrt(2))
    assert leaf["values"] == [0.5, 0.7]
    with pytest.raises(UserError, match="not measured alike"):
        over_runs([document(0.5), {"kind": "images"}])
    with pytest.raises(UserError, match="no training"):
        over_runs([])


def entry(name, **statement):
    return report_page.Entry(name, read(examples.image_metrics()), examples.privacy(**statement))


def test_a_folder_of_trainings_is_one_entry_of_a_comparison():
    pooled = report_page.pooled("mine", [entry("0"), entry("1")])
    page = report_page.compare([pooled, entry("other")])
    assert "mine: mean of 2 trainings" in page and "2 times that was spent" in page
    with pytest.raises(UserError, match="differ in epsilon: they are not repeats"):
        report_page.pooled("mine", [entry("0"), entry("1", epsilon=2.0)])


def test_what_one_training_lacks_the_mean_lacks():
    alarmed = entry("1", noise_source="seeded: no privacy claim")
    assert report_page.doubts(report_page.pooled("mine", [entry("0"),
                                                          alarmed])) == report_page.doubts(alarmed)


@pytest.mark.long
def test_a_row_of_the_systems_is_a_mean_over_its_trainings(tmp_path, monkeypatch):
    def row(args, method, data, epsilon, number=0):
        return {"method": method, "dataset": data, "epsilon": epsilon, "steps": 1,
                "preset_steps": 1, "training_seconds": 10.0 + number, "fidelity": {},
                "gen2real": {"cnn": {"accuracy": summary([0.5 + 0.2 * number])}}}

    monkeypatch.setattr(systems, "row", row)
    made = systems.repeated(systems.arguments(
        ["--out", str(tmp_path), "--repeats", "2"]), "dpmerf", "mnist", 1.0)
    assert made["repeats"] == 2 and made["training_seconds_of_each"] == [10.0, 11.0]
    assert "0.600 ± 1.271" in systems.table([made])  # t of 1 degree of freedom is 12.706
    assert systems.folder(tmp_path, "dpmerf", "mnist", 1.0, 1).name == "dpmerf-mnist-eps1-1"
