"""The table of what has run as published: it counts trainings of published settings alone."""

import json

import pytest

from benchmarks import common
from benchmarks.papers import __main__ as command
from benchmarks.papers import page, registry

pytestmark = pytest.mark.long


@pytest.fixture
def results(monkeypatch, tmp_path):
    monkeypatch.setattr(common, "RESULTS", tmp_path)

    def write(name, **record):
        row = registry.find(name)
        row.work.result().write_text(json.dumps({"results": record}))
        return row

    return write


def leaf(value):
    return {"mean": value, "std": 0.0, "values": [value]}


def cells(system):
    title = page.SYSTEMS[system]
    line = next(line for line in page.runs_table().splitlines() if line.startswith(f"| {title} |"))
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_nothing_has_run_where_there_are_no_results(results):
    assert all(cells(system)[1::2][:2] == ["0", "0"] and cells(system)[-1] == "none yet"
               for system in page.SYSTEMS)
    assert int(cells("gpate")[0]) > 10 and int(cells("gswgan federated")[0]) == 1
    assert page.run_sentence("dpac") == "none of its 3 trainings in the papers' tables has been run"


def test_a_training_counts_once_and_only_with_published_settings(results):
    row = results("datalens:table1:mnist-eps1", training_seconds=1.0, fidelity={}, privacy={
        "epsilon": 1.0, "steps": 149}, evaluation={"gen2real": {"cnn": {"accuracy": leaf(0.12)}}})
    results("datalens:table1:mnist-eps1-mean", training_seconds=1.0)  # of this library
    assert cells("datalens")[1] == "1" and cells("datalens")[-1] == f"`{row.name}`"
    assert page.done(row) == f"`{row.name}`: CNN 0.120 at epsilon 1 (the paper: CNN 0.7123)"
    assert "tables has been run: `datalens:table1:mnist-eps1`" in page.run_sentence("datalens")


def test_a_training_goes_by_the_row_of_its_own_paper():
    names = [row.name for system in ("gpate", "gswgan", "dpac") for row in page.runs(system)]
    assert {"gpate:table1c:mnist-eps1", "gswgan:table1:mnist", "dpac:table2:mnist"} <= set(names)
    assert not {"gpate:table1b:mnist-eps1", "gpate:table1c:mnist-eps10-gswgan"} & set(names)


def test_sweeps_are_counted_apart(results):
    before = cells("gpate")
    rows = [{"label": f"bins {bins}", "metrics": {}} for bins in (5, 10, 20)]
    for done, count in ((2, "0"), (3, "1")):  # a sweep with two of three cells has not been run
        results("gpate:table4:mnist-bins", rows=rows[:done])
        assert cells("gpate")[:4] == [*before[:3], count]


def test_a_row_measured_in_part_says_what_is_missing(results, capsys):
    row = results("datalens:table12:mnist-eps1", training_seconds=100.0, privacy={
        "epsilon": 1.0, "steps": 149}, fidelity={"inception_score": leaf(2.0) | {"floor": 9.5}})
    assert page.missing(row) == ["FID"] and page.here(row) == {
        "fidelity.inception_score": "2.000 (real 9.500)"}
    assert command.state(row) == "measured without FID" and command.hours(row) == "<0.1"
    sweep = results("gpate:table4:mnist-bins", rows=[
        {"label": "bins 5", "metrics": {"gen2real.cnn.accuracy": leaf(0.25)}},
        {"label": "bins 10", "error": "the budget allows no step"}])
    assert page.missing(sweep) == ["bins 20"]
    assert command.state(sweep) == "measured without bins 20"
    assert page.line(sweep)[3] == "bins 5: CNN 0.250; bins 10 not affordable; not yet: bins 20"


def test_a_sweep_of_which_the_paper_prints_nothing_is_measured_cell_by_cell(results):
    sweep = results("gswgan:figure4:noise-dpmerf", rows=[
        {"label": f"epsilon {epsilon}", "metrics": {"fidelity.inception_score": leaf(2.0)}}
        for epsilon in (1, 2, 5)])
    assert page.missing(sweep) == ["epsilon 10", "epsilon 20"]
    one = results("datalens:figure3:mnist-dpdl-eps2", rows=[
        {"label": "", "metrics": {"accuracy": leaf(0.9)}}])
    assert page.missing(one) == [] and page.line(one)[3] == "accuracy 0.900"


def test_numbers_read_well(results):
    row = results("gswgan:table2:cost", rows=[{
        "method": "gswgan", "noise": 1.07, "cost": {"as_published": {"epsilon": 597.1744}},
        "bytes_of_a_step": {"to_a_client": 15832460}}])
    assert list(page.here(row).values()) == ["597.174", "15,832,460"]
    assert page.hours_text(0.0) == "<0.1" and page.hours_text(7200) == "2.0"
