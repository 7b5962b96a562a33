"""The parts that all pages share: numbers as text, tables of cells, figures, and the templates.

Templates escape all text: names of data sets, columns and notes are hostile input. A page runs no
script and loads nothing; its Content-Security-Policy makes the browser refuse both.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import jinja2

from dpgen_jax.core.terms import at_most

MAX_TEXT = 300
"""The most letters of one cell; longer text is cut, and says so."""
MAX_ROWS = 2000
"""The most rows of one table; later ones are left out, and the caption says so."""
PNG = b"\x89PNG"
"""The first bytes of a PNG file."""
NAMES = {"fid": "FID (Inception-v3)", "fid_features": "Fr\u00e9chet distance of features",
         "tpr_at_1_percent_fpr": "TPR at 1 % FPR"}
"""Labels of metrics; "FID" stands only for the distance of Inception's features."""
WORDS = {"auroc": "AUROC", "auprc": "AUPRC", "cnn": "CNN", "mlp": "MLP", "lda": "LDA",
         "lr": "weighted logistic regression", "svm": "SVM", "svc": "SVC", "nb": "naive Bayes",
         "gaussian": "Gaussian", "bernoulli": "Bernoulli", "tvd": "TVD", "tpr": "TPR",
         "fpr": "FPR", "pmse": "pMSE", "r2": "R\u00b2", "xgboost": "XGBoost",
         "adaboost": "AdaBoost"}
"""Parts of a name that a label writes in another way."""
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
                    "\ud800-\udfff\ufffe\uffff]")
"""control characters, marks that turn the direction of writing, and halves of surrogate pairs"""
POWERS = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078"
                       "\u2079")
"""The minus sign and the digits as superscripts."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    real: bool = False
    """Whether it is computed from real records, and so marked."""
    best: bool = False
    """Whether it is the best of its row."""


NOTHING = Cell("\u2013")
"""The cell for a missing value."""


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of a page."""

    caption: str
    head: tuple[str, ...]
    """The names of all columns."""
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    """For each row its name and its other cells."""
    numeric: bool = True
    """Whether the cells are numbers, set flush right."""


@dataclasses.dataclass(frozen=True)
class Figure:
    """A picture with its title and caption."""

    title: str
    """The title, which is also the text for those who cannot see the picture."""
    caption: str
    data: bytes
    """A whole SVG or PNG file."""
    from_real: bool = False
    """Whether it is drawn from real records, and so not covered by epsilon."""

    @property
    def is_pixels(self) -> bool:
        """Whether the data are a PNG file."""
        return self.data.startswith(PNG)

    @property
    def uri(self) -> str:
        """The picture as a data: URI. An image runs no scripts, whatever its text says."""
        kind = "png" if self.is_pixels else "svg+xml"
        return f"data:image/{kind};base64,{base64.b64encode(self.data).decode()}"


def table(caption: str, head: Sequence[str], rows: Sequence[tuple[str, Sequence[Cell]]],
          numeric: bool = True) -> Table:
    """Build a table of at most `MAX_ROWS` rows; the caption says how many are left out."""
    if len(rows) > MAX_ROWS:
        caption = f"{caption}; the first {MAX_ROWS:,} of {len(rows):,} rows"
    return Table(caption, tuple(head), tuple((shorten(name), tuple(cells))
                                             for name, cells in rows[:MAX_ROWS]), numeric)


def visible(text: str) -> str:
    """Return a text with a replacement mark for each character that cannot be shown.

    That is one which no font or page has, or which would change how the text around it reads.
    """
    return UNSEEN.sub("\ufffd", text)


def page(package: str, template: str, **context: Any) -> str:
    """Return a page, from a template of a package, as text that can be encoded in any file."""
    return visible(_environment(package).get_template(template).render(context))


def number(value: object) -> str:
    """Return a number, or another JSON value, as text for people, with four significant digits."""
    if value is None:
        return "\u2013"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, float):
        return shorten(str(value))
    if not math.isfinite(value):
        return "infinite" if math.isinf(value) else "not a number"
    if value.is_integer() and abs(value) < 1e6:
        return f"{value:,.0f}"
    if 1e-4 <= abs(value) < 1e6:  # six digits just below 1, or a bound would read as 1
        return f"{value:,.1f}" if abs(value) >= 1e4 else (
            f"{value:.6g}" if 0.999 < abs(value) < 1 else f"{value:.4g}")
    digits, _, power = f"{value:.3g}".partition("e")
    raised = str(int(power or 0)).translate(POWERS)
    return f"10{raised}" if digits == "1" else f"{digits} \u00d7 10{raised}"


def bound(value: object) -> str:
    """Return an upper bound, as epsilon and delta are, as `number` does, but never too low."""
    if not isinstance(value, float):
        return number(value)
    return number(float(at_most(value, 4 if 1e-4 <= abs(value) < 1e6 else 3)))


def one_in(delta: float) -> str:
    """Return what a small probability means, as " (1 in 3)", never as fewer than there are."""
    # Of the decimal number that people read, not of the float next to it.
    return f" (1 in {int(1 / Decimal(repr(float(delta)))):,})" if 0 < delta < 0.1 else ""


def score(mean: Any, std: Any = None) -> str:
    """Return a mean and its standard deviation, where it is known, as text."""
    if not isinstance(mean, int | float) or not math.isfinite(mean):
        return number(mean)
    places = 2 if abs(mean) >= 10 else 3 if abs(mean) >= 0.05 else 4
    return f"{mean:.{places}f}" + ("" if std is None else f" \u00b1 {std:.{places}f}")


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted path and the plain value of everything in a nested JSON value.

    A list of plain values is one value, as text.
    """
    if isinstance(value, list | tuple) and any(
            isinstance(part, dict | list | tuple) for part in value):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        for name, part in value.items():
            yield from leaves(part, f"{path}.{name}" if path else str(name))
    else:
        yield path, ", ".join(map(number, value)) if isinstance(value, list | tuple) else value


def title(name: str) -> str:
    """Return the label of a name with a capital, to begin a line with."""
    text = label(name)
    return text[:1].upper() + text[1:]


def label(name: str) -> str:
    """Return the name of a metric or classifier as people write it."""
    return NAMES.get(name) or " ".join(WORDS.get(word, word) for word in str(name).split("_"))


def shorten(text: str, limit: int = MAX_TEXT) -> str:
    """Return at most `limit` letters, and where text was cut how many there were."""
    text = str(text)
    return text if len(text) <= limit else f"{text[:limit]}\u2026 ({len(text):,} letters)"


@functools.cache
def _environment(package: str) -> jinja2.Environment:
    """Return the templates of a package, and those here that they extend."""
    made = jinja2.Environment(loader=jinja2.ChoiceLoader(
        [jinja2.PackageLoader(name) for name in dict.fromkeys((package, __package__))]),
        autoescape=True, trim_blocks=True, lstrip_blocks=True)
    made.filters["number"] = number
    made.filters["bound"] = bound
    return made
