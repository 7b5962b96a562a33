"""The first lines of a run: what is trained, what that promises to whom, and how large it is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.core import hosts
from dpgen_jax.core.at_most import at_most
from dpgen_jax.core.terms import Unit
from dpgen_jax.data import Dataset
from dpgen_jax.private import teachers
from dpgen_jax.release import guarantee
from dpgen_jax.release.statement import Protected
from dpgen_jax.run import capacity, protection
from dpgen_jax.run.request import Request

if TYPE_CHECKING:
    from dpgen_jax.run.planning import Plan


def headline(request: Request, mechanism: Mechanism, dataset: Dataset) -> str:
    """Returns the first line of a run: what is trained, what it promises to whom, and why so."""
    budget, real_clients = request.budget, dataset.clients is not None and not dataset.simulated
    whom = ("all records of a client" if mechanism.unit == "client" and real_clients
            else "each record, its label included")
    if dataset.subjects is not None:
        whom = f"each {guarantee.whom(protection.protected_subjects(dataset.subjects).terms)}"
    uncovered = tuple(part.what for part in dataset.uncovered)
    stamp = protection.stamp(budget, request.seed, request.config, Protected(
        mechanism.unit, {}, (), uncovered, dataset.simulated))
    numbers = f"epsilon {at_most(budget.epsilon)} at delta {at_most(budget.delta)}"
    promise = (f"{numbers} for {whom} ({mechanism.relation})"
               + ", but for what is not covered" * (stamp.kind == "not covered"))
    if not stamp.holds:
        promise = ("epsilon inf: nobody is protected"
                   + f", by noise for {numbers}" * math.isfinite(budget.epsilon))
    why = f"; {request.why}" * bool(request.why)
    return f"{request.method}, preset {request.preset}: {promise}{why}"


def unprotected_clients(request: Request, dataset: Dataset) -> tuple[str, ...]:
    """Returns a line where the data name clients and the method protects records one by one."""
    if dataset.clients is None or dataset.simulated or request.config.protects_clients:
        return ()
    return (f"the data name clients, and {request.method} with these flags protects each record by "
            "itself, not all records of a client together; fedavg_gan does, and gswgan and dpac do "
            "with --federated",)


def summary(plan: Plan) -> str:
    """Returns the line that a terminal shows of a plan."""
    layout, config, budget = plan.layout, plan.config, plan.request.budget
    counts = plan.protected.counts
    size = teachers.unit_bytes(plan.method) * layout.padded / 1e9
    named = " and ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in counts.items())
    if plan.protected.unit == Unit.SUBJECT:
        named += f", unit {guarantee.whom(plan.protected.terms)}"
    alone = [*counts] in (["records"], ["subjects"])
    units = named + (f", {layout.n_units:,} units" if alone else "")
    cohorts = f", 1 in {layout.n_cohorts} a step" if layout.n_cohorts > 1 else ""
    where = {"device": "", "host": " in host memory", "disk": " on the disk"}[
        plan.request.runtime.state]
    sums = (f" and {capacity.sum_bytes(plan.method) / 1e9:.2f} GB of sums" if plan.method.phases
            else "")
    return (f"{units} ({size:.2f} GB of state{where}{sums}{cohorts}), "
            f"{config.steps:,} steps, sigma {config.sigma:g} for epsilon {at_most(budget.epsilon)} "
            f"at delta {at_most(budget.delta)}; {len(layout.devices)} "
            f"{layout.devices[0].platform} devices, chunks of {layout.chunk}{processes(layout)}")


def processes(layout: teachers.Layout) -> str:
    """Says how many processes there are, and what each has; nothing of one."""
    if hosts.count() == 1:
        return ""
    records = " each with all records," * layout.sampled
    return (f", of {hosts.count()} processes,{records} which with the network between them lie "
            "inside the trust boundary")
