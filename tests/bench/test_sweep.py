"""The command line of a sweep, and the published sweeps; no test here trains."""

import dataclasses

import pytest

from benchmarks.sweep import __main__ as sweep
from benchmarks.sweep import cells
from benchmarks.sweep import cells as sweep_metrics
from benchmarks.sweep.published import SWEEPS
from dpgen_jax.core.errors import UserError

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
