"""The costs of a configuration or a run, also data-dependent, and second opinions on them.

The data-dependent accounting of a finished run is for the data holder, or is published once. The
epsilon that stops the training, that it prints, and that is `epsilon` in privacy.json is always
data-independent.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import sys
from pathlib import Path
from typing import Any, NamedTuple

from dpgen_jax import methods, presets
from dpgen_jax.accountant import composition, pate
from dpgen_jax.accountant.cross_check import SecondOpinion, second_opinion
from dpgen_jax.accountant.events import (
    EpsilonDeltaEvent,
    Events,
    GaussianEvent,
    RenyiEvent,
    add_up,
    ideal_noise,
    of_kind,
)
from dpgen_jax.accountant.ledger import Account, account, published, read
from dpgen_jax.accountant.smooth_sensitivity import Sanitiser
from dpgen_jax.aggregation import teacher_votes
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.aggregation.noise import DiscreteLaplace, OsBits, RoundedGaussian
from dpgen_jax.aggregation.teacher_votes import ConfidentGNMax, LabelMechanism
from dpgen_jax.aggregation.topagg import TopAggMechanism
from dpgen_jax.core.config import Budget, from_json
from dpgen_jax.core.errors import option
from dpgen_jax.core.files import Json, write_together
from dpgen_jax.core.run_folder import FEDERATION, RunFolder, existing, read_json, write_json
from dpgen_jax.core.terms import Unit, at_most
from dpgen_jax.core.types import Spec, UserError
from dpgen_jax.methods.shared.config import MethodConfig, RecordUnits
from dpgen_jax.private import kept_votes as vote_log
from dpgen_jax.release import contents, documents, guarantee
from dpgen_jax.run import checkpoint, resume, side_releases, spending
from dpgen_jax.run.calibrate_config import complete, with_records


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
    epsilon, how = composition.epsilon_of(events, delta), guarantee.stated_accountant(events)
    ideal = composition.epsilon_of(ideal_noise(events), delta)
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
    """Returns the contents of a run's ledger, for the data holder.

    `spent` is a reading of the ledger and not the claim, which is infinite where nothing is
    guaranteed.

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
        return guarantee.sources(checkpoint.note_checkpoint(files.checkpoints, rounds[-1],
                                                            "noise")["noise"])
    return "clients of whom none has answered yet"


def cross_check(root: Path) -> Json:
    """Returns the epsilon of `dp_accounting` and ours, for each event of a ledger and for all.

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
    """Returns the record of `cross_check` in words."""
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


EX_POST = ("ex-post: it describes this run's votes at one order, plus all other charges of "
           "the run; it is no guarantee of differential privacy; epsilon is")


def data_dependent_reading(root: Path) -> Json:
    """Returns the data-dependent epsilon of a finished run, as private as the records.

    Raises:
        UserError: A run that kept no votes, or whose mechanism has no such accounting.
    """
    files, mechanism, _ = _run(root)
    totals = account(read(files.ledger))
    kind = _kind_of(mechanism)
    votes, delta = kind.votes(files.votes), totals.header["delta"]
    others = _others(mechanism, totals)
    shown = vote_log.for_the_holder(
        vote_log.read_for_the_holder(votes, kind, others.delta, totals.steps))
    record: Json = {
        "run": str(root),
        "warning": "computed from the votes themselves: AS PRIVATE AS THE RECORDS, for your eyes "
                   "only; the epsilon to state is the data-independent one",
        "data_dependent": {"epsilon": shown.epsilon + others.epsilon, "order": shown.order,
                           "kind": EX_POST},
        "data_independent": {"epsilon": stamped(root, totals).claim,
                             "spent": totals.epsilon()},
        "votes": {**shown.agreement, "queries": shown.queries,
                  "steps charged without votes": shown.lost},
    }
    if isinstance(kind, vote_log.Signs):
        by_round = vote_log.for_the_holder(vote_log.cost_curve(votes, kind, delta))
        record["by round"] = {name: [value if math.isfinite(value) else None for value in values]
                              for name, values in dataclasses.asdict(by_round).items()}
        last = {name: values[-1] for name, values in record["by round"].items() if values}
        record["by Renyi divergences"] = {
            "independent": last.get("independent"), "laws of the entries": last.get("entries"),
            "Theorems 4 and 5 of DataLens": last.get("theorem") or "say nothing"}
    return record


@dataclasses.dataclass(frozen=True)
class _Offer:
    """A bound that a run can publish, and what that costs: no vote is read for it.

    Attributes:
        sanitiser: The declared parameters of the bound.
        cost: The cost of the bound.
        claim: The epsilon of the run once it is published.
        others: What the run charged for anything but its rounds.
    """

    files: RunFolder
    mechanism: ConfidentGNMax
    sanitiser: Sanitiser
    spec: Spec
    statement: Json
    totals: Account
    cost: RenyiEvent
    claim: float
    others: _Others


@dataclasses.dataclass(frozen=True)
class _Others:
    """The charges of a run for class counts, entries of a schema and a release that judges.

    Attributes:
        epsilon: The epsilon of all of it, at the rest of the run's delta.
        delta: The part of the run's delta that is left for the votes.
    """

    epsilon: float
    delta: float


def _others(mechanism: Mechanism, totals: Account) -> _Others:
    """Returns the charges of a run except those of its rounds; the votes cover only rounds."""
    rounds, delta = {event for event, _ in mechanism.events(1)}, totals.header["delta"]
    others = tuple(pair for pair in totals.spent() if pair[0] not in rounds)
    if not others:
        return _Others(0.0, delta)
    bought = add_up((event.delta, n) for event, n in of_kind(EpsilonDeltaEvent, others))
    left = (delta - bought) / 2
    return _Others(composition.epsilon_of(others, delta - left), left)


def publication_price(root: Path) -> Json:
    """Returns what `publish` would make of a run's claim, from its ledger and its configuration.

    No vote is read, and nothing is drawn, charged or written: both numbers are public. Only
    `publish` itself sees that another process has the ledger, that the folder is a copy, or that
    the votes are damaged.

    Raises:
        UserError: As `publish`.
    """
    offer = _offer(root)
    mechanism = offer.mechanism
    kept = vote_log.n_steps(offer.files.votes, mechanism.queries, mechanism.vote_bins)
    teacher_votes.require_sanitised(mechanism, offer.sanitiser, kept, offer.totals.steps)
    return {"run": str(root), "epsilon_without_it": offer.totals.claim(), "epsilon": offer.claim}


def publish(root: Path) -> Json:
    """Releases an upper bound on the data-dependent epsilon through smooth sensitivity, once.

    The run states a new, larger claim from then on: in the ledger before noise is sampled, and in
    privacy.json.

    Raises:
        UserError: It was done before, or cannot be done for this run.
    """
    offer = _offer(root)
    files, totals, cost, claim = offer.files, offer.totals, offer.cost, offer.claim
    votes = vote_log.Confident(offer.mechanism).votes(files.votes)
    sealed = teacher_votes.sanitised_totals(votes, offer.mechanism, offer.sanitiser, totals.steps)
    witness = spending.witness(files, lambda line: print(line, file=sys.stderr))
    with resume.reopened(files, offer.mechanism, witness) as ledger:
        ledger.extend(claim)
        ledger.charge(((cost, 1),))
        bound = teacher_votes.upper_bound(sealed, offer.sanitiser, OsBits())
    order, statement = offer.sanitiser.order, offer.statement
    epsilon = offer.others.epsilon + pate.epsilon_of(
        [bound + cost.rdp], [order], offer.others.delta)
    statement["data_dependent_epsilon"] = {
        "epsilon": epsilon, "order": order,
        "kind": EX_POST, "own_cost_rdp": cost.rdp, "epsilon_without_it": totals.claim(),
        "may_be_too_low_with_probability": offer.sanitiser.failure}
    statement["epsilon"] = claim
    statement["events"].append({**cost.statement(), "count": 1})
    written = documents.files(statement, offer.spec,
                              documents.of_release(offer.spec, classifies=False))
    _known(files, hashlib.sha256(written["privacy.json"]).hexdigest())
    write_together(files.release, written)
    return {"run": str(root), "epsilon": claim,
            "data_dependent_epsilon": statement["data_dependent_epsilon"]}


def _offer(root: Path) -> _Offer:
    """The bound that a run can publish. Raises: UserError: It can publish none."""
    files, mechanism, config = _run(root)
    if not isinstance(mechanism, ConfidentGNMax):
        raise UserError(f"{root}: a data-dependent bound is published for Confident-GNMax only, "
                        f"whose smooth sensitivity is proven; {option('data_dependent')} shows "
                        "yours to you")
    stored = contents.described(files.config)
    names = {"class_names": stored["class_names"]} if stored.get("class_names") else {}
    spec = contents.spec(stored["spec"] | names)
    statement = contents.statement(read_json(files.release / "privacy.json"))
    if not (stamp := guarantee.of(statement)).holds:
        raise UserError(f"{root} promises nothing ('{stamp.text}'), so no bound on its votes would "
                        "be a promise; publish that of a run with a guarantee")
    # A sanitiser that was changed since the run began may have been chosen by the votes.
    totals = resume.charged(files, stored)
    if any(isinstance(event, RenyiEvent) for event, _ in totals.spent()):
        raise UserError(f"{root} has charged its one sanitised release" + (
            "; another would need another run" if published(read(files.ledger)) else
            ", that of the run whose release judges; publish its own from a run without "
            f"{option('keep_best')}"
            ))
    cost, delta = teacher_votes.sanitised_event(config.sanitiser), totals.header["delta"]
    claim = composition.epsilon_of((*_budget(totals.claim(), delta, totals.spent()), (cost, 1)),
                                   delta)
    return _Offer(files, mechanism, config.sanitiser, spec, statement, totals, cost, claim,
                  _others(mechanism, totals))


def _known(files: RunFolder, digest: str) -> None:
    """Adds the digest of a statement to those that an audit knows, before it is written."""
    known = read_json(files.released) if files.released.exists() else {}
    write_json(files.released, {**known, "privacy_sha256": [
        *known.get("privacy_sha256", ()), digest]}, mode=0o600)


def _run(root: Path) -> tuple[RunFolder, Mechanism, Any]:
    """The files, the mechanism and the configuration of a run with data-dependent accounting.

    The type of the configuration is that of the method, which config.json names at run time.
    """
    files = existing(root)
    stored = contents.described(files.config)
    module = methods.get(stored["method"])
    config = from_json(module.Config, stored["config"])
    mechanism: Mechanism = module.mechanism(config, contents.spec(stored["spec"]))
    if not mechanism.keeps_votes:
        raise UserError(f"{root}: data-dependent accounting holds where only the winner of a noisy "
                        "vote, or the signs of noisy sums, are released (aggregate gnmax, "
                        "decode majority, decode threshold), not for the noisy "
                        f"sums that this run of {stored['method']} released")
    if not config.sigma:
        raise UserError(f"{root} ran without noise: its epsilon is infinite by any accounting")
    return files, mechanism, config


def _kind_of(mechanism: Mechanism) -> vote_log.Kind:
    """How the votes of a mechanism that keeps them are read."""
    match mechanism:
        case TopAggMechanism():
            return vote_log.Signs(mechanism)
        case ConfidentGNMax():
            return vote_log.Confident(mechanism)
        case LabelMechanism(noise=RoundedGaussian() | DiscreteLaplace() as noise):
            return vote_log.Majority(mechanism, noise)
    raise UserError(f"no data-dependent accounting is known for {type(mechanism).__name__} with "
                    f"{type(mechanism.noise).__name__}")


def _budget(target: float, delta: float, spent: Events) -> Events:
    """The whole budget as events, of which no reading of the run is part.

    They are the side releases, and one Gaussian release that costs all they leave.
    """
    pure = tuple((event, n) for event, n in spent if isinstance(event, EpsilonDeltaEvent))
    left = add_up([(target, 1), *((event.epsilon, -n) for event, n in pure)])
    rest = add_up([(delta, 1), *((event.delta, -n) for event, n in pure)])
    c = composition.zcdp_for(left, rest) * (1 + 1e-12)  # which ends at or below what `left` affords
    # With the distance from ideal noise that was charged: without it `claim` may fall short.
    tau = composition.total_variation(spent)
    return (*pure, (GaussianEvent(1 / math.sqrt(2 * c), 1, total_variation=tau), 1))
