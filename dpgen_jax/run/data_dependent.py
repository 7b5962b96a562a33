"""Data-dependent accounting of a finished run: for the data holder's eyes, or, once, published.

The number that stops training, is printed by it and stands in privacy.json as `epsilon` is always
data-independent.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import sys
from pathlib import Path
from typing import Any

from dpgen_jax import methods
from dpgen_jax.accountant import gaussian, pate, renyi
from dpgen_jax.accountant.events import (
    EpsilonDeltaEvent,
    Events,
    GaussianEvent,
    RenyiEvent,
    of_kind,
)
from dpgen_jax.accountant.ledger import account, published, read
from dpgen_jax.accountant.rounding import add_up
from dpgen_jax.accountant.smooth_sensitivity import Sanitiser
from dpgen_jax.accountant.totals import Account
from dpgen_jax.aggregation import sanitise
from dpgen_jax.aggregation.bits import OsBits
from dpgen_jax.aggregation.confident_gnmax import ConfidentGNMax
from dpgen_jax.aggregation.label_votes import LabelMechanism
from dpgen_jax.aggregation.laplace import DiscreteLaplace
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.aggregation.noise import RoundedGaussian
from dpgen_jax.aggregation.topagg import TopAggMechanism
from dpgen_jax.core.atomic import write_together
from dpgen_jax.core.config import from_json
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import Spec, UserError
from dpgen_jax.private import data_dependent
from dpgen_jax.private import votes as vote_log
from dpgen_jax.release import contents, documents, guarantee
from dpgen_jax.run import costs, resume, spending
from dpgen_jax.run.folder import RunFolder, existing, read_json, write_json

EX_POST = ("ex-post: it describes this run's votes at one order, plus all other charges of "
           "the run; it is no guarantee of differential privacy; epsilon is")


def reading(root: Path) -> Json:
    """The data-dependent epsilon of a finished run, as `account RUN --data-dependent` shows it.

    Args:
        root: The run folder.

    Returns:
        A record for the data holder alone, as private as the records.

    Raises:
        UserError: A run that kept no votes, or whose mechanism has no such accounting.
    """
    files, mechanism, _ = _run(root)
    totals = account(read(files.ledger))
    kind = _kind_of(mechanism)
    votes, delta = kind.votes(files.votes), totals.header["delta"]
    others = _others(mechanism, totals)
    shown = data_dependent.for_the_holder(
        data_dependent.read(votes, kind, others.delta, totals.steps))
    record: Json = {
        "run": str(root),
        "warning": "computed from the votes themselves: AS PRIVATE AS THE RECORDS, for your eyes "
                   "only; the epsilon to state is the data-independent one",
        "data_dependent": {"epsilon": shown.epsilon + others.epsilon, "order": shown.order,
                           "kind": EX_POST},
        "data_independent": {"epsilon": costs.stamped(root, totals).claim,
                             "spent": totals.epsilon()},
        "votes": {**shown.agreement, "queries": shown.queries,
                  "steps charged without votes": shown.lost},
    }
    if isinstance(kind, data_dependent.Signs):
        by_round = data_dependent.for_the_holder(data_dependent.curve(votes, kind, delta))
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
    """Returns the charges of a run but for those of its rounds, of which alone the votes tell."""
    rounds, delta = {event for event, _ in mechanism.events(1)}, totals.header["delta"]
    others = tuple(pair for pair in totals.spent() if pair[0] not in rounds)
    if not others:
        return _Others(0.0, delta)
    bought = add_up((event.delta, n) for event, n in of_kind(EpsilonDeltaEvent, others))
    left = (delta - bought) / 2
    return _Others(gaussian.epsilon(others, delta - left), left)


def price(root: Path) -> Json:
    """Returns what `publish` would make of a run's claim, from its ledger and its configuration.

    No vote is read, and nothing is drawn, charged or written: both numbers are public. Only
    `publish` itself sees that another process has the ledger, that the folder is a copy, or that
    the votes are damaged.

    Args:
        root: The run folder.

    Returns:
        A record of the epsilon as it is and as it would be.

    Raises:
        UserError: As `publish`.
    """
    offer = _offer(root)
    mechanism = offer.mechanism
    kept = vote_log.n_steps(offer.files.votes, mechanism.queries, mechanism.vote_bins)
    sanitise.require(mechanism, offer.sanitiser, kept, offer.totals.steps)
    return {"run": str(root), "epsilon_without_it": offer.totals.claim(), "epsilon": offer.claim}


def publish(root: Path) -> Json:
    """Releases an upper bound on the data-dependent epsilon through smooth sensitivity, once.

    The run states a new, larger claim from then on: in the ledger before noise is sampled, and in
    privacy.json.

    Args:
        root: The run folder.

    Returns:
        A record of the run's new epsilon and of the bound.

    Raises:
        UserError: It was done before, or cannot be done for this run.
    """
    offer = _offer(root)
    files, totals, cost, claim = offer.files, offer.totals, offer.cost, offer.claim
    votes = data_dependent.Confident(offer.mechanism).votes(files.votes)
    sealed = sanitise.totals(votes, offer.mechanism, offer.sanitiser, totals.steps)
    witness = spending.witness(files, lambda line: print(line, file=sys.stderr))
    with resume.reopened(files, offer.mechanism, witness) as ledger:
        ledger.extend(claim)
        ledger.charge(((cost, 1),))
        bound = sanitise.upper_bound(sealed, offer.sanitiser, OsBits())
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
                        "whose smooth sensitivity is proven; --data-dependent shows yours to you")
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
            ", that of the run whose release judges; publish its own from a run without --keep-best"
            ))
    cost, delta = sanitise.event(config.sanitiser), totals.header["delta"]
    claim = gaussian.epsilon((*_budget(totals.claim(), delta, totals.spent()), (cost, 1)), delta)
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


def _kind_of(mechanism: Mechanism) -> data_dependent.Kind:
    """How the votes of a mechanism that keeps them are read."""
    match mechanism:
        case TopAggMechanism():
            return data_dependent.Signs(mechanism)
        case ConfidentGNMax():
            return data_dependent.Confident(mechanism)
        case LabelMechanism(noise=RoundedGaussian() | DiscreteLaplace() as noise):
            return data_dependent.Majority(mechanism, noise)
    raise UserError(f"no data-dependent accounting is known for {type(mechanism).__name__} with "
                    f"{type(mechanism.noise).__name__}")


def _budget(target: float, delta: float, spent: Events) -> Events:
    """The whole budget as events, of which no reading of the run is part.

    They are the side releases, and one Gaussian release that costs all they leave.
    """
    pure = tuple((event, n) for event, n in spent if isinstance(event, EpsilonDeltaEvent))
    left = add_up([(target, 1), *((event.epsilon, -n) for event, n in pure)])
    rest = add_up([(delta, 1), *((event.delta, -n) for event, n in pure)])
    c = renyi.zcdp_for(left, rest) * (1 + 1e-12)  # which ends at or below what `left` affords
    # With the distance from ideal noise that was charged: without it `claim` may fall short.
    tau = gaussian.total_variation(spent)
    return (*pure, (GaussianEvent(1 / math.sqrt(2 * c), 1, total_variation=tau), 1))
