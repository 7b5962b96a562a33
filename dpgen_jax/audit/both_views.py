"""The audit of trainings by all that is released and by samples alone, beside the one claim."""

from __future__ import annotations

import dataclasses

from dpgen_jax.audit import black_box, training
from dpgen_jax.audit.findings import Finding, Log, Report
from dpgen_jax.audit.target import Target
from dpgen_jax.core.at_most import at_most
from dpgen_jax.data import Dataset


def of_dataset(target: Target, dataset: Dataset, canaries: int, log: Log) -> Report:
    """Attacks two trainings, one by each view: canaries of the one are no use in the other.

    Args:
        target: The method and its promise.
        dataset: The records.
        canaries: How many canaries are put among the records; where every released value is seen,
            as many of them as have a unit.
        log: Prints a line of the audit.

    Returns:
        The report, whose last line has both numbers beside the claim.

    Raises:
        UserError: Too many canaries, or a run that cannot be.
    """
    seen = min(canaries, training.room(target, dataset))
    white = training.of_dataset(target, dataset, seen, log)
    black = black_box.of_dataset(target, dataset, canaries, log)
    both = dataclasses.replace(
        black, subject=f"{target.method} with {canaries} canaries",
        findings=(*white.findings, *black.findings),
        limits=tuple(dict.fromkeys((*white.limits, *black.limits))),
        facts={**black.facts, "canaries_seen_by_all_releases": seen})
    return dataclasses.replace(both, closing=f"{both.last_line}; " + beside_the_claim(
        target, white.findings, black.findings))


def beside_the_claim(target: Target, white: tuple[Finding, ...], black: tuple[Finding, ...]
                     ) -> str:
    """Returns what is claimed, and what each view certifies of it, in a line.

    Args:
        target: The promise.
        white: Findings where every released value is seen.
        black: Findings of samples alone.
    """
    measure = f"epsilon at delta {target.delta:g}"

    def certified(findings: tuple[Finding, ...]) -> str:
        values = [finding.certified for finding in findings
                  if finding.measure == measure and finding.certified is not None]
        # Of several attacks the last finding has the best, at the confidence of all together.
        return f"{values[-1]:.3g}" if values else "nothing"

    return (f"{measure}: claimed {at_most(target.epsilon)}, certified {certified(white)} from "
            f"every released value and {certified(black)} from samples alone")
