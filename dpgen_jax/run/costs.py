"""Computes what a configuration would cost and a run has spent, and a second opinion on it."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import NamedTuple

from dpgen_jax import methods, presets
from dpgen_jax.accountant import gaussian
from dpgen_jax.accountant.cross_check import SecondOpinion, second_opinion
from dpgen_jax.accountant.events import Events, ideal_noise
from dpgen_jax.accountant.ledger import account, read
from dpgen_jax.accountant.totals import Account
from dpgen_jax.core.at_most import at_most
from dpgen_jax.core.config import Budget
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.terms import Unit
from dpgen_jax.methods.shared.config import MethodConfig, RecordUnits
from dpgen_jax.release import contents, guarantee, statement
from dpgen_jax.run import checkpoint, side_releases
from dpgen_jax.run.calibrate_config import complete, with_records
from dpgen_jax.run.folder import FEDERATION, RunFolder, existing, read_json


def of_configuration(method: str, preset: str, config: MethodConfig, epsilon: float | None,
                     delta: float) -> Json:
    """The cost of a configuration, proven and as its paper counted it; reads no data.

    Args:
        method: Name of the method.
        preset: Name of one of its presets, for the schema of the data and the number of records.
        config: The method's configuration; its steps or sigma may be open.
        epsilon: The target; None for the preset's, or, where the configuration fixes both steps and
            sigma, for what these cost.
        delta: The target.

    Returns:
        A record of the method, the preset, the target, and both accountings.

    Raises:
        UserError: A configuration or a budget that means nothing.
        BudgetExceeded: A budget that allows no step.
    """
    chosen = presets.get(method, preset)[1]
    target = chosen.epsilon if epsilon is None else epsilon
    if epsilon is None and config.steps and config.sigma:
        target = math.inf
    budget = Budget(target, delta, chosen.class_epsilon)
    if isinstance(config, RecordUnits) and config.records is None:
        config = with_records(config, chosen.records)
    config = complete(method, config, chosen.spec, budget)
    events = (*side_releases.planned((), budget.class_epsilon),
              *methods.get(method).mechanism(config, chosen.spec).events(config.steps))
    return {
        "method": method, "preset": preset, "target": {"epsilon": target, "delta": delta},
        "proven": _proven(events, delta) | {"steps": config.steps, "sigma": config.sigma},
        "as_published": _as_published(method, chosen, config, target, delta),
    }


def _proven(events: Events, delta: float) -> Json:
    """Epsilon and how it is counted.

    Far above 50 the distance between sampled and ideal noise, 2^-96 for a number, is more than
    delta allows: the epsilon of ideal noise is then shown and named as such, and no run can promise
    it.
    """
    epsilon, how = gaussian.epsilon(events, delta), statement.accountant(events)
    ideal = gaussian.epsilon(ideal_noise(events), delta)
    if epsilon == ideal or math.isfinite(epsilon):
        return {"epsilon": epsilon, "accountant": how}
    return {"epsilon": ideal, "accountant": f"{how}; for ideal noise, which no run draws"}


def _as_published(method: str, preset: presets.Preset, config: MethodConfig, target: float,
                  delta: float) -> Json | None:
    """The epsilon of the paper's formula, for the steps that its authors ran where nothing changed.

    Otherwise it is for the configuration's steps where the preset fixes them, else for all steps
    that the formula allows. None for an aggregation that the paper does not have.
    """
    published = methods.published(method, config, delta)
    if published is None:
        return None
    steps = config.planned_steps
    if math.isfinite(target) and preset.config.steps is None:
        unchanged = dataclasses.replace(config, steps=None) == preset.config
        as_run = preset.paper_steps if unchanged and target == preset.epsilon else None
        steps = as_run or published.max_steps(target)
    return {"epsilon": published.epsilon(steps), "steps": steps, "formula": published.formula}


def of_run(root: Path) -> Json:
    """The contents of a run's ledger.

    Args:
        root: The run folder.

    Returns:
        A record for the data holder: `spent` is a reading of the ledger and not the claim, which is
        infinite where nothing is guaranteed.

    Raises:
        UserError: A ledger that is missing or damaged, or a damaged statement.
    """
    totals = account(read(existing(root).ledger))
    stamp = stamped(root, totals)
    return {"run": str(root), "guarantee": stamp.line, "unit": stamp.whom,
            "claimed": {"epsilon": stamp.claim, "delta": totals.header["delta"]},
            "spent": {"epsilon": totals.epsilon(), "steps": totals.steps},
            "events": [{**event.statement(), "count": count} for event, count in totals.spent()]}


class Stamp(NamedTuple):
    """The promise of a run.

    Attributes:
        line: The stamp of its release, or the one that its release would have.
        whom: Who is protected.
        claim: The epsilon that it states: infinite where nothing is guaranteed.
    """

    line: str
    whom: str
    claim: float


def stamped(root: Path, totals: Account) -> Stamp:
    """Returns the promise of a run.

    Args:
        root: The run folder.
        totals: What its ledger charges.

    Raises:
        UserError: A damaged statement or config.json.
    """
    files = RunFolder(root)
    released = files.release / "privacy.json"
    if released.is_file():
        privacy = contents.statement(read_json(released), str(released))
        return Stamp(guarantee.line(privacy), guarantee.whom(privacy),
                     totals.claim() if guarantee.of(privacy).holds else math.inf)
    if not files.config.is_file():
        return Stamp(f"none: {root} holds neither a release nor the config.json of a run",
                     guarantee.whom(totals.header), math.inf)
    if files.waiting:
        return Stamp("nothing is released: a purchase was made, and nothing was trained yet",
                     guarantee.whom(totals.header), totals.claim())
    config = contents.described(files.config)
    faults = guarantee.faults(
        max(totals.target, totals.epsilon()), _noise_source(files, config),
        config["config"].get("accounting", "proven"), config.get("simulated", ""))
    stamp = guarantee.stamped(totals.header["relation"], faults, config.get("not_covered") or ())
    # The clients of a run whose number of records is public are simulated: a record is protected.
    terms = totals.header | ({"unit": Unit.RECORD} if config.get("records") is not None else {})
    return Stamp(f"{stamp.text} (of a release that is not there yet)", guarantee.whom(terms),
                 totals.claim() if stamp.holds else math.inf)


def _noise_source(files: RunFolder, config: Json) -> str:
    """Returns where the noise of a run without a release came from.

    That of a federation is the clients' own; the seed of its server makes no noise.
    """
    if config.get("dataset") != FEDERATION:
        return "seeded" if config.get("seed") is not None else guarantee.SOUND_NOISE
    if rounds := checkpoint.steps(files.checkpoints):
        return guarantee.sources(checkpoint.note(files.checkpoints, rounds[-1], "noise")["noise"])
    return "clients of whom none has answered yet"


def cross_check(root: Path) -> Json:
    """The epsilon of `dp_accounting` beside ours: for each event of a ledger, and for all of them.

    Args:
        root: The run folder.

    Returns:
        A record with one row per event, and one for their composition. Where there is no second
        opinion, the row's `dp_accounting` is None and its `remark` says why.

    Raises:
        UserError: A ledger that is missing or damaged.
    """
    totals = account(read(existing(root).ledger))
    delta, spent = totals.header["delta"], totals.spent()
    rows = [{"event": event.statement(), "count": count,
             **_row(second_opinion(((event, count),), delta))} for event, count in spent]
    return {"run": str(root), "delta": delta, "events": rows,
            "all_events": _row(second_opinion(spent, delta))}


def _row(opinion: SecondOpinion) -> Json:
    return {"epsilon": opinion.ours, "dp_accounting": opinion.theirs,
            "accountant": opinion.accountant or None, "remark": opinion.remark}


def cross_check_lines(record: Json) -> list[str]:
    """The record of `cross_check` in words.

    Args:
        record: What `cross_check` returned.

    Returns:
        Lines: a heading, two for each event, and two for all of them together.
    """
    lines = [f"run {record['run']}, epsilon at delta {record['delta']:g}:"]
    for row in record["events"]:
        fields = ", ".join(f"{name} {value}" for name, value in row["event"].items()
                           if name != "mechanism")
        lines += _two_lines(f"{row['count']} x {row['event']['mechanism']} ({fields})", row)
    return [*lines, *_two_lines("all events together", record["all_events"])]


def _two_lines(name: str, row: Json) -> list[str]:
    theirs = ("none" if row["dp_accounting"] is None
              else f"{row['dp_accounting']:.6g} by {row['accountant']}")
    return [f"{name}: ours {at_most(row['epsilon'])}, dp_accounting {theirs}", f"  {row['remark']}"]
