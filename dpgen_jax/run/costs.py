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
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dpgen_jax import methods, presets
from dpgen_jax.accountant import composition, pate
from dpgen_jax.accountant.cross_check import SecondOpinion, second_opinion
from dpgen_jax.accountant.events import (
    EpsilonDeltaEvent,
    Event,
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
from dpgen_jax.core.config import Budget, from_json, to_json
from dpgen_jax.core.errors import nearest, option
from dpgen_jax.core.files import Json, write_together
from dpgen_jax.core.run_folder import FEDERATION, RunFolder, existing, read_json, write_json
from dpgen_jax.core.terms import Unit, at_most
from dpgen_jax.core.types import Spec, UserError
from dpgen_jax.methods.shared.config import MethodConfig, RecordUnits
from dpgen_jax.private import kept_votes as vote_log
from dpgen_jax.release import contents, documents, guarantee
from dpgen_jax.run import checkpoint, resume, side_releases, spending
from dpgen_jax.run.calibrate_config import complete, with_records


def of(what: str | Path, *, preset: str | None = None, epsilon: float | None = None,
       delta: float | None = None, **fields: Any) -> Cost | Spent:
    """Computes what a configuration would cost, or reads what a run has spent.

    `account("datalens", steps=86)` reads no data; `account("runs/first")` reads the ledger.

    Args:
        what: The name of a method, or a run folder.
        preset: Of a method: the preset, which gives all other arguments their values.
        epsilon: Of a method: the target.
        delta: Of the same target.
        **fields: Of a method: any field of its `Config`.

    Raises:
        UserError: A folder that is no run, or a configuration or a budget that means nothing.
        BudgetExceeded: A budget that allows no step.
    """
    stated = {**fields, "preset": preset, "epsilon": epsilon, "delta": delta}
    if is_method(what, [name for name, value in stated.items() if value is not None]):
        name, _, config = configured(str(what), preset, fields)
        return of_configuration(str(what), name, config, epsilon, delta)
    return of_run(Path(what))


def is_method(what: str | Path, stated: Collection[str]) -> bool:
    """Returns whether an argument names a method; else it is a folder.

    Raises:
        UserError: It is neither, or a folder with such arguments.
    """
    if not isinstance(what, str | Path):
        raise UserError(f"{what!r} is neither the name of a method nor the folder of a run")
    if what in methods.NAMES:
        return True
    if not Path(what).is_dir():
        raise UserError(f"{what} is neither a method nor the folder of a run"
                        f"{nearest(str(what), methods.NAMES)}; methods: {', '.join(methods.NAMES)}")
    for name in stated:
        raise UserError(f"{name} is for methods, and {what} is a folder: drop it")
    return False


def configured(method: str, preset: str | None, fields: Mapping[str, Any]
               ) -> tuple[str, presets.Preset, MethodConfig]:
    """Returns a preset of a method by name, and its configuration with some fields replaced.

    Args:
        method: The name of the method.
        preset: The name of the preset; None for the first.
        fields: Fields of the method's `Config`.

    Raises:
        UserError: An unknown method, preset or field, or a value of another type.
    """
    name, chosen = presets.get(method, preset)
    kind = methods.get(method).Config
    known = [field.name for field in dataclasses.fields(kind)]
    for field in fields.keys() - set(known):
        raise UserError(f"unknown field {field!r} of {method}{nearest(field, known)}")
    return name, chosen, from_json(kind, to_json(chosen.config) | to_json(dict(fields)))


@dataclasses.dataclass(frozen=True)
class Promise:
    """An epsilon at a delta."""

    epsilon: float
    delta: float


@dataclasses.dataclass(frozen=True)
class Proven:
    """The epsilon that is proven for some steps, and how it is counted."""

    epsilon: float
    accountant: str
    steps: int
    sigma: float


@dataclasses.dataclass(frozen=True)
class AsPublished:
    """The epsilon of a paper's formula for the steps that its authors ran, or would have run."""

    epsilon: float
    steps: int
    formula: str


@dataclasses.dataclass(frozen=True)
class Cost:
    """The cost of a configuration.

    Attributes:
        method: The name of the method.
        preset: The name of its preset.
        target: The promise.
        proven: The cost that is proven for the code that runs.
        as_published: The same by the paper's formula; None where no paper counts it.
    """

    method: str
    preset: str
    target: Promise
    proven: Proven
    as_published: AsPublished | None

    def record(self) -> Json:
        """Returns the cost as plain values."""
        return dataclasses.asdict(self)


def of_configuration(method: str, preset: str, config: MethodConfig, epsilon: float | None = None,
                     delta: float | None = None) -> Cost:
    """Returns the cost of a configuration, proven and as its paper counted it; reads no data.

    Args:
        method: Name of the method.
        preset: Name of one of its presets, for the schema of the data and the number of records.
        config: The method's configuration; its steps or sigma may be open.
        epsilon: The target; None for the preset's, or, where the configuration fixes both steps and
            sigma, for what these cost.
        delta: The target; None for the preset's.

    Raises:
        UserError: A configuration or a budget that means nothing.
        BudgetExceeded: A budget that allows no step.
    """
    chosen = presets.get(method, preset)[1]
    target = chosen.epsilon if epsilon is None else epsilon
    delta = chosen.delta if delta is None else delta
    if epsilon is None and config.steps and config.sigma:
        target = math.inf
    budget = Budget(target, delta, chosen.class_epsilon)
    if isinstance(config, RecordUnits) and config.records is None:
        config = with_records(config, chosen.records)
    config = complete(method, config, chosen.spec, budget)
    events = (*side_releases.planned((), budget.class_epsilon),
              *methods.get(method).mechanism(config, chosen.spec).events(config.steps))
    return Cost(method, preset, Promise(target, delta), _proven(events, delta, config),
                _as_published(method, chosen, config, target, delta))


def _proven(events: Events, delta: float, config: MethodConfig) -> Proven:
    """Epsilon and how it is counted.

    Far above 50 the distance between sampled and ideal noise, 2^-96 for a number, is more than
    delta allows: the epsilon of ideal noise is then shown and named as such, and no run can promise
    it.
    """
    epsilon, how = composition.epsilon_of(events, delta), guarantee.stated_accountant(events)
    ideal = composition.epsilon_of(ideal_noise(events), delta)
    if epsilon != ideal and not math.isfinite(epsilon):
        epsilon, how = ideal, f"{how}; for ideal noise, not the noise that runs draw"
    return Proven(epsilon, how, config.planned_steps, config.sigma or 0.0)


def _as_published(method: str, preset: presets.Preset, config: MethodConfig, target: float,
                  delta: float) -> AsPublished | None:
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
    return AsPublished(published.epsilon(steps), steps, published.formula)


@dataclasses.dataclass(frozen=True)
class Spent:
    """The contents of a run's ledger, for the data holder.

    Attributes:
        run: The run folder.
        guarantee: The promise of its release, in a line.
        unit: Who is protected.
        claimed: The claim: infinite where nothing is guaranteed.
        epsilon: The epsilon of all charges, at the delta of the claim. It is a reading of the
            ledger and not the claim.
        steps: How many rounds were charged.
        events: What was charged.
    """

    run: str
    guarantee: str
    unit: str
    claimed: Promise
    epsilon: float
    steps: int
    events: Events

    def record(self) -> Json:
        """Returns all of it as plain values."""
        return {"run": self.run, "guarantee": self.guarantee, "unit": self.unit,
                "claimed": dataclasses.asdict(self.claimed),
                "spent": {"epsilon": self.epsilon, "steps": self.steps},
                "events": [{**event.statement(), "count": n} for event, n in self.events]}


def of_run(root: Path) -> Spent:
    """Reads what a run has spent from its ledger.

    Raises:
        UserError: A ledger that is missing or damaged, or a damaged statement.
    """
    totals = account(read(existing(root).ledger))
    stamp = stamped(root, totals)
    return Spent(str(root), stamp.line, stamp.whom, Promise(stamp.claim, totals.header["delta"]),
                 totals.epsilon(), totals.steps, totals.spent())


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
        return Stamp("nothing is released: a purchase was made, but nothing was trained yet",
                     guarantee.whom(totals.header), totals.claim())
    config = contents.described(files.config)
    faults = guarantee.faults(
        max(totals.target, totals.epsilon()), _noise_source(files, config),
        config["config"].get("accounting", "proven"), config.get("simulated", ""))
    stamp = guarantee.stamped(totals.header["relation"], faults, config.get("not_covered") or ())
    # The clients of a run whose number of records is public are simulated: a record is protected.
    terms = totals.header | ({"unit": Unit.RECORD} if config.get("records") is not None else {})
    return Stamp(f"{stamp.text} (of a release that does not exist yet)", guarantee.whom(terms),
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
    return "clients, none of which has answered yet"


@dataclasses.dataclass(frozen=True)
class CrossCheck:
    """Epsilons of the `dp_accounting` package, and ours.

    Attributes:
        run: The run folder.
        delta: The delta of all epsilons.
        events: Each event of the ledger, how often it was charged, and both epsilons of that.
        together: Both epsilons of all events.
    """

    run: str
    delta: float
    events: tuple[tuple[Event, int, SecondOpinion], ...]
    together: SecondOpinion

    def record(self) -> Json:
        """Returns all of it as plain values."""
        return {"run": self.run, "delta": self.delta,
                "events": [{"event": event.statement(), "count": n, **_row(opinion)}
                           for event, n, opinion in self.events],
                "all_events": _row(self.together)}

    def lines(self) -> list[str]:
        """Returns all of it in words: a heading, and two lines for each event and for all."""
        lines = [f"run {self.run}, epsilon at delta {self.delta:g}:"]
        for event, n, opinion in self.events:
            fields = ", ".join(f"{name} {value}" for name, value in event.statement().items()
                               if name != "mechanism")
            lines += _two_lines(f"{n} x {event.mechanism} ({fields})", opinion)
        return [*lines, *_two_lines("all events together", self.together)]


def cross_check(root: Path) -> CrossCheck:
    """Compares our epsilon of a run, and of each of its events, with that of `dp_accounting`.

    Raises:
        UserError: A ledger that is missing or damaged.
    """
    totals = account(read(existing(root).ledger))
    delta, spent = totals.header["delta"], totals.spent()
    rows = tuple((event, n, second_opinion(((event, n),), delta)) for event, n in spent)
    return CrossCheck(str(root), delta, rows, second_opinion(spent, delta))


def _row(opinion: SecondOpinion) -> Json:
    return {"epsilon": opinion.ours, "dp_accounting": opinion.theirs,
            "accountant": opinion.accountant or None, "remark": opinion.remark}


def _two_lines(name: str, opinion: SecondOpinion) -> list[str]:
    theirs = ("none" if opinion.theirs is None
              else f"{opinion.theirs:.6g} by {opinion.accountant}")
    return [f"{name}: ours {at_most(opinion.ours)}, dp_accounting {theirs}",
            f"  {opinion.remark}"]


EX_POST = ("ex-post: it describes this run's votes at one order, plus all other charges of the "
           "run; it is not a guarantee of differential privacy, but epsilon is")


@dataclasses.dataclass(frozen=True)
class VoteReading:
    """The epsilon of a run that its votes give: as private as the records.

    Attributes:
        run: The run folder.
        epsilon: The data-dependent epsilon, of all charges.
        order: The Renyi order that it comes from.
        claimed: The data-independent epsilon that the run states.
        spent: The data-independent epsilon of its ledger.
        votes: How far the votes agree, and of how many queries they are.
        by_round: Epsilons after each round by each reading, where signs are released; else None.
    """

    run: str
    epsilon: float
    order: float
    claimed: float
    spent: float
    votes: Mapping[str, Any]
    by_round: Mapping[str, list[float | None]] | None

    def record(self) -> Json:
        """Returns all of it as plain values, with a warning."""
        record: Json = {
            "run": self.run,
            "warning": "computed from the votes themselves: AS PRIVATE AS THE RECORDS, for you "
                       "only; publish the data-independent epsilon",
            "data_dependent": {"epsilon": self.epsilon, "order": self.order, "kind": EX_POST},
            "data_independent": {"epsilon": self.claimed, "spent": self.spent},
            "votes": dict(self.votes)}
        if self.by_round is not None:
            last = {name: values[-1] for name, values in self.by_round.items() if values}
            record["by round"] = dict(self.by_round)
            record["by Renyi divergences"] = {
                "independent": last.get("independent"), "laws of the entries": last.get("entries"),
                "Theorems 4 and 5 of DataLens": last.get("theorem") or "say nothing"}
        return record


def data_dependent_reading(root: Path) -> VoteReading:
    """Returns the data-dependent epsilon of a finished run, for the data holder only.

    Raises:
        UserError: A run that kept no votes, or whose mechanism has no such accounting.
    """
    files, mechanism, _ = _run(root)
    totals = account(read(files.ledger))
    kind = _kind_of(mechanism)
    votes, delta = kind.votes(files.votes), totals.header["delta"]
    others, by_round = _others(mechanism, totals), None
    shown = vote_log.for_the_holder(
        vote_log.read_for_the_holder(votes, kind, others.delta, totals.steps))
    if isinstance(kind, vote_log.Signs):
        curve = vote_log.for_the_holder(vote_log.cost_curve(votes, kind, delta))
        by_round = {name: [value if math.isfinite(value) else None for value in values]
                    for name, values in dataclasses.asdict(curve).items()}
    return VoteReading(str(root), shown.epsilon + others.epsilon, shown.order,
                       stamped(root, totals).claim, totals.epsilon(),
                       {**shown.agreement, "queries": shown.queries,
                        "steps charged without votes": shown.lost}, by_round)


@dataclasses.dataclass(frozen=True)
class _Offer:
    """A bound that a run can publish, and what that costs: no vote is read for it.

    Attributes:
        files: The run folder.
        mechanism: The mechanism of the run.
        sanitiser: The declared parameters of the bound.
        spec: The schema of what the run releases.
        statement: The run's privacy.json as it is.
        totals: What the ledger charges.
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
        raise UserError(f"{root} promises nothing ('{stamp.text}'), so a bound on its votes would "
                        "not be a promise; use a run with a guarantee")
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
