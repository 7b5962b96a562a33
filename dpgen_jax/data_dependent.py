"""Data-dependent accounting of a finished run: for the data holder's eyes, or, once, published.

The number that stops training, is printed by it and stands in privacy.json as `epsilon` is always
data-independent.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

from dpgen_jax import methods, resume, spending
from dpgen_jax.accountant import gaussian, pate
from dpgen_jax.accountant.events import EpsilonDeltaEvent, Events, GaussianEvent, RenyiEvent
from dpgen_jax.accountant.ledger import account, read
from dpgen_jax.accountant.rounding import add_up
from dpgen_jax.aggregation import sanitise
from dpgen_jax.aggregation.bits import OsBits
from dpgen_jax.aggregation.confident_gnmax import ConfidentGNMax
from dpgen_jax.config import from_json
from dpgen_jax.private import data_dependent
from dpgen_jax.run import contents
from dpgen_jax.run import statement as statements
from dpgen_jax.run.atomic import write_together
from dpgen_jax.run.folder import RunFolder, read_json
from dpgen_jax.types import UserError

EX_POST = ("ex-post: it describes this run's votes at one order, and is no guarantee of "
           "differential privacy; epsilon is")


def reading(root: Path) -> dict[str, Any]:
    """What `account RUN --data-dependent` shows. Errors: UserError for a run that kept no votes."""
    files, mechanism, _ = _run(root)
    held = account(read(files.ledger))
    confident = isinstance(mechanism, ConfidentGNMax)
    kind = (data_dependent.Confident if confident else data_dependent.Majority)(mechanism)
    found = data_dependent.for_the_holder(data_dependent.read(
        kind.votes(files.votes), kind, held.header["delta"], held.steps))
    return {
        "run": str(root),
        "warning": "computed from the votes themselves: AS PRIVATE AS THE RECORDS, for your eyes "
                   "only; the epsilon to state is the data-independent one",
        "data_dependent": {"epsilon": found.epsilon, "order": found.order, "kind": EX_POST},
        "data_independent": {"epsilon": held.claim(), "spent": held.epsilon()},
        "votes": {"most agreed bin": found.first, "second": found.second,
                  "answered": found.answered, "queries": found.queries,
                  "steps charged without votes": found.lost},
    }


def publish(root: Path) -> dict[str, Any]:
    """Releases an upper bound on the data-dependent epsilon through smooth sensitivity, once.

    The run states a new, larger claim from then on, in the ledger before anything is drawn and in
    privacy.json. Errors: UserError where it was done before, and where it cannot be done.
    """
    files, mechanism, config = _run(root)
    if not isinstance(mechanism, ConfidentGNMax):
        raise UserError(f"{root}: a data-dependent bound is published for Confident-GNMax only, "
                        "whose smooth sensitivity is proven; --data-dependent shows yours to you")
    statement = contents.statement(read_json(files.release / "privacy.json"))
    held = account(read(files.ledger))
    if any(isinstance(event, RenyiEvent) for event, _ in held.spent()):
        raise UserError(f"{root} has charged its one sanitised release; another would need another "
                        "run")
    kept = data_dependent.Confident(mechanism).votes(files.votes)
    cost = sanitise.event(config.sanitiser)
    sealed = sanitise.totals(kept, mechanism, config.sanitiser, held.steps)
    delta = held.header["delta"]
    claim = gaussian.epsilon((*_budget(held.claim(), delta, held.spent()), (cost, 1)), delta)
    witness = spending.witness(files, lambda line: print(line, file=sys.stderr))
    with resume.reopened(files, mechanism, witness) as ledger:
        ledger.extend(claim)
        ledger.charge(((cost, 1),))
        bound = sanitise.upper_bound(sealed, config.sanitiser, OsBits())
    order = config.sanitiser.order
    statement["data_dependent_epsilon"] = {
        "epsilon": pate.epsilon_of([bound + cost.rdp], [order], delta), "order": order,
        "kind": EX_POST, "own_cost_rdp": cost.rdp, "epsilon_without_it": held.claim(),
        "may_be_too_low_with_probability": config.sanitiser.failure}
    statement["epsilon"] = claim
    statement["events"].append({**cost.statement(), "count": 1})
    write_together(files.release, statements.files(statement))
    return {"run": str(root), "epsilon": claim,
            "data_dependent_epsilon": statement["data_dependent_epsilon"]}


def _run(root: Path) -> tuple[RunFolder, Any, Any]:
    """(files, mechanism, config). Errors: UserError for a run without data-dependent accounting."""
    files = RunFolder(root)
    stored = contents.described(files.config)
    module = methods.get(stored["method"])
    config = from_json(module.Config, stored["config"])
    mechanism = module.mechanism(config, contents.spec(stored["spec"]))
    if not mechanism.keeps_votes:
        raise UserError(f"{root}: data-dependent accounting holds where only the winner of a noisy "
                        "vote is released (aggregate gnmax, decode majority), not for the noisy "
                        f"sums that this run of {stored['method']} released")
    if not config.sigma:
        raise UserError(f"{root} ran without noise: its epsilon is infinite by any accounting")
    return files, mechanism, config


def _budget(target: float, delta: float, spent: Events) -> Events:
    """The whole budget as events, of which no reading of the run is part: the purchases, and one
    Gaussian release that costs all they leave."""
    pure = tuple((event, n) for event, n in spent if isinstance(event, EpsilonDeltaEvent))
    left = add_up([(target, 1), *((event.epsilon, -n) for event, n in pure)])
    rest = add_up([(delta, 1), *((event.delta, -n) for event, n in pure)])
    c = gaussian.zcdp_for(left, rest) * (1 + 1e-12)  # which ends at or below what `left` affords
    # With the distance from ideal noise that was charged: without it `claim` may fall short.
    tau = gaussian.total_variation(spent)
    return (*pure, (GaussianEvent(1 / math.sqrt(2 * c), 1, total_variation=tau), 1))
