"""In words, what is wrong with single columns of a synthetic table, and with its class shares."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import Column, TableSpec
from dpgen_jax.data import forms, transform
from dpgen_jax.evaluation import marginals
from dpgen_jax.evaluation.marginals import Rows
from dpgen_jax.evaluation.scores import percent

FAR = 0.1
"""A column is far off where its distance exceeds its floor by more than this."""
POINTS, FACTOR = 0.05, 1.5
"""The share of a class is wrong where it is off by more than these points, or by this factor."""
ERRORS = 3
"""Standard errors that a difference of shares must exceed as well."""
MAX_SHOWN = 2
"""The most values of a column that a sentence names on either side."""


def far_off(draws: Sequence[np.ndarray], test: np.ndarray, columns: Sequence[Column],
            distances: Mapping[str, Any]) -> list[str]:
    """Describe the columns that are far off, the farthest first, a sentence each.

    Args:
      draws: Synthetic cells float64 [n, K], one draw a seed.
      test: Held-out real cells float64 [n', K].
      columns: The K columns.
      distances: For each column by its name its one-way distance, "mean", and "floor", as
        `marginals.fidelity` gives them.

    Returns:
      The sentences; they hold shares of real rows, which epsilon does not cover.
    """
    gaps = [distances[c.name]["mean"] - (distances[c.name]["floor"] or 0) for c in columns]
    order = sorted(range(len(columns)), key=lambda i: -gaps[i])
    return [_sentence(np.concatenate([draw[:, i] for draw in draws]), test[:, i], columns[i],
                      distances[columns[i].name]) for i in order if gaps[i] > FAR]


def _sentence(values: np.ndarray, truth: np.ndarray, column: Column, distance: Mapping[str, Any]
              ) -> str:
    """Return how far one column is off, and at which values most."""
    ours, theirs = (marginals.bin_shares(part, column) for part in (values, truth))
    names = bin_names(column)
    parts = []
    for sign, much in ((1, "Too many"), (-1, "Too few")):
        worst = [i for i in np.argsort(-sign * (ours - theirs), kind="stable")[:MAX_SHOWN].tolist()
                 if sign * (ours[i] - theirs[i]) > POINTS]
        if worst:
            parts.append(f" {much}: " + ", ".join(
                f"{names[i]} ({percent(ours[i])}, real {percent(theirs[i])})" for i in worst) + ".")
    floor = distance["floor"]
    beside = "" if floor is None else f" (among real ones {percent(floor)})"
    return (f"{column.name}: {percent(distance['mean'])} of the rows would have to move{beside}."
            f"{''.join(parts)}")


def bin_names(column: Column) -> list[str]:
    """Return the name of each bin of `marginals.bin_shares`, the last of which is null.

    Args:
      column: The column.

    Returns:
      Its categories, or ranges of its numbers, dates or times as they are written.
    """
    if column.categories:
        return [*column.categories, "null"]
    if column.kind == "integer" and column.scale == "linear":  # whole numbers lie in one bin each
        edges = np.ceil(np.linspace(column.low, column.high, marginals.BINS + 1) - 1e-9)
        lows, highs = edges[:-1], np.maximum(np.append(edges[1:-1] - 1, column.high), edges[:-1])
    else:
        edges = transform.from_unit(column, np.linspace(0, 1, marginals.BINS + 1))
        lows, highs = edges[:-1], edges[1:]
    ranges = zip(forms.texts(column, lows), forms.texts(column, highs), strict=True)
    return [*(low if low == high else f"{low} to {high}" for low, high in ranges),
            *forms.texts(column, np.array(column.special)), "null"]


def label_shares(draws: Sequence[Rows], test: Rows, spec: TableSpec) -> list[Json]:
    """Compare the shares of the classes.

    Args:
      draws: Synthetic rows, one draw a seed.
      test: Held-out real rows.
      spec: The schema.

    Returns:
      For each class {"class", "synthetic", "real", "wrong"}: its name, its shares, and whether they
      differ by `POINTS` or a factor of `FACTOR`, and by more than chance explains (`ERRORS`).
    """
    y = np.concatenate([labels for _, labels in draws])
    ours, theirs = (np.bincount(part, minlength=spec.classes) / len(part) for part in (y, test[1]))
    return [{"class": name, "synthetic": float(p), "real": float(q),
             "wrong": _wrong(float(p), len(y), float(q), len(test[1]))}
            for name, p, q in zip(spec.label.categories, ours, theirs, strict=True)]


def _wrong(p: float, n: int, q: float, m: int) -> bool:
    """Return whether shares p of n rows and q of m rows differ by much, and by more than chance."""
    error = math.sqrt(p * (1 - p) / n + q * (1 - q) / m)
    much = abs(p - q) > POINTS or max(p, q) > FACTOR * min(p, q)
    return much and abs(p - q) > ERRORS * error
