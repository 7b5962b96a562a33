"""Membership inference against a release, beside what its guarantee allows any attack to reach.

The game: training and held-out records are exchangeable, as independent draws of one population or
a random split of one data set are. Whoever holds the release, and any knowledge of the other
records, judges whether a record was trained on. What is attacked is the release alone, by synthetic
records drawn from it (`attacks`); no attack here uses anything else that a run keeps.

What (epsilon, delta) allows. Exchange a member a with a non-member b: the world in which b was
trained on and a held out has the same law, and its release comes from data that differ in one
record. So an event that the attack looks for has chances p and q in the two worlds with
p <= g(q) and q <= g(p), where for replace-one
  g(x) = min(1, delta + e^eps x, 1 - e^-eps (1 - delta - x)),
which is 1 - f of the trade-off function f (Dong, Roth and Su, JRSSB 2022, equation 5; Kairouz, Oh
and Viswanath, ICML 2015). Where the relation is add-remove or zero-out, the two worlds are
both neighbours of the one without a and b, with chance m, but not of each other:
p <= g(m) <= g(g(q)). Hence
  tpr at fpr x: at most g(x), or g(g(x)). Both are concave, so this holds of averages as well.
  advantage: the largest p - q: (e^eps - 1 + 2 delta) / (e^eps + 1) for replace-one. Otherwise
    p - q <= g(m) - (1 - g(1 - m)), concave and symmetric in m: at most 2 g(1/2) - 1.
  auroc: at most (1 + advantage) / 2. It is the chance that of a pair the member has the higher
    score, a tie counting half. Let the event be "a has": the two worlds, equally likely, are won
    with chances p and 1 - q, which is 1/2 + (p - q) / 2 on average. (The area under g is a bound
    too, the same for replace-one and delta 0, else weaker.)
Scores over many members and non-members are means over records, or over pairs, each of which obeys
the bound; the expectation of a mean is the mean of expectations, however the records depend on each
other through the one release. Given that release, a sum over disjoint pairs also spreads no more
than a binomial's, but for a chance of the order of n delta (Steinke, Nasr and Jagielski, "Privacy
Auditing with One (1) Training Run", NeurIPS 2023), so that one run can be tested.
Unit "client" protects all records of a client, each of them therefore too.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score, roc_curve

from dpgen_jax import guarantee as stamps
from dpgen_jax.evaluation import attacks
from dpgen_jax.evaluation.attacks import Records
from dpgen_jax.evaluation.scores import summary
from dpgen_jax.types import UserError

CAP = 2000
"""Members, non-members and reference records of one seed, of each at most."""
SEEDS = 3
RATE = 0.01
"""The false positive rate of `tpr_at_1_percent_fpr`."""
CHANCE = {"auroc": 0.5, "advantage": 0.0, "tpr_at_1_percent_fpr": RATE}
WEAK = 0.95
"""An allowed AUROC above this says little."""
STEPS = {"replace-one": 1, "add-remove": 2, "zero-out": 2}
"""Relation -> how many neighbours lie between the worlds in which one record takes another's place.
"""
UNITS = ("record", "client")
"""The noise source of a statement that claims anything."""


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta) over 1 or 2 `STEPS`; what the game of this module may then yield."""

    epsilon: float
    delta: float
    steps: int

    def tpr(self, fpr: float) -> float:
        """The largest true positive rate at a false positive rate."""
        for _ in range(self.steps):
            fpr = self._step(fpr)
        return fpr

    def _step(self, x: float) -> float:
        """g of the module; e^700 is as good as any more, and no overflow."""
        times = math.exp(min(self.epsilon, 700.0))
        return max(0.0, min(1.0, self.delta + times * x, 1 - (1 - self.delta - x) / times))

    @property
    def advantage(self) -> float:
        if self.steps == 2:
            return 2 * self._step(0.5) - 1
        return 1 - 2 * (1 - self.delta) / (1 + math.exp(min(self.epsilon, 700.0)))

    @property
    def auroc(self) -> float:
        return (1 + self.advantage) / 2

    def allowed(self) -> dict[str, float]:
        """The most that any attack can reach, in expectation: the keys of `CHANCE`."""
        return dict(zip(CHANCE, (self.auroc, self.advantage, self.tpr(RATE)), strict=True))

    def beyond(self, n: int) -> dict[str, float]:
        """What an attack at the bound exceeds, with n members and n non-members, by chance and in
        fewer than one of a hundred cases: `allowed` and three standard errors. An AUROC of mean A
        has variance at most A (1 - A) / n (van Dantzig 1951); the difference a of two rates at most
        (1 - a^2) / 2n."""
        a, spread = self.advantage, 3 / math.sqrt(n)
        rate = self.tpr(min(1.0, RATE + spread * math.sqrt(RATE * (1 - RATE))))
        margins = (math.sqrt(self.auroc * (1 - self.auroc)), math.sqrt((1 - a * a) / 2),
                   math.sqrt(rate * (1 - rate)))
        return {name: most + spread * margin for (name, most), margin in
                zip({**self.allowed(), "tpr_at_1_percent_fpr": rate}.items(), margins, strict=True)}


def guarantee(statement: dict[str, Any]) -> Guarantee | str:
    """What privacy.json promises, or why it promises nothing that this game could be held to."""
    epsilon, delta = (float(statement.get(name) if statement.get(name) is not None else math.inf)
                      for name in ("epsilon", "delta"))
    stamp = stamps.of(statement)
    relation, unit = statement.get("relation"), statement.get("unit")
    if stamp.kind != "valid":
        return f"the statement says: {stamp.text}"
    if not (0 <= epsilon < math.inf and 0 <= delta < 1):
        return f"epsilon is {epsilon:g} and delta {delta:g}"
    if relation not in STEPS or unit not in UNITS:
        return f"no bound is known for relation {relation!r} and unit {unit!r}"
    return Guarantee(epsilon, delta, STEPS[relation])


def membership(synthetic: Callable[[int, int], Records], members: Records, non_members: Records,
               statement: dict[str, Any], seeds: int | None = None, *, n_synthetic: int = 10_000,
               say: Callable[[str], None] = lambda line: None) -> tuple[dict[str, Any], list[str]]:
    """The `membership` part of metrics.json, and its keys for `not_covered_by_epsilon`.

    synthetic: draws records and labels for (n, seed): images uint8 or float in [0, 1], or encoded
    rows, such as `Release.sample` of images and `Release.encoded` of tables; members: training
    records; non_members: held-out ones, half of which are judged and half are the reference, anew
    for each seed; of each kind equally many, at most `CAP`. Labels may be None. statement:
    privacy.json. seeds: `SEEDS` if left out. say: told one line a seed.
    Returns {"attacks": {name: {metric: summary}}, "allowed": by the guarantee, or None where none
    holds, "chance", "strongest": by AUROC, "sentence", "exceeds_guarantee", n_members,
    n_non_members, n_reference}. tpr_at_1_percent_fpr of attacks is left out where a half has fewer
    than 99 non-members, too few to know 1 % of them.
    Errors: UserError for records that are malformed, not finite or too few.
    """
    seeds = SEEDS if seeds is None else seeds
    if seeds < 1:
        raise UserError(f"seeds must be at least 1, got {seeds}")
    members = _checked("training", members)
    others = _checked("held-out", non_members, members[0].shape[1])
    n = min(CAP, len(members[1]), len(others[1]) // 2)
    if n < 2:
        raise UserError(f"{len(members[1])} training and {len(others[1])} held-out records; "
                        "membership inference needs at least 2 and 4, hold out more")
    found: dict[str, list[dict[str, float]]] = {name: [] for name in attacks.ATTACKS}
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        picked = rng.permutation(len(others[1]))
        inside, outside, reference = (
            _take(members, rng.permutation(len(members[1]))[:n]), _take(others, picked[:n]),
            _take(others, picked[n:2 * n]))
        made = _checked("synthetic", synthetic(n_synthetic, seed), members[0].shape[1])
        judged = tuple(map(np.concatenate, zip(inside, outside, strict=True)))
        for name, score in attacks.scores(judged, made, reference, seed).items():
            found[name].append(measured(score[:n], score[n:]))
        say(f"membership, seed {seed}: AUROC " + ", ".join(
            f"{name} {values[-1]['auroc']:.3f}" for name, values in found.items()))
    over_seeds = {name: {metric: summary([v[metric] for v in values]) for metric in values[0]}
                  for name, values in found.items()}
    seen = [f"membership.attacks.{name}.{metric}" for name in found for metric in over_seeds[name]]
    return _result(over_seeds, guarantee(statement), n), seen


def measured(inside: np.ndarray, outside: np.ndarray) -> dict[str, float]:
    """What scores of members [n] and non-members [n'] achieve: the keys of `CHANCE`, the last only
    where n' is large enough.

    Thresholds are chosen on every other record and judged on the rest, then the reverse, and the
    two are averaged: the best of all thresholds on the records that chose it would favour the
    attack. That of `tpr_at_1_percent_fpr` is the order statistic of non-members that another
    exceeds with a chance of 1 % at most.
    """
    halves = [(inside[i::2], outside[i::2]) for i in range(2)]
    best, rate = [], []
    for chosen, judged in (halves, halves[::-1]):
        least = _best_threshold(*chosen)
        best.append(np.mean(judged[0] >= least) - np.mean(judged[1] >= least))
        place = math.ceil((1 - RATE) * (len(chosen[1]) + 1))
        if place <= len(chosen[1]):
            rate.append(np.mean(judged[0] > np.sort(chosen[1])[place - 1]))
    found = {"auroc": _auroc(inside, outside), "advantage": float(np.mean(best))}
    return found | ({"tpr_at_1_percent_fpr": float(np.mean(rate))} if len(rate) == 2 else {})


def _auroc(inside: np.ndarray, outside: np.ndarray) -> float:
    truth = np.repeat([1, 0], (len(inside), len(outside)))
    return float(roc_auc_score(truth, np.concatenate([inside, outside])))


def _best_threshold(inside: np.ndarray, outside: np.ndarray) -> float:
    truth = np.repeat([1, 0], (len(inside), len(outside)))
    fpr, tpr, least = roc_curve(truth, np.concatenate([inside, outside]), drop_intermediate=False)
    return least[np.argmax(tpr - fpr)]


def _result(found: dict[str, Any], promise: Guarantee | str, n: int) -> dict[str, Any]:
    strongest = max(found, key=lambda name: found[name]["auroc"]["mean"])
    held = isinstance(promise, Guarantee)
    limits = promise.beyond(n) if held else {}
    excess = [(name, metric) for name, scores in found.items() for metric, most in limits.items()
              if metric in scores and scores[metric]["mean"] > most]
    return {"attacks": found, "allowed": promise.allowed() if held else None, "chance": CHANCE,
            "strongest": strongest, "exceeds_guarantee": bool(excess),
            "sentence": _sentence(found, strongest, promise, excess),
            "n_members": n, "n_non_members": n, "n_reference": n}


def _sentence(found: dict[str, Any], strongest: str, promise: Guarantee | str,
              excess: list[tuple[str, str]]) -> str:
    auroc = found[strongest]["auroc"]
    reached = (f"The strongest of {len(found)} attacks ({strongest}) reached AUROC "
               f"{auroc['mean']:.3f} +- {auroc['std']:.3f} (0.5 is guessing)")
    if isinstance(promise, str):
        return f"{reached}; no guarantee holds: {promise}. An attack that fails proves nothing."
    if excess:
        name, metric = excess[0]
        return (f"SOMETHING IS WRONG: the attack {name} reached {metric} "
                f"{found[name][metric]['mean']:.3f}; the guarantee allows any attack at most "
                f"{promise.allowed()[metric]:.3f}, and chance does not explain the rest. Either "
                "the code has a fault and the guarantee does not hold, or the held-out records "
                "differ from the training records. Do not share the release before you know which.")
    little = (" At this epsilon nearly everything is allowed: the bound says little."
              if promise.auroc > WEAK else "")
    most = format(promise.auroc, ".3f" if promise.auroc < 0.99 else ".6g")
    return (f"{reached}; the guarantee allows at most {most} for any attack.{little} "
            "An attack that fails proves nothing.")


def _take(records: Records, picked: np.ndarray) -> Records:
    return records[0][picked], records[1][picked]


def _checked(part: str, records: Records, features: int | None = None) -> Records:
    """Flattened records; features: how many there must be."""
    x, y = np.asarray(records[0]), records[1]
    y = np.zeros(len(x), int) if y is None else np.asarray(y)
    if x.ndim < 2 or y.shape != x.shape[:1]:
        raise UserError(f"{part} records have shape {x.shape} and labels {y.shape}; expected "
                        "[n, ...] and one label a record")
    x = attacks.flat(x)
    if features is not None and x.shape[1] != features:
        raise UserError(f"{part} records have {x.shape[1]} values, training records {features}; "
                        "both need the same shape")
    if x.size and not (x.min() >= -1e-6 and x.max() <= 1 + 1e-6):  # NaN fails it too
        raise UserError(f"{part} records are not all numbers in [0, 1]; rescale or encode them")
    return x, y
