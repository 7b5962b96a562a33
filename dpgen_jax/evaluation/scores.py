"""Definitions that all evaluations share: the form of a score, and the checks of their input.

Images are [n, H, W] or [n, H, W, ch], uint8 or float in [0, 1]; labels are integers from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from dpgen_jax.core import arrays
from dpgen_jax.core.files import Json
from dpgen_jax.core.types import UserError
from dpgen_jax.release import render

T = TypeVar("T")

Images = tuple[np.ndarray, np.ndarray]
"""Images [n, H, W, ch] and labels int [n]."""
Synthetic = Images | Callable[[int, int], Images]
"""Images and labels, or a function of (n, seed) that draws them, such as `Release.sample`."""
Log = Callable[[str], None]
"""A function that takes a line of progress, such as `print`."""


def silent(line: str) -> None:
    """Discard a line of progress: the default of every `log` parameter."""


def summary(values: Sequence[float] | np.ndarray) -> Json:
    """Summarise the scores of several seeds.

    Args:
      values: One score a seed, at least one.

    Returns:
      {"mean", "std", "values"}; std is that of a sample (n - 1), and 0 for a single value.
    """
    std = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {"mean": float(np.mean(values)), "std": std, "values": [float(v) for v in values]}


def over_runs(documents: Sequence[Any]) -> Any:
    """Turn the measures of several trainings into those of their mean.

    Args:
      documents: What `assess` gave for each training, with the same measures.

    Returns:
      The first of them, in which each score is the `summary` over the trainings of their means: its
      deviation is that between trainings, and no longer that between seeds of one evaluation.

    Raises:
      UserError: There are none, or they hold different measures.
    """
    if not documents:
        raise UserError("no training to average over; give what assess returned for each")
    first = documents[0]
    if not isinstance(first, dict):
        return first
    if any(not isinstance(other, dict) or other.keys() != first.keys() for other in documents):
        raise UserError("the trainings were not measured alike; evaluate them with the same flags")
    if render.is_leaf(first):
        return first | summary([document["mean"] for document in documents])
    return {name: over_runs([document[name] for document in documents]) for name in first}


def percent(share: float) -> str:
    """Return a share in [0, 1] as text, with as many digits as a small one needs."""
    return f"{100 * share:.0f} %" if share >= 0.1 or not share else f"{100 * share:.2g} %"


def draw(synthetic: Synthetic, n: int, seed: int) -> Images:
    """Return the synthetic images of a seed.

    Args:
      synthetic: Images and labels, which are returned as they are, or a function that draws them.
      n: How many images such a function draws.
      seed: The seed that it draws them with.

    Returns:
      Images and their labels.

    Raises:
      UserError: The images are not finite.
    """
    x, y = synthetic(n, seed) if callable(synthetic) else synthetic
    _check_finite("synthetic", np.asarray(x),
                  "the generator diverged: lower its learning rate and train again")
    return x, y


def checked(part: str, x: object, y: object, at_least: int) -> Images:
    """Check images and labels, and return them in one form.

    Args:
      part: The name of these images in error messages, such as "test".
      x: Images [n, H, W] or [n, H, W, ch], uint8 or float in [0, 1], with 1 or 3 channels.
      y: Labels [n], integers from 0.
      at_least: The fewest images that are accepted.

    Returns:
      Images [n, H, W, ch], uint8 or float32 in [0, 1], and labels int32 [n].

    Raises:
      UserError: The arrays have another shape or dtype, values out of range, or too few images.
    """
    x, y = np.asarray(x), np.asarray(y)
    x = arrays.check_images(part, x)
    arrays.check_labels(part, y, len(x))
    if len(y) < at_least:
        raise UserError(f"{len(y)} {part} images; at least {at_least} needed")
    if x.dtype == np.uint8:
        return x, y.astype(np.int32)
    if not np.issubdtype(x.dtype, np.floating):
        raise UserError(f"{part} images are {x.dtype}, expected uint8 or float in [0, 1]")
    _check_finite(part, x, "leave them out")
    arrays.check_unit_range(part, x)
    return x.astype(np.float32), y.astype(np.int32)


def _check_finite(part: str, x: np.ndarray, mend: str) -> None:
    """Raise a UserError that counts the images with NaN or infinite values."""
    if np.issubdtype(x.dtype, np.floating) and not np.isfinite(x).all():
        bad = np.flatnonzero(~np.isfinite(x.reshape(len(x), -1)).all(1))
        raise UserError(f"{len(bad)} {part} images hold NaN or infinite values, the first at row "
                        f"{bad[0]}; {mend}")


def pick(kind: str, choices: Mapping[str, T], name: str) -> T:
    """Look a name up, with an error that lists the names there are.

    Args:
      kind: The kind of thing that is chosen, for the error message: "classifier", "task".
      choices: The things there are, by name.
      name: The name of one of them.

    Returns:
      choices[name].

    Raises:
      UserError: There is no such name.
    """
    if name not in choices:
        raise UserError(f"unknown {kind} {name!r}; known: {', '.join(choices)}")
    return choices[name]
