"""Pictures: the right size, the right pixels in the right places, and never blank."""

import numpy as np
import pytest
from PIL import Image

from dpgen_jax.core.types import Column, TableSpec, UserError
from dpgen_jax.release import plots


def opened(path):
    image = Image.open(path)
    assert image.format == "PNG"
    return np.asarray(image.convert("RGB"))


def margin(picture, tile, columns):
    return picture.shape[1] - columns * (tile + plots.GAP)


def ticks(n):
    return [{"step": s, "epsilon": s / n, "seconds": 1.0, "loss": 1 / s, "rms": 1e-3 * s}
            for s in range(1, n + 1)]


@pytest.mark.parametrize("channels", [1, 3])
def test_grid_shows_each_pixel_as_a_crisp_square(tmp_path, channels):
    images = np.random.default_rng(0).random((2, 3, 28, 28, channels))
    picture = opened(plots.samples_grid(images.reshape(6, 28, 28, channels), tmp_path / "g.png", 2,
                                        ["cat", "dog"]))
    tile, gap = 56, plots.GAP
    assert picture.shape[0] == 2 * (tile + gap) + gap
    left = margin(picture, tile, 3)
    row, column = 1, 2
    top, start = gap + row * (tile + gap), left + column * (tile + gap)
    expected = np.round(images[row, column] * 255).repeat(2, 0).repeat(2, 1)
    shown = picture[top:top + tile, start:start + tile]
    np.testing.assert_array_equal(shown, np.broadcast_to(expected, (tile, tile, 3)))


def test_each_row_has_its_label(tmp_path):
    picture = opened(plots.samples_grid(np.zeros((6, 8, 8, 1)), tmp_path / "g.png", 3))
    left, height = margin(picture, 56, 2), 56 + plots.GAP
    names = [picture[plots.GAP + i * height:(i + 1) * height, :left] for i in range(3)]
    assert all((name < 128).any() for name in names)
    assert not np.array_equal(names[0], names[1])


def test_rows_are_filled_in_order(tmp_path):
    x = np.stack([np.full((60, 60), value, np.uint8) for value in (10, 20, 30, 40)])
    picture = opened(plots.samples_grid(x, tmp_path / "g.png", rows=2))
    left, step = margin(picture, 60, 2), 60 + plots.GAP
    shown = [[picture[plots.GAP + r * step, left + c * step, 0] for c in range(2)]
             for r in range(2)]
    assert shown == [[10, 20], [30, 40]]


def test_values_outside_the_range_are_clipped(tmp_path):
    images = np.full((4, 64, 64, 1), -3.0)
    images[1:] = np.array([2.0, np.nan, np.inf])[:, None, None, None]
    picture = opened(plots.samples_grid(images, tmp_path / "g.png", 1))
    left = margin(picture, 64, 4)
    assert [picture[20, left + 5 + i * (64 + plots.GAP), 0] for i in range(4)] == [0, 255, 0, 255]


@pytest.mark.parametrize(("images", "rows"), [
    (np.zeros((2, 8, 8, 2)), 2), (np.zeros((3, 8, 8)), 2), (np.zeros((0, 8, 8)), 2),
    (np.zeros((2, 8, 8)), 0), (np.zeros((2, 8, 8)), 1)])
def test_malformed_grids_are_refused(tmp_path, images, rows):
    with pytest.raises(UserError):
        plots.samples_grid(images, tmp_path / "g.png", rows, ["a", "b"])
    assert not (tmp_path / "g.png").exists()


@pytest.mark.parametrize(("n", "name"), [(1, "epsilon"), (100, "epsilon"), (100, "budget_epsilon")])
def test_curves_draw_metrics_and_epsilon(tmp_path, n, name):
    rows = [{name if key == "epsilon" else key: value for key, value in row.items()}
            for row in ticks(n)]
    picture = opened(plots.curves(rows, tmp_path / "c.png"))
    assert picture.shape == (720, 960, 3)
    orange = np.abs(picture.astype(int) - [0xC1, 0x44, 0x0E]).sum(-1) < 30
    blue = np.abs(picture.astype(int) - [0x1F, 0x77, 0xB4]).sum(-1) < 30
    assert orange[415:].any() and not orange[:400].any()  # epsilon, below
    assert blue[:400].any() and not blue[415:].any()  # the first metric, above


def test_one_row_without_a_promise_takes_it_from_the_curve(tmp_path):
    """A client's seed came in the third round: "epsilon spent", said the curve, and ended there."""
    def renamed(rows):
        return [{"budget_epsilon" if key == "epsilon" else key: value for key, value in row.items()}
                for row in rows]

    rows = ticks(6)
    mixed, none, all_of_it = (opened(plots.curves(some, tmp_path / "c.png")) for some in (
        rows[:2] + renamed(rows[2:]), renamed(rows), rows))
    np.testing.assert_array_equal(mixed, none)
    assert not np.array_equal(mixed, all_of_it)


def test_curves_leave_gaps_and_read_the_file(tmp_path):
    (tmp_path / "m.jsonl").write_text('{"step": 1, "epsilon": 0.1, "loss": null}\n'
                                      '{"step": 2, "epsilon": 0.2, "loss": 0.5}\n{"st')
    picture = opened(plots.curves(tmp_path / "m.jsonl", tmp_path / "c.png"))
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 10


def test_no_rows_no_picture(tmp_path):
    with pytest.raises(UserError, match="no metrics"):
        plots.curves([], tmp_path / "c.png")


AGE = Column("age", "integer", 0, 100)
JOB = Column("job", "categorical", categories=("baker", "an author of very long novels", "$"),
             nullable=True)
ILL = Column("ill", "categorical", categories=("no", "maybe", "yes"))


BLUE, GREY = (0x1F, 0x77, 0xB4), (0x9A, 0x9A, 0x9A)


def bars(picture, colour=BLUE):
    """(left edge, width, height) of each bar; text has pixels of any grey, but no high columns."""
    filled = np.abs(picture.astype(int) - colour).sum(-1) < 10
    high = filled.sum(0) > 20
    edges = np.flatnonzero(np.diff(np.pad(high, 1).astype(int)))
    return [(left, right - left, filled[:, left:right].sum(0).max())
            for left, right in edges.reshape(-1, 2)]


def drawn(path, columns, x, y=None):
    spec = TableSpec(columns, ILL, len(columns))
    return opened(plots.marginals(spec, x, np.zeros(len(x), int) if y is None else y, path))


def test_marginals_draw_the_shares_of_classes_first(tmp_path):
    picture = drawn(tmp_path / "m.png", (), np.zeros((20, 0)), np.repeat([0, 1, 1, 2], 5))
    left, middle, right = (height for *_, height in bars(picture))
    assert middle == pytest.approx(2 * left, abs=3) and left == pytest.approx(right, abs=3)
    assert not bars(picture, GREY)


def test_null_has_a_grey_bar_of_its_own(tmp_path):
    picture = drawn(tmp_path / "m.png", (JOB,), np.array([[0.0], [0.0], [np.nan], [np.nan]]))
    (_, (blue, *_, height)), ((grey, *_, null),) = bars(picture), bars(picture, GREY)
    assert null == pytest.approx(height, abs=3) and grey > blue


def test_bins_lie_between_the_declared_bounds(tmp_path):
    low, high = (bars(drawn(tmp_path / "m.png", (AGE,), np.full((9, 1), age)))
                 for age in (2.0, 98.0))
    assert len(low) == len(high) == 2 and low[0] == high[0]  # the label, the age
    assert high[1][0] - low[1][0] == pytest.approx(19 * low[1][1], rel=0.1)


@pytest.mark.parametrize("only", [0.0, -1e17])
def test_bounds_may_be_one_number(tmp_path, only):
    column = Column("US$ of one day", "continuous", only, only)
    assert len(bars(drawn(tmp_path / "m.png", (column,), np.full((4, 1), only)))) == 2


def test_many_columns_are_cut_and_the_title_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "MAX_PANELS", 3)
    x = np.resize([5.0, 1.0], (8, 4))
    many = drawn(tmp_path / "many.png", (AGE, JOB) * 2, x)
    three = drawn(tmp_path / "three.png", (AGE, JOB), x[:, :2])
    assert len(bars(many)) == len(bars(three)) == 3
    np.testing.assert_array_equal(many[30:], three[30:])
    assert not np.array_equal(many[:30], three[:30])


@pytest.mark.parametrize(("x", "y"), [
    (np.zeros((0, 1)), np.zeros(0)), (np.zeros((3, 2)), np.zeros(3)),
    (np.zeros((3, 1)), np.zeros(2)), (np.zeros(3), np.zeros(3))])
def test_malformed_tables_are_refused(tmp_path, x, y):
    with pytest.raises(UserError, match=r"expected \[n, 1\]"):
        drawn(tmp_path / "m.png", (AGE,), x, y)


def test_points_of_a_metric_that_is_rarely_measured_are_joined():
    rare = np.array([np.nan, 1.0, np.nan, np.nan, 2.0])
    often = np.array([1.0, 2.0, np.nan, 3.0, 4.0])
    steps, values = plots.joined([1, 2, 3, 4, 5], rare)
    assert (steps.tolist(), values.tolist()) == ([2, 5], [1.0, 2.0])
    steps, values = plots.joined([1, 2, 3, 4, 5], often)
    assert steps.tolist() == [1, 2, 3, 4, 5] and np.isnan(values[2])


@pytest.mark.parametrize("value", [1e308, -1e308, 2**63, 1e-320])
def test_values_of_any_size_leave_a_picture(tmp_path, value):
    rows = [{"step": 1, "epsilon": value, "loss": -value}, {"step": 2, "epsilon": -value,
                                                            "loss": value}, {"step": 3, "loss": 1}]
    plots.curves(rows, tmp_path / "c.png")
