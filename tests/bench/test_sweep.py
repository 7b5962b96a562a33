"""The command line of a sweep, and the published sweeps; no test here trains."""

import dataclasses
import json
import os
import signal
import subprocess
from types import SimpleNamespace

import pytest

from benchmarks import common, results_page
from benchmarks.sweep import __main__ as sweep
from benchmarks.sweep import cells, figure
from benchmarks.sweep import cells as sweep_metrics
from benchmarks.sweep.published import SWEEPS
from dpgen_jax.core.errors import BudgetExceeded, UserError

pytestmark = pytest.mark.long


CNN = "gen2real.cnn.accuracy"


def jobs_of(*words):
    selected = sweep.selected(sweep.arguments(list(words)))
    return [cells.job(selected, cell) for cell in selected.cells]


def test_several_fields_make_a_grid_of_any_field_and_of_the_budget():
    found = jobs_of("gpate", "--set", "projection=5,10", "--set", "epsilon=0.2,inf", "--set",
                    "generator.latent=7", "--preset", "mnist-eps1", "--dataset", "idx:mnist")
    assert [one.cell.label for one in found] == [
        "projection 5, epsilon 0.2", "projection 5, epsilon inf", "projection 10, epsilon 0.2",
        "projection 10, epsilon inf"]
    first, last = found[0].args, found[-1].args
    assert (first.config.projection, first.epsilon, first.config.generator.latent) == (5, 0.2, 7)
    assert (last.config.projection, last.epsilon) == (10, float("inf"))
    assert found[0].data_words == ("--dataset=idx:mnist",) and last.preset == "mnist-eps1"


def test_values_are_those_of_the_training():
    assert sweep.assignment("class_names=a\\,b,c\\,d") == ("class_names", ["a,b", "c,d"])
    assert sweep.assignment("--top-k=1") == ("top_k", ["1"])
    settings = {"renewed": "false", "a.b_c": "True", "hidden": "32 16", "sigma": "None"}
    assert cells.flags(settings) == [
        "--no-renewed", "--a.b-c", "--hidden", "32", "16", "--sigma=None"]
    one, two = jobs_of("topagg_sgd", "--preset", "digits", "--set", "hidden=8 4,16")
    assert one.args.config.hidden == (8, 4) and two.args.config.hidden == (16,)
    without, _ = jobs_of("dpac", "--set", "renewed=false,true")
    assert without.args.config.renewed is False


@pytest.mark.parametrize(("words", "message"), [
    (["gpat"], "unknown sweep or method 'gpat', did you mean 'gpate'"),
    (["gpate", "--set", "projction=5"], "projction=5, did you mean '--projection'"),
    (["gpate", "--set", "projection=five"], "projection.*five"),
    (["gpate", "--set", "projection"], "FIELD=VALUE"),
    (["gpate", "--set", "projection=5,,10"], "FIELD=VALUE"),
    (["gpate", "--set", "out=here"], "out cannot be set"),
    (["gpate", "--preset", "mnist-eps3"], "unknown preset 'mnist-eps3'"),
    (["dpac:table4:fashion", "--variant", "a: method=gan"], "gan")])
def test_a_wrong_field_or_value_is_named_before_anything_is_trained(words, message):
    with pytest.raises(UserError, match=message):
        jobs_of(*words)


def test_what_is_set_overrides_a_published_sweep():
    usual, = {one.args.config.teachers for one in jobs_of("datalens:table5:glyphs")}
    changed = jobs_of("datalens:table5:glyphs", "--set", "teachers=20", "--set", "batch=3")
    assert usual == 500 and {one.args.config.teachers for one in changed} == {20}
    assert len(changed) == 4 and "--batch=3" in changed[0].words
    selected = SWEEPS["gpate:table4:mnist-bins"].along("bins", ["5", "7"])
    assert [cell.label for cell in selected.cells] == ["bins 5", "bins 7"]
    assert selected.cells[0].printed == {CNN: 0.5880} and not selected.cells[1].printed


def test_a_variant_keeps_what_it_is_named_for():
    found = {one.cell.label: one.args.config for one in jobs_of(
        "dpac:table4:fashion-eps10", "--set", "real_steps=4,6", "--set", "critics=20") if
        one.method == "dpac"}
    assert found["w/o r2g"].real_steps == 0 and found["w/o r2g"].critics == 20
    assert [found[f"full, real_steps {n}"].real_steps for n in (4, 6)] == [4, 6]


def test_a_variant_of_another_method_has_only_its_fields():
    found = {one.cell.label: one for one in jobs_of("dpac:table4:fashion-eps10")}
    assert found["baseline"].method == "gswgan" and found["full"].method == "dpac"
    full, base = found["full"].args.config, found["baseline"].args.config
    shared = [field.name for field in dataclasses.fields(base)]
    assert all(getattr(full, name) == getattr(base, name) for name in shared)
    assert found["w/o init"].args.config == dataclasses.replace(full, renewed=False)
    pair = jobs_of("dpac", "--variant", "none: method=gswgan steps=9", "--variant", "small: t_c=3")
    assert [one.cell.label for one in pair] == ["none", "small"]


def test_a_run_folder_is_named_by_all_that_decides_what_the_run_means(monkeypatch):
    def name(*words):
        one, = jobs_of("gpate", "--preset", "mnist-eps1", *words)
        return one.folder

    usual = name()
    others = [name("--set", text) for text in ("bins=7", "epsilon=2", "generator.latent=7",
                                               "dataset=idx:mnist", "image_size=32", "seed=1")]
    assert len({usual, *others}) == 7
    assert name("--set", "checkpoint_minutes=20", "--set", "chunk=8") == usual
    tables = [{cells.job(SWEEPS[key], cell).folder for cell in SWEEPS[key].cells} for key in (
        "gpate:table4:mnist-clip", "gpate:table4:mnist-bins")]
    assert len(tables[0] & tables[1]) == 1  # the preset itself is trained once
    config = cells.presets.all_of("gpate")["mnist-eps1"]
    monkeypatch.setitem(cells.presets.all_of("gpate"), "mnist-eps1", dataclasses.replace(
        config, config=dataclasses.replace(config.config, bins=9)))
    assert name() != usual


def test_names_say_which_paper_and_table():
    assert all(len(name.split(":")) == 3 and sweep.cells for name, sweep in SWEEPS.items())
    for name, published in SWEEPS.items():
        labels = [cell.label for cell in published.cells]
        assert len(set(labels)) == len(labels), name
        assert all(set(cell.printed) <= set(published.metrics) for cell in published.cells), name
    papers = {name.rpartition(":")[0] for name in SWEEPS}
    assert {"gpate:table2", "gpate:table4", *(f"datalens:table{n}" for n in (2, 4, 5, 7, 8, 9, 10)),
            "dpac:table4", "dpac:table5", "gswgan:figure4",
            "gswgan:figureA2"} == papers


@pytest.mark.slow
def test_every_published_cell_is_understood_and_every_mechanism_is_built():
    seen = set()
    for published in SWEEPS.values():
        for cell in published.cells:
            key = (published.method, published.settings.get("preset"), cell.settings.get("method"),
                   frozenset(cell.settings))
            if key in seen:
                continue
            seen.add(key)
            one = cells.job(published, cell)
            module = cells.methods.get(one.method)
            spec = cells.presets.get(one.method, one.args.preset)[1].spec
            config = cells.with_records(one.args.config, 60_000)
            module.mechanism(dataclasses.replace(config, sigma=100.0), spec)
    assert len(seen) > 50


# Metrics.

def named(*words, method="gpate", preset="mnist-eps1", published=()):
    selected = cells.Sweep(method, "", {}, (), published)
    return sweep_metrics.names(sweep.arguments([method, *words]), selected, method, preset)


def test_any_metric_of_the_evaluation_is_named_and_only_what_it_needs_is_measured():
    assert named() == [CNN] and named(method="topagg_sgd", preset="digits") == ["accuracy"]
    assert named(preset="adult") == ["gen2real.lr.auroc"]
    assert named("--metric", "average.gen2real.auroc", preset="adult") == ["average.gen2real.auroc"]
    one, two = CNN, "gen2real.mlp.accuracy"
    assert named("--metric", one, "--metric", two) == named("--metric", one, two) == [one, two]
    quality = ("fidelity.inception_score", "fidelity.fid")
    assert named(published=quality) == ["fidelity.inception_score"]
    assert named("--inception-weights", "w", published=quality) == list(quality)
    args = sweep.arguments(["gpate", "--seeds", "1"])
    assert sweep_metrics.words(args, "gpate", ["real2gen.mlp.accuracy", CNN], False) == [
        "--metrics", "gen2real", "real2gen", "--classifiers", "mlp", "cnn", "--seeds", "1",
        "--fast"]
    assert sweep_metrics.words(args, "gpate", ["average.gen2real.accuracy"], True)[:4] == [
        "--metrics", "gen2real", "real2real", "--seeds"]
    assert sweep_metrics.words(args, "topagg_sgd", ["accuracy"], True) == []


@pytest.mark.parametrize(("words", "message"), [
    (["--metric", "gen2real.cn.accuracy"], "did you mean 'gen2real.cnn.accuracy'"),
    (["--metric", "inception_score"], "unknown metric 'inception_score'"),
    (["--metric", "fidelity.fid"], "--inception-weights FILE")])
def test_a_wrong_metric_is_named_before_anything_is_trained(words, message):
    with pytest.raises(UserError, match=message):
        named(*words)


def test_a_metric_that_is_not_there_is_named():
    document = {"gen2real": {"cnn": {"accuracy": {"mean": 0.5, "std": 0, "values": [0.5]}}},
                "accuracy": 0.25}
    assert sweep_metrics.leaf(document, CNN)["mean"] == 0.5
    assert sweep_metrics.leaf(document, "accuracy")["values"] == [0.25]
    for name in ("gen2real.mlp.accuracy", "gen2real.cnn"):
        with pytest.raises(UserError, match=name):
            sweep_metrics.leaf(document, name)


# A sweep trains each run once and goes on; its record and its figure show them all; no test here

def trained(tmp_path, monkeypatch, *words, fail=None):
    """The sweep with commands that only write what it reads; returns the commands."""
    commands = []

    def command(module, *words):
        words = [str(word) for word in words]
        commands.append((module, words))
        if fail and fail in " ".join(words):
            raise BudgetExceeded("no step")
        if module == "dpgen_jax.train":
            run = tmp_path / words[words.index("--out") + 1]
            (run / "release").mkdir(parents=True)
            (run / "private" / "checkpoints").mkdir(parents=True)
            (run / "config.json").write_text('{"config": {"steps": 3}}')
            (run / "metrics.jsonl").write_text('{"step": 1, "seconds": 1.0}\n'
                                               '{"step": 3, "seconds": 5.0}\n')
            (run / "release" / "privacy.json").write_text(
                '{"steps": 3, "guarantee": "none: a test"}')
            return
        out = tmp_path / words[words.index("--out") + 1]
        out.mkdir()
        value = len(commands) / 100
        score = {"accuracy": {"mean": value, "std": 0.0, "values": [value]}}
        (out / "metrics.json").write_text(json.dumps({
            "dataset": "mnist", "gen2real": {"cnn": score}, "real2real": {"cnn": score},
            "fidelity": {"inception_score": {"mean": value, "std": 0.0, "values": [value],
                                             "floor": 9.0}}}))

    monkeypatch.setattr(common, "command", command)
    sweep.main([*words, "--out", str(tmp_path / "runs"), "--record", str(tmp_path / "out.json")])
    return commands


GRID = ("gpate", "--preset", "mnist-eps1", "--set", "epsilon=0.2,1")


def test_each_run_is_trained_and_evaluated_once_and_recorded(tmp_path, monkeypatch, capsys):
    commands = trained(tmp_path, monkeypatch, *GRID, "--runs", "2")
    assert [module.rpartition(".")[2] for module, _ in commands] == ["train", "evaluate"] * 4
    assert "real2real" in commands[1][1]
    assert not any("real2real" in words for _, words in commands[3::2])
    record = json.loads((tmp_path / "out.json").read_text())
    assert record["command"] == ("python -m benchmarks.sweep gpate --preset mnist-eps1 --set "
                                 "epsilon=0.2,1 --runs 2")
    first, second = record["results"]["rows"]
    assert first["label"] == "epsilon 0.2" and first["metrics"][CNN]["values"] == [0.02, 0.04]
    assert first["real"] == {CNN: 0.02} and first["runs"][0]["seconds_per_step"] == 2.0
    assert second["config"] == {"steps": 3} and len(second["runs"]) == 2
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.rglob("checkpoints"))
    assert trained(tmp_path, monkeypatch, *GRID, "--runs", "2") == []  # it is all there
    more = trained(tmp_path, monkeypatch, *GRID, "--runs", "2", "--metric",
                   "fidelity.inception_score")
    assert [module for module, _ in more] == ["dpgen_jax.evaluate"] * 4


def test_the_place_of_the_state_reaches_the_trainings_and_names_nothing(tmp_path, monkeypatch):
    commands = trained(tmp_path, monkeypatch, *GRID, "--state", "disk")
    assert ["--state" in words for _, words in commands] == [True, False] * 2
    assert "--state" not in json.loads((tmp_path / "out.json").read_text())["command"]
    assert trained(tmp_path, monkeypatch, *GRID) == []  # the same runs
    named = [sweep.record_path(sweep.arguments(["gpate:table2:mnist", *more]))
             for more in ([], ["--state", "disk"])]
    assert named[0] == named[1]


def test_a_cell_beyond_the_budget_is_a_row_and_other_failures_end_the_sweep(tmp_path, monkeypatch,
                                                                           capsys):
    trained(tmp_path, monkeypatch, *GRID, "--set", "sigma=1,1000", fail="--sigma=1 ")
    rows = json.loads((tmp_path / "out.json").read_text())["results"]["rows"]
    assert ["error" in row for row in rows] == [True, False, True, False]
    assert "allows one step" in rows[0]["error"]

    def fails(*words):
        raise UserError("out of luck")

    monkeypatch.setattr(common, "command", fails)
    with pytest.raises(UserError, match="out of luck"):
        sweep.main([*GRID, "--out", str(tmp_path / "other"), "--record", str(tmp_path / "b.json")])
    assert not (tmp_path / "b.json").exists()


def test_a_plan_trains_nothing(monkeypatch, capsys):
    monkeypatch.setattr(common, "command", None)
    sweep.main([*GRID, "--plan"])
    assert "epsilon 0.2      11 steps, sigma 1000" in capsys.readouterr().out
    sweep.main([])
    assert "gpate:table4:mnist-clip" in capsys.readouterr().out


def test_the_record_of_a_published_sweep_has_its_name():
    def stem(*words):
        return sweep.record_path(sweep.arguments(list(words))).name

    assert stem("dpac:table4:fashion", "--full") == "sweep-dpac-table4-fashion.json"
    assert stem("dpac:table4:fashion", "--set", "steps=9") == (
        "sweep-dpac-table4-fashion-steps-9.json")
    assert stem("gpate", "--preset", "p", "--dataset", "idx:mnist", "--set", "a=1,2") == (
        "sweep-gpate-a-1-2-p-idx-mnist.json")


# The figure.

def figure_of(monkeypatch, tmp_path, rows, name="gpate"):
    figures = []
    monkeypatch.setattr(figure, "FigureCanvasAgg", lambda drawing: figures.append(drawing)
                        or SimpleNamespace(print_png=lambda path: None))
    figure.draw({"sweep": name, "metrics": [CNN], "rows": rows}, tmp_path / "a.png")
    return figures[0].axes[0]


def row(value, printed=None, **point):
    return {"label": cells.label(point), "point": point, "dataset": "mnist", "real": {CNN: 0.9},
            "printed": {} if printed is None else {CNN: printed},
            "runs": [{"privacy": {"guarantee": "(epsilon, delta) replace-one"}}],
            "metrics": {CNN: {"mean": value, "std": 0.1}}}


def test_a_curve_is_drawn_beside_what_papers_claim(tmp_path, monkeypatch):
    rows = [row(0.5, epsilon=text) for text in ("0.2", "1", "10")]
    axes = figure_of(monkeypatch, tmp_path, rows)
    lines = {line.get_label(): line for line in axes.get_lines()}
    known = figure.CLAIMED["mnist"]
    claimed = lines["datalens, CNN: claimed by the paper"]
    assert dict(zip(*claimed.get_data(), strict=True)) == known["datalens"]
    assert len([name for name in lines if "claimed" in name]) == len(known)
    assert "real records" in lines and axes.get_xscale() == "log"
    assert "guarantee: (epsilon, delta) replace-one;" in axes.figure.get_suptitle()


def test_printed_values_stand_beside_measured_ones_and_failed_cells_are_left_out(tmp_path,
                                                                               monkeypatch):
    failed = {"label": "bins 20", "point": {"bins": "20"}, "printed": {CNN: 0.3}, "error": "no"}
    axes = figure_of(monkeypatch, tmp_path, [row(0.5, 0.6, bins="5"), row(0.4, bins="10"), failed])
    measured, printed = (line for line in axes.get_lines() if line.get_marker() in "os")
    assert list(measured.get_ydata()) == [0.5, 0.4]
    assert [list(part) for part in printed.get_data()] == [[5.0, 20.0], [0.6, 0.3]]


def test_cells_without_numbers_stand_side_by_side_and_infinity_has_a_place(tmp_path, monkeypatch):
    axes = figure_of(monkeypatch, tmp_path, [row(0.5, variant="full"), row(0.4, variant="w/o seq")])
    assert [text.get_text() for text in axes.get_xticklabels()] == ["full", "w/o seq"]
    assert figure.placed([1.0, 8.0, float("inf")]) == [1.0, 8.0, 16.0]
    assert figure.across([{"variant": "1"}, {"variant": "2"}]) is None


def test_the_page_has_every_cell_with_its_guarantee(monkeypatch):
    proven = {"steps": 60, "seconds_per_step": 1.5, "privacy": {
        "guarantee": "(epsilon, delta) replace-one", "epsilon": 10.0, "relation": "replace-one"}}
    none = proven | {"steps": 1200, "privacy": {"guarantee": "none: noise from a seed",
                                                "epsilon": "inf", "relation": "replace-one"}}
    score = {CNN: {"mean": 0.5, "std": 0.125, "values": [0.25, 0.75]}}
    rows = [row(0.5, 0.75, bins="5") | {"runs": [proven, proven], "metrics": score},
            row(0.5, bins="10") | {"runs": [none], "metrics": score},
            {"label": "bins 20", "printed": {CNN: 0.25}, "error": "no", "epsilon": 1.0}]
    monkeypatch.setattr(results_page, "results", lambda stem: {"rows": rows, "metrics": [CNN]})
    assert results_page.sweep_table("a").splitlines()[2:] == [
        "| bins 5 | 10, replace-one | 60 | 0.500 +- 0.125 | 0.75 | 1.50 |",
        "| bins 10 | none | 1,200 | 0.500 +- 0.125 |  | 1.50 |",
        "| bins 20 | (budget 1.0) | none allowed |  | 0.25 |  |"]


# The commands that are started.

def test_a_signal_reaches_the_command_and_then_ends_this_one(monkeypatch):
    """It comes when this process waits for the command."""
    wait = subprocess.Popen.wait

    def signalled(process):
        os.kill(os.getpid(), signal.SIGTERM)
        return wait(process)

    monkeypatch.setattr(subprocess.Popen, "wait", signalled)
    with pytest.raises(SystemExit) as stop:
        common.command("timeit", "-n", 1, "-r", 1, "import time; time.sleep(60)")
    assert stop.value.code == 128 + signal.SIGTERM


def test_a_command_that_fails_says_so():
    with pytest.raises(UserError, match="exit code"):
        common.command("benchmarks.no_such_module")


def test_a_sweep_from_the_command_line_to_the_record(tmp_path, monkeypatch):
    """A cell that costs little, trained and evaluated as a user would."""
    words = ["dpmerf", "--dataset", "digits", "--set", "generator_steps=20", "--seeds", "1",
             "--samples", "40", "--metric", "gen2real.lda.accuracy", "--out",
             str(tmp_path / "runs"), "--record", str(tmp_path / "a.json")]
    sweep.main(words)
    rows = json.loads((tmp_path / "a.json").read_text())["results"]["rows"]
    assert [row["runs"][0]["privacy"]["epsilon"] for row in rows] == [10.0]
    assert 0 <= rows[0]["metrics"]["gen2real.lda.accuracy"]["mean"] <= 1
    assert 0.5 < rows[0]["real"]["gen2real.lda.accuracy"] <= 1
    monkeypatch.setattr(common, "command", None)  # everything is there
    sweep.main(words)
