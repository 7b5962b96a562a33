"""Figures show what they are given: the heights of bars are looked up in what is drawn."""

import math
import xml.etree.ElementTree as xml

import matplotlib
import numpy as np
import pytest
import report_examples as examples
from matplotlib.figure import Figure as Drawing
from PIL import Image

from dpgen_jax.evaluation import figures, marginals
from dpgen_jax.evaluation.assessment import read
from dpgen_jax.release import plots, render

FIRST = b"<?xml"


@pytest.fixture
def drawings(monkeypatch):
    """The matplotlib figures in the order in which they are drawn."""
    kept, finish = [], figures.svg

    def keep(height, draw):
        kept.append(Drawing(figsize=(figures.WIDTH, height)))
        draw(kept[-1])
        return finish(height, draw)

    for module in (figures, figures):
        monkeypatch.setattr(module, "svg", keep)
    return kept


def checked(figure, from_real):
    """A whole SVG without references to elsewhere, and an honest mark."""
    assert figure.data.startswith(FIRST) and figure.from_real is from_real
    assert figure.title and figure.caption and len(figure.data) < 600_000
    for element in xml.fromstring(figure.data).iter():
        assert not element.tag.endswith(("script", "foreignObject"))
        for name, value in element.attrib.items():
            if name.endswith("href"):
                assert value.startswith(("#", "data:image/png;base64,"))
    assert figure.uri.startswith("data:image/svg+xml;base64,")
    return figure


def test_learning_curves_draw_each_metric_at_its_steps(drawings):
    rows = examples.steps(50)
    checked(figures.learning_curves(rows), from_real=False)
    panels = [axes for axes in drawings[0].axes if axes.get_visible()]
    assert [axes.get_title("left") for axes in panels] == ["generator gradient", "released rms"]
    np.testing.assert_allclose(panels[1].lines[0].get_xydata(), [
        (row["step"], row["released_rms"]) for row in rows])


def test_long_runs_are_thinned_and_keep_their_ends(drawings):
    rows = [{"step": i, "epsilon": i / 9e4, "loss": float(i)} for i in range(90_000)]
    checked(figures.learning_curves(rows), from_real=False)
    checked(figures.epsilon_curve(rows, {"epsilon": 1.0}), from_real=False)
    assert "not from records" in figures.learning_curves(rows).caption
    assert "not from records" not in figures.learning_curves(rows, not_covered=True).caption
    x, y = drawings[0].axes[0].lines[0].get_data()
    assert len(x) == figures.MAX_POINTS and (x[0], x[-1]) == (0, 89_999) and y[-1] == 89_999
    assert [line.get_ydata()[0] for line in drawings[1].axes[0].lines] == [0, 1.0]


def test_many_metrics_are_capped_and_said():
    row = {"step": 1, "epsilon": 1.0} | {f"metric_{i}": 1.0 for i in range(40)}
    assert "12 of 40" in figures.learning_curves([row]).caption


@pytest.mark.parametrize("rows", [[], [{"step": 1}], [{"step": 1, "epsilon": None}]])
def test_nothing_to_draw_is_no_figure(rows):
    assert figures.learning_curves(rows) is None
    assert figures.epsilon_curve(rows, {"epsilon": math.inf}) is None
    steps = examples.steps(5)
    assert figures.epsilon_curve(steps, {"epsilon": 1.0}) is not None
    assert figures.epsilon_curve(steps, {"epsilon": math.inf}) is None  # of an older version's rows
    assert figures.utility_bars(read({})) is None and figures.attacks(read({})) is None


def test_bars_are_as_long_as_the_scores(drawings):
    metrics = examples.image_metrics()
    checked(figures.utility_bars(read(metrics)), from_real=True)
    synthetic, real = ([bar.get_width() for bar in bars] for bars in drawings[0].axes[0].containers
                       if hasattr(bars, "patches"))
    for result, task in ((synthetic, "gen2real"), (real, "real2real")):
        assert result == [scores["accuracy"]["mean"] for scores in metrics[task].values()]


def test_tables_are_drawn_by_auroc(drawings):
    checked(figures.utility_bars(read(examples.table_metrics(examples.spec(2)))), from_real=True)
    assert drawings[0].axes[0].get_xlabel().startswith("AUROC")


def test_marginals_are_shares_of_both_tables(drawings):
    table = examples.spec(5)
    synthetic, test = examples.cells(table, 400, 1.0), examples.cells(table, 300, 0.0)
    checked(figures.marginals(table, synthetic, test), from_real=True)
    label, first = drawings[0].axes[:2]
    for axes, values, edges in ((label, (synthetic[:, -1], test[:, -1]), np.arange(3) - 0.5),
                                (first, (synthetic[:, 0], test[:, 0]), np.linspace(0, 250, 21))):
        filled, outlined = axes.containers
        assert not outlined[0].get_facecolor()[3] and filled[0].get_facecolor()[3]
        for bars, column in zip((filled, outlined), values, strict=True):
            expected = np.histogram(column, edges)[0] * 100 / len(column)
            np.testing.assert_allclose([bar.get_height() for bar in bars], expected)
    assert len(drawings[0].axes[2].containers) == 4  # nulls of a nullable column stand apart


def test_correlations_are_pearson_and_their_difference(drawings):
    table = examples.spec(4)
    synthetic, test = examples.cells(table, 400, 1.0), examples.cells(table, 300, 0.0)
    test[:, 0] = 7.0  # constant
    figure = checked(figures.correlations(table, synthetic, test), from_real=True)
    assert "4 of 5 columns" in figure.caption  # not the nominal one
    ours, theirs, difference = (axes.images[0].get_array() for axes in drawings[0].axes[:3])
    assert ours[0, 2] == pytest.approx(np.corrcoef(synthetic[:, 0], synthetic[:, 3])[0, 1])
    assert not theirs[0].any()
    np.testing.assert_allclose(difference, ours - theirs)


def test_columns_without_an_order_have_no_correlations():
    table = examples.spec(3)
    table = type(table)((table.columns[2],), table.label, 1)
    assert figures.correlations(table, np.zeros((4, 2)), np.zeros((4, 2))) is None


def test_distances_of_pairs_stand_beside_those_of_real_records(drawings):
    table = examples.spec(4)
    synthetic, test = examples.cells(table, 400, 1.0), examples.cells(table, 300, 0.0)
    checked(figures.distances(table, synthetic, test, test), from_real=True)
    ours, apart, theirs = (axes.images[0].get_array() for axes in drawings[0].axes[:3])
    assert ours.shape == (5, 5) and not theirs.any()
    np.testing.assert_allclose(np.diag(apart), np.diag(ours))  # single columns stay as they are
    assert not np.allclose(apart, ours)
    np.testing.assert_allclose(ours, marginals.pairwise(synthetic, test, marginals.columns(table)))


def test_only_some_of_very_many_columns_are_paired(drawings):
    table = examples.spec(figures.MAX_PAIRED + 5)
    cells = examples.cells(table, 40, 1.0)
    figure = checked(figures.distances(table, cells, cells, cells), from_real=True)
    assert f"{figures.MAX_PAIRED} of {figures.MAX_PAIRED + 6} columns" in figure.caption
    assert drawings[0].axes[0].images[0].get_array().shape == (figures.MAX_PAIRED,) * 2


def test_attacks_stand_beside_the_bound_and_chance(drawings):
    membership = examples.membership()
    checked(figures.attacks(read({"membership": membership})), from_real=True)
    for axes, measure in zip(drawings[0].axes, ("auroc", "advantage", "tpr_at_1_percent_fpr"),
                             strict=True):
        points = axes.containers[0].lines[0].get_xdata()
        assert list(points) == [s[measure]["mean"] for s in membership["attacks"].values()]
        lines = {line.get_label(): line.get_xdata()[0] for line in axes.lines}
        assert lines["chance"] == membership["chance"][measure]
        assert lines["allowed at most"] == membership["allowed"][measure]
    assert "bounds nothing" in figures.attacks(read(
        {"membership": examples.membership(allowed=None)})).caption


def test_a_grid_has_a_row_for_each_class(tmp_path):
    images, labels = examples.images(4, 3, 12)
    shuffled = np.random.default_rng(0).permutation(len(labels))
    figure = figures.sample_grid(images[shuffled], labels[shuffled], ["a", "b", "c", "d"])
    assert figure.data.startswith(render.PNG) and not figure.from_real
    (tmp_path / "grid.png").write_bytes(figure.data)
    width, height = Image.open(tmp_path / "grid.png").size
    assert height == 4 * (60 + plots.GAP) + plots.GAP and width > 3 * 60


def test_grids_are_capped_and_said():
    images = np.zeros((100 * 2, 8, 8, 3), np.uint8)
    assert "40 of 100 classes" in figures.sample_grid(images, np.arange(100).repeat(2)).caption


def test_hostile_names_are_drawn_as_text():
    table = examples.spec(4, hostile=True)
    synthetic = examples.cells(table, 20, 0.0)
    checked(figures.marginals(table, synthetic, synthetic), True)
    checked(figures.correlations(table, synthetic, synthetic), True)
    name = "$\\frac{1}{" + examples.HOSTILE
    rows = [{"step": i, "epsilon": 1.0, name: 1.0} for i in range(3)]
    checked(figures.learning_curves(rows), False)
    scores = {name: {"accuracy": examples.leaf(0.5)}}
    checked(figures.utility_bars(read({"gen2real": scores})), True)
    checked(figures.attacks(read(
        {"membership": {"attacks": {name: {name: examples.leaf(0.5)}}}})), True)
    checked(figures.scatter([figures.Point(name, 1.0, name, 0.5, True)]), True)


def test_global_plotting_state_is_left_alone():
    before = dict(matplotlib.rcParams)
    found = examples.image_report().found
    assert figures.attacks(found) == figures.attacks(found)
    assert dict(matplotlib.rcParams) == before
