"""The data holder's private page: synthetic records beside the real ones they are nearest to.

It holds real records. It belongs into the private part of a run, and every printed sheet says so.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import UserError
from dpgen_jax.release import render
from dpgen_jax.release.render import Figure, leaves, score

MAX_PAIRS, MAX_COLUMNS = 60, 100
BANNER = "PRIVATE: holds real records. Never share this file."


@dataclasses.dataclass(frozen=True)
class Pair:
    """A synthetic record and the nearest real one, as pictures or as texts."""

    distance: float
    pictures: tuple[Figure, Figure] | None = None
    """The synthetic image and the real one."""
    texts: tuple[tuple[str, str, bool], ...] = ()
    """For each column both texts, and whether they differ."""


def private_page(dataset: str, synthetic: Any, nearest: Any, distances: np.ndarray,
                 summary: Json, header: Sequence[str] | None = None) -> str:
    """Render the page, which is PRIVATE: it shows real training records.

    No guarantee covers it. The `MAX_PAIRS` nearest pairs are shown.

    Args:
      dataset: The name of the data set.
      synthetic: Images uint8 [n, H, W, ch], or n rows of text.
      nearest: Real records of the same form; the i-th is the nearest to the i-th synthetic one.
      distances: Their distances float [n].
      summary: Numbers, or leaves of metrics.json, by name.
      header: The names of the columns; None for images.

    Returns:
      The HTML.

    Raises:
      UserError: The parts differ in length.
    """
    if not len(synthetic) == len(nearest) == len(distances):
        raise UserError(f"{len(synthetic)} synthetic records, {len(nearest)} real ones and "
                        f"{len(distances)} distances; give as many of each")
    order = np.argsort(distances, kind="stable")[:MAX_PAIRS]
    pairs = [_pair(synthetic[i], nearest[i], float(distances[i]), header) for i in order]
    return render.page(__package__, "neighbours.html", banner=BANNER, dataset=dataset,
                       pairs=pairs,
                       total=len(distances), header=list(header or ())[:MAX_COLUMNS],
                       columns=len(header or ()),
                       summary=[(render.label(name).replace(".", ": "), score(leaf))
                                for name, leaf in leaves(summary)])


def _pair(ours: Any, theirs: Any, distance: float, header: Sequence[str] | None) -> Pair:
    if header is None:
        return Pair(distance, (_picture("synthetic image", ours, False),
                               _picture("nearest real training image", theirs, True)))
    return Pair(distance, texts=tuple(
        (render.shorten(a, 60), render.shorten(b, 60), a != b)
        for a, b in zip(ours[:MAX_COLUMNS], theirs[:MAX_COLUMNS], strict=True)))


def _picture(title: str, image: np.ndarray, real: bool) -> Figure:
    """Return an image uint8 [H, W, ch] or [H, W] as PNG; the browser enlarges its pixels."""
    file = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[-1:] == (1,) else image).save(file, "PNG")
    return Figure(title, "", file.getvalue(), real)
