"""What all pages are made of: numbers as text, tables of cells, and the templates.

Templates escape all text: names of data sets, columns and notes are hostile input. A page runs no
script and loads nothing; its Content-Security-Policy makes the browser refuse both.
"""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jinja2

from dpgen_jax.run.plots import visible

MAX_TEXT = 300
"""Letters of one cell; longer text is cut, and says so."""
MAX_ROWS = 2000
"""Rows of one table; later ones are left out, and the caption says so."""
PNG = b"\x89PNG"
NAMES = {"fid": "FID (Inception-v3)", "fid_features": "Fr\u00e9chet distance of features",
         "tpr_at_1_percent_fpr": "TPR at 1 % FPR"}
"""Of metrics; "FID" is only said of Inception's features."""
UPPER = {"auroc": "AUROC", "auprc": "AUPRC", "cnn": "CNN", "mlp": "MLP", "lda": "LDA",
         "lr": "logistic regression", "svm": "SVM", "svc": "SVC", "nb": "naive Bayes",
         "gaussian": "Gaussian", "bernoulli": "Bernoulli", "tvd": "TVD", "tpr": "TPR",
         "fpr": "FPR", "pmse": "pMSE", "xgboost": "XGBoost", "adaboost": "AdaBoost"}
POWERS = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078"
                       "\u2079")


@dataclasses.dataclass(frozen=True)
class Cell:
    """text; real: computed from real records, so marked; best: the best of its row."""

    text: str
    real: bool = False
    best: bool = False


@dataclasses.dataclass(frozen=True)
class Table:
    """caption; head: the names of all columns; rows: the name of a row, and its other cells.
    numeric: the cells are numbers, set flush right."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    numeric: bool = True


@dataclasses.dataclass(frozen=True)
class Figure:
    """A picture: title, which is also its text for those who cannot see it; caption; data, a whole
    SVG or PNG file; from_real: drawn from real records, so not covered by epsilon."""

    title: str
    caption: str
    data: bytes
    from_real: bool = False

    @property
    def is_pixels(self) -> bool:
        """Whether it is a PNG."""
        return self.data.startswith(PNG)

    @property
    def uri(self) -> str:
        """As data: URI. An image runs no scripts, whatever its text says."""
        kind = "png" if self.is_pixels else "svg+xml"
        return f"data:image/{kind};base64,{base64.b64encode(self.data).decode()}"


def table(caption: str, head: Sequence[str], rows: Sequence[tuple[str, Sequence[Cell]]],
          numeric: bool = True) -> Table:
    """A table of at most `MAX_ROWS` rows."""
    if len(rows) > MAX_ROWS:
        caption = f"{caption}; the first {MAX_ROWS:,} of {len(rows):,} rows"
    return Table(caption, tuple(head), tuple((shorten(name), tuple(cells))
                                             for name, cells in rows[:MAX_ROWS]), numeric)


def page(template: str, **context: Any) -> str:
    """The page, from a file of templates/, as text that any file can hold."""
    return visible(_ENVIRONMENT.get_template(template).render(context))


def number(value: Any) -> str:
    """A number, or another JSON value, for people: four digits that matter, no false precision."""
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
    if 1e-4 <= abs(value) < 1e6:  # six digits just below 1, or a bound would read as none
        return f"{value:,.1f}" if abs(value) >= 1e4 else (
            f"{value:.6g}" if 0.999 < abs(value) < 1 else f"{value:.4g}")
    digits, _, power = f"{value:.3g}".partition("e")
    raised = str(int(power or 0)).translate(POWERS)
    return f"10{raised}" if digits == "1" else f"{digits} \u00d7 10{raised}"


def score(leaf: Any) -> str:
    """Mean and standard deviation of a leaf of metrics.json, to as many places; or a number."""
    if not is_leaf(leaf):
        return number(leaf)
    mean, std = leaf["mean"], leaf.get("std")
    if not isinstance(mean, int | float) or not math.isfinite(mean):
        return number(mean)
    places = 2 if abs(mean) >= 10 else 3 if abs(mean) >= 0.05 else 4
    return f"{mean:.{places}f}" + ("" if std is None else f" \u00b1 {std:.{places}f}")


def is_leaf(value: Any) -> bool:
    """Whether this is {"mean", ...} of a score over seeds."""
    return isinstance(value, dict) and "mean" in value and not isinstance(value["mean"], dict)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted path, leaf or plain value) of all that a nested dict holds; lists of plain values are
    one value, what else a leaf holds comes after it."""
    if isinstance(value, dict) and not is_leaf(value):
        for name, part in value.items():
            yield from leaves(part, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple):
        nested = any(isinstance(part, dict | list | tuple) for part in value)
        if nested:
            yield from leaves(dict(enumerate(value)), path)
        else:
            yield path, ", ".join(map(number, value))
    else:
        yield path, value
        if is_leaf(value):
            for name, part in value.items():
                if name not in ("mean", "std", "values", "floor"):
                    yield from leaves(part, f"{path}.{name}")


def title(name: str) -> str:
    """`words` to begin a line with."""
    text = words(name)
    return text[:1].upper() + text[1:]


def words(name: str) -> str:
    """A name of a metric or classifier as people write it."""
    return NAMES.get(name) or " ".join(UPPER.get(word, word) for word in str(name).split("_"))


def shorten(text: str, most: int = MAX_TEXT) -> str:
    """At most `most` letters, and how many there were."""
    text = str(text)
    return text if len(text) <= most else f"{text[:most]}\u2026 ({len(text):,} letters)"


_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.PackageLoader("dpgen_jax.report"), autoescape=True,
    trim_blocks=True, lstrip_blocks=True)
_ENVIRONMENT.filters["number"] = number
