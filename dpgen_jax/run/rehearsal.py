"""The lines of a rehearsal: what a run would do, buy and need, and what such a budget gave."""

from __future__ import annotations

import math

from dpgen_jax.core.config import Budget
from dpgen_jax.core.types import TableSpec
from dpgen_jax.presets import results
from dpgen_jax.run import needs
from dpgen_jax.run.planning import Plan, summary

SHOWN = 2
"""The most results on like data that are named."""
LAST = "nothing was written or spent; leave out --dry-run to train"


def lines(plan: Plan, entries: int) -> list[str]:
    """Returns the lines of a rehearsal.

    Args:
        plan: The plan of the run.
        entries: How many entries of the schema were bought.
    """
    class_epsilon = plan.request.budget.class_epsilon
    bought = [f"class counts for epsilon {class_epsilon:g}"] * bool(class_epsilon)
    bought += [f"{entries} entries of the schema"] * bool(entries)
    kind = "table" if isinstance(plan.spec, TableSpec) else "images"
    return [summary(plan), f"bought beside the training: {' and '.join(bought) or 'nothing'}",
            needs.memory(plan), *like_data(plan.request.method, kind, plan.request.budget.epsilon,
                                     next(iter(plan.protected.counts.values()))), LAST]


def of_purchase(method: str, kind: str, budget: Budget, count: int, prices: tuple[str, ...]
                ) -> tuple[str, ...]:
    """Returns the lines of a rehearsal that ends where the run would buy what nobody declared.

    Args:
        method: The name of the method.
        kind: `table` or `images`.
        budget: The budget of the run.
        count: The public number of records.
        prices: The lines on the purchase.
    """
    head = f"{method} on {count:,} records: epsilon {budget.epsilon:g} at delta {budget.delta:g}"
    return (head, *prices, *like_data(method, kind, budget.epsilon, count),
            "what follows is known when that is bought, or declared", LAST)


def like_data(method: str, kind: str, epsilon: float, count: int) -> list[str]:
    """Returns a line for each result of the method on like data, of the nearest epsilon and size.

    Args:
        method: The name of the method.
        kind: `table` or `images`.
        epsilon: The budget of the run.
        count: The public number of records, or of what is protected.
    """
    rows = [row for row in results.reached() if (row["method"], row["kind"]) == (method, kind)]
    if not rows or not 0 < epsilon < math.inf:
        return [f"on like data: no result of {method} is at hand, nor its time"]
    nearest = min((abs(math.log(row["epsilon"] / epsilon)), row["epsilon"]) for row in rows)[1]
    near = sorted((row for row in rows if row["epsilon"] == nearest),
                  key=lambda row: abs(math.log(row.get("records", count) / count)))
    return [f"on like data: {row['data']} at epsilon {row['epsilon']:g} gave {row['score']:.3f}, "
            f"{row['measure']}, in {row['seconds']:,} s on two CPU cores "
            f"({' '.join(filter(None, (row.get('flags'), row['file'])))})"
            for row in near[:SHOWN]]
