"""What all evaluations share: the shape of a score, and the checks of what is compared.

Images are [n, H, W] or [n, H, W, ch], uint8 or float in [0, 1]; labels are integers from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpgen_jax.types import UserError

Images = tuple[np.ndarray, np.ndarray]
Synthetic = Images | Callable[[int, int], Images]
"""Images and labels, or a function of (n, seed) that draws them, such as `Release.sample`."""


def summary(values: Sequence[float]) -> dict[str, Any]:
    """{"mean", "std", "values"}; std is that of a sample (n - 1), 0 for a single value."""
    std = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {"mean": float(np.mean(values)), "std": std, "values": [float(v) for v in values]}


def draw(synthetic: Synthetic, n: int, seed: int) -> Images:
    """The synthetic images of a seed. Errors: UserError where they are not finite."""
    x, y = synthetic(n, seed) if callable(synthetic) else synthetic
    _check_finite("synthetic", np.asarray(x),
                  "the generator diverged: lower its learning rate and train again")
    return x, y


def checked(part: str, x: Any, y: Any, at_least: int) -> Images:
    """Images [n, H, W, ch] uint8, or float32 in [0, 1], and labels int32 [n]. Errors: UserError,
    naming `part`."""
    x, y = np.asarray(x), np.asarray(y)
    x = x[..., None] if x.ndim == 3 else x
    if x.ndim != 4 or x.shape[3] not in (1, 3):
        raise UserError(f"{part} images have shape {x.shape}, expected [n, H, W] or [n, H, W, ch] "
                        "with 1 or 3 channels")
    if y.shape != x.shape[:1] or not np.issubdtype(y.dtype, np.integer):
        raise UserError(f"{part} labels are {y.dtype}{list(y.shape)} for {len(x)} images; expected "
                        "one integer an image")
    if len(y) < at_least:
        raise UserError(f"{len(y)} {part} images; at least {at_least} needed")
    if y.min() < 0:
        raise UserError(f"{part} label {y.min()} is negative; number the classes from 0")
    if x.dtype == np.uint8:
        return x, y.astype(np.int32)
    if not np.issubdtype(x.dtype, np.floating):
        raise UserError(f"{part} images are {x.dtype}, expected uint8 or float in [0, 1]")
    _check_finite(part, x, "leave them out")
    if x.min() < 0 or x.max() > 1:
        raise UserError(f"{part} images are float in [{x.min():.3g}, {x.max():.3g}], expected "
                        "[0, 1]; rescale them, or pass uint8")
    return x.astype(np.float32), y.astype(np.int32)


def _check_finite(part: str, x: np.ndarray, mend: str) -> None:
    if np.issubdtype(x.dtype, np.floating) and not np.isfinite(x).all():
        bad = np.flatnonzero(~np.isfinite(x.reshape(len(x), -1)).all(1))
        raise UserError(f"{len(bad)} {part} images hold NaN or infinite values, the first at row "
                        f"{bad[0]}; {mend}")


def pick(what: str, known: dict[str, Any], name: str) -> Any:
    """known[name]. Errors: UserError that lists what is known."""
    if name not in known:
        raise UserError(f"unknown {what} {name!r}; known: {', '.join(known)}")
    return known[name]
