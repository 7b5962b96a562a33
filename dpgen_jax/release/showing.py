"""How a release looks in Python and in a notebook: public lines and synthetic records."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from dpgen_jax.core.types import TableSpec
from dpgen_jax.release import documents, guarantee, render

if TYPE_CHECKING:
    from dpgen_jax.release.bundle import Release

SEED, ROWS, COLUMNS, CLASSES = 0, 5, 8, 10
"""The seed, rows of a table, images of a class, and classes that a notebook shows."""


def text(release: Release) -> str:
    """Returns a few public lines: what a release is, what it promises, and how it is used.

    Args:
        release: The release.
    """
    privacy = release.privacy
    preset = f", preset {privacy['preset']}" if privacy.get("preset") else ""
    steps = f", {privacy['steps']:,} steps" if isinstance(privacy.get("steps"), int) else ""
    use = documents.of_release(release.spec, release.classifies).code[-1]
    lines = (f"Release of {release.method}{preset}{steps}", documents.makes(release.spec),
             f"guarantee: {guarantee.line(privacy)}", use)
    return render.visible("\n".join(" ".join(line.split()) for line in lines))


def html(release: Release) -> str:
    """Returns the same as HTML, with synthetic images or rows.

    Args:
        release: The release.
    """
    picture, head, rows = None, (), ()
    if not release.classifies:
        if isinstance(release.spec, TableSpec):
            head, rows = _rows(release, release.spec)
        else:
            picture = _grid(release)
    return render.page(__package__, "release.html", text=text(release), picture=picture,
                       head=head, rows=rows)


def _rows(release: Release, spec: TableSpec) -> tuple[Any, Any]:
    """Names of the columns, and some rows of text."""
    from dpgen_jax.data import writing

    names, rows = writing.cells(spec, *release.sample(ROWS, seed=SEED))
    return names[:CLASSES], [row[:CLASSES] for row in rows]


def _grid(release: Release) -> render.Figure:
    """A row of images for each of the first classes."""
    from dpgen_jax.release import plots

    spec = release.spec
    classes = min(spec.classes, CLASSES)
    x, _ = release.sample(classes * COLUMNS, np.repeat(np.arange(classes), COLUMNS), SEED)
    file = io.BytesIO()
    plots.grid(x, classes, spec.class_names[:classes] or None).save(file, "PNG")
    return render.Figure("Synthetic images, a row for each class", "", file.getvalue())
