"""Texts of the data in pictures and pages: formulas, halves of surrogate pairs, zero bytes, and
marks that turn the direction of writing are shown as text, or as a mark that there was something.
"""

import contextlib
import io
from xml.etree import ElementTree

import numpy as np
import pytest
import report_examples as examples

from dpgen_jax.core.types import Column, TableSpec
from dpgen_jax.evaluation import figures
from dpgen_jax.evaluation import report as page
from dpgen_jax.evaluation.assessment import read
from dpgen_jax.release import plots

TEXTS = ["$x^$", "$\\frac{1}{$", "$$", "\\$a$b$", "cost $5 to $7 {", "half \ud800", "zero\x00byte",
         "two\nlines", "\u202eturned", "\x1b[31mred", "--><script>", "\ufffe", "\u0301"]
UNSEEN = ["\x00", "\ud800", "\u202e", "\x1b", "\ufffe"]


def table() -> TableSpec:
    return TableSpec((
        *(Column(text, "continuous", 0.0, 1.0) for text in TEXTS),
        Column("job", "categorical", categories=tuple(TEXTS[:8])),
        Column("ward", "ordinal", categories=tuple(TEXTS[8:]))),
        Column("y", "categorical", categories=tuple(TEXTS[:2])), len(TEXTS) + 2)


@pytest.mark.slow
def test_every_picture_can_be_drawn(tmp_path):
    spec = table()
    cells = examples.cells(spec, 30, 0.0)
    rows = [{"step": i, "epsilon": 1.0} | dict.fromkeys(TEXTS, 1.0 + i) for i in range(3)]
    scores = {text: {TEXTS[0]: examples.leaf(0.5)} for text in TEXTS}
    drawings = [
        figures.marginals(spec, cells, cells), figures.correlations(spec, cells, cells),
        figures.distances(spec, cells, cells, cells), figures.learning_curves(rows),
        figures.attacks(read({"membership": {"attacks": scores}})),
        figures.utility_bars(read({"gen2real": scores})),
        figures.scatter([figures.Point(text, 1.0 + i, TEXTS[0], 0.5, True)
                         for i, text in enumerate(TEXTS)])]
    plots.curves(rows, tmp_path / "curves.png")
    for drawing in drawings:
        ElementTree.fromstring(drawing.data)  # or a browser shows nothing
    plots.marginals(spec, cells[:, :-1], cells[:, -1].astype(int), tmp_path / "m.png")
    images = np.zeros((len(TEXTS), 4, 4, 1), np.uint8)
    plots.samples_grid(images, tmp_path / "g.png", len(TEXTS), TEXTS)
    figures.sample_grid(images, np.arange(len(TEXTS)), TEXTS)


@pytest.mark.parametrize("text", TEXTS)
def test_a_drawn_text_is_no_formula(text):
    from matplotlib import cbook

    shown = plots.plain_text(text)
    assert not cbook.is_math_text(shown) and "\n" not in shown
    assert shown.replace(r"\$", "$").count("$") == text.count("$")


def test_every_page_can_be_written(tmp_path):
    names = dict.fromkeys(TEXTS, "value")
    metrics = read(examples.image_metrics(notes=TEXTS, dataset=TEXTS[5], fidelity={},
                                          membership={}))
    report = page.Report(metrics, examples.privacy(data_notes=TEXTS, method=TEXTS[6]),
                         examples.config(dataset=TEXTS[8], config=names),
                         samples=(TEXTS, [TEXTS, TEXTS[::-1]]))
    entry = page.Entry(TEXTS[5], metrics, examples.privacy(unit=TEXTS[6]))
    pages = [page.page(report), page.compare([entry, entry]), page.private_page(
        TEXTS[5], [TEXTS], [TEXTS[::-1]], np.zeros(1), {TEXTS[5]: 1.0}, TEXTS)]
    for i, text in enumerate(pages):
        (tmp_path / f"{i}.html").write_text(text, encoding="utf-8")
        assert not any(mark in text for mark in UNSEEN) and "\ufffd" in text
        assert "<script>" not in text


def test_many_categories_share_bars():
    """A bar is an object of its own: a hundred thousand of them took minutes."""
    from matplotlib.figure import Figure

    count = 100_000
    column = Column("c", "categorical", categories=tuple(f"v{i}" for i in range(count)))
    axes = Figure().subplots()
    plots.marginal(axes, column, np.arange(count, dtype=float))
    heights = [bar.get_height() for bar in axes.patches]
    assert len(heights) == plots.MAX_BARS and sum(heights) == pytest.approx(100)
    assert max(heights) < 1.01 * min(heights)


def test_only_some_of_very_many_columns_are_correlated():
    spec = examples.spec(figures.MAX_PAIRED + 40)
    synthetic = examples.cells(spec, 20, 0.0)
    caption = figures.correlations(spec, synthetic, synthetic).caption
    assert f"{figures.MAX_PAIRED} of {len(spec.columns) + 1} columns" in caption


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_terminal_that_cannot_show_a_text_is_no_traceback(monkeypatch, encoding):
    import sys

    from dpgen_jax.cli import terminal
    from dpgen_jax.core.types import UserError

    def command(argv):
        print("note: \ud800 caf\u00e9")
        raise UserError("two\nlines \x1b[31m \udcff")

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with contextlib.suppress(SystemExit):
        terminal.main(command)
    for stream in (out, err):
        stream.flush()
    printed = err.buffer.getvalue().decode(encoding)
    assert printed.count("\n") == 1 and "\x1b" not in printed and printed.startswith("error: two")
    assert b"\\ud800" in out.buffer.getvalue()
