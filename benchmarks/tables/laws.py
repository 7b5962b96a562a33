"""Tables whose law is known: public functions of a public seed, so that no row is anybody's.

Each law has a difficulty that tables of people have: skewed numbers with nulls that tell something,
a rare class, columns that all hang together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Columns = dict[str, tuple[dict[str, Any], np.ndarray]]
"""Name -> the entries of its schema, and its codes float64 [n] (categories as their index)."""


def _integer(low: int, high: int, values: np.ndarray, nullable: bool = False
             ) -> tuple[dict[str, Any], np.ndarray]:
    entries = {"kind": "integer", "min": str(low), "max": str(high)}
    return (entries | ({"nullable": "true"} if nullable else {}),
            np.clip(np.rint(values), low, high))


def _continuous(low: float, high: float, values: np.ndarray, nullable: bool = False
                ) -> tuple[dict[str, Any], np.ndarray]:
    entries = {"kind": "continuous", "min": str(low), "max": str(high)}
    return (entries | ({"nullable": "true"} if nullable else {}),
            np.clip([float(f"{value:.5g}") for value in values.tolist()], low, high))


def _category(names: str, values: np.ndarray, nullable: bool = False
              ) -> tuple[dict[str, Any], np.ndarray]:
    entries: dict[str, Any] = {"kind": "categorical", "categories": names.split()}
    return entries | ({"nullable": "true"} if nullable else {}), values.astype(np.float64)


def _missing(rng: np.random.Generator, values: np.ndarray, share: float | np.ndarray) -> np.ndarray:
    return np.where(rng.random(len(values)) < share, np.nan, values)


def _logistic(score: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-score))


def loans(rng: np.random.Generator, n: int) -> Columns:
    """Draw loans: heavy tails, counts with spikes at 0, nulls that tell of risk, 20 % defaulted.

    Args:
      rng: The source.
      n: How many.

    Returns:
      The columns; the label is `defaulted`.
    """
    wealth, care = rng.normal(size=(2, n))
    job = rng.choice(6, n, p=[.42, .22, .16, .12, .05, .03])
    value = np.exp(11.4 + 0.45 * wealth + 0.25 * rng.normal(size=n))
    mortgage = value * rng.beta(7, 3, n)
    loan = np.exp(9.6 + 0.3 * wealth + 0.5 * rng.normal(size=n))
    derogatory = rng.poisson(np.exp(-2.2 - 1.1 * care))
    delinquent = rng.poisson(np.exp(-1.8 - 1.2 * care))
    inquiries = rng.poisson(np.exp(-0.1 - 0.4 * care))
    ratio = 34 - 3 * care + 8 * rng.standard_t(4, n)
    age = rng.gamma(4, 45, n) * np.exp(0.15 * care)
    risk = (-2.35 + 0.75 * derogatory + 0.7 * delinquent + 0.16 * inquiries + 0.07 * (ratio - 34)
            - 0.004 * (age - 180) - 0.3 * wealth + np.array([0, .1, -.5, .3, .9, 1.2])[job])
    default = rng.random(n) < _logistic(risk)
    untold = np.where(default, 0.45, 0.12)  # the ratio of those who default is often missing
    return {
        "loan": _integer(1000, 90000, loan),
        "mortgage": _integer(0, 400000, _missing(rng, mortgage, 0.09), True),
        "value": _integer(8000, 900000, _missing(rng, value, 0.02), True),
        "reason": _category("debts home", _missing(rng, (rng.random(n) < 0.3 + 0.1 * (loan > 2e4)),
                                                   0.04), True),
        "job": _category("other office manager self sales military", job),
        "years_in_job": _continuous(0, 45, _missing(rng, rng.exponential(9, n), 0.09), True),
        "derogatory": _integer(0, 10, _missing(rng, derogatory, 0.12), True),
        "delinquent": _integer(0, 15, _missing(rng, delinquent, 0.1), True),
        "oldest_line": _continuous(0, 1200, age),
        "inquiries": _integer(0, 17, inquiries),
        "lines": _integer(0, 70, rng.gamma(4, 5, n) + 2 * wealth),
        "debt_ratio": _continuous(0, 200, _missing(rng, ratio, untold), True),
        "defaulted": _category("no yes", default)}


def rare(rng: np.random.Generator, n: int) -> Columns:
    """Draw records of which 2 % are positive: four numbers and a category differ, ten do not.

    Args:
      rng: The source.
      n: How many.

    Returns:
      The columns; the label is `positive`.
    """
    positive = rng.random(n) < 0.02
    columns: Columns = {}
    for i in range(10):
        moved = 1.6 * positive * (i < 4) * (-1) ** i
        columns[f"x{i}"] = _continuous(-8, 8, rng.normal(size=n) + moved)
    kinds = np.where(positive, rng.choice(5, n, p=[.1, .1, .1, .2, .5]),
                     rng.choice(5, n, p=[.4, .3, .15, .1, .05]))
    columns["kind"] = _category("a b c d e", kinds)
    columns["visits"] = _integer(0, 40, rng.geometric(0.25, n) - 1)
    columns["region"] = _category("n e s w", rng.integers(0, 4, n))
    columns["age"] = _integer(18, 95, rng.normal(50, 16, n))
    columns["positive"] = _category("no yes", positive)
    return columns


def dense(rng: np.random.Generator, n: int) -> Columns:
    """Draw 16 columns that all hang on three hidden causes, so that no tree holds their law.

    Args:
      rng: The source.
      n: How many.

    Returns:
      The columns; the label is `outcome`, which two of the causes decide together.
    """
    causes = rng.normal(size=(3, n))
    weights = np.random.default_rng(11).normal(size=(15, 3))  # of the law, not of the draw
    columns: Columns = {}
    for i, weight in enumerate(weights / np.linalg.norm(weights, axis=1)[:, None]):
        value = weight @ causes + 0.35 * rng.normal(size=n)
        if i % 3 == 0:
            columns[f"level{i}"] = _category("a b c d e", np.digitize(value, [-1.2, -.4, .4, 1.2]))
        elif i % 3 == 1:
            columns[f"size{i}"] = _continuous(0, 60, 3 * np.exp(value))
        else:
            columns[f"count{i}"] = _integer(0, 20, 7 + 3 * value)
    score = 1.2 * causes[0] * causes[1] + 1.5 * causes[2] - 0.4
    columns["outcome"] = _category("no yes", rng.random(n) < _logistic(2 * score))
    return columns


def scale(rng: np.random.Generator, n: int) -> Columns:
    """Draw 20 columns for timings: twelve numbers, seven categories and a label.

    Args:
      rng: The source.
      n: How many.

    Returns:
      The columns; the label is `label`.
    """
    hidden = rng.normal(size=n)
    columns: Columns = {
        f"x{i}": _integer(0, 999, 500 + 120 * (hidden * (i % 3) / 2 + rng.normal(size=n)))
        for i in range(12)}
    columns |= {f"c{i}": _category("a b c d e f g h", np.clip(np.rint(
        3.5 + hidden * (i % 2) + 1.5 * rng.normal(size=n)), 0, 7)) for i in range(7)}
    columns["label"] = _category("no yes", rng.random(n) < _logistic(2 * hidden - 1))
    return columns
