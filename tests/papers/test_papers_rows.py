"""Rows of `benchmarks.papers`: each table and figure has some, and each command parses."""

import dataclasses
import importlib
import inspect
import json
import sys

import pytest

from benchmarks import common
from benchmarks.papers import __main__ as command
from benchmarks.papers import page, registry, rows
from benchmarks.papers.registry import ROWS
from benchmarks.papers.rows import Command, Nothing, Training
from benchmarks.sweep.published import SWEEPS
from dpgen_jax import presets
from dpgen_jax.core.types import UserError

# Every table and figure of the five texts, appendices too, and what their text reports of runs.
PLACES = {
    "gpate": "figure1 table1a table1b table1c table2 table3 table4 figure2 agreement "
             "data-independent without-pate table5 table6 figure3 table7 table8 appendix-g",
    "datalens": "figure1 table1 table2 table3 figure2 table4 table5 table6 runtime table7 figure3 "
                "table8 table9 table10 table10a figure4 table11 table12",
    "gswgan": "figure1 theorem4.1 figure2 table1 figure3 figure4 table2 figure5 figureA1 tableA1 "
              "tableA2 figureA2",
    "dpac": "figure1 figure2 figure3 figure4 section5.1 table1 table2 table3 table4 table5"}
COMMANDS = {row.name: row.work for row in ROWS.values() if isinstance(row.work, Command)}
TRAININGS = {row.work.name(): row.work for row in ROWS.values()
             if isinstance(row.work, Training) and row.work.known()}


@pytest.mark.parametrize("paper", PLACES)
def test_every_table_and_figure_has_rows(paper):
    places = {name.split(":")[1] for name in ROWS if name.startswith(f"{paper}:")}
    assert places == set(PLACES[paper].split())


def test_every_row_names_a_preset_that_exists_or_none():
    named = [page.preset_of(row.work) for row in ROWS.values()]
    for method, name in filter(None, named):
        assert name in presets.all_of(method)
    assert sum(map(bool, named)) > 0.9 * len(ROWS)


def test_every_row_is_on_a_page():
    text = "".join(path.read_text() for path in (common.ROOT / "docs/papers").glob("*.md"))
    assert [name for name in ROWS if f"`{name}`" not in text] == []


def test_a_row_has_a_command_that_exists():
    assert [name for name, row in ROWS.items() if not row.work.known()] == []


def test_a_row_says_what_it_needs_and_how_long_it_takes_or_why_it_cannot_be_run():
    for row in ROWS.values():
        assert row.name.count(":") == 2
        if isinstance(row.work, Nothing):
            assert row.work.why
        else:
            assert row.hours > 0, row.name
            assert row.work.data in rows.SOURCES


def parser(module, argv, monkeypatch):
    """Parses the arguments of a benchmark as its program does."""
    benchmark = importlib.import_module(f"benchmarks.{module}")
    if not hasattr(benchmark, "main"):
        benchmark = importlib.import_module(f"benchmarks.{module}.__main__")
    parse = getattr(benchmark, "arguments", getattr(benchmark, "parse", None))
    if parse is None:
        assert not argv, f"benchmarks.{module} has no parser"
        return None
    monkeypatch.setattr(sys, "argv", [module, *argv])
    return parse(list(argv)) if inspect.signature(parse).parameters else parse()


@pytest.mark.parametrize("work", dict.fromkeys(
    (work.module, work.argv) for work in COMMANDS.values() if work.exists()),
    ids=lambda work: "-".join((work[0], *work[1]))[:60])
def test_every_command_parses_and_names_presets_that_exist(work, monkeypatch):
    module, argv = work
    args = parser(module, argv, monkeypatch)
    method = {"images": "datalens", "table_presets": "gpate", "topagg_bound": "datalens",
              "steps": "datalens", "sweep": "topagg_sgd", "aggregation": "gpate"}.get(module, "")
    if "--preset" in argv:
        chosen = getattr(args, "method", method) or method
        assert argv[argv.index("--preset") + 1] in presets.all_of(chosen)
    for word in argv[argv.index("--presets") + 1:] if "--presets" in argv else ():
        if "=" not in word:
            break
        assert word.partition("=")[2] in presets.all_of(word.partition("=")[0])
    if module == "sweep" and argv[0] in SWEEPS:
        assert importlib.import_module("benchmarks.sweep.__main__").selected(args).cells


def test_every_sweep_that_papers_print_is_a_row():
    ours = [name for name in SWEEPS if not name.endswith(":glyphs") and "glyphs-" not in name]
    assert [name for name in ours if name not in ROWS] == []
    for name in ours:
        work, settings = ROWS[name].work, SWEEPS[name].settings
        assert work == registry.sweep_command(name, work.data)
        assert rows.SOURCES[work.data].spec in (settings["dataset"], "")
        assert settings.get("attribute", "") in work.data


@pytest.mark.parametrize("name", ROWS)
def test_the_command_line_finds_every_row(name):
    assert registry.find(command.parse([name]).row) == ROWS[name]
    assert ROWS[name].work.command(name)


def test_a_changed_preset_has_another_name_and_no_results(monkeypatch, tmp_path):
    row = ROWS["datalens:table1:mnist-eps1"]
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    row.work.result().write_text('{"results": {}}')
    assert row.measured()
    preset = presets.get("datalens", row.work.preset)[1]
    for changed in (dataclasses.replace(preset, epsilon=2.0), dataclasses.replace(
            preset, config=dataclasses.replace(preset.config, d_steps=3))):
        monkeypatch.setitem(presets.all_of("datalens"), row.work.preset, changed)
        assert not row.measured()


def test_data_of_one_folder_in_two_sizes_have_two_names():
    assert ROWS["gpate:table1c:gender-s-eps1"].work.name() != (
        ROWS["gpate:table1c:gender-l-eps1"].work.name())
    assert len({work.name() for work in TRAININGS.values()}) == len(TRAININGS)


@pytest.mark.parametrize("data", ["mnist", "fashion"])
def test_gswgan_compares_with_gpate_by_its_authors_code(data):
    """Its appendix C.4; the run is the one of G-PATE's own table."""
    code = ROWS[f"gpate:table1c:{data}-eps10-code"].work
    for place in ("table1", "figure3", "tableA1" if data == "mnist" else "tableA2"):
        assert ROWS[f"gswgan:{place}:{data}-gpate"].work.result() == code.result()
    figure = "figure4" if data == "mnist" else "figureA2"
    for kind in ("noise", "iterations"):
        sweep = SWEEPS[f"gswgan:{figure}:{kind}-gpate"]
        assert sweep.settings["preset"] == code.preset
    config, _ = code.request()
    assert (config.teachers, config.projection, config.bins) == (2000, 10, 10)


def test_absent_data_are_named_in_one_line_with_their_place(monkeypatch, tmp_path):
    monkeypatch.setenv("DPGEN_DATA", str(tmp_path))
    line = rows.SOURCES["fashion"].absent()
    assert "t10k-labels-idx1-ubyte" in line and str(tmp_path) in line and "\n" not in line
    (tmp_path / "creditcard.csv").touch()
    assert rows.SOURCES["credit"].absent() is None
    assert "Anno/list_attr_celeba.txt" in rows.SOURCES["hair"].absent()


def test_variants():
    row = registry.find("gpate:table1c:mnist-eps1+no-noise")
    config, budget = row.work.request()
    plain, _ = ROWS["gpate:table1c:mnist-eps1"].work.request()
    assert config.sigma == 0 and config.steps > 100 and budget.epsilon == float("inf")
    assert config.projection == plain.projection and not row.paper
    config, _ = registry.find("gswgan:table1:mnist+as-published").work.request()
    assert (config.accounting, config.critics_per_step, config.sigma) == ("as-published", 1, 1.07)
    with pytest.raises(UserError, match="for gswgan and dpac"):
        registry.find("gpate:table1c:mnist-eps1+as-published").work.request()
    with pytest.raises(UserError, match="no variant"):
        registry.find("datalens:figure1:overview+no-noise")
    with pytest.raises(UserError, match="did you mean"):
        registry.find("datalens:table1:mnist-eps2")


def test_no_noise_takes_the_steps_of_the_row_itself_once_it_is_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    row, free = ROWS["gpate:table1c:mnist-eps1-code"], registry.find(
        "gpate:table1c:mnist-eps1-code+no-noise")
    planned, name = free.work.request()[0].steps, free.work.name()
    for took in (planned, planned + 174):  # unanswered queries leave budget for more
        row.work.result().write_text(json.dumps({"results": {"privacy": {"steps": took}}}))
        assert free.work.request()[0].steps == took
        assert (free.work.name() == name) == (took == planned)
    assert row.work.request()[0].steps is None and free.work.request()[0].sigma == 0


def test_figures_of_others_have_sources_and_systems_that_exist():
    for (system, data, _, _), quotes in page.QUOTES.items():
        assert all(source for _, source in quotes) and data in rows.SOURCES
        assert presets.all_of(system)
    quotes = page.QUOTES["gpate", "mnist", 10.0, "gen2real.cnn.accuracy"]
    assert {value for value, _ in quotes} == {"0.51", "0.420"}


def test_the_measured_bound_of_topagg_is_the_row_of_its_own_command():
    """It ran with a quarter of the teachers, which must not pass for the published run."""
    small, whole = ROWS["datalens:figure2:mnist-small"], ROWS["datalens:figure2:mnist"]
    recorded = json.loads(small.work.result().read_text())["command"]
    assert recorded == small.work.command(small.name) and "this library" in small.note
    assert whole.work.result() != small.work.result() and "--teachers" not in whole.work.argv
