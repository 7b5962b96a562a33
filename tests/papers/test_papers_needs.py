"""Rows of the papers: the memory, where their state goes, and what another row measured."""

import dataclasses
import importlib
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import common, images
from benchmarks.papers import __main__ as command
from benchmarks.papers import page, registry, runner
from benchmarks.papers.registry import ROWS
from benchmarks.papers.rows import SOURCES, Command, Row, Training
from benchmarks.sweep import cells
from dpgen_jax import presets
from dpgen_jax.core.types import UserError
from dpgen_jax.run import capacity

pytestmark = pytest.mark.long


def gigabytes(name):
    return page.state_bytes(ROWS[name]) / 1e9


def test_a_row_needs_the_state_of_its_published_teachers():
    assert 17.7 < gigabytes("datalens:table1:mnist-eps1") < 17.9  # 4,000 networks, bfloat16 moments
    assert gigabytes("datalens:figure2:mnist") == gigabytes("datalens:table1:mnist-eps1")
    assert gigabytes("datalens:figure2:mnist-small") == 0
    assert gigabytes("gpate:table1c:mnist-eps1") > 50  # the paper's own networks
    assert gigabytes("gpate:table4:mnist-teachers") == gigabytes("gpate:table1c:mnist-eps1")
    assert gigabytes("gpate:table1c:mnist-eps1-dpgan") == gigabytes("gswgan:table2:femnist") == 0
    smaller = dataclasses.replace(ROWS["gpate:table1c:mnist-eps1"], work=Training(
        "gpate", "mnist-eps1", "mnist", fields={"teachers": 400}))
    assert 10 * page.state_bytes(smaller) == page.state_bytes(ROWS["gpate:table1c:mnist-eps1"])


def test_the_list_says_which_rows_need_the_disk(monkeypatch, capsys):
    monkeypatch.setattr(capacity, "memory", lambda: 24e9)
    command.main(["table1b:mnist-eps1", "--paper", "gpate"])
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if line.startswith("gpate:table1b:mnist-eps1 "))
    assert "52 GB: disk" in row and "--state disk" in lines[-2] and "24 GB" in lines[-2]
    monkeypatch.setattr(capacity, "memory", lambda: 64e9)
    assert page.memory_text(ROWS["gpate:table1b:mnist-eps1"], capacity.memory()) == "52 GB"


def test_the_state_reaches_benchmarks_that_know_it_and_others_are_refused(tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr(common, "command", lambda *words: called.append(words))
    runner.run(Row("a:b:c", Command("sweep", ("x",), "x")), tmp_path, state="disk")
    runner.run(Row("a:b:c", Command("claimed", (), "claimed")), tmp_path)
    assert called == [("benchmarks.sweep", "x", "--state", "disk"), ("benchmarks.claimed",)]
    with pytest.raises(UserError, match="leave out --state disk"):
        runner.run(Row("a:b:c", Command("claimed", (), "claimed")), tmp_path, state="disk")
    with pytest.raises(SystemExit):
        command.parse(["a:b:c", "--state", "floppy"])


@pytest.mark.parametrize("name", ["dpac:table4:fashion", "gswgan:figure4:noise",
                                  "gswgan:figureA2:iterations-gpate", "gswgan:table2:femnist"])
def test_the_weights_of_fid_reach_the_benchmarks_of_rows_that_print_it(name, tmp_path, monkeypatch):
    work, called = ROWS[name].work, []
    monkeypatch.setattr(common, "command", lambda *words: called.append(words))
    monkeypatch.setattr(Row, "source", lambda row: SOURCES["none"])
    weights = tmp_path / "weights.npz"
    runner.run(ROWS[name], tmp_path, weights)
    assert called[0][:-2] == (f"benchmarks.{work.module}", *work.argv)
    module = importlib.import_module(
        f"benchmarks.{work.module}{'.__main__' * (work.module == 'sweep')}")
    args = module.arguments(list(map(str, called[0][1:])))
    if work.module == "sweep":
        assert args.inception_weights == weights
        sweep = module.selected(args)
        assert cells.FID in cells.names(args, sweep, sweep.method, sweep.settings["preset"])
    else:
        assert args.inception == weights


def test_a_benchmark_without_fid_refuses_its_weights(tmp_path):
    with pytest.raises(UserError, match="a:b:c measures no FID; leave out --inception-weights"):
        runner.run(Row("a:b:c", Command("claimed", (), "claimed")), tmp_path, tmp_path)


def test_what_another_row_measured_of_the_same_training_stays(tmp_path):
    own = runner.PAPERS["cnn"]
    wide = runner.PAPERS["all"]
    for name in ("mlp", "lda"):
        (tmp_path / wide.name(name)).touch()
    (tmp_path / dataclasses.replace(wide, seeds=1).name("xgboost")).touch()
    assert own.with_measured(tmp_path).classifiers == ("cnn", "mlp", "lda")
    assert own.with_measured(tmp_path / "none") == own


@pytest.mark.parametrize(("test_records", "samples"), [(8, 10_000), (19_962, 19_962)])
def test_likeness_is_measured_on_the_whole_test_part(tmp_path, monkeypatch, test_records, samples):
    sizes = []
    monkeypatch.setattr(images.assess, "assess", lambda release, dataset, options, log: (
        sizes.append(options.samples) or {"fidelity": {"fid": 1.0}}))
    dataset = SimpleNamespace(y_test=np.zeros(test_records, np.int32))
    assert images.likeness(None, dataset, tmp_path) == {"fid": 1.0}
    assert sizes == [samples]


def test_fid_that_was_measured_stays(tmp_path):
    (tmp_path / "fid.json").write_text('{"fidelity": {"fid": 3.0}}')
    assert images.likeness(None, None, tmp_path) == {"fid": 3.0}


def test_as_published_is_the_published_preset_of_the_same_data():
    for name in ("gswgan:table1:mnist", "dpac:table2:fashion", "dpac:table1:gender-s-gswgan"):
        row = registry.find(f"{name}+as-published")
        config, budget = row.work.request()
        kind = row.work.preset.partition("-")[0]
        published = presets.get(row.work.method, f"{kind}-published")[1].config
        assert config == dataclasses.replace(published, accounting="as-published")
        assert budget.epsilon == float("inf") and config.pool == 0
    assert config.sigma == 0.61135 and config.critics == 2543  # CelebA's
    small, _ = registry.find("gpate:table1c:mnist-eps1-gswgan+as-published").work.request()
    assert (small.critics_per_step, small.sigma, small.steps) == (1, 1.07, 100)
