"""The data holder's own page: synthetic records beside the real ones they are nearest to.

It holds real records. It belongs into the private part of a run, and says so on every sheet.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from dpgen_jax.report import render
from dpgen_jax.report.render import Figure, leaves, score
from dpgen_jax.types import UserError

MAX_PAIRS, MAX_COLUMNS = 60, 100
BANNER = "PRIVATE: holds real records. Never share this file."


@dataclasses.dataclass(frozen=True)
class Pair:
    """A synthetic record and the nearest real one: pictures, or their texts by column with whether
    these differ."""

    distance: float
    pictures: tuple[Figure, Figure] | None = None
    texts: tuple[tuple[str, str, bool], ...] = ()


def private_page(dataset: str, synthetic: Any, nearest: Any, distances: np.ndarray,
                 summary: dict[str, Any], header: Sequence[str] | None = None) -> str:
    """The HTML. PRIVATE: it shows real training records, and no guarantee covers it.

    synthetic, nearest: the i-th real record is the nearest to the i-th synthetic one; images uint8
    [n, H, W, ch], or rows of text with `header`, the names of the columns. distances: float [n].
    summary: numbers, or leaves of metrics.json, by name. The `MAX_PAIRS` nearest pairs are shown.
    Errors: UserError where the parts differ in length.
    """
    if not len(synthetic) == len(nearest) == len(distances):
        raise UserError(f"{len(synthetic)} synthetic records, {len(nearest)} real ones and "
                        f"{len(distances)} distances; give as many of each")
    order = np.argsort(distances, kind="stable")[:MAX_PAIRS]
    pairs = [_pair(synthetic[i], nearest[i], float(distances[i]), header) for i in order]
    return render.page("neighbours.html", banner=BANNER, dataset=dataset, pairs=pairs,
                       total=len(distances), header=list(header or ())[:MAX_COLUMNS],
                       columns=len(header or ()),
                       summary=[(render.words(name).replace(".", ": "), score(leaf))
                                for name, leaf in leaves(summary)])


def _pair(ours: Any, theirs: Any, distance: float, header: Sequence[str] | None) -> Pair:
    if header is None:
        return Pair(distance, (_picture("synthetic image", ours, False),
                               _picture("nearest real training image", theirs, True)))
    return Pair(distance, texts=tuple(
        (render.shorten(a, 60), render.shorten(b, 60), a != b)
        for a, b in zip(ours[:MAX_COLUMNS], theirs[:MAX_COLUMNS], strict=True)))


def _picture(title: str, image: np.ndarray, real: bool) -> Figure:
    """PNG of uint8 [H, W, ch] or [H, W]; the browser enlarges it, pixel by pixel."""
    file = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[-1:] == (1,) else image).save(file, "PNG")
    return Figure(title, "", file.getvalue(), real)
