"""The tables of docs/papers.md: what a line shows of its results."""

import json

import pytest

from benchmarks import common
from benchmarks.papers import page, registry
from benchmarks.papers.page import preset_of
from benchmarks.papers.registry import ROWS
from benchmarks.papers.rows import Row, Training
from dpgen_jax import presets
from dpgen_jax.evaluation import utility

pytestmark = pytest.mark.long


@pytest.fixture
def results(monkeypatch, tmp_path):
    monkeypatch.setattr(common, "RESULTS", tmp_path)

    def write(name, **record):
        row = registry.find(name)
        row.work.result().write_text(json.dumps({"results": record}))
        return row

    return write


def leaf(*values):
    return {"mean": sum(values) / len(values), "std": 0.01, "values": list(values)}


def test_a_line_has_the_paper_others_and_ours_at_a_proven_epsilon(results):
    row = results(
        "gpate:table1c:mnist-eps10", training_seconds=7200.0,
        privacy={"epsilon": 10.0, "steps": 3456}, fidelity={"inception_score": leaf(2.5)},
        evaluation={"gen2real": {"cnn": {"accuracy": leaf(0.4, 0.5)}}},
        as_systems={"gen2real": {"mlp": {"accuracy": leaf(0.6)}}},
        votes={"most agreed bin": 0.6, "second": 0.39, "answered": 0.25})
    cells = dict(zip(page.HEAD, page.line(row), strict=True))
    assert cells["row"] == "`gpate:table1c:mnist-eps10`" and cells["paper"] == "CNN 0.8092"
    assert "0.51 (re-run by GS-WGAN's authors" in cells["others"] and "0.420" in cells["others"]
    assert cells["here"] == "CNN 0.450 ± 0.010"
    assert (cells["IS"], cells["in our protocol"]) == ("2.500", "MLP 0.600")
    assert cells["teachers"] == ("votes in the first bin 0.600; in the second 0.390; answered "
                                 "queries 0.250")
    assert [cells[name] for name in ("epsilon", "steps", "memory", "hours")] == [
        "10", "3,456", "26 GB", "2.0"]
    assert cells["results"].endswith(f"{row.work.result().name})")


def test_an_average_over_fewer_classifiers_than_the_papers_is_not_shown(results):
    def evaluation(*names):
        return {"gen2real": {name: {"accuracy": leaf(0.4)} for name in names},
                "average": {"gen2real": {"accuracy": leaf(0.3)}}}

    row = results("gswgan:table1:mnist-dpmerf", evaluation=evaluation("cnn", "mlp"))
    assert page.line(row)[3] == "MLP 0.400; CNN 0.400" and "average" in page.missing(row)
    row = results("gswgan:table1:mnist-dpmerf", evaluation=evaluation(*utility.ALL_CLASSIFIERS))
    assert page.line(row)[3] == "MLP 0.400; CNN 0.400; average 0.300"


def test_variants_stand_below_their_row_once_they_are_measured(results):
    assert "+no-noise" not in page.paper("gpate")
    results("gpate:table1c:mnist-eps1+no-noise", training_seconds=1.0, evaluation={
        "gen2real": {"cnn": {"accuracy": leaf(0.7)}}}, privacy={"epsilon": "inf", "steps": 226})
    lines = page.paper("gpate").splitlines()
    at = next(i for i, text in enumerate(lines) if "table1c:mnist-eps1+no-noise" in text)
    assert "`gpate:table1c:mnist-eps1`" in lines[at - 1] and "inf (no guarantee)" in lines[at]


def test_cells_of_a_sweep_stand_beside_what_the_paper_prints(results):
    row = results("gpate:table4:mnist-bins", rows=[
        {"label": "bins 5", "metrics": {"gen2real.cnn.accuracy": leaf(0.25)}},
        {"label": "bins 10", "error": "the budget allows no step"}])
    paper, here = page.line(row)[1], page.line(row)[3]
    assert paper.startswith("bins 5: CNN 0.588; bins 10: CNN 0.581")
    assert here == "bins 5: CNN 0.250; bins 10 not affordable; not yet: bins 20"


def test_norms_are_shown_with_their_picture(results):
    def variant(median, share):
        return {"settings": {"clip": 1.0}, "rows": [{}, {
            "quantiles": {"0.5": median}, "share_above_clip": share}]}

    row = results("gswgan:figure2:mnist-small", variants={
        "GS-WGAN, clipped": variant(2.5, 1.0), "DP-SGD GAN, clipped": variant(0.25, 0.125)})
    line = page.line(row)
    assert line[3] == (
        "GS-WGAN, clipped: median 2.50, 1.00 behind a clip of 1, 100 % above it; "
        "DP-SGD GAN, clipped: median 0.25, 0.25 behind a clip of 1, 12.5 % above it")
    name = row.work.result().stem
    assert line[-2] == (f"[json](../benchmarks/results/{name}.json), "
                        f"[picture](../benchmarks/results/{name}.png)")


def test_results_are_shown_once_among_what_is_measured(results):
    record = {"training_seconds": 1.0, "privacy": {"epsilon": 1.0, "steps": 2}, "evaluation": {
        "gen2real": {"cnn": {"accuracy": leaf(0.7)}}}}
    results("datalens:table1:mnist-eps1", **record)
    text = page.measured()
    assert text.count("0.700") == 1  # Tables 3 and 12 and Figure 4 are of the same run
    assert page.paper("datalens").count("0.700") >= 3
    counts = page.counts()
    assert counts["measured"] == 1 and counts["runs"] < counts["rows"] == len(ROWS)
    results("datalens:table5:glyphs-same-steps", rows=[{"label": "d2p-fed"}])  # one of its cells
    assert page.counts() == counts


def test_a_row_says_on_what_it_was_trained(results):
    row = results("datalens:table1:mnist-eps1", training_seconds=60.0, trained_on=["NVIDIA H200"],
                  privacy={"epsilon": 1.0, "steps": 2})
    assert page.spent(row)[2] == "<0.1 on one NVIDIA H200"


def test_a_row_without_results_shows_an_estimate():
    row = Row("datalens:table1:x", Training("datalens", "mnist-eps1-mean", "mnist"), {}, 3.0)
    cells = {name: cell for name, cell in zip(page.HEAD, page.line(row), strict=True) if cell}
    assert cells.pop("note") and cells == {
        "row": "`datalens:table1:x`", "memory": "18 GB", "hours": "~3"}


def test_a_row_with_settings_of_this_library_says_so():
    note = page.line(ROWS["gpate:table1c:mnist-eps1-gswgan"])[-1]  # the paper's are for epsilon 10
    assert note.startswith("settings of this library: chosen from five trainings")
    assert page.line(ROWS["gswgan:table1:mnist"])[-1] == ""
    assert page.line(ROWS["gpate:without-pate:mnist-eps1"])[-1].startswith("DP-GAN with random")
    for row in ROWS.values():
        chosen = preset_of(row.work)
        ours = chosen and presets.get(*chosen)[1].source.startswith("this library")
        assert not ours or "this library" in page.noted(row), row.name
