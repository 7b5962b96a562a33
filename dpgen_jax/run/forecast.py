"""A forecast for tables, from public facts: the noise that `marginals` adds to counts of a class.

Of each column it counts the values within each class. If these d counts of a record shared the
whole budget evenly, the noise of each would have a standard deviation of sigma sqrt(2 d / T) over
T steps; pairs of columns are counted too, which makes it larger. A mean class has n / C rows. All
of it is public. The forecast is bad where this noise is larger, in shares of the rows, than that
of every table of our benchmark.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

from dpgen_jax.accountant import composition
from dpgen_jax.core.config import Budget
from dpgen_jax.core.errors import on_command_line
from dpgen_jax.core.terms import at_most
from dpgen_jax.core.types import Spec, TableSpec
from dpgen_jax.methods.shared.config import MethodConfig

NOISIEST, ROUNDED = 0.41, 0.4
"""The most noise of a table of the benchmark, in shares of the rows of a mean class."""
KNOWN = ("wine at epsilon 1, with classifiers of AUROC 0.86 in place of 1.00",
         "benchmarks/results/tables/wine-marginals-eps1.json")
"""That table, what it gave, and the file that says so."""


def announce(found: tuple[str, ...], log: Callable[[str], None]) -> None:
    """Prints the lines of a forecast on the command line, and warns in Python."""
    if found and not on_command_line():
        warnings.warn(". ".join(found), stacklevel=2)
    for line in found if on_command_line() else ():
        log(line)


def noise_of(columns: int, classes: int, records: int, mu: float) -> float:
    """Returns the least noise of a count, in shares of the rows of a mean class.

    Args:
        columns: d, without the label.
        classes: C.
        records: n, or the number of persons, each of whom counts once.
        mu: That of all steps as one Gaussian mechanism.
    """
    return math.sqrt(2 * columns) / mu * classes / records


def lines(method: str, config: MethodConfig, spec: Spec, records: int, budget: Budget
          ) -> tuple[str, ...]:
    """Returns lines on a table whose forecast is bad; none for others, and for other methods.

    Args:
        method: The name of the method.
        config: Its complete configuration.
        spec: The schema.
        records: The public number of records, or of persons.
        budget: The promise.
    """
    sigma = getattr(config, "sigma", None)
    if method != "marginals" or not isinstance(spec, TableSpec) or not sigma or not config.steps:
        return ()
    if not getattr(config, "weight_label", 1):  # no column is counted within a class
        return ()
    mu = math.sqrt(config.steps) / sigma
    columns, classes = len(spec.columns) - len(spec.derived), spec.classes
    noise = noise_of(columns, classes, records, mu)
    if noise <= NOISIEST:
        return ()
    few = columns * (ROUNDED / noise)**2
    larger = composition.exact_epsilon(mu * noise / ROUNDED, 0.0, budget.delta)
    helps = [f"{int(few):,} columns (kind: left_out leaves out others)"] * (few >= 1)
    helps += [f"{int(classes * ROUNDED / noise)} classes"] * (classes * ROUNDED >= 2 * noise)
    helps.append(f"epsilon {at_most(larger, 2)}")
    rows = "the rows" if classes == 1 else f"the {records / classes:,.0f} rows of a mean class"
    much = "noise exceeds signal: " if noise > 1 else ""
    return (f"forecast: {much}the counts of {columns:,} columns get noise of at least {noise:.2g} "
            f"times {rows}. The most in our benchmark is {ROUNDED:g} times, {KNOWN[0]} "
            f"({KNOWN[1]})",
            f"forecast: {', or '.join(helps)} would bring it to {ROUNDED:g} times")
