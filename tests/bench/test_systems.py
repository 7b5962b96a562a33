"""The benchmark of all systems, without its trainings."""


import dataclasses
import itertools
import json
from types import SimpleNamespace

import matplotlib.image
import numpy as np
import pytest
from PIL import Image

from benchmarks import systems
from benchmarks.systems import half_width
from dpgen_jax import data, methods, presets
from dpgen_jax.core.errors import UserError
from dpgen_jax.core.run_folder import read_json
from dpgen_jax.evaluation.results import summary

pytestmark = pytest.mark.long


CASES = list(itertools.product(systems.METHODS, systems.DATA, systems.EPSILONS))


def parsed(tmp_path, *words):
    return systems.arguments(["--out", str(tmp_path), *words])


def test_what_releases_a_classifier_takes_no_part():
    config, spec = (presets.get("topagg_sgd")[1].config, presets.get("topagg_sgd")[1].spec)
    config = dataclasses.replace(config, records=1000, sigma=1.0)
    assert methods.get("topagg_sgd").build(config, spec).sample is None
    assert systems.CLASSIFIERS == ("topagg_sgd",)


@pytest.mark.parametrize("method, data, epsilon", CASES)
def test_every_row_has_a_preset_for_such_images(method, data, epsilon):
    name = systems.preset_of(method, data, epsilon)
    spec = presets.all_of(systems.trained_as(method))[name].spec
    assert (spec.height, spec.width, spec.channels, spec.classes) == (28, 28, 1, 10)


@pytest.mark.parametrize("method", systems.IN_COLOUR)
@pytest.mark.parametrize("epsilon", systems.EPSILONS)
def test_images_in_colour_are_trained_as_by_a_user_who_names_no_preset(
        tmp_path, monkeypatch, method, epsilon):
    commands = []
    monkeypatch.setattr(systems.common, "command", lambda *words: commands.append(words))
    found = systems.row(parsed(tmp_path, "--data", "cifar"), method, "cifar", epsilon)
    run = tmp_path / f"{method}-cifar-eps{epsilon:g}"
    assert commands[0] == ("dpgen_jax.train", method, "--dataset", *systems.COLOUR["cifar"],
                           f"--epsilon={epsilon}", "--out", run)
    assert found["preset"] == f"images-eps{epsilon:g}"


def test_what_is_known_of_the_images_in_colour_is_so():
    try:
        images = data.load(systems.COLOUR["cifar"][0], classes=10)
    except UserError:
        pytest.skip("needs the subset of CIFAR-10 in DPGEN_DATA")
    facts = systems.FACTS["cifar"]
    assert (images.spec.shape, images.spec.classes, images.count) == (
        facts.spec.shape, facts.spec.classes, facts.records)


def test_images_in_colour_are_named_alone(tmp_path, capsys):
    with pytest.raises(SystemExit):
        parsed(tmp_path, "--dataset", "mnist", "cifar")
    assert "name them alone" in capsys.readouterr().err
    assert parsed(tmp_path).methods == systems.METHODS
    assert parsed(tmp_path, "--dataset", "cifar").methods == systems.IN_COLOUR


def test_no_command_names_a_folder_and_zero_out_has_one_of_its_own(capsys):
    assert systems.arguments([]).out.name == "systems"
    assert systems.arguments(["--relation", "zero-out"]).out.name == "systems-zero-out"
    with pytest.raises(SystemExit):
        systems.arguments(["--repeats", "0"])
    with pytest.raises(SystemExit):
        systems.arguments(["--relation", "zero-out", "--methods", "mixture", "gpate"])
    assert "zero-out: gpate has replace-one alone" in capsys.readouterr().err


@pytest.mark.parametrize("words, ending", [
    ((), ""), (("--full",), "-full"), (("--relation", "zero-out"), "-zero-out"),
    (("--full", "--relation", "zero-out"), "-full-zero-out")])
def test_each_row_has_a_file_of_its_own(tmp_path, monkeypatch, words, ending):
    monkeypatch.setattr(systems.common, "RESULTS", tmp_path)
    monkeypatch.setattr(systems, "repeated", lambda args, method, data, epsilon: {
        **done(method, epsilon, 0.5), "dataset": data})
    given = ["--out", str(tmp_path / "runs"), "--methods", "mixture", "--dataset", "mnist", *words]
    systems.main(given)
    folder = tmp_path / "systems"
    assert sorted(path.name for path in folder.iterdir()) == [
        f"mixture-mnist-eps{epsilon}{ending}.json" for epsilon in (1, 10)]
    record = read_json(folder / f"mixture-mnist-eps1{ending}.json")
    again = systems.arguments(record["command"].split()[3:])
    assert (again.methods, again.data, again.epsilons) == (["mixture"], ["mnist"], [1.0])
    assert (again.full, again.relation) == ("full" in ending, record["command"].split(
        "--relation=")[1] if "zero" in ending else "replace-one")
    which = {"full": again.full, "relation": again.relation}
    rows = systems.recorded(["mnist"], **which)
    assert [row["epsilon"] for row in rows] == [1.0, 10.0]
    assert not systems.recorded(["fashion"], **which)


def test_a_stop_or_a_failure_loses_no_row_that_was_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(systems.common, "RESULTS", tmp_path)
    outcomes = iter([0.5, 0.6, "out of luck", KeyboardInterrupt])

    def repeated(args, method, data, epsilon):
        outcome = next(outcomes)
        if not isinstance(outcome, str | float):
            raise outcome
        row = {**done(method, epsilon, 0.5), "dataset": data}
        return {**row, "error": outcome} if isinstance(outcome, str) else row | {"score": outcome}

    monkeypatch.setattr(systems, "repeated", repeated)
    given = ["--out", str(tmp_path / "runs"), "--methods", "mixture", "--dataset", "mnist"]
    systems.main(given)
    with pytest.raises(KeyboardInterrupt):
        systems.main(given)
    better = read_json(tmp_path / "systems" / "mixture-mnist-eps1.json")
    better["results"]["row"]["repeats"] = 3
    systems.write_row("mixture-mnist-eps1", better)
    poorer = {"results": {"row": better["results"]["row"] | {"repeats": 1, "score": 0.1}}}
    systems.write_row("mixture-mnist-eps1", poorer)
    assert [row["score"] for row in systems.recorded(["mnist"])] == [0.5, 0.6]


@pytest.mark.parametrize("seconds, words, times", [
    (10, (), 3), (1000, (), 1), (1000, ("--repeats", "2"), 2), (10, ("--repeats", "1"), 1)])
def test_a_quick_row_is_the_mean_of_three_trainings(tmp_path, monkeypatch, seconds, words, times):
    numbers = []

    def row(args, method, data, epsilon, number=0):
        numbers.append(number)
        return done(method, epsilon, 0.5, seconds) | {
            "gen2real": {"cnn": {"accuracy": summary([0.5 + number / 10])}}, "fidelity": {}}

    monkeypatch.setattr(systems, "row", row)
    found = systems.repeated(parsed(tmp_path, *words), "mixture", "mnist", 1.0)
    assert numbers == list(range(times)) and found.get("repeats", 1) == times
    if times == 3:
        assert found["gen2real"]["cnn"]["accuracy"]["values"] == pytest.approx([0.5, 0.6, 0.7])


def test_the_interval_of_a_mean_is_that_of_students_t():
    # n = 3: t of 2 degrees of freedom is 4.3027, standard deviation 0.1.
    assert systems.half_width([0.5, 0.6, 0.7]) == pytest.approx(4.3027 * 0.1 / 3**0.5, 1e-4)


def test_zero_out_takes_no_other_run(tmp_path, monkeypatch):
    args = parsed(tmp_path, "--relation", "zero-out", "--dataset", "mnist")
    assert {"mixture", "dpgan"} <= set(args.methods) <= set(systems.WITH_RELATIONS)
    commands = []
    monkeypatch.setattr(systems.common, "command", lambda *words: commands.append(words))
    systems.row(args, "mixture", "mnist", 1.0)
    assert {"--relation=zero-out", "--sigma=None"} < set(commands[0])
    run = tmp_path / "mixture-mnist-eps1"
    (run / "release").mkdir(parents=True)
    (run / "release" / "privacy.json").write_text('{"relation": "replace-one"}')
    (run / "config.json").write_text("{}")
    monkeypatch.setattr(systems, "evaluated", lambda *given: {})
    found = systems.row(args, "mixture", "mnist", 1.0)
    assert "is of replace-one neighbours; take another --out" in found["error"]


def test_a_row_that_fails_says_why(tmp_path, monkeypatch):
    def fails(*words):
        raise UserError("out of luck")

    monkeypatch.setattr(systems.common, "command", fails)
    args = parsed(tmp_path)
    failed = systems.row(args, "dpgan", "mnist", 10.0)
    assert failed["error"] == "out of luck"
    assert "| `dpgan` | failed |" in systems.table([failed])
    unknown = systems.row(args, "gpate", "scenes-2", 10.0)  # for which there is no preset
    assert unknown["preset"] is None and unknown["error"]


def done(method, epsilon, mean, seconds=10.0):
    return {"method": method, "dataset": "mnist", "epsilon": epsilon, "steps": 10, "short": False,
            "preset_steps": 20 if method == "a" else 10, "training_seconds": seconds,
            "gen2real": {name: {"accuracy": {"mean": mean + more}}
                         for name, more in (("cnn", 0), ("mlp", 0.1))}}


def test_the_table_has_a_column_for_each_data_set_and_epsilon():
    rows = [done("a", 1.0, 0.5), done("b", 10.0, 0.75, 1300), done("b", "inf", 0.9),
            {"method": "a", "dataset": "fashion", "epsilon": 1.0, "error": "out of luck",
             "preset_steps": 10}]
    head, _, *lines = systems.table(rows).splitlines()
    assert (*systems.DATA, *systems.COLOUR) == systems.DATA_SETS
    assert head == ("| system | mnist, epsilon 1 | mnist, epsilon 10 | fashion, epsilon 1 | "
                    "training, s |")
    assert lines == ["| `a` | 0.500 / 0.600* |  | failed | 10 |",
                     "| `b` |  | 0.750 / 0.850 |  | 10 to 1,300 |", "",
                     "`b` without privacy, mnist: 0.900 / 1.000"]


def test_a_row_of_prototypes_says_what_its_teachers_answer(tmp_path):
    table = systems.table([done("prototypes-votes", 1.0, 0.5), done("gpate", 1.0, 0.4)])
    assert "| `prototypes` by votes | 0.500" in table and "| `gpate` | 0.400" in table
    assert systems.trained_as("prototypes-votes") == "prototypes"
    assert systems.settings("prototypes-votes", "mnist", 10.0)[:2] == (
        "mnist-eps10-votes", ["--preset", "mnist-eps10-votes"])


def test_the_picture_has_a_row_for_each_system_and_two_images_of_each_class(tmp_path, monkeypatch):
    def sample(n, labels, seed):
        label = np.tile(np.array(labels, np.int32), n // len(labels))
        return np.broadcast_to(20 * label[:, None, None, None], (n, 28, 28, 1)).astype(
            np.uint8), label

    def load(run):
        return SimpleNamespace(sample=sample, spec=SimpleNamespace(classes=10))

    monkeypatch.setattr(systems, "load", load)
    monkeypatch.setattr(systems.common, "RESULTS", tmp_path)
    rows = [done("a", 1.0, 0.5), done("b", 1.0, 0.75), done("b", 10.0, 0.9)]
    path = systems.picture(rows, "mnist", 1.0, lambda method: tmp_path / method)
    assert path.name == "systems-mnist-eps1.png"
    pixels = np.asarray(Image.open(path).convert("L"))
    across = pixels[pixels.shape[0] // 4]
    assert [shade for shade in range(0, 200, 20) if shade in across] == list(range(0, 200, 20))


def test_the_inception_score_stands_behind_the_accuracy_and_is_measured_where_it_is_missing(
        tmp_path, monkeypatch):
    rows = [done("a", 1.0, 0.5), done("a", 10.0, 0.75) | {"fidelity": {
        "inception_score": {"mean": 8.25}, "fid": {"mean": 61.3}}}]
    line = systems.table(rows).splitlines()[2]
    assert line == "| `a` | 0.500 / 0.600* | 0.750 / 0.850*, IS 8.25, FID 61.30 | 10 |"
    folder, commands, words = tmp_path / "run" / "evaluation-fast", [], ("--dataset", "glyphs")
    folder.mkdir(parents=True)
    gen2real = json.dumps({name: {"accuracy": summary([0.5, 0.6])}
                           for name in ("cnn", "mlp")})
    (folder / "metrics.json").write_text(f'{{"gen2real": {gen2real}}}')  # of an earlier version
    monkeypatch.setattr(systems.common, "command", lambda *words: commands.append(words))
    systems.evaluated(parsed(tmp_path), tmp_path / "run", words)
    (folder / "metrics.json").write_text(
        f'{{"gen2real": {gen2real}, "fidelity": {{"inception_score": {{"mean": 8.0}}}}}}')
    systems.evaluated(parsed(tmp_path), tmp_path / "run", words)
    systems.evaluated(parsed(tmp_path, "--inception-weights", "w"), tmp_path / "run", words)
    assert ["fidelity" in words for words in commands] == [True, True]
    assert "--inception-weights" in commands[1] and "--inception-weights" not in commands[0]
    (folder / "metrics.json").write_text(f'{{"gen2real": {gen2real}}}')
    for more, again in (([], 0), (["--seeds", "3"], 1), (["--classifiers", "cnn"], 1)):
        commands.clear()
        systems.evaluated(parsed(tmp_path, "--metrics", "gen2real", *more), tmp_path / "run", words)
        assert len(commands) == again


def test_a_short_row_in_colour_takes_fewer_steps_still(tmp_path, monkeypatch):
    commands = []
    monkeypatch.setattr(systems.common, "command", lambda *words: commands.append(words))
    args = parsed(tmp_path, "--data", "cifar", "--short")
    found = systems.row(args, "dpgan", "cifar", 10.0)
    assert {"--steps=150", "--sigma=None"} <= set(commands[0]) and found["preset_steps"] == 6000


def test_in_a_short_row_of_dpac_the_classifier_comes_in(tmp_path, monkeypatch):
    commands = []
    monkeypatch.setattr(systems.common, "command", lambda *words: commands.append(words))
    systems.row(parsed(tmp_path, "--short"), "dpac", "fashion", 10.0)
    assert {"--steps=30", "--t-c=6"} <= set(commands[0])


@pytest.mark.parametrize("words, steps", [((), None), (("--short",), 1000)])
def test_a_short_row_takes_fewer_steps_with_the_noise_of_those(tmp_path, monkeypatch, words, steps):
    commands = []
    monkeypatch.setattr(systems.common, "command", lambda *words: commands.append(words))
    found = systems.row(parsed(tmp_path, *words), "dpcgan", "mnist", 1.0)
    assert "cannot read" in found["error"]  # nothing was trained
    assert commands[0][:2] == ("dpgen_jax.train", "dpcgan") and "--epsilon=1.0" in commands[0]
    assert [w for w in commands[0] if str(w).startswith(("--steps", "--sigma"))] == (
        [f"--steps={steps}", "--sigma=None"] if steps else [])


@pytest.mark.parametrize("asked, made, short", [
    (16, 16, False), (16, 3, False), (2, 2, True)])
def test_a_row_is_short_where_fewer_steps_were_asked_for(tmp_path, monkeypatch, asked, made, short):
    """And not where the budget allowed no more: its command would else be another one."""
    files = {"config.json": {"config": {"steps": asked}},
             "release/privacy.json": {"unit": "record", "relation": "replace-one", "steps": made,
                                      "epsilon": 1.0, "noise_source": "os"}}
    monkeypatch.setattr(systems, "evaluated", lambda *_: {"setting": "fast", "gen2real": {},
                                                          "fidelity": {}})
    monkeypatch.setattr(systems.run_folder, "read", lambda path: [])
    monkeypatch.setattr(systems.common, "training_seconds", lambda rows: 1.0)
    for name, content in files.items():
        path = tmp_path / "prototypes-votes-mnist-eps1" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    args = parsed(tmp_path)
    found = systems.row(args, "prototypes-votes", "mnist", 1.0)
    assert found["preset_steps"] == 16 and found["short"] == short
    assert ("--short" in systems.row_words(args, found)) == short


def row(method, epsilon, score, data="mnist", **more):
    return {"method": method, "dataset": data, "epsilon": epsilon, "steps": 5, "preset_steps": 5,
            "gen2real": {"cnn": {"accuracy": score}}} | more


@pytest.fixture
def rows(monkeypatch):
    each = [row("mixture", e, {"mean": m, "values": [m - .01, m, m + .01]}, repeats=3)
            for e, m in ((10.0, .9), (1.0, .8), (0.2, .5))]
    each += [row("dpgan", e, {"mean": .7, "values": [.7]}, steps=3) for e in (0.2, 1.0, 3.0)]
    each += [row("dpmerf", e, {"mean": .6, "values": [.6]}) for e in (1.0, 10.0)]
    each.append(row("mixture", "inf", {"mean": .99, "values": [.99]}))
    monkeypatch.setattr(systems, "system_rows", lambda: each)


def test_a_curve_has_more_than_two_budgets_and_each_its_interval(rows):
    found = systems.curves("mnist")
    assert found.keys() == {"mixture", "dpgan"} and found["mixture"].keys() == {0.2, 1.0, 10.0}
    assert found["mixture"][1.0]["half"] == half_width([.79, .8, .81])
    assert found["dpgan"][3.0] == {"mean": .7, "fewer": True, "half": 0.0}
    assert systems.curves("fashion") == {}


def test_the_table_marks_what_is_missing_and_fewer_steps(rows):
    head, _, mixture, dpgan = systems.curves_table().splitlines()
    assert head == "| data | system | epsilon 0.2 | epsilon 1 | epsilon 3 | epsilon 10 |"
    assert mixture == ("| MNIST | `mixture` | 0.500 ± 0.025 | 0.800 ± 0.025 |  | 0.900 ± 0.025 |")
    assert dpgan == "| MNIST | `dpgan` | 0.700\\* | 0.700\\* | 0.700\\* |  |"


def test_the_picture_has_curves(rows, tmp_path):
    image = matplotlib.image.imread(systems.draw(tmp_path / "curves.png"))
    left, right = image[:, :image.shape[1] // 2], image[:, image.shape[1] // 2:]
    coloured = [(abs(half[..., 0] - half[..., 2]) > 0.3).sum() for half in (left, right)]
    assert coloured[0] > 500 and coloured[1] == 0
